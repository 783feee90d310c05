package vmxnet3

import (
	"bytes"
	"fmt"
	"testing"

	"nicd/bus"
	"nicd/sim"
)

func next(t *testing.T, peer *sim.Tester, want []byte) sim.Frame {
	t.Helper()
	r, ok := peer.TryNext()
	if !ok {
		t.Fatal("nothing was sent")
	}
	if !bytes.Equal(r.Bytes, want) {
		t.Fatalf("sent %d bytes %x\nwant %d bytes %x", len(r.Bytes), r.Bytes[:min(80, len(r.Bytes))], len(want), want[:min(80, len(want))])
	}
	return r.Frame
}

func nothing(t *testing.T, peer *sim.Tester) {
	t.Helper()
	if r, ok := peer.TryNext(); ok {
		t.Fatalf("sent %d bytes", len(r.Bytes))
	}
}

// split cuts b into parts of the given lengths and the rest.
func split(b []byte, lens ...int) (parts [][]byte) {
	for _, n := range lens {
		parts = append(parts, b[:n])
		b = b[n:]
	}
	return append(parts, b)
}

func TestTransmitManyTimesRoundTheRing(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{ring: 32})
	x := d.tx[0]
	for i := range 400 {
		b := tcpFrame(40 + i).bytes()
		var parts [][]byte
		for range i % 3 {
			parts = append(parts, b[:7])
			b = b[7:]
		}
		parts = append(parts, b)
		x.send(txReq{parts: parts})
		next(t, peer, tcpFrame(40+i).bytes())
		want := (x.next + x.size - 1) % x.size
		if got := x.completed(); len(got) != 1 || got[0] != want {
			t.Fatalf("packet %d: completions %v, want [%d]", i, got, want)
		}
	}
	nothing(t, peer)
}

func TestNothingIsSentWithoutADoorbell(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{})
	x := d.tx[0]
	x.put(txReq{parts: [][]byte{tcpFrame(10).bytes()}})
	d.step()
	nothing(t, peer)
	x.put(txReq{parts: [][]byte{tcpFrame(20).bytes()}})
	x.bell()
	x.put(txReq{parts: [][]byte{tcpFrame(30).bytes()}})
	d.step()
	next(t, peer, tcpFrame(10).bytes())
	next(t, peer, tcpFrame(20).bytes())
	nothing(t, peer)
	x.bell()
	d.step()
	next(t, peer, tcpFrame(30).bytes())
}

func TestCompletionOnlyOnRequest(t *testing.T) {
	for _, always := range []bool{false, true} {
		w, _ := newTestWire(t)
		d := newDriver(t, w, setup{opt: Options{Variations: Variations{AlwaysComplete: always}}})
		x := d.tx[0]
		for i := range 6 {
			x.put(txReq{parts: [][]byte{tcpFrame(10).bytes()}, noCQ: i%3 != 2})
		}
		x.bell()
		d.step()
		if got, want := fmt.Sprint(x.completed()), map[bool]string{false: "[2 5]", true: "[0 1 2 3 4 5]"}[always]; got != want {
			t.Errorf("always %v: %s", always, got)
		}
	}
}

func TestTransmitChecksum(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{})
	for _, v6 := range []bool{false, true} {
		for _, proto := range []byte{6, 17} {
			f := tcpFrame(777)
			f.v6, f.proto = v6, proto
			off := map[byte]int{6: 16, 17: 6}[proto]
			p := f
			p.partial = true
			d.tx[0].send(txReq{parts: split(p.bytes(), 61, 100), om: 2, hlen: f.l4Offset(), mss: f.l4Offset() + off})
			next(t, peer, f.bytes())
		}
	}
	// The device believes the seed: a wrong one makes a wrong checksum.
	f := tcpFrame(50)
	f.partial, f.badL4 = true, true
	d.tx[0].send(txReq{parts: [][]byte{f.bytes()}, om: 2, hlen: 34, mss: 50})
	if r, ok := peer.TryNext(); !ok || bytes.Equal(r.Bytes, tcpFrame(50).bytes()) || r.Frame.Flags&sim.Good != 0 {
		t.Error("a wrong seed went unseen")
	}
}

