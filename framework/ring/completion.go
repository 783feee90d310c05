package ring

// Completion is a ring that the device writes and the driver consumes. The next
// descriptor is there when its generation bit equals the generation, which
// starts at one and flips at every wrap. Nothing is written back: whoever sized
// the ring has seen to it that the device cannot overtake the driver.
type Completion[D any] struct {
	memory[D]
	size uint32
	at   Cursor
}

// Cursor is a place in a completion ring, to look ahead from without consuming: a
// packet is taken as a whole or left for the next poll. It is valid until the ring
// consumes something by other means.
type Cursor struct {
	index uint32
	gen   uint32 // the owner bit of descriptors that are there
}

// NewCompletion makes a ring of n descriptors at the start of mem, all zero. The
// memory stays the caller's and must outlive the ring.
func NewCompletion[D any](mem []byte, n int, gen Owner) (*Completion[D], error) {
	m, err := overlay[D](mem, n, gen)
	if err != nil {
		return nil, err
	}
	return &Completion[D]{memory: m, size: uint32(n), at: Cursor{gen: m.bit}}, nil
}

// Size is how many descriptors the ring has.
func (c *Completion[D]) Size() int { return int(c.size) }

// Ready tells whether there is a descriptor to take. It changes nothing.
func (c *Completion[D]) Ready() bool { return c.load(c.at.index)&c.bit == c.at.gen }

// Take consumes one descriptor, if there is one, and returns a copy of it.
func (c *Completion[D]) Take() (d D, ok bool) { return c.Peek(&c.at) }

// take consumes one descriptor, if there is one, and returns what it has in field.
func (c *Completion[D]) take(field Field) (value uint32, ok bool) {
	i, ok := c.step(&c.at)
	if !ok {
		return 0, false
	}
	return c.words[i*c.stride+uint32(field.Offset/4)] & field.Mask, true
}

// Cursor starts to look ahead at the first descriptor not consumed.
func (c *Completion[D]) Cursor() Cursor { return c.at }

// Peek returns a copy of the descriptor at cur, if it is there, and moves cur
// on. The ring consumes nothing.
func (c *Completion[D]) Peek(cur *Cursor) (d D, ok bool) {
	i, ok := c.step(cur)
	if !ok {
		return d, false
	}
	return c.desc[i], true
}

// step moves cur over the descriptor that it is at, if that is there, and returns
// where it was.
func (c *Completion[D]) step(cur *Cursor) (i uint32, ok bool) {
	i = cur.index
	if c.load(i)&c.bit != cur.gen {
		return i, false
	}
	if cur.index++; cur.index == c.size {
		cur.index = 0
		cur.gen ^= c.bit
	}
	return i, true
}

// Seek consumes everything before cur.
func (c *Completion[D]) Seek(cur Cursor) { c.at = cur }
