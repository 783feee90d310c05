package engine

import (
	"testing"

	"nicd/framework"
)

// TestRefusedBuffers: a device that takes fewer buffers than its ring has room for is
// counted apart from a pool that has none: freebsd-net, August 2013, could not tell the
// one from the other. What it has it goes on receiving into, nothing is dropped, and
// when it takes all again the ring is full.
func TestRefusedBuffers(t *testing.T) {
	r := newRig(t, 1, nil).start()
	take := func(n int) {
		r.dev.mu.Lock()
		defer r.dev.mu.Unlock()
		r.dev.rx[0].size = 1 + n
	}
	sent := 0
	arrive := func(n int) {
		t.Helper()
		for range n {
			if !r.dev.receive(0, numbered(sent, 200), framework.Packet{}, 0) {
				t.Fatal("the device has no buffer")
			}
			sent++
		}
		r.until("delivered", func() bool { return len(r.deliveries(0)) == sent })
	}
	const full = 255
	take(20)
	arrive(full - 10)
	arrive(10)
	if refused, dry := r.rxCount(0, RxPostRefused), r.rxCount(0, RxAllocFailed); refused == 0 || dry != 0 {
		t.Errorf("%d refills were refused, %d found too few buffers", refused, dry)
	}
	take(full)
	arrive(1)
	r.until("the ring is full again", func() bool { return r.rxCount(0, RxBuffersPosted) == full })
	r.finish()
	if n := r.rxDrops(0); n != 0 {
		t.Errorf("%d packets were dropped", n)
	}
}
