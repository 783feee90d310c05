package ring

import "nicd/framework"

// CommandTransmit is what [Transmit] is, for devices with generation bits: a
// [Command] ring of D, a [Completion] ring of C in which the device names the
// descriptors that it is through with, and the packets in [Flight]. A driver embeds
// it, adds Put and Bell, and has a framework.TxQueue:
//
//	for each packet, while Space {
//		for each fragment {
//			d := q.Next()
//			d.addr, d.flags = ...
//			q.Add(length) // the owner word
//		}
//		q.End(reports)
//	}
type CommandTransmit[D, C any] struct {
	ring   *Command[D]
	comp   *Completion[C]
	index  Field
	lost   func()
	flight *Flight
	open   int // descriptors since the last End
}

// TransmitFormat is where ring and completion ring of a CommandTransmit have what
// is the same for all devices.
type TransmitFormat struct {
	Align           int   // of each ring's address
	Desc, Comp      Owner // generation bits
	CompletionIndex Field // of the last descriptor that a completion is about
}

// AllocCommandTransmit makes a queue of n descriptors and n completions in memory
// that dma gives. Lost is called by Completed when the device names a descriptor
// that it does not have, which is nothing that the queue can go on from.
func AllocCommandTransmit[D, C any](dma framework.DMA, n int, f TransmitFormat, lost func()) (q CommandTransmit[D, C], err error) {
	q.index, q.lost, q.flight = f.CompletionIndex, lost, NewFlight(n)
	if q.ring, err = AllocCommand[D](dma, n, f.Align, f.Desc); err != nil {
		return q, err
	}
	if q.comp, err = AllocCompletion[C](dma, n, f.Align, f.Comp); err != nil {
		return q, err
	}
	return q, q.comp.checkField(f.CompletionIndex)
}

// Addr is the ring's device address.
func (q *CommandTransmit[D, C]) Addr() uint64 { return q.ring.Addr() }

// CompletionAddr is the completion ring's.
func (q *CommandTransmit[D, C]) CompletionAddr() uint64 { return q.comp.Addr() }

// Space is how many descriptors can be added.
func (q *CommandTransmit[D, C]) Space() int { return q.ring.Space() }

// Outstanding is how many descriptors the device has.
func (q *CommandTransmit[D, C]) Outstanding() int { return q.ring.Outstanding() }

// Tail is the index of the descriptor that comes next, and what a doorbell wants to
// be told.
func (q *CommandTransmit[D, C]) Tail() uint32 { return q.ring.Tail() }

// Next is the descriptor at Tail, to be filled in, see [Command.Next].
func (q *CommandTransmit[D, C]) Next() *D { return q.ring.Next() }

// Add ends the descriptor that Next returned, whose owner word is to be word. There
// is space.
func (q *CommandTransmit[D, C]) Add(word uint32) {
	q.ring.Add(word)
	q.open++
}

// End ends a packet, of which at least one descriptor was added, and publishes it.
// The device reports its last one if reports is set.
func (q *CommandTransmit[D, C]) End(reports bool) {
	q.ring.Publish()
	last := q.ring.Tail()
	if last == 0 {
		last = q.ring.size
	}
	q.flight.Add(last-1, q.open, reports)
	q.open = 0
}

// Completed implements framework.TxQueue. Each completion names the last descriptor
// of a packet, and all packets before it are finished too. A device may complete
// more packets than were to be reported; those count with the next that was.
func (q *CommandTransmit[D, C]) Completed(max int) int {
	for q.flight.Ready() < max {
		i, ok := q.comp.take(q.index)
		if !ok {
			break
		}
		through := q.ring.Through(i)
		if through == 0 {
			q.lost()
			continue
		}
		q.ring.Release(q.flight.RetireThrough(through))
	}
	return q.flight.Completed(max)
}

// Pending implements framework.TxQueue.
func (q *CommandTransmit[D, C]) Pending() bool { return q.flight.Ready() > 0 || q.comp.Ready() }
