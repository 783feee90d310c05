package drivertest

import (
	"context"
	"fmt"
	"time"

	"nicd/bus"
	"nicd/framework"
	"nicd/framework/drivertest/rig"
	"nicd/framework/engine"
)

// stack is an engine on the driver, with a port of the kit's above.
type stack struct {
	t       *c
	net     *rig.Net // for what is below the engine
	info    framework.Info
	engine  *engine.Engine
	port    *port
	plan    engine.Plan
	tick    chan time.Time
	events  []engine.Event
	running bool
}

// stackOptions are a stack's settings. The zero value works.
type stackOptions struct {
	setup   Setup
	options rig.Options
	budget  int
	// lro, if not nil, is who merges, whatever the quirk says.
	lro *framework.LROOwner
	// deaf: no interrupt arrives.
	deaf bool
	plan func(*engine.Plan)
}

// Buffers of a stack: of each queue for receiving, for the engine's own use and
// for the port to send with.
const (
	stackRx, stackOwn, stackPort = 384, 96, 256
	stackQueues                  = 2
	stackWatchdog                = 20 * time.Millisecond
)

// stack runs the engine.
func (t *c) stack(o stackOptions) *stack {
	o.options.Stopped = true
	o.options.Buffers = stackQueues * (stackRx + stackOwn + stackPort)
	n := t.net(on{Setup: o.setup, Options: o.options})
	s := &stack{t: t, net: n, info: n.Info, tick: make(chan time.Time)}
	var own []engine.BufferRange
	rx := s.ranges(&own)
	s.port = newPort(t, n, own[stackQueues:])
	var source engine.Interrupter = n.Bus
	if o.deaf {
		source = deaf{n.Bus}
	}
	e, err := engine.New(n.Device, s.port, engine.Options{
		Name: "test", Quirks: n.Quirks(), Buffers: n.Buffers, RxBuffers: rx, TxBuffers: own[:stackQueues],
		Interrupts: source, Watchdog: stackWatchdog, Cooldown: 10 * stackWatchdog, Tick: s.tick,
		Stopped: n.TakeBack,
	})
	t.must(err)
	s.engine = e
	go s.listen()
	t.Cleanup(func() {
		s.explain()
		ctx, cancel := context.WithTimeout(context.Background(), checkGrace)
		defer cancel()
		if err := e.Detach(ctx); err != nil {
			t.Errorf("detach: %v", err)
		}
		n.Device = nil // the engine has detached it
	})
	s.plan = s.makePlan(o)
	t.must(e.Start(n.Context, s.plan))
	s.running = true
	s.awaitLink()
	return s
}

// ranges divides the buffers: receive ranges, and in own the engine's and then the
// port's.
func (s *stack) ranges(own *[]engine.BufferRange) (rx []engine.BufferRange) {
	at := framework.Buffer(0)
	next := func(n uint32) engine.BufferRange {
		r := engine.BufferRange{First: at, Count: n}
		at += framework.Buffer(n)
		return r
	}
	for range stackQueues {
		rx = append(rx, next(stackRx))
	}
	for range stackQueues {
		*own = append(*own, next(stackOwn))
	}
	for range stackQueues {
		*own = append(*own, next(stackPort))
	}
	return rx
}

func (s *stack) makePlan(o stackOptions) engine.Plan {
	features, owner := s.resolve()
	if o.lro != nil {
		owner = *o.lro
	}
	cfg := &s.net.Config
	p := engine.Plan{
		Settings: cfg.Settings, RxQueues: cfg.RxQueues, TxQueues: cfg.TxQueues,
		RxDescriptors: s.info.RxRing.Fit(128), TxDescriptors: s.info.TxRing.Fit(512),
		Interrupts: cfg.Interrupts, LRO: owner, RxBudget: o.budget,
	}
	p.Features = features
	if owner == framework.LRONone || owner == framework.LROSoftware {
		p.Features &^= framework.LRO
	}
	if o.plan != nil {
		o.plan(&p)
	}
	return p
}

// resolve is what nicd would work out for a port that takes everything.
func (s *stack) resolve() (framework.Features, framework.LROOwner) {
	p := framework.ResolveFeatures(framework.FeatureSources{
		Info: s.info, Quirks: s.t.lint.resolution(s.net.Bus.Info().Device, s.info),
		Port: framework.PortNeeds{Name: "conformance", Accepts: framework.AllFeatures},
	})
	return p.Device, p.LRO
}

// listen keeps what the engine reports.
func (s *stack) listen() {
	for ev := range s.engine.Events() {
		s.port.mu.Lock()
		s.events = append(s.events, ev)
		s.port.mu.Unlock()
	}
}

