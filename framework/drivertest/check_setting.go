package drivertest

import (
	"errors"

	"nicd/framework"
	"nicd/framework/drivertest/rig"
	"nicd/framework/engine"
)

var settingChecks = []*check{
	{name: "toggle.each", run: toggleEach,
		doc: "Every feature goes off and on with traffic before, between and after."},
	{name: "toggle.mtu", run: toggleMTU,
		doc: "The MTU changes to the largest, the smallest and back, and frames of it go both ways."},
	{name: "toggle.plan", run: togglePlan,
		doc: "Plan changes nothing, whatever it answers."},
	{name: "toggle.all-off", run: toggleAllOff,
		doc: "With every feature off plain frames go both ways."},
	{name: "toggle.engine", run: toggleEngine,
		doc: "Under load, the engine changes features, MTU and queues, and loses nothing but what a reset drops."},
}

func toggleEach(t *c) {
	n := t.net(on{})
	n.Info.Features.Each(func(f framework.Features) {
		off := f
		if f == framework.RxChecksum {
			off |= framework.LRO
		}
		if f == framework.TxChecksum {
			off |= framework.TSO4 | framework.TSO6
		}
		if f == framework.VLANStrip && framework.VLANOneSwitchQuirk.Get(n.Quirks()) {
			off |= framework.VLANInsert
		}
		without := n.Config.Settings
		without.Features &^= off
		if _, err := n.Device.Plan(without); errors.Is(err, framework.ErrUnsupported) {
			t.Logf("%v: %v", f, err)
			return
		}
		for range 2 {
			t.Logf("%v: %v", f, n.Change(func(s *framework.Settings) { s.Features &^= off }))
			n.RoundTrip()
			n.Change(func(s *framework.Settings) { s.Features |= off & n.Info.Features })
			n.RoundTrip()
		}
	})
}

func toggleMTU(t *c) {
	n := t.net(on{Options: rig.Options{Config: func(cfg *framework.Config) { cfg.Features &^= framework.LRO }}})
	for _, mtu := range []int{min(9000, n.Info.MaxMTU), 1500, n.Info.MaxMTU, n.Info.MinMTU, 1500} {
		n.Change(func(s *framework.Settings) { s.MTU = mtu })
		size := min(mtu, 9000) - 40
		if size < 60 {
			continue
		}
		n.Inject(in(mtu, size))
		t.same(n.Receive(1)[0], in(mtu, size))
		n.Send(0, out(mtu, size), 2000, framework.Packet{})
		t.sent(n, out(mtu, size))
	}
}

func togglePlan(t *c) {
	n := t.net(on{Options: rig.Options{Config: oneQueue}})
	for _, change := range []func(*framework.Settings){
		func(s *framework.Settings) { s.MTU = min(n.Info.MaxMTU, 4000) },
		func(s *framework.Settings) { s.MAC = stranger },
		func(s *framework.Settings) { s.Features = 0 },
		func(s *framework.Settings) { s.Features &^= framework.VLANStrip | framework.RxChecksum | framework.LRO },
		func(s *framework.Settings) { s.RSS.Key[3]++ },
	} {
		next := n.Config.Settings
		change(&next)
		if _, err := n.Device.Plan(next); err != nil && !errors.Is(err, framework.ErrUnsupported) {
			t.Errorf("Plan says %v", err)
		}
		t.accepts(n, map[framework.MAC]bool{rig.MAC: true, stranger: false})
		n.Inject(in(1, 100))
		got := n.Receive(1)[0]
		if n.Info.Features.Has(framework.RxChecksum) && got.Flags&framework.ChecksumVerified == 0 {
			t.Errorf("after Plan alone rx-csum is off")
		}
		if n.Info.Features.Has(framework.VLANStrip) {
			t.stripped(n, rig.Frame{TCI: 5, Payload: 90})
		}
	}
	n.RoundTrip()
}

func toggleAllOff(t *c) {
	n := t.net(on{Options: rig.Options{Config: func(cfg *framework.Config) { oneQueue(cfg); cfg.Features = 0 }}})
	for i := range 40 {
		f := rig.Frame{UDP: i%2 == 0, V6: i%3 == 0, TCI: uint16(i % 4), Payload: 60 + 30*i}
		n.Inject(f.Build())
		got := n.Receive(1)[0]
		t.same(got, f.Build())
		if got.Flags&(verdicts|framework.VLANTag|framework.HashValid|framework.Coalesced) != 0 {
			t.Errorf("with every feature off a packet has flags %b", got.Flags)
		}
		f.To, f.From = rig.Peer, rig.MAC
		n.Send(0, f.Build(), 500, framework.Packet{})
		t.sent(n, f.Build())
	}
}

func toggleEngine(t *c) {
	s := t.stack(stackOptions{})
	offered := s.plan.Features
	for i := range t.turns(60) {
		effect := s.change(func(p *engine.Plan) {
			p.Features = offered
			switch i % 5 {
			case 0:
				p.Features &^= framework.TxChecksum | framework.TSO4 | framework.TSO6
			case 1:
				p.Features &^= framework.VLANStrip | framework.VLANInsert
			case 2:
				p.MTU = s.mtuBelow(100 * (i % 3))
			case 3:
				p.RxBudget = 1 + i
			case 4:
				p.RxQueues, p.TxQueues = 1, 1
				clear(p.RSS.Indirection[:])
			}
			if i%5 != 4 {
				p.RxQueues, p.TxQueues = s.net.Config.RxQueues, s.net.Config.TxQueues
				p.RSS = s.net.Config.RSS
			}
		})
		s.port.take()
		drain(s.net)
		f := rig.Frame{To: rig.Peer, From: rig.MAC, Payload: 200, Seq: uint32(i), Partial: true}
		s.send(0, f.Offload(), f.Build())
		f.Partial = false
		t.sent(s.net, f.Build())
		s.inject(in(i, 100))
		got := s.receive(1)
		if string(got[0].bytes) != string(in(i, 100)) {
			t.Fatalf("change %d (%v): another packet arrives", i, effect)
		}
	}
	s.finish()
}
