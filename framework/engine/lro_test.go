package engine

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"nicd/framework"
	"nicd/gso"
)

// stream is a TCP connection's segments, arriving in order.
type stream struct {
	flow uint16
	id   uint16
	seq  uint32
	sent [][]byte
}

// next returns the next segment, with n bytes of payload that nobody else sends.
func (s *stream) next(n int, flags byte) []byte {
	f := make([]byte, 54+n)
	for i := range n {
		f[54+i] = byte(uint32(i)*31 + s.seq + uint32(s.flow))
	}
	tcp(f, s.flow, s.id, s.seq, flags)
	s.id++
	s.seq += uint32(n)
	s.sent = append(s.sent, f)
	return f
}

// resegment gives back the frames that a delivery was made of.
func resegment(t *testing.T, d delivery) [][]byte {
	t.Helper()
	if d.packet.Flags&framework.SoftwareCoalesced == 0 {
		return [][]byte{d.frame}
	}
	params, err := gso.Parse(d.frame)
	if err != nil || params.HeaderLen != d.packet.HeaderLen {
		t.Fatalf("headers of %d bytes: %v", d.packet.HeaderLen, err)
	}
	params.SegmentSize = d.packet.SegmentSize
	params.FixedID = d.packet.Flags&framework.IPIDFixed != 0
	params.CopyCWR = d.packet.Flags&framework.CWRCopied != 0
	var s gso.Segmenter
	if err := s.Reset([][]byte{d.frame}, params); err != nil {
		t.Fatal(err)
	}
	var frames [][]byte
	for {
		buf := make([]byte, 10000)
		n, ok := s.NextFrame(buf)
		if !ok {
			break
		}
		frames = append(frames, buf[:n])
	}
	if len(frames) != int(d.packet.Segments) {
		t.Errorf("%d segments, the packet says %d", len(frames), d.packet.Segments)
	}
	return frames
}

// checkStream compares what was delivered of a flow with what was sent.
func checkStream(t *testing.T, s *stream, got []delivery) (merged int) {
	t.Helper()
	var frames [][]byte
	for _, d := range got {
		if binary.BigEndian.Uint16(d.frame[34:]) != 1000+s.flow {
			continue
		}
		back := resegment(t, d)
		if len(back) > 1 {
			merged += len(back)
		}
		frames = append(frames, back...)
	}
	if len(frames) != len(s.sent) {
		t.Fatalf("flow %d: %d frames, want %d", s.flow, len(frames), len(s.sent))
	}
	for i := range frames {
		if !bytes.Equal(frames[i], s.sent[i]) {
			t.Fatalf("flow %d: frame %d differs", s.flow, i)
		}
	}
	return merged
}

// traffic lets a burst of mergeable segments of three flows arrive.
func (r *rig) traffic(streams []*stream, rnd *rand.Rand, flags framework.PacketFlags, n int) {
	r.t.Helper()
	for range n {
		s := streams[rnd.IntN(len(streams))]
		for range 1 + rnd.IntN(8) {
			ending := byte(0x10)
			if rnd.IntN(10) == 0 {
				ending = 0x18
			}
			size := 1460
			if rnd.IntN(10) == 0 {
				size = 1 + rnd.IntN(1460)
			}
			r.arrive(0, s.next(size, ending), framework.Packet{Flags: flags}, []int{0, 0, 900}[rnd.IntN(3)])
		}
	}
}

func newStreams() []*stream {
	return []*stream{{flow: 1, seq: 1 << 31}, {flow: 2, seq: 1<<32 - 5000}, {flow: 3}}
}

