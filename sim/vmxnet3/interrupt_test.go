package vmxnet3

import (
	"testing"
	"time"

	"nicd/bus"
	"nicd/sim"
)

func TestMSIXWithAutoMask(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{kind: bus.MSIX, autoMask: true, rxq: 2})
	const v = 1 // of receive queue 0
	inject(t, peer, tcpFrame(1).frame(), tcpFrame(2).frame(), tcpFrame(3).frame())
	if n := d.fired(v); n != 1 {
		t.Fatalf("%d interrupts for a batch", n)
	}
	if d.pt.Read32(8*v) != 1 {
		t.Error("not masked by firing")
	}
	inject(t, peer, tcpFrame(4).frame())
	inject(t, peer, tcpFrame(5).frame())
	d.step()
	if d.fired(v) != 0 {
		t.Fatal("fired while masked")
	}
	d.pt.Write32(8*v, 0)
	d.step()
	if d.fired(v) != 1 {
		t.Fatal("what was pending did not fire on unmask")
	}
	d.pt.Write32(8*v, 0)
	d.step()
	if d.fired(v) != 0 {
		t.Error("fired with nothing pending")
	}
	d.tx[0].send(txReq{parts: [][]byte{tcpFrame(1).bytes()}})
	if d.fired(0) != 1 || d.fired(v) != 0 || d.fired(2) != 0 {
		t.Error("transmit completion on the wrong vector")
	}
}

func TestMSIXWithoutAutoMask(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{kind: bus.MSIX})
	for range 3 {
		inject(t, peer, tcpFrame(1).frame())
	}
	if n := d.fired(1); n != 3 || d.pt.Read32(8) != 0 {
		t.Errorf("%d interrupts, IMR %d", n, d.pt.Read32(8))
	}
	d.pt.Write32(8, 1)
	inject(t, peer, tcpFrame(1).frame())
	if d.fired(1) != 0 {
		t.Error("fired while masked by IMR")
	}
	d.put32(d.shared+dsIntrCtrl, 1) // DISABLE_ALL
	d.pt.Write32(8, 0)
	d.step()
	if d.fired(1) != 0 {
		t.Error("fired while all are disabled")
	}
	d.put32(d.shared+dsIntrCtrl, 0)
	d.pt.Write32(8, 0)
	d.step()
	if d.fired(1) != 1 {
		t.Error("did not fire when enabled")
	}
}

func TestAllMaskedAtPowerOn(t *testing.T) {
	w, peer := newTestWire(t)
	d := prepare(t, w, setup{kind: bus.MSIX})
	if d.pt.Read32(0) != 1 || d.pt.Read32(8*24) != 1 {
		t.Error("IMR at power-on")
	}
	d.unmaskAll()
	if d.command(cmdActivate) != 0 || d.pt.Read32(8) != 0 {
		t.Error("IMR written before ACTIVATE is lost")
	}
	d.postAll()
	inject(t, peer, tcpFrame(1).frame())
	if d.fired(1) != 1 {
		t.Error("no interrupt")
	}
	d = prepare(t, w, setup{kind: bus.MSIX, opt: Options{Variations: Variations{ActivateMasks: true}}})
	d.unmaskAll()
	if d.command(cmdActivate) != 0 || d.pt.Read32(8) != 1 {
		t.Error("variation: ACTIVATE did not mask")
	}
}

func TestMSI(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{kind: bus.MSI, autoMask: true})
	inject(t, peer, tcpFrame(1).frame())
	if d.fired(0) != 1 {
		t.Error("no interrupt")
	}
}

// TestMaskForgets: what is masked before anyone asked is pending still, unless the
// device is one that forgets.
func TestMaskForgets(t *testing.T) {
	for _, forgets := range []bool{false, true} {
		w, peer := newTestWire(t)
		d := newDriver(t, w, setup{kind: bus.INTx, opt: Options{Variations: Variations{MaskForgets: forgets}}})
		d.vd.Read32(regICR)
		must(t, d.dev.UnmaskInterrupt(0))
		d.fired(0)
		inject(t, peer, tcpFrame(1).frame())
		if d.fired(0) != 1 {
			t.Fatal("no interrupt")
		}
		for _, mask := range []uint32{1, 0} {
			for v := range uint32(3) {
				d.pt.Write32(regIMR+8*v, mask)
			}
			d.step()
		}
		if icr := d.vd.Read32(regICR); (icr == 0) != forgets {
			t.Errorf("ICR %d, forgets %v", icr, forgets)
		}
		must(t, d.dev.UnmaskInterrupt(0))
		d.fired(0)
		inject(t, peer, tcpFrame(1).frame())
		if d.fired(0) != 1 || d.vd.Read32(regICR) != 1 {
			t.Error("the next interrupt is lost too")
		}
	}
}

