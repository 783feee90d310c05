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

// Read reads a register of size bytes, or all ones if there is none.
func (r *Region) Read(offset uint32, size int) uint32 {
	switch p := r.at(offset, size); {
	case p == nil:
		return ^uint32(0) >> (32 - 8*size)
	case size == 1:
		return uint32(Load8((*uint8)(p)))
	case size == 2:
		return uint32(Load16((*uint16)(p)))
	default:
		return Load32((*uint32)(p))
	}
}

// Write writes a register of size bytes, if there is one.
func (r *Region) Write(offset uint32, size int, value uint32) {
	switch p := r.at(offset, size); {
	case p == nil:
	case size == 1:
		Store8((*uint8)(p), uint8(value))
	case size == 2:
		Store16((*uint16)(p), uint16(value))
	default:
		Store32((*uint32)(p), value)
	}
}

func (r *Region) word(offset uint32) *uint32 { return (*uint32)(r.at(offset, 4)) }

// at is where the register of size bytes at offset is, nil if there is none.
func (r *Region) at(offset uint32, size int) unsafe.Pointer {
	if offset&uint32(size-1) != 0 || uint64(offset)+uint64(size) > uint64(len(r.mem)) {
		return nil
	}
	return unsafe.Pointer(&r.mem[offset])
}
