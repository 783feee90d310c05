package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"sync"
	"testing"
	"time"

	"nicd/framework"
	"nicd/gso"
	"nicd/internal/checksum"
)

// wire records what the device is given.
type wire struct {
	mu      sync.Mutex
	frames  [][]byte
	packets []framework.Packet
}

func (w *wire) record(_ int, frame []byte, p framework.Packet) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frames = append(w.frames, frame)
	w.packets = append(w.packets, p)
}

func (w *wire) len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.frames)
}

// without returns a setup that takes features away from device and plan.
func without(f framework.Features) func(*rig) {
	return func(r *rig) {
		r.dev.info.Features &^= f
		r.plan.Features &^= f
	}
}

func (r *rig) listen() *wire {
	w := &wire{}
	r.dev.sent = w.record
	return w
}

// partial writes a pseudo-header's sum into the TCP checksum field of a frame that
// tcp made and returns the packet's description.
func partial(f []byte) framework.Packet {
	binary.BigEndian.PutUint16(f[50:], checksum.Pseudo4(f[26:34], 6, len(f)-34))
	return framework.Packet{
		Flags:         framework.ChecksumPartial | framework.IPv4 | framework.TCP,
		ChecksumStart: 34, ChecksumOffset: 16, HeaderLen: 54,
	}
}

// tso is partial for a frame that is to be cut.
func tso(f []byte, size uint16) framework.Packet {
	p := partial(f)
	p.Flags |= framework.Segment
	p.SegmentSize = size
	return p
}

// segment is a TCP segment with n bytes of payload.
func tcpFrame(n int, seq uint32, flags byte) []byte {
	f := make([]byte, 54+n)
	for i := range n {
		f[54+i] = byte(i*7 + n)
	}
	tcp(f, 1, uint16(seq/100), seq, flags)
	return f
}

