package engine

// This file uses x/sys/unix because an endless poller's thread is bound to a
// processor, which the standard library cannot do.

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// pin binds the calling goroutine to its thread and the thread to a processor.
// The goroutine must end without unlocking, so that the thread dies with it. A
// processor that is not there leaves the thread where it is.
func pin(cpu int) {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu)
	_ = unix.SchedSetaffinity(0, &set)
}
