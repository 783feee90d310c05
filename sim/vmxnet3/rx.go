package vmxnet3

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"nicd/bus"
	"nicd/sim"
)

// Frames.
const (
	minFrame    = 60 // without frame check sequence; shorter ones are padded
	headerRoom  = 256
	maxPacket   = 65535 + sim.EthernetHeaderLen + sim.VLANTagLen
	starvedLook = time.Millisecond
	// A driver that posts nothing for so long does not hold its peer up any
	// longer: frames are dropped until one is received again.
	pauseLimit   = time.Second
	maxRxPackets = 512 // descriptors of a packet, whatever the driver allows
)

// receiver is the receive half of the device.
type receiver struct {
	m        *Model
	queues   [maxRxQueues]rxQueue
	filter   filter
	rss      rss
	counters [maxRxQueues]rxCounters
	starved  atomic.Bool // a sender waits for descriptors of some queue
	packet   packet      // being received
	next     packet      // looked at for coalescing
	seg      sim.Segmenter
	slots    []slot
	pieces   []piece
	parts    [][]byte // of a packet within the packet
}

func (r *receiver) init() {
	r.slots = make([]slot, 0, maxRxPackets)
	r.packet.src = make([][]byte, 0, maxRxPackets)
	r.parts = make([][]byte, 0, maxRxPackets)
}

func (r *receiver) start(i int, c rxConfig, desc uint64) {
	q := &r.queues[i]
	*q = rxQueue{id: i, desc: desc, intr: c.intr, data: c.data, dataSize: c.dataDescSize}
	for k := range q.rings {
		q.rings[k] = rxRing{base: c.ring[k].base, size: c.ring[k].size}
		q.rings[k].gen = rxGen
	}
	q.comp = completion{base: c.comp.base, size: c.comp.size, gen: compGen}
	q.bells = r.m.opt.Variations.RxDoorbells == RxDoorbellsAlways
}

func (r *receiver) stop() {
	for i := range r.queues {
		r.queues[i] = rxQueue{}
	}
	if r.starved.Swap(false) {
		r.m.port.Room() // frames are dropped from now on
	}
}

// Receive implements sim.End.
func (m *Model) Receive(frames []sim.Frame, pause bool) int {
	m.host.Rx.Lock()
	defer m.host.Rx.Unlock()
	if !m.active {
		return len(frames)
	}
	done := 0
	for done < len(frames) {
		n := m.rx.receive(frames[done:], pause)
		if n == 0 {
			break
		}
		done += n
	}
	m.rx.flush()
	return done
}

// receive takes the first frame, and following ones if they are coalesced with
// it, and returns how many; none if it has to wait for descriptors.
func (r *receiver) receive(frames []sim.Frame, pause bool) int {
	p, f := &r.packet, &frames[0]
	if f.Flags&sim.Segment != 0 && !r.m.lro.Load() {
		return r.receiveCut(f)
	}
	p.read(f)
	vid := uint16(0)
	if p.h.VLAN {
		vid = binary.BigEndian.Uint16(p.hdr[14:]) & 0xfff
	}
	if f.Len < sim.EthernetHeaderLen || !r.filter.accepts(p.hdr, vid) {
		return 1
	}
	long := r.oversize(p, f)
	q := &r.queues[r.inspect(f)]
	switch {
	case q.stopped || !r.open(q):
		r.counters[q.id].discard++
		return 1
	case long:
		r.counters[q.id].err++
		return 1
	}
	pause = pause && !r.expired(q)
	if f.Flags&sim.Segment != 0 {
		return r.placeTSO(q, f, pause)
	}
	return r.place(q, frames, maxPacket, pause)
}

// receiveCut takes a TSO frame that was sent just before LRO was turned off. The
// sender can't be told to wait in the middle of it.
func (r *receiver) receiveCut(f *sim.Frame) int {
	for i, total := 0, r.seg.Count(f); i < total; {
		segs := r.seg.Cut(f, i, true)
		i += len(segs)
		for len(segs) > 0 {
			segs = segs[r.receive(segs, false):]
		}
	}
	return 1
}

