package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"nicd/bus"
	"nicd/framework"
)

// TestStartStop runs a thousand times under traffic both ways: nothing hangs, no
// goroutine and no buffer is left, and the counters go on.
func TestStartStop(t *testing.T) {
	r := newRig(t, 2, nil)
	r.up.record = false
	stop := make(chan struct{})
	var traffic sync.WaitGroup
	for q := range 2 {
		traffic.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					r.dev.receive(q, numbered(i, 100), framework.Packet{}, 0)
					r.up.frame(q, framework.Packet{}, 0, numbered(i, 100))
					runtime.Gosched()
				}
			}
		})
	}
	before := runtime.NumGoroutine()
	var last uint64
	for range 1000 {
		r.start()
		if err := r.e.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		now := r.rxCount(0, RxPackets)
		if now < last {
			t.Fatal("a counter went backwards")
		}
		last = now
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines, %d before", n, before)
	}
	close(stop)
	traffic.Wait()
	r.finish()
	if r.dev.starts != 1000 || r.dev.stops != 1000 {
		t.Errorf("%d starts, %d stops", r.dev.starts, r.dev.stops)
	}
}

// TestSharedVector: four queues on one vector. A busy one must not leave the
// others without service although the vector stays masked.
func TestSharedVector(t *testing.T) {
	for _, separate := range []bool{false, true} {
		r := newRig(t, 4, func(r *rig) {
			r.opts.SeparateTasks = separate
			r.plan.Interrupts = framework.VectorPlan{
				Kind: bus.INTx, Vectors: 1, RxVector: []int{0, 0, 0, 0}, TxVector: []int{-1, -1, -1, -1},
			}
		})
		r.start()
		stop := make(chan struct{})
		var flood sync.WaitGroup
		flood.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					r.dev.receive(0, numbered(1, 60), framework.Packet{Error: framework.DropCRC}, 0)
				}
			}
		})
		for i := range 200 {
			for q := 1; q < 4; q++ {
				r.arrive(q, numbered(i, 60), framework.Packet{}, 0)
				r.until("a buffer", func() bool { return r.up.frame(q, framework.Packet{}, 0, numbered(i, 60)) })
			}
		}
		for q := 1; q < 4; q++ {
			r.until("served", func() bool { return len(r.deliveries(q)) == 200 && r.txCount(q, TxCompleted) == 200 })
		}
		close(stop)
		flood.Wait()
		r.until("unmasked", func() bool { r.dev.mu.Lock(); defer r.dev.mu.Unlock(); return !r.dev.masked[0] })
		r.arrive(3, numbered(1, 60), framework.Packet{}, 0)
		r.until("delivered", func() bool { return len(r.deliveries(3)) == 201 })
		r.finish()
		if r.dev.unmasks == 0 || uint64(r.dev.unmasks) != r.count(Interrupts) {
			t.Errorf("%d interrupts, INTx unmasked %d times at the bus", r.count(Interrupts), r.dev.unmasks)
		}
	}
}

func TestSeparateTasks(t *testing.T) {
	r := newRig(t, 2, func(r *rig) { r.opts.SeparateTasks = true }).start()
	for i := range 500 {
		r.arrive(i%2, numbered(i, 60), framework.Packet{}, 0)
		r.until("a buffer", func() bool { return r.up.frame(i%2, framework.Packet{}, 0, numbered(i, 60)) })
	}
	for q := range 2 {
		r.until("all through", func() bool { return len(r.deliveries(q)) == 250 && r.txCount(q, TxCompleted) == 250 })
	}
	r.finish()
}

// TestLostInterrupt: the periodic check finds what no interrupt announced.
func TestLostInterrupt(t *testing.T) {
	r := newRig(t, 1, nil).start()
	r.until("unmasked", func() bool { r.dev.mu.Lock(); defer r.dev.mu.Unlock(); return !r.dev.masked[0] })
	r.dev.mu.Lock()
	r.dev.deaf = 1
	r.dev.mu.Unlock()
	r.arrive(0, numbered(1, 60), framework.Packet{}, 0)
	r.ticks(time.Second)
	r.until("found", func() bool { return len(r.deliveries(0)) == 1 })
	r.until("counted", func() bool { return r.rxCount(0, RxLostInterrupts) == 1 })
	r.arrive(0, numbered(2, 60), framework.Packet{}, 0)
	r.until("interrupts work again", func() bool { return len(r.deliveries(0)) == 2 })
	r.finish()
}

func TestSpuriousInterrupt(t *testing.T) {
	r := newRig(t, 1, nil).start()
	r.until("unmasked", func() bool { r.dev.mu.Lock(); defer r.dev.mu.Unlock(); return !r.dev.masked[0] })
	base := r.count(SpuriousInterrupts)
	r.dev.mu.Lock()
	r.dev.signal(0)
	r.dev.mu.Unlock()
	r.until("counted", func() bool { return r.count(SpuriousInterrupts) == base+1 })
	r.until("unmasked", func() bool { r.dev.mu.Lock(); defer r.dev.mu.Unlock(); return !r.dev.masked[0] })
	r.arrive(0, numbered(1, 60), framework.Packet{}, 0)
	r.until("delivered", func() bool { return len(r.deliveries(0)) == 1 })
	r.finish()
}

