package e1000

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"nicd/sim"
)

func TestReceive(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		r := newRand(t)
		n.start(0)
		for i := range 3 * ringN {
			frame := tcpip(n.mac(), flow{src: 1, dst: 2}, randomBytes(r, 10+i%1400))
			send(t, peer, frame)
			g := n.mustRecv(0)
			same(t, g.data, padTo60(frame))
			if g.status&3 != 3 || g.errors != 0 {
				t.Fatalf("status %#x errors %#x", g.status, g.errors)
			}
			n.post(0, 1)
			if h := n.r(0x2810); h != uint32(i+1)%ringN {
				t.Fatalf("RDH %d after %d frames", h, i+1)
			}
		}
	})
}

func padTo60(b []byte) []byte {
	for len(b) < 60 {
		b = append(b, 0)
	}
	return b
}

func TestFCSIsStoredWithoutSECRC(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		n.clear(0x100, 1<<26)
		frame := tcpip(n.mac(), flow{}, make([]byte, 100))
		send(t, peer, frame)
		g := n.mustRecv(0)
		same(t, g.data[:len(frame)], frame)
		if len(g.data) != len(frame)+4 || binary.LittleEndian.Uint32(g.data[len(frame):]) != crc32.ChecksumIEEE(frame) {
			t.Errorf("FCS %x", g.data[len(frame):])
		}
	})
}

func TestSplitFCSVariation(t *testing.T) {
	kinds(t, Options{Variation: Variation{SplitFCS: true}}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		n.clear(0x100, 1<<26)
		frame := tcpip(n.mac(), flow{}, make([]byte, 100))
		send(t, peer, frame)
		if g := n.mustRecv(0); g.descs != 2 || len(g.data) != len(frame)+4 {
			t.Errorf("%d descriptors, %d bytes", g.descs, len(g.data))
		}
	})
}

func TestJumboSpansBuffers(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		r := newRand(t)
		n.start(1 << 5) // LPE
		for _, size := range []int{2048, 2049, 4096, 4097, 9000, 16000} {
			frame := tcpip(n.mac(), flow{}, randomBytes(r, size-54))
			send(t, peer, frame)
			g := n.mustRecv(0)
			same(t, g.data, frame)
			if want := (size + 2047) / 2048; g.descs != want {
				t.Errorf("%d bytes in %d descriptors, want %d", size, g.descs, want)
			}
			n.post(0, g.descs)
		}
	})
}

func TestBufferSizes(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(1 << 5)
		base := n.r(0x100)
		cases := map[uint32]int{0: 2048, 1 << 16: 1024, 2 << 16: 512, 3 << 16: 256, 3<<16 | 1<<25: 4096}
		if n.ext {
			cases[3<<27] = 3072
		}
		for bits, size := range cases {
			n.w(0x100, base|bits)
			frame := tcpip(n.mac(), flow{}, make([]byte, 4000))
			send(t, peer, frame)
			g := n.mustRecv(0)
			same(t, g.data, frame)
			if want := (len(frame) + size - 1) / size; g.descs != want {
				t.Errorf("RCTL %#x: %d descriptors, want %d", bits, g.descs, want)
			}
			n.post(0, g.descs)
		}
	})
}

func TestFLXBUFVariation(t *testing.T) {
	kinds(t, Options{Variation: Variation{IgnoreFLXBUF: true}}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(1<<5 | 1<<27)
		send(t, peer, tcpip(n.mac(), flow{}, make([]byte, 2500)))
		if g := n.mustRecv(0); g.descs != 2 {
			t.Errorf("%d descriptors, want 2 of 2048", g.descs)
		}
	})
}

func TestOversizeWithoutLPE(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		send(t, peer, tcpip(n.mac(), flow{}, make([]byte, 1518-54)), tcpip(n.mac(), flow{}, make([]byte, 1519-54)))
		n.mustRecv(0)
		if _, ok := n.recv(0); ok {
			t.Error("a frame of 1523 bytes with FCS passed without LPE")
		}
		if v := n.r(0x40AC); v != 1 {
			t.Errorf("ROC %d", v)
		}
	})
}

