package drivertest

import (
	"encoding/binary"

	"nicd/framework"
	"nicd/framework/drivertest/rig"
	"nicd/framework/engine"
)

var starveChecks = []*check{
	{name: "starve.paused", needs: []Ability{FlowControl}, run: starvePaused,
		doc: "With flow control nothing is lost while there are no buffers, however late they come."},
	{name: "starve.dropped", needs: []Ability{Drops}, run: starveDropped,
		doc: "Without flow control what finds no buffer is dropped, and the queue goes on when there are some."},
	{name: "starve.trickle", needs: []Ability{FlowControl}, run: starveTrickle,
		doc: "A queue that gets one buffer at a time receives one frame at a time."},
	{name: "starve.jumbo", needs: []Ability{Drops}, run: starveJumbo,
		doc: "A packet for whose second half there is no buffer arrives whole, or as a bad one, or not, and those after it are good."},
	{name: "starve.engine", needs: []Ability{Drops}, run: starveEngine,
		doc: "When the port keeps all buffers and gives them back at last, the engine receives again."},
	{name: "starve.port", needs: []Ability{FlowControl}, run: starvePort,
		doc: "A port that keeps all buffers now and then loses nothing behind flow control, with rings of any length and frames of any."},
}

func seqOf(frame []byte) int { return int(binary.BigEndian.Uint32(frame[38:])) }

func starvePaused(t *c) {
	n := t.net(on{Options: rig.Options{Config: oneQueue}})
	const frames = 200
	sending := t.inBackground(func() {
		for i := range frames {
			t.inject(n, in(i, 64))
		}
	})
	for want := 0; want < frames; {
		var got []rig.Received
		n.Until("a frame", func() bool {
			if len(got) == 0 {
				got, _ = n.PollOnly(0)
			}
			return len(got) > 0
		})
		for _, g := range got {
			if seq := seqOf(g.Bytes); seq != want {
				t.Fatalf("frame %d, want %d", seq, want)
			}
			want++
		}
		n.Refill(0)
	}
	<-sending
}

func starveDropped(t *c) {
	n := t.net(on{Setup: Setup{NoFlowControl: true}, Options: rig.Options{Config: oneQueue}})
	for range 3 {
		for i := range 200 {
			n.Inject(in(i, 64))
		}
		total, next := 0, 0
		n.Until("frames", func() bool {
			got, v := n.PollOnly(0)
			if v != framework.Healthy {
				t.Fatalf("verdict %d", v)
			}
			for _, g := range got {
				if seq := seqOf(g.Bytes); seq < next {
					t.Fatalf("frame %d after frame %d", seq, next-1)
				} else {
					next = seq + 1
				}
			}
			total += len(got)
			return len(got) == 0 && total > 0
		})
		if total >= n.Config.RxDescriptors || total < n.Config.RxDescriptors/2 {
			t.Errorf("%d frames in a ring of %d", total, n.Config.RxDescriptors)
		}
		n.Refill(0)
		n.RoundTrip()
	}
}

func starveTrickle(t *c) {
	n := t.net(on{Options: rig.Options{Stopped: true, Config: oneQueue}})
	t.must(n.TryStart())
	n.UnmaskAll()
	n.WaitLink(true)
	const frames = 150
	n.Post(0, 2) // a device may want one to spare
	sending := t.inBackground(func() {
		for i := range frames {
			t.inject(n, in(i, 64))
		}
	})
	for want := 0; want < frames; want++ {
		var got []rig.Received
		n.Until("a frame", func() bool {
			if len(got) == 0 {
				got, _ = n.PollOnly(0)
			}
			return len(got) > 0
		})
		for i, g := range got {
			if seq := seqOf(g.Bytes); seq != want+i {
				t.Fatalf("frame %d, want %d", seq, want+i)
			}
		}
		want += len(got) - 1
		n.Post(0, len(got))
	}
	<-sending
}