func TestINTx(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{kind: bus.INTx, autoMask: true})
	if d.vd.Read32(regICR) != 0 {
		t.Error("ICR not 0 with nothing pending")
	}
	d.fired(0)
	inject(t, peer, tcpFrame(1).frame())
	if d.fired(0) != 1 {
		t.Fatal("no interrupt")
	}
	if d.vd.Read32(regICR) != 1 || d.vd.Read32(regICR) != 0 {
		t.Error("ICR does not say so once")
	}
	if d.pt.Read32(8) != 1 {
		t.Error("reading ICR did not mask")
	}
	must(t, d.dev.UnmaskInterrupt(0))
	if d.fired(0) != 0 {
		t.Error("the line stayed asserted")
	}
	inject(t, peer, tcpFrame(1).frame())
	if d.fired(0) != 0 {
		t.Error("fired while masked")
	}
	d.pt.Write32(8, 0)
	d.step()
	if d.fired(0) != 1 || d.vd.Read32(regICR) != 1 {
		t.Error("what was pending did not fire on unmask")
	}
}

func TestInterruptsSurviveALateSetup(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{kind: bus.MSIX, noEvents: true})
	inject(t, peer, tcpFrame(1).frame())
	d.step()
	must(t, d.dev.SetInterrupts(bus.MSIX, d.events))
	d.step()
	if d.fired(1) != 1 {
		t.Error("an interrupt that came before the vectors were enabled was lost")
	}
}

func TestModerationLevels(t *testing.T) {
	clock := &sim.ManualClock{}
	clock.Advance(time.Second)
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{kind: bus.MSIX, clock: clock, edit: func(d *tdriver) { d.put8(d.shared+dsModLevels+1, 4) }})
	send := func() { inject(t, peer, tcpFrame(1).frame()); d.step() }
	send()
	send()
	send()
	if n := d.fired(1); n != 1 {
		t.Fatalf("%d interrupts at once", n)
	}
	clock.Advance(4*moderationStep - 1)
	d.step()
	if d.fired(1) != 0 {
		t.Error("too early")
	}
	clock.Advance(1)
	d.step()
	if d.fired(1) != 1 {
		t.Error("the held interrupt did not come")
	}
	d.put8(d.shared+dsModLevels+1, 8)
	d.command(cmdUpdateIML)
	send()
	send()
	if n := d.fired(1); n != 2 {
		t.Errorf("adaptive: %d", n)
	}
}

func TestCoalesceCommands(t *testing.T) {
	clock := &sim.ManualClock{}
	clock.Advance(time.Second)
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{kind: bus.MSIX, clock: clock, revision: 3})
	scheme := d.alloc(16, 8)
	set := func(words ...uint32) uint32 {
		for i := range 4 {
			w := uint32(0)
			if i < len(words) {
				w = words[i]
			}
			d.put32(scheme+uint64(4*i), w)
		}
		d.put32(d.shared+704, 1)
		d.put32(d.shared+708, 16)
		d.put64(d.shared+712, scheme)
		return d.command(cmdSetCoalesce)
	}
	send := func() { inject(t, peer, tcpFrame(1).frame()); d.step() }
	if set(2, 0, 0, 4) != 0 || d.command(cmdGetCoalesce) != 2 {
		t.Fatal("static mode refused")
	}
	for range 3 {
		send()
	}
	if d.fired(1) != 0 {
		t.Error("static: interrupt before the depth")
	}
	if send(); d.fired(1) != 1 {
		t.Error("static: no interrupt at the depth")
	}
	send()
	clock.Advance(staticHold)
	if d.step(); d.fired(1) != 1 {
		t.Error("static: a lone packet waits for ever")
	}
	if set(3, 1000) != 0 {
		t.Fatal("rate mode refused")
	}
	for range 50 {
		clock.Advance(100 * time.Microsecond)
		send()
	}
	if n := d.fired(1); n < 4 || n > 6 {
		t.Errorf("1000 interrupts/s: %d in 5 ms", n)
	}
	if set(0) != 0 {
		t.Fatal("off refused")
	}
	send()
	send()
	if n := d.fired(1); n < 2 {
		t.Errorf("off: %d", n)
	}
	for _, bad := range [][]uint32{{4}, {3, 50}, {3, 1 << 20}, {2, 0, 0, 1000}} {
		if set(bad...) != 1 {
			t.Errorf("scheme %v accepted", bad)
		}
	}
}
