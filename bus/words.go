package bus

// This file holds the package's unsafe code: viewing shared bytes as
// words for atomic access, and aligning heap memory as mmap would. Both are
// needed because sync/atomic works on typed words and shared memory is bytes.

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Word views the four bytes at offset, which must be a multiple of four and in
// range, as a word for atomic access. Shared words are in host byte order.
func Word(b []byte, offset int) *atomic.Uint32 {
	if offset&3 != 0 || offset < 0 || offset+4 > len(b) {
		panic(fmt.Sprintf("bus: word at %d of %d bytes", offset, len(b)))
	}
	return (*atomic.Uint32)(unsafe.Pointer(&b[offset]))
}

// Words64 views b, which starts at a multiple of eight, as 64-bit words for
// atomic access; a rest shorter than a word is left out.
func Words64(b []byte) []atomic.Uint64 {
	if len(b) < 8 {
		return nil
	}
	if uintptr(unsafe.Pointer(&b[0]))&7 != 0 {
		panic("bus: 64-bit words in memory that is not aligned")
	}
	return unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(&b[0])), len(b)/8)
}

func alignedBytes(size, align int) []byte {
	b := make([]byte, size+align)
	skip := int(-uintptr(unsafe.Pointer(&b[0])) & uintptr(align-1))
	return b[skip : skip+size : skip+size]
}
