package drivertest

import (
	"encoding/binary"

	"nicd/framework"
	"nicd/framework/drivertest/rig"
	"nicd/framework/engine"
	"nicd/sim"
)

var lroChecks = []*check{
	{name: "lro.sized", features: framework.LRO, needs: []Ability{MergedFrames, SizedLRO}, run: lroSized,
		doc: "A packet that the device merged says how many segments it is and of what size, and is verified."},
	{name: "lro.length-only", features: framework.LRO, needs: []Ability{MergedFrames, LengthOnlyLRO}, run: lroLengthOnly,
		doc: "A packet that is merged and only longer is known to be merged, of segments whose size is not known."},
	{name: "lro.single", features: framework.LRO, needs: []Ability{MergedFrames}, run: lroSingle,
		doc: "A packet of one segment is never taken for a merged one."},
	{name: "lro.stream", features: framework.LRO, needs: []Ability{MergedFrames}, run: lroStream,
		doc: "A stream that the device merges in pieces of all sizes comes out byte for byte, around the rings."},
	{name: "lro.toggle", features: framework.LRO, needs: []Ability{MergedFrames}, run: lroToggle,
		doc: "LRO goes off and on with merged packets under way: none is lost, and none is merged that comes after."},
	{name: "lro.hardware-only", features: framework.LRO, needs: []Ability{MergedFrames}, run: lroHardwareOnly,
		doc: "With hardware-only as owner no packet reaches the software engine, merged or not."},
	{name: "lro.hybrid", features: framework.LRO, needs: []Ability{MergedFrames}, run: lroHybrid,
		doc: "With hybrid as owner what the device merged bypasses the software engine, the rest goes through it, in order."},
	{name: "lro.software", run: lroSoftware,
		doc: "With software as owner the device merges nothing, the engine does, and the stream comes out byte for byte."},
	{name: "lro.none", run: lroNone,
		doc: "With none as owner every segment arrives by itself."},
	{name: "lro.mode", needs: []Ability{ModeChange}, run: lroMode,
		doc: "When the device changes its mode, Admin says so once, and Info has the new features."},
}

const lroMSS = 1428

// merged sends f as what the device makes one packet of, and returns that.
func (t *c) merged(n *rig.Net, f rig.Frame, mss int) rig.Received {
	n.InjectFrame(rig.TSOFrame(f, mss))
	got := n.Receive(1)[0]
	want := f.Build()
	h := f.HeaderLen()
	if got.Error != framework.NoDrop || len(got.Bytes) != len(want) || string(got.Bytes[h:]) != string(want[h:]) {
		t.Errorf("a merged packet of %d bytes arrives as %d others, error %v", len(want), len(got.Bytes), got.Error)
	}
	return got
}

func (t *c) lroNet(o on) *rig.Net {
	o.Options.Config = oneQueue
	return t.net(o)
}

func lroSized(t *c) {
	n := t.lroNet(on{})
	for _, f := range []rig.Frame{{}, {V6: true}, {TCPOptions: 12}, {V6: true, TCPOptions: 12}} {
		for _, segments := range []int{2, 3, 7, 20, 40} {
			for _, short := range []int{0, 1, 700} {
				f.Payload = lroMSS*segments - short
				got := t.merged(n, f, lroMSS)
				if got.Flags&framework.Coalesced == 0 || int(got.Segments) != segments || got.SegmentSize != lroMSS {
					t.Errorf("%d bytes are %d segments of %d: %d of %d, flags %b", f.Payload, segments, lroMSS, got.Segments, got.SegmentSize, got.Flags)
				}
				if got.Flags&framework.ChecksumVerified == 0 || got.HeaderLen != 0 && int(got.HeaderLen) != f.HeaderLen() {
					t.Errorf("merged packet with flags %b, headers of %d, should be %d", got.Flags, got.HeaderLen, f.HeaderLen())
				}
			}
		}
	}
	// One that is no longer than a frame.
	if got := t.merged(n, rig.Frame{Payload: 1200}, 400); got.Segments != 3 || got.SegmentSize != 400 {
		t.Errorf("1200 bytes in 3 segments of 400 are reported as %d of %d", got.Segments, got.SegmentSize)
	}
}

func lroLengthOnly(t *c) {
	n := t.lroNet(on{Setup: Setup{LengthOnlyLRO: true}})
	for _, f := range []rig.Frame{{}, {V6: true}} {
		for _, segments := range []int{2, 7, 40} {
			f.Payload = lroMSS * segments
			got := t.merged(n, f, lroMSS)
			if got.Flags&framework.Coalesced == 0 || got.SegmentSize != 0 {
				t.Errorf("%d bytes: flags %b, segments of %d", f.Payload, got.Flags, got.SegmentSize)
			}
			if int(got.Segments) > segments {
				t.Errorf("%d segments are reported as %d", segments, got.Segments)
			}
		}
	}
}

func lroSingle(t *c) {
	n := t.lroNet(on{})
	for _, size := range []int{1, 100, lroMSS, 1460} {
		for _, f := range []rig.Frame{{}, {V6: true}, {UDP: true}} {
			if f.Payload = size; f.V6 {
				f.Payload = min(size, 1440)
			}
			n.Inject(f.Build())
			got := n.Receive(1)[0]
			t.same(got, f.Build())
			if got.Flags&framework.Coalesced != 0 {
				t.Errorf("%s of %d bytes is called merged: %d segments of %d", describe(f), f.Payload, got.Segments, got.SegmentSize)
			}
		}
	}
}

