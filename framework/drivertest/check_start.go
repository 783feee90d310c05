package drivertest

import (
	"errors"
	"slices"
	"time"

	"nicd/framework"
	"nicd/framework/drivertest/rig"
)

var startChecks = []*check{
	{name: "start.bus-error", run: startBusError,
		doc: "Start fails at every bus call that fails, nothing runs then, and the next Start succeeds."},
	{name: "start.gone", run: startGone, deadline: 2 * time.Minute,
		doc: "Whichever register read of Start is the first to get no answer, Start fails or Admin says so, and Stop and Detach end."},
	{name: "start.no-memory", run: startNoMemory,
		doc: "Start fails at every allocation that fails, nothing runs then, and the next Start succeeds."},
	{name: "start.queues", run: startQueues,
		doc: "Start returns as many queues as were asked for, the lowest number to the highest, and unequal numbers."},
	{name: "start.rings", run: startRings, deadline: 2 * time.Minute,
		doc: "Rings of the smallest, the default and the largest size work, around their ends."},
	{name: "start.vectors", run: startVectors,
		doc: "Queues work with a vector each, one for all, and one for each direction."},
	{name: "start.masked", run: startMasked,
		doc: "After Start every vector is masked; what came before Unmask interrupts then."},
	{name: "start.empty", run: startEmpty,
		doc: "A started device without a buffer delivers nothing, and works when it gets some."},
	{name: "start.filters", run: startFilters,
		doc: "The filters that Start is given hold from the first frame on."},
}

func startBusError(t *c) {
	p := &probe{}
	n := t.net(on{Options: rig.Options{Stopped: true, Wrap: p.wrap}})
	p.arm(0, 0)
	t.must(n.TryStart())
	calls := p.calls.Load()
	n.Stop()
	if calls == 0 {
		t.notApplicable("Start makes no bus call that can fail")
	}
	for i := int64(1); i <= calls; i++ {
		p.arm(i, 0)
		err := n.TryStart()
		if !errors.Is(err, errInjected) {
			t.Errorf("bus call %d of %d fails, and Start says %v", i, calls, err)
		}
		p.arm(0, 0)
		if err == nil {
			n.Stop()
		}
		t.quiet(n)
	}
	drain(n)
	t.worksAfter(n)
}

func startGone(t *c) {
	p := &probe{}
	n := t.net(on{Options: rig.Options{Stopped: true, Wrap: p.wrap}})
	p.arm(0, 0)
	t.must(n.TryStart())
	reads := p.reads.Load()
	t.Logf("%d register reads", reads)
	step := int64(1)
	if t.bench.Quick {
		step = max(reads/10, 1)
	}
	for i := int64(1); i <= reads; i += step {
		// A device of its own each time: one that is gone does not come back.
		t.apart(func() {
			p := &probe{}
			n := t.net(on{Options: rig.Options{Stopped: true, Wrap: p.wrap, Buffers: 128}})
			p.arm(0, i)
			err := n.TryStart()
			if err == nil && p.gone.Load() && !n.Admin().Gone {
				t.Errorf("nobody answers from read %d of %d on; neither Start nor Admin says so", i, reads)
			}
			t.must(n.Device.Stop(n.Context))
		})
	}
}

func startNoMemory(t *c) {
	n := t.net(on{Options: rig.Options{Stopped: true}})
	n.Allocs = 0
	t.must(n.TryStart())
	allocs := n.Allocs
	n.Stop()
	if allocs == 0 {
		t.notApplicable("the driver allocates nothing at Start")
	}
	t.Logf("%d allocations", allocs)
	for i := 1; i <= allocs; i++ {
		n.Allocs, n.FailAlloc = 0, i
		err := n.TryStart()
		if !errors.Is(err, rig.ErrNoMemory) {
			t.Errorf("allocation %d of %d fails, and Start says %v", i, allocs, err)
		}
		n.FailAlloc = 0
		if err == nil {
			n.Stop()
		}
	}
	t.quiet(n)
	drain(n)
	t.worksAfter(n)
}

// spread makes a configuration of so many queues with vectors by plan.
func spread(n *rig.Net, rx, tx int, plan framework.VectorPlan) {
	n.Config.RxQueues, n.Config.TxQueues, n.Config.Interrupts = rx, tx, plan
	for i := range n.Config.RSS.Indirection {
		n.Config.RSS.Indirection[i] = uint8(i % rx)
	}
}

