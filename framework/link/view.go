package link

// This file holds the package's unsafe code: ring slots in shared memory as
// typed slices. Encoding field by field through byte slices costs several times
// as much on the way of every packet.

import (
	"unsafe"

	"nicd/bus"
)

// slots views n slots of T from offset on. The range is part of a layout that
// fits the arena.
func slots[T entry | uint32](arena *bus.Memory, offset, n int) []T {
	var t T
	b := arena.Bytes()[offset : offset+n*int(unsafe.Sizeof(t))]
	return unsafe.Slice((*T)(unsafe.Pointer(&b[0])), n)
}

// Compile-time proof that an entry and a run of more fragments are one slot.
var (
	_ [entrySize]byte = [unsafe.Sizeof(entry{})]byte{}
	_ [entrySize]byte = [unsafe.Sizeof(moreFragments{})]byte{}
)

// more views an entry as the continuation of the packet before it.
func (e *entry) more() *moreFragments { return (*moreFragments)(unsafe.Pointer(e)) }
