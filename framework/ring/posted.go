package ring

import "nicd/framework"

// Posted is receive buffers that are with a device: a [Command] ring in which each
// descriptor has one buffer, given with the buffer's device address in its first
// eight bytes and the same owner word each time, and [Slots] for which one. The
// device names the descriptors that it has used; a queue may have several such
// rings. The zero value is no ring.
type Posted[D any] struct {
	ring    *Command[D]
	slots   *Slots[framework.Buffer]
	buffers *framework.Buffers
	word    uint32
	order   Order
}

// Order is in what order a device may use the descriptors of a ring of buffers.
type Order uint8

// Orders.
const (
	InOrder  Order = iota // all of them, as they were given
	Skips                 // as they were given, and those passed over are done with (quirk skips-rx-slots)
	Reorders              // any, and those passed over are still the device's (quirk reorders-rx-slots)
)

// OrderOf is the order that a device's quirks declare.
func OrderOf(quirks *framework.QuirkSet) Order {
	switch {
	case framework.ReordersRxSlotsQuirk.Get(quirks):
		return Reorders
	case framework.SkipsRxSlotsQuirk.Get(quirks):
		return Skips
	}
	return InOrder
}

// addressWords are the words of a descriptor that have the address.
const addressWords = 2

// NewPosted makes one of a ring, which it takes over. The owner word of each
// descriptor is word and the generation bit. An owner word within the address panics.
func NewPosted[D any](r *Command[D], buffers *framework.Buffers, word uint32, order Order) Posted[D] {
	if r.memory.word < addressWords {
		panic("ring: the owner word is where a buffer's address goes")
	}
	return Posted[D]{ring: r, slots: NewSlots(r.Size(), framework.NoBuffer), buffers: buffers, word: word, order: order}
}

// Space is how many buffers can be given.
func (p *Posted[D]) Space() int { return p.ring.Space() }

// Outstanding is how many buffers the device has.
func (p *Posted[D]) Outstanding() int { return p.ring.Outstanding() }

// Tail is what a doorbell wants to be told.
func (p *Posted[D]) Tail() uint32 { return p.ring.Tail() }

// Addr is the ring's device address.
func (p *Posted[D]) Addr() uint64 { return p.ring.Addr() }

// Give gives b to the device, which sees it at once. There is space.
func (p *Posted[D]) Give(b framework.Buffer) {
	at := p.ring.Tail()
	p.slots.Put(at, b)
	addr, words := p.buffers.RxAddr(b), p.ring.words[at*p.ring.stride:][:addressWords]
	words[0], words[1] = uint32(addr), uint32(addr>>32)
	p.ring.Give(p.word)
}

// Take takes the buffer of descriptor i, which the device says to have used. What
// lies before it was skipped and is given again, in order, if that is what the
// device may do; if it may reorder, that stays with the device. If neither, or if i
// is not outstanding, the device has lost count: it is not ok, and nothing is taken.
func (p *Posted[D]) Take(i uint32) (b framework.Buffer, ok bool) {
	n := p.ring.Through(i)
	switch {
	case n == 0, n > 1 && p.order == InOrder:
		return framework.NoBuffer, false
	case p.order == Reorders:
		b, ok = p.slots.Take(i)
		p.release()
		return b, ok
	}
	for range n - 1 {
		skipped, _ := p.slots.Take(p.ring.Head())
		p.ring.Release(1)
		p.Give(skipped)
	}
	b, ok = p.slots.Take(i)
	p.ring.Release(1)
	return b, ok
}

// release takes back the oldest descriptors as far as their buffers were taken.
func (p *Posted[D]) release() {
	for p.ring.Outstanding() > 0 && p.slots.Empty(p.ring.Head()) {
		p.ring.Release(1)
	}
}