func TestRunts(t *testing.T) {
	kinds(t, Options{Variation: Variation{DiscardRunts: true}}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		send(t, peer, tcpip(n.mac(), flow{}, nil))
		if _, ok := n.recv(0); ok || n.r(0x40A4) != 1 {
			t.Error("runt was not discarded and counted")
		}
	})
}

func TestNullDescriptorsAreSkipped(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		for _, i := range []uint32{0, 1, 3} {
			clear(n.rxDesc(0, i))
		}
		a, b := tcpip(n.mac(), flow{sport: 1}, make([]byte, 50)), tcpip(n.mac(), flow{sport: 2}, make([]byte, 60))
		send(t, peer, a, b)
		for i, want := range []uint32{1, 1, 3, 1, 3} { // DD, and EOP where there is a packet
			status := uint32(n.rxDesc(0, uint32(i))[12])
			if n.ext {
				status = uint32(n.rxDesc(0, uint32(i))[8])
			}
			if status&3 != want {
				t.Errorf("descriptor %d: status %#x", i, status)
			}
		}
		same(t, n.mem.Bytes()[n.rxBuf(0, 2):][:len(a)], a)
		same(t, n.mem.Bytes()[n.rxBuf(0, 4):][:len(b)], b)
	})
}

func TestReceiveChecksums(t *testing.T) {
	const ixsm, udpcs, tcpcs, ipcs = 4, 0x10, 0x20, 0x40
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		udp := uint32(tcpcs)
		v6tcp := uint32(ixsm)
		if n.ext {
			udp, v6tcp = tcpcs|udpcs, tcpcs
		}
		payload := make([]byte, 101)
		flip := func(b []byte, at int) []byte { b[at] ^= 1; return b }
		noUDPSum := tcpip(n.mac(), flow{udp: true}, payload)
		noUDPSum[40], noUDPSum[41] = 0, 0
		fragment := tcpip(n.mac(), flow{}, payload)
		fragment[20] = 0x20 // more fragments
		fragment[24], fragment[25] = 0, 0
		binary.BigEndian.PutUint16(fragment[24:], ^naiveSum(fragment[14:34]))
		cases := []struct {
			name           string
			frame          []byte
			rxcsum         uint32
			status, errors uint32
		}{
			{"off", tcpip(n.mac(), flow{}, payload), 0, ixsm, 0},
			{"tcp", tcpip(n.mac(), flow{}, payload), 0x300, ipcs | tcpcs, 0},
			{"udp", tcpip(n.mac(), flow{udp: true}, payload), 0x300, ipcs | udp, 0},
			{"udp none", noUDPSum, 0x300, ipcs, 0},
			{"tcp6", tcpip(n.mac(), flow{v6: true}, payload), 0x300, v6tcp, 0},
			{"bad tcp", flip(tcpip(n.mac(), flow{}, payload), 90), 0x300, ipcs | tcpcs, 0x20},
			{"bad udp", flip(tcpip(n.mac(), flow{udp: true}, payload), 90), 0x300, ipcs | udp, 0x20},
			{"bad ip", flip(tcpip(n.mac(), flow{}, payload), 18), 0x300, ipcs | tcpcs, 0x40},
			{"ip only", flip(tcpip(n.mac(), flow{}, payload), 90), 0x100, ipcs, 0},
			{"fragment", fragment, 0x300, ipcs, 0},
			{"arp", append(append(append([]byte{}, 255, 255, 255, 255, 255, 255), make([]byte, 6)...), append([]byte{8, 6}, payload...)...), 0x300, ixsm, 0},
		}
		for _, c := range cases {
			n.w(0x5000, c.rxcsum)
			send(t, peer, c.frame)
			g := n.mustRecv(0)
			if g.status&(ixsm|udpcs|tcpcs|ipcs) != c.status || g.errors != c.errors {
				t.Errorf("%s: status %#x errors %#x, want %#x %#x", c.name, g.status, g.errors, c.status, c.errors)
			}
			same(t, g.data, c.frame)
			n.post(0, 1)
		}
	})
}

