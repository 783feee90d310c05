package sim

import (
	"sync"
	"time"
)

// Clock is the time that models and wires live by. Times are durations since a
// start that does not matter.
type Clock interface {
	Now() time.Duration
	// NewTimer makes a stopped timer that calls f, which must not block, on a
	// goroutine of the clock's.
	NewTimer(f func()) Timer
}

// Timer calls its function once after each Set, at the time given or soon if it
// has passed, unless set again or stopped before. The time is the clock's and
// not a distance: between reading a clock and setting a timer it may move on.
type Timer interface {
	Set(at time.Duration)
	Stop()
}

// SystemClock is the machine's monotonic clock.
func SystemClock() Clock { return systemClock{} }

var start = time.Now()

type systemClock struct{}

func (systemClock) Now() time.Duration { return time.Since(start) }

func (systemClock) NewTimer(f func()) Timer {
	t := time.AfterFunc(time.Hour, f)
	t.Stop()
	return systemTimer{t}
}

type systemTimer struct{ t *time.Timer }

func (t systemTimer) Set(at time.Duration) { t.t.Reset(max(at-time.Since(start), 0)) }
func (t systemTimer) Stop()                { t.t.Stop() }

// ManualClock is a clock that a test moves.
type ManualClock struct {
	mu     sync.Mutex
	now    time.Duration
	timers []*manualTimer
}

// Now is the sum of all that Advance was given.
func (c *ManualClock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// NewTimer makes a timer that runs out in Advance, or in Set if its time has
// come.
func (c *ManualClock) NewTimer(f func()) Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &manualTimer{clock: c, f: f}
	c.timers = append(c.timers, t)
	return t
}

// Advance moves the time by d and calls the functions of the timers that ran
// out, in no particular order.
func (c *ManualClock) Advance(d time.Duration) {
	c.mu.Lock()
	c.now += d
	var due []func()
	for _, t := range c.timers {
		if t.set && t.at <= c.now {
			t.set = false
			due = append(due, t.f)
		}
	}
	c.mu.Unlock()
	for _, f := range due {
		f()
	}
}

type manualTimer struct {
	clock *ManualClock
	f     func()
	at    time.Duration
	set   bool
}

func (t *manualTimer) Set(at time.Duration) {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	if t.set = at > t.clock.now; t.set {
		t.at = at
		return
	}
	go t.f() // the caller may hold what f needs
}

func (t *manualTimer) Stop() {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.set = false
}
