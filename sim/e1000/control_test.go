package e1000

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"nicd/bus"
	"nicd/sim"
)

func (n *nic) eerd(word uint32) uint16 {
	shift, done := uint32(8), uint32(1<<4)
	if n.ext {
		shift, done = 2, 1<<1
	}
	n.w(0x14, word<<shift|1)
	v := n.r(0x14)
	if v&done == 0 {
		n.t.Fatalf("EERD %#x is not done", v)
	}
	return uint16(v >> 16)
}

func TestEEPROM(t *testing.T) {
	mac := [6]byte{0x02, 0x11, 0x22, 0x33, 0x44, 0x55}
	kinds(t, Options{MAC: mac}, func(t *testing.T, n *nic, peer *sim.Tester) {
		sum := uint16(0)
		for w := range uint32(64) {
			sum += n.eerd(w)
		}
		if sum != 0xBABA {
			t.Errorf("words add up to %#x", sum)
		}
		var got [6]byte
		for i := range uint32(3) {
			binary.LittleEndian.PutUint16(got[2*i:], n.eerd(i))
		}
		if got != mac {
			t.Errorf("MAC %x", got)
		}
		if id := n.eerd(0x0D); uint32(id) != n.m.deviceID() {
			t.Errorf("device id %#x", id)
		}
		if low, high := n.r(0x5400), n.r(0x5404); low != 0x33221102 || high != 0x80005544 {
			t.Errorf("RAL0 %#x RAH0 %#x after reset", low, high)
		}
	})
}

func (m *Model) deviceID() uint32 { return uint32(m.Identity().Device) }

// TestMicrowire clocks words out bit by bit.
func TestMicrowire(t *testing.T) {
	n := newNIC(t, nil, &sim.ManualClock{}, Options{})
	const sk, cs, di, do, req, gnt = 1, 2, 4, 8, 1 << 6, 1 << 7
	n.w(0x10, req)
	if n.r(0x10)&gnt == 0 {
		t.Fatal("not granted")
	}
	clock := func(in uint32) uint32 {
		n.w(0x10, req|cs|in)
		n.w(0x10, req|cs|in|sk)
		v := n.r(0x10) & do
		n.w(0x10, req|cs|in)
		return v
	}
	for _, word := range []uint32{0, 1, 2, 0x3F} {
		n.w(0x10, req|cs)
		command := 6<<6 | word // start, read, address
		for bit := 8; bit >= 0; bit-- {
			clock(command >> bit & 1 * di)
		}
		if n.r(0x10)&do != 0 {
			t.Error("no dummy zero")
		}
		v := uint16(0)
		for range 16 {
			v <<= 1
			if clock(0) != 0 {
				v |= 1
			}
		}
		if v != n.eerd(word) {
			t.Errorf("word %d is %#x, EERD has %#x", word, v, n.eerd(word))
		}
		n.w(0x10, req)
	}
}

func (n *nic) mdic(reg uint32, op, data uint32) uint32 {
	n.w(0x20, data|reg<<16|1<<21|op<<26)
	return n.r(0x20)
}

func (n *nic) phyRead(reg uint32) uint16 {
	v := n.mdic(reg, 2, 0)
	if v&(1<<28) == 0 || v&(1<<30) != 0 {
		n.t.Fatalf("MDIC %#x", v)
	}
	return uint16(v)
}

func (n *nic) phyWrite(reg uint32, v uint16) { n.mdic(reg, 1, uint32(v)) }

func TestPHY(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		id2 := map[Kind]uint16{I82540EM: 0x0C20, I82545EM: 0x0C20, I82544GC: 0x0C30, I82574L: 0x0CB1}[n.m.opt.Kind]
		if n.phyRead(2) != 0x141 || n.phyRead(3) != id2 {
			t.Errorf("PHY id %#x %#x", n.phyRead(2), n.phyRead(3))
		}
		n.w(0x20, 2<<16|2<<21|2<<26)
		if v := n.r(0x20); v&(1<<30) == 0 {
			t.Error("another PHY answers")
		}
		n.phyWrite(9, 0x200)
		if v := n.phyRead(9); v != 0x200 {
			t.Errorf("register 9 is %#x", v)
		}
		n.phyWrite(0, 1<<15)
		if v := n.phyRead(9); v != 0x300 {
			t.Errorf("register 9 is %#x after a PHY reset", v)
		}
		n.r(0xC0)
		n.w(0x20, 2<<16|1<<21|2<<26|1<<29)
		if n.r(0xC0)&(1<<9) == 0 {
			t.Error("no MDAC")
		}
	})
}

