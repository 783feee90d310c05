package drivertest

import (
	"errors"
	"time"

	"nicd/bus"
	"nicd/framework"
	"nicd/framework/drivertest/rig"
	"nicd/framework/engine"
)

var troubleChecks = []*check{
	{name: "hang.restart", needs: []Ability{Hang}, run: hangRestart,
		doc: "A transmit queue that stands still finishes nothing, hinders no receiving, and goes after Stop and Start."},
	{name: "hang.watchdog", needs: []Ability{Hang}, run: hangWatchdog,
		doc: "The engine's watchdog finds a queue that stands still, resets it, and traffic goes on."},
	{name: "gone.control", run: goneControl,
		doc: "When every register reads all ones, Admin and Link say that the device is gone; Stop and Detach succeed, Start fails."},
	{name: "gone.data", run: goneData,
		doc: "When every register reads all ones, the data path neither panics, nor hangs, nor invents packets."},
	{name: "gone.settings", run: goneSettings,
		doc: "When every register reads all ones, settings, filters and counters end, whatever they say."},
	{name: "gone.unplugged", needs: []Ability{Unplug}, run: goneUnplugged,
		doc: "A device that is pulled out while it runs is reported, and can be stopped and detached."},
	{name: "gone.engine", needs: []Ability{Unplug}, run: goneEngine,
		doc: "The engine reports a device that is pulled out under load as lost, and every buffer comes back."},
	{name: "bad.frames", needs: []Ability{BadFrames}, run: badFrames,
		doc: "Frames with a bad check sequence cost only themselves: all others arrive, in order, once."},
	{name: "bad.lengths", needs: []Ability{BadLengths}, run: badLengths,
		doc: "Nonsensical lengths in descriptors cost only their own frames."},
	{name: "bad.engine", needs: []Ability{BadFrames}, run: badEngine,
		doc: "Under the engine, the good frames of a batch with bad ones are all delivered, and the counters add up."},
}

func hangRestart(t *c) {
	n := t.net(on{})
	n.Hang(0)
	n.Put(0, out(1, 60), 200, framework.Packet{Flags: framework.Completion})
	n.Queues.Tx[0].Bell()
	for i := range 10 {
		n.Inject(in(i, 60))
		t.same(n.Receive(1)[0], in(i, 60))
	}
	if n.Reap(0) != 0 {
		t.Error("a packet is finished that was not sent")
	}
	n.Stop()
	n.Start()
	n.WaitLink(true)
	drain(n)
	n.RoundTrip()
}

func hangWatchdog(t *c) {
	s := t.stack(stackOptions{})
	s.send(0, framework.Packet{}, out(1, 60))
	t.sent(s.net, out(1, 60))
	s.until("the buffer to come back", func() bool { return s.port.sending() == 0 })
	s.net.Hang(0)
	s.send(0, framework.Packet{}, out(2, 60))
	s.until("the watchdog", func() bool {
		s.ticked()
		return s.counter(engine.WatchdogKicks) > 0 && (s.saw(engine.QueueReset) || s.saw(engine.DeviceReset))
	})
	s.until("the buffer to come back", func() bool { return s.port.sending() == 0 })
	s.awaitLink()
	drain(s.net)
	for i := range 10 {
		s.send(0, framework.Packet{}, out(i, 90))
		t.sent(s.net, out(i, 90))
		s.inject(in(i, 60))
		s.receive(1)
	}
	s.finish()
}

// gone runs the driver and takes the device away.
func (t *c) gone() (*rig.Net, *probe) {
	p := &probe{}
	kinds := t.net(on{Options: rig.Options{Stopped: true}}).Info.Interrupts
	n := t.net(on{Options: rig.Options{Wrap: p.wrap, Kind: lastKind(kinds)}})
	n.RoundTrip()
	p.gone.Store(true)
	return n, p
}

func goneControl(t *c) {
	n, _ := t.gone()
	if e := n.Admin(); !e.Gone {
		t.Errorf("Admin finds %+v", e)
	}
	if l, err := n.Device.Link(); err == nil {
		t.Errorf("the link is %+v", l)
	} else if !errors.Is(err, bus.ErrGone) {
		t.Errorf("Link says %v", err)
	}
	t.must(n.Device.Stop(n.Context))
	n.Stop()
	if err := n.TryStart(); err == nil {
		t.Error("a device that is gone starts")
	} else if !errors.Is(err, bus.ErrGone) {
		t.Errorf("Start says %v", err)
	}
}

func goneData(t *c) {
	n, _ := t.gone()
	begin := time.Now()
	for range 50 {
		for q := range n.Queues.Rx {
			if got, _ := n.PollOnly(q); len(got) > 0 {
				t.Errorf("%d packets of a device that is gone", len(got))
			}
			n.Refill(q)
		}
		for q := range n.Queues.Tx {
			n.Put(q, out(1, 60), 100, framework.Packet{Flags: framework.Completion})
			n.Queues.Tx[q].Bell()
			n.Queues.Tx[q].Pending()
			if n.Reap(q) > 0 {
				t.Error("a packet is finished by a device that is gone")
			}
		}
		for v := range n.Config.Interrupts.Vectors {
			n.Device.Mask(v)
			n.Device.Interrupt(v)
			n.Device.Unmask(v)
		}
	}
	if d := time.Since(begin); d > time.Second {
		t.Errorf("50 turns take %v", d)
	}
}