// TestBudgetIsFair: on one processor, a flood on one queue does not keep another
// waiting.
func TestBudgetIsFair(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	r := newRig(t, 2, func(r *rig) { r.plan.RxBudget = 16 })
	r.up.record = false
	r.start()
	// Two queues that are never empty: each packet that is delivered makes the
	// next one arrive.
	var got [2]int
	refill := &floodUpper{fakeUpper: r.up, rig: r, got: &got}
	for _, q := range r.e.rx {
		q.upper = refill
	}
	for q := range 2 {
		for range 32 {
			r.arrive(q, numbered(1, 60), framework.Packet{}, 0)
		}
	}
	r.until("both far", func() bool {
		r.dev.mu.Lock()
		defer r.dev.mu.Unlock()
		return got[0]+got[1] > 20000
	})
	r.dev.mu.Lock()
	a, b := got[0], got[1]
	r.dev.mu.Unlock()
	if a < 2*b/5 || b < 2*a/5 {
		t.Errorf("%d and %d packets", a, b)
	}
	if r.rxCount(0, RxBudgetExhausted) == 0 {
		t.Error("the budget was never exhausted")
	}
	r.finish()
}

// floodUpper lets another packet arrive for each one delivered.
type floodUpper struct {
	*fakeUpper
	rig *rig
	got *[2]int
}

func (u *floodUpper) Deliver(q int, b *framework.Batch) int {
	n := u.fakeUpper.Deliver(q, b)
	for range n {
		u.rig.dev.receive(q, numbered(1, 60), framework.Packet{}, 0)
	}
	u.rig.dev.mu.Lock()
	u.got[q] += n
	u.rig.dev.mu.Unlock()
	return n
}

func (r *rig) event(kind EventKind) Event {
	r.t.Helper()
	for {
		select {
		case ev, ok := <-r.e.Events():
			if !ok {
				r.t.Fatalf("events ended before event %d", kind)
			}
			if ev.Kind == kind {
				return ev
			}
		case <-time.After(10 * time.Second):
			r.t.Fatalf("event %d never came", kind)
		}
	}
}

// TestUpperThatCriesWolf: a task sleeps although the upper side says all the time
// that there is work.
func TestUpperThatCriesWolf(t *testing.T) {
	r := newRig(t, 1, nil)
	for _, q := range r.e.tx {
		q.upper = wolf{r.up}
	}
	r.start()
	r.until("asleep", func() bool { return r.e.tasks[0].state.Load() == idle })
	r.arrive(0, numbered(1, 60), framework.Packet{}, 0)
	r.until("it goes on", func() bool { return len(r.deliveries(0)) == 1 })
	r.finish()
}

type wolf struct{ *fakeUpper }

func (wolf) ArmTx(int) bool { return true }

// TestBuffersAboveAtFirst: an engine that starts over an arena in use gets its
// receive buffers from above, whenever they come. That they are there for now does not
// make them too few.
func TestBuffersAboveAtFirst(t *testing.T) {
	r := newRig(t, 1, func(r *rig) { r.opts.RxAbove = true })
	for i := range rxPerQueue {
		r.up.kept[0] = append(r.up.kept[0], framework.Buffer(i))
	}
	r.start()
	if r.rxCount(0, RxBuffersPosted) != 0 || r.count(ShortOfBuffers) != 0 {
		t.Errorf("%d buffers out of nowhere, %d rings with too few", r.rxCount(0, RxBuffersPosted), r.count(ShortOfBuffers))
	}
	r.until("asleep", func() bool { return r.e.tasks[0].state.Load() == idle })
	r.up.giveBack(0)
	r.until("the ring is full", func() bool { return r.rxCount(0, RxBuffersPosted) == 255 })
	r.arrive(0, numbered(1, 60), framework.Packet{}, 0)
	r.until("delivered", func() bool { return len(r.deliveries(0)) == 1 })
	r.finish()
}

func TestQueueFaultResetsTheQueue(t *testing.T) {
	r := newRig(t, 2, func(r *rig) { r.resettable = true }).start()
	r.dev.mu.Lock()
	r.dev.rx[1].verdict = framework.QueueFault
	r.dev.mu.Unlock()
	r.arrive(1, numbered(1, 60), framework.Packet{}, 0)
	if ev := r.event(QueueReset); ev.Queue != 1 {
		t.Errorf("queue %d", ev.Queue)
	}
	for q := range 2 {
		had := len(r.deliveries(q))
		r.arrive(q, numbered(2, 60), framework.Packet{}, 0)
		r.until("it goes on", func() bool { return len(r.deliveries(q)) == had+1 })
	}
	r.finish()
	if len(r.deliveries(1)) != 2 {
		t.Error("the good packet of the batch was not delivered")
	}
	if r.dev.resets != 1 || r.dev.stops != 1 || r.count(ResetsByQueueFault) != 1 {
		t.Error(r.dump())
	}
}