func TestLink(t *testing.T) {
	const lu, lsc = 2, 4
	clock := &sim.ManualClock{}
	for _, k := range Kinds() {
		wire := sim.NewWire(sim.WireOptions{Clock: clock})
		n := newNIC(t, wire, clock, Options{Kind: k, Autonegotiation: time.Second})
		sim.NewTester(wire, sim.Wants{})
		state := func(what string, up, changed bool) {
			t.Helper()
			s, icr := n.r(8), n.r(0xC0)
			if (s&lu != 0) != up || (icr&lsc != 0) != changed {
				t.Errorf("%v, %s: STATUS %#x ICR %#x", k, what, s, icr)
			}
			if up && s&0xC1 != 0x81 {
				t.Errorf("%v, %s: STATUS %#x is not 1000 full", k, what, s)
			}
		}
		state("power on", false, false)
		n.advance(999 * time.Millisecond)
		state("negotiating", false, false)
		if n.phyRead(1)&0x24 != 0 {
			t.Error("PHY says link during negotiation")
		}
		n.advance(time.Millisecond)
		state("negotiated", true, true)
		if v := n.phyRead(1); v != 0x796D {
			t.Errorf("PHY status %#x", v)
		}
		wire.SetLink(false)
		state("cable out", false, true)
		wire.SetLink(true)
		n.advance(time.Second)
		state("cable in", true, true)
		if v := n.phyRead(1); v&4 != 0 {
			t.Error("the link bit does not latch low")
		}
		if v := n.phyRead(1); v&4 == 0 {
			t.Error("the link bit stays low")
		}
		n.phyWrite(0, 1<<12|1<<9)
		state("renegotiating", false, true)
		n.advance(time.Second)
		state("renegotiated", true, true)
		n.clear(0, 1<<6)
		state("without SLU", false, true)
		n.set(0, 1<<6)
		state("with SLU", true, true)
		n.phyWrite(0, 1<<12|1<<11)
		state("PHY powered down", false, true)
		n.advance(10 * time.Second)
		state("PHY powered down for long", false, false)
		n.phyWrite(0, 1<<12|1<<9)
		n.advance(time.Second)
		state("PHY powered up", true, true)
		n.set(0, 1<<31)
		state("PHY held in reset", false, true)
		n.clear(0, 1<<31)
		n.advance(time.Second)
		state("PHY released", true, true)
		n.phyWrite(9, 0)
		n.phyWrite(0, 1<<12|1<<9)
		n.advance(time.Second)
		if s := n.r(8); s&0xC2 != 0x42 {
			t.Errorf("STATUS %#x is not 100 Mbit/s", s)
		}
		wire.Close()
	}
}

func TestResetClearsTheMAC(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		n.w(0xD0, 0x84)
		n.w(0x5400, 0x12345678)
		n.w(0x5600, 1)
		frame := tcpip([6]byte{2}, flow{}, make([]byte, 100))
		n.sendLegacy(frame, 0)
		n.w(0, n.r(0)|1<<26)
		if v := n.r(0); v&(1<<26) != 0 {
			t.Error("CTRL.RST does not clear itself")
		}
		for _, r := range []uint32{0x100, 0x400, 0xD0, 0x2800, 0x2808, 0x2818, 0x3800, 0x3810, 0x3818, 0x5600, 0x4080} {
			if v := n.r(r); v != 0 {
				t.Errorf("register %#x is %#x after a reset", r, v)
			}
		}
		if n.m.opt.Kind == I82544GC {
			if n.r(0x5400)|n.r(0x5404) != 0 {
				t.Error("an 82544GC has its address without CTRL_EXT.EE_RST")
			}
			n.set(0x18, 1<<13)
		}
		if v := n.r(0x5400); v != binary.LittleEndian.Uint32(n.m.opt.MAC[:4]) {
			t.Errorf("RAL0 %#x after a reset", v)
		}
		if n.r(8)&2 == 0 {
			t.Error("a MAC reset took the link down")
		}
		n.start(0)
		send(t, peer, tcpip(n.mac(), flow{}, make([]byte, 100)))
		n.mustRecv(0)
		if err := n.dev.Reset(context.Background()); err != nil {
			t.Fatal(err)
		}
		if n.r(8)&2 != 0 {
			t.Error("link without negotiation after power on")
		}
	})
}

