package sim

import (
	"testing"
	"time"

	"nicd/bus"
)

// lateClock is a clock whose timers run when the test says so, not when their
// time comes.
type lateClock struct {
	now   time.Duration
	fire  func()
	setTo time.Duration // when the timer is to run, 0 if it is not set
}

func (c *lateClock) Now() time.Duration      { return c.now }
func (c *lateClock) NewTimer(f func()) Timer { c.fire = f; return c }
func (c *lateClock) Set(at time.Duration)    { c.setTo = at }
func (c *lateClock) Stop()                   { c.setTo = 0 }
func (c *lateClock) run()                    { c.setTo = 0; c.fire() }
func (c *lateClock) expect(t *testing.T, at time.Duration) {
	t.Helper()
	if c.setTo != at {
		t.Errorf("the timer is set to %v, want %v", c.setTo, at)
	}
}

// TestWakeAtWhileTheTimerIsLate: a model that works by itself when its time has
// come, before the timer ran, and asks for a later time, is woken then.
func TestWakeAtWhileTheTimerIsLate(t *testing.T) {
	c := &lateClock{now: 1}
	bells := bus.NewDoorbells(bus.HeapMemory(bus.DoorbellPageSize), nil)
	h := &Host{clock: c}
	h.bells.Store(bells)
	h.timer = c.NewTimer(h.timerFired)
	h.WakeAt(100)
	c.expect(t, 100)
	h.WakeAt(200) // the earlier time holds
	c.expect(t, 100)
	c.now = 100
	h.WakeAt(300)
	c.expect(t, 300)
	c.fire() // for 100, late
	h.WakeAt(400)
	c.expect(t, 300)
	c.now = 300
	c.run()
	h.WakeAt(400)
	c.expect(t, 400)
}
