package ring

// Slots says which buffer each descriptor of a ring has, by index. H is a buffer
// handle.
type Slots[H comparable] struct {
	slots []H
	none  H
}

// NewSlots makes n slots, all of which hold none, the handle that names no
// buffer.
func NewSlots[H comparable](n int, none H) *Slots[H] {
	s := &Slots[H]{slots: make([]H, n), none: none}
	for i := range s.slots {
		s.slots[i] = none
	}
	return s
}

// Put stores the buffer of slot i.
func (s *Slots[H]) Put(i uint32, h H) { s.slots[i] = h }

// Take empties slot i and returns what it held. An empty slot and an index that
// is none answer false: a device that reports one buffer twice gets nothing the
// second time.
func (s *Slots[H]) Take(i uint32) (h H, ok bool) {
	if i >= uint32(len(s.slots)) {
		return s.none, false
	}
	h = s.slots[i]
	s.slots[i] = s.none
	return h, h != s.none
}

// Empty tells whether slot i holds none.
func (s *Slots[H]) Empty(i uint32) bool { return s.slots[i] == s.none }
