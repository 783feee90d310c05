package bus

import (
	"io"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This file is apart for its unsafe code: eventfd(2)'s reads and writes as system
// calls that the Go scheduler is not told of, which x/sys has no wrapper for.
//
// They never block, so it need not know. If it did, the first one after a sleep
// would wake the runtime's monitor thread, and that would take the processor from
// a goroutine whose call takes longer than 20 microseconds, which happens when the
// kernel lets the process run first that the call has woken. (Quickstart with
// plugins: without that half of the context switches.)

// counterSize is what each read and write of an eventfd carries.
const counterSize = 8

// readCounter takes the count. It returns EAGAIN if that is zero, and io.EOF for
// a descriptor that is no eventfd.
func readCounter(fd uintptr, count *uint64) error {
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_READ, fd, uintptr(unsafe.Pointer(count)), counterSize)
		switch {
		case errno == unix.EINTR:
		case errno != 0:
			return errno
		case n != counterSize:
			return io.EOF
		default:
			return nil
		}
	}
}

// addOne adds one to the count, unless it is at its maximum.
func addOne(fd uintptr) {
	_, _, _ = unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&one)), counterSize)
}

var one uint64 = 1