func TestDeviceFaults(t *testing.T) {
	r := newRig(t, 1, nil).start()
	r.dev.raiseAdmin(framework.Events{DeviceFault: true, Reason: "on fire"})
	if ev := r.event(DeviceReset); ev.Reason != "on fire" {
		t.Errorf("reason %q", ev.Reason)
	}
	r.dev.raiseAdmin(framework.Events{QueueFault: 1, Reason: "stuck"})
	r.event(DeviceReset)
	r.dev.mu.Lock()
	r.dev.failing = 2
	r.dev.mu.Unlock()
	r.dev.raiseAdmin(framework.Events{DeviceFault: true})
	r.event(DeviceReset)
	if got := r.count(FailedResets); got != 2 {
		t.Errorf("%d failed resets", got)
	}
	r.arrive(0, numbered(1, 60), framework.Packet{}, 0)
	r.until("it goes on", func() bool { return len(r.deliveries(0)) == 1 })
	hw, err := r.e.HardwareCounters(context.Background())
	if err != nil || hw[0] != 4 {
		t.Errorf("hardware counters over resets: %v %v", hw, err)
	}
	// It does not come back.
	r.dev.mu.Lock()
	r.dev.failing = 1000
	r.dev.mu.Unlock()
	r.dev.raiseAdmin(framework.Events{DeviceFault: true})
	r.event(DeviceLost)
	if err := r.e.Start(context.Background(), r.plan); !errors.Is(err, ErrLost) {
		t.Errorf("start of a lost device: %v", err)
	}
	r.finish()
	if _, open := <-r.e.Events(); open {
		t.Error("events go on after detach")
	}
	if _, err := r.e.Info(context.Background()); !errors.Is(err, ErrState) {
		t.Errorf("after detach: %v", err)
	}
}

// TestStaleFault: a fault that was reported before a reset was the reset's
// business, however late it is looked at.
func TestStaleFault(t *testing.T) {
	r := newRig(t, 1, nil).start()
	if err := r.e.take(context.Background(), started); err != nil {
		t.Fatal(err)
	}
	f := fault{device: true, cause: ResetsByDeviceFault, reason: "on fire"}
	r.e.report(f)
	r.e.resetDevice(context.Background(), f)
	runs := r.count(AdminRuns)
	r.e.give()
	r.event(DeviceReset)
	r.until("looked at", func() bool { return r.count(AdminRuns) > runs })
	if err := r.e.take(context.Background(), started); err != nil { // the admin task is through
		t.Fatal(err)
	}
	r.e.give()
	if r.dev.starts != 2 || r.count(DeviceResets) != 1 {
		t.Errorf("%d starts:\n%s", r.dev.starts, r.dump())
	}
	r.finish()
}

// TestChangePlacement: tasks that poll for ever move to other processors.
func TestChangePlacement(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	r := newRig(t, 1, func(r *rig) { r.plan.SpinMicros, r.plan.CPUs = -1, []int{0} }).start()
	p := r.e.plan
	p.CPUs = []int{1}
	if effect, err := r.e.Change(context.Background(), p); err != nil || effect != framework.Quiesce {
		t.Errorf("%v, %v", effect, err)
	}
	if got := r.e.tasks[0].cpu; got != 1 {
		t.Errorf("processor %d", got)
	}
	p.CPUs, p.SpinMicros = nil, 0
	if _, err := r.e.Change(context.Background(), p); err != nil {
		t.Error(err)
	}
	if got := r.e.tasks[0].cpu; got != -1 {
		t.Errorf("processor %d for a task that sleeps", got)
	}
	r.finish()
}

// TestStopped: who lends memory hears of every stop, and of starts that fail.
func TestStopped(t *testing.T) {
	ctx := context.Background()
	stops := 0
	r := newRig(t, 1, func(r *rig) { r.opts.Stopped = func() { stops++ } }).start()
	expect := func(what string, want int) {
		t.Helper()
		if stops != want {
			t.Errorf("%s: told %d times, want %d", what, stops, want)
		}
	}
	expect("started", 0)
	p := r.e.plan
	p.Restart = true
	if _, err := r.e.Change(ctx, p); err != nil {
		t.Fatal(err)
	}
	expect("restarted", 1)
	r.dev.failing = 1
	if _, err := r.e.Change(ctx, p); err == nil {
		t.Fatal("started")
	}
	expect("stopped, not started, started", 3)
	if err := r.e.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	expect("stopped", 4)
	r.finish()
}

func TestDeviceGone(t *testing.T) {
	r := newRig(t, 1, nil).start()
	r.until("unmasked", func() bool { r.dev.mu.Lock(); defer r.dev.mu.Unlock(); return !r.dev.masked[0] })
	r.dev.raiseAdmin(framework.Events{Gone: true, Reason: "nobody there"})
	r.event(DeviceLost)
	if r.dev.stops != 1 {
		t.Errorf("%d stops", r.dev.stops)
	}
	r.finish()
}

func TestLinkEvents(t *testing.T) {
	r := newRig(t, 1, nil).start()
	if ev := r.event(LinkEvent); !ev.Link.Up || ev.Link.Mbps != 1000 {
		t.Errorf("%+v", ev)
	}
	r.dev.mu.Lock()
	r.dev.link.Up = false
	r.dev.mu.Unlock()
	r.dev.raiseAdmin(framework.Events{LinkChanged: true})
	if ev := r.event(LinkEvent); ev.Link.Up {
		t.Errorf("%+v", ev)
	}
	r.dev.mu.Lock()
	r.dev.info.Mode = "passthrough"
	r.dev.mu.Unlock()
	r.dev.raiseAdmin(framework.Events{ModeChanged: true})
	if ev := r.event(ModeEvent); ev.Reason != "passthrough" {
		t.Errorf("%+v", ev)
	}
	r.finish()
	if r.count(LinkChanges) != 2 || r.count(AdminInterrupts) == 0 {
		t.Error(r.dump())
	}
}

