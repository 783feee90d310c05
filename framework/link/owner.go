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
)

// owners is the host's record of every buffer, outside shared memory. A buffer
// changes hands by compare-and-swap, so that of two claims to it, by whatever
// queues and goroutines, one is wrong and is found out.
type owners []atomic.Uint32

func newOwners(l Layout) owners {
	o := make(owners, l.numBuffers())
	for i := range o {
		o[i].Store(uint32(ownerEngine)) // the first Reset takes them
	}
	return o
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
