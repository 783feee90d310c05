package drivertest

import (
	"strings"
	"time"

	"nicd/framework"
	"nicd/framework/drivertest/rig"
	"nicd/framework/engine"
)

var counterChecks = []*check{
	{name: "counter.names", run: counterNames,
		doc: "Counters have names of their own, in lower case, and sentences."},
	{name: "counter.exact", run: counterExact,
		doc: "Some counter counts exactly the frames received, and another exactly those sent."},
	{name: "counter.reading", run: counterReading,
		doc: "Reading counters changes none, and none ever goes back."},
	{name: "counter.clean", run: counterClean,
		doc: "After good traffic no counter shows a sign of trouble."},
	{name: "counter.restart", run: counterRestart,
		doc: "Counters are totals since Start."},
	{name: "counter.survives", run: counterSurvives,
		doc: "The engine's totals of the device's counters go on over resets."},
	{name: "counter.adds-up", run: counterAddsUp,
		doc: "Under load in both directions, with changes and resets, received = delivered + dropped, and taken = sent + dropped + under way."},
}

func (t *c) read(n *rig.Net) []uint64 {
	values := make([]uint64, len(n.Info.Counters))
	t.must(n.Device.ReadCounters(values))
	return values
}

// counting runs the driver, if it has counters.
func (t *c) counting() *rig.Net {
	n := t.net(on{})
	if len(n.Info.Counters) == 0 {
		t.notApplicable("%s has no counters", n.Info.Model)
	}
	return n
}

func counterNames(t *c) {
	n := t.counting()
	seen := map[string]bool{}
	for _, k := range n.Info.Counters {
		if k.Name == "" || strings.Trim(k.Name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" || k.Doc == "" || seen[k.Name] {
			t.Errorf("counter %q, %q", k.Name, k.Doc)
		}
		seen[k.Name] = true
	}
}

func counterExact(t *c) {
	n := t.counting()
	before := t.read(n)
	const received, sent = 37, 23
	for i := range received {
		n.Inject(in(i, 100))
		n.Receive(1)
	}
	for i := range sent {
		n.Send(0, out(i, 100), 500, framework.Packet{})
		n.Arrives()
	}
	rx, tx := "", ""
	after := t.read(n)
	for i, k := range n.Info.Counters {
		switch d := after[i] - before[i]; {
		case d == received && strings.HasPrefix(k.Name, "rx_"):
			rx = k.Name
		case d == sent && strings.HasPrefix(k.Name, "tx_"):
			tx = k.Name
		}
	}
	if rx == "" || tx == "" {
		t.Errorf("%d frames are received, %d sent; what counts just these: %q of the counters named rx_, %q of those named tx_", received, sent, rx, tx)
	}
}

func counterReading(t *c) {
	n := t.counting()
	last := t.read(n)
	for i := range 30 {
		if i%3 == 0 {
			n.RoundTrip()
		}
		again := t.read(n)
		for k := range again {
			if again[k] < last[k] || i%3 != 0 && again[k] != last[k] {
				t.Fatalf("%s reads %d and then %d", n.Info.Counters[k].Name, last[k], again[k])
			}
		}
		last = again
	}
}

func counterClean(t *c) {
	n := t.counting()
	for range 20 {
		n.RoundTrip()
	}
	for i, v := range t.read(n) {
		if k := n.Info.Counters[i]; k.Bad && v != 0 {
			t.Errorf("%s is %d after good traffic", k.Name, v)
		}
	}
}

func counterRestart(t *c) {
	n := t.counting()
	for range 5 {
		for range 6 {
			n.RoundTrip()
		}
		n.Stop()
		n.Start()
		n.WaitLink(true)
		for i, v := range t.read(n) {
			if v != 0 {
				t.Errorf("%s is %d right after Start", n.Info.Counters[i].Name, v)
			}
		}
	}
}

func counterSurvives(t *c) {
	s := t.stack(stackOptions{})
	if len(s.info.Counters) == 0 {
		t.notApplicable("%s has no counters", s.info.Model)
	}
	var last []uint64
	for i := range 5 {
		for j := range 11 {
			s.inject(in(j, 100))
			s.receive(1)
		}
		now, err := s.engine.HardwareCounters(s.net.Context)
		t.must(err)
		counted := i == 0
		for k := range last {
			if now[k] < last[k] {
				t.Errorf("%s goes from %d to %d over a reset", s.info.Counters[k].Name, last[k], now[k])
			}
			counted = counted || now[k]-last[k] == 11
		}
		if !counted {
			t.Errorf("11 frames after reset %d are counted by nothing", i)
		}
		last = now
		s.change(func(p *engine.Plan) { p.MTU = s.mtuBelow(4 * (i + 1)) })
	}
	s.finish()
}

func counterAddsUp(t *c) {
	s := t.stack(stackOptions{setup: Setup{NoFlowControl: t.can(Drops)}})
	stop := make(chan struct{})
	queues := s.plan.TxQueues // the plan changes while packets are sent, this does not
	sending := t.inBackground(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			s.inject(in(i, 64+i%1000))
			s.port.send(i%queues, framework.Packet{}, [][]byte{out(i, 64+i%1000)})
		}
	})
	for i := range t.turns(40) {
		until := time.Now().Add(2 * time.Millisecond)
		for time.Now().Before(until) {
			s.port.take()
			drain(s.net)
			s.adds()
		}
		if i%4 == 3 {
			s.changeUnderLoad(s.mtuBelow(4 * i))
		}
	}
	close(stop)
	<-sending
	s.until("all buffers to come back", func() bool {
		drain(s.net)
		s.ticked()
		return s.port.sending() == 0
	})
	s.finish()
}

// mtuBelow is the ordinary MTU, which every device has, less so many bytes, as far
// as the device goes down.
func (s *stack) mtuBelow(by int) int { return max(1500-by, s.info.MinMTU) }

// adds fails unless the counters add up.
func (s *stack) adds() {
	if err := engine.Check(s.engine.Counters()); err != nil {
		s.t.Fatalf("counters do not add up: %v", err)
	}
}

func (s *stack) changeUnderLoad(mtu int) {
	s.change(func(p *engine.Plan) { p.MTU = mtu })
	s.adds()
}