// send sends one frame and returns what the device was given for it.
func (r *rig) sendOne(w *wire, p framework.Packet, offset uint32, pieces ...[]byte) ([][]byte, []framework.Packet) {
	r.t.Helper()
	before := w.len()
	taken := r.txCount(0, TxTaken)
	r.up.frame(0, p, offset, pieces...)
	r.until("sent or dropped", func() bool {
		s := r.e.Counters()
		return s.Tx[0][TxTaken] == taken+1 && s.Tx[0][TxInFlight] == 0
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.frames[before:], w.packets[before:]
}

func tcpGood(f []byte) bool {
	return checksum.Add(checksum.Pseudo4(f[26:34], 6, len(f)-34), checksum.Sum(f[34:])) == 0xffff &&
		checksum.Sum(f[14:34]) == 0xffff
}

func TestSendInOrderAndIdleHoldsNothing(t *testing.T) {
	r := newRig(t, 1, nil)
	w := r.listen()
	r.start()
	const n = 2000
	for i := range n {
		r.until("a buffer", func() bool { return r.up.frame(0, framework.Packet{}, 0, numbered(i, 60+i%1400)) })
	}
	r.until("all back", func() bool { return r.txCount(0, TxCompleted) == n })
	r.up.mu.Lock()
	if len(r.up.txHeld) != 0 {
		t.Errorf("an idle queue holds %d buffers", len(r.up.txHeld))
	}
	r.up.mu.Unlock()
	for i, f := range w.frames {
		if !bytes.Equal(f, numbered(i, 60+i%1400)) {
			t.Fatalf("frame %d differs", i)
		}
	}
	r.finish()
}

// TestTakenIsCountedAtOnce: an engine can die at any packet. What it has taken by then
// nobody else will count.
func TestTakenIsCountedAtOnce(t *testing.T) {
	r := newRig(t, 1, nil)
	r.dev.sent = func(int, []byte, framework.Packet) {
		s := r.e.Counters()
		if done := s.Tx[0][TxPackets]; s.Torn || s.Tx[0][TxTaken] <= done || Check(s) != nil {
			t.Errorf("%d packets are taken, %d were put before: %v", s.Tx[0][TxTaken], done, Check(s))
		}
	}
	r.start()
	for i := range 200 {
		r.until("a buffer", func() bool { return r.up.frame(0, framework.Packet{}, 0, numbered(i, 60)) })
	}
	r.until("all sent", func() bool { return r.txCount(0, TxCompleted) == 200 })
	r.finish()
}

// TestCompletionsAreCoalesced: of a batch, the last packet has to produce a
// completion, and one each eighth of the ring.
func TestCompletionsAreCoalesced(t *testing.T) {
	r := newRig(t, 1, nil)
	w := r.listen()
	for i := range txBatch {
		r.up.frame(0, framework.Packet{}, 0, numbered(i, 60))
	}
	r.start()
	r.until("all sent", func() bool { return r.txCount(0, TxCompleted) == txBatch })
	for i, p := range w.packets {
		if asked, want := p.Flags&framework.Completion != 0, (i+1)%32 == 0; asked != want {
			t.Errorf("packet %d: completion asked for: %v", i, asked)
		}
	}
	r.finish()
}

func TestMalformedIsCountedAndNothingElse(t *testing.T) {
	r := newRig(t, 1, nil)
	w := r.listen()
	r.start()
	frame := tcpFrame(3000, 1, 0x10)
	good := tso(frame, 1000)
	bad := map[string]func(*framework.Packet){
		"no segment size":       func(p *framework.Packet) { p.SegmentSize = 0 },
		"no header length":      func(p *framework.Packet) { p.HeaderLen = 0 },
		"headers beyond frame":  func(p *framework.Packet) { p.HeaderLen = 60000 },
		"no protocol":           func(p *framework.Packet) { p.Flags &^= framework.IPv4 },
		"no checksum":           func(p *framework.Packet) { p.Flags &^= framework.ChecksumPartial },
		"checksum behind frame": func(p *framework.Packet) { p.ChecksumStart = 65535 },
		"checksum in Ethernet":  func(p *framework.Packet) { p.ChecksumStart = 2 },
	}
	for name, spoil := range bad {
		p := good
		spoil(&p)
		if got, _ := r.sendOne(w, p, 64, frame[:1500], frame[1500:]); len(got) != 0 {
			t.Errorf("%s: was sent", name)
		}
	}
	// Fragments that are not there, empty, or do not add up.
	for name, spoil := range map[string]func(*framework.Batch){
		"length":   func(b *framework.Batch) { b.Packets[0].Len++ },
		"count":    func(b *framework.Batch) { b.Packets[0].Frags = 65 },
		"none":     func(b *framework.Batch) { b.Packets[0].Frags = 0 },
		"outside":  func(b *framework.Batch) { b.Frags[0].Offset = 1 << 31 },
		"overflow": func(b *framework.Batch) { b.Frags[0].Offset, b.Frags[0].Len = 1<<32-1, 2 },
		"first":    func(b *framework.Batch) { b.Packets[0].First = 1<<32 - 1 },
		"empty":    func(b *framework.Batch) { b.Frags[0].Len = 0 },
		"tiny":     func(b *framework.Batch) { b.Frags[0].Len, b.Packets[0].Len = 13, 13 },
	} {
		b := &framework.Batch{
			Packets: []framework.Packet{{Frags: 1, Len: 100}},
			Frags:   []framework.Fragment{{Buffer: rxPerQueue, Len: 100}},
		}
		spoil(b)
		if _, reason := r.e.tx[0].rules.Load().check(b, &b.Packets[0], r.opts.Buffers); reason != framework.DropTxMalformed {
			t.Errorf("%s: %v", name, reason)
		}
	}
	if n := r.txCount(0, TxDropMalformed); n != uint64(len(bad)) {
		t.Errorf("%d malformed, want %d", n, len(bad))
	}
	if got, _ := r.sendOne(w, framework.Packet{}, 0, make([]byte, 1600)); len(got) != 0 || r.txCount(0, TxDropTooLong) != 1 {
		t.Error("a frame longer than the MTU was not dropped as that")
	}
	r.finish()
}

func TestChecksumInSoftware(t *testing.T) {
	r := newRig(t, 1, without(framework.TxChecksum))
	w := r.listen()
	r.start()
	frame := tcpFrame(701, 1, 0x10)
	p := partial(frame)
	for cut := 1; cut < 120; cut++ {
		got, packets := r.sendOne(w, p, 8, frame[:cut], frame[cut:])
		if len(got) != 1 || !tcpGood(got[0]) || packets[0].Flags&framework.ChecksumPartial != 0 {
			t.Fatalf("cut at %d: %d frames, or a wrong checksum", cut, len(got))
		}
	}
	if n := r.txCount(0, TxChecksumSoftware); n != 119 {
		t.Errorf("counted %d", n)
	}
	if n := r.txCount(0, TxPullups); n != 1 {
		t.Errorf("%d pull-ups: only a field in two fragments takes one", n)
	}
	r.finish()
}

func TestUDPChecksumIsNeverZero(t *testing.T) {
	r := newRig(t, 1, without(framework.TxChecksum))
	w := r.listen()
	r.start()
	f := make([]byte, 14+20+8+2)
	copy(f, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45})
	pseudo := checksum.Pseudo4(f[26:34], 17, 10)
	binary.BigEndian.PutUint16(f[40:], pseudo)
	binary.BigEndian.PutUint16(f[42:], ^pseudo)
	got, _ := r.sendOne(w, framework.Packet{
		Flags: framework.ChecksumPartial, ChecksumStart: 34, ChecksumOffset: 6,
	}, 0, f)
	if sum := binary.BigEndian.Uint16(got[0][40:]); sum != 0xffff {
		t.Errorf("checksum %#x", sum)
	}
	r.finish()
}

// TestChopIsWhatGSOSays compares segmentation in software, over all combinations
// of what else the device cannot do, with package gso's copying variant.
func TestChopIsWhatGSOSays(t *testing.T) {
	for _, lacking := range []framework.Features{
		0, framework.TxChecksum, framework.VLANInsert, framework.TxChecksum | framework.VLANInsert,
	} {
		for _, tagged := range []bool{false, true} {
			for _, fragments := range []int{0, 1, 2} {
				chop(t, lacking, tagged, fragments)
			}
		}
	}
}

func chop(t *testing.T, lacking framework.Features, tagged bool, fragments int) {
	t.Helper()
	r := newRig(t, 1, func(r *rig) {
		without(lacking | framework.TSO4)(r)
		r.dev.info.MaxTxFragments = fragments
	})
	w := r.listen()
	r.start()
	frame := tcpFrame(20000, 0xfffffff0, 0x19)
	p := tso(frame, 1448)
	if tagged {
		p.Flags |= framework.VLANTag
		p.VLAN = 0x2064
	}
	var pieces [][]byte
	for at := 0; at < len(frame); at += 1999 {
		pieces = append(pieces, frame[at:min(at+1999, len(frame))])
	}
	got, packets := r.sendOne(w, p, 4, pieces...)

	params, err := gso.Parse(frame)
	if err != nil {
		t.Fatal(err)
	}
	params.SegmentSize = 1448
	if lacking&framework.TxChecksum == 0 {
		params.Checksum = gso.ChecksumPartial
	}
	var s gso.Segmenter
	if err := s.Reset([][]byte{frame}, params); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 2000)
	for i := 0; ; i++ {
		n, ok := s.NextFrame(buf)
		if !ok {
			if i != len(got) || i != 14 {
				t.Fatalf("%d segments, want %d", len(got), i)
			}
			break
		}
		want := buf[:n]
		start := uint16(34)
		if tagged && lacking&framework.VLANInsert != 0 {
			want = append(append(append([]byte(nil), buf[:12]...), 0x81, 0, 0x20, 0x64), buf[12:n]...)
			start += 4
		}
		if i >= len(got) || !bytes.Equal(got[i], want) {
			t.Fatalf("lacking %v, tagged %v: segment %d differs", lacking, tagged, i)
		}
		g := packets[i]
		if g.Flags&framework.Segment != 0 || (g.Flags&framework.ChecksumPartial != 0) != (lacking&framework.TxChecksum == 0) ||
			(g.Flags&framework.VLANTag != 0) != (tagged && lacking&framework.VLANInsert == 0) {
			t.Errorf("segment %d has flags %b", i, g.Flags)
		}
		if g.Flags&framework.ChecksumPartial != 0 && g.ChecksumStart != start {
			t.Errorf("checksum starts at %d, want %d", g.ChecksumStart, start)
		}
		if fragments > 0 && int(g.Frags) > fragments {
			t.Errorf("segment %d has %d fragments", i, g.Frags)
		}
	}
	if n := r.txCount(0, TxTSOChoppedSegments); n != 14 {
		t.Errorf("counted %d segments", n)
	}
	r.finish()
}

