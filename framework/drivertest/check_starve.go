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
}

func seqOf(frame []byte) int { return int(binary.BigEndian.Uint32(frame[38:])) }

func starvePaused(t *c) {
	n := t.net(on{Options: rig.Options{Config: oneQueue}})
	const frames = 200
	sending := inBackground(func() {
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
	sending := inBackground(func() {
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
	sent := 0
	for range 2000 {
		s.inject(in(sent, 64))
		sent++
	}
	s.until("no buffer left", func() bool {
		s.inject(in(sent, 64))
		sent++
		return s.rxCounter(engine.RxDropNoBuffer) > 0
	})
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
	s.finish()
}