func TestTSO(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{})
	for _, v6 := range []bool{false, true} {
		for _, n := range []int{1, 1459, 1460, 1461, 14600, 40001, 65000} {
			f := tcpFrame(n)
			f.v6, f.flags, f.options = v6, 0x99, pattern(12, 3)
			f.options[0], f.options[1] = 1, 1
			p := f
			p.tso = true
			b := p.bytes()
			parts := split(b, f.headerLen())
			if rest := parts[1]; len(rest) > 16000 {
				parts = parts[:1]
				for len(rest) > 16384 {
					parts = append(parts, rest[:16384])
					rest = rest[16384:]
				}
				parts = append(parts, rest)
			}
			d.tx[0].send(txReq{parts: parts, om: 3, hlen: f.headerLen(), mss: 1448})
			for _, want := range f.segments(1448) {
				next(t, peer, want)
			}
			nothing(t, peer)
			d.tx[0].completed()
		}
	}
}

func TestTransmitTag(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{})
	f := tcpFrame(500)
	tagged := f
	tagged.vlan = 3<<13 | 99
	for _, cut := range []int{5, 12, 13, 40} {
		d.tx[0].send(txReq{parts: split(f.bytes(), cut), tag: 3<<13 | 99, tagged: true})
		next(t, peer, tagged.bytes())
	}
	p := tcpFrame(5000)
	tso := p
	tso.tso = true
	p.vlan = 7
	d.tx[0].send(txReq{parts: [][]byte{tso.bytes()}, om: 3, hlen: 54, mss: 1460, tag: 7, tagged: true})
	for _, want := range p.segments(1460) {
		next(t, peer, want)
	}
}

func TestTransmitErrorsStopTheQueue(t *testing.T) {
	f := tcpFrame(100)
	many := split(tcpFrame(900).bytes(), 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20, 20)
	cases := map[string]struct {
		r    txReq
		code uint32
	}{
		"no EOP":           {txReq{parts: [][]byte{f.bytes()}, noEOP: true}, errNoEOP},
		"17 descriptors":   {txReq{parts: many}, errBigPacket},
		"type":             {txReq{parts: [][]byte{f.bytes()}, dtype: true}, errDescUnsupported},
		"encapsulation":    {txReq{parts: [][]byte{f.bytes()}, om: 1, hlen: 54, mss: 10}, errDescUnsupported},
		"checksum outside": {txReq{parts: [][]byte{f.bytes()}, om: 2, hlen: 34, mss: 200}, errTxDescInvalid},
		"checksum before":  {txReq{parts: [][]byte{f.bytes()}, om: 2, hlen: 34, mss: 20}, errTxDescInvalid},
		"mss 0":            {txReq{parts: [][]byte{f.bytes()}, om: 3, hlen: 54}, errTxDescInvalid},
		"split headers":    {txReq{parts: split(f.bytes(), 50), om: 3, hlen: 54, mss: 20}, errTxDescInvalid},
		"hlen without tcp": {txReq{parts: [][]byte{f.bytes()}, om: 3, hlen: 34, mss: 20}, errTxDescInvalid},
		"headers only":     {txReq{parts: [][]byte{f.bytes()[:54]}, om: 3, hlen: 54, mss: 20}, errTxDescInvalid},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w, peer := newTestWire(t)
			d := newDriver(t, w, setup{kind: bus.MSIX, txq: 2})
			x := d.tx[1]
			x.put(txReq{parts: [][]byte{tcpFrame(33).bytes()}})
			x.put(c.r)
			x.bell()
			d.step()
			next(t, peer, tcpFrame(33).bytes()) // what came before is sent
			nothing(t, peer)
			if len(x.completed()) != 1 {
				t.Error("the good packet was not completed")
			}
			if d.get32(d.shared+dsECR) != eventTxQueue || d.fired(3) == 0 {
				t.Errorf("ecr %#x", d.get32(d.shared+dsECR))
			}
			d.command(cmdGetQueueStatus)
			if a := d.txDesc(1); d.at(a+80, 1)[0] != 1 || d.get32(a+84) != c.code {
				t.Errorf("stopped %d error %#x, want %#x", d.at(a+80, 1)[0], d.get32(a+84), c.code)
			}
			if d.at(d.txDesc(0)+80, 1)[0] != 0 {
				t.Error("the other queue stopped too")
			}
			d.vd.Write32(regECR, eventTxQueue)
			if d.get32(d.shared+dsECR) != 0 {
				t.Error("ECR does not clear")
			}
			d.tx[0].send(txReq{parts: [][]byte{tcpFrame(44).bytes()}})
			next(t, peer, tcpFrame(44).bytes())
		})
	}
	t.Run("ignored", func(t *testing.T) {
		w, peer := newTestWire(t)
		d := newDriver(t, w, setup{opt: Options{Variations: Variations{IgnoreTxErrors: true}}})
		d.tx[0].send(txReq{parts: [][]byte{f.bytes()}, noEOP: true})
		nothing(t, peer)
		d.tx[0].send(txReq{parts: [][]byte{f.bytes()}})
		next(t, peer, f.bytes())
		if d.get32(d.shared+dsECR) != 0 {
			t.Error("event")
		}
	})
}

