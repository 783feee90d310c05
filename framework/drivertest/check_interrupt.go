package drivertest

import (
	"sync/atomic"
	"time"

	"nicd/bus"
	"nicd/framework"
	"nicd/framework/drivertest/rig"
	"nicd/framework/engine"
)

var interruptChecks = []*check{
	{name: "interrupt.receive", run: eachKind(interruptReceive),
		doc: "With each kind of interrupt a frame fires the vector of its queue, each time."},
	{name: "interrupt.masked", run: eachKind(interruptMasked),
		doc: "With each kind, what comes while a vector is masked fires when it is unmasked, and not before."},
	{name: "interrupt.transmit", run: eachKind(interruptTransmit),
		doc: "With each kind, a finished packet fires the vector of its queue."},
	{name: "interrupt.race", run: eachKind(interruptRace),
		doc: "A frame that comes while its vector is being unmasked is not forgotten."},
	{name: "interrupt.spurious", run: eachKind(interruptSpurious),
		doc: "Interrupts for nothing, and masks and unmasks without reason, do no harm."},
	{name: "interrupt.foreign", run: interruptForeign,
		doc: "On a shared line, an interrupt that is not the device's is said to be none."},
	{name: "interrupt.lost", run: interruptLost,
		doc: "When every interrupt is lost the engine's periodic look still delivers and completes."},
	{name: "interrupt.polled", run: interruptPolled,
		doc: "A device without interrupts works by being polled."},
	{name: "interrupt.moderated", run: interruptModerated,
		doc: "With the least time between two interrupts set, frames still interrupt in the end."},
	{name: "interrupt.engine", run: interruptEngine,
		doc: "Traffic in bursts with pauses between, under the engine, never stands still."},
}

// eachKind runs a check with each kind of interrupt that the device has.
func eachKind(run func(*c, *rig.Net)) func(*c) {
	return func(t *c) {
		probe := t.net(on{Options: rig.Options{Stopped: true}})
		if len(probe.Info.Interrupts) == 0 {
			t.notApplicable("%s has no interrupts", probe.Info.Model)
		}
		for _, k := range probe.Info.Interrupts {
			t.Logf("%v", k.Kind)
			run(t, t.net(on{Options: rig.Options{Kind: &k.Kind, Config: oneQueue}}))
		}
	}
}

func receives(c framework.Cause) bool  { return c.Rx&1 != 0 }
func transmits(c framework.Cause) bool { return c.Tx&1 != 0 }

func interruptReceive(t *c, n *rig.Net) {
	v := n.Config.Interrupts.Rx(0)
	for i := range 40 {
		n.Inject(in(i, 60))
		n.WaitCause(v, receives)
		n.Device.Mask(v)
		t.same(n.Receive(1)[0], in(i, 60))
		n.Device.Unmask(v)
	}
}

func interruptMasked(t *c, n *rig.Net) {
	v := n.Config.Interrupts.Rx(0)
	for i := range 20 {
		n.Inject(in(i, 60))
		n.WaitCause(v, receives)
		n.Device.Mask(v)
		n.Receive(1)
		n.Events[v].Take() // one may have been under way
		n.Inject(in(i, 70))
		n.Until("a frame", n.Queues.Rx[0].Pending)
		if i < 3 {
			time.Sleep(afterwards)
			if n.Events[v].Take() > 0 {
				t.Errorf("vector %d fires while it is masked", v)
			}
		}
		n.Device.Unmask(v)
		n.WaitCause(v, receives)
		n.Device.Mask(v)
		t.same(n.Receive(1)[0], in(i, 70))
		n.Device.Unmask(v)
	}
}

func interruptTransmit(t *c, n *rig.Net) {
	if !framework.TxInterruptQuirk.Get(n.Quirks()) {
		return // nobody counts on it
	}
	v := n.Config.Interrupts.Tx(0)
	for i := range 20 {
		n.Put(0, out(i, 60), 200, framework.Packet{Flags: framework.Completion})
		n.Queues.Tx[0].Bell()
		n.WaitCause(v, transmits)
		n.Device.Mask(v)
		n.Until("completion", func() bool { n.Reap(0); return n.InFlight(0) == 0 })
		n.Device.Unmask(v)
		t.sent(n, out(i, 60))
	}
}