// onePlan has one vector for everything.
func onePlan(n *rig.Net, rx, tx int) framework.VectorPlan {
	return framework.VectorPlan{
		Kind: n.Info.Interrupts[0].Kind, Vectors: 1,
		RxVector: slices.Repeat([]int{0}, rx), TxVector: slices.Repeat([]int{0}, tx),
	}
}

// eachQueue sends a frame from each transmit queue and receives frames until each
// receive queue has had one.
func (t *c) eachQueue(n *rig.Net) {
	if len(n.Queues.Rx) != n.Config.RxQueues || len(n.Queues.Tx) != n.Config.TxQueues {
		t.Fatalf("%d+%d queues asked for, %d+%d started", n.Config.RxQueues, n.Config.TxQueues, len(n.Queues.Rx), len(n.Queues.Tx))
	}
	for q := range n.Queues.Tx {
		n.Send(q, out(q, 100), 60, framework.Packet{})
		t.sent(n, out(q, 100))
	}
	seen := map[int]bool{}
	const flows = 400
	for port := 0; port < flows && len(seen) < len(n.Queues.Rx); port++ {
		f := rig.Frame{Port: uint16(2000 + port), Payload: 60}.Build()
		n.Inject(f)
		got := n.Receive(1)[0]
		t.same(got, f)
		seen[got.Queue] = true
	}
	if len(seen) < len(n.Queues.Rx) {
		t.Errorf("%d flows reach %d of %d receive queues", flows, len(seen), len(n.Queues.Rx))
	}
}

func startQueues(t *c) {
	n := t.net(on{Options: rig.Options{Stopped: true, Buffers: 4096}})
	rx, tx := n.Info.MaxRxQueues, n.Info.MaxTxQueues
	if !n.Info.Features.Has(framework.RSSHash) {
		rx = 1
	}
	type pair struct{ rx, tx int }
	for _, p := range slices.Compact([]pair{{1, 1}, {(rx + 1) / 2, (tx + 1) / 2}, {rx, 1}, {1, tx}, {rx, tx}}) {
		t.Logf("%d+%d queues", p.rx, p.tx)
		spread(n, p.rx, p.tx, onePlan(n, p.rx, p.tx))
		n.Start()
		n.WaitLink(true)
		t.eachQueue(n)
		n.Stop()
	}
}

func startRings(t *c) {
	n := t.net(on{Options: rig.Options{Stopped: true, Buffers: 12000, Config: oneQueue}})
	for _, size := range []func(framework.RingRule) int{
		func(r framework.RingRule) int { return r.Min },
		func(r framework.RingRule) int { return r.Above(r.Min) },
		func(r framework.RingRule) int { return r.Default },
		func(r framework.RingRule) int { return r.Max },
	} {
		n.Config.RxDescriptors, n.Config.TxDescriptors = size(n.Info.RxRing), size(n.Info.TxRing)
		n.Start()
		n.WaitLink(true)
		t.roundReceive(n, n.Config.RxDescriptors*9/8+20)
		t.roundTransmit(n, n.Config.TxDescriptors*9/8+20)
		n.Stop()
	}
}

// burstOf is how many frames at a time go around a ring, in which each may take a
// descriptor besides the one for its bytes.
func burstOf(descriptors int) int { return min(16, (descriptors-1)/2) }

// roundReceive receives so many frames.
func (t *c) roundReceive(n *rig.Net, frames int) {
	burst := burstOf(n.Config.RxDescriptors)
	for i := 0; i < frames; i += burst {
		for j := range burst {
			n.Inject(in(i+j, 64))
		}
		for j, p := range n.Receive(burst) {
			t.same(p, in(i+j, 64))
		}
	}
}

// roundTransmit sends so many.
func (t *c) roundTransmit(n *rig.Net, frames int) {
	burst := burstOf(n.Config.TxDescriptors)
	for i := 0; i < frames; i += burst {
		for j := range burst {
			if !n.Put(0, out(i+j, 64), 2000, framework.Packet{Flags: framework.Completion}) {
				t.Fatalf("a ring of %d does not take %d packets", n.Config.TxDescriptors, burst)
			}
		}
		n.Queues.Tx[0].Bell()
		for j := range burst {
			t.sent(n, out(i+j, 64))
		}
		n.Until("completions", func() bool { n.Reap(0); return n.InFlight(0) == 0 })
	}
}

