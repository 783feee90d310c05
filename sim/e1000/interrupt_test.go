package e1000

import (
	"testing"
	"time"

	"nicd/bus"
	"nicd/sim"
)

const us = time.Microsecond

// events enables interrupts of a kind and returns what they signal.
func (n *nic) events(kind bus.InterruptKind, count int) []*bus.Event {
	n.t.Helper()
	events := make([]*bus.Event, count)
	for i := range events {
		e, err := bus.NewEvent()
		if err != nil {
			n.t.Fatal(err)
		}
		n.t.Cleanup(func() { e.Close() })
		events[i] = e
	}
	if err := n.dev.SetInterrupts(kind, events); err != nil {
		n.t.Fatal(err)
	}
	return events
}

// fired checks how often an event was signalled since the last look.
func fired(t testing.TB, what string, e *bus.Event, want uint64) {
	t.Helper()
	if got := e.Take(); got != want {
		t.Errorf("%s: %d interrupts, want %d", what, got, want)
	}
}

func (n *nic) advance(d time.Duration) {
	n.clock.Advance(d)
	n.work()
}

func TestICRClearsOnReadOf82540EM(t *testing.T) {
	n := newNIC(t, nil, &sim.ManualClock{}, Options{})
	n.w(0xC8, 0x84)
	if v := n.r(0xC0); v != 0x84 {
		t.Errorf("ICR %#x", v)
	}
	if v := n.r(0xC0); v != 0 {
		t.Errorf("ICR %#x after a read", v)
	}
	n.w(0xC8, 0x84)
	n.w(0xC0, 0x80)
	if v := n.r(0xC0); v != 4 {
		t.Errorf("ICR %#x after writing 1 to a bit", v)
	}
	n.w(0xC8, 0xFFFFFFFF)
	if v := n.r(0xC0); v&0xFFFE0000 != 0 {
		t.Errorf("ICR %#x has bits that the chip lacks", v)
	}
	n.w(0xD0, 0x84)
	n.w(0xD8, 0x04)
	if v := n.r(0xD0); v != 0x80 {
		t.Errorf("IMS %#x", v)
	}
}

func TestINTxFollowsICRAndIMS(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		e := n.events(bus.INTx, 1)[0]
		n.w(0xC8, 1<<7)
		fired(t, "masked", e, 0)
		n.w(0xD0, 1<<7)
		fired(t, "unmasked", e, 1)
		unmask := func() {
			if err := n.dev.UnmaskInterrupt(0); err != nil {
				t.Fatal(err)
			}
		}
		unmask()
		fired(t, "still asserted", e, 1)
		n.r(0xC0)
		unmask()
		fired(t, "acknowledged", e, 0)
		n.w(0xC8, 1<<7)
		fired(t, "again", e, 1)
		n.w(0xD8, 1<<7)
		unmask()
		fired(t, "masked again", e, 0)
	})
}

func TestReceiveInterruptsOncePerBatch(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		e := n.events(bus.INTx, 1)[0]
		n.start(0)
		n.r(0xC0)
		n.w(0xD0, 1<<7)
		frames := make([]sim.Frame, 20)
		for i := range frames {
			frames[i] = sim.FrameOf(tcpip(n.mac(), flow{}, make([]byte, 100)))
		}
		peer.Port().Send(frames)
		fired(t, "20 frames", e, 1)
		if icr := n.r(0xC0); icr&(1<<7) == 0 {
			t.Errorf("ICR %#x", icr)
		}
	})
}