func TestSoftwareLROIsExact(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, flags := range []framework.PacketFlags{0, framework.ChecksumVerified} {
		r := newRig(t, 1, func(r *rig) { r.plan.LRO = framework.LROSoftware }).start()
		streams := newStreams()
		r.traffic(streams, rand.New(rand.NewPCG(seed, 1)), flags, 500)
		n := uint64(len(streams[0].sent) + len(streams[1].sent) + len(streams[2].sent))
		r.until("all accepted", func() bool { return r.rxCount(0, RxAccepted) == n })
		merged := 0
		for _, s := range streams {
			merged += checkStream(t, s, r.deliveries(0))
		}
		r.finish()
		if merged == 0 || r.rxCount(0, RxSoftwareSegments) != uint64(merged) || r.rxCount(0, LROPackets) != n {
			t.Errorf("%d merged, counted %d; %d looked at", merged, r.rxCount(0, RxSoftwareSegments), r.rxCount(0, LROPackets))
		}
		if verified := r.rxCount(0, LROVerified); (verified == 0) != (flags != 0) {
			t.Errorf("%d checksums computed with flags %b", verified, flags)
		}
		for _, d := range r.deliveries(0) {
			const want = framework.ChecksumPartial | framework.ChecksumVerified | framework.TCP | framework.IPv4
			if d.packet.Flags&framework.SoftwareCoalesced != 0 && d.packet.Flags&want != want {
				t.Fatalf("flags %b", d.packet.Flags)
			}
		}
	}
}

// TestNoEngineExists: with nobody or the hardware as owner no LRO engine is made,
// under traffic that would merge, and none of its counters moves.
func TestNoEngineExists(t *testing.T) {
	for _, owner := range []framework.LROOwner{framework.LRONone, framework.LROHardwareOnly} {
		r := newRig(t, 1, func(r *rig) { r.plan.LRO = owner }).start()
		s := &stream{flow: 1}
		for i := range 1000 {
			p := framework.Packet{Flags: framework.ChecksumVerified}
			if i%2 == 0 {
				p.Flags |= framework.Coalesced
				p.Segments, p.SegmentSize = 2, 730
			}
			r.arrive(0, s.next(1460, 0x10), p, 0)
		}
		r.until("all delivered", func() bool { return len(r.deliveries(0)) == 1000 })
		checkStream(t, s, r.deliveries(0))
		if r.lros != 0 || r.e.rx[0].wanted.Load() != nil {
			t.Errorf("%v: %d engines were made", owner, r.lros)
		}
		r.finish()
		for c := LROPackets; c < numRxCounters; c++ {
			if n := r.rxCount(0, c); n != 0 {
				t.Errorf("%v: %s is %d", owner, RxCounters[c].Name, n)
			}
		}
		if r.rxCount(0, RxHardwareSegments) != 1000 || r.rxCount(0, RxHardwareCoalesced) != 500 || r.rxCount(0, RxSegments) != 1500 {
			t.Errorf("%v: %s", owner, r.dump())
		}
	}
}

// TestHybrid: what the device marked is delivered untouched, in order, and the
// rest is merged around it.
func TestHybrid(t *testing.T) {
	r := newRig(t, 1, func(r *rig) { r.plan.LRO = framework.LROHybrid })
	s := &stream{flow: 1}
	marked := map[int]bool{}
	r.up.keep = true
	r.start()
	for i := range 400 {
		p := framework.Packet{Flags: framework.ChecksumVerified}
		if i%7 == 3 {
			marked[i] = true
			p.Flags |= framework.Coalesced
			p.Segments, p.SegmentSize = 2, 730
		}
		r.arrive(0, s.next(1460, 0x10), p, 0)
	}
	r.until("all accepted", func() bool { return r.rxCount(0, RxAccepted) == 400 })
	checkStream(t, s, r.deliveries(0))
	at := 0
	for _, d := range r.deliveries(0) {
		if d.packet.Flags&framework.SoftwareCoalesced == 0 {
			if marked[at] != (d.packet.Flags&framework.Coalesced != 0) || marked[at] && d.packet.Segments != 2 {
				t.Fatalf("packet %d: %+v", at, d.packet)
			}
			at++
			continue
		}
		for range d.packet.Segments {
			if marked[at] {
				t.Fatalf("packet %d was coalesced by the device and merged again", at)
			}
			at++
		}
	}
	r.up.giveBack(0)
	r.finish()
	if r.rxCount(0, LROPassHardware) != uint64(len(marked)) {
		t.Errorf("%d bypassed, want %d", r.rxCount(0, LROPassHardware), len(marked))
	}
}