func startVectors(t *c) {
	n := t.net(on{Options: rig.Options{Stopped: true}})
	best := n.Info.Interrupts[0]
	rx, tx := n.Config.RxQueues, n.Config.TxQueues
	plans := []framework.VectorPlan{onePlan(n, rx, tx)}
	if best.Vectors >= 2 {
		plans = append(plans, framework.VectorPlan{Kind: best.Kind, Vectors: 2, AdminVector: 1,
			RxVector: slices.Repeat([]int{0}, rx), TxVector: slices.Repeat([]int{1}, tx)})
	}
	if best.Vectors >= rx+tx+1 {
		p := framework.VectorPlan{Kind: best.Kind, Vectors: rx + tx + 1, AdminVector: rx + tx}
		for q := range rx {
			p.RxVector = append(p.RxVector, q)
		}
		for q := range tx {
			p.TxVector = append(p.TxVector, rx+q)
		}
		plans = append(plans, p)
	}
	for _, p := range plans {
		t.Logf("%d vectors", p.Vectors)
		spread(n, rx, tx, p)
		n.Start()
		n.WaitLink(true)
		for q := range rx {
			t.interruptsFor(n, q)
		}
		for q := range tx {
			n.Put(q, out(q, 60), 100, framework.Packet{Flags: framework.Completion})
			n.Queues.Tx[q].Bell()
			v := n.Config.Interrupts.Tx(q)
			n.WaitCause(v, func(c framework.Cause) bool { return c.Tx&(1<<q) != 0 })
			n.Until("completion", func() bool { n.Reap(q); return n.InFlight(q) == 0 })
			n.Device.Unmask(v)
			t.sent(n, out(q, 60))
		}
		n.Stop()
	}
}

// interruptsFor finds a flow of receive queue q and wants its vector to fire.
func (t *c) interruptsFor(n *rig.Net, q int) {
	for port := uint16(1); port < 400; port++ {
		f := rig.Frame{Port: port, Payload: 60}.Build()
		n.Inject(f)
		if n.Receive(1)[0].Queue != q {
			continue
		}
		v := n.Config.Interrupts.Rx(q)
		n.Device.Unmask(v)
		n.Inject(f)
		n.WaitCause(v, func(c framework.Cause) bool { return c.Rx&(1<<q) != 0 })
		n.Receive(1)
		n.Device.Unmask(v)
		return
	}
	t.Errorf("no flow found for receive queue %d", q)
}

func startMasked(t *c) {
	n := t.net(on{Options: rig.Options{Stopped: true, Config: oneQueue}})
	t.must(n.TryStart())
	n.WaitLink(true)
	n.Refill(0)
	for _, e := range n.Events {
		e.Take()
	}
	n.Inject(in(1, 60))
	n.Until("a frame", n.Queues.Rx[0].Pending)
	time.Sleep(afterwards)
	for v, e := range n.Events {
		if e.Take() > 0 {
			t.Errorf("vector %d fires although nobody unmasked it", v)
		}
	}
	n.UnmaskAll()
	v := n.Config.Interrupts.Rx(0)
	n.WaitCause(v, func(c framework.Cause) bool { return c.Rx&1 != 0 })
	t.same(n.Receive(1)[0], in(1, 60))
}

func startEmpty(t *c) {
	n := t.net(on{Setup: Setup{NoFlowControl: t.can(Drops)}, Options: rig.Options{Stopped: true, Config: oneQueue}})
	t.must(n.TryStart())
	n.UnmaskAll()
	n.WaitLink(true)
	if t.can(Drops) {
		for i := range 5 {
			n.Inject(in(i, 60))
		}
	}
	if got, v := n.PollOnly(0); len(got) > 0 || v != framework.Healthy {
		t.Errorf("%d packets and verdict %d without a buffer", len(got), v)
	}
	if n.Queues.Rx[0].Pending() {
		t.Error("something pending without a buffer")
	}
	n.Refill(0)
	n.Inject(in(7, 60))
	n.Until("the frame that follows", func() bool {
		for _, p := range n.Poll(0) {
			if string(p.Bytes) == string(in(7, 60)) {
				return true
			}
		}
		return false
	})
	n.RoundTrip()
}

// can tells whether the bench has an ability.
func (t *c) can(a Ability) bool {
	_, lacks := t.bench.Lacks[a]
	return !lacks
}

func startFilters(t *c) {
	n := t.net(on{Options: rig.Options{Stopped: true, Config: oneQueue}})
	n.Config.Filters = framework.Filters{Multicast: []framework.MAC{groupA}}
	if n.Info.MaxMulticast == 0 {
		n.Config.Filters = framework.Filters{AllMulticast: true}
	}
	n.Start()
	n.WaitLink(true)
	t.accepts(n, map[framework.MAC]bool{rig.MAC: true, broadcast: true, groupA: true, stranger: false})
}