// inspect completes what is known of the packet that was read from f, and
// returns its queue.
func (r *receiver) inspect(f *sim.Frame) (queue int) {
	p := &r.packet
	p.cast = castOf(p.hdr)
	p.checksum(f, r.m.shared.features)
	r.inner(f)
	queue, hash, kind := r.rss.classify(&p.h, p.hdr)
	p.hash, p.w0 = hash, p.w0|kind<<rcRSSShift
	if p.h.VLAN && r.m.shared.features&featureVLAN != 0 {
		p.strip()
	}
	return queue
}

// oversize tells whether a frame is longer than the MTU allows.
func (r *receiver) oversize(p *packet, f *sim.Frame) bool {
	n := f.Len - sim.EthernetHeaderLen
	if p.h.VLAN {
		n -= sim.VLANTagLen
	}
	if f.Flags&sim.Segment != 0 {
		n = min(n, f.HeaderLen-sim.EthernetHeaderLen+f.SegmentSize)
	}
	return f.Len > maxPacket || n > r.m.shared.mtu && !r.m.opt.Variations.AcceptOversize
}

// open looks up the queue's rings, once a batch. If they are not there any more,
// the queue stops.
func (r *receiver) open(q *rxQueue) bool {
	if q.opened {
		return true
	}
	a := &r.m.host.Rx
	ok := true
	for k := range q.rings {
		if ring := &q.rings[k]; ring.size > 0 {
			ring.view = a.Bytes(ring.base, ring.size*descSize)
			ok = ok && ring.view != nil
		}
	}
	q.comp.view = a.Bytes(q.comp.base, q.comp.size*descSize)
	if !ok || q.comp.view == nil {
		r.halt(q, errDescUnsupported)
		return false
	}
	q.opened = true
	return true
}

// halt stops a queue with an error, and says so.
func (r *receiver) halt(q *rxQueue, code uint32) {
	q.stopped, q.err = true, code
	r.m.event(&r.m.host.Rx, eventRxQueue)
}

// flush ends a batch: an interrupt for each queue that completed something.
func (r *receiver) flush() {
	for i := range r.m.shared.rxQueues {
		q := &r.queues[i]
		q.opened = false
		if q.done > 0 {
			r.m.intr.raise(&r.m.host.Rx, q.intr, q.done)
			q.done = 0
		}
	}
}

// starve notes that a packet of n bytes waits for descriptors.
func (r *receiver) starve(q *rxQueue, n int) {
	now := r.m.host.Now()
	q.need = n
	if q.since == 0 {
		q.since = max(now, 1)
	}
	r.starved.Store(true)
	r.m.host.WakeAt(now + starvedLook)
}

// expired tells whether the queue has made its peers wait for too long.
func (r *receiver) expired(q *rxQueue) bool {
	return q.since != 0 && r.m.host.Now() >= q.since+pauseLimit
}

// recover looks whether the descriptors that packets wait for have come, and
// lets senders go on then.
func (r *receiver) recover() bool {
	r.m.host.Rx.Lock()
	defer r.m.host.Rx.Unlock()
	if !r.m.active || !r.starved.Load() {
		return false
	}
	for i := range r.m.shared.rxQueues {
		if q := &r.queues[i]; q.need != 0 && !q.stopped && !r.relieved(q) {
			r.m.host.WakeAt(r.m.host.Now() + starvedLook)
			return false
		}
	}
	for i := range r.m.shared.rxQueues {
		q := &r.queues[i]
		if q.need != 0 && r.m.opt.Variations.RxDoorbells == RxDoorbellsStarved {
			r.askBells(q, false)
		}
		q.need = 0
	}
	r.starved.Store(false)
	r.m.port.Room()
	return true
}

// relieved tells whether the packet that waits for the queue fits now, or needs
// wait no longer.
func (r *receiver) relieved(q *rxQueue) bool {
	if r.expired(q) || !r.open(q) {
		return true
	}
	_, _, res := r.plan(q, q.cursors(), r.slots[:0], q.need, maxRxPackets)
	q.opened = false
	return res != planStarved
}

// askBells sets RxQueueCtrl.updateRxProd. The driver reads it after it has
// posted descriptors; who sets it has to look at the ring once more.
func (r *receiver) askBells(q *rxQueue, on bool) {
	if b := r.m.host.Rx.Bytes(q.desc, 4); b != nil {
		q.ask(bus.Word(b, qdUpdateRxProd), on)
	}
}