func starveJumbo(t *c) {
	n := t.net(on{Setup: Setup{NoFlowControl: true}, Options: rig.Options{Stopped: true, Config: jumbo}})
	if n.Info.MaxMTU < 9000 {
		t.notApplicable("%s has an MTU of at most %d", n.Info.Model, n.Info.MaxMTU)
	}
	for lap := range 20 {
		t.must(n.TryStart()) // with empty rings
		n.UnmaskAll()
		n.WaitLink(true)
		n.Post(0, 1+lap%5)
		n.Inject(in(lap, 8000), in(lap, 8000))
		n.Refill(0)
		n.Inject(marker)
		done := false
		n.Until("the frame behind", func() bool {
			for _, p := range n.Poll(0) {
				switch {
				case string(p.Bytes) == string(marker) && p.Error == framework.NoDrop:
					done = true
				case p.Error == framework.NoDrop && string(p.Bytes) != string(in(lap, 8000)):
					t.Fatalf("lap %d: %d bytes of a packet of 8054 arrive as a good one", lap, p.Len)
				}
			}
			return done
		})
		n.RoundTrip()
		n.Stop()
	}
}

func starveEngine(t *c) {
	s := t.stack(stackOptions{setup: Setup{NoFlowControl: true}})
	s.port.keep(true)
	s.untilStarved(in(1, 64))
	s.port.keep(false)
	s.port.giveBack()
	s.until("a frame", func() bool {
		s.inject(in(1, 99))
		for _, p := range s.port.take() {
			if string(p.bytes) == string(in(1, 99)) {
				return true
			}
		}
		return false
	})
	if n := s.rxCounter(engine.RxDropPortFull); n != 0 {
		t.Errorf("the engine dropped %d packets", n)
	}
	s.finish()
}

// untilStarved injects frames until the pool is dry and nothing arrives any more.
func (s *stack) untilStarved(frame []byte) {
	const enough = 20 // looks in a row
	idle, had := 0, uint64(0)
	s.until("no buffer left", func() bool {
		for range 64 {
			s.inject(frame)
		}
		now := s.rxCounter(engine.RxPackets)
		if idle++; now != had || s.rxCounter(engine.RxAllocFailed) == 0 {
			idle, had = 0, now
		}
		return idle == enough
	})
}

// starvePort keeps all that it gets while frames of all lengths arrive, and gives it
// back when nothing comes any more. The device has to get through a whole frame with
// each of its rings as short as it can be and full again.
func starvePort(t *c) {
	none := framework.LRONone
	s := t.stack(stackOptions{options: rig.Options{Config: oneQueue}, lro: &none})
	rings := []int{s.plan.RxDescriptors, s.info.RxRing.Min, 3 * stackRx / 2}
	next := 0
	for _, n := range rings {
		n = s.info.RxRing.Fit(n)
		s.change(func(p *engine.Plan) { p.RxDescriptors, p.MTU = n, min(9000, s.info.MaxMTU) })
		t.starveRing(s, &next)
	}
	for n := engine.RxDropCRC; n <= engine.RxDropPortFull; n++ {
		if lost := s.rxCounter(n); lost != 0 {
			t.Errorf("%s: %d", engine.RxCounters[n].Name, lost)
		}
	}
	if s.rxCounter(engine.RxAllocFailed) == 0 {
		t.Error("there was no want of buffers: nothing was tested")
	}
	s.finish()
}

// starveRing sends twice as much as there are buffers for.
func (t *c) starveRing(s *stack, next *int) {
	sizes := []int{64, 1400}
	if s.plan.MTU >= 8500 {
		sizes = []int{64, 8000, 1400}
	}
	from := *next
	frame := func(seq int) []byte { return in(seq, sizes[seq%len(sizes)]) }
	s.port.keep(true)
	sending := t.inBackground(func() {
		for i := range 2 * stackRx {
			s.inject(frame(from + i))
		}
	})
	s.until("all frames", func() bool {
		got := s.port.take()
		for _, a := range got {
			if string(a.bytes) != string(frame(*next)) {
				t.Fatalf("%d bytes arrive instead of frame %d of %d bytes", len(a.bytes), *next, len(frame(*next)))
			}
			*next++
		}
		if len(got) == 0 {
			s.port.giveBack()
		}
		return *next == from+2*stackRx
	})
	<-sending
	s.port.keep(false)
	s.port.giveBack()
}
