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
	skips   bool
}

// addressWords are the words of a descriptor that have the address.
const addressWords = 2

// NewPosted makes one of a ring, which it takes over. The owner word of each
// descriptor is word and the generation bit. If skips is set the device may pass
// over descriptors (quirk skips-rx-slots). An owner word within the address panics.
func NewPosted[D any](r *Command[D], buffers *framework.Buffers, word uint32, skips bool) Posted[D] {
	if r.memory.word < addressWords {
		panic("ring: the owner word is where a buffer's address goes")
	}
	return Posted[D]{ring: r, slots: NewSlots(r.Size(), framework.NoBuffer), buffers: buffers, word: word, skips: skips}
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
// device may do. If not, or if i is not outstanding, the device has lost count: it
// is not ok, and nothing is taken.
func (p *Posted[D]) Take(i uint32) (b framework.Buffer, ok bool) {
	n := p.ring.Through(i)
	if n == 0 || n > 1 && !p.skips {
		return framework.NoBuffer, false
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