func TestNoRxChecksumVariation(t *testing.T) {
	kinds(t, Options{Variation: Variation{NoRxChecksum: true}}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		n.w(0x5000, 0x300)
		send(t, peer, tcpip(n.mac(), flow{}, make([]byte, 100)))
		if g := n.mustRecv(0); g.status&0x74 != 4 {
			t.Errorf("status %#x", g.status)
		}
	})
}

func TestPacketChecksum(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		r := newRand(t)
		n.start(0)
		for _, start := range []int{14, 15, 34, 201} {
			n.w(0x5000, 0x300|uint32(start))
			frame := tcpip(n.mac(), flow{}, randomBytes(r, 700))
			// In two parts, so that the sum crosses a boundary at an odd offset.
			f := sim.Frame{Parts: [][]byte{frame[:211], frame[211:]}, Len: len(frame)}
			if peer.Port().Send([]sim.Frame{f}) != 1 {
				t.Fatal("not taken")
			}
			if g := n.mustRecv(0); g.sum != ^naiveSum(frame[start:]) {
				t.Errorf("from %d: %#x, want %#x", start, g.sum, ^naiveSum(frame[start:]))
			}
			n.post(0, 1)
		}
	})
}

// TestPartialFrames: a checksum that the sender left open is completed in memory
// and counts as verified; one with a wrong seed comes out bad.
func TestPartialFrames(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		n.w(0x5000, 0x300)
		for _, udp := range []bool{false, true} {
			want := tcpip(n.mac(), flow{udp: udp, sport: 7}, make([]byte, 333))
			at := checksumAt(want, udp, 34)
			for _, wrong := range []bool{false, true} {
				b := append([]byte{}, want...)
				seed := pseudo(b, false, udp, len(b)-34)
				if wrong {
					seed += 5
				}
				binary.BigEndian.PutUint16(b[at:], seed)
				f := sim.FrameOf(b)
				f.Flags, f.ChecksumStart, f.ChecksumOffset = sim.Partial, 34, at-34
				if peer.Port().Send([]sim.Frame{f}) != 1 {
					t.Fatal("not taken")
				}
				g := n.mustRecv(0)
				if bad := g.errors&0x20 != 0; bad != wrong {
					t.Errorf("udp %v, wrong seed %v: errors %#x", udp, wrong, g.errors)
				}
				if !wrong {
					same(t, g.data, want)
				}
				if binary.BigEndian.Uint16(b[at:]) != seed {
					t.Error("the sender's memory was written")
				}
				n.post(0, 1)
			}
		}
	})
}

func TestVLANStripAndFilter(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		plain := tcpip(n.mac(), flow{}, make([]byte, 100))
		tag := func(tci uint16) []byte {
			b := append([]byte{}, plain[:12]...)
			b = append(b, 0x81, 0, byte(tci>>8), byte(tci))
			return append(b, plain[12:]...)
		}
		send(t, peer, tag(0x2005))
		g := n.mustRecv(0)
		same(t, g.data, tag(0x2005))
		if g.status&8 != 0 {
			t.Error("VP without VME")
		}
		n.set(0, 1<<30)
		n.w(0x5000, 0x300)
		send(t, peer, tag(0x2005), plain)
		g = n.mustRecv(0)
		same(t, g.data, plain)
		vlan := g.vlan
		if g.status&8 == 0 || vlan != 0x2005 || g.status&0x60 != 0x60 || g.errors != 0 {
			t.Errorf("status %#x errors %#x vlan %#x", g.status, g.errors, vlan)
		}
		if g = n.mustRecv(0); g.status&8 != 0 {
			t.Error("VP of an untagged frame")
		}
		n.set(0x100, 1<<18)
		n.w(0x5600+4*(37>>5), 1<<(37&31))
		send(t, peer, tag(36), tag(37), plain)
		if g = n.mustRecv(0); g.vlan != 37 {
			t.Errorf("VLAN %d passed a filter for 37", g.vlan)
		}
		if g = n.mustRecv(0); g.status&8 != 0 {
			t.Error("the untagged frame is missing")
		}
	})
}