func TestHardwareTSO(t *testing.T) {
	r := newRig(t, 1, func(r *rig) { r.plan.TxDescriptors = 512 })
	w := r.listen()
	r.start()
	frame := tcpFrame(20000, 1, 0x10)
	want := checksum.Pseudo4(frame[26:34], 6, 0)
	var pieces [][]byte
	for at := 0; at < len(frame); at += 2000 {
		pieces = append(pieces, frame[at:min(at+2000, len(frame))])
	}
	got, packets := r.sendOne(w, tso(frame, 1448), 0, pieces...)
	if len(got) != 1 || packets[0].Flags&framework.Segment == 0 {
		t.Fatalf("%d packets", len(got))
	}
	if sum := binary.BigEndian.Uint16(got[0][50:]); sum != want {
		t.Errorf("checksum field %#x, want the pseudo-header's sum without length, %#x", sum, want)
	}
	if n := r.txCount(0, TxTSOHardwareSegments); n != 14 {
		t.Errorf("%d segments", n)
	}
	// One segment only is no work for a segmenter.
	small := tcpFrame(1000, 1, 0x10)
	_, packets = r.sendOne(w, tso(small, 1448), 0, small)
	if packets[0].Flags&framework.Segment != 0 || packets[0].Flags&framework.ChecksumPartial == 0 {
		t.Errorf("flags %b", packets[0].Flags)
	}
	r.finish()
}

