package vmxnet3

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"nicd/bus"
	"nicd/sim"
)

const lroFeatures = bitRxCsum | bitLRO

// sameButTCPSum compares a received aggregate with the frame it should be: its
// TCP checksum may be stale, the rest is exact.
func sameButTCPSum(t *testing.T, got []byte, want tframe) {
	t.Helper()
	a, b := bytes.Clone(got), want.bytes()
	if len(a) != len(b) {
		t.Fatalf("%d bytes, want %d", len(a), len(b))
	}
	at := want.l4Offset() + 16
	copy(a[at:at+2], b[at:at+2])
	if !bytes.Equal(a, b) {
		t.Fatalf("aggregate differs: %x\nwant %x", a[:80], b[:80])
	}
}

func TestLROWholeFrameRevision1(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{revision: 1, features: lroFeatures})
	for _, v6 := range []bool{false, true} {
		f := tcpFrame(40_000)
		f.v6, f.flags = v6, 0x18
		inject(t, peer, f.tsoFrame(1440))
		p, ok := d.rx[0].poll()
		if !ok {
			t.Fatal("nothing received")
		}
		sameButTCPSum(t, p.bytes, f)
		for _, c := range p.comps {
			if c[3]>>24&0x7f != 3 {
				t.Fatalf("completion type %d in revision 1", c[3]>>24&0x7f)
			}
		}
		if p.sop()[1] != 0 || p.eop()[3]>>16&5 != 5 {
			t.Errorf("completions %x ... %x", p.sop(), p.eop())
		}
	}
}

func TestLROWholeFrameType4(t *testing.T) {
	for style, want := range map[LROStyle][3]uint32{ // type, count, mss
		LROByRevision: {4, 28, 1448}, LROLengthOnly: {3, 0, 0}, LRONoMSS: {4, 28, 0}, LROSingle: {4, 28, 1448}, LRONoCount: {4, 0, 1448},
	} {
		w, peer := newTestWire(t)
		d := newDriver(t, w, setup{revision: 2, features: lroFeatures, opt: Options{Variations: Variations{LRO: style}}})
		f := tcpFrame(40_000)
		f.options = []byte{1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8}
		f.flags = 0x99
		inject(t, peer, f.tsoFrame(1448))
		p, ok := d.rx[0].poll()
		if !ok {
			t.Fatal("nothing received")
		}
		sameButTCPSum(t, p.bytes, f)
		checkIPChecksum(t, p.bytes)
		c := p.sop()
		if got := [3]uint32{c[3] >> 24 & 0x7f, c[1] & 0xff, c[3] & 0xffff}; got != want {
			t.Errorf("style %d: type, count, mss %v, want %v", style, got, want)
		}
		for _, c := range p.comps[1:] {
			if c[3]>>24&0x7f != 3 {
				t.Errorf("type %d after SOP", c[3]>>24&0x7f)
			}
		}
		if p.eop()[3]>>16&0xff != 0xad {
			t.Errorf("flags at EOP %#x", p.eop()[3]>>16&0xff)
		}
		d.command(cmdGetStats)
		a := d.rxDesc(0) + 88
		if d.get64(a) != 1 || d.get64(a+8) != uint64(len(p.bytes)) || d.get64(a+16) != 28 {
			t.Errorf("LRO packets %d bytes %d, unicast %d", d.get64(a), d.get64(a+8), d.get64(a+16))
		}
	}
}

func TestLROSingleStyleMarksPlainSegments(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{features: lroFeatures, opt: Options{Variations: Variations{LRO: LROSingle}}})
	inject(t, peer, tcpFrame(300).frame())
	c := expect(t, d.rx[0], tcpFrame(300).bytes()).sop()
	if c[3]>>24&0x7f != 4 || c[1]&0xff != 1 || c[3]&0xffff != 300 || c[0]&(1<<14) == 0 {
		t.Errorf("completion %x", c)
	}
	inject(t, peer, tcpFrame(0).frame())
	if p, ok := d.rx[0].poll(); !ok || p.sop()[3]>>24&0x7f != 3 {
		t.Error("a pure acknowledgement is of type 4")
	}
}