func TestAddressFilters(t *testing.T) {
	multicast := [6]byte{1, 0, 0x5E, 0, 0x34, 0x12}
	other := [6]byte{2, 9, 9, 9, 9, 9}
	second := [6]byte{2, 9, 9, 9, 9, 10}
	broadcast := [6]byte{255, 255, 255, 255, 255, 255}
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		base := n.r(0x100)
		try := func(name string, to [6]byte, want, pif bool) {
			t.Helper()
			send(t, peer, tcpip(to, flow{}, make([]byte, 60)))
			g, ok := n.recv(0)
			if ok != want || ok && (g.status&0x80 != 0) != pif {
				t.Errorf("%s: received %v status %#x", name, ok, g.status)
			}
			if ok {
				n.post(0, 1)
			}
		}
		try("own", n.mac(), true, false)
		try("other", other, false, false)
		try("multicast", multicast, false, false)
		try("broadcast", broadcast, true, false)
		n.w(0x100, base&^(1<<15))
		try("broadcast without BAM", broadcast, false, false)
		n.w(0x100, base|1<<3)
		try("other with UPE", other, true, true)
		try("multicast with UPE", multicast, false, false)
		n.w(0x100, base|1<<4)
		try("multicast with MPE", multicast, true, true)
		for mo, shift := range []uint{4, 3, 2, 0} {
			n.w(0x100, base|uint32(mo)<<12)
			h := (uint32(multicast[5])<<8 | uint32(multicast[4])) >> shift & 0xFFF
			n.w(0x5200+4*(h>>5), 1<<(h&31))
			try("multicast in MTA", multicast, true, true)
			n.w(0x5200+4*(h>>5), 0)
			try("multicast out of MTA", multicast, false, false)
		}
		n.w(0x100, base)
		n.w(0x5400+8*15, binary.LittleEndian.Uint32(second[:]))
		n.w(0x5404+8*15, uint32(binary.LittleEndian.Uint16(second[4:])))
		try("without AV", second, false, false)
		n.w(0x5404+8*15, uint32(binary.LittleEndian.Uint16(second[4:]))|1<<31)
		try("RAR 15", second, true, false)
	})
}

func TestFlowControlHoldsFrames(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		frame := tcpip(n.mac(), flow{}, make([]byte, 100))
		frames := make([]sim.Frame, ringN+10)
		for i := range frames {
			frames[i] = sim.FrameOf(frame)
		}
		if took := peer.Port().Send(frames); took != ringN-1 {
			t.Fatalf("%d frames taken by %d descriptors", took, ringN-1)
		}
		if v := n.r(0x4010); v != 0 {
			t.Errorf("MPC %d under flow control", v)
		}
		for range ringN - 1 {
			n.mustRecv(0)
		}
		n.post(0, 5)
		n.work() // offers room
		if took := peer.Port().Send(frames[:10]); took != 5 {
			t.Errorf("%d frames taken by 5 descriptors", took)
		}
		n.w(0x100, 0) // the receiver is off: what waits is lost, and the sender is free
		if took := peer.Port().Send(frames[:10]); took != 10 {
			t.Errorf("%d frames taken by a receiver that is off", took)
		}
	})
}

// TestDeadDriver: a driver that posts nothing any more holds its peer up for a
// while, not for ever.
func TestDeadDriver(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		frames := make([]sim.Frame, ringN+10)
		for i := range frames {
			frames[i] = sim.FrameOf(tcpip(n.mac(), flow{}, make([]byte, 100)))
		}
		rest := frames[peer.Port().Send(frames):]
		n.advance(pauseLimit / 2)
		if peer.Port().Send(rest) != 0 {
			t.Error("frames taken before the limit")
		}
		n.advance(pauseLimit / 2)
		if peer.Port().Send(rest) != len(rest) || n.r(0x4010) != uint32(len(rest)) {
			t.Error("the peer still waits, or nothing was counted")
		}
		n.post(0, 2)
		if took := peer.Port().Send(frames); took != 2 {
			t.Errorf("%d frames taken by two new descriptors", took)
		}
	})
}

