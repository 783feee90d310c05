package vmxnet3

import (
	"bytes"
	"context"
	"testing"

	"nicd/bus"
	"nicd/sim"
)

func newTestWire(t testing.TB) (*sim.Wire, *sim.Tester) {
	w := sim.NewWire(sim.WireOptions{})
	t.Cleanup(w.Close)
	return w, sim.NewTester(w, sim.Wants{})
}

// inject sends frames to the device in one batch; all must be taken.
func inject(t testing.TB, peer *sim.Tester, frames ...sim.Frame) {
	t.Helper()
	if n := peer.Port().Send(frames); n != len(frames) {
		t.Fatalf("%d of %d frames were taken", n, len(frames))
	}
}

func expect(t *testing.T, r *trx, want []byte) *trxPacket {
	t.Helper()
	p, ok := r.poll()
	if !ok {
		t.Fatal("no packet")
	}
	if !bytes.Equal(p.bytes, want) {
		t.Fatalf("got %d bytes %x, want %d %x", len(p.bytes), p.bytes[:min(64, len(p.bytes))], len(want), want[:min(64, len(want))])
	}
	return p
}

func expectNone(t *testing.T, r *trx) {
	t.Helper()
	if p, ok := r.poll(); ok {
		t.Fatalf("unexpected packet of %d bytes", len(p.bytes))
	}
}

const (
	bitRxCsum = 1
	bitRSS    = 2
	bitVLAN   = 4
	bitLRO    = 8
)

func TestReceiveManyTimesRoundTheRing(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{ring: 32})
	for i := range 500 {
		f := tcpFrame(i % 1400)
		inject(t, peer, f.frame())
		want := f.bytes()
		for len(want) < 60 {
			want = append(want, 0)
		}
		p := expect(t, d.rx[0], want)
		if c := p.eop(); c[3]>>24&0x7f != 3 || c[0]>>30&1 != 1 || c[3]>>23&1 != 1 {
			t.Fatalf("completion %x: want type 3, cnc, fcs", c)
		}
	}
	expectNone(t, d.rx[0])
	if d.dev.Faults() != 0 {
		t.Error("faults")
	}
}

func TestReceiveFilters(t *testing.T) {
	multicast := [6]byte{0x01, 0, 0x5e, 1, 2, 3}
	other := [6]byte{0x02, 9, 9, 9, 9, 9}
	cases := []struct {
		name string
		mode uint32
		list [][6]byte
		dst  [6]byte
		vlan int
		vids []int
		want bool
	}{
		{"own unicast", 1, nil, testMAC, -1, nil, true},
		{"own unicast off", 6, nil, testMAC, -1, nil, false},
		{"other unicast", 0xf, nil, other, -1, nil, false},
		{"promiscuous", 0x10, nil, other, 77, nil, true},
		{"broadcast", 4, nil, [6]byte{255, 255, 255, 255, 255, 255}, -1, nil, true},
		{"broadcast off", 0xb, nil, [6]byte{255, 255, 255, 255, 255, 255}, -1, nil, false},
		{"multicast listed", 2, [][6]byte{other, multicast}, multicast, -1, nil, true},
		{"multicast not listed", 2, [][6]byte{other}, multicast, -1, nil, false},
		{"multicast listed but off", 1, [][6]byte{multicast}, multicast, -1, nil, false},
		{"all multicast", 8, nil, multicast, -1, nil, true},
		{"vlan listed", 1, nil, testMAC, 2<<13 | 77, []int{77}, true},
		{"vlan not listed", 1, nil, testMAC, 78, []int{77}, false},
	}
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{})
	table := d.alloc(6*4, 8)
	for _, c := range cases {
		d.put32(d.shared+120, c.mode)
		for i, m := range c.list {
			copy(d.at(table+uint64(6*i), 6), m[:])
		}
		d.put16(d.shared+124, uint16(6*len(c.list)))
		d.put64(d.shared+128, table)
		for i := range uint64(128) {
			d.put32(d.shared+136+4*i, 0)
		}
		d.put32(d.shared+136, 1)
		for _, v := range c.vids {
			d.put32(d.shared+136+4*uint64(v>>5), 1<<(v&31)|d.get32(d.shared+136+4*uint64(v>>5)))
		}
		for _, cmd := range []uint32{cmdUpdateRxMode, cmdUpdateMACFilters, cmdUpdateVLAN} {
			if r := d.command(cmd); r != 0 {
				t.Fatalf("%s: command %#x: %d", c.name, cmd, r)
			}
		}
		f := tcpFrame(100)
		f.dst, f.vlan = c.dst, c.vlan
		inject(t, peer, f.frame())
		if _, ok := d.rx[0].poll(); ok != c.want {
			t.Errorf("%s: received %v", c.name, ok)
		}
	}
	d.put32(d.shared+136, 0)
	d.put32(d.shared+120, 1)
	d.command(cmdUpdateRxMode)
	d.command(cmdUpdateVLAN)
	inject(t, peer, tcpFrame(10).frame())
	if _, ok := d.rx[0].poll(); ok {
		t.Error("untagged frame received with bit 0 of the VLAN table clear")
	}
}

