package vmxnet3

import (
	"testing"

	"nicd/bus"
)

func TestRevisionNegotiation(t *testing.T) {
	w, _ := newTestWire(t)
	for rev := 1; rev <= 4; rev++ {
		d := prepare(t, w, setup{opt: Options{Revision: rev}})
		if got := d.vd.Read32(regVRRS); got != 1<<rev-1 {
			t.Errorf("revision %d: VRRS %#x", rev, got)
		}
		if d.m.revision != rev {
			t.Errorf("selected %d of %d", d.m.revision, rev)
		}
		d.vd.Write32(regVRRS, 3) // two at once, and one too high: no effect
		d.vd.Write32(regVRRS, 1<<rev)
		if d.m.revision != rev {
			t.Errorf("selected %d", d.m.revision)
		}
		d.vd.Write32(regVRRS, 1<<0)
		if d.m.revision != 1 || d.vd.Read32(regUVRS) != 1 {
			t.Error("revision 1")
		}
	}
	d := prepare(t, w, setup{revision: 2, opt: Options{Variations: Variations{RevisionBitmap: 0x1a}}})
	if d.vd.Read32(regVRRS) != 0x1a || d.m.revision != 2 {
		t.Error("revision bitmap")
	}
}

func TestCommands(t *testing.T) {
	w, _ := newTestWire(t)
	d := newDriver(t, w, setup{opt: Options{Interrupt: 0x7, SpeedMbps: 25_000}})
	for c, want := range map[uint32]uint32{
		cmdGetLink: 1 | 25_000<<16, cmdGetDeviceIDLow: 0x7b0, cmdGetDeviceIDHigh: 1, cmdGetDevExtraInfo: 0,
		cmdGetConfIntr: 7, cmdGetTxDataDescSize: 128, cmdGetRSSFields: 3, cmdGetCoalesce: 0,
		0xf00d0013: 0, 0xcafe1234: 0, 0: 0, cmdRegisterMemRegs: 0, cmdGetAdaptiveRing: 1,
	} {
		if got := d.command(c); got != want {
			t.Errorf("command %#x: %#x, want %#x", c, got, want)
		}
	}
	w.SetLink(false)
	if d.command(cmdGetLink) != 0 {
		t.Error("link is up")
	}
	d = newDriver(t, w, setup{revision: 2})
	for _, c := range []uint32{cmdGetTxDataDescSize, cmdGetRSSFields, cmdSetRSSFields, cmdSetCoalesce} {
		if got := d.command(c); got != 0 {
			t.Errorf("revision 2 knows command %#x: %#x", c, got)
		}
	}
}