// TestManyEventsUnread: nobody reads; the engine neither waits nor grows.
func TestManyEventsUnread(t *testing.T) {
	r := newRig(t, 1, nil).start()
	for i := range 10000 {
		r.e.emit(Event{Kind: LinkEvent, Link: framework.Link{Mbps: i}})
		r.e.emit(Event{Kind: QueueReset, Queue: i % 3})
	}
	r.e.admin.mu.Lock()
	n := len(r.e.admin.pending)
	r.e.admin.mu.Unlock()
	if n > 6 {
		t.Errorf("%d events wait", n)
	}
	r.finish()
}

func TestChange(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, 2, nil).start()
	check := func(what string, want framework.Effect, change func(*Plan)) {
		t.Helper()
		p := r.e.plan
		change(&p)
		was := r.e.plan
		if says, err := r.e.Effect(ctx, p); err != nil || says != want {
			t.Errorf("%s: said beforehand: %v, %v", what, says, err)
		}
		if !reflect.DeepEqual(r.e.plan, was) {
			t.Errorf("%s: asking changed the plan", what)
		}
		got, err := r.e.Change(ctx, p)
		if err != nil || got != want {
			t.Errorf("%s: %v, %v", what, got, err)
		}
		for q := range p.RxQueues {
			had := len(r.deliveries(q))
			r.arrive(q, numbered(1, 60), framework.Packet{}, 0)
			r.until(what+": it goes on", func() bool { return len(r.deliveries(q)) == had+1 })
		}
	}
	check("budget", framework.Quiesce, func(p *Plan) { p.RxBudget = 8; p.SpinMicros = 50 })
	check("features", framework.Quiesce, func(p *Plan) { p.Features &^= framework.TSO4 })
	check("LRO", framework.Live, func(p *Plan) { p.Features ^= framework.LRO })
	r.dev.effect = framework.Quiesce
	check("MTU", framework.Quiesce, func(p *Plan) { p.MTU = 9000 })
	if r.dev.starts != 1 || r.dev.settings.MTU != 9000 {
		t.Errorf("%d starts, MTU %d", r.dev.starts, r.dev.settings.MTU)
	}
	check("queues", framework.Reset, func(p *Plan) { p.RxQueues, p.TxQueues = 1, 1 })
	check("ring", framework.Reset, func(p *Plan) { p.RxDescriptors = 128 })
	check("queues", framework.Reset, func(p *Plan) { p.RxQueues, p.TxQueues = 2, 2 })
	check("restart", framework.Reset, func(p *Plan) { p.Restart = true })
	r.e.plan.Restart = false
	if r.dev.starts != 5 || r.count(ResetsByChange) != 4 {
		t.Errorf("%d starts", r.dev.starts)
	}

	// A change that fails leaves the old plan in force.
	r.dev.failing = 1
	p := r.e.plan
	p.RxDescriptors = 64
	if _, err := r.e.Change(ctx, p); !errors.Is(err, framework.ErrDevice) {
		t.Errorf("error %v", err)
	}
	check("old plan", framework.Quiesce, func(p *Plan) {})
	if r.e.plan.RxDescriptors != 128 || r.dev.cfg.RxDescriptors != 128 {
		t.Error("the old plan is not in force")
	}
	r.finish()
}

// gateUpper holds the receive task of a queue in Deliver.
type gateUpper struct {
	*fakeUpper
	queue         int
	entered, open chan struct{}
}

func (u *gateUpper) Deliver(q int, b *framework.Batch) int {
	if q == u.queue {
		select {
		case u.entered <- struct{}{}:
			<-u.open
		case <-u.open:
		}
	}
	return u.fakeUpper.Deliver(q, b)
}

// TestQuiesceOnePairAtATime: while one pair is on its way to a halt, whichever it
// is, the others move packets, before and after their own turn.
func TestQuiesceOnePairAtATime(t *testing.T) {
	const pairs = 3
	for slow := range pairs {
		for _, separate := range []bool{false, true} {
			r := newRig(t, pairs, func(r *rig) {
				r.opts.SeparateTasks = separate
				r.dev.effect = framework.Quiesce
			})
			gate := &gateUpper{r.up, slow, make(chan struct{}), make(chan struct{})}
			for _, q := range r.e.rx {
				q.upper = gate
			}
			r.start()
			r.arrive(slow, numbered(1, 60), framework.Packet{}, 0)
			<-gate.entered
			changed := make(chan error, 1)
			go func() {
				p := r.plan
				p.Features &^= framework.TSO4 | framework.TxChecksum
				p.RxBudget = 7
				effect, err := r.e.Change(context.Background(), p)
				if effect != framework.Quiesce {
					err = errors.Join(err, fmt.Errorf("effect %v", effect))
				}
				changed <- err
			}()
			// It can't get past the slow pair; the one before it has had its turn.
			if slow > 0 {
				r.until("the pair before has gone on", func() bool {
					return !r.e.tx[slow-1].rules.Load().features.Has(framework.TSO4)
				})
			}
			for i := range 50 {
				for q := range pairs {
					if q == slow {
						continue
					}
					r.arrive(q, numbered(i, 60), framework.Packet{}, 0)
					r.up.frame(q, framework.Packet{}, 0, numbered(i, 60))
					r.until("packets move", func() bool {
						return len(r.deliveries(q)) == i+1 && r.txCount(q, TxCompleted) == uint64(i+1)
					})
				}
			}
			select {
			case err := <-changed:
				t.Fatalf("pair %d was not halted: %v", slow, err)
			default:
			}
			close(gate.open)
			if err := <-changed; err != nil {
				t.Fatal(err)
			}
			r.finish()
			if r.dev.applied != 1 || r.dev.starts != 1 || cap(r.e.rx[slow].batch.Packets) != 7 {
				t.Errorf("applied %d times, %d starts", r.dev.applied, r.dev.starts)
			}
		}
	}
}

