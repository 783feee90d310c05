package ring

// This file holds the package's unsafe code: viewing shared bytes as typed
// descriptors and as words for atomic access, once, when a ring is made. What
// comes out are slices, so everything after that is bounds-checked Go.

import (
	"errors"
	"fmt"
	"reflect"
	"unsafe"
)

// ErrLayout is wrapped by all errors of the constructors: the memory, the
// number of descriptors, the descriptor type and the owner word do not go
// together. It is a mistake in the driver, not in the device.
var ErrLayout = errors.New("descriptor ring layout")

// Owner says which bit of a descriptor tells who owns it: its generation bit or
// its done bit.
type Owner struct {
	Offset int    // of the 32-bit word, in bytes from the descriptor's start
	Bit    uint32 // the bit in that word, as a mask
}

// Field says where in a descriptor a number is: the low bits of a 32-bit word.
type Field struct {
	Offset int    // of the word, in bytes from the descriptor's start
	Mask   uint32 // of the bits in that word
}

// memory is a ring's descriptors, seen twice.
type memory[D any] struct {
	desc   []D
	words  []uint32 // the same bytes
	stride uint32   // words a descriptor
	word   uint32   // which of them is the owner word
	bit    uint32
	addr   uint64
}

// Addr is the ring's device address, if its memory was allocated by this package.
func (m *memory[D]) Addr() uint64 { return m.addr }

// checkField tells whether a descriptor has such a field.
func (m *memory[D]) checkField(f Field) error {
	if f.Offset < 0 || f.Offset%4 != 0 || f.Offset/4 >= int(m.stride) {
		return fmt.Errorf("%w: field at %d of a descriptor of %d bytes", ErrLayout, f.Offset, m.stride*4)
	}
	return nil
}

// overlay zeroes the first n descriptors in mem and views them.
func overlay[D any](mem []byte, n int, owner Owner) (memory[D], error) {
	var d D
	size := int(unsafe.Sizeof(d))
	if err := check(reflect.TypeFor[D](), mem, n, size, owner); err != nil {
		return memory[D]{}, fmt.Errorf("%w: %T: %w", ErrLayout, d, err)
	}
	base := unsafe.Pointer(unsafe.SliceData(mem))
	m := memory[D]{
		desc:   unsafe.Slice((*D)(base), n),
		words:  unsafe.Slice((*uint32)(base), n*size/4),
		stride: uint32(size / 4),
		word:   uint32(owner.Offset / 4),
		bit:    owner.Bit,
	}
	clear(m.desc)
	return m, nil
}

func check(t reflect.Type, mem []byte, n, size int, owner Owner) error {
	switch {
	case littleEndian() != 1:
		return errors.New("descriptors are little-endian, this machine is not")
	case hasPointers(t):
		return errors.New("a descriptor can't hold Go pointers")
	case size == 0 || size%4 != 0:
		return fmt.Errorf("size %d is not a positive multiple of 4", size)
	case n < 2 || n > maxSize:
		return fmt.Errorf("%d descriptors, want 2 to %d", n, maxSize)
	case n*size > len(mem):
		return fmt.Errorf("%d descriptors of %d bytes need %d bytes, have %d", n, size, n*size, len(mem))
	case uintptr(unsafe.Pointer(unsafe.SliceData(mem)))%uintptr(max(t.Align(), 4)) != 0:
		return errors.New("memory is not aligned")
	case owner.Offset < 0 || owner.Offset%4 != 0 || owner.Offset+4 > size:
		return fmt.Errorf("owner word at %d of a %d-byte descriptor", owner.Offset, size)
	case owner.Bit == 0 || owner.Bit&(owner.Bit-1) != 0:
		return fmt.Errorf("owner %#x is not one bit", owner.Bit)
	}
	return nil
}

// view zeroes the first bytes of mem and views them as a T.
func view[T any](mem []byte) (*T, error) {
	base, t := unsafe.Pointer(unsafe.SliceData(mem)), reflect.TypeFor[T]()
	switch {
	case littleEndian() != 1:
		return nil, fmt.Errorf("%w: %v is little-endian, this machine is not", ErrLayout, t)
	case hasPointers(t):
		return nil, fmt.Errorf("%w: %v has Go pointers", ErrLayout, t)
	case uintptr(len(mem)) < t.Size():
		return nil, fmt.Errorf("%w: %v needs %d bytes, have %d", ErrLayout, t, t.Size(), len(mem))
	case uintptr(base)%uintptr(t.Align()) != 0:
		return nil, fmt.Errorf("%w: memory for %v is not aligned", ErrLayout, t)
	}
	clear(mem[:t.Size()])
	return (*T)(base), nil
}

// offset is where part is in whole.
func offset[T, F any](whole *T, part *F) uint64 {
	at := uintptr(unsafe.Pointer(part)) - uintptr(unsafe.Pointer(whole))
	if at+unsafe.Sizeof(*part) > unsafe.Sizeof(*whole) || at > unsafe.Sizeof(*whole) {
		panic(fmt.Sprintf("ring: %T is not part of this %T", part, whole))
	}
	return uint64(at)
}

// maxSize keeps sums of two indices inside 32 bits; no device comes near it.
const maxSize = 1 << 24

func littleEndian() byte {
	one := uint16(1)
	return *(*byte)(unsafe.Pointer(&one))
}

func hasPointers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			if hasPointers(t.Field(i).Type) {
				return true
			}
		}
		return false
	case reflect.Array:
		return t.Len() > 0 && hasPointers(t.Elem())
	case reflect.Bool, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return false
	}
	return true // pointers, and types whose size depends on the machine
}
