package ring

import "nicd/framework"

// Transmit is the transmit half of a queue as many devices have it: a [Done] ring
// with the packets in [Flight], and a register that is told the tail. A driver
// embeds it, adds Put, and has a framework.TxQueue:
//
//	for each packet, while Space {
//		q.Add(descriptor) // as many as the packet takes
//		q.End(reports)
//	}
type Transmit[D any] struct {
	ring   *Done[D]
	flight *Flight
	bell   framework.Register
	open   int // descriptors since the last End
}

// NewTransmit makes a queue of a ring, which it takes over.
func NewTransmit[D any](r *Done[D], bell framework.Register) Transmit[D] {
	return Transmit[D]{ring: r, flight: NewFlight(r.Size()), bell: bell}
}

// Space is how many descriptors can be added.
func (q *Transmit[D]) Space() int { return q.ring.Space() }

// Add adds a descriptor. There is space.
func (q *Transmit[D]) Add(d D) {
	*q.ring.Next() = d
	q.ring.Add()
	q.open++
}

// End ends a packet, of which at least one descriptor was added. The device
// reports its last one if reports is set.
func (q *Transmit[D]) End(reports bool) {
	last := q.ring.Tail()
	if last == 0 {
		last = q.ring.size
	}
	q.flight.Add(last-1, q.open, reports)
	q.open = 0
}

// Bell implements framework.TxQueue. It writes the register in any case: whoever
// rings again thinks that a bell was lost.
func (q *Transmit[D]) Bell() { q.bell.Write(q.ring.Tail()) }

// Completed implements framework.TxQueue.
func (q *Transmit[D]) Completed(max int) int {
	for q.flight.Ready() < max && q.reported() {
		q.ring.Release(q.flight.Retire())
	}
	return q.flight.Completed(max)
}

// Pending implements framework.TxQueue.
func (q *Transmit[D]) Pending() bool { return q.flight.Ready() > 0 || q.reported() }

// reported tells whether the oldest packet that was to be reported has been.
func (q *Transmit[D]) reported() bool {
	last, ok := q.flight.Oldest()
	return ok && q.ring.IsDone(last)
}