// TestRefusedQuiesce: a driver that does not apply what it planned leaves all as it
// was, also what the queues had done without already.
func TestRefusedQuiesce(t *testing.T) {
	r := newRig(t, 2, func(r *rig) { r.dev.effect, r.dev.refuse = framework.Quiesce, framework.ErrDevice })
	w := r.listen()
	r.start()
	p := r.plan
	p.Features &^= framework.TxChecksum
	p.RxBudget = 7
	if _, err := r.e.Change(context.Background(), p); !errors.Is(err, framework.ErrDevice) {
		t.Errorf("error %v", err)
	}
	frame := tcpFrame(500, 1, 0x10)
	r.dev.mu.Lock()
	r.dev.settings = r.plan.Settings // which an error has not changed
	r.dev.mu.Unlock()
	if _, packets := r.sendOne(w, partial(frame), 0, frame); packets[0].Flags&framework.ChecksumPartial == 0 {
		t.Error("the checksum is still made in software")
	}
	r.finish()
	if !reflect.DeepEqual(r.e.plan, r.plan) || cap(r.e.rx[0].batch.Packets) != DefaultRxBudget {
		t.Error("the old plan is not in force")
	}
}

func TestPlanErrors(t *testing.T) {
	r := newRig(t, 2, func(r *rig) {
		r.dev.info.Features = framework.RxChecksum | framework.LRO | framework.VLANStrip | framework.VLANInsert
		r.plan.Features = framework.RxChecksum
		r.dev.info.RxRing.Multiple = 32
	})
	if err := r.e.opts.Quirks.Set(framework.VLANOneSwitchQuirk.Info().Name, "true"); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Plan){
		"receive queues":       func(p *Plan) { p.RxQueues = 3 },
		"transmit queues":      func(p *Plan) { p.TxQueues = 0 },
		"steps of 32":          func(p *Plan) { p.RxDescriptors = 100 },
		"transmit descriptors": func(p *Plan) { p.TxDescriptors = 1 << 20 },
		"tso4":                 func(p *Plan) { p.Features |= framework.TSO4 },
		"has to do rx-csum":    func(p *Plan) { p.Features = framework.LRO },
		"without stripping":    func(p *Plan) { p.Features = framework.VLANInsert },
		"MTU 20000":            func(p *Plan) { p.MTU = 20000 },
		"vector 9":             func(p *Plan) { p.Interrupts.RxVector = []int{0, 9} },
		"vectors are given":    func(p *Plan) { p.Interrupts.TxVector = nil },
		"receive budget":       func(p *Plan) { p.RxBudget = 1 << 20 },
		"INTx":                 func(p *Plan) { p.Interrupts.Kind = bus.INTx },
		"placed":               func(p *Plan) { p.CPUs = []int{0, 1} },
	} {
		p := r.plan
		spoil(&p)
		err := r.e.Start(context.Background(), p)
		if !errors.Is(err, ErrPlan) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r.dev.starts != 0 {
		t.Error("the device was started")
	}
	r.finish()
}

func TestStartFailsCleanly(t *testing.T) {
	r := newRig(t, 1, nil)
	r.dev.failing = 1
	if err := r.e.Start(context.Background(), r.plan); !errors.Is(err, framework.ErrDevice) {
		t.Fatal(err)
	}
	if len(r.dev.events) != 0 || r.e.vectors != nil {
		t.Error("interrupts are left on")
	}
	r.start()
	if err := r.e.Start(context.Background(), r.plan); !errors.Is(err, ErrState) {
		t.Errorf("second start: %v", err)
	}
	r.finish()
}

