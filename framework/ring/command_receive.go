package ring

import "nicd/framework"

// CommandReceive is what [Receive] is, for devices with generation bits: one or more
// rings of D with a buffer in each descriptor, [Posted], and a [Completion] ring of C
// in which the device says what it did with which of them. A driver embeds it, adds
// Poll, and has a framework.RxQueue:
//
//	for {
//		c, ok := q.Next(dst)
//		if !ok || !q.Fill(ring, index, length) {
//			return q.End()
//		}
//		if the packet ends with c {
//			... // what is known of it, to q.Packet
//			q.Deliver(dst)
//		}
//	}
type CommandReceive[D, C any] struct {
	// Assembly is the packet that is being put together.
	framework.Assembly

	rings    []postedRing[D]
	comp     *Completion[C]
	next     Cursor      // behind the completion that Next returned
	size     uint32      // bytes that the device may write to a buffer
	asked    func() bool // see ReceiveFormat
	rang     bool        // the bell, since the queue was made
	recycled bool        // a buffer was given again since End
	broken   bool        // the device has lost count
}

type postedRing[D any] struct {
	Posted[D]
	id   uint32
	bell framework.Register
}

// ReceiveFormat is what a CommandReceive has to know of a device and of how it is to
// run.
type ReceiveFormat struct {
	Align      int    // of each ring's address
	Desc, Comp Owner  // generation bits
	Size       uint32 // bytes that the device may write to a buffer
	Order      Order  // in which the device may use descriptors
	Rings      []ReceiveRing
	// BellAsked tells whether the device asks for the bell (quirk rx-bell): without
	// that it finds buffers by their generation bits, and a bell is a VM exit for
	// nothing. The first one rings in any case. nil has all of them ring.
	BellAsked func() bool
}

// ReceiveRing is one ring of buffers of a queue.
type ReceiveRing struct {
	ID   uint32 // by which completions name the ring
	Word uint32 // owner word of its descriptors, but for the generation bit
	Bell framework.Register
}

// AllocCommandReceive makes a queue of rings of n descriptors each, and as many
// completions as they have together, in memory that dma gives.
func AllocCommandReceive[D, C any](dma framework.DMA, n int, buffers *framework.Buffers, f ReceiveFormat) (q CommandReceive[D, C], err error) {
	q.size, q.asked = f.Size, f.BellAsked
	for _, r := range f.Rings {
		ring, err := AllocCommand[D](dma, n, f.Align, f.Desc)
		if err != nil {
			return q, err
		}
		q.rings = append(q.rings, postedRing[D]{NewPosted(ring, buffers, r.Word, f.Order), r.ID, r.Bell})
	}
	q.comp, err = AllocCompletion[C](dma, n*len(f.Rings), f.Align, f.Comp)
	return q, err
}

// Addr is the device address of the ring at index i of ReceiveFormat.Rings.
func (q *CommandReceive[D, C]) Addr(i int) uint64 { return q.rings[i].Addr() }

// CompletionAddr is the completion ring's.
func (q *CommandReceive[D, C]) CompletionAddr() uint64 { return q.comp.Addr() }

// Completions is how many completions the completion ring has.
func (q *CommandReceive[D, C]) Completions() int { return q.comp.Size() }

// Outstanding is how many buffers the device has in the ring at index i.
func (q *CommandReceive[D, C]) Outstanding(i int) int { return q.rings[i].Outstanding() }

// Post implements framework.RxQueue. It gives each buffer to the ring that lacks
// most, the first of those that lack the same. With fewer buffers than the rings
// hold, a ring that came first would have them all, and a packet that needs one of
// another ring would never end, or never start.
func (q *CommandReceive[D, C]) Post(bufs []framework.Buffer) int {
	for n, b := range bufs {
		r := &q.rings[0]
		for i := 1; i < len(q.rings); i++ {
			if other := &q.rings[i]; other.Space() > r.Space() {
				r = other
			}
		}
		if r.Space() == 0 {
			return n
		}
		r.Give(b)
	}
	return len(bufs)
}

// Bell implements framework.RxQueue.
func (q *CommandReceive[D, C]) Bell() {
	if q.rang && q.asked != nil && !q.asked() {
		return
	}
	q.rang = true
	for i := range q.rings {
		q.rings[i].bell.Write(q.rings[i].Tail())
	}
}

// Pending implements framework.RxQueue.
func (q *CommandReceive[D, C]) Pending() bool { return q.comp.Ready() && !q.broken }

// Next returns the next completion, if there is one and dst has room for the packet
// with its buffer. It is consumed by Fill; without that it comes again.
func (q *CommandReceive[D, C]) Next(dst *framework.Batch) (c C, ok bool) {
	if q.broken || !q.Room(dst) {
		return c, false
	}
	q.next = q.comp.Cursor()
	return q.comp.Peek(&q.next)
}

// Fill adds to the packet the buffer of descriptor i of the ring that is called id,
// with the n bytes that the completion says were written to it. More than the device
// may write make the packet a bad one; a buffer with nothing in it is given again,
// wherever in a packet it is. If the device does not have such a descriptor it has
// lost count: Fill fails, and the queue gives no more packets.
func (q *CommandReceive[D, C]) Fill(id, i, n uint32) bool {
	r, b := q.take(id, i)
	if r == nil {
		q.broken = true
		return false
	}
	if !q.Append(b, n, q.size) {
		r.Give(b)
		q.recycled = true
	}
	q.comp.Seek(q.next)
	return true
}

// take takes the buffer of descriptor i of the ring that is called id, if there is
// such a one.
func (q *CommandReceive[D, C]) take(id, i uint32) (*postedRing[D], framework.Buffer) {
	for at := range q.rings {
		if r := &q.rings[at]; r.id == id {
			if b, ok := r.Take(i); ok {
				return r, b
			}
		}
	}
	return nil, framework.NoBuffer
}

// End ends a poll: the device hears of buffers that were given again.
func (q *CommandReceive[D, C]) End() framework.Verdict {
	if q.broken {
		return framework.QueueFault
	}
	if q.recycled {
		q.recycled = false
		q.Bell()
	}
	return framework.Healthy
}