func TestReceiveDelayTimers(t *testing.T) {
	throttled(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		e := n.events(bus.INTx, 1)[0]
		n.start(0)
		n.r(0xC0)
		n.w(0xD0, 1<<7)
		n.w(0x2820, 100) // RDTR: 102.4 us
		n.w(0x282C, 300) // RADV: 307.2 us
		frame := tcpip(n.mac(), flow{}, make([]byte, 100))
		again := func() {
			n.r(0xC0)
			if err := n.dev.UnmaskInterrupt(0); err != nil {
				t.Fatal(err)
			}
		}
		send(t, peer, frame)
		n.advance(100 * us)
		fired(t, "before RDTR", e, 0)
		n.advance(3 * us)
		fired(t, "after RDTR", e, 1)
		again()
		for range 5 { // each frame starts RDTR anew, RADV bounds the wait
			send(t, peer, frame)
			n.advance(60 * us)
		}
		fired(t, "before RADV", e, 0)
		send(t, peer, frame)
		n.advance(8 * us)
		fired(t, "after RADV", e, 1)
		again()
		send(t, peer, frame)
		n.w(0x2820, 100|1<<31)
		fired(t, "FPD", e, 1)
		again()
		n.w(0x2C00, 200) // RSRPD: small packets do not wait
		n.w(0xD0, 1<<16)
		send(t, peer, frame)
		fired(t, "small packet", e, 1)
	})
}

func TestTransmitDelayTimers(t *testing.T) {
	throttled(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		e := n.events(bus.INTx, 1)[0]
		n.start(0)
		n.r(0xC0)
		n.w(0xD0, 1)
		n.w(0x3820, 100) // TIDV
		n.w(0x382C, 200) // TADV
		frame := tcpip([6]byte{2}, flow{}, make([]byte, 100))
		again := func() {
			n.r(0xC0)
			if err := n.dev.UnmaskInterrupt(0); err != nil {
				t.Fatal(err)
			}
		}
		n.sendLegacy(frame, 0)
		fired(t, "without IDE", e, 1)
		again()
		n.sendLegacy(frame, txCmdIDE)
		n.advance(100 * us)
		fired(t, "before TIDV", e, 0)
		n.advance(3 * us)
		fired(t, "after TIDV", e, 1)
		again()
		for range 4 {
			n.sendLegacy(frame, txCmdIDE)
			n.advance(50 * us)
		}
		fired(t, "before TADV", e, 0)
		n.advance(5 * us)
		fired(t, "after TADV", e, 1)
	})
}

func TestTransmitCauses(t *testing.T) {
	throttled(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		n.w(0x3828, 1<<24|2<<25) // LWTHRESH 16
		frame := tcpip([6]byte{2}, flow{}, make([]byte, 100))
		at := n.stage(0, frame)
		for range 20 {
			n.put(0, at, uint32(len(frame))|(txCmdEOP|txCmdIFCS)<<24, 0)
		}
		n.r(0xC0)
		n.ring(0)
		if icr := n.r(0xC0); icr&0x8003 != 0x8002 {
			t.Errorf("ICR %#x, want TXQE and TXD_LOW without TXDW", icr)
		}
	})
}

func TestThrottle(t *testing.T) {
	throttled(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.w(0xC4, 400) // 102.4 us
		e := n.events(bus.INTx, 1)[0]
		n.w(0xD0, 4)
		n.w(0xC8, 4)
		fired(t, "the first", e, 1)
		n.r(0xC0)
		if err := n.dev.UnmaskInterrupt(0); err != nil {
			t.Fatal(err)
		}
		n.w(0xC8, 4)
		n.advance(100 * us)
		fired(t, "within the interval", e, 0)
		n.advance(3 * us)
		fired(t, "after the interval", e, 1)
	})
}

// msix574 is an 82574L in MSI-X mode: vectors 0..3 are RXQ0, RXQ1, TXQ0, TXQ1 and
// 4 is the rest.
func msix574(t *testing.T, o Options) (*nic, *sim.Tester, []*bus.Event) {
	o.Kind = I82574L
	clock := &sim.ManualClock{}
	wire := sim.NewWire(sim.WireOptions{Clock: clock})
	n := newNIC(t, wire, clock, o)
	peer := sim.NewTester(wire, sim.Wants{})
	events := n.events(bus.MSIX, 5)
	n.start(0)
	n.w(0xE4, 0x8|0x9<<4|0xA<<8|0xB<<12|0xC<<16)
	n.w(0xD8, ^uint32(0))
	n.r(0xC0)
	return n, peer, events
}

