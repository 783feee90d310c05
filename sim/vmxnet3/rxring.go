package vmxnet3

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"nicd/bus"
)

// rxQueue is one receive queue: two rings of buffers and one of completions.
type rxQueue struct {
	id       int
	rings    [2]rxRing
	comp     completion
	data     uint64 // receive data ring
	dataSize int    // bytes of an entry, 0 if there is none
	desc     uint64 // RxQueueDesc
	intr     int
	stopped  bool
	err      uint32
	bells    bool          // updateRxProd is set from activation on
	opened   bool          // the views are of this batch
	done     int           // completions of this batch
	need     int           // a packet of so many bytes waits for descriptors
	since    time.Duration // a packet waits, and none was received since; or 0
	packets  int           // since activation
}

// rxRing is a ring of receive descriptors.
type rxRing struct {
	cursor
	base uint64
	size int
	view []byte
}

// cursor is a place in a ring and the generation of what is the device's there:
// rxGen or 0.
type cursor struct {
	next int
	gen  uint32
	held uint32 // 1 + index of a descriptor that was set aside (V22), or 0
}

func (c *cursor) advance(size int) {
	if c.next++; c.next == size {
		c.next = 0
		c.gen ^= rxGen
	}
}

// rxDesc is a receive descriptor.
type rxDesc struct {
	addr uint64
	w2   uint32
}

func (d rxDesc) body() bool { return d.w2&rxBody != 0 }
func (d rxDesc) size() int  { return int(d.w2 & rxLenMask) }

// at reads the descriptor at c, if it is the device's. It never is a lap after the one
// that is next: who looks for descriptors comes to an end, also if a driver hands them
// over faster than they are passed.
func (r *rxRing) at(c cursor) (d rxDesc, ok bool) {
	if r.size == 0 || c.next == r.next && c.gen != r.gen {
		return d, false
	}
	d.w2 = bus.Word(r.view, c.next*descSize+rxDescGenWord).Load()
	if d.w2&rxGen != c.gen {
		return d, false
	}
	d.addr = binary.LittleEndian.Uint64(r.view[c.next*descSize:])
	return d, true
}

// setAside passes over the descriptor at c, if there is one behind it to go on with:
// the next packet begins with it.
func (r *rxRing) setAside(c *cursor) bool {
	next := *c
	next.advance(r.size)
	if _, more := r.at(next); !more {
		return false
	}
	next.held = uint32(c.next) + 1
	*c = next
	return true
}

// takeHeld is the descriptor that was set aside.
func (r *rxRing) takeHeld(c *cursor) (s slot, d rxDesc) {
	at := int(c.held-1) * descSize
	d = rxDesc{binary.LittleEndian.Uint64(r.view[at:]), bus.Word(r.view, at+rxDescGenWord).Load()}
	s = slot{index: int(c.held - 1), addr: d.addr, size: d.size()}
	c.held = 0
	return s, d
}

func (q *rxQueue) cursors() [2]cursor {
	return [2]cursor{q.rings[0].cursor, q.rings[1].cursor}
}

func (q *rxQueue) commit(c [2]cursor) {
	q.rings[0].cursor, q.rings[1].cursor = c[0], c[1]
}

// ask sets or clears updateRxProd in word. Always-on bells stay on.
func (q *rxQueue) ask(word *atomic.Uint32, on bool) {
	v := uint32(0)
	if on || q.bells {
		v = 1
	}
	word.Store(v)
}

// slot is a descriptor that a packet is going to use.
type slot struct {
	ring  int
	index int
	addr  uint64
	size  int  // bytes of the buffer
	empty bool // completed without data
}

// planResult is whether a packet fits what the driver posted.
type planResult uint8

const (
	planFits     planResult = iota
	planStarved             // not enough descriptors
	planTooLong             // more descriptors than a packet may have
	planBroken              // a descriptor makes no sense: the queue stopped
	planHopeless            // not enough, and waiting does not help
)