func TestMACRegisters(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{})
	if d.vd.Read32(regMACL) != 0x00565000 || d.vd.Read32(regMACH) != 0x0100 {
		t.Errorf("MAC registers %#x %#x", d.vd.Read32(regMACL), d.vd.Read32(regMACH))
	}
	if d.command(cmdGetPermMACLow) != 0x00565000 || d.command(cmdGetPermMACHigh) != 0x0100 {
		t.Error("permanent MAC")
	}
	d.vd.Write32(regMACL, 0xaa000002)
	f := tcpFrame(50)
	inject(t, peer, f.frame()) // MACL alone changes nothing
	if _, ok := d.rx[0].poll(); !ok {
		t.Error("half a MAC address took effect")
	}
	d.vd.Write32(regMACH, 0xccbb)
	inject(t, peer, f.frame())
	expectNone(t, d.rx[0])
	f.dst = [6]byte{0x02, 0, 0, 0xaa, 0xbb, 0xcc}
	inject(t, peer, f.frame())
	expect(t, d.rx[0], f.bytes())
}

func TestReceiveChecksums(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{features: bitRxCsum})
	udp := tcpFrame(101)
	udp.proto = 17
	v6 := tcpFrame(333)
	v6.v6 = true
	bad, badIP, icmp := tcpFrame(77), tcpFrame(77), tcpFrame(77)
	bad.badL4, badIP.badIP, icmp.proto = true, true, 1
	partial := tcpFrame(555)
	partial.partial = true
	pf := partial.frame()
	pf.Flags, pf.ChecksumStart, pf.ChecksumOffset = sim.Partial, 34, 16
	filled := partial
	filled.partial = false
	fragment := tcpFrame(200).bytes()
	fragment[20] = 0x20 // MF; the header checksum is wrong then
	cases := []struct {
		name string
		f    sim.Frame
		want []byte
		w3   uint32 // flags 16..23
	}{
		{"tcp4", tcpFrame(999).frame(), tcpFrame(999).bytes(), 0xad},
		{"udp4", udp.frame(), udp.bytes(), 0xab},
		{"tcp6", v6.frame(), v6.bytes(), 0x9d},
		{"tcp4 with a wrong sum", bad.frame(), bad.bytes(), 0xac},
		{"tcp4 with a wrong header sum", badIP.frame(), badIP.bytes(), 0xa5},
		{"icmp", icmp.frame(), icmp.bytes(), 0xa8},
		{"not filled in", pf, filled.bytes(), 0xad},
		{"fragment", sim.FrameOf(fragment), fragment, 0xe0},
	}
	for _, c := range cases {
		inject(t, peer, c.f)
		p := expect(t, d.rx[0], c.want)
		e := p.eop()
		if got := e[3] >> 16 & 0xff; got != c.w3 || e[0]>>30&1 != 0 {
			t.Errorf("%s: flags %#x cnc %d, want %#x", c.name, got, e[0]>>30&1, c.w3)
		}
	}
	arp := append(append(append([]byte{}, testMAC[:]...), peerMAC[:]...), 8, 6)
	arp = append(arp, make([]byte, 46)...)
	inject(t, peer, sim.FrameOf(arp))
	if e := expect(t, d.rx[0], arp).eop(); e[0]>>30&1 != 1 {
		t.Error("ARP without cnc")
	}
}

