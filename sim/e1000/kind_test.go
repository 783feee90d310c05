package e1000

import (
	"testing"

	"nicd/bus"
	"nicd/sim"
)

func TestKinds(t *testing.T) {
	for name, want := range map[string]uint16{"82540EM": 0x100E, "82545EM": 0x100F, "82544GC": 0x100C, "82574L": 0x10D3} {
		k, err := KindOf(name)
		if err != nil {
			t.Fatal(err)
		}
		id := New(Options{Kind: k}).Identity()
		if id.Vendor != 0x8086 || id.Device != want || k.String() != name {
			t.Errorf("%s: %v is %04x:%04x", name, k, id.Vendor, id.Device)
		}
		if msix := id.MSIX.Vectors != 0; msix != (name == "82574L") {
			t.Errorf("%s: MSI-X %v", name, msix)
		}
	}
	if _, err := KindOf("82599"); err == nil {
		t.Error("an 82599 is not one")
	}
	if s := Kind(99).String(); s != "chip 99" {
		t.Errorf("kind 99 is %q", s)
	}
}

// Test82544NeverThrottles: the registers that hold interrupts back are not there.
func Test82544NeverThrottles(t *testing.T) {
	n := newNIC(t, nil, &sim.ManualClock{}, Options{Kind: I82544GC})
	for _, r := range []uint32{0xC4, 0x282C, 0x382C} { // ITR, RADV, TADV
		n.w(r, 400)
		if v := n.r(r); v != 0 {
			t.Errorf("register %#x is %#x", r, v)
		}
	}
	e := n.events(bus.INTx, 1)[0]
	n.w(0xD0, 4)
	for range 3 {
		n.w(0xC8, 4)
		fired(t, "at once", e, 1)
		n.r(0xC0)
		if err := n.dev.UnmaskInterrupt(0); err != nil {
			t.Fatal(err)
		}
	}
}

// Test82544SpillsOddWords: a write of an odd word of a table is seen in the even
// one before it, too.
func Test82544SpillsOddWords(t *testing.T) {
	for _, k := range Kinds() {
		n := newNIC(t, nil, &sim.ManualClock{}, Options{Kind: k})
		for _, table := range []uint32{0x5200, 0x5600} {
			for i := range uint32(4) {
				n.w(table+4*i, 0x10+i)
			}
			want := [4]uint32{0x10, 0x11, 0x12, 0x13}
			if k == I82544GC {
				want = [4]uint32{0x11, 0x11, 0x13, 0x13}
			}
			for i, w := range want {
				if v := n.r(table + 4*uint32(i)); v != w {
					t.Errorf("%v: word %d at %#x is %#x, want %#x", k, i, table, v, w)
				}
			}
		}
		n.w(0x5404, 7) // RAH 0 is an odd word of something else
		if n.r(0x5400) == 7 {
			t.Errorf("%v: RAH spills into RAL", k)
		}
	}
}

func TestHashesUnicastVariation(t *testing.T) {
	for _, on := range []bool{false, true} {
		kinds(t, Options{Variation: Variation{HashesUnicast: on}}, func(t *testing.T, n *nic, peer *sim.Tester) {
			n.start(0)
			other := [6]byte{2, 9, 9, 9, 9, 9}
			send(t, peer, tcpip(other, flow{}, make([]byte, 100)))
			if _, ok := n.recv(0); ok {
				t.Fatal("received without its bit in the table")
			}
			for i := range uint32(mtaWords) {
				n.w(regMTA+4*i, ^uint32(0))
			}
			send(t, peer, tcpip(other, flow{}, make([]byte, 100)))
			if _, ok := n.recv(0); ok != on {
				t.Errorf("received %v, want %v", ok, on)
			}
		})
	}
}

func TestEmptyTSOTailVariation(t *testing.T) {
	kinds(t, Options{Variation: Variation{EmptyTSOTail: true}}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		for _, c := range []struct{ size, segments int }{{1000, 1}, {2000, 2}, {2500, 3}, {150_000 / 3, 50}} {
			frame, context, segments := tso(false, make([]byte, c.size), 1000)
			n.sendTSO(0, frame, context, false, 0, 0)
			for _, want := range segments {
				same(t, next(t, peer), want)
			}
			if c.size%1000 == 0 {
				empty := next(t, peer)
				var h sim.Headers
				if len(empty) != int(context.hdrlen) || !sim.ParseHeaders(&h, empty, len(empty)) || !h.HeaderChecksumGood(empty) {
					t.Errorf("%d bytes end with %x", c.size, empty)
				}
			}
			if b, ok := peer.TryNext(); ok {
				t.Errorf("%d bytes end with a frame of %d too many", c.size, len(b.Bytes))
			}
		}
	})
}

func TestDropsWhenShortVariation(t *testing.T) {
	for _, on := range []bool{false, true} {
		kinds(t, Options{Variation: Variation{DropsWhenShort: on}}, func(t *testing.T, n *nic, peer *sim.Tester) {
			n.start(1 << 5) // LPE
			small, big := tcpip(n.mac(), flow{}, make([]byte, 100)), tcpip(n.mac(), flow{}, make([]byte, 5000))
			for range n.n - 3 {
				send(t, peer, small)
				n.mustRecv(0)
			}
			// Two descriptors are left, and three needed.
			if taken := peer.Port().Send([]sim.Frame{sim.FrameOf(big)}); (taken == 1) != on {
				t.Fatalf("%d frames taken", taken)
			}
			if missed := n.r(0x4010); (missed == 1) != on {
				t.Errorf("%d frames missed", missed)
			}
			send(t, peer, small, small)
			n.mustRecv(0)
			n.mustRecv(0)
			if peer.Port().Send([]sim.Frame{sim.FrameOf(big)}) != 0 {
				t.Error("taken with no descriptor")
			}
		})
	}
}

func TestNoEERDVariation(t *testing.T) {
	kinds(t, Options{Variation: Variation{NoEERD: true}}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.w(0x14, 1)
		if v := n.r(0x14); v != 0 {
			t.Errorf("EERD %#x", v)
		}
	})
}

// TestVariationsCountFramesOnce: a frame that had to wait for a descriptor is not
// another one when it comes again.
func TestVariationsCountFramesOnce(t *testing.T) {
	kinds(t, Options{Variation: Variation{BadFrameEvery: 2}}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(1 << 2) // SBP
		frame := tcpip(n.mac(), flow{}, make([]byte, 100))
		for i := range int(n.n) - 1 {
			send(t, peer, frame)
			if g := n.mustRecv(0); (g.errors&1 != 0) != (i%2 == 1) {
				t.Fatalf("frame %d: errors %#x", i, g.errors)
			}
		}
		for range 3 {
			if peer.Port().Send([]sim.Frame{sim.FrameOf(frame)}) != 0 {
				t.Fatal("taken without a descriptor")
			}
		}
		n.post(0, 4)
		n.work()
		send(t, peer, frame)
		if g := n.mustRecv(0); g.errors&1 == 0 {
			t.Error("the frame that waited was to be a bad one")
		}
		if v := n.r(0x4000); v != uint32(n.n)/2 {
			t.Errorf("%d bad frames are counted, want %d", v, n.n/2)
		}
	})
}
