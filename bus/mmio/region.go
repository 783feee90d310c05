package mmio

// This file holds the package's unsafe code: naming the register at an offset
// of a mapping, which is bytes, as the 32-bit word that it is.

import "unsafe"

// Region is a mapped range of registers. It implements bus.Region. Its methods
// may be called by many goroutines; the mapping has to outlive them.
type Region struct {
	mem []byte
}

// NewRegion views mem, which is mapped and aligned to a page, as registers.
func NewRegion(mem []byte) *Region { return &Region{mem: mem} }

// Size is the length in bytes.
func (r *Region) Size() int { return len(r.mem) }

// Read32 reads the register at offset, or all ones if there is none.
func (r *Region) Read32(offset uint32) uint32 {
	p := r.word(offset)
	if p == nil {
		return ^uint32(0)
	}
	return Load32(p)
}

// Write32 writes the register at offset, if there is one.
func (r *Region) Write32(offset, value uint32) {
	if p := r.word(offset); p != nil {
		Store32(p, value)
	}
}

func (r *Region) word(offset uint32) *uint32 {
	if offset&3 != 0 || uint64(offset)+4 > uint64(len(r.mem)) {
		return nil
	}
	return (*uint32)(unsafe.Pointer(&r.mem[offset]))
}