func TestMissedPackets(t *testing.T) {
	clock := &sim.ManualClock{}
	wire := sim.NewWire(sim.WireOptions{NoFlowControl: true, Clock: clock})
	n := newNIC(t, wire, clock, Options{})
	peer := sim.NewTester(wire, sim.Wants{})
	n.start(0)
	frame := tcpip(n.mac(), flow{}, make([]byte, 100))
	for range ringN + 4 {
		send(t, peer, frame)
	}
	if v := n.r(0x4010); v != 5 {
		t.Errorf("MPC %d", v)
	}
	if icr := n.r(0xC0); icr&(1<<6) == 0 {
		t.Errorf("ICR %#x without RXO", icr)
	}
}

func TestRxMinimumThreshold(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(2 << 8) // an eighth
		n.r(0xC0)
		frame := tcpip(n.mac(), flow{}, make([]byte, 100))
		for i := range ringN - 1 {
			send(t, peer, frame)
			left := ringN - 2 - i
			if hit := n.r(0xC0)&(1<<4) != 0; hit != (left == ringN/8) {
				t.Fatalf("RXDMT0 %v with %d descriptors left", hit, left)
			}
		}
	})
}

func TestBadMemoryIsAFaultAndAnError(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		binary.LittleEndian.PutUint64(n.rxDesc(0, 0), 0xDEAD_0000_0000)
		send(t, peer, tcpip(n.mac(), flow{}, make([]byte, 100)), tcpip(n.mac(), flow{}, make([]byte, 100)))
		if g := n.mustRecv(0); g.errors&0x80 == 0 {
			t.Errorf("errors %#x without RXE", g.errors)
		}
		if g := n.mustRecv(0); g.errors != 0 {
			t.Errorf("errors %#x of the next frame", g.errors)
		}
		if n.dev.Faults() != 1 {
			t.Errorf("%d faults", n.dev.Faults())
		}
		n.w(0x2804, 0xDEAD) // the ring itself
		send(t, peer, tcpip(n.mac(), flow{}, make([]byte, 100)))
		if n.dev.Faults() != 2 || n.r(0x4010) != 1 {
			t.Errorf("%d faults after a ring out of memory", n.dev.Faults())
		}
	})
}

func TestBadFrameVariation(t *testing.T) {
	kinds(t, Options{Variation: Variation{BadFrameEvery: 2}}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		frame := tcpip(n.mac(), flow{}, make([]byte, 100))
		send(t, peer, frame, frame)
		n.mustRecv(0)
		if _, ok := n.recv(0); ok || n.r(0x4000) != 1 {
			t.Error("a bad frame passed without SBP")
		}
		n.set(0x100, 1<<2)
		send(t, peer, frame, frame)
		n.mustRecv(0)
		if g := n.mustRecv(0); g.errors&1 == 0 {
			t.Errorf("errors %#x without CE", g.errors)
		}
	})
}

func TestBadLengthVariation(t *testing.T) {
	kinds(t, Options{Variation: Variation{BadLengthEvery: 2}}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		frame := tcpip(n.mac(), flow{}, make([]byte, 100))
		send(t, peer, frame, frame, frame, frame)
		lengths := [4]uint16{}
		for i := range lengths {
			at := 8
			if n.ext {
				at = 12
			}
			lengths[i] = binary.LittleEndian.Uint16(n.rxDesc(0, uint32(i))[at:])
		}
		if want := [4]uint16{uint16(len(frame)), 0xFFFF, uint16(len(frame)), 0}; lengths != want {
			t.Errorf("lengths %v, want %v", lengths, want)
		}
	})
}

func TestDeafAfterRCTLVariation(t *testing.T) {
	kinds(t, Options{Variation: Variation{DeafAfterRCTL: 1e9}}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		frame := sim.FrameOf(tcpip(n.mac(), flow{}, make([]byte, 100)))
		if peer.Port().Send([]sim.Frame{frame}) != 0 {
			t.Error("received at once")
		}
		n.clock.Advance(1e9)
		n.work()
		if peer.Port().Send([]sim.Frame{frame}) != 1 {
			t.Error("deaf after its time")
		}
		n.mustRecv(0)
	})
}

