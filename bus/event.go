package bus

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Event is an eventfd: a counter in the kernel that one side adds to and the
// other waits for. It carries interrupts and doorbells between goroutines and
// between processes alike.
//
// Signal and Rouse may be called by many goroutines. Wait and Take are for one at a
// time; a waiter sleeps in the runtime's poller, so the waiting goroutine holds no
// thread. Neither they nor repeated Waits with the same context allocate.
//
// Who else has the descriptor can take the count: what only it is told it can miss by
// its own fault, and what others have to say goes by Rouse.
type Event struct {
	file *os.File
	raw  syscall.RawConn
	// take, wait and signal are the callbacks of Take, Wait and Signal, made once
	// so that those do not allocate.
	take         func(fd uintptr)
	wait, signal func(fd uintptr) bool

	count  counter // what take and wait read
	failed error   // why they could not
	closed atomic.Bool
	roused atomic.Bool

	mu    sync.Mutex // guards watch: Close may come from any goroutine
	watch watch
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
	e := &Event{file: os.NewFile(uintptr(fd), "eventfd"), signal: addOne}
	e.raw, _ = e.file.SyscallConn() // fails for a nil file only
	e.count.init()
	e.take = func(fd uintptr) { e.failed = e.count.read(fd) }
	e.wait = func(fd uintptr) bool {
		e.failed = e.count.read(fd)
		return e.failed != unix.EAGAIN
	}
	return e
}

// TrustPeers says that whoever else has the descriptor leaves it non-blocking, as
// nicd does with those that it gives to a plugin. Signal is cheaper then. It comes
// before the first Signal.
func (e *Event) TrustPeers() { e.signal = addOneUntold }

// Signal adds one to the count and wakes the waiter. It does not block: a count
// that is already at its maximum, which a peer with the same descriptor can
// cause, is signalled enough. Only with a peer who makes the descriptor blocking,
// too, the caller is held until someone takes the count, Unjam or Close.
func (e *Event) Signal() { _ = e.raw.Write(e.signal) }

// Unjam lets go of who is held in Signal by a peer. The event stays signalled, and
// one that no peer made blocking stays as it is. Any goroutine may call it.
func (e *Event) Unjam() { _ = e.raw.Control(unjam) }

func unjam(fd uintptr) {
	flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0)
	if err != nil || flags&unix.O_NONBLOCK != 0 {
		return
	}
	_ = unix.SetNonblock(int(fd), true)
	var c counter
	c.init()
	if c.read(fd) == nil {
		addOne(fd)
	}
}

// Take returns the count, which may be zero, and sets it to zero. It does not
// wait.
func (e *Event) Take() uint64 {
	if e.raw.Control(e.take) != nil || e.failed != nil {
		return 0
	}
	return e.count.value
}

// Rouse ends a Wait, the one that goes on or the next one, with a count of zero. It
// leaves alone what a peer has, who can neither take it away nor hold it up.
func (e *Event) Rouse() {
	e.roused.Store(true)
	_ = e.file.SetReadDeadline(past)
}

// past is the deadline of a Wait that is to end.
var past = time.Unix(1, 0)

// Wait returns the count and sets it to zero, waiting until it is not zero, Rouse is
// called, ctx ends or the event is closed.
func (e *Event) Wait(ctx context.Context) (uint64, error) {
	e.watchContext(ctx)
	for !e.wasRoused() {
		switch err := e.raw.Read(e.wait); {
		case err == nil && e.failed == nil:
			return e.count.value, nil
		case err == nil:
			return 0, fmt.Errorf("eventfd: %w", e.failed)
		case e.closed.Load():
			return 0, os.ErrClosed // RawConn has an error of its own for that
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return 0, err
		}
		if err := e.renewDeadline(ctx); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

func (e *Event) wasRoused() bool { return e.roused.Load() && e.roused.Swap(false) }

// renewDeadline lets Wait wait again after a Rouse, of which it comes to know then; not
// after ctx has ended, which keeps its deadline.
func (e *Event) renewDeadline(ctx context.Context) error {
	if ctx.Err() == nil {
		_ = e.file.SetReadDeadline(time.Time{})
	}
	if ctx.Err() != nil {
		_ = e.file.SetReadDeadline(past) // it may have been ctx's
	}
	return ctx.Err()
}

// Next is Wait until the event is closed, for a goroutine that ends that way.
func (e *Event) Next() (uint64, error) { return e.Wait(context.Background()) }

// watch makes the end of a context end the Waits under it. It stays in force
// from one Wait to the next, so that a loop of Waits sets it up once.
type watch struct {
	done <-chan struct{} // the context's
	stop func()          // returns when the context can't touch the event any more
}

func (e *Event) watchContext(ctx context.Context) {
	done := ctx.Done()
	e.mu.Lock()
	defer e.mu.Unlock()
	if done == e.watch.done {
		return
	}
	e.endWatch()
	if done == nil {
		return
	}
	fired := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		_ = e.file.SetReadDeadline(past)
		close(fired)
	})
	e.watch = watch{done: done, stop: func() {
		if cancel() {
			return
		}
		<-fired
		_ = e.file.SetReadDeadline(time.Time{})
	}}
}

func (e *Event) endWatch() {
	if e.watch.stop != nil {
		e.watch.stop()
	}
	e.watch = watch{}
}

// File is the descriptor to pass to another process. The event keeps owning it.
func (e *Event) File() *os.File { return e.file }

// Close ends the event; a waiter returns with os.ErrClosed.
func (e *Event) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.endWatch()
	e.closed.Store(true)
	e.Unjam() // or closing waits for who is held
	return e.file.Close()
}