func TestMSIXVectors(t *testing.T) {
	n, peer, events := msix574(t, Options{})
	n.w(0xDC, 0x1F<<20) // EIAC
	n.w(0xD0, 0x1F<<20|1<<2)
	want := func(what string, counts ...uint64) {
		t.Helper()
		for v, c := range counts {
			fired(t, what, events[v], c)
		}
	}
	frame := tcpip(n.mac(), flow{}, make([]byte, 100))
	send(t, peer, frame)
	want("receive", 1, 0, 0, 0, 0)
	send(t, peer, frame)
	want("EIAC cleared the cause", 1, 0, 0, 0, 0)
	n.sendLegacy(frame, 0)
	want("transmit", 0, 0, 1, 0, 0)
	n.put(1, n.stage(0, frame), uint32(len(frame))|eopCmd, 0)
	n.ring(1)
	want("transmit queue 1", 0, 0, 0, 1, 0)
	n.w(0xC8, 1<<2)
	want("link", 0, 0, 0, 0, 1)
	n.w(0xE4, 0x8) // only RXQ0 has a vector
	n.sendLegacy(frame, 0)
	want("no vector", 0, 0, 0, 0, 0)
}

func TestMSIXWithoutAutoClear(t *testing.T) {
	n, _, events := msix574(t, Options{})
	n.w(0xD0, 1<<20)
	n.w(0xC8, 1<<20)
	fired(t, "first", events[0], 1)
	n.w(0xC8, 1<<20)
	fired(t, "cause still set", events[0], 0)
	n.w(0xC0, 1<<20)
	n.w(0xC8, 1<<20)
	fired(t, "after the cause was cleared", events[0], 1)
	n.w(0xD8, 1<<20)
	n.w(0xC0, 1<<20)
	n.w(0xC8, 1<<20)
	fired(t, "masked", events[0], 0)
	n.w(0xD0, 1<<20)
	fired(t, "unmasked", events[0], 1)
}

// TestMSIXAutoMask: with EIAME a message masks its own causes, those in IAM.
func TestMSIXAutoMask(t *testing.T) {
	n, _, events := msix574(t, Options{})
	n.w(0x18, 1<<24)
	n.w(0xE0, 1<<20|1<<22)
	n.w(0xDC, 0x1F<<20)
	n.w(0xD0, 0x1F<<20)
	n.w(0xC8, 1<<20|1<<21)
	fired(t, "queue 0", events[0], 1)
	fired(t, "queue 1", events[1], 1)
	if ims := n.r(0xD0); ims != 0x1E<<20 {
		t.Errorf("IMS %#x", ims)
	}
	n.w(0xC8, 1<<20)
	fired(t, "masked itself", events[0], 0)
	n.w(0xD0, 1<<20)
	fired(t, "unmasked", events[0], 1)
}

func TestEIACMasksVariation(t *testing.T) {
	n, _, events := msix574(t, Options{Variation: Variation{EIACMasks: true}})
	n.w(0xDC, 0x1F<<20)
	n.w(0xD0, 0x1F<<20)
	n.w(0xC8, 1<<20)
	fired(t, "queue 0", events[0], 1)
	if ims := n.r(0xD0); ims != 0x1E<<20 {
		t.Errorf("IMS %#x", ims)
	}
}

