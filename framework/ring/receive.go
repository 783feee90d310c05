package ring

import "nicd/framework"

// Receive is the receive half of a queue as many devices have it: a [Done] ring in
// which each descriptor has one buffer, given with the buffer's device address in
// its first eight bytes and zeros behind, and filled in order; and a register that
// is told the tail. A driver embeds it, adds Poll, and has a framework.RxQueue:
//
//	for {
//		d, ok := q.Next(dst)
//		if !ok {
//			return q.End()
//		}
//		q.Fill(length)
//		if the packet ends with d {
//			... // what is known of it, to q.Packet
//			q.Deliver(dst)
//		}
//	}
type Receive[D any] struct {
	// Assembly is the packet that is being put together.
	framework.Assembly

	ring     *Done[D]
	slots    *Slots[framework.Buffer]
	buffers  *framework.Buffers
	bell     framework.Register
	told     uint32 // the register's value
	size     uint32 // bytes that the device may write to a buffer
	buffer   framework.Buffer
	recycled bool // a buffer was given again since End
}

// NewReceive makes a queue of a ring, which it takes over, for buffers to which
// the device writes at most size bytes.
func NewReceive[D any](r *Done[D], buffers *framework.Buffers, size uint32, bell framework.Register) Receive[D] {
	return Receive[D]{ring: r, slots: NewSlots(r.Size(), framework.NoBuffer), buffers: buffers, size: size, bell: bell}
}

// give posts a buffer. There is space.
func (q *Receive[D]) give(b framework.Buffer) {
	at := q.ring.Tail()
	q.slots.Put(at, b)
	q.ring.address(at, q.buffers.RxAddr(b))
	q.ring.Add()
}

// Post implements framework.RxQueue.
func (q *Receive[D]) Post(bufs []framework.Buffer) int {
	n := min(len(bufs), q.ring.Space())
	for _, b := range bufs[:n] {
		q.give(b)
	}
	return n
}

// Outstanding is how many buffers the device has.
func (q *Receive[D]) Outstanding() int { return q.ring.Outstanding() }

// Bell implements framework.RxQueue. It writes the register only if there is
// anything new.
func (q *Receive[D]) Bell() {
	if t := q.ring.Tail(); t != q.told {
		q.told = t
		q.bell.Write(t)
	}
}

// Pending implements framework.RxQueue.
func (q *Receive[D]) Pending() bool { return q.ring.Ready() }

// Next takes the next descriptor, if it is done and dst has room for the packet
// with its buffer. Fill has to follow.
func (q *Receive[D]) Next(dst *framework.Batch) (d D, ok bool) {
	if !q.Room(dst) {
		return d, false
	}
	i, d, ok := q.ring.Take()
	if ok {
		q.buffer, _ = q.slots.Take(i)
	}
	return d, ok
}

// Fill adds the buffer of the descriptor that Next returned to the packet, with the
// n bytes that the device says to have written to it. More than it may write make
// the packet a bad one. A buffer with nothing in it is given again.
func (q *Receive[D]) Fill(n uint32) {
	if !q.Append(q.buffer, n, q.size) {
		q.give(q.buffer)
		q.recycled = true
	}
}

// End ends a poll: the device hears of buffers that were given again.
func (q *Receive[D]) End() framework.Verdict {
	if q.recycled {
		q.recycled = false
		q.Bell()
	}
	return framework.Healthy
}
