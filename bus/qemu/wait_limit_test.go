package qemu

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestWaitLimit: a wait is over after its limit, once; one that has ended is not.
func TestWaitLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := 0
		p := newWaitLimit(time.Second, func() { over++ })
		pass := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		pass(time.Hour)
		for range 3 {
			p.begin()
			pass(999 * time.Millisecond)
			p.end()
			pass(time.Hour)
		}
		if over != 0 {
			t.Fatalf("%d of three waits that ended were over", over)
		}
		p.begin()
		pass(1001 * time.Millisecond)
		if over != 1 {
			t.Fatal("a wait is not over after its limit")
		}
		pass(time.Hour)
		if over != 1 {
			t.Fatalf("a wait was over %d times", over)
		}
	})
}

// TestWaitLimitOfOneAway: a timer that comes late, as it does to a process that was
// stopped or a machine that was away, uses up one part, however late it is.
func TestWaitLimitOfOneAway(t *testing.T) {
	over := 0
	p := newWaitLimit(time.Hour, func() { over++ })
	p.begin()
	defer p.end()
	for i := range parts {
		if over != 0 {
			t.Fatalf("over after %d of %d parts", i, parts)
		}
		p.lose()
	}
	if over != 1 {
		t.Fatalf("over %d times", over)
	}
}