// TestICRReadWithMSIX: clear if nothing is enabled or the interrupt is asserted,
// else no side effect.
func TestICRReadWithMSIX(t *testing.T) {
	n, _, _ := msix574(t, Options{})
	n.w(0xC8, 1<<7)
	if v := n.r(0xC0); v != 1<<7 || n.r(0xC0) != 0 {
		t.Errorf("nothing enabled: ICR %#x, or it was not cleared", v)
	}
	n.w(0xD0, 1<<20)
	n.w(0xC8, 1<<7)
	if v := n.r(0xC0); v != 1<<7 || n.r(0xC0) != 1<<7 {
		t.Errorf("not asserted: ICR %#x, or it was cleared", v)
	}
	n.w(0xC8, 1<<20)
	if v := n.r(0xC0); v != 1<<31|1<<20|1<<7 || n.r(0xC0) != 0 {
		t.Errorf("asserted: ICR %#x, or it was not cleared", v)
	}
}

func TestICRKeepsVariation(t *testing.T) {
	n, _, _ := msix574(t, Options{Variation: Variation{ICRKeeps: true}})
	n.w(0xD0, 1<<20)
	n.w(0xC8, 1<<20)
	n.r(0xC0)
	if v := n.r(0xC0); v != 1<<31|1<<20 {
		t.Errorf("ICR %#x after a read", v)
	}
}

// TestIAME: with CTRL_EXT.IAME an ICR access masks what IAM says, if the
// interrupt is asserted.
func TestIAME(t *testing.T) {
	n := newNIC(t, nil, &sim.ManualClock{}, Options{Kind: I82574L})
	n.w(0x18, 1<<27)
	n.w(0xE0, 0xFFFFFFFF)
	n.w(0xD0, 0x94)
	if n.r(0xC0); n.r(0xD0) != 0x94 {
		t.Error("masked by a read of nothing")
	}
	n.w(0xC8, 4)
	if v := n.r(0xC0); v&(1<<31|4) != 1<<31|4 || n.r(0xD0) != 0 {
		t.Errorf("ICR %#x, IMS %#x", v, n.r(0xD0))
	}
}

func TestMSI(t *testing.T) {
	n := newNIC(t, nil, &sim.ManualClock{}, Options{Kind: I82574L})
	e := n.events(bus.MSI, 1)[0]
	n.w(0xD0, 0x84)
	n.w(0xC8, 4)
	fired(t, "cause", e, 1)
	n.w(0xC8, 0x80)
	fired(t, "another before the acknowledgement", e, 0)
	n.w(0xC0, 4)
	fired(t, "one is left", e, 1)
	n.r(0xC0)
	fired(t, "all gone", e, 0)
}

func TestEITR(t *testing.T) {
	n, _, events := msix574(t, Options{})
	n.w(0xE8, 400) // vector 0: 102.4 us
	n.w(0xDC, 0x1F<<20)
	n.w(0xD0, 0x1F<<20)
	for range 3 {
		n.w(0xC8, 1<<20|1<<21)
	}
	fired(t, "throttled", events[0], 1)
	fired(t, "another vector", events[1], 3)
	n.advance(103 * us)
	fired(t, "after the interval", events[0], 1)
	n.advance(103 * us)
	fired(t, "nothing more", events[0], 0)
	if v := n.r(0x4100); v != 5 {
		t.Errorf("IAC %d", v)
	}
}

func TestMinThrottleVariation(t *testing.T) {
	n, _, events := msix574(t, Options{Variation: Variation{MinThrottle: 128 * us}})
	n.w(0xDC, 0x1F<<20)
	n.w(0xD0, 0x1F<<20)
	n.w(0xC8, 1<<20)
	n.w(0xC8, 1<<20)
	fired(t, "at first", events[0], 1)
	n.advance(128 * us)
	fired(t, "later", events[0], 1)
}

