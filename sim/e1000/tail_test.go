package e1000

import (
	"testing"
	"time"

	"nicd/sim"
)

// watchedClock calls look whenever the model looks at the time.
type watchedClock struct {
	sim.ManualClock
	look func()
}

func (c *watchedClock) Now() time.Duration {
	if c.look != nil {
		c.look()
	}
	return c.ManualClock.Now()
}

// TestATailThatNeverRests: a driver that moves its tail faster than it is looked at, from
// one place to another that is too near for the frame, keeps the device looking for no
// longer than one that leaves it. The sender goes on when there is room.
func TestATailThatNeverRests(t *testing.T) {
	clock := &watchedClock{}
	wire := sim.NewWire(sim.WireOptions{})
	t.Cleanup(wire.Close)
	n := newNICBy(t, wire, &clock.ManualClock, clock, Options{})
	peer := sim.NewTester(wire, sim.Wants{})
	n.start(1<<5 | 3<<16) // LPE, buffers of 256
	n.w(0x2818, 1)
	big := []sim.Frame{sim.FrameOf(tcpip(n.mac(), flow{}, make([]byte, 4000)))}
	moves := uint32(0)
	clock.look = func() {
		if moves++; moves < 1000 {
			n.m.host.SetDoorbell(bellRDT, 1+moves%8)
		}
	}
	const sends = 10
	for range sends {
		if peer.Port().Send(big) != 0 {
			t.Fatal("taken by a ring that is too small for it")
		}
	}
	if moves == 0 || moves > 10*sends {
		t.Errorf("%d looks at the time for %d frames", moves, sends)
	}
	clock.look = nil
	n.w(0x2818, 40)
	n.work()
	if peer.Port().Send(big) != 1 {
		t.Error("not taken by a ring that holds it")
	}
}
