package framework

import (
	"sync/atomic"

	"nicd/bus"
)

// Rx and Tx are the vectors that serve a queue: its own, or its partner's if it
// has none. With neither, the queue is polled and the vector is 0, for devices
// that want to be told one. Being served is not interrupting: see TxInterrupts.
func (p *VectorPlan) Rx(queue int) int { return vectorOf(p.RxVector, p.TxVector, queue) }

// Tx is the same for a transmit queue.
func (p *VectorPlan) Tx(queue int) int { return vectorOf(p.TxVector, p.RxVector, queue) }

// TxInterrupts tells whether finished packets of a transmit queue are to raise an
// interrupt: those of one without a vector of its own are not, even though its
// partner's interrupts serve it.
func (p *VectorPlan) TxInterrupts(queue int) bool {
	return queue < len(p.TxVector) && p.TxVector[queue] >= 0
}

func vectorOf(own, partner []int, queue int) int {
	if queue < len(own) && own[queue] >= 0 {
		return own[queue]
	}
	if queue < len(partner) && partner[queue] >= 0 {
		return partner[queue]
	}
	return 0
}

// Vector is what a driver has to remember of an interrupt vector: what it is
// about, and whether it is masked, so that no register is written for nothing.
// Its methods are safe for any goroutine.
type Vector struct {
	// Cause is all that the vector can be about. A transmit queue that is not to
	// interrupt is in none, whoever serves it.
	Cause  Cause
	masked atomic.Bool
}

// NewVectors makes a plan's vectors, for so many queues. They are masked, as they
// are after Device.Start.
func NewVectors(p *VectorPlan, rxQueues, txQueues int) []Vector {
	all := make([]Vector, p.Vectors)
	for i := range all {
		all[i].masked.Store(true)
		all[i].Cause.Admin = i == p.AdminVector
		for q := range rxQueues {
			if p.Rx(q) == i {
				all[i].Cause.Rx |= 1 << q
			}
		}
		for q := range txQueues {
			if p.TxInterrupts(q) && p.Tx(q) == i {
				all[i].Cause.Tx |= 1 << q
			}
		}
	}
	return all
}

// Fired says that the device has masked the vector by itself when it fired.
func (v *Vector) Fired() { v.masked.Store(true) }

// Mask says that the vector is to be masked and tells whether it is not.
func (v *Vector) Mask() bool { return v.masked.CompareAndSwap(false, true) }

// Unmask says that the vector is to be unmasked. The driver tells the device in
// any case: it may have masked the vector for an interrupt that nobody has seen
// yet.
func (v *Vector) Unmask() { v.masked.Store(false) }

// InterruptChoices are the kinds of interrupt that a device has, best first, with
// at most so many vectors of each, by InterruptKind, as its driver can use.
func InterruptChoices(info bus.Info, most [3]int) (choices []InterruptChoice) {
	for _, kind := range [...]bus.InterruptKind{bus.MSIX, bus.MSI, bus.INTx} {
		if n := min(info.Vectors[kind], most[kind]); n > 0 {
			choices = append(choices, InterruptChoice{Kind: kind, Vectors: n})
		}
	}
	return choices
}
