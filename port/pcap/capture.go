package pcap

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
)

// Options of a Capture. Points is needed.
type Options struct {
	Points  []Point
	SnapLen int    // bytes kept of a packet; 0 is all
	Filter  string // see ParseFilter; "" takes all
}

// Bounds of what waits for a reader.
const (
	maxWaiting      = 16384
	maxWaitingBytes = 32 << 20
)

// Record is a captured packet.
type Record struct {
	Time    int64 // nanoseconds since 1970
	Point   Point
	Queue   int
	Len     int    // of the packet on its way, with its tag
	Data    []byte // at most SnapLen bytes of it
	Comment string // what is special about it, "" if nothing is
	index   int    // in its batch
}

// Capture collects what passes at some points of an interface from Start on,
// until Stop. One goroutine reads.
type Capture struct {
	hub     *Hub
	options Options
	filter  *Filter
	ready   chan struct{}

	mu      sync.Mutex
	waiting []Record
	bytes   int
	lost    uint64
}

// Start starts a capture.
func (h *Hub) Start(o Options) (*Capture, error) {
	o.Points = slices.Compact(slices.Sorted(slices.Values(o.Points))) // each packet once
	c := &Capture{hub: h, options: o, ready: make(chan struct{}, 1)}
	if o.Filter != "" {
		var err error
		if c.filter, err = ParseFilter(o.Filter); err != nil {
			return nil, err
		}
	}
	return c, h.start(c)
}

// Stop ends the capture.
func (c *Capture) Stop() { c.hub.stop(c) }

// Next waits for packets and returns them, at most max, and how many have been
// lost so far because they were not read fast enough.
func (c *Capture) Next(ctx context.Context, max int) (records []Record, lost uint64, err error) {
	for {
		c.mu.Lock()
		n := min(max, len(c.waiting))
		records, lost = c.waiting[:n:n], c.lost
		if c.waiting = c.waiting[n:]; len(c.waiting) == 0 {
			c.waiting = nil
		}
		for i := range records {
			c.bytes -= len(records[i].Data)
		}
		c.mu.Unlock()
		if n > 0 {
			return records, lost, nil
		}
		select {
		case <-c.ready:
		case <-ctx.Done():
			return nil, lost, ctx.Err()
		}
	}
}

// filterLen is how much of a packet a filter may look at.
const filterLen = 256

// copy makes records of the packets that pass the filter.
func (c *Capture) copy(point Point, queue int, now int64, count int, describe func(int, *Packet)) []Record {
	var p Packet
	var records []Record
	var head [filterLen]byte
	for i := range count {
		describe(i, &p)
		length := p.Len
		if p.Tagged {
			length += tagLen
		}
		if c.filter != nil && !c.filter.Match(head[:p.copyTo(head[:])], length) {
			continue
		}
		keep := length
		if c.options.SnapLen > 0 {
			keep = min(keep, c.options.SnapLen)
		}
		data := make([]byte, keep)
		data = data[:p.copyTo(data)]
		records = append(records, Record{
			Time: now, Point: point, Queue: queue, Len: length, Data: data, Comment: p.comment(), index: i,
		})
	}
	return records
}

// add makes records wait for the reader, or loses them.
func (c *Capture) add(records []Record) {
	if len(records) == 0 {
		return
	}
	c.mu.Lock()
	for i := range records {
		if len(c.waiting) == maxWaiting || c.bytes+len(records[i].Data) > maxWaitingBytes {
			c.lost += uint64(len(records) - i)
			break
		}
		c.waiting = append(c.waiting, records[i])
		c.bytes += len(records[i].Data)
	}
	c.mu.Unlock()
	select {
	case c.ready <- struct{}{}:
	default:
	}
}

// The 802.1Q tag that a device has taken out of a frame is put back.
const (
	tagAt    = 12
	tagLen   = 4
	etherTag = 0x8100
)

// copyTo copies the frame, with its tag, and returns how many bytes that were.
func (p *Packet) copyTo(dst []byte) int {
	n, skip := 0, 0
	if p.Tagged {
		var front [tagAt + tagLen]byte
		if p.copyFrom(front[:tagAt], 0) == tagAt {
			binary.BigEndian.PutUint16(front[tagAt:], etherTag)
			binary.BigEndian.PutUint16(front[tagAt+2:], p.VLAN)
			n, skip = copy(dst, front[:]), tagAt
		}
	}
	return n + p.copyFrom(dst[n:], skip)
}

// copyFrom copies the frame's bytes from an offset on.
func (p *Packet) copyFrom(dst []byte, from int) int {
	n := 0
	for _, part := range p.Parts {
		if from >= len(part) {
			from -= len(part)
			continue
		}
		n += copy(dst[n:], part[from:])
		from = 0
	}
	return n
}

// comment says what a packet's bytes do not.
func (p *Packet) comment() string {
	switch {
	case p.Coalesced && p.SegmentSize == 0:
		return "coalesced: the device did not tell the size of the segments"
	case p.Coalesced:
		return fmt.Sprintf("coalesced: %d segments of at most %d bytes", p.Segments, p.SegmentSize)
	case p.SegmentSize > 0:
		return fmt.Sprintf("to be cut into %d segments of at most %d bytes", p.Segments, p.SegmentSize)
	case p.Partial:
		return "the checksum is still to be filled in"
	}
	return ""
}