func TestActivationRefusesNonsense(t *testing.T) {
	cases := map[string]func(d *tdriver){
		"magic":               func(d *tdriver) { d.put32(d.shared, 1) },
		"mtu low":             func(d *tdriver) { d.put32(d.shared+56, 59) },
		"mtu high":            func(d *tdriver) { d.put32(d.shared+56, 9001) },
		"no queues":           func(d *tdriver) { d.put8(d.shared+62, 0) },
		"too many queues":     func(d *tdriver) { d.put8(d.shared+63, 9) },
		"interrupts":          func(d *tdriver) { d.put8(d.shared+81, 26) },
		"event interrupt":     func(d *tdriver) { d.put8(d.shared+82, 3) },
		"queue interrupt":     func(d *tdriver) { d.put8(d.rxDesc(0)+72, 200) },
		"queue descriptors":   func(d *tdriver) { d.put64(d.shared+40, d.qdesc+64) },
		"unmapped queues":     func(d *tdriver) { d.put64(d.shared+40, 0x80) },
		"few descriptors":     func(d *tdriver) { d.put32(d.shared+52, 256) },
		"ring of 33":          func(d *tdriver) { d.put32(d.txDesc(0)+56, 33) },
		"ring of 0":           func(d *tdriver) { d.put32(d.txDesc(0)+56, 0) },
		"ring of 8192":        func(d *tdriver) { d.put32(d.rxDesc(0)+56, 8192) },
		"ring alignment":      func(d *tdriver) { d.put64(d.rxDesc(0)+16, d.rx[0].ring[0]+16) },
		"ring not mapped":     func(d *tdriver) { d.put64(d.rxDesc(0)+24, 0xffff_ffff_ffff_fe00) },
		"completions missing": func(d *tdriver) { d.put32(d.rxDesc(0)+64, 64) },
		"tx completions":      func(d *tdriver) { d.put32(d.txDesc(0)+64, 32) },
		"tx data size": func(d *tdriver) {
			d.put64(d.txDesc(0)+24, d.tx[0].ring)
			d.put32(d.txDesc(0)+60, 64)
			d.put16(d.txDesc(0)+74, 100)
		},
		"tx data alignment": func(d *tdriver) {
			d.put64(d.txDesc(0)+24, d.tx[0].ring+64)
			d.put32(d.txDesc(0)+60, 64)
			d.put16(d.txDesc(0)+74, 128)
		},
		"tx data entries": func(d *tdriver) {
			d.put64(d.txDesc(0)+24, d.tx[0].ring)
			d.put32(d.txDesc(0)+60, 32)
			d.put16(d.txDesc(0)+74, 128)
		},
		"rx data size": func(d *tdriver) { d.put16(d.rxDesc(0)+74, 4096) },
		"rss": func(d *tdriver) {
			d.put64(d.shared+24, bitRSS)
			d.put64(d.shared+656, 0)
		},
		"address": func(d *tdriver) { d.shared += 4096 * 4096 },
	}
	for name, edit := range cases {
		t.Run(name, func(t *testing.T) {
			w, peer := newTestWire(t)
			d := prepare(t, w, setup{edit: edit})
			if d.command(cmdActivate) != 1 || d.m.ActivationError() == nil {
				t.Fatal("activated")
			}
			d.tx[0].put(txReq{parts: [][]byte{tcpFrame(1).bytes()}})
			d.tx[0].bell()
			d.step()
			nothing(t, peer)
			inject(t, peer, tcpFrame(1).frame())
		})
	}
	w, _ := newTestWire(t)
	if d := prepare(t, w, setup{}); d.command(cmdActivate) != 0 {
		t.Error("and the good one was refused")
	}
}

func TestActivateTwice(t *testing.T) {
	w, _ := newTestWire(t)
	d := newDriver(t, w, setup{})
	if d.command(cmdActivate) != 1 {
		t.Error("activated twice")
	}
	d = newDriver(t, w, setup{opt: Options{Variations: Variations{ActivateTwice: true}}})
	if d.command(cmdActivate) != 0 {
		t.Error("variation: refused")
	}
}

func TestThresholdIsTheDevices(t *testing.T) {
	w, _ := newTestWire(t)
	d := newDriver(t, w, setup{})
	if d.get32(d.txDesc(0)+4) != 1 {
		t.Error("txThreshold")
	}
	d = newDriver(t, w, setup{opt: Options{Variations: Variations{TxThreshold: 16}}})
	if d.get32(d.txDesc(0)+4) != 16 {
		t.Error("variation: txThreshold")
	}
}

// restart brings a device up again with fresh rings.
func (d *tdriver) restart(t *testing.T, address bool) uint32 {
	t.Helper()
	d.used, d.tx, d.rx = 0, nil, nil
	clear(d.mem.Bytes())
	d.layout()
	if address {
		d.vd.Write32(regDSAL, uint32(d.shared))
		d.vd.Write32(regDSAH, uint32(d.shared>>32))
	}
	r := d.command(cmdActivate)
	d.postAll()
	return r
}

func TestQuiesceAndReset(t *testing.T) {
	w, peer := newTestWire(t)
	for _, forgets := range []bool{false, true} {
		d := newDriver(t, w, setup{kind: bus.MSIX, opt: Options{Variations: Variations{ResetForgetsAddress: forgets}}})
		run := func() {
			t.Helper()
			inject(t, peer, tcpFrame(100).frame())
			expect(t, d.rx[0], tcpFrame(100).bytes())
			d.tx[0].send(txReq{parts: [][]byte{tcpFrame(100).bytes()}})
			next(t, peer, tcpFrame(100).bytes())
		}
		run()
		d.command(cmdQuiesce)
		inject(t, peer, tcpFrame(100).frame())
		expectNone(t, d.rx[0])
		if d.restart(t, false) != 0 {
			t.Fatal("QUIESCE, ACTIVATE")
		}
		run()
		d.command(cmdGetStats)
		if d.get64(d.rxDesc(0)+88+16) != 2 {
			t.Error("QUIESCE cleared the statistics")
		}
		d.command(cmdReset)
		if d.pt.Read32(0) != 1 {
			t.Error("RESET leaves vectors unmasked")
		}
		if got := d.restart(t, false); (got == 1) != forgets {
			t.Errorf("forgets %v: ACTIVATE after RESET %d", forgets, got)
		}
		if forgets {
			if d.restart(t, true) != 0 {
				t.Error("ACTIVATE with the address written again")
			}
		}
		run()
		d.vd.Write32(regDSAL, 0) // detaches
		inject(t, peer, tcpFrame(100).frame())
		expectNone(t, d.rx[0])
		if d.command(cmdActivate) != 1 {
			t.Error("activated without an address")
		}
		must(t, d.dev.Reset(t.Context()))
		d.selectRevision()
		if d.restart(t, true) != 0 {
			t.Error("ACTIVATE after a function reset")
		}
		run()
		must(t, d.dev.Close())
	}
}

