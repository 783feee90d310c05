package e1000

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"nicd/sim"
)

const (
	dextData = (txCmdDEXT)<<24 | 1<<20
	eopCmd   = (txCmdEOP | txCmdIFCS | txCmdRS) << 24
)

func TestTransmitLegacy(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		r := newRand(t)
		n.start(0)
		for i := range 3 * ringN {
			frame := tcpip([6]byte{2}, flow{}, randomBytes(r, 6+i*7))
			d := n.sendLegacy(frame, 0)
			same(t, next(t, peer), frame)
			if !n.txDone(0, d) {
				t.Fatal("no DD")
			}
			if h := n.r(0x3810); h != n.tx[0].tail {
				t.Fatalf("TDH %d, tail %d", h, n.tx[0].tail)
			}
		}
		if v := n.r(0x3818); v != n.tx[0].tail {
			t.Errorf("TDT reads %d", v)
		}
	})
}

func TestTransmitOnlyRSIsWrittenBack(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		frame := tcpip([6]byte{2}, flow{}, make([]byte, 100))
		a := n.put(0, n.stage(0, frame), uint32(len(frame))|(txCmdEOP|txCmdIFCS)<<24, 0)
		b := n.put(0, n.stage(0x800, frame), uint32(len(frame))|eopCmd, 0)
		n.ring(0)
		next(t, peer)
		next(t, peer)
		if n.txDone(0, a) || !n.txDone(0, b) {
			t.Error("DD does not follow RS")
		}
	})
}

func TestTransmitManyDescriptors(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		r := newRand(t)
		n.start(0)
		frame := tcpip([6]byte{2}, flow{}, randomBytes(r, 1400))
		at := n.stage(0, frame)
		sent := 0
		for _, p := range []int{1, 13, 0, 300, 5} {
			n.put(0, at, uint32(p)|txCmdIFCS<<24, 0)
			at += uint64(p)
			sent += p
		}
		n.ring(0)
		if _, ok := peer.TryNext(); ok {
			t.Fatal("sent without EOP")
		}
		n.put(0, at, uint32(len(frame)-sent)|eopCmd, 0)
		n.ring(0)
		same(t, next(t, peer), frame)
	})
}

func TestPadding(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		frame := tcpip([6]byte{2}, flow{}, nil)[:42]
		n.sendLegacy(frame, 0)
		same(t, next(t, peer), padTo60(append([]byte{}, frame...)))
		n.clear(0x400, 1<<3)
		n.sendLegacy(frame, 0)
		same(t, next(t, peer), frame)
	})
}

func TestSoftwareFCS(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		frame := tcpip([6]byte{2}, flow{}, make([]byte, 100))
		full := binary.LittleEndian.AppendUint32(append([]byte{}, frame...), crc32.ChecksumIEEE(frame))
		at := n.stage(0, full)
		// The FCS lies across two descriptors.
		n.put(0, at, uint32(len(full)-2), 0)
		n.put(0, at+uint64(len(full)-2), 2|(txCmdEOP|txCmdRS)<<24, 0)
		n.ring(0)
		same(t, next(t, peer), frame)
		full[20] ^= 1
		i := n.put(0, n.stage(0, full), uint32(len(full))|(txCmdEOP|txCmdRS)<<24, 0)
		n.ring(0)
		if _, ok := peer.TryNext(); ok || n.txDone(0, i) {
			t.Error("a frame with a wrong FCS was sent")
		}
	})
}

func TestLegacyChecksum(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		for _, v6 := range []bool{false, true} {
			want := tcpip([6]byte{2}, flow{v6: v6}, make([]byte, 101))
			l4 := 34
			if v6 {
				l4 = 54
			}
			b := append([]byte{}, want...)
			binary.BigEndian.PutUint16(b[l4+16:], pseudo(b, v6, false, len(b)-l4))
			n.put(0, n.stage(0, b), uint32(len(b))|uint32(l4+16)<<16|eopCmd|txCmdIC<<24, uint32(l4)<<8)
			n.ring(0)
			same(t, next(t, peer), want)
		}
	})
}

func TestNoLegacyChecksumVariation(t *testing.T) {
	kinds(t, Options{Variation: Variation{NoLegacyChecksum: true}}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		b := tcpip([6]byte{2}, flow{}, make([]byte, 101))
		b[50] ^= 0xFF
		n.put(0, n.stage(0, b), uint32(len(b))|50<<16|eopCmd|txCmdIC<<24, 34<<8)
		n.ring(0)
		same(t, next(t, peer), b)
	})
}