// plan appends the slots, at most limit, that a packet of n bytes will use,
// walking from c, and returns where it ended. Nothing is used up yet.
//
// A packet starts in a HEAD of ring 1; BODY descriptors before it are passed
// over. It goes on in ring 1 if a BODY is next there, else in ring 2. Without a
// second ring it goes on in whatever is next in ring 1.
func (r *receiver) plan(q *rxQueue, c [2]cursor, slots []slot, n, limit int) ([]slot, [2]cursor, planResult) {
	odd, got, used := r.oddities(q), 0, 0
	if c[0].held != 0 {
		s, d := q.rings[0].takeHeld(&c[0])
		if code := d.fault(0, true); code != 0 {
			r.halt(q, code)
			return slots, c, planBroken
		}
		slots, got, used = append(slots, s), s.size, 1
	}
	for got < n {
		k, d, ok := q.head(&c, used == 0)
		if !ok {
			return slots, c, planStarved
		}
		if used == limit {
			return slots, c, planTooLong
		}
		s := slot{ring: k, index: c[k].next, addr: d.addr, size: d.size()}
		switch odd.of(used) {
		case held:
			q.rings[k].setAside(&c[k])
			continue
		case skipped:
			c[k].advance(q.rings[k].size)
			continue
		case emptied:
			s.empty = true
		case ordinary:
			if code := d.fault(k, used == 0); code != 0 {
				r.halt(q, code)
				return slots, c, planBroken
			}
			got += s.size
			used++
		}
		c[k].advance(q.rings[k].size)
		slots = append(slots, s)
	}
	return slots, c, planFits
}

// fault is what is wrong with a descriptor of ring k, the first of a packet or
// not, if anything is.
func (d rxDesc) fault(k int, first bool) uint32 {
	switch {
	case d.size() == 0, first && d.size() < minHeadBuffer:
		return errSmallBuffer
	case k == 1 && !d.body():
		return errDescUnsupported
	}
	return 0
}

// oddities are the variations that make this packet use more descriptors than it
// needs. Each happens once.
type oddities struct{ skip, hold, empty, hole bool }

// oddity is what happens to a descriptor.
type oddity uint8

const (
	ordinary oddity = iota
	skipped         // passed over, without a completion
	emptied         // completed without data
	held            // set aside for the next packet
)

func (r *receiver) oddities(q *rxQueue) oddities {
	v := &r.m.opt.Variations
	return oddities{
		skip:  every(v.SkipEvery, q.packets),
		hold:  every(v.OutOfOrderEvery, q.packets),
		empty: every(v.ZeroLengthEvery, q.packets),
		hole:  every(v.ZeroLengthBodyEvery, q.packets),
	}
}

// every tells whether it is the turn of what happens at every n-th packet.
func every(n, packets int) bool { return n > 0 && packets%n == n-1 }

// of says what happens to the next descriptor when used ones hold data already.
func (o *oddities) of(used int) oddity {
	switch {
	case used == 0 && o.skip:
		o.skip = false
		return skipped
	case used == 0 && o.hold:
		o.hold = false
		return held
	case used == 0 && o.empty:
		o.empty = false
		return emptied
	case used == 1 && o.hole:
		o.hole = false
		return emptied
	}
	return ordinary
}

// exhausted tells whether a packet that used up all descriptors up to c found a
// ring as full as it can be: the driver can't post more before it gets some back.
func (q *rxQueue) exhausted(c [2]cursor) bool {
	for k := range q.rings {
		r := &q.rings[k]
		used := c[k].next - r.next
		if c[k].gen != r.gen {
			used += r.size
		}
		if r.held != 0 {
			used++
		}
		if r.size > 0 && used >= r.size-1 {
			return true
		}
	}
	return false
}

// head finds the next descriptor for a packet: its first, or one more.
func (q *rxQueue) head(c *[2]cursor, first bool) (ring int, d rxDesc, ok bool) {
	d, ok = q.rings[0].at(c[0])
	if first {
		for ok && d.body() {
			c[0].advance(q.rings[0].size)
			d, ok = q.rings[0].at(c[0])
		}
		return 0, d, ok
	}
	if ok && (d.body() || q.rings[1].size == 0) {
		return 0, d, true
	}
	d, ok = q.rings[1].at(c[1])
	return 1, d, ok
}

// maxSlots is how many descriptors a packet may use.
func (r *receiver) maxSlots() int {
	n := r.m.shared.maxRxSG
	if n == 0 && r.m.opt.Variations.ZeroRxSGIsOne {
		return 1
	}
	if n == 0 {
		return maxRxPackets - 8
	}
	return min(n, maxRxPackets-8)
}