func TestActivateAndMAC(t *testing.T) {
	w, _ := newTestWire(t)
	for _, restores := range []bool{false, true} {
		d := prepare(t, w, setup{opt: Options{Variations: Variations{ActivateRestoresMAC: restores}}})
		d.vd.Write32(regMACL, 0x44332202)
		d.vd.Write32(regMACH, 0x6655)
		if d.command(cmdActivate) != 0 {
			t.Fatal("activation")
		}
		if got := d.vd.Read32(regMACL); (got == 0x44332202) == restores {
			t.Errorf("restores %v: MACL %#x", restores, got)
		}
	}
}

func TestLinkEvent(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{kind: bus.MSIX})
	w.SetLink(false)
	if d.get32(d.shared+dsECR) != eventLink || d.fired(2) != 1 || d.command(cmdGetLink)&1 != 0 {
		t.Error("link down")
	}
	d.vd.Write32(regECR, eventLink)
	d.tx[0].send(txReq{parts: [][]byte{tcpFrame(1).bytes()}})
	nothing(t, peer)
	if len(d.tx[0].completed()) != 1 {
		t.Error("a frame sent on a dead link is not completed")
	}
	w.SetLink(true)
	if d.get32(d.shared+dsECR) != eventLink || d.fired(2) != 1 || d.command(cmdGetLink)&1 != 1 {
		t.Error("link up")
	}
}

func TestStatistics(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{txq: 2, edit: func(d *tdriver) { d.put32(d.shared+120, 0xf) }})
	uni, multi, broad := tcpFrame(100), tcpFrame(200), tcpFrame(300)
	multi.dst = [6]byte{1, 0, 0x5e, 0, 0, 1}
	broad.dst = [6]byte{255, 255, 255, 255, 255, 255}
	for _, f := range []tframe{uni, multi, multi, broad, broad, broad} {
		inject(t, peer, f.frame())
		d.tx[1].send(txReq{parts: [][]byte{f.bytes()}})
	}
	f := tcpFrame(2921)
	f.tso = true
	d.tx[1].send(txReq{parts: [][]byte{f.bytes()}, om: 3, hlen: 54, mss: 1460})
	d.command(cmdGetStats)
	read := func(a uint64) (s [10]uint64) {
		for i := range s {
			s[i] = d.get64(a + 88 + uint64(8*i))
		}
		return s
	}
	tso := uint64(2921 + 3*54)
	if got, want := read(d.txDesc(1)), [10]uint64{3, tso, 4, 154 + tso, 2, 508, 3, 1062, 0, 0}; got != want {
		t.Errorf("transmit %v\nwant     %v", got, want)
	}
	if got, want := read(d.rxDesc(0)), [10]uint64{0, 0, 1, 154, 2, 508, 3, 1062, 0, 0}; got != want {
		t.Errorf("receive %v\nwant    %v", got, want)
	}
	if read(d.txDesc(0)) != [10]uint64{} {
		t.Error("statistics of an idle queue")
	}
}

func TestUnplugUnderTraffic(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{worker: true})
	inject(t, peer, tcpFrame(100).frame())
	d.dev.Unplug()
	inject(t, peer, tcpFrame(100).frame())
	if d.vd.Read32(regVRRS) != bus.Gone || d.dev.Faults() != 0 {
		t.Errorf("VRRS %#x, %d faults", d.vd.Read32(regVRRS), d.dev.Faults())
	}
}
