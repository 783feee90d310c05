package bus

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Event is an eventfd: a counter in the kernel that one side adds to and the
// other waits for. It carries interrupts and doorbells between goroutines and
// between processes alike.
//
// Signal may be called by many goroutines. Wait is for one at a time; it sleeps
// in the runtime's poller, so the waiting goroutine holds no thread.
type Event struct {
	file *os.File
}

// NewEvent makes an event with a count of zero.
func NewEvent() (*Event, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	return OpenEvent(fd), nil
}

// OpenEvent takes over fd, an eventfd made elsewhere, and closes it with the
// event. The descriptor must be non-blocking; O_NONBLOCK belongs to the open
// file, so it is if its maker made it so.
func OpenEvent(fd int) *Event {
	return &Event{file: os.NewFile(uintptr(fd), "eventfd")}
}

// Signal adds one to the count and wakes the waiter. It never blocks: a count
// that is already at its maximum is signalled enough.
func (e *Event) Signal() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = e.file.Write(one[:])
}

// Wait returns the count and sets it to zero, waiting until it is not zero, ctx
// ends or the event is closed.
func (e *Event) Wait(ctx context.Context) (uint64, error) {
	stop := context.AfterFunc(ctx, func() { _ = e.file.SetReadDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() {
			_ = e.file.SetReadDeadline(time.Time{})
		}
	}()
	return e.read(ctx)
}

func (e *Event) read(ctx context.Context) (uint64, error) {
	var count [8]byte
	for {
		_, err := e.file.Read(count[:])
		switch {
		case err == nil:
			return binary.NativeEndian.Uint64(count[:]), nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil:
			return 0, ctx.Err()
		default:
			return 0, err
		}
	}
}

// File is the descriptor to pass to another process. The event keeps owning it.
func (e *Event) File() *os.File { return e.file }

// Close ends the event; a waiter returns with os.ErrClosed.
func (e *Event) Close() error { return e.file.Close() }