// TestRingShare: a packet that would take more than a twelfth of the ring is cut in
// software although the device could.
func TestRingShare(t *testing.T) {
	r := newRig(t, 1, func(r *rig) { r.plan.TxDescriptors = 64 })
	w := r.listen()
	r.start()
	frame := tcpFrame(12000, 1, 0x10)
	var pieces [][]byte
	for at := 0; at < len(frame); at += 1500 {
		pieces = append(pieces, frame[at:min(at+1500, len(frame))])
	}
	got, packets := r.sendOne(w, tso(frame, 1448), 0, pieces...)
	if len(got) != 9 {
		t.Fatalf("%d segments", len(got))
	}
	for _, p := range packets {
		if p.Frags > 64/ringShare {
			t.Errorf("a packet with %d fragments", p.Frags)
		}
	}
	r.finish()
}

// TestPacketsOfManyDescriptors: some devices take a descriptor for each segment. A ring
// that is full of few packets empties all the same, and a packet that would not fit an
// empty ring is dropped and does not hold up those behind it.
func TestPacketsOfManyDescriptors(t *testing.T) {
	for _, c := range []struct {
		size uint16
		drop uint64
	}{{100, 0}, {32, 10}} {
		r := newRig(t, 1, func(r *rig) { r.dev.perSegment = 1 })
		w := r.listen()
		r.dev.autoTx = false
		r.start()
		frame := tcpFrame(9000, 1, 0x10)
		for i := range 10 {
			r.up.frame(0, framework.Packet{}, 0, numbered(i, 60))
			r.up.frame(0, tso(frame, c.size), 0, frame[:2000], frame[2000:4000], frame[4000:6000], frame[6000:8000], frame[8000:])
		}
		r.until("sent or dropped", func() bool {
			r.dev.finish(0, 255)
			return r.txCount(0, TxTaken) == 20 && r.txCount(0, TxInFlight) == 0
		})
		r.finish()
		if dropped := r.txCount(0, TxDropTooLong); dropped != c.drop || uint64(w.len()) != 20-c.drop {
			t.Errorf("segments of %d: %d sent, %d dropped", c.size, w.len(), dropped)
		}
	}
}

