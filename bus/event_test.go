package bus

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func newEvent(t *testing.T) *Event {
	t.Helper()
	e, err := NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func TestEventCounts(t *testing.T) {
	e := newEvent(t)
	for range 3 {
		e.Signal()
	}
	if n, err := e.Next(); n != 3 || err != nil {
		t.Fatalf("Next = %d, %v; want 3", n, err)
	}
}

func TestEventWaitEndsWithContext(t *testing.T) {
	e := newEvent(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("Wait = %v", err)
	}
	e.Signal()
	if n, err := e.Wait(t.Context()); n != 1 || err != nil {
		t.Fatalf("Wait after a cancelled one = %d, %v", n, err)
	}
}

func TestEventCloseEndsNext(t *testing.T) {
	e := newEvent(t)
	done := make(chan error)
	go func() { _, err := e.Next(); done <- err }()
	e.Close()
	if err := <-done; !errors.Is(err, os.ErrClosed) {
		t.Fatalf("Next = %v", err)
	}
}

// A process that shares the eventfd can fill it; signalling must not wait for
// it to be emptied.
func TestEventSignalAtMaximum(t *testing.T) {
	e := newEvent(t)
	full := binary.NativeEndian.AppendUint64(nil, ^uint64(0)-1)
	if _, err := unix.Write(int(e.File().Fd()), full); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { e.Signal(); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("Signal waits")
	}
}

// A peer that passes some other descriptor gets an end, not a goroutine that waits
// for ever or turns for ever.
func TestEventOfAPipe(t *testing.T) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	e := OpenEvent(fds[0])
	defer e.Close()
	unix.Close(fds[1])
	if n, err := e.Next(); !errors.Is(err, io.EOF) {
		t.Fatalf("Next = %d, %v; want EOF", n, err)
	}
}

func TestEventDoesNotAllocate(t *testing.T) {
	e := newEvent(t)
	if n := testing.AllocsPerRun(100, func() { e.Signal(); e.Next() }); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestEventTakeDoesNotWait(t *testing.T) {
	e := newEvent(t)
	if n := e.Take(); n != 0 {
		t.Errorf("Take of nothing = %d", n)
	}
	e.Signal()
	e.Signal()
	if n := e.Take(); n != 2 {
		t.Errorf("Take = %d, want 2", n)
	}
	if n := e.Take(); n != 0 {
		t.Errorf("Take again = %d", n)
	}
}

// A context that ends between two waits, or while the next one begins, ends
// neither that one nor a later one under another context.
func TestEventOutlivesContexts(t *testing.T) {
	e := newEvent(t)
	for range 500 {
		ctx, cancel := context.WithCancel(t.Context())
		e.Signal()
		if _, err := e.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		go cancel()
		e.Signal()
		if n, err := e.Wait(t.Context()); n != 1 || err != nil {
			t.Fatalf("Wait = %d, %v", n, err)
		}
		<-ctx.Done()
	}
}

func TestEventWaitsUnderOneContextDoNotAllocate(t *testing.T) {
	e := newEvent(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	e.watchContext(ctx)
	if n := testing.AllocsPerRun(100, func() { e.Signal(); e.Wait(ctx); e.Take() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Passing the descriptor to another process must not make it blocking: the mode
// belongs to the open file, which both share.
func TestEventFileStaysNonBlocking(t *testing.T) {
	e := newEvent(t)
	flags, err := unix.FcntlInt(e.File().Fd(), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Errorf("flags %#x, %v", flags, err)
	}
}

// What one side has signalled is the other's to take, also when it closes its
// descriptor.
func TestEventCloseKeepsTheCount(t *testing.T) {
	e := newEvent(t)
	fd, err := unix.Dup(int(e.File().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	other := OpenEvent(fd)
	other.Signal()
	other.Close()
	if n := e.Take(); n != 1 {
		t.Errorf("Take = %d, want 1", n)
	}
}

// Rouse ends one Wait, whether it goes on or is to come, and under whatever context; a
// peer that takes all that is counted does not keep it from that.
func TestEventRouse(t *testing.T) {
	e := newEvent(t)
	ctx, cancel := context.WithCancel(t.Context())
	for range 1000 {
		done := make(chan error)
		go func() { n, err := e.Wait(ctx); e.count.value = n; done <- err }()
		e.Rouse()
		if err := <-done; err != nil || e.count.value != 0 {
			t.Fatalf("Wait = %d, %v after Rouse", e.count.value, err)
		}
	}
	e.Signal()
	if n, err := e.Wait(ctx); n != 1 || err != nil {
		t.Errorf("Wait = %d, %v after Signal", n, err)
	}
	cancel()
	for range 2 {
		if _, err := e.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Wait = %v under a context that has ended", err)
		}
	}
	e.Rouse()
	if n, err := e.Wait(t.Context()); n != 0 || err != nil {
		t.Errorf("Wait = %d, %v after Rouse under the last context", n, err)
	}
	e.Rouse()
	e.Signal()
	if n := e.Take(); n != 1 {
		t.Errorf("Take = %d beside Rouse", n)
	}
	if n := testing.AllocsPerRun(100, func() { e.Rouse(); e.Wait(t.Context()) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
