package bus

import (
	"io"
	"unsafe"

	"golang.org/x/sys/unix"
)

// This file is apart for its unsafe code: eventfd(2)'s reads and writes as system
// calls that the Go scheduler is not told of, which x/sys has no wrapper for.
//
// A call that can't block is nothing that it need know. If it did, the first one
// after a sleep would wake the runtime's monitor thread, and that would take the
// processor from a goroutine whose call takes longer than 20 microseconds, which
// happens when the kernel lets the process run first that the call has woken.
// (Quickstart with plugins: without that half of the context switches.)
//
// A call that did block would hold its processor, and with it the next garbage
// collection, for ever. That O_NONBLOCK was set is no protection from a peer, who
// can clear it. Reads say themselves that they do not wait; for writes of an
// eventfd Linux has nothing of the kind, so they are such calls only if the peer is
// trusted.

// counterSize is what each read and write of an eventfd carries.
const counterSize = 8

// counter is where an eventfd's count is read to.
type counter struct {
	value uint64
	at    unix.Iovec // value
}

func (c *counter) init() {
	c.at.Base = (*byte)(unsafe.Pointer(&c.value))
	c.at.SetLen(counterSize)
}

// read takes the count, without waiting. It returns EAGAIN if that is zero, and
// io.EOF or another error for a descriptor that is no eventfd.
func (c *counter) read(fd uintptr) error {
	const here = ^uintptr(0) // as read(2) does, without a position
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_PREADV2, fd, uintptr(unsafe.Pointer(&c.at)), 1, here, here, unix.RWF_NOWAIT)
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

var one uint64 = 1

// addOne adds one to the count, unless it is at its maximum. If it is, and the
// descriptor is blocking, it waits.
func addOne(fd uintptr) bool {
	_, _, _ = unix.Syscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&one)), counterSize)
	return true // one try
}

// addOneUntold is addOne for a descriptor that stays non-blocking.
func addOneUntold(fd uintptr) bool {
	_, _, _ = unix.RawSyscall(unix.SYS_WRITE, fd, uintptr(unsafe.Pointer(&one)), counterSize)
	return true
}