func TestVLANStrip(t *testing.T) {
	w, peer := newTestWire(t)
	for _, strip := range []bool{false, true} {
		s := setup{features: bitRxCsum}
		if strip {
			s.features |= bitVLAN
		}
		s.edit = func(d *tdriver) { d.put32(d.shared+136+4*uint64(300>>5), 1<<(300&31)) }
		d := newDriver(t, w, s)
		for _, n := range []int{30, 800} {
			f := tcpFrame(n)
			f.vlan = 5<<13 | 300
			inject(t, peer, f.frame())
			want := f
			if strip {
				want.vlan = -1
			}
			p := expect(t, d.rx[0], want.bytes())
			ts, tci := p.eop()[2]>>15&1, p.eop()[2]>>16
			if strip != (ts == 1) || strip && tci != 5<<13|300 {
				t.Errorf("strip %v: ts %d tci %#x", strip, ts, tci)
			}
			if p.eop()[3]>>16&1 != 1 {
				t.Error("checksum of tagged frame not verified")
			}
		}
	}
}

func TestJumboOverBothRings(t *testing.T) {
	w, peer := newTestWire(t)
	for _, every := range []int{0, 3} {
		d := newDriver(t, w, setup{mtu: 9000, features: bitRxCsum, bodyEvery: every, opt: Options{MAC: testMAC}})
		for i := range 100 {
			f := tcpFrame(100 + 80*i)
			inject(t, peer, f.frame())
			p := expect(t, d.rx[0], f.bytes())
			if n := (len(p.bytes) + 2047) / 2048; len(p.comps) != n {
				t.Fatalf("%d completions for %d bytes", len(p.comps), len(p.bytes))
			}
			for j, c := range p.comps {
				if every == 0 && (c[0]>>16&0x3ff) != uint32(min(j, 1)) {
					t.Fatalf("part %d is of queue id %d", j, c[0]>>16&0x3ff)
				}
				if (j == len(p.comps)-1) != (c[3]>>18&1 == 1) {
					t.Fatalf("offload flags in completion %d of %d", j, len(p.comps))
				}
			}
			if every == 3 {
				if p.indices[0]%3 != 0 {
					t.Fatalf("packet starts in a BODY descriptor, %d", p.indices[0])
				}
			}
		}
	}
}

func TestOversize(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{ring: 32})
	inject(t, peer, tcpFrame(1460).frame(), tcpFrame(1461).frame())
	expect(t, d.rx[0], tcpFrame(1460).bytes())
	expectNone(t, d.rx[0])
	d = newDriver(t, w, setup{ring: 32, opt: Options{Variations: Variations{AcceptOversize: true}}})
	inject(t, peer, tcpFrame(3000).frame())
	expect(t, d.rx[0], tcpFrame(3000).bytes())
}