func TestQuirksAndFilters(t *testing.T) {
	ctx := context.Background()
	r := newRig(t, 1, nil).start()
	if err := r.e.SetQuirks(ctx, map[string]string{"min-frame": "60", "nonsense": "1"}); err == nil {
		t.Error("an unknown quirk was taken")
	}
	if framework.MinFrameQuirk.Get(r.opts.Quirks) != 0 {
		t.Error("an error changed something")
	}
	if err := r.e.SetQuirks(ctx, map[string]string{"min-frame": "60"}); err != nil {
		t.Error(err)
	}
	if r.e.tx[0].rules.Load().minFrame != 60 {
		t.Error("the quirk has no effect")
	}
	f := framework.Filters{Unicast: make([]framework.MAC, 4), Multicast: make([]framework.MAC, 5)}
	if err := r.e.SetFilters(ctx, f); err != nil {
		t.Error(err)
	}
	if g := r.dev.filters; len(g.Unicast) != 4 || g.Promiscuous || len(g.Multicast) != 0 || !g.AllMulticast {
		t.Errorf("%+v", g)
	}
	r.finish()
}

// TestPolling: a plan without interrupts, whose tasks never sleep.
func TestPolling(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	r := newRig(t, 1, func(r *rig) {
		r.plan.Interrupts = framework.VectorPlan{}
		r.plan.SpinMicros = -1
		r.plan.CPUs = []int{0}
	}).start()
	for i := range 500 {
		r.arrive(0, numbered(i, 60), framework.Packet{}, 0)
	}
	r.until("all delivered", func() bool { return len(r.deliveries(0)) == 500 })
	p := r.plan
	p.RxQueues = 1
	runtime.GOMAXPROCS(1)
	if _, err := r.e.Change(context.Background(), p); !errors.Is(err, ErrPlan) {
		t.Errorf("one processor for a poller and the rest: %v", err)
	}
	r.finish()
}

// TestWithoutInterrupts: receive and transmit get on without any, and transmit
// with none of its own; no tick is needed, and an idle queue holds nothing.
func TestWithoutInterrupts(t *testing.T) {
	for _, vectors := range []int{0, 2} {
		r := newRig(t, 1, func(r *rig) {
			r.dev.mute, r.dev.autoTx = true, false
			r.plan.Interrupts.TxVector = []int{-1}
			if vectors == 0 {
				r.plan.Interrupts = framework.VectorPlan{}
			}
		}).start()
		for i := range 20 {
			r.arrive(0, numbered(i, 60), framework.Packet{}, 0)
			r.up.frame(0, framework.Packet{}, 0, numbered(i, 60))
			r.until("given to the device", func() bool { return r.txCount(0, TxPackets) == uint64(i+1) })
			r.dev.finish(0, 1)
			r.until("back", func() bool { return r.txCount(0, TxCompleted) == uint64(i+1) })
		}
		r.until("all delivered", func() bool { return len(r.deliveries(0)) == 20 })
		r.finish()
	}
}