// checksums is a context for a frame's IP and layer-4 checksums.
func checksums(v6, udp bool) txContext {
	c := txContext{ipcss: 14, ipcso: 24, ipcse: 33, tucss: 34, tucso: 50, tucmd: tucmdTCP | tucmdIP}
	if v6 {
		c = txContext{ipcss: 14, tucss: 54, tucso: 70, tucmd: tucmdTCP}
	}
	if udp {
		c.tucso, c.tucmd = c.tucss+6, c.tucmd&^tucmdTCP
	}
	return c
}

func (n *nic) sendData(q int, frame []byte, cmd, popts uint32, tag uint16) uint32 {
	i := n.put(q, n.stage(uint32(q)*0x40000, frame), uint32(len(frame))|dextData|eopCmd|cmd<<24, popts<<8|uint32(tag)<<16)
	n.ring(q)
	return i
}

func TestChecksumOffload(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		r := newRand(t)
		n.start(0)
		for _, v6 := range []bool{false, true} {
			for _, udp := range []bool{false, true} {
				for _, size := range []int{0, 1, 100, 1001} {
					want := tcpip([6]byte{2}, flow{v6: v6, udp: udp}, randomBytes(r, size))
					c := checksums(v6, udp)
					b := append([]byte{}, want...)
					binary.BigEndian.PutUint16(b[c.tucso:], pseudo(b, v6, udp, len(b)-int(c.tucss)))
					popts := uint32(poptsTXSM)
					if !v6 {
						b[24], b[25] = 0, 0
						popts |= poptsIXSM
					}
					n.context(0, c)
					n.sendData(0, b, 0, popts, 0)
					same(t, next(t, peer), padTo60(want))
				}
			}
		}
	})
}

// TestChecksumIsLeftPartial: on the wire the checksum stays open if the offsets
// and the seed are right, and is as wrong as the driver made it if not.
func TestChecksumIsLeftPartial(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		peer.Wanted = sim.Wants{Partial: true, Segment: true}
		n.start(0)
		want := tcpip([6]byte{2}, flow{}, make([]byte, 200))
		good := append([]byte{}, want...)
		binary.BigEndian.PutUint16(good[50:], pseudo(good, false, false, len(good)-34))
		n.context(0, checksums(false, false))
		n.sendData(0, good, 0, poptsTXSM, 0)
		g, _ := peer.TryNext()
		if g.Frame.Flags != sim.Partial || g.Frame.ChecksumStart != 34 || g.Frame.ChecksumOffset != 16 {
			t.Errorf("%+v", g.Frame)
		}
		bad := append([]byte{}, good...)
		bad[51]++
		n.sendData(0, bad, 0, poptsTXSM, 0)
		g, _ = peer.TryNext()
		sum := naiveSum(g.Bytes[34:])
		if g.Frame.Flags != 0 || addSums(sum, pseudo(bad, false, false, len(bad)-34)) == 0xFFFF {
			t.Errorf("a wrong seed made flags %v and a good checksum", g.Frame.Flags)
		}
		c := checksums(false, false)
		c.tucso += 2
		n.context(0, c)
		n.sendData(0, good, 0, poptsTXSM, 0)
		g, _ = peer.TryNext()
		if got, want := binary.BigEndian.Uint16(g.Bytes[52:]), ^naiveSum(good[34:]); g.Frame.Flags != 0 || got != want {
			t.Errorf("TUCSO 52: %#x there, want %#x", got, want)
		}
	})
}

func TestVLANInsert(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		plain := tcpip([6]byte{2}, flow{}, make([]byte, 200))
		n.sendData(0, plain, txCmdVLE, 0, 0x6005)
		same(t, next(t, peer), plain) // CTRL.VME is off
		n.set(0, 1<<30)
		tagged := append(append(append([]byte{}, plain[:12]...), 0x81, 0, 0x60, 5), plain[12:]...)
		n.sendData(0, plain, txCmdVLE, 0, 0x6005)
		same(t, next(t, peer), tagged)
		n.put(0, n.stage(0, plain), uint32(len(plain))|eopCmd|txCmdVLE<<24, 0x6005<<16)
		n.ring(0)
		same(t, next(t, peer), tagged)
		b := append([]byte{}, plain...)
		b[24], b[25] = 0, 0
		binary.BigEndian.PutUint16(b[50:], pseudo(b, false, false, len(b)-34))
		n.context(0, checksums(false, false))
		n.sendData(0, b, txCmdVLE, poptsIXSM|poptsTXSM, 0x6005)
		same(t, next(t, peer), tagged)
	})
}