func goneSettings(t *c) {
	n, _ := t.gone()
	begin := time.Now()
	next := n.Config.Settings
	next.Features &^= framework.VLANStrip | framework.VLANInsert | framework.VLANFilter
	next.MAC = stranger
	if effect, err := n.Device.Plan(next); err == nil && effect != framework.Reset {
		_ = n.Device.Apply(next)
	}
	_ = n.Device.SetFilters(framework.Filters{Promiscuous: true})
	values := make([]uint64, len(n.Info.Counters))
	if err := n.Device.ReadCounters(values); err == nil {
		for i, v := range values {
			if v > 1<<31 {
				t.Errorf("counter %s reads %d, which is all ones", n.Info.Counters[i].Name, v)
			}
		}
	}
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("it takes %v", d)
	}
}

func goneUnplugged(t *c) {
	kinds := t.net(on{Options: rig.Options{Stopped: true}}).Info.Interrupts
	for _, k := range kinds {
		n := t.net(on{Options: rig.Options{Kind: &k.Kind}})
		n.RoundTrip()
		n.Unplug()
		if e := n.Admin(); !e.Gone {
			t.Errorf("%v: Admin finds %+v", k.Kind, e)
		}
		n.Queues.Tx[0].Bell()
		n.Stop()
		if err := n.TryStart(); err == nil {
			t.Errorf("%v: a device that is gone starts", k.Kind)
		}
	}
}

func goneEngine(t *c) {
	s := t.stack(stackOptions{})
	sent := 0
	for range 50 {
		if s.port.send(0, framework.Packet{}, [][]byte{out(sent, 60)}) {
			sent++
		}
		s.inject(in(sent, 60))
	}
	s.net.Unplug()
	for range 50 {
		s.port.send(0, framework.Packet{}, [][]byte{out(1, 60)})
	}
	s.until("the engine to see that the device is lost", func() bool { s.ticked(); return s.saw(engine.DeviceLost) })
	t.must(s.engine.Stop(s.net.Context))
	if err := engine.Check(s.engine.Counters()); err != nil {
		t.Errorf("counters do not add up: %v", err)
	}
	s.until("all buffers to come back", func() bool { return s.port.sending() == s.port.waiting() })
}

// badOnes injects frames while another goroutine receives them, and returns the
// sequence numbers of the good ones and how many bad ones there were.
func (t *c) badOnes(n *rig.Net, frames int) (good []int, bad int) {
	sending := t.inBackground(func() {
		for i := range frames {
			t.inject(n, in(i, 100))
		}
		t.inject(n, marker, marker, marker, marker, marker)
	})
	done := false
	n.Until("the marker", func() bool {
		for _, p := range n.Poll(0) {
			switch {
			case p.Error != framework.NoDrop:
				bad++
			case string(p.Bytes) == string(marker):
				done = true
			case len(p.Bytes) != 154 || string(p.Bytes) != string(in(seqOf(p.Bytes), 100)):
				t.Errorf("a good packet of %d bytes that nobody sent", len(p.Bytes))
			default:
				good = append(good, seqOf(p.Bytes))
			}
		}
		return done
	})
	<-sending
	for i := range good[1:] {
		if good[i+1] <= good[i] {
			t.Errorf("frame %d after frame %d", good[i+1], good[i])
		}
	}
	return good, bad
}

// goodOnes fails unless about as many good frames arrive as there should be.
func (t *c) goodOnes(got, want int) {
	switch {
	case got < want-1:
		t.Errorf("%d of %d good frames arrive", got, want)
	case got > want+1:
		t.Errorf("%d frames arrive as good ones, of which %d can be: Bench.Open has to do as Setup asks, or Bench.Lacks to say why not", got, want)
	}
}

func badFrames(t *c) {
	const every = 5
	n := t.net(on{Setup: Setup{BadFrameEvery: every}, Options: rig.Options{Config: oneQueue}})
	const frames = 280
	good, bad := t.badOnes(n, frames)
	t.Logf("%d good, %d bad", len(good), bad)
	t.goodOnes(len(good), frames-frames/every)
}

func badLengths(t *c) {
	const every = 7
	n := t.net(on{Setup: Setup{BadLengthEvery: every}, Options: rig.Options{Config: oneQueue}})
	const frames = 280
	good, bad := t.badOnes(n, frames)
	t.Logf("%d good, %d bad", len(good), bad)
	t.goodOnes(len(good), frames-frames/every)
}

func badEngine(t *c) {
	const every, frames = 4, 400
	s := t.stack(stackOptions{setup: Setup{BadFrameEvery: every}, plan: func(p *engine.Plan) {
		p.RxQueues = 1
		clear(p.RSS.Indirection[:])
	}})
	sending := t.inBackground(func() {
		for i := range frames {
			s.inject(in(i, 100))
		}
	})
	next, arrived := 0, 0
	const want = frames - frames/every
	s.until("the good frames", func() bool {
		for _, p := range s.port.take() {
			seq := seqOf(p.bytes)
			if seq < next || string(p.bytes) != string(in(seq, 100)) {
				t.Fatalf("frame %d after frame %d", seq, next-1)
			}
			next = seq + 1
			arrived++
		}
		return arrived >= want-1
	})
	<-sending
	s.finish()
}