// TestCountersOutliveAnEngine: the page of an engine that died goes on, and what
// was in flight is dropped.
func TestCountersOutliveAnEngine(t *testing.T) {
	mem := make([]byte, CountersSize(1, 1))
	r := newRig(t, 1, func(r *rig) { r.opts.Counters = mem }).start()
	r.dev.mu.Lock()
	r.dev.hangs[0] = true
	r.dev.mu.Unlock()
	r.arrive(0, numbered(1, 60), framework.Packet{}, 0)
	r.up.frame(0, framework.Packet{}, 0, numbered(1, 60))
	r.until("both ways", func() bool { return r.rxCount(0, RxPackets) == 1 && r.txCount(0, TxInFlight) == 1 })
	copied := make([]byte, len(mem))
	for i, words := 0, bus.Words64(mem); i < len(words); i++ {
		bus.Words64(copied)[i].Store(words[i].Load())
	}
	r.finish()

	s, err := ReadCounters(copied, 1, 1)
	if err != nil || s.Torn || Check(s) != nil || s.Tx[0][TxInFlight] != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	p, err := openPage(copied, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	q := newTxQueue(0, r.up, r.opts.Buffers, BufferRange{}, p.tx[0])
	if q.count[TxDropStopped] != 1 {
		t.Error("what was in flight is not accounted for")
	}
	s, _ = ReadCounters(copied, 1, 1)
	if err := Check(s); err != nil || s.Rx[0][RxPackets] != 1 {
		t.Errorf("%v, %+v", err, s)
	}
}

// TestDeathWhileCounting: wherever an engine dies while it stores a batch's counters,
// those of the next add up, and none goes back.
func TestDeathWhileCounting(t *testing.T) {
	var rx [2][numRxCounters]uint64
	rx[0] = [numRxCounters]uint64{RxPackets: 30, RxAccepted: 28, RxDelivered: 20, RxSoftwareCoalesced: 2, RxSoftwareSegments: 10, RxDropCRC: 1, RxDropPortFull: 1}
	rx[1] = [numRxCounters]uint64{RxPackets: 94, RxAccepted: 88, RxDelivered: 60, RxSoftwareCoalesced: 13, RxSoftwareSegments: 41, RxDropCRC: 2, RxDropPortFull: 4}
	var tx [2][numTxCounters]uint64
	tx[0] = [numTxCounters]uint64{TxTaken: 30, TxCompleted: 20, TxInFlight: 8, TxDropMalformed: 1, TxDropLinkDown: 1}
	tx[1] = [numTxCounters]uint64{TxTaken: 94, TxCompleted: 80, TxInFlight: 3, TxDropMalformed: 2, TxDropLinkDown: 9}
	for k := range max(int(numRxCounters), int(numTxCounters)) + 1 {
		mem := make([]byte, CountersSize(1, 1))
		p, err := openPage(mem, 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		tear := func(b block, i int, before, after uint64) {
			if i >= k {
				after = before
			}
			b.counter(i).Store(after)
		}
		for i := range numRxCounters {
			tear(p.rx[0], int(i), rx[0][i], rx[1][i])
		}
		for i := range numTxCounters {
			tear(p.tx[0], int(i), tx[0][i], tx[1][i])
		}
		p.rx[0].words[0].Store(1)
		was, _ := ReadCounters(mem, 1, 1)
		r := newRig(t, 1, func(r *rig) { r.opts.Counters = mem })
		s := r.e.Counters()
		if err := Check(s); err != nil || s.Torn || s.Tx[0][TxInFlight] != 0 {
			t.Errorf("%d words stored: torn %v, %d in flight, %v", k, s.Torn, s.Tx[0][TxInFlight], err)
		}
		for i, n := range s.Rx[0] {
			if n < was.Rx[0][i] {
				t.Errorf("%d words stored: %s goes back", k, RxCounters[i].Name)
			}
		}
		for i, n := range s.Tx[0] {
			if n < was.Tx[0][i] && TxCounter(i) != TxInFlight {
				t.Errorf("%d words stored: %s goes back", k, TxCounters[i].Name)
			}
		}
		r.finish()
	}
}

func TestReadCountersDoesNotTrust(t *testing.T) {
	if _, err := ReadCounters(make([]byte, CountersSize(1, 1)), 1, 1); !errors.Is(err, ErrCounters) {
		t.Errorf("empty page: %v", err)
	}
	if _, err := ReadCounters(make([]byte, 100), 8, 8); !errors.Is(err, ErrCounters) {
		t.Errorf("short page: %v", err)
	}
	mem := make([]byte, CountersSize(2, 1))
	if _, err := openPage(mem, 2, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadCounters(mem, 1, 1); !errors.Is(err, ErrCounters) {
		t.Errorf("another layout: %v", err)
	}
	words := bus.Words64(mem)
	words[headerWords+deviceWords].Store(1) // a writer that never ends
	if s, err := ReadCounters(mem, 2, 1); err != nil || !s.Torn {
		t.Errorf("torn block: %v %v", s.Torn, err)
	}
}

// TestCatalogue: every counter is described, once.
func TestCatalogue(t *testing.T) {
	seen := map[string]bool{}
	for _, table := range [][]CounterInfo{DeviceCounters[:], RxCounters[:], TxCounters[:]} {
		for i, c := range table {
			if c.Name == "" || c.Doc == "" || seen[c.Name] {
				t.Errorf("counter %d: %+v", i, c)
			}
			seen[c.Name] = true
		}
	}
	for r := framework.DropCRC; r < framework.NumDropReasons; r++ {
		info := TxCounters[TxDrop(r)]
		if r <= framework.DropPortFull {
			info = RxCounters[RxDrop(r)]
		}
		if want := strings.Replace(r.String(), "x_", "x_drop_", 1); info.Name != want {
			t.Errorf("%v is counted as %s", r, info.Name)
		}
	}
}

// TestConservation does everything at once, by a seed: errors, floods, an upper
// side that is full or keeps buffers, a ring that is full, faults, resets, changes
// of everything. At the end every packet and every buffer is accounted for, and so
// they are at each look in between.
func TestConservation(t *testing.T) {
	for range 3 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) { conservation(t, seed) })
	}
}