// tso is a TSO frame as a driver makes it, its context, and the segments that it
// stands for, made naively.
func tso(v6 bool, payload []byte, mss int) (frame []byte, c txContext, segments [][]byte) {
	f := flow{v6: v6, flags: sim.TCPAck | sim.TCPPsh | sim.TCPFin, seq: 0xFFFF_FF00, sport: 80}
	frame = tcpip([6]byte{2}, f, payload)
	c = checksums(v6, false)
	c.tucmd |= txCmdTSE
	l4 := int(c.tucss)
	c.hdrlen, c.mss, c.paylen = uint8(l4+20), uint16(mss), uint32(len(payload))
	if v6 {
		frame[18], frame[19] = 0, 0
	} else {
		frame[16], frame[17], frame[24], frame[25] = 0, 0, 0, 0
	}
	binary.BigEndian.PutUint16(frame[c.tucso:], pseudo(frame, v6, false, 0))
	for i := 0; i*mss < len(payload); i++ {
		part := payload[i*mss : min(len(payload), (i+1)*mss)]
		g := f
		g.seq += uint32(i * mss)
		if (i+1)*mss < len(payload) {
			g.flags = sim.TCPAck
		}
		s := tcpip([6]byte{2}, g, part)
		if !v6 {
			binary.BigEndian.PutUint16(s[18:], 0x1234+uint16(i))
			s[24], s[25] = 0, 0
			binary.BigEndian.PutUint16(s[24:], ^naiveSum(s[14:34]))
		}
		segments = append(segments, padTo60(s))
	}
	return frame, c, segments
}

func (n *nic) sendTSO(q int, frame []byte, c txContext, v6 bool, cmd uint32, tag uint16) uint32 {
	popts := uint32(poptsTXSM)
	if !v6 {
		popts |= poptsIXSM
	}
	n.context(q, c)
	at := n.stage(uint32(q)*0x40000, frame)
	// Headers and payload in descriptors of their own, and a sentinel at the end.
	n.put(q, at, uint32(c.hdrlen)|dextData|(txCmdTSE)<<24, popts<<8)
	at += uint64(c.hdrlen)
	left := len(frame) - int(c.hdrlen)
	n.put(q, at, uint32(left-1)|dextData|(txCmdTSE)<<24, 0)
	i := n.put(q, at+uint64(left-1), 1|dextData|eopCmd|(txCmdTSE|cmd)<<24, uint32(tag)<<16)
	n.ring(q)
	return i
}

func TestTSO(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		r := newRand(t)
		n.start(0)
		for _, v6 := range []bool{false, true} {
			for _, size := range []int{2, 100, 1460, 1461, 4000, 60000} {
				frame, c, segments := tso(v6, randomBytes(r, size), 1460)
				d := n.sendTSO(0, frame, c, v6, 0, 0)
				for _, want := range segments {
					same(t, padTo60(next(t, peer)), want)
				}
				if _, ok := peer.TryNext(); ok || !n.txDone(0, d) {
					t.Fatal("too many segments, or no DD")
				}
			}
		}
	})
}

func TestTSOTravelsWhole(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		peer.Wanted = sim.Wants{Segment: true, Partial: true}
		n.start(0)
		n.set(0, 1<<30)
		frame, c, _ := tso(false, make([]byte, 20000), 1460)
		n.sendTSO(0, frame, c, false, txCmdVLE, 7)
		g, ok := peer.TryNext()
		f := g.Frame
		if !ok || f.Flags != sim.Segment|sim.Partial || f.SegmentSize != 1460 || f.HeaderLen != 58 || f.Len != len(frame)+4 || f.ChecksumStart != 38 {
			t.Fatalf("%+v", f)
		}
		var h sim.Headers
		if !sim.ParseHeaders(&h, g.Bytes, len(g.Bytes)) || !h.VLAN || !h.HeaderChecksumGood(g.Bytes) || h.End != len(g.Bytes) {
			t.Errorf("headers %+v", h)
		}
	})
}

