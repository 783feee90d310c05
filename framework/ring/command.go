package ring

// Command is a ring that the driver writes and in which a generation bit says
// which descriptors are the device's: those whose bit equals the generation,
// which starts at one and flips at every wrap.
//
// A packet of several descriptors is published as a whole. Its first descriptor
// keeps the inverted bit, which it has from the lap before, so that a device
// which looks at it stops there; the others get the right one; then
// [Command.Publish] stores the first one's owner word atomically, after which
// the device may read all of them. (vmxnet3 drivers that build that descriptor
// anew write the inverted bit themselves; here the word is left alone, because a
// device may be looking at it right now.)
//
// The usual walk, with as much Space checked before:
//
//	for each fragment {
//		d := ring.Next()
//		d.addr, d.flags = ...
//		ring.Add(length) // the owner word without its generation bit
//	}
//	ring.Publish()
type Command[D any] struct {
	memory[D]
	span
	gen    uint32 // the owner bit that makes a descriptor the device's
	first  uint32 // first descriptor that is not published
	word   uint32 // its owner word, published
	staged bool
}

// NewCommand makes a ring of n descriptors at the start of mem, all zero and
// owned by the driver. The memory stays the caller's and must outlive the ring.
func NewCommand[D any](mem []byte, n int, gen Owner) (*Command[D], error) {
	m, err := overlay[D](mem, n, gen)
	if err != nil {
		return nil, err
	}
	return &Command[D]{memory: m, span: span{size: uint32(n)}, gen: m.bit}, nil
}

// Next is the descriptor at Tail, for the driver to fill in. What it holds is
// what was there a lap ago; its owner word is written by Add.
func (c *Command[D]) Next() *D { return &c.desc[c.tail] }

// Add ends the descriptor that Next returned: word is its owner word, in which
// the generation bit is put. The device does not see it before Publish. A full
// ring panics; look at Space first.
func (c *Command[D]) Add(word uint32) {
	at := c.tail
	word = word&^c.bit | c.gen
	if c.staged {
		*c.owner(at) = word
	} else {
		c.first, c.word, c.staged = at, word, true
	}
	if c.push() {
		c.gen ^= c.bit
	}
}

// Publish gives the descriptors added since the last Publish to the device, all
// at once. With none it does nothing.
func (c *Command[D]) Publish() {
	if !c.staged {
		return
	}
	c.store(c.first, c.word)
	c.staged = false
}

// Give is Add and Publish of a descriptor that stands alone: a receive buffer.
// Between Add and Publish it panics: it would be seen before its elders.
func (c *Command[D]) Give(word uint32) {
	if c.staged {
		panic("ring: Give while descriptors are not published")
	}
	at := c.tail
	c.store(at, word&^c.bit|c.gen)
	if c.push() {
		c.gen ^= c.bit
	}
}