func TestLROChecksumRecomputed(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{features: lroFeatures, opt: Options{Variations: Variations{LROChecksum: true}}})
	f := tcpFrame(20_000)
	inject(t, peer, f.tsoFrame(1460))
	expect(t, d.rx[0], f.bytes())
	var fs []sim.Frame
	for _, b := range f.segments(1460) {
		fs = append(fs, sim.FrameOf(b))
	}
	inject(t, peer, fs...)
	expect(t, d.rx[0], f.bytes())
}

func TestTSOFrameOfOneSegmentIsAnOrdinaryPacket(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{features: lroFeatures})
	f := tcpFrame(700)
	inject(t, peer, f.tsoFrame(1460))
	if c := expect(t, d.rx[0], f.bytes()).sop(); c[3]>>24&0x7f != 3 {
		t.Error("type 4 for one segment")
	}
}

func TestLROOffGetsSegments(t *testing.T) {
	for _, features := range []uint32{0, bitRxCsum, bitLRO} {
		w, peer := newTestWire(t)
		d := newDriver(t, w, setup{features: features})
		f := tcpFrame(14_000)
		inject(t, peer, f.tsoFrame(1460))
		for _, want := range f.segments(1460) {
			expect(t, d.rx[0], want)
		}
		expectNone(t, d.rx[0])
		// UPDATE_FEATURE turns it on while active.
		d.put64(d.shared+24, lroFeatures)
		d.command(cmdUpdateFeature)
		inject(t, peer, f.tsoFrame(1460))
		p, ok := d.rx[0].poll()
		if !ok || p.sop()[3]>>24&0x7f != 4 || p.sop()[1]&0xff != 10 {
			t.Fatal("LRO not on after UPDATE_FEATURE")
		}
	}
}

func TestLROIsSplitWhereTheDriverCannotTakeMore(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{features: lroFeatures, maxRxSG: 4, bufSize: 2000})
	f := tcpFrame(30_000)
	f.flags = 0x98
	for _, small := range []bool{false, true} {
		if small {
			var fs []sim.Frame
			for _, b := range f.segments(1460) {
				fs = append(fs, sim.FrameOf(b))
			}
			inject(t, peer, fs...)
		} else {
			inject(t, peer, f.tsoFrame(1460))
		}
		at, n := 0, 0
		for at < len(f.payload) {
			p, ok := d.rx[0].poll()
			if !ok || len(p.comps) > 4 || p.eop()[2]>>14&1 != 0 {
				t.Fatalf("packet at %d: %v", at, ok)
			}
			part := f
			part.payload = f.payload[at : at+len(p.bytes)-54]
			part.seq += uint32(at)
			part.id += uint16(at / 1460)
			if at > 0 {
				part.flags &^= 0x80
			}
			if at += len(part.payload); at < len(f.payload) {
				part.flags &^= 8
			}
			sameButTCPSum(t, p.bytes, part)
			if want := (len(part.payload) + 1459) / 1460; want > 1 && int(p.sop()[1]&0xff) != want {
				t.Errorf("count %d of %d", p.sop()[1]&0xff, want)
			}
			n++
		}
		if n != 5 && !small {
			t.Errorf("%d packets", n)
		}
		expectNone(t, d.rx[0])
	}
}

