package drivertest

import (
	"time"

	"nicd/bus"
	"nicd/framework"
	"nicd/framework/drivertest/rig"
)

var linkChecks = []*check{
	{name: "link.state", run: linkState,
		doc: "An established link is up, with a speed, and reading it changes nothing."},
	{name: "link.flap", needs: []Ability{LinkControl}, run: linkFlap,
		doc: "With each kind of interrupt, a change of the link fires the admin vector, and Admin and Link tell it."},
	{name: "link.down-at-start", needs: []Ability{LinkControl}, run: linkDownAtStart,
		doc: "A device that starts without a link works when the link comes."},
	{name: "link.many-flaps", needs: []Ability{LinkControl}, run: linkManyFlaps, deadline: 3 * time.Minute,
		doc: "Many changes of the link leave a device that works, both ways."},
	{name: "link.engine", needs: []Ability{LinkControl}, run: linkEngine,
		doc: "The engine reports the link's changes, drops what is sent meanwhile and goes on afterwards."},
}

func linkState(t *c) {
	n := t.net(on{})
	first, err := n.Device.Link()
	t.must(err)
	if !first.Up || first.Mbps < 10 {
		t.Errorf("link %+v", first)
	}
	for range 5 {
		again, err := n.Device.Link()
		t.must(err)
		if again != first {
			t.Errorf("link %+v, and then %+v", first, again)
		}
	}
	n.RoundTrip()
}

func linkFlap(t *c) {
	probe := t.net(on{Options: rig.Options{Stopped: true}})
	for _, k := range probe.Info.Interrupts {
		t.Logf("%v", k.Kind)
		n := t.net(on{Options: rig.Options{Kind: &k.Kind}})
		n.Admin()
		v := n.Config.Interrupts.AdminVector
		for _, up := range []bool{false, true, false, true} {
			n.SetLink(up)
			for changed := false; !changed; {
				n.WaitCause(v, func(c framework.Cause) bool { return c.Admin })
				changed = n.Admin().LinkChanged
				n.Device.Unmask(v)
			}
			n.WaitLink(up)
		}
		n.RoundTrip()
	}
}

func linkDownAtStart(t *c) {
	n := t.net(on{Options: rig.Options{Stopped: true}})
	n.SetLink(false)
	n.Start()
	n.WaitLink(false)
	n.Admin()
	n.Put(0, out(1, 60), 200, framework.Packet{Flags: framework.Completion}) // may be lost or wait
	n.Queues.Tx[0].Bell()
	n.SetLink(true)
	n.WaitLink(true)
	n.Inject(in(1, 60))
	t.same(n.Receive(1)[0], in(1, 60))
	n.Put(0, out(2, 60), 200, framework.Packet{Flags: framework.Completion})
	n.Queues.Tx[0].Bell()
	for {
		f := n.Arrives()
		if string(f.Bytes) == string(out(2, 60)) {
			break
		}
		if string(f.Bytes) != string(out(1, 60)) {
			t.Fatalf("sent %x", head(f.Bytes))
		}
	}
	n.Until("all to be finished", func() bool { n.Reap(0); return n.InFlight(0) == 0 })
}

func linkManyFlaps(t *c) {
	n := t.net(on{})
	for i := range t.turns(100) {
		n.SetLink(false)
		n.WaitLink(false)
		n.SetLink(true)
		n.WaitLink(true)
		if i%10 == 9 {
			n.RoundTrip()
		}
	}
	n.RoundTrip()
}

func linkEngine(t *c) {
	s := t.stack(stackOptions{})
	for i := range 5 {
		s.net.SetLink(false)
		s.until("the engine to see the link go", func() bool { return s.ticked() && s.linkIs(false) })
		s.send(0, framework.Packet{}, out(900+i, 60))
		s.until("the packet to be dropped", func() bool { return s.port.sending() == 0 })
		s.net.SetLink(true)
		s.awaitLink()
		drain(s.net)
		s.inject(in(i, 60))
		s.receive(1)
		s.send(0, framework.Packet{}, out(i, 60))
		t.sent(s.net, out(i, 60))
	}
	s.finish()
}

// lastKind is the poorest kind of interrupt, for which a device has to be asked.
func lastKind(kinds []framework.InterruptChoice) *bus.InterruptKind {
	if len(kinds) == 0 {
		return nil
	}
	return &kinds[len(kinds)-1].Kind
}