// TestTSOByTheLetter: cutting by the context's offsets makes the same segments
// as the wire's segmenter does from the headers.
func TestTSOByTheLetter(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		r := newRand(t)
		n.start(0)
		for _, v6 := range []bool{false, true} {
			frame, c, segments := tso(v6, randomBytes(r, 100*700), 700)
			c.tucse = 0xFFFF // no packet ends there, so the context is not plain
			n.sendTSO(0, frame, c, v6, 0, 0)
			for _, want := range segments {
				same(t, next(t, peer), want)
			}
		}
		// A wrong offset goes out as wrong as the chip makes it.
		frame, c, segments := tso(false, randomBytes(r, 2000), 1000)
		c.tucso += 2
		n.sendTSO(0, frame, c, false, 0, 0)
		got := next(t, peer)
		if binary.BigEndian.Uint16(got[50:]) == binary.BigEndian.Uint16(segments[0][50:]) {
			t.Error("the checksum is in its place in spite of TUCSO")
		}
	})
}

func TestTSOByTheLetterWaits(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		peer.Limit = 7
		n.start(0)
		frame, c, segments := tso(false, make([]byte, 100*600), 600)
		c.tucse = 0xFFFF
		n.sendTSO(0, frame, c, false, 0, 0)
		for _, want := range segments {
			same(t, next(t, peer), want)
			n.work()
		}
		if _, ok := peer.TryNext(); ok || n.r(0x3810) != n.tx[0].tail {
			t.Error("segments sent twice, or descriptors not used up")
		}
	})
}

// TestTransmitWaitsForTheWire: frames that are not taken are sent later, once
// each, with the context that was theirs.
func TestTransmitWaitsForTheWire(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		peer.Limit = 3
		n.start(0)
		var want [][]byte
		for i := range 10 {
			udp := i&1 != 0
			f := tcpip([6]byte{2}, flow{udp: udp, sport: uint16(i)}, make([]byte, 100+i))
			c := checksums(false, udp)
			b := append([]byte{}, f...)
			binary.BigEndian.PutUint16(b[c.tucso:], pseudo(b, false, udp, len(b)-34))
			n.context(0, c)
			n.put(0, n.stage(uint32(i)*0x1000, b), uint32(len(b))|dextData|eopCmd, poptsTXSM<<8)
			want = append(want, f)
		}
		n.ring(0)
		if n.r(8)&(1<<4) == 0 {
			t.Error("STATUS.TXOFF is clear while the wire takes nothing")
		}
		if h := n.r(0x3810); h != 6 {
			t.Errorf("TDH %d after three frames of two descriptors", h)
		}
		for _, w := range want {
			same(t, next(t, peer), w)
			n.work()
		}
		if _, ok := peer.TryNext(); ok || n.r(8)&(1<<4) != 0 {
			t.Error("a frame too many, or TXOFF still set")
		}
	})
}

// TestOneContextForTwoQueues: the 82574L's queues share a context, so what one
// loads, the other uses (82574 datasheet 7.2.6).
// Packets of which a descriptor reaches into a second page are lost, and written back
// as if they had been sent, also when the wire makes those around them wait.
func TestDropsAcrossPagesVariation(t *testing.T) {
	for _, on := range []bool{false, true} {
		kinds(t, Options{Variation: Variation{DropsAcrossPages: on}}, func(t *testing.T, n *nic, peer *sim.Tester) {
			peer.Limit = 1
			n.start(0)
			frame := tcpip([6]byte{2}, flow{}, make([]byte, 1000))
			var all []uint32
			put := func(at uint32) { all = append(all, n.put(0, n.stage(at, frame), uint32(len(frame))|eopCmd, 0)) }
			put(0x1000 - 20)
			put(0x2000)
			put(0x3000 - 20)
			// In two descriptors that end and begin with the page it is sent.
			at := n.stage(0x5000-20, frame)
			n.put(0, at, 20|txCmdIFCS<<24, 0)
			all = append(all, n.put(0, at+20, uint32(len(frame)-20)|eopCmd, 0))
			put(0x6000 - 20)
			n.ring(0)
			want := 5
			if on {
				want = 2
			}
			for range want {
				same(t, next(t, peer), frame)
				n.work()
			}
			if _, ok := peer.TryNext(); ok {
				t.Error("more was sent")
			}
			for i, index := range all {
				if !n.txDone(0, index) {
					t.Errorf("packet %d is not done", i)
				}
			}
		})
	}
}