func TestCoalescingOfSegments(t *testing.T) {
	base := func(i int) tframe {
		f := tcpFrame(1000)
		f.seq += uint32(1000 * i)
		f.id += uint16(i)
		f.payload = pattern(1000, uint64(i))
		return f
	}
	cases := []struct {
		name string
		edit func(f []tframe)
		want []int // segments of each packet
	}{
		{"in order", func([]tframe) {}, []int{6}},
		{"constant id", func(f []tframe) {
			for i := range f {
				f[i].id = 9
			}
		}, []int{6}},
		{"id jumps", func(f []tframe) { f[3].id = 900 }, []int{3, 1, 2}},
		{"gap", func(f []tframe) {
			for i := range f[2:] {
				f[2+i].seq += 7
			}
		}, []int{2, 4}},
		{"push", func(f []tframe) { f[2].flags = 0x18 }, []int{3, 3}},
		{"fin", func(f []tframe) { f[5].flags = 0x11 }, []int{6}},
		{"syn", func(f []tframe) { f[1].flags = 0x12 }, []int{1, 1, 4}},
		{"cwr", func(f []tframe) { f[4].flags = 0x90 }, []int{4, 1, 1}},
		{"other ack", func(f []tframe) { f[3].ack++ }, []int{3, 1, 2}},
		{"other port", func(f []tframe) { f[3].sport++ }, []int{3, 1, 2}},
		{"short", func(f []tframe) {
			f[2].payload = f[2].payload[:500]
			for i := range f[3:] {
				f[3+i].seq -= 500
			}
		}, []int{3, 3}},
		{"longer", func(f []tframe) {
			f[0].payload = f[0].payload[:900]
			for i := range f[1:] {
				f[1+i].seq -= 100
			}
		}, []int{1, 5}},
		{"bad checksum", func(f []tframe) { f[2].badL4 = true }, []int{2, 1, 3}},
		{"options differ", func(f []tframe) {
			for i := range f {
				f[i].options = []byte{1, 1, 1, 1}
			}
			f[4].options = []byte{1, 1, 1, 0}
		}, []int{4, 1, 1}},
		{"ipv6", func(f []tframe) {
			for i := range f {
				f[i].v6 = true
			}
		}, []int{6}},
		{"tagged", func(f []tframe) {
			for i := range f {
				f[i].vlan = 0x2001
			}
		}, []int{6}},
		{"other tag", func(f []tframe) {
			for i := range f {
				f[i].vlan = 0x2001
			}
			f[1].vlan = 0x4001
		}, []int{1, 1, 4}},
		{"udp", func(f []tframe) { f[1].proto = 17 }, []int{1, 1, 4}},
		{"no payload", func(f []tframe) { f[5].payload = nil }, []int{5, 1}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for _, features := range []uint32{lroFeatures, lroFeatures | bitVLAN} {
				w, peer := newTestWire(t)
				d := newDriver(t, w, setup{features: features, edit: func(d *tdriver) { d.put32(d.shared+136, 3) }})
				fs := make([]tframe, 6)
				var frames []sim.Frame
				for i := range fs {
					fs[i] = base(i)
				}
				c.edit(fs)
				for i := range fs {
					frames = append(frames, fs[i].frame())
				}
				inject(t, peer, frames...)
				for _, n := range c.want {
					p, ok := d.rx[0].poll()
					if !ok {
						t.Fatal("too few packets")
					}
					whole := fs[0]
					whole.payload = nil
					for _, f := range fs[:n] {
						whole.payload = append(whole.payload, f.payload...)
						whole.flags |= f.flags
					}
					fs = fs[n:]
					if features&bitVLAN != 0 {
						whole.vlan = -1
					}
					got := p.bytes
					if n == 1 && len(whole.payload) == 0 {
						got = got[:len(whole.bytes())]
					}
					sameButTCPSum(t, got, whole)
					if typ, count := p.sop()[3]>>24&0x7f, p.sop()[1]&0xff; n > 1 && (typ != 4 || int(count) != n) || n == 1 && typ != 3 {
						t.Fatalf("type %d count %d for %d segments", typ, count, n)
					}
				}
				expectNone(t, d.rx[0])
			}
		})
	}
}