func conservation(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 3))
	r := newRig(t, 2, func(r *rig) {
		r.resettable = seed%2 == 0
		r.opts.SeparateTasks = seed%3 == 0
		r.plan.TxDescriptors = 48
		r.dev.autoTx = false
		r.opts.Quirks.Set("min-frame", "60")
	})
	r.up.record = false
	r.start()
	streams, ring := newStreams(), r.plan.RxDescriptors
	for i := range 3000 {
		q := rnd.IntN(2)
		switch rnd.IntN(14) {
		case 0, 1, 2:
			p := framework.Packet{Error: framework.DropReason(rnd.IntN(5))}
			r.dev.receive(q, numbered(i, 14+rnd.IntN(4000)), p, 500+rnd.IntN(1500))
		case 3, 4, 5:
			for range rnd.IntN(100) {
				s := streams[rnd.IntN(3)]
				p := framework.Packet{Flags: framework.PacketFlags(rnd.IntN(2)) * framework.ChecksumVerified}
				if rnd.IntN(9) == 0 {
					p.Flags |= framework.Coalesced
					p.Segments = uint16(rnd.IntN(5))
				}
				r.dev.receive(q, s.next(1460, 0x10), p, 0)
				s.sent = nil
			}
		case 6, 7:
			for range rnd.IntN(20) {
				r.up.frame(q, framework.Packet{VLAN: 5, Flags: framework.PacketFlags(rnd.IntN(2)) * framework.VLANTag},
					uint32(rnd.IntN(8)), numbered(i, 14+rnd.IntN(1600)))
			}
		case 8:
			f := tcpFrame(1+rnd.IntN(8000), uint32(i), 0x10)
			var pieces [][]byte
			for at := 0; at < len(f); {
				n := min(1+rnd.IntN(2000), len(f)-at)
				pieces = append(pieces, f[at:at+n])
				at += n
			}
			if len(pieces) < framework.MaxFragments {
				r.up.frame(q, tso(f, uint16(rnd.IntN(1500))), 16, pieces...)
			}
		case 9:
			r.dev.finish(q, rnd.IntN(50))
		case 10:
			r.up.mu.Lock()
			r.up.accept = rnd.IntN(80) - 10
			r.up.keep = rnd.IntN(2) == 0
			r.up.mu.Unlock()
			r.up.giveBack(q)
		case 11:
			if rnd.IntN(20) == 0 {
				r.dev.raiseAdmin(framework.Events{QueueFault: uint64(rnd.IntN(4)), DeviceFault: rnd.IntN(3) == 0})
			}
			if err := Check(r.e.Counters()); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, i, err)
			}
		case 12:
			r.dev.mu.Lock()
			if r.dev.running && rnd.IntN(10) == 0 {
				r.dev.rx[q].verdict = framework.QueueFault
			}
			if r.dev.running && rnd.IntN(10) == 0 {
				r.dev.rx[q].twice = true
			}
			r.dev.mu.Unlock()
		case 13:
			if rnd.IntN(5) > 0 {
				continue
			}
			p := r.plan
			p.LRO = framework.LROOwner(rnd.IntN(4))
			p.MTU = 1000 + rnd.IntN(3000)
			p.Features = framework.Features(rnd.Uint32()) & framework.AllFeatures
			if !p.Features.Has(framework.RxChecksum) {
				p.Features &^= framework.LRO // see checkPlan
			}
			p.RxBudget = 1 + rnd.IntN(100)
			p.RxDescriptors = 64 + rnd.IntN(400)
			if rnd.IntN(2) == 0 {
				p.RxDescriptors = ring
			}
			r.dev.mu.Lock()
			r.dev.effect = framework.Effect(rnd.IntN(3))
			r.dev.mu.Unlock()
			if _, err := r.e.Change(context.Background(), p); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, i, err)
			}
			ring = p.RxDescriptors
		}
	}
	r.finish()
	s := r.e.Counters()
	if s.Rx[0][RxSoftwareCoalesced]+s.Rx[1][RxSoftwareCoalesced] == 0 || s.Tx[0][TxTSOChopped] == 0 || s.Device[DeviceResets] == 0 {
		t.Errorf("seed %d: the test reached too little: %s", seed, r.dump())
	}
}

// TestRetiredQueue: what waits for a transmit queue that a change takes out of
// use is dropped and counted, and its buffers go back.
func TestRetiredQueue(t *testing.T) {
	r := newRig(t, 2, nil).start()
	r.e.stopTasks() // so that nobody fetches it before the change
	for range 5 {
		r.up.frame(1, framework.Packet{}, 0, numbered(1, 60))
	}
	p := r.e.plan
	p.RxQueues, p.TxQueues = 1, 1
	if _, err := r.e.Change(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	if n := r.txCount(1, TxDropStopped); n != 5 {
		t.Errorf("%d packets of the retired queue were dropped, want 5", n)
	}
	for range 7 {
		r.up.frame(1, framework.Packet{}, 0, numbered(1, 60))
	}
	p.RxDescriptors = 128 // another restart, with the queue out of use all along
	if _, err := r.e.Change(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	p.RxQueues, p.TxQueues = 2, 2
	if _, err := r.e.Change(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	r.until("all is accounted for", func() bool {
		return r.txCount(1, TxTaken) == 12 && r.txCount(1, TxInFlight) == 0 &&
			r.txCount(1, TxCompleted)+r.txCount(1, TxDropStopped) == 12
	})
	r.finish()
}

// TestDetachOfAStuckDriver: a driver that does not return from a control call keeps
// the engine from ending in time. That is said, and all goes on as before, so that
// nobody takes away the memory; when the driver returns the engine ends by itself.
func TestDetachOfAStuckDriver(t *testing.T) {
	before := runtime.NumGoroutine()
	r := newRig(t, 1, nil).start()
	stuck := make(chan struct{})
	r.dev.mu.Lock()
	r.dev.stuck = stuck
	r.dev.mu.Unlock()
	r.dev.raiseAdmin(framework.Events{DeviceFault: true, Reason: "on fire"}) // whose reset is not to happen any more
	r.until("the driver has the turn", func() bool { return len(r.e.turn) == 1 })
	for range 2 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		err := r.e.Detach(ctx)
		cancel()
		if !errors.Is(err, ErrEnding) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("detach: %v", err)
		}
	}
	had := len(r.deliveries(0))
	r.arrive(0, numbered(1, 60), framework.Packet{}, 0)
	r.until("packets flow", func() bool { return len(r.deliveries(0)) == had+1 })
	close(stuck)
	if err := r.e.Detach(context.Background()); err != nil {
		t.Errorf("detach: %v", err)
	}
	r.audit()
	if r.dev.running || r.dev.stops != 1 || r.dev.detached != 1 {
		t.Errorf("%d stops, detached %d times", r.dev.stops, r.dev.detached)
	}
	if err := r.e.Detach(context.Background()); !errors.Is(err, ErrState) {
		t.Errorf("detach of what has ended: %v", err)
	}
	r.until("all goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
}