func TestOneContextForTwoQueues(t *testing.T) {
	clock := &sim.ManualClock{}
	wire := sim.NewWire(sim.WireOptions{Clock: clock})
	n := newNIC(t, wire, clock, Options{Kind: I82574L})
	peer := sim.NewTester(wire, sim.Wants{})
	n.start(0)
	want := tcpip([6]byte{2}, flow{udp: true}, make([]byte, 100))
	b := append([]byte{}, want...)
	binary.BigEndian.PutUint16(b[40:], pseudo(b, false, true, len(b)-34))
	n.context(1, checksums(false, false))
	n.ring(1)
	n.context(0, checksums(false, true))
	n.ring(0)
	n.sendData(1, b, 0, poptsTXSM, 0)
	same(t, next(t, peer), want)
}

// TestFrameBegunGoesFirst: a TSO frame of one queue that the wire took in part is
// finished before the other queue's.
func TestFrameBegunGoesFirst(t *testing.T) {
	clock := &sim.ManualClock{}
	wire := sim.NewWire(sim.WireOptions{Clock: clock})
	n := newNIC(t, wire, clock, Options{Kind: I82574L})
	peer := sim.NewTester(wire, sim.Wants{})
	peer.Limit = 5
	n.start(0)
	frame, c, segments := tso(false, make([]byte, 20*700), 700)
	for q := range 2 {
		n.sendTSO(q, frame, c, false, 0, 0)
	}
	for range 2 {
		for _, want := range segments {
			same(t, next(t, peer), want)
			n.work()
		}
	}
	if n.r(0x4048) == 0 || n.r(0x4050) == 0 {
		t.Error("XON and XOFF were not counted")
	}
	// A queue whose tail is taken back does not keep the other waiting.
	n.sendTSO(0, frame, c, false, 0, 0)
	n.w(0x3818, n.r(0x3810))
	for range 5 {
		next(t, peer)
	}
	n.work()
	n.put(1, n.stage(0, segments[0]), uint32(len(segments[0]))|eopCmd, 0)
	n.ring(1)
	same(t, next(t, peer), segments[0])
}

func TestSeparateContextsOfThe82540EM(t *testing.T) {
	clock := &sim.ManualClock{}
	wire := sim.NewWire(sim.WireOptions{Clock: clock})
	n := newNIC(t, wire, clock, Options{})
	peer := sim.NewTester(wire, sim.Wants{})
	n.start(0)
	want := tcpip([6]byte{2}, flow{udp: true}, make([]byte, 100))
	b := append([]byte{}, want...)
	binary.BigEndian.PutUint16(b[40:], pseudo(b, false, true, len(b)-34))
	n.context(0, checksums(false, true))
	frame, c, segments := tso(false, make([]byte, 3000), 1460)
	n.sendTSO(0, frame, c, false, 0, 0)
	for _, s := range segments {
		same(t, next(t, peer), s)
	}
	n.sendData(0, b, 0, poptsTXSM, 0)
	same(t, next(t, peer), want)
}

// TestQueueHangs: nonsense stops a queue until it is set up anew.
func TestQueueHangs(t *testing.T) {
	good := tcpip([6]byte{2}, flow{}, make([]byte, 100))
	cases := map[string]func(n *nic){
		"memory": func(n *nic) { n.put(0, 0xDEAD_0000_0000, 100|eopCmd, 0) },
		"paylen": func(n *nic) {
			frame, c, _ := tso(false, make([]byte, 3000), 1460)
			c.paylen++
			n.sendTSO(0, frame, c, false, 0, 0)
		},
		"mss": func(n *nic) {
			frame, c, _ := tso(false, make([]byte, 3000), 1)
			c.mss = 0
			n.sendTSO(0, frame, c, false, 0, 0)
		},
		"length": func(n *nic) {
			for range 2 {
				n.put(0, n.stage(0, good), 0x3000, 0)
			}
			n.put(0, n.stage(0, good), 10|eopCmd, 0)
		},
		"by hand": func(n *nic) { n.m.Hang(0) },
	}
	for name, bad := range cases {
		t.Run(name, func(t *testing.T) {
			kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
				n.start(0)
				bad(n)
				n.ring(0)
				d := n.sendLegacy(good, 0)
				if _, ok := peer.TryNext(); ok || n.txDone(0, d) {
					t.Fatal("the queue goes on")
				}
				n.w(0, n.r(0)|1<<26) // CTRL.RST
				clear(n.mem.Bytes()[txRings : txRings+ringN*16])
				n.start(0)
				n.sendLegacy(good, 0)
				same(t, next(t, peer), good)
			})
		})
	}
}