func TestResetVariations(t *testing.T) {
	n := newNIC(t, nil, &sim.ManualClock{}, Options{Variation: Variation{NoReset: true}})
	n.w(0x2808, 0x400)
	n.w(0, n.r(0)|1<<26)
	if n.r(0x2808) != 0x400 || n.r(0)&(1<<26) != 0 {
		t.Error("NoReset: it was reset, or the bit stays")
	}
	n = newNIC(t, nil, &sim.ManualClock{}, Options{Variation: Variation{ResetNeedsIO: true}})
	n.w(0x2808, 0x400)
	n.w(0, n.r(0)|1<<26)
	if n.r(0x2808) != 0x400 {
		t.Error("ResetNeedsIO: reset through memory")
	}
	io, err := n.dev.Region(bus.BAR1)
	if err != nil {
		t.Fatal(err)
	}
	io.Write32(0, 0)
	io.Write32(4, io.Read32(4)|1<<26)
	if n.r(0x2808) != 0 {
		t.Error("ResetNeedsIO: not reset through I/O")
	}
}

func TestIOWindow(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		index := bus.BAR1
		if n.ext {
			index = bus.BAR2
		}
		io, err := n.dev.Region(index)
		if err != nil {
			t.Fatal(err)
		}
		io.Write32(0, 0x5600)
		io.Write32(4, 0xABCD)
		if io.Read32(0) != 0x5600 || io.Read32(4) != 0xABCD || n.r(0x5600) != 0xABCD {
			t.Error("VFTA through the I/O window")
		}
		frame := tcpip([6]byte{2}, flow{}, make([]byte, 100))
		n.put(0, n.stage(0, frame), uint32(len(frame))|eopCmd, 0)
		io.Write32(0, 0x3818)
		io.Write32(4, n.tx[0].tail)
		n.work()
		same(t, next(t, peer), frame)
		if io.Read32(4) != n.tx[0].tail || n.r(0x3818) != n.tx[0].tail {
			t.Error("TDT through the I/O window")
		}
	})
}

func TestIdentity(t *testing.T) {
	n := newNIC(t, nil, &sim.ManualClock{}, Options{})
	if i := n.dev.Info(); i.Device != 0x100E || i.Vectors != [3]int{1, 0, 0} {
		t.Errorf("%+v", i)
	}
	n = newNIC(t, nil, &sim.ManualClock{}, Options{Kind: I82574L})
	if i := n.dev.Info(); i.Device != 0x10D3 || i.Vectors != [3]int{1, 1, 5} {
		t.Errorf("%+v", i)
	}
	if w := n.eerd(0x1B); w>>7&7 != 4 {
		t.Errorf("NVM word 1B is %#x", w)
	}
	n = newNIC(t, nil, &sim.ManualClock{}, Options{Kind: I82574L, Variation: Variation{FewVectors: true}})
	if i := n.dev.Info(); i.Vectors != [3]int{1, 1, 3} || n.eerd(0x1B)>>7&7 != 2 {
		t.Errorf("FewVectors: %+v", i)
	}
}

