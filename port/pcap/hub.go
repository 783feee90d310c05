package pcap

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"nicd/framework"
)

// Hub is an interface's capture points. Its methods are for any goroutine.
type Hub struct {
	name      string
	available [NumPoints]bool
	watchers  [NumPoints]atomic.Pointer[[]*Capture] // nil: nobody
	mu        sync.Mutex                            // of changes
}

// NewHub makes the hub of an interface of which these points can be seen.
func NewHub(name string, points ...Point) *Hub {
	h := &Hub{name: name}
	for _, p := range points {
		h.available[p] = true
	}
	return h
}

// Packet is a packet as a point sees it. The bytes are borrowed.
type Packet struct {
	Parts [][]byte
	Len   int // sum of the parts'
	// Tagged: VLAN is an 802.1Q TCI that is not in the frame.
	Tagged bool
	VLAN   uint16
	// Segments and SegmentSize: the packet stands for so many segments. Both are
	// 0 for an ordinary packet; a size of 0 alone is one that the device did not
	// tell.
	Segments, SegmentSize int
	Coalesced             bool // merged on receive, rather than to be cut
	Partial               bool // the checksum is still to be filled in
}

// Watched tells whether somebody captures at a point.
func (h *Hub) Watched(p Point) bool { return h.watchers[p].Load() != nil }

// Put shows count packets of a queue, which describe describes, to whoever
// captures at a point.
func (h *Hub) Put(point Point, queue, count int, describe func(i int, p *Packet)) {
	watchers := h.watchers[point].Load()
	if watchers == nil {
		return
	}
	now := time.Now().UnixNano()
	for _, c := range *watchers {
		c.add(c.copy(point, queue, now, count, describe))
	}
}

// start makes c get what is seen at its points.
func (h *Hub) start(c *Capture) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range c.options.Points {
		if !h.available[p] {
			return fmt.Errorf("interface %s: point %s can't be seen: only a simulated device's wire is nicd's; rx-delivered and tx-port can", h.name, p)
		}
	}
	for _, p := range c.options.Points {
		var watchers []*Capture
		if old := h.watchers[p].Load(); old != nil {
			watchers = slices.Clone(*old)
		}
		watchers = append(watchers, c)
		h.watchers[p].Store(&watchers)
	}
	return nil
}

func (h *Hub) stop(c *Capture) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for p := range h.watchers {
		old := h.watchers[p].Load()
		if old == nil {
			continue
		}
		watchers := slices.DeleteFunc(slices.Clone(*old), func(w *Capture) bool { return w == c })
		if len(watchers) == 0 {
			h.watchers[p].Store(nil)
			continue
		}
		h.watchers[p].Store(&watchers)
	}
}

// Port is p with what is delivered to it seen at RxDelivered.
func (h *Hub) Port(p framework.Port, below framework.Interface) framework.Port {
	return &port{Port: p, hub: h, buffers: below.Buffers()}
}

type port struct {
	framework.Port
	hub     *Hub
	buffers *framework.Buffers
}

// Deliver implements framework.Port.
func (p *port) Deliver(queue int, b *framework.Batch) {
	if p.hub.Watched(RxDelivered) {
		p.hub.Put(RxDelivered, queue, len(b.Packets), describe(p.buffers, b))
	}
	p.Port.Deliver(queue, b)
}

// Interface is i with what is sent to it seen at TxPort.
func (h *Hub) Interface(i framework.Interface) framework.Interface {
	return &above{Interface: i, hub: h}
}

type above struct {
	framework.Interface
	hub *Hub
}

// Send implements framework.Interface. The packets that it takes are gone
// afterwards, so they are copied before.
func (a *above) Send(queue int, b *framework.Batch) int {
	watchers := a.hub.watchers[TxPort].Load()
	if watchers == nil {
		return a.Interface.Send(queue, b)
	}
	now := time.Now().UnixNano()
	copies := make([][]Record, len(*watchers))
	for i, c := range *watchers {
		copies[i] = c.copy(TxPort, queue, now, len(b.Packets), describe(a.Interface.Buffers(), b))
	}
	taken := a.Interface.Send(queue, b)
	for i, c := range *watchers {
		sent := copies[i]
		for len(sent) > 0 && sent[len(sent)-1].index >= taken {
			sent = sent[:len(sent)-1]
		}
		c.add(sent)
	}
	return taken
}

// describe describes the packets of a batch.
func describe(buffers *framework.Buffers, b *framework.Batch) func(int, *Packet) {
	return func(i int, to *Packet) {
		p := &b.Packets[i]
		parts := to.Parts[:0]
		for _, f := range b.Fragments(i) {
			if buffers.Valid(f) { // what a port sends has not been checked yet
				parts = append(parts, buffers.Bytes(f))
			}
		}
		*to = Packet{
			Parts: parts, Len: int(p.Len),
			Tagged: p.Flags&framework.VLANTag != 0, VLAN: p.VLAN,
			Coalesced: p.Flags&(framework.Coalesced|framework.SoftwareCoalesced) != 0,
			Partial:   p.Flags&framework.ChecksumPartial != 0,
		}
		switch {
		case to.Coalesced:
			to.Segments, to.SegmentSize = int(p.Segments), int(p.SegmentSize)
		case p.Flags&framework.Segment != 0 && p.SegmentSize > 0:
			to.SegmentSize = int(p.SegmentSize)
			to.Segments = (int(p.Len) - int(p.HeaderLen) + to.SegmentSize - 1) / to.SegmentSize
		}
	}
}