func TestLinearise(t *testing.T) {
	r := newRig(t, 1, func(r *rig) {
		r.plan.MTU = 9000
		r.dev.info.MaxTxFragments = 6
	})
	w := r.listen()
	r.start()
	frame := numbered(9, 9000)
	var pieces [][]byte
	for at := 0; at < len(frame); at += 300 {
		pieces = append(pieces, frame[at:min(at+300, len(frame))])
	}
	got, packets := r.sendOne(w, framework.Packet{}, 0, pieces...)
	if len(got) != 1 || !bytes.Equal(got[0], frame) || packets[0].Frags != 5 || r.txCount(0, TxLinearised) != 1 {
		t.Errorf("%d packets: %+v", len(got), packets)
	}
	r.finish()
}

func TestSplit(t *testing.T) {
	r := newRig(t, 1, func(r *rig) { r.dev.info.MaxTxFragmentLen = 512 })
	w := r.listen()
	r.start()
	frame := numbered(9, 1500)
	got, packets := r.sendOne(w, framework.Packet{}, 0, frame)
	if len(got) != 1 || !bytes.Equal(got[0], frame) || packets[0].Frags != 3 || r.txCount(0, TxSplits) != 1 {
		t.Errorf("%d packets: %+v", len(got), packets)
	}
	r.finish()
}

func TestPad(t *testing.T) {
	r := newRig(t, 1, func(r *rig) { r.opts.Quirks.Set("min-frame", "60") })
	w := r.listen()
	r.start()
	frame := numbered(9, 42)
	got, _ := r.sendOne(w, framework.Packet{}, 0, frame[:20], frame[20:])
	want := append(append([]byte(nil), frame...), make([]byte, 18)...)
	if len(got) != 1 || !bytes.Equal(got[0], want) || r.txCount(0, TxPads) != 1 {
		t.Errorf("sent %x", got)
	}
	if got, _ := r.sendOne(w, framework.Packet{}, 0, numbered(1, 60)); len(got[0]) != 60 {
		t.Errorf("a frame of 60 bytes became %d", len(got[0]))
	}
	r.finish()
}

func TestContiguousHeaders(t *testing.T) {
	r := newRig(t, 1, func(r *rig) { r.opts.Quirks.Set("contiguous-headers", "true") })
	w := r.listen()
	r.start()
	frame := tcpFrame(1000, 1, 0x10)
	p := partial(frame)
	got, packets := r.sendOne(w, p, 0, frame[:14], frame[14:34], frame[34:])
	if !bytes.Equal(got[0], frame) || packets[0].Frags != 2 || r.txCount(0, TxPullups) != 1 {
		t.Errorf("%+v", packets)
	}
	r.finish()
}