func TestCanonicalFormIndicator(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(1<<18 | 1<<19) // VFE, CFIEN
		n.w(0x5600, 1<<5)
		plain := tcpip(n.mac(), flow{}, make([]byte, 100))
		tag := func(tci byte) []byte {
			return append(append(append([]byte{}, plain[:12]...), 0x81, 0, tci, 5), plain[12:]...)
		}
		send(t, peer, tag(0x10), tag(0))
		if g := n.mustRecv(0); g.data[14] != 0 {
			t.Error("a frame with CFI passed")
		}
		n.set(0x100, 1<<20)
		send(t, peer, tag(0), tag(0x10))
		if g := n.mustRecv(0); g.data[14] != 0x10 {
			t.Error("a frame without CFI passed")
		}
	})
}

func TestSourceAddressFilter(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		n.w(0x5408, 2)
		n.w(0x540C, 9<<8|1<<16|1<<31) // source 02:00:00:00:00:09
		send(t, peer, tcpip([6]byte{2, 7}, flow{src: 8}, make([]byte, 100)), tcpip([6]byte{2, 7}, flow{src: 9}, make([]byte, 100)))
		if g := n.mustRecv(0); g.data[11] != 9 {
			t.Errorf("received from %x", g.data[6:12])
		}
	})
}

// TestScatteredFrames: what is filtered, stripped, checked and summed may lie in
// any number of parts.
func TestScatteredFrames(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		r := newRand(t)
		n.start(0)
		n.w(0x5000, 0x300)
		n.set(0, 1<<30)
		for range 50 {
			plain := tcpip(n.mac(), flow{udp: r.IntN(2) == 0}, randomBytes(r, r.IntN(1400)))
			b := append(append(append([]byte{}, plain[:12]...), 0x81, 0, 0, 5), plain[12:]...)
			f := sim.Frame{Len: len(b)}
			for rest := b; len(rest) > 0; {
				k := 1 + r.IntN(len(rest))
				f.Parts = append(f.Parts, rest[:k])
				rest = rest[k:]
			}
			if peer.Port().Send([]sim.Frame{f}) != 1 {
				t.Fatal("not taken")
			}
			g := n.mustRecv(0)
			same(t, g.data[:len(plain)], plain)
			if g.errors != 0 || g.status&0x68 != 0x68 || g.vlan != 5 {
				t.Errorf("status %#x errors %#x vlan %d", g.status, g.errors, g.vlan)
			}
			n.post(0, 1)
		}
	})
}

func TestFrameThatNoRingHolds(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.n = 8
		n.start(1<<5 | 3<<16) // LPE, buffers of 256
		big := tcpip(n.mac(), flow{}, make([]byte, 4000))
		small := tcpip(n.mac(), flow{}, make([]byte, 100))
		send(t, peer, big, small)
		same(t, n.mustRecv(0).data, small)
		if v := n.r(0x4010); v != 1 {
			t.Errorf("MPC %d", v)
		}
	})
}

func TestTailOutsideTheRing(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		n.w(0x2818, ringN+1)
		n.w(0x3818, ringN+1)
		n.work()
		f := sim.FrameOf(tcpip(n.mac(), flow{}, make([]byte, 100)))
		if peer.Port().Send([]sim.Frame{f}) != 0 {
			t.Error("received into a ring whose tail is outside")
		}
		n.w(0x2818, 5)
		n.work()
		if peer.Port().Send([]sim.Frame{f}) != 1 {
			t.Error("not received after the tail was put right")
		}
	})
}

func TestDeafWithoutFlowControl(t *testing.T) {
	clock := &sim.ManualClock{}
	wire := sim.NewWire(sim.WireOptions{NoFlowControl: true, Clock: clock})
	n := newNIC(t, wire, clock, Options{Variation: Variation{DeafAfterRCTL: 1e9}})
	peer := sim.NewTester(wire, sim.Wants{})
	n.start(0)
	send(t, peer, tcpip(n.mac(), flow{}, make([]byte, 100)))
	if v := n.r(0x4010); v != 1 {
		t.Errorf("MPC %d", v)
	}
	n.advance(5e8)
	n.set(0x100, 0) // once more: the time starts anew
	n.advance(7e8)
	send(t, peer, tcpip(n.mac(), flow{}, make([]byte, 100)))
	if _, ok := n.recv(0); ok {
		t.Error("heard too early")
	}
}