func TestTransmitGates(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		good := tcpip([6]byte{2}, flow{}, make([]byte, 100))
		n.start(0)
		gate := func(name string, off, on func()) {
			t.Helper()
			off()
			n.sendLegacy(good, 0)
			if _, ok := peer.TryNext(); ok {
				t.Errorf("%s: sent with the gate shut", name)
			}
			on()
			n.work()
			same(t, next(t, peer), good)
		}
		gate("TCTL.EN", func() { n.clear(0x400, 2) }, func() { n.set(0x400, 2) })
		gate("CTRL.SLU", func() { n.clear(0, 1<<6) }, func() { n.set(0, 1<<6) })
		if n.ext {
			gate("TARC", func() { n.clear(0x3840, 1<<10) }, func() { n.set(0x3840, 1<<10) })
			gate("GIO master", func() { n.set(0, 1<<2) }, func() { n.clear(0, 1<<2) })
		}
	})
}

func TestStatistics(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(1 << 4) // MPE
		broadcast := [6]byte{255, 255, 255, 255, 255, 255}
		multicast := [6]byte{1, 0, 0x5E}
		for _, to := range [][6]byte{n.mac(), multicast, broadcast, {2, 9}} {
			send(t, peer, tcpip(to, flow{}, make([]byte, 100-54)))
			n.sendLegacy(tcpip(to, flow{}, make([]byte, 100-54)), 0)
		}
		frame, c, _ := tso(false, make([]byte, 3000), 1446)
		n.sendTSO(0, frame, c, false, 0, 0)
		for _, s := range []struct {
			name string
			reg  uint32
			want uint32
		}{
			{"TPR", 0x40D0, 4}, {"GPRC", 0x4074, 3}, {"MPRC", 0x407C, 1}, {"BPRC", 0x4078, 1},
			{"PRC127", 0x4060, 3}, {"GORCL", 0x4088, 312}, {"GORCH", 0x408C, 0}, {"TORL", 0x40C0, 416}, {"TORH", 0x40C4, 0},
			{"TPT", 0x40D4, 7}, {"GPTC", 0x4080, 7}, {"MPTC", 0x40F0, 1}, {"BPTC", 0x40F4, 1}, {"TSCTC", 0x40F8, 1},
			{"PTC127", 0x40DC, 4}, {"PTC255", 0x40E0, 1}, {"PTC1522", 0x40EC, 2},
			{"GOTCL", 0x4090, 416 + 3000 + 3*58}, {"GOTCH", 0x4094, 0}, {"TOTL", 0x40C8, 416 + 3000 + 3*58}, {"TOTH", 0x40CC, 0},
		} {
			if v := n.r(s.reg); v != s.want {
				t.Errorf("%s is %d, want %d", s.name, v, s.want)
			}
			if v := n.r(s.reg); v != 0 && s.name[len(s.name)-1] != 'L' {
				t.Errorf("%s is not cleared by reading", s.name)
			}
		}
		if v := n.r(0x4088); v != 0 {
			t.Errorf("GORCL is %d after GORCH was read", v)
		}
		n.m.rx.stats[(0x4010-0x4000)/4] = 1 << 40
		n.m.rx.stats[(0x4088-0x4000)/4] = 5<<32 | 7
		if v := n.r(0x4010); v != 0xFFFFFFFF {
			t.Errorf("a counter does not stick at its maximum: %#x", v)
		}
		if l, h := n.r(0x4088), n.r(0x408C); l != 7 || h != 5 {
			t.Errorf("pair reads %d, %d", l, h)
		}
	})
}