func TestTransmitFromUnmappedMemory(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{})
	x := d.tx[0]
	x.put(txReq{parts: [][]byte{tcpFrame(33).bytes()}, badAddr: true})
	x.put(txReq{parts: [][]byte{tcpFrame(34).bytes()}})
	x.bell()
	d.step()
	next(t, peer, tcpFrame(34).bytes())
	if d.dev.Faults() != 1 || len(x.completed()) != 2 {
		t.Errorf("%d faults", d.dev.Faults())
	}
	d.command(cmdGetStats)
	if d.get64(d.txDesc(0)+88+64) != 1 {
		t.Error("error statistic")
	}
}

// A packet with a descriptor that reaches into a second page is lost and counted; in
// pieces that do not it is sent.
func TestDropsAcrossPagesVariation(t *testing.T) {
	for _, on := range []bool{false, true} {
		w, peer := newTestWire(t)
		d := newDriver(t, w, setup{opt: Options{Variations: Variations{DropsAcrossPages: on}}})
		x := d.tx[0]
		frame := tcpFrame(3500).bytes()
		for i := range 8 {
			page := 4096 - int((x.buf+uint64(x.next%4)*66000)%4096)
			pieces, crosses := [][]byte{frame}, page < len(frame)
			if crosses && i%2 == 1 {
				pieces, crosses = split(frame, page), false
			}
			x.send(txReq{parts: pieces})
			if got := x.completed(); len(got) != 1 {
				t.Fatalf("packet %d: completions %v", i, got)
			}
			if crosses && on {
				nothing(t, peer)
				continue
			}
			next(t, peer, frame)
		}
		d.command(cmdGetStats)
		if lost := d.get64(d.txDesc(0) + 88 + 64); (lost != 0) != on {
			t.Errorf("%v: %d packets are counted as errors", on, lost)
		}
	}
}

func TestPausedSenderResumes(t *testing.T) {
	w := sim.NewWire(sim.WireOptions{})
	t.Cleanup(w.Close)
	peer := sim.NewTester(w, sim.Wants{})
	peer.Limit = 3
	d := newDriver(t, w, setup{txq: 2})
	f := tcpFrame(14600)
	tso := f
	tso.tso = true
	b := tso.bytes()
	d.tx[0].send(txReq{parts: [][]byte{b}, om: 3, hlen: 54, mss: 1460})
	d.tx[1].send(txReq{parts: [][]byte{tcpFrame(5).bytes()}})
	if len(d.tx[0].completed()) != 0 {
		t.Fatal("completed before it was sent")
	}
	for i, want := range append(f.segments(1460), tcpFrame(5).bytes()) {
		if i >= 3 {
			d.step()
		}
		next(t, peer, want)
	}
	d.step()
	nothing(t, peer)
	if len(d.tx[0].completed()) != 1 || len(d.tx[1].completed()) != 1 {
		t.Error("not completed")
	}
}

// TestFirstDescriptorsOfAnyLength: the destination may lie in several descriptors, and
// is what it is.
func TestFirstDescriptorsOfAnyLength(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{})
	for _, dst := range [][]byte{{2, 0, 0, 0, 0, 9}, {1, 0, 0x5e, 0, 0, 9}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}} {
		for first := 1; first < 14; first++ {
			b := tcpFrame(40).bytes()
			copy(b, dst)
			d.tx[0].send(txReq{parts: split(b, first)})
			d.tx[0].completed()
			next(t, peer, b)
		}
	}
	c := &d.m.tx.counters[0].cast
	for kind := range numCastKinds {
		if c[kind].pkts != 13 {
			t.Errorf("%d packets of kind %d, want 13", c[kind].pkts, kind)
		}
	}
}
