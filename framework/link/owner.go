package link

import (
	"sync/atomic"

	"nicd/framework"
)

// owner is who may touch a buffer.
type owner uint32

const (
	ownerHost   owner = iota // free, in the host's pool
	ownerPort                // handed out by Deliver or Alloc
	ownerEngine              // with the engine, or in a ring on the way to or from it
	ownerNobody              // the engine's own: never in a ring
)

// owners is the host's record of every buffer, outside shared memory. A buffer
// changes hands by compare-and-swap, so that of two claims to it, by whatever
// queues and goroutines, one is wrong and is found out.
type owners []atomic.Uint32

func newOwners(l Layout) owners {
	o := make(owners, l.numBuffers())
	for q := range l.Queues {
		rx, tx, own := l.pool(q)
		o.set(rx, ownerEngine) // the first Reset takes them
		o.set(tx, ownerEngine)
		o.set(own, ownerNobody)
	}
	return o
}

func (o owners) set(r Range, who owner) {
	for i := range r.Count {
		o[uint32(r.First)+i].Store(uint32(who))
	}
}

// move gives buffer b, which exists, from one to another.
func (o owners) move(b framework.Buffer, from, to owner) bool {
	return o[b].CompareAndSwap(uint32(from), uint32(to))
}

func (o owners) of(b framework.Buffer) owner { return owner(o[b].Load()) }

// claim moves all buffers of frags from one to another, or none.
func (o owners) claim(frags []framework.Fragment, from, to owner) (framework.Buffer, bool) {
	for i := range frags {
		if !o.move(frags[i].Buffer, from, to) {
			for j := range i {
				o.move(frags[j].Buffer, to, from)
			}
			return frags[i].Buffer, false
		}
	}
	return 0, true
}
