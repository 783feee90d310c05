package ring

import (
	"fmt"
	"sync/atomic"
)

// span is the outstanding part of a ring that the driver writes: used
// descriptors, from head on, up to but without tail.
type span struct {
	size, head, tail, used uint32
}

// Size is how many descriptors the ring has.
func (s *span) Size() int { return int(s.size) }

// Space is how many descriptors can be added. One slot always stays empty, so
// that a full ring and an empty one do not look the same to the device.
func (s *span) Space() int { return int(s.size - 1 - s.used) }

// Outstanding is how many descriptors were added and not released.
func (s *span) Outstanding() int { return int(s.used) }

// Head is the index of the oldest outstanding descriptor.
func (s *span) Head() uint32 { return s.head }

// Tail is the index of the next descriptor to be written, one past the last one
// that was: what a doorbell or tail register wants to be told.
func (s *span) Tail() uint32 { return s.tail }

// Through is how many of the oldest outstanding descriptors lie at or before
// index i: what is finished when the device says that i is. It is 0 if i is not
// outstanding, which a device that works never claims.
func (s *span) Through(i uint32) int {
	if i >= s.size {
		return 0
	}
	n := i - s.head
	if i < s.head {
		n += s.size
	}
	if n >= s.used {
		return 0
	}
	return int(n) + 1
}

// Release takes back the n oldest outstanding descriptors. Releasing more than
// there are panics.
func (s *span) Release(n int) {
	if uint(n) > uint(s.used) {
		panic(fmt.Sprintf("ring: release of %d descriptors, %d outstanding", n, s.used))
	}
	s.used -= uint32(n)
	s.head += uint32(n)
	if s.head >= s.size {
		s.head -= s.size
	}
}

// push moves the tail over one descriptor and tells whether it wrapped.
func (s *span) push() (wrapped bool) {
	if s.used >= s.size-1 {
		panic("ring: descriptor added to a full ring")
	}
	s.used++
	s.tail++
	if s.tail == s.size {
		s.tail = 0
		return true
	}
	return false
}

func (m *memory[D]) owner(i uint32) *uint32 { return &m.words[i*m.stride+m.word] }

func (m *memory[D]) load(i uint32) uint32 { return atomic.LoadUint32(m.owner(i)) }

func (m *memory[D]) store(i, word uint32) { atomic.StoreUint32(m.owner(i), word) }