func TestAbsentRegistersOfThe82540EM(t *testing.T) {
	n := newNIC(t, nil, &sim.ManualClock{}, Options{})
	for _, r := range []uint32{0x5008, 0x5818, 0x5C00, 0x2900, 0x3900, 0xDC, 0xE4, 0xE8, 0x2C08, 0x7000} {
		if n.w(r, ^uint32(0)); n.r(r) != 0 {
			t.Errorf("register %#x is there", r)
		}
	}
}

// TestToeplitz: the verification suite of Microsoft's "RSS Hash Verification".
func TestToeplitz(t *testing.T) {
	key := []byte{
		0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
		0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
		0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
	}
	var words [10]uint32
	for i := range words {
		words[i] = binary.LittleEndian.Uint32(key[4*i:])
	}
	var r rss
	r.fillTable(words[:])
	for _, c := range []struct {
		in   []byte
		hash uint32
	}{
		{[]byte{66, 9, 149, 187, 161, 142, 100, 80}, 0x323e8fc2},
		{[]byte{66, 9, 149, 187, 161, 142, 100, 80, 2794 >> 8, 2794 & 255, 1766 >> 8, 1766 & 255}, 0x51ccc178},
		{[]byte{199, 92, 111, 2, 65, 69, 140, 83, 14230 >> 8, 14230 & 255, 4739 >> 8, 4739 & 255}, 0xc626b0ea},
		{[]byte{
			0x3f, 0xfe, 0x25, 0x01, 0x02, 0x00, 0x1f, 0xff, 0, 0, 0, 0, 0, 0, 0, 7,
			0x3f, 0xfe, 0x25, 0x01, 0x02, 0x00, 0x00, 0x03, 0, 0, 0, 0, 0, 0, 0, 1,
			2794 >> 8, 2794 & 255, 1766 >> 8, 1766 & 255}, 0x40207d3d},
	} {
		if h := r.hash(0, 0, c.in); h != c.hash {
			t.Errorf("hash of %x is %#x, want %#x", c.in, h, c.hash)
		}
	}
}

func TestRSSSpreadsFlows(t *testing.T) {
	clock := &sim.ManualClock{}
	wire := sim.NewWire(sim.WireOptions{Clock: clock})
	n := newNIC(t, wire, clock, Options{Kind: I82574L})
	peer := sim.NewTester(wire, sim.Wants{})
	n.start(0)
	r := newRand(t)
	for i := range uint32(10) {
		n.w(0x5C80+4*i, r.Uint32())
	}
	for i := range uint32(32) {
		n.w(0x5C00+4*i, 0x80008000)
	}
	n.w(0x5000, 1<<13) // PCSD
	n.w(0x5818, 1|1<<16|1<<17|1<<18|1<<20)
	seen := map[int]int{}
	for i := range 40 {
		f := flow{sport: uint16(r.Uint32()), dport: 80, v6: i%3 == 0, udp: i%5 == 0}
		frame := tcpip(n.mac(), f, make([]byte, 100))
		send(t, peer, frame)
		q := 0
		g, ok := n.recv(0)
		if !ok {
			q = 1
			g = n.mustRecv(1)
		}
		want := uint32(1) // TCP over IPv4
		switch {
		case f.udp && f.v6:
			want = 5
		case f.udp:
			want = 2
		case f.v6:
			want = 3
		}
		if g.mrq != want|uint32(q)<<8 || int(g.hash&1^1) == q {
			t.Errorf("flow %+v: queue %d, mrq %#x, hash %#x", f, q, g.mrq, g.hash)
		}
		seen[q]++
		n.post(q, 1)
	}
	if seen[0] == 0 || seen[1] == 0 {
		t.Errorf("queues got %v", seen)
	}
	n.w(0x5000, 0) // without PCSD all goes to queue 0, and IP identification is reported
	send(t, peer, tcpip(n.mac(), flow{sport: 1}, make([]byte, 100)), tcpip(n.mac(), flow{sport: 2}, make([]byte, 100)))
	for range 2 {
		if g := n.mustRecv(0); g.hash&0xFFFF != 0x1234 || g.status&(1<<9) == 0 {
			t.Errorf("hash word %#x status %#x", g.hash, g.status)
		}
	}
}