// saw tells whether the engine has reported an event of a kind.
func (s *stack) saw(kind engine.EventKind) bool {
	s.port.mu.Lock()
	defer s.port.mu.Unlock()
	for _, ev := range s.events {
		if ev.Kind == kind {
			return true
		}
	}
	return false
}

func (s *stack) linkIs(up bool) bool {
	s.port.mu.Lock()
	defer s.port.mu.Unlock()
	for i := len(s.events) - 1; i >= 0; i-- {
		if s.events[i].Kind == engine.LinkEvent {
			return s.events[i].Link.Up == up
		}
	}
	return false
}

func (s *stack) awaitLink() {
	s.net.WaitLink(true)
	s.until("link", func() bool { return s.ticked() && s.linkIs(true) })
}

// ticked makes the admin task look around, as it does each second.
func (s *stack) ticked() bool {
	select {
	case s.tick <- time.Now():
	case <-time.After(time.Second):
	}
	return true
}

func (s *stack) until(what string, done func() bool) { s.net.Until(what, done) }

// inject sends frames from the far end.
func (s *stack) inject(frames ...[]byte) { s.t.inject(s.net, frames...) }

// receive waits for exactly n packets, over all queues.
func (s *stack) receive(n int) (all []arrival) {
	s.until("packets to arrive", func() bool {
		all = append(all, s.port.take()...)
		return len(all) >= n
	})
	if len(all) > n {
		s.t.Fatalf("%d packets arrive, not %d", len(all), n)
	}
	return all
}

// send queues a packet, a fragment for each piece, and waits for buffers if it
// has to. Any goroutine may call it.
func (s *stack) send(q int, meta framework.Packet, pieces ...[]byte) {
	for !s.port.send(q, meta, pieces) {
		if s.net.Context.Err() != nil {
			s.t.Errorf("no buffer to send with")
			return
		}
		time.Sleep(50 * time.Microsecond)
	}
}

func (s *stack) rxCounter(n engine.RxCounter) (total uint64) {
	snap := s.engine.Counters()
	for q := range snap.Rx {
		total += snap.Rx[q][n]
	}
	return total
}

func (s *stack) txCounter(n engine.TxCounter) (total uint64) {
	snap := s.engine.Counters()
	for q := range snap.Tx {
		total += snap.Tx[q][n]
	}
	return total
}

func (s *stack) counter(n engine.DeviceCounter) uint64 { return s.engine.Counters().Device[n] }

// change makes another plan the one in force.
func (s *stack) change(f func(*engine.Plan)) framework.Effect {
	p := s.plan
	f(&p)
	effect, err := s.engine.Change(s.net.Context, p)
	s.t.must(err)
	s.plan = p
	if effect == framework.Reset {
		s.awaitLink()
	}
	return effect
}

// finish stops the engine: then every counter has to add up and every buffer to
// be back.
func (s *stack) finish() {
	s.t.must(s.engine.Stop(s.net.Context))
	s.running = false
	if err := engine.Check(s.engine.Counters()); err != nil {
		s.t.Errorf("counters do not add up: %v", err)
	}
	if n := s.port.sending(); n > 0 {
		s.t.Errorf("%d buffers of sent packets did not come back", n)
	}
}

// explain logs the counters of a check that failed.
func (s *stack) explain() {
	s.t.mu.Lock()
	failed := len(s.t.problems) > 0
	s.t.mu.Unlock()
	if !failed {
		return
	}
	snap := s.engine.Counters()
	list := func(where string, infos []engine.CounterInfo, values []uint64) {
		text := where + ":"
		for i, v := range values {
			if v != 0 {
				text += fmt.Sprintf(" %s=%d", infos[i].Name, v)
			}
		}
		s.t.Logf("%s", text)
	}
	for q := range snap.Rx {
		list(fmt.Sprintf("receive queue %d", q), engine.RxCounters[:], snap.Rx[q][:])
	}
	for q := range snap.Tx {
		list(fmt.Sprintf("transmit queue %d", q), engine.TxCounters[:], snap.Tx[q][:])
	}
	list("engine", engine.DeviceCounters[:], snap.Device[:])
}

// deaf loses all interrupts: the device signals events that nobody waits for.
type deaf struct{ bus.Device }

func (d deaf) SetInterrupts(kind bus.InterruptKind, events []*bus.Event) error {
	var others []*bus.Event
	for range events {
		e, err := bus.NewEvent()
		if err != nil {
			return err
		}
		others = append(others, e)
	}
	return d.Device.SetInterrupts(kind, others)
}