func TestTooManyFragmentsIsAnError(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{mtu: 9000, maxRxSG: 2})
	inject(t, peer, tcpFrame(6000).frame(), tcpFrame(100).frame())
	p, ok := d.rx[0].poll()
	if !ok || len(p.comps) != 2 || p.eop()[2]>>14&1 != 1 || p.sop()[2]>>14&1 != 0 {
		t.Fatalf("%v %x", ok, p)
	}
	expect(t, d.rx[0], tcpFrame(100).bytes())
	d = newDriver(t, w, setup{mtu: 9000, opt: Options{Variations: Variations{ZeroRxSGIsOne: true}}})
	inject(t, peer, tcpFrame(3000).frame())
	if p, ok := d.rx[0].poll(); !ok || len(p.comps) != 1 || p.eop()[2]>>14&1 != 1 {
		t.Error("maxNumRxSG 0 as 1")
	}
}

func TestReceiveDataRing(t *testing.T) {
	for _, rev := range []int{2, 3} {
		w, peer := newTestWire(t)
		d := newDriver(t, w, setup{revision: rev, rxData: 128, rxq: 2, features: bitRxCsum})
		small, large := tcpFrame(60), tcpFrame(75) // 114 and 129 bytes
		inject(t, peer, small.frame(), large.frame())
		p := expect(t, d.rx[0], small.bytes())
		if want := map[int]uint32{2: 0, 3: 4}[rev]; p.queue != want {
			t.Errorf("revision %d: small packet in ring id %d", rev, p.queue)
		}
		if p = expect(t, d.rx[0], large.bytes()); p.queue != 0 {
			t.Errorf("large packet in ring id %d", p.queue)
		}
	}
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{rxData: 128, opt: Options{Variations: Variations{NoRxDataRing: true}}})
	inject(t, peer, tcpFrame(60).frame())
	if p := expect(t, d.rx[0], tcpFrame(60).bytes()); p.queue != 0 {
		t.Error("data ring used though off")
	}
}

func TestVariationsOfCompletions(t *testing.T) {
	w, peer := newTestWire(t)
	v := Variations{UntypedCompletions: true, OffloadsOnSOP: true, ZeroLengthEvery: 3, ZeroLengthBodyEvery: 2, SkipEvery: 5}
	d := newDriver(t, w, setup{mtu: 9000, features: bitRxCsum, opt: Options{Variations: v}})
	holes, skips, before, last := 0, 0, 0, -1
	for i := range 200 {
		f := tcpFrame(5000)
		inject(t, peer, f.frame())
		p := expect(t, d.rx[0], f.bytes())
		if p.sop()[3]>>24&0x7f != 0 || p.sop()[3]>>18&1 != 1 {
			t.Fatalf("SOP completion %x", p.sop())
		}
		for j, c := range p.comps {
			if c[2]&0x3fff == 0 {
				holes++
				if j == 0 || j == len(p.comps)-1 {
					t.Fatal("empty descriptor at an end")
				}
			}
		}
		if last >= 0 && (last+1)%d.s.ring != p.indices[0] {
			skips++
		}
		last = p.indices[0]
		_ = i
		_ = before
	}
	if holes != 100 {
		t.Errorf("%d packets of 200 with an empty descriptor", holes)
	}
	// Every third packet is preceded by an empty one, every fifth by a skip.
	if skips != 66+40-13 {
		t.Errorf("%d jumps", skips)
	}
}

