package vmxnet3

import (
	"testing"
	"time"

	"nicd/sim"
)

// A device that lets its driver defer bells looks by itself: nothing that was
// deferred waits for ever, and nothing is sent twice when a bell comes after all.
func TestDeviceLooksForDeferredPackets(t *testing.T) {
	clock := &sim.ManualClock{}
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{clock: clock, txq: 2, opt: Options{Variations: Variations{TxThreshold: 8}}})
	later := func() {
		clock.Advance(deferredLook)
		d.step()
	}
	frames := func() (n int) {
		for {
			if _, ok := peer.TryNext(); !ok {
				return n
			}
			n++
		}
	}
	later()
	for range 3 {
		d.tx[1].put(txReq{parts: [][]byte{tcpFrame(100).bytes()}})
	}
	later()
	if n := frames(); n != 0 {
		t.Fatalf("%d frames that the driver had not let go", n)
	}
	d.put32(d.txDesc(1), 3)
	d.step()
	if n := frames(); n != 0 {
		t.Fatalf("%d frames before it was time to look", n)
	}
	later()
	if n := frames(); n != 3 {
		t.Fatalf("%d frames, want 3", n)
	}
	d.tx[1].bell()
	d.step()
	later()
	if n := frames(); n != 0 {
		t.Fatalf("%d frames sent twice", n)
	}
	d.put32(d.txDesc(1), 0)
	d.tx[1].send(txReq{parts: [][]byte{tcpFrame(100).bytes()}})
	if n := frames(); n != 1 {
		t.Fatalf("%d frames after a bell, want 1", n)
	}
	if n := len(d.tx[1].completed()); n != 4 {
		t.Errorf("%d completions, want 4", n)
	}
	if d.command(cmdQuiesce) != 0 {
		t.Fatal("quiesce")
	}
	clock.Advance(time.Second)
	d.step()
}