func TestVLANInSoftware(t *testing.T) {
	r := newRig(t, 1, without(framework.VLANInsert))
	w := r.listen()
	r.start()
	frame := tcpFrame(1000, 1, 0x10)
	want := append(append(append([]byte(nil), frame[:12]...), 0x81, 0, 0x20, 0x64), frame[12:]...)
	for _, offset := range []uint32{0, 2, 4, 64} {
		p := framework.Packet{Flags: framework.VLANTag, VLAN: 0x2064}
		got, _ := r.sendOne(w, p, offset, frame)
		if len(got) != 1 || !bytes.Equal(got[0], want) {
			t.Errorf("offset %d: sent %x", offset, got[0][:20])
		}
		got, _ = r.sendOne(w, p, offset, frame[:7], frame[7:])
		if len(got) != 1 || !bytes.Equal(got[0], want) {
			t.Errorf("offset %d, addresses in two fragments: sent %x", offset, got[0][:20])
		}
	}
	r.finish()
}

// TestNoBuffersForFallbacks: a queue without buffers of its own drops what needs
// one, counted, and sends the rest.
func TestNoBuffersForFallbacks(t *testing.T) {
	r := newRig(t, 1, func(r *rig) {
		without(framework.TSO4)(r)
		r.opts.TxBuffers = nil
	})
	w := r.listen()
	r.start()
	frame := tcpFrame(5000, 1, 0x10)
	if got, _ := r.sendOne(w, tso(frame, 1000), 0, frame[:1800], frame[1800:3600], frame[3600:]); len(got) != 0 {
		t.Error("sent")
	}
	if n := r.txCount(0, TxDropNoBuffer); n != 1 {
		t.Errorf("counted %d", n)
	}
	if got, _ := r.sendOne(w, framework.Packet{}, 0, frame[:1000]); len(got) != 1 {
		t.Error("an ordinary packet was not sent")
	}
	r.finish()
}

// TestBackPressure: a slow device makes packets wait, and none is dropped, cut ones
// included.
func TestBackPressure(t *testing.T) {
	r := newRig(t, 1, func(r *rig) {
		without(framework.TSO4)(r)
		r.plan.TxDescriptors = 32
		r.dev.autoTx = false
	})
	w := r.listen()
	r.start()
	const n = 300
	stop := make(chan struct{})
	var device sync.WaitGroup
	device.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				r.dev.finish(0, 7)
			}
		}
	})
	want := 0
	for i := range n {
		if i%10 == 0 {
			frame := tcpFrame(9000, uint32(i), 0x10)
			want += 7
			r.until("buffers", func() bool {
				return r.up.frame(0, tso(frame, 1448), 0, frame[:2000], frame[2000:4000], frame[4000:6000], frame[6000:8000], frame[8000:])
			})
			continue
		}
		want++
		r.until("a buffer", func() bool { return r.up.frame(0, framework.Packet{}, 0, numbered(i, 100)) })
	}
	r.until("all sent", func() bool { return r.txCount(0, TxCompleted) == n })
	close(stop)
	device.Wait()
	if w.len() != want {
		t.Errorf("%d frames, want %d", w.len(), want)
	}
	if r.txCount(0, TxRingFull) == 0 {
		t.Error("the ring was never full: the test tests nothing")
	}
	r.finish()
}

func TestBellDelay(t *testing.T) {
	r := newRig(t, 1, func(r *rig) { r.opts.Quirks.Set("bell-delay", "1000") })
	// A waker is called for each frame below, so the whole lot is queued first.
	for i := range 3 * txBatch {
		r.up.frame(0, framework.Packet{}, 0, numbered(i, 60))
	}
	r.start()
	r.until("all sent", func() bool { return r.txCount(0, TxCompleted) == 3*txBatch })
	r.dev.mu.Lock()
	bells := r.dev.tx[0].bells
	r.dev.mu.Unlock()
	if bells != 1 || r.txCount(0, TxBells) != 1 || r.txCount(0, TxBellsDelayed) != 3 {
		t.Errorf("%d bells: %s", bells, r.dump())
	}
	r.finish()
}