// TestCoalescedPacketsCutBackIntoTheirSegments: what comes out, cut at the MSS
// that the device reports, is what went in, byte for byte.
func TestCoalescedPacketsCutBackIntoTheirSegments(t *testing.T) {
	const seed = 20
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{features: lroFeatures, ring: 512})
	for range 200 {
		var frames []sim.Frame
		var sent [][]byte
		seq, id := rng.Uint32(), uint16(rng.Uint32())
		for range 1 + rng.IntN(30) {
			f := tcpFrame(0)
			f.payload = pattern([]int{1000, 1000, 1000, 1000, 500, 1, 1200}[rng.IntN(7)], rng.Uint64())
			f.seq, f.id = seq, id
			f.flags = []byte{0x10, 0x10, 0x10, 0x10, 0x10, 0x18, 0x11, 0x14}[rng.IntN(8)]
			f.sport += uint16(rng.IntN(8) / 7)
			seq += uint32(len(f.payload))
			if rng.IntN(9) > 0 {
				id++
			}
			sent = append(sent, f.bytes())
			frames = append(frames, f.frame())
		}
		inject(t, peer, frames...)
		for len(sent) > 0 {
			p, ok := d.rx[0].poll()
			if !ok {
				t.Fatal("too few packets")
			}
			for _, b := range cut(p, sent) {
				want := sent[0]
				for len(want) < 60 {
					want = append(want, 0)
				}
				if !bytes.Equal(b, want) {
					t.Fatalf("got  %x\nwant %x", b[:60], want[:60])
				}
				sent = sent[1:]
			}
		}
		expectNone(t, d.rx[0])
	}
}

// cut is the inverse of coalescing, for IPv4 without options. Whether the
// identification counted, the device does not tell: that is looked up in sent.
func cut(p *trxPacket, sent [][]byte) (out [][]byte) {
	c := p.sop()
	if c[3]>>24&0x7f != 4 {
		return [][]byte{p.bytes}
	}
	be := binary.BigEndian
	mss, b := int(c[3]&0xffff), p.bytes
	step := be.Uint16(sent[1][18:]) - be.Uint16(sent[0][18:])
	for at, i := 54, 0; at < len(b); at, i = at+mss, i+1 {
		n := min(mss, len(b)-at)
		s := append(bytes.Clone(b[:54]), b[at:at+n]...)
		be.PutUint16(s[16:], uint16(40+n))
		be.PutUint16(s[18:], be.Uint16(b[18:])+uint16(i)*step)
		be.PutUint32(s[38:], be.Uint32(b[38:])+uint32(at-54))
		if at+n < len(b) {
			s[47] &^= 9
		}
		s[24], s[25], s[50], s[51] = 0, 0, 0, 0
		be.PutUint16(s[24:], ^uint16(naive(0, s[14:34])))
		pseudo := naive(naive(0, s[26:34]), []byte{0, 6, byte((20 + n) >> 8), byte(20 + n)})
		be.PutUint16(s[50:], ^uint16(naive(pseudo, s[34:])))
		out = append(out, s)
	}
	return out
}

func TestPassthroughTurnsLROOff(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{features: lroFeatures, kind: bus.MSIX})
	d.fired(2)
	d.m.SetPassthrough(true)
	if d.get32(d.shared+dsECR) != eventChange || d.fired(2) != 1 || d.command(cmdGetDevExtraInfo) == 0 {
		t.Error("the change was not announced")
	}
	f := tcpFrame(4000)
	inject(t, peer, f.tsoFrame(1460))
	for _, want := range f.segments(1460) {
		expect(t, d.rx[0], want)
	}
	d.m.SetPassthrough(false)
	inject(t, peer, f.tsoFrame(1460))
	if p, ok := d.rx[0].poll(); !ok || p.sop()[1]&0xff != 3 {
		t.Error("LRO did not come back")
	}
}

// TestTSOFrameJustAfterLROWentOff: a sender that looked before the command was
// carried out hands a TSO frame over after it.
func TestTSOFrameJustAfterLROWentOff(t *testing.T) {
	w, _ := newTestWire(t)
	d := newDriver(t, w, setup{features: bitRxCsum})
	f := tcpFrame(30_000)
	if n := d.m.Receive([]sim.Frame{f.tsoFrame(1460)}, true); n != 1 {
		t.Fatal("not taken")
	}
	for _, want := range f.segments(1460) {
		expect(t, d.rx[0], want)
	}
	expectNone(t, d.rx[0])
}