func interruptRace(t *c, n *rig.Net) {
	v := n.Config.Interrupts.Rx(0)
	frames, arrived := t.turns(500), atomic.Int64{}
	sending := t.inBackground(func() {
		for i := range frames {
			t.keepTo(n, n.Config.RxDescriptors/2, i, func() int { return int(arrived.Load()) })
			t.inject(n, in(i, 60))
		}
	})
	for seen := 0; seen < frames; {
		n.WaitCause(v, receives)
		n.Device.Mask(v)
		for {
			got := n.Poll(0)
			for i, p := range got {
				t.same(p, in(seen+i, 60))
			}
			if seen += len(got); len(got) == 0 {
				break
			}
			arrived.Store(int64(seen))
		}
		n.Device.Unmask(v)
	}
	<-sending
}

func interruptSpurious(t *c, n *rig.Net) {
	for i := range 40 {
		for v := range n.Config.Interrupts.Vectors {
			n.Events[v].Signal()
			n.Device.Interrupt(v)
			n.Device.Unmask(v)
			n.Device.Mask(v)
			n.Device.Mask(v)
			n.Device.Interrupt(v)
			n.Device.Unmask(v)
			n.Device.Unmask(v)
			if n.Config.Interrupts.Kind == bus.INTx {
				t.must(n.Bus.UnmaskInterrupt(v))
			}
		}
		v := n.Config.Interrupts.Rx(0)
		n.Inject(in(i, 60))
		n.WaitCause(v, receives)
		n.Device.Mask(v)
		t.same(n.Receive(1)[0], in(i, 60))
		n.Device.Unmask(v)
	}
}

func interruptForeign(t *c) {
	kind := bus.INTx
	n := t.net(on{Options: rig.Options{Kind: &kind, Config: oneQueue}})
	if n.Config.Interrupts.Kind != kind {
		t.notApplicable("%s does not share an interrupt line", n.Info.Model)
	}
	n.Admin()
	n.RoundTrip()
	for range 100 { // until what the above raised is acknowledged
		if n.Device.Interrupt(0).None() {
			break
		}
		n.Admin()
	}
	for range 20 {
		if cause := n.Device.Interrupt(0); !cause.None() {
			t.Fatalf("an interrupt that is not the device's has cause %+v", cause)
		}
	}
	t.must(n.Bus.UnmaskInterrupt(0))
	n.Device.Unmask(0)
	n.Inject(in(1, 60))
	n.WaitCause(0, receives)
	n.Receive(1)
}

func interruptLost(t *c) {
	s := t.stack(stackOptions{deaf: true})
	for i := range 20 {
		s.inject(in(i, 100))
		s.until("a frame", func() bool { s.ticked(); return s.port.arrived() > 0 })
		if got := s.port.take(); len(got) != 1 || string(got[0].bytes) != string(in(i, 100)) {
			t.Fatalf("frame %d arrives as %d packets", i, len(got))
		}
		s.send(0, framework.Packet{}, out(i, 100))
		t.sent(s.net, out(i, 100))
		s.until("the buffer to come back", func() bool { s.ticked(); return s.port.sending() == 0 })
	}
	if s.rxCounter(engine.RxLostInterrupts) == 0 {
		t.Error("no lost interrupt was counted")
	}
	s.finish()
}

func interruptPolled(t *c) {
	n := t.net(on{Options: rig.Options{Config: func(cfg *framework.Config) {
		cfg.Interrupts = framework.VectorPlan{AdminVector: -1}
	}}})
	for range 20 {
		n.RoundTrip()
	}
}

func interruptModerated(t *c) {
	n := t.net(on{Options: rig.Options{Config: func(cfg *framework.Config) {
		oneQueue(cfg)
		cfg.Interrupts.Moderation = 200
	}}})
	interruptReceive(t, n)
}

func interruptEngine(t *c) {
	s := t.stack(stackOptions{})
	next := 0
	for burst := range t.turns(200) {
		size := 1 + burst*7%50
		// Sending has a queue's task look for what is received, too: every other burst
		// has nothing but the interrupt to wake it.
		sends := burst%2 == 0
		for i := range size {
			s.inject(in(next+i, 60))
			if sends {
				s.send(0, framework.Packet{}, out(next+i, 60))
			}
		}
		for i, p := range s.receive(size) {
			if string(p.bytes) != string(in(next+i, 60)) {
				t.Fatalf("burst %d: packet %d is another one", burst, i)
			}
		}
		for i := range size {
			if sends {
				t.sent(s.net, out(next+i, 60))
			}
		}
		next += size
	}
	s.until("all buffers to come back", func() bool { return s.port.sending() == 0 })
	s.finish()
}