// TestOwnerChangesUnderTraffic: all ways, while segments arrive; nothing is lost,
// doubled or out of order, and nothing is reset.
func TestOwnerChangesUnderTraffic(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 2))
	r := newRig(t, 1, func(r *rig) { r.plan.LRO = framework.LROSoftware }).start()
	streams := newStreams()
	for range 60 {
		p := r.plan
		p.LRO = framework.LROOwner(rnd.IntN(4))
		if effect, err := r.e.Change(context.Background(), p); err != nil || effect != framework.Live {
			t.Fatal(effect, err)
		}
		r.traffic(streams, rnd, framework.ChecksumVerified, 10)
	}
	n := uint64(len(streams[0].sent) + len(streams[1].sent) + len(streams[2].sent))
	r.until("all accepted", func() bool { return r.rxCount(0, RxAccepted) == n })
	for _, s := range streams {
		checkStream(t, s, r.deliveries(0))
	}
	r.finish()
	if r.count(DeviceResets) != 0 || r.dev.stops != 1 {
		t.Error("the device was reset")
	}
	if r.rxCount(0, RxSoftwareCoalesced) == 0 {
		t.Error("nothing was ever merged")
	}
}

// TestForgetCoalesced: with the unsafe quirk what the device said of merged packets
// is gone, and the software engine exists and gets them; without it, under
// hardware-only, neither.
func TestForgetCoalesced(t *testing.T) {
	for _, forget := range []bool{false, true} {
		r := newRig(t, 1, func(r *rig) { r.plan.LRO = framework.LROHardwareOnly })
		if err := r.e.opts.Quirks.Set("unsafe-forget-coalesced", fmt.Sprint(forget)); err != nil {
			t.Fatal(err)
		}
		r.start()
		s := &stream{flow: 1}
		for range 20 {
			p := framework.Packet{Flags: framework.ChecksumVerified | framework.Coalesced, Segments: 2, SegmentSize: 730}
			r.arrive(0, s.next(1460, 0x10), p, 0)
		}
		r.until("all accepted", func() bool { return r.rxCount(0, RxAccepted) == 20 })
		for _, d := range r.deliveries(0) {
			if has := d.packet.Flags&framework.Coalesced != 0; has == forget {
				t.Errorf("forget %v: delivered with flags %b", forget, d.packet.Flags)
			}
		}
		r.finish()
		if n := r.rxCount(0, LROPackets); (n == 20) != forget || r.rxCount(0, RxHardwareCoalesced) != 20 {
			t.Errorf("forget %v: the engine saw %d packets, the device had merged %d", forget, n, r.rxCount(0, RxHardwareCoalesced))
		}
	}
}

// TestRefillCap: the device never has more buffers than the unsafe quirk allows.
func TestRefillCap(t *testing.T) {
	r := newRig(t, 1, nil)
	if err := r.e.opts.Quirks.Set("unsafe-rx-refill-cap", "3"); err != nil {
		t.Fatal(err)
	}
	r.start()
	posted := func() int {
		r.dev.mu.Lock()
		defer r.dev.mu.Unlock()
		return len(r.dev.rx[0].posted)
	}
	if n := posted(); n != 3 {
		t.Errorf("%d buffers posted", n)
	}
	for i := range 50 {
		r.arrive(0, numbered(i, 60), framework.Packet{}, 0)
		if n := posted(); n > 3 {
			t.Fatalf("%d buffers posted", n)
		}
	}
	r.until("all delivered", func() bool { return len(r.deliveries(0)) == 50 })
	r.finish()
}