func TestNoBuffers(t *testing.T) {
	for _, pause := range []bool{true, false} {
		w := sim.NewWire(sim.WireOptions{NoFlowControl: !pause})
		t.Cleanup(w.Close)
		peer := sim.NewTester(w, sim.Wants{})
		d := newDriver(t, w, setup{ring: 32, leave: 26}) // 5 descriptors
		var fs []sim.Frame
		for i := range 8 {
			fs = append(fs, tcpFrame(100+i).frame())
		}
		n := peer.Port().Send(fs)
		if pause && n != 5 || !pause && n != 8 {
			t.Fatalf("pause %v: %d frames taken", pause, n)
		}
		d.step()
		for i := range 5 {
			expect(t, d.rx[0], tcpFrame(100+i).bytes())
		}
		expectNone(t, d.rx[0])
		d.command(cmdGetStats)
		if got := d.get64(d.rxDesc(0) + 88 + 64); got != map[bool]uint64{true: 0, false: 3}[pause] {
			t.Errorf("pause %v: outOfBuf %d", pause, got)
		}
		asks := d.at(d.rxDesc(0), 1)[0]
		if (asks == 1) != pause {
			t.Errorf("pause %v: updateRxProd %d", pause, asks)
		}
		if !pause {
			continue
		}
		resumed := make(chan error)
		go func() { resumed <- peer.Send(context.Background(), fs[5:]...) }()
		for range 3 {
			d.rx[0].post(0)
		}
		d.pt.Write32(0x800, uint32(d.rx[0].next[0]))
		for got := 5; got < 8; {
			d.step()
			if p, ok := d.rx[0].poll(); ok {
				if !bytes.Equal(p.bytes, tcpFrame(100+got).bytes()) {
					t.Fatal("wrong frame after a pause")
				}
				got++
			}
		}
		if err := <-resumed; err != nil {
			t.Fatal(err)
		}
		if d.at(d.rxDesc(0), 1)[0] != 0 {
			t.Error("updateRxProd still set")
		}
	}
}

func TestRxDoorbellPolicies(t *testing.T) {
	w, _ := newTestWire(t)
	d := newDriver(t, w, setup{opt: Options{Variations: Variations{RxDoorbells: RxDoorbellsAlways}}})
	if d.at(d.rxDesc(0), 1)[0] != 1 {
		t.Error("always: not set at activation")
	}
	w2, peer := newTestWire(t)
	d = newDriver(t, w2, setup{ring: 32, leave: 31, opt: Options{Variations: Variations{RxDoorbells: RxDoorbellsNever}}})
	if peer.Port().Send([]sim.Frame{tcpFrame(9).frame()}) != 0 {
		t.Fatal("taken without buffers")
	}
	if d.at(d.rxDesc(0), 1)[0] != 0 {
		t.Error("never: set")
	}
}

func TestBadReceiveDescriptors(t *testing.T) {
	w, peer := newTestWire(t)
	t.Run("unmapped buffer", func(t *testing.T) {
		d := newDriver(t, w, setup{})
		d.put64(d.rx[0].ring[0], 0x1000)
		inject(t, peer, tcpFrame(100).frame(), tcpFrame(200).frame())
		p, ok := d.rx[0].poll()
		if !ok || p.eop()[2]>>14&1 != 1 {
			t.Error("no error for a packet that could not be written")
		}
		if d.dev.Faults() != 1 {
			t.Errorf("%d faults", d.dev.Faults())
		}
		expect(t, d.rx[0], tcpFrame(200).bytes())
	})
	for name, c := range map[string]struct {
		at   uint64
		w2   uint32
		code uint32
		ring int
		size int
	}{
		"small head":     {8, 1<<31 | 100, errSmallBuffer, 0, 100},
		"empty head":     {8, 1 << 31, errSmallBuffer, 0, 100},
		"head in ring 2": {8, 1<<31 | 2048, errDescUnsupported, 1, 3000},
		"empty body":     {8, 1<<31 | 1<<14, errSmallBuffer, 1, 3000},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t, w, setup{mtu: 9000, kind: bus.MSIX})
			d.put32(d.rx[0].ring[c.ring]+c.at, c.w2)
			inject(t, peer, tcpFrame(c.size).frame())
			if d.get32(d.shared+dsECR)&eventRxQueue == 0 || d.fired(2) == 0 {
				t.Error("no event")
			}
			d.command(cmdGetQueueStatus)
			a := d.rxDesc(0)
			if d.at(a+80, 1)[0] != 1 || d.get32(a+84) != c.code {
				t.Errorf("stopped %d error %#x", d.at(a+80, 1)[0], d.get32(a+84))
			}
			inject(t, peer, tcpFrame(10).frame())
			expectNone(t, d.rx[0])
		})
	}
}