func lroStream(t *c) {
	n := t.lroNet(on{})
	for i := range t.turns(150) {
		f := rig.Frame{Seq: uint32(1000 * i), Payload: lroMSS*(2+i*7%43) - i%5}
		if got := t.merged(n, f, lroMSS); got.Flags&framework.Coalesced == 0 {
			t.Errorf("%d bytes are not merged: flags %b", f.Payload, got.Flags)
		}
		n.Inject(in(i, 64))
		t.same(n.Receive(1)[0], in(i, 64))
	}
}

func lroToggle(t *c) {
	n := t.lroNet(on{})
	for range 10 {
		n.InjectFrame(rig.TSOFrame(rig.Frame{Payload: 20 * lroMSS}, lroMSS))
		live := n.Change(func(s *framework.Settings) { s.Features &^= framework.LRO }) != framework.Reset
		n.InjectFrame(rig.TSOFrame(rig.Frame{Payload: 5 * lroMSS}, lroMSS))
		want := 5
		if live {
			want++ // the merged one was not thrown away with the rings
		}
		for i, p := range n.Receive(want) {
			if merged := p.Flags&framework.Coalesced != 0; merged != (live && i == 0) {
				t.Fatalf("packet %d of %d bytes: merged %v", i, p.Len, merged)
			}
		}
		n.Change(func(s *framework.Settings) { s.Features |= framework.LRO })
	}
}

// ownedBy runs the engine with an owner and the device merging if it has a part.
func (t *c) ownedBy(owner framework.LROOwner) *stack {
	return t.stack(stackOptions{lro: &owner, plan: func(p *engine.Plan) {
		p.RxQueues = 1
		clear(p.RSS.Indirection[:])
	}})
}

// streamIn sends a stream of TCP in bursts, merged ones by turns with single
// segments, and wants it to come out again.
func (t *c) streamIn(s *stack, mergedToo bool) (packets int) {
	const segments, burst = 12, 40
	seq, sent := uint32(1), []byte(nil)
	var stream []byte
	take := func() {
		for _, p := range s.port.take() {
			packets++
			if at := binary.BigEndian.Uint32(p.bytes[38:]); at != 1+uint32(len(stream)) {
				t.Fatalf("sequence number %d at byte %d of the stream", at, len(stream))
			}
			stream = append(stream, p.bytes[54:]...)
		}
	}
	for i := range burst {
		f := rig.Frame{Seq: seq, Payload: segments * lroMSS, ID: uint16(1 + segments*i)}
		whole := f.Build()
		sent = append(sent, whole[54:]...)
		if mergedToo && i%2 == 0 {
			s.net.InjectFrame(rig.TSOFrame(f, lroMSS))
		} else {
			t.injectSegments(s, f)
		}
		seq += uint32(f.Payload)
		s.until("the stream", func() bool { take(); return len(stream) >= len(sent) })
	}
	if string(stream) != string(sent) {
		t.Errorf("another stream of %d bytes comes out, not the one of %d", len(stream), len(sent))
	}
	return packets
}

// injectSegments sends f cut into single segments, in one go.
func (t *c) injectSegments(s *stack, f rig.Frame) {
	var frames []sim.Frame
	whole := f.Build()[54:]
	for at := 0; at < len(whole); at += lroMSS {
		one := f
		one.Seq, one.ID, one.Payload = f.Seq+uint32(at), f.ID+uint16(at/lroMSS), min(lroMSS, len(whole)-at)
		frames = append(frames, sim.FrameOf(one.Build()))
	}
	t.must(s.net.Peer.Send(s.net.Context, frames...))
}

func lroHardwareOnly(t *c) {
	s := t.ownedBy(framework.LROHardwareOnly)
	packets := t.streamIn(s, true)
	s.finish()
	t.Logf("480 segments in %d packets", packets)
	if n := s.rxCounter(engine.LROPackets); n != 0 {
		t.Errorf("%d packets reach the software engine", n)
	}
	if s.rxCounter(engine.RxHardwareCoalesced) == 0 {
		t.Error("the device merged nothing")
	}
}

func lroHybrid(t *c) {
	s := t.ownedBy(framework.LROHybrid)
	packets := t.streamIn(s, true)
	s.finish()
	t.Logf("480 segments in %d packets", packets)
	if n := s.rxCounter(engine.LROPassHardware); n == 0 {
		t.Error("nothing that the device merged bypasses the software engine")
	}
	if s.rxCounter(engine.RxHardwareCoalesced) == 0 {
		t.Error("the device merged nothing")
	}
}

func lroSoftware(t *c) {
	s := t.ownedBy(framework.LROSoftware)
	packets := t.streamIn(s, false)
	s.finish()
	t.Logf("480 segments in %d packets", packets)
	if n := s.rxCounter(engine.RxHardwareCoalesced); n != 0 {
		t.Errorf("the device merged %d packets and was not asked to", n)
	}
	if s.rxCounter(engine.LROPackets) != 480 {
		t.Errorf("%d of 480 segments reach the software engine", s.rxCounter(engine.LROPackets))
	}
}

func lroNone(t *c) {
	s := t.ownedBy(framework.LRONone)
	if packets := t.streamIn(s, false); packets != 480 {
		t.Errorf("480 segments arrive as %d packets", packets)
	}
	s.finish()
}

func lroMode(t *c) {
	n := t.net(on{})
	n.Admin()
	before := n.Device.Info()
	for _, other := range []bool{true, false, true, false} {
		n.SetMode(other)
		changed := false
		n.Until("the change of mode", func() bool { changed = n.Admin().ModeChanged; return changed })
		info := n.Device.Info()
		if (info.Mode != before.Mode) != other {
			t.Errorf("mode %q, was %q at first", info.Mode, before.Mode)
		}
		if n.Admin().ModeChanged {
			t.Error("one change is reported twice")
		}
		n.RoundTrip()
	}
	if n.Device.Info().Features != before.Features {
		t.Errorf("features %v, were %v", n.Device.Info().Features, before.Features)
	}
}
