package bus

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// O_NONBLOCK belongs to the open file: a peer can clear it at any time. That may
// hold up the goroutine that signals such an event, but not the process: what holds
// a processor of the Go runtime for ever stops all of it at the next collection. So
// this is tried in a process of its own.
func TestEventOfAHostilePeer(t *testing.T) {
	const child = "NICD_TEST_HOSTILE_PEER"
	if os.Getenv(child) != "" {
		bearHostilePeer(t)
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, os.Args[0], "-test.run=^"+t.Name()+"$")
	c.Env = append(os.Environ(), child+"=1", "GOMAXPROCS=3")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func bearHostilePeer(t *testing.T) {
	waited, full := newEvent(t), newEvent(t)
	hold(t, waited, 0)
	hold(t, full, ^uint64(0)-1)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { _, err := waited.Wait(ctx); done <- err }()
	signalled := make(chan struct{})
	go func() { full.Signal(); close(signalled) }()
	for range 10 {
		runtime.GC()
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Wait = %v", err)
	}
	full.Unjam()
	<-signalled
	hold(t, full, ^uint64(0)-1)
	go full.Signal()
	for range 100 {
		runtime.Gosched()
	}
	full.Close() // waits for who uses it
}

// hold does what a peer can: it makes the event blocking, with that count.
func hold(t *testing.T, e *Event, count uint64) {
	t.Helper()
	fd := int(e.File().Fd())
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	e.Take()
	if count > 0 {
		if _, err := unix.Write(fd, binary.NativeEndian.AppendUint64(nil, count)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
}
