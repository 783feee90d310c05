package bus

// This file is apart for its unsafe code: mincore takes an address, and x/sys
// has no wrapper for it.

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// mincore fails when b is not mapped.
func mincore(b, resident []byte) error {
	_, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), uintptr(unsafe.Pointer(&resident[0])))
	if e != 0 {
		return e
	}
	return nil
}