// TestHeadersInPieces: offloads work wherever descriptors cut the headers.
func TestHeadersInPieces(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		r := newRand(t)
		n.start(0)
		for range 30 {
			udp := r.IntN(2) == 0
			want := tcpip([6]byte{2}, flow{udp: udp}, randomBytes(r, 50+r.IntN(1000)))
			b := append([]byte{}, want...)
			c := checksums(false, udp)
			b[24], b[25] = 0, 0
			binary.BigEndian.PutUint16(b[c.tucso:], pseudo(b, false, udp, len(b)-34))
			n.context(0, c)
			at := n.stage(0, b)
			for rest := len(b); rest > 0; {
				k := 1 + r.IntN(min(rest, 60))
				if n.tx[0].tail%ringN == ringN-2 || r.IntN(9) == 0 {
					k = rest
				}
				cmd := uint32(dextData)
				if k == rest {
					cmd |= eopCmd
				}
				n.put(0, at, uint32(k)|cmd, (poptsIXSM|poptsTXSM)<<8)
				at += uint64(k)
				rest -= k
			}
			n.ring(0)
			same(t, next(t, peer), want)
		}
	})
}

func TestUDPChecksumIsNeverZero(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		b := tcpip([6]byte{2}, flow{udp: true}, make([]byte, 4))
		copy(b[42:], []byte{0, 0, 0, 0})
		// Choose a payload that makes the sum all ones.
		binary.BigEndian.PutUint16(b[40:], pseudo(b, false, true, 12))
		binary.BigEndian.PutUint16(b[42:], ^naiveSum(b[34:]))
		n.context(0, checksums(false, true))
		n.sendData(0, b, 0, poptsTXSM, 0)
		if got := next(t, peer); got[40] != 0xFF || got[41] != 0xFF {
			t.Errorf("checksum %x", got[40:42])
		}
	})
}

// TestTagOfAnotherType: a frame with a tag that others do not know is cut here.
func TestTagOfAnotherType(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		n.set(0, 1<<30)
		n.w(0x38, 0x88A8)
		frame, c, segments := tso(false, make([]byte, 3000), 1460)
		n.sendTSO(0, frame, c, false, txCmdVLE, 9)
		for _, s := range segments {
			same(t, next(t, peer), append(append(append([]byte{}, s[:12]...), 0x88, 0xA8, 0, 9), s[12:]...))
		}
		want := tcpip([6]byte{2}, flow{}, make([]byte, 300))
		b := append([]byte{}, want...)
		binary.BigEndian.PutUint16(b[50:], pseudo(b, false, false, len(b)-34))
		n.context(0, checksums(false, false))
		n.sendData(0, b, txCmdVLE, poptsTXSM, 9)
		same(t, next(t, peer), append(append(append([]byte{}, want[:12]...), 0x88, 0xA8, 0, 9), want[12:]...))
	})
}

// TestUDPSegmentation: a context without TCP cuts UDP, by the letter.
func TestUDPSegmentation(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		r := newRand(t)
		n.start(0)
		payload := randomBytes(r, 2500)
		frame := tcpip([6]byte{2}, flow{udp: true}, payload)
		frame[24], frame[25] = 0, 0
		binary.BigEndian.PutUint16(frame[40:], pseudo(frame, false, true, 0))
		c := checksums(false, true)
		c.tucmd |= txCmdTSE
		c.hdrlen, c.mss, c.paylen = 42, 1000, 2500
		n.sendTSO(0, frame, c, false, 0, 0)
		for i := 0; i < 2500; i += 1000 {
			want := tcpip([6]byte{2}, flow{udp: true}, payload[i:min(2500, i+1000)])
			binary.BigEndian.PutUint16(want[18:], 0x1234+uint16(i/1000))
			want[24], want[25] = 0, 0
			binary.BigEndian.PutUint16(want[24:], ^naiveSum(want[14:34]))
			same(t, next(t, peer), want)
		}
	})
}

// TestFirstDescriptorsOfAnyLength: the destination may lie in several descriptors, and
// is what it is.
func TestFirstDescriptorsOfAnyLength(t *testing.T) {
	kinds(t, Options{}, func(t *testing.T, n *nic, peer *sim.Tester) {
		n.start(0)
		for _, dst := range [][6]byte{{2}, {1, 0, 0x5e}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}} {
			for first := 1; first < 14; first++ {
				frame := tcpip(dst, flow{}, make([]byte, 40))
				at := n.stage(0, frame)
				n.put(0, at, uint32(first)|txCmdIFCS<<24, 0)
				n.put(0, at+uint64(first), uint32(len(frame)-first)|eopCmd, 0)
				n.ring(0)
				same(t, next(t, peer), frame)
			}
		}
		if m, b := n.r(statMPTC), n.r(statBPTC); m != 13 || b != 13 {
			t.Errorf("%d multicasts and %d broadcasts, want 13 of each", m, b)
		}
	})
}