// TestACKInterrupts: an acknowledgement is a cause of its own; that it raises
// OTHER though it is masked is a variation.
func TestACKInterrupts(t *testing.T) {
	for _, spurious := range []bool{false, true} {
		n, peer, events := msix574(t, Options{Variation: Variation{SpuriousACK: spurious}})
		n.w(0xDC, 0x1F<<20)
		n.w(0xD0, 0x1F<<20)
		ack := tcpip(n.mac(), flow{flags: sim.TCPAck}, nil)
		send(t, peer, ack)
		want := uint64(0)
		if spurious {
			want = 1
		}
		fired(t, "masked ACK", events[4], want)
		if n.r(0xC0)&(1<<17) == 0 {
			t.Error("ICR.ACK is clear")
		}
		n.w(0xC0, ^uint32(0))
		n.w(0xD0, 1<<17)
		send(t, peer, ack)
		fired(t, "enabled ACK", events[4], 1)
		n.set(0x5008, 1<<12)
		n.w(0xC0, ^uint32(0))
		send(t, peer, ack, tcpip(n.mac(), flow{flags: sim.TCPAck}, make([]byte, 10)))
		fired(t, "ACK_DIS", events[4], 0)
	}
}

func TestRAID(t *testing.T) {
	clock := &sim.ManualClock{}
	wire := sim.NewWire(sim.WireOptions{Clock: clock})
	n := newNIC(t, wire, clock, Options{Kind: I82574L})
	peer := sim.NewTester(wire, sim.Wants{})
	e := n.events(bus.INTx, 1)[0]
	n.start(0)
	n.r(0xC0)
	n.w(0xD0, 1<<17)
	n.w(0x2C08, 50)
	send(t, peer, tcpip(n.mac(), flow{flags: sim.TCPAck}, nil))
	fired(t, "at once", e, 0)
	n.advance(52 * us)
	fired(t, "after RAID", e, 1)
}

func TestEveryWriteBackInterrupts(t *testing.T) {
	n, peer, events := msix574(t, Options{})
	n.w(0xDC, 0x1F<<20)
	n.w(0xD0, 0x1F<<20)
	frame := tcpip([6]byte{2}, flow{}, make([]byte, 100))
	put := func() uint32 {
		i := n.put(0, n.stage(0, frame), uint32(len(frame))|(txCmdEOP|txCmdIFCS)<<24, 0)
		n.ring(0)
		next(t, peer)
		return i
	}
	put()
	fired(t, "without RS", events[2], 0)
	n.set(0xE4, 1<<31)
	if i := put(); !n.txDone(0, i) {
		t.Error("no write-back")
	}
	fired(t, "IVAR bit 31", events[2], 1)
}

func TestFlushOfTransmitTimers(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		e := n.events(bus.INTx, 1)[0]
		n.start(0)
		n.r(0xC0)
		n.w(0xD0, 1)
		n.w(0x3820, 1000)
		n.sendLegacy(tcpip([6]byte{2}, flow{}, make([]byte, 100)), txCmdIDE)
		fired(t, "waiting", e, 0)
		n.w(0x3820, 1000|1<<31)
		fired(t, "flushed", e, 1)
	})
}

// TestInterruptTakesDelayedCauses: CTRL_EXT.INT_TIMERS_CLEAR_ENA.
func TestInterruptTakesDelayedCauses(t *testing.T) {
	clock := &sim.ManualClock{}
	wire := sim.NewWire(sim.WireOptions{Clock: clock})
	n := newNIC(t, wire, clock, Options{Kind: I82574L})
	peer := sim.NewTester(wire, sim.Wants{})
	n.events(bus.INTx, 1)
	n.start(0)
	n.w(0xD0, 1<<7|1<<2)
	n.r(0xC0)
	n.w(0x2820, 1000)
	for _, on := range []bool{false, true} {
		if on {
			n.set(0x18, 1<<29)
		}
		send(t, peer, tcpip(n.mac(), flow{}, make([]byte, 100)))
		n.w(0xC8, 1<<2)
		if icr := n.r(0xC0); (icr&(1<<7) != 0) != on {
			t.Errorf("with the bit %v: ICR %#x", on, icr)
		}
		n.advance(2000 * us)
		n.r(0xC0)
	}
}