func TestLinkDownDrops(t *testing.T) {
	r := newRig(t, 1, nil)
	r.dev.link = framework.Link{}
	w := r.listen()
	r.start()
	if got, _ := r.sendOne(w, framework.Packet{}, 0, numbered(1, 60)); len(got) != 0 || r.txCount(0, TxDropLinkDown) != 1 {
		t.Error("sent without a link")
	}
	r.dev.mu.Lock()
	r.dev.link.Up = true
	r.dev.mu.Unlock()
	r.dev.raiseAdmin(framework.Events{LinkChanged: true})
	r.until("link up", func() bool { return r.e.linkUp.Load() })
	if got, _ := r.sendOne(w, framework.Packet{}, 0, numbered(1, 60)); len(got) != 1 {
		t.Error("not sent with a link")
	}
	r.finish()
}

// TestFeatureTakenAway: packets that were prepared for an offload which a change
// takes away are finished in software or dropped, never sent half done.
func TestFeatureTakenAway(t *testing.T) {
	r := newRig(t, 1, func(r *rig) {
		r.plan.TxDescriptors = 96
		r.dev.autoTx = false
		r.dev.effect = framework.Quiesce
		without(framework.TSO4)(r)
	})
	w := r.listen()
	r.start()
	for range 8 {
		frame := tcpFrame(9000, 1, 0x10)
		r.up.frame(0, tso(frame, 1000), 0, frame[:2000], frame[2000:4000], frame[4000:6000], frame[6000:8000], frame[8000:])
	}
	for range 20 {
		frame := tcpFrame(500, 1, 0x10)
		r.up.frame(0, partial(frame), 0, frame)
	}
	r.until("the ring is full", func() bool { return r.txCount(0, TxRingFull) > 0 })
	before := w.len()
	p := r.plan
	p.Features &^= framework.TxChecksum
	if _, err := r.e.Change(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	r.until("all gone", func() bool {
		r.dev.finish(0, 100)
		return r.txCount(0, TxTaken) == 28 && r.txCount(0, TxInFlight) == 0
	})
	w.mu.Lock()
	for i := before; i < len(w.frames); i++ {
		if !tcpGood(w.frames[i]) || w.packets[i].Flags&framework.ChecksumPartial != 0 {
			t.Fatalf("frame %d was sent without a checksum", i)
		}
	}
	if len(w.frames) == before {
		t.Error("nothing was sent after the change")
	}
	w.mu.Unlock()
	r.finish()
}

func TestWatchdogSteps(t *testing.T) {
	r := newRig(t, 2, func(r *rig) { r.resettable = true })
	r.dev.hangs[1] = true
	r.start()
	send := func() { r.up.frame(1, framework.Packet{}, 0, numbered(1, 60)) }
	send()
	r.until("given to the device", func() bool { return r.e.tx[1].oldest.Load() != 0 })
	r.ticks(time.Second)
	if r.count(WatchdogKicks) != 0 {
		t.Error("kicked too early")
	}
	r.ticks(1500 * time.Millisecond)
	r.until("kick", func() bool { r.dev.mu.Lock(); defer r.dev.mu.Unlock(); return r.dev.kicks[1] == 1 })
	if r.count(QueueResets) != 0 {
		t.Error("reset with the kick")
	}
	r.ticks(time.Second)
	if r.count(QueueResets) != 1 || r.dev.resets != 1 || r.count(DeviceResets) != 0 {
		t.Fatalf("after the second step: %s", r.dump())
	}
	if r.txCount(1, TxDropStopped) != 1 {
		t.Error("the packet that hung was not counted")
	}
	// It hangs again at once: kick, and then the device.
	send()
	r.until("given to the device", func() bool { return r.e.tx[1].oldest.Load() != 0 })
	r.ticks(2500 * time.Millisecond)
	r.ticks(time.Second)
	if r.count(WatchdogKicks) != 2 || r.count(DeviceResets) != 1 || r.count(QueueResets) != 1 {
		t.Fatalf("after the third step: %s", r.dump())
	}
	// And again: nothing until the cooldown is over.
	send()
	r.until("given to the device", func() bool { return r.e.tx[1].oldest.Load() != 0 })
	r.ticks(2500 * time.Millisecond)
	r.ticks(time.Second)
	if r.count(DeviceResets) != 1 {
		t.Error("reset within the cooldown")
	}
	r.ticks(11 * time.Second)
	if got := r.count(DeviceResets) + r.count(QueueResets); got != 3 {
		t.Errorf("%d resets after the cooldown", got)
	}
	if r.count(ResetsByWatchdog) != 3 {
		t.Errorf("reasons: %s", r.dump())
	}
	// The queue recovers.
	r.dev.mu.Lock()
	r.dev.hangs[1] = false
	r.dev.mu.Unlock()
	send()
	r.until("it sends again", func() bool { return r.txCount(1, TxCompleted) == 1 })
	r.finish()
}

// ticks lets time pass and waits until the admin task has looked.
func (r *rig) ticks(d time.Duration) {
	r.t.Helper()
	r.clock.advance(d)
	before := r.count(AdminRuns)
	r.tick <- time.Time{}
	r.until("the admin task", func() bool { return r.count(AdminRuns) > before })
	if _, err := r.e.Info(context.Background()); err != nil { // it takes turns with it
		r.t.Fatal(err)
	}
}

func TestWatchdogWaitsWhilePaused(t *testing.T) {
	r := newRig(t, 1, nil)
	r.dev.hangs[0] = true
	r.dev.link.Paused = true
	r.start()
	r.up.frame(0, framework.Packet{}, 0, numbered(1, 60))
	r.until("given to the device", func() bool { return r.e.tx[0].oldest.Load() != 0 })
	for range 20 {
		r.ticks(3 * time.Second)
	}
	if r.count(WatchdogKicks) != 0 {
		t.Error("a paused queue was taken for one that hangs")
	}
	r.dev.mu.Lock()
	r.dev.link.Paused = false
	r.dev.mu.Unlock()
	for range 3 {
		r.ticks(3 * time.Second)
	}
	if r.count(WatchdogKicks) == 0 || r.count(DeviceResets) == 0 {
		t.Errorf("not noticed after the pause: %s", r.dump())
	}
	r.finish()
}

// TestWatchdogOfASlowDevice: packets that were put at one time wait behind each other
// for longer than the watchdog's patience. The device gets on, so it is let alone until
// it does not.
func TestWatchdogOfASlowDevice(t *testing.T) {
	r := newRig(t, 1, func(r *rig) { r.dev.autoTx = false })
	r.start()
	const n = 192
	for i := range n {
		r.up.frame(0, framework.Packet{}, 0, numbered(i, 60))
	}
	r.until("given to the device", func() bool { return r.txCount(0, TxPackets) == n })
	for range 5 {
		done := r.txCount(0, TxFramesDone)
		r.dev.finishNext(0)
		r.until("the device gets on", func() bool { return r.txCount(0, TxFramesDone) > done })
		r.ticks(time.Second)
	}
	if r.txCount(0, TxFramesDone) == n {
		t.Fatal("nothing waits any more: the test tests nothing")
	}
	if r.count(WatchdogKicks)+r.count(DeviceResets) != 0 {
		t.Errorf("a slow device was taken for one that hangs: %s", r.dump())
	}
	for range 4 {
		r.ticks(time.Second)
	}
	if r.count(WatchdogKicks) == 0 || r.count(DeviceResets) == 0 {
		t.Errorf("one that hangs was not noticed: %s", r.dump())
	}
	r.finish()
}

func TestMadeUpCompletions(t *testing.T) {
	r := newRig(t, 1, nil)
	r.dev.hangs[0] = true
	r.start()
	r.dev.mu.Lock()
	r.dev.tx[0].unasked = 3
	r.dev.mu.Unlock()
	r.up.frame(0, framework.Packet{}, 0, numbered(1, 60))
	r.up.frame(0, framework.Packet{}, 0, numbered(1, 60))
	r.until("counted", func() bool { return r.txCount(0, TxBadCompletion) == 3 })
	r.finish()
}