func TestLegacyDescriptorsOnThe82574L(t *testing.T) {
	clock := &sim.ManualClock{}
	wire := sim.NewWire(sim.WireOptions{Clock: clock})
	n := newNIC(t, wire, clock, Options{Kind: I82574L})
	peer := sim.NewTester(wire, sim.Wants{})
	n.ext = false
	n.start(0)
	n.w(0x5000, 0x300)
	frame := tcpip(n.mac(), flow{}, make([]byte, 100))
	send(t, peer, frame)
	g := n.mustRecv(0)
	same(t, g.data, frame)
	if g.status != 0x63 {
		t.Errorf("status %#x", g.status)
	}
}

func TestPHYAfterNegotiation(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		if n.phyRead(5) != 0 || n.phyRead(10) != 0 || n.phyRead(17) != 0 {
			t.Error("a partner is known before negotiation")
		}
		n.start(0)
		if !n.m.up.Load() {
			t.Error("it does not know")
		}
		for reg, want := range map[uint32]uint16{5: 0x4DE1, 6: 1, 10: 0x3C00, 15: 0x3000, 17: 0xAC00} {
			if v := n.phyRead(reg); v != want {
				t.Errorf("register %d is %#x, want %#x", reg, v, want)
			}
		}
		if v := n.phyRead(19); v != 0xC00 || n.phyRead(19) != 0 {
			t.Errorf("interrupt status %#x, or reading does not clear it", v)
		}
		n.phyWrite(2, 0)
		if n.phyRead(2) != 0x141 {
			t.Error("a read-only register was written")
		}
		speeds := []struct {
			control, advertise, gig uint16
			status                  uint32
		}{
			{0x1000, 0x0DE1, 0x0300, 0x83},
			{0x1000, 0x0181, 0, 0x43},
			{0x1000, 0x0081, 0, 0x42},
			{0x1000, 0x0041, 0, 0x03},
			{0x0140, 0, 0, 0x83}, // forced
			{0x2100, 0, 0, 0x43},
			{0x0000, 0, 0, 0x02},
		}
		for _, s := range speeds {
			n.phyWrite(4, s.advertise)
			n.phyWrite(9, s.gig)
			n.phyWrite(0, s.control|1<<9)
			n.advance(DefaultAutonegotiation)
			if v := n.r(8); v&0xC3 != s.status {
				t.Errorf("%+v: STATUS %#x", s, v)
			}
		}
	})
}

func TestEERSTLoadsTheAddress(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		want := n.r(0x5400)
		n.w(0x5400, 1)
		n.w(0x18, 1<<13|1<<28)
		if n.r(0x5400) != want || n.r(0x18) != 1<<28 {
			t.Errorf("RAL0 %#x, CTRL_EXT %#x", n.r(0x5400), n.r(0x18))
		}
		if n.eerd(64) != 0xFFFF {
			t.Error("a word behind the end reads as something")
		}
		n.w(0x14, 3<<8)
		if n.r(0x14)&(1<<4|1<<1) != 0 {
			t.Error("EERD is done without START")
		}
	})
}

func TestSemaphoreSetsOnRead(t *testing.T) {
	n := newNIC(t, nil, &sim.ManualClock{}, Options{Kind: I82574L})
	if n.r(0x5B50)&1 != 0 || n.r(0x5B50)&1 == 0 {
		t.Error("SWSM.SMBI is not set by the first read")
	}
	n.w(0x5B50, 0)
	if n.r(0x5B50)&1 != 0 {
		t.Error("SWSM.SMBI cannot be cleared")
	}
	flash, err := n.dev.Region(bus.BAR1)
	if err != nil {
		t.Fatal(err)
	}
	flash.Write32(0, 0)
	if flash.Read32(0) != ^uint32(0) {
		t.Error("the flash holds something")
	}
	if n.r(8)&(1<<10) == 0 {
		t.Error("PHYRA is clear after power on")
	}
	n.w(8, 0)
	if n.r(8)&(1<<10) != 0 {
		t.Error("PHYRA cannot be cleared")
	}
}
