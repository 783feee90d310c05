package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"nicd/bus"
	"nicd/framework"
)

// Start makes the device and the queues' tasks run by plan. When it fails,
// nothing runs and nothing is left behind.
func (e *Engine) Start(ctx context.Context, p Plan) error {
	if err := e.take(ctx, attached); err != nil {
		return err
	}
	defer e.give()
	e.info = e.dev.Info()
	if err := e.checkPlan(&p); err != nil {
		return err
	}
	return e.run(ctx, p)
}

// Stop halts the tasks and the device. Every packet on its way down is dropped
// and counted, and its buffers go back; receive buffers that the upper side has
// stay its own, and are reclaimed after the next start.
func (e *Engine) Stop(ctx context.Context) error {
	if err := e.take(ctx, attached, started, lost); err != nil {
		return err
	}
	defer e.give()
	if e.state != started {
		return nil
	}
	return e.halt(ctx)
}

// run brings the device up by a plan that was checked. The turn is held.
func (e *Engine) run(ctx context.Context, p Plan) (err error) {
	var undo []func()
	defer func() {
		for i := len(undo) - 1; err != nil && i >= 0; i-- {
			undo[i]()
		}
	}()
	if err := e.openVectors(&p); err != nil {
		return err
	}
	undo = append(undo, e.closeVectors, e.opts.Stopped)
	queues, err := e.dev.Start(e.config(&p))
	if err != nil {
		return fmt.Errorf("%s: start: %w", e.opts.Name, err)
	}
	undo = append(undo, func() { _ = e.dev.Stop(context.WithoutCancel(ctx)) })
	if len(queues.Rx) != p.RxQueues || len(queues.Tx) != p.TxQueues {
		return fmt.Errorf("%s: %w: driver started %d+%d queues of %d+%d", e.opts.Name, framework.ErrDevice,
			len(queues.Rx), len(queues.Tx), p.RxQueues, p.TxQueues)
	}
	e.plan = p
	e.adopt(queues)
	e.setRules(&p)
	e.setMergers(&p)
	e.makeTasks(&p)
	e.state = started
	e.readLink(true)
	e.startTasks()
	e.startVectors()
	return nil
}

// config is the part of a plan that is the driver's.
func (e *Engine) config(p *Plan) framework.Config {
	return framework.Config{
		Settings: p.Settings,
		RxQueues: p.RxQueues, TxQueues: p.TxQueues,
		RxDescriptors: p.RxDescriptors, TxDescriptors: p.TxDescriptors,
		Buffers:    e.opts.Buffers,
		Interrupts: p.Interrupts,
		Filters:    fitFilters(p.Filters, &e.info),
	}
}

// rxCapacity is how many buffers a receive queue's rings hold.
func (e *Engine) rxCapacity() int {
	n := max(e.info.RxRings, 1) * (e.plan.RxDescriptors - 1)
	if most := framework.RxRefillCapQuirk.Get(e.opts.Quirks); most > 0 {
		n = min(n, most)
	}
	return n
}

// adopt gives the driver's queues to the pipelines and fills the receive rings.
func (e *Engine) adopt(queues framework.Queues) {
	for q, dev := range queues.Rx {
		e.rx[q].setBudget(e.plan.budget())
		e.rx[q].forget = framework.ForgetCoalescedQuirk.Get(e.opts.Quirks)
		e.startRx(q, dev)
	}
	for q, dev := range queues.Tx {
		e.tx[q].start(dev, e.plan.TxDescriptors)
	}
	e.watch.forget()
}

func (e *Engine) startRx(q int, dev framework.RxQueue) {
	if e.rx[q].start(dev, e.rxCapacity()) {
		return
	}
	e.page.add(ShortOfBuffers, 1)
	e.opts.Log.Warn().Int("queue", q).Int("ring", e.rxCapacity()).Int("posted", e.rx[q].pool.posted).
		Msg("receive ring is not full: the queue has too few buffers")
}

// setRules tells the transmit queues what their packets must keep to.
func (e *Engine) setRules(p *Plan) {
	r := newTxRules(&e.info, p, e.opts.Quirks)
	for _, q := range e.tx[:p.TxQueues] {
		q.rules.Store(r)
	}
}

// setMergers gives each receive queue the software LRO that the plan's owner
// wants: with nobody or the device alone as owner, none exists, but for the unsafe
// quirk that has one made all the same.
func (e *Engine) setMergers(p *Plan) {
	forget := framework.ForgetCoalescedQuirk.Get(e.opts.Quirks)
	for _, q := range e.rx[:p.RxQueues] {
		if p.LRO == framework.LROSoftware || p.LRO == framework.LROHybrid || forget {
			q.wanted.Store(e.makeLRO(p.MTU, p.budget(), e.opts.Buffers))
		} else {
			q.wanted.Store(nil)
		}
	}
}

// makeTasks makes a task for each pair of queues, or each queue, and ties them
// to their vectors.
func (e *Engine) makeTasks(p *Plan) {
	e.rxTasks, e.txTasks, e.tasks = make([]*task, p.RxQueues), make([]*task, p.TxQueues), nil
	for q := range max(p.RxQueues, p.TxQueues) {
		var rx *rxQueue
		var tx *txQueue
		if q < p.RxQueues {
			rx = e.rx[q]
		}
		if q < p.TxQueues {
			tx = e.tx[q]
		}
		if e.opts.SeparateTasks && rx != nil && tx != nil {
			e.addTask(p, q, rx, nil)
			rx = nil
		}
		e.addTask(p, q, rx, tx)
	}
	for _, v := range e.vectors {
		v.tie(e, p)
	}
	for q := range max(len(e.rxTasks), len(e.txTasks)) {
		e.upper.SetWaker(q, waker(e.rxTasks, q), waker(e.txTasks, q))
	}
}

func (e *Engine) addTask(p *Plan, q int, rx *rxQueue, tx *txQueue) {
	t := newTask(q, rx, tx)
	t.place(p)
	t.pollRx = rx != nil && vectorOf(p.Interrupts.RxVector, q) < 0 && vectorOf(p.Interrupts.TxVector, q) < 0
	t.pollTx = tx != nil && vectorOf(p.Interrupts.TxVector, q) < 0
	e.tasks = append(e.tasks, t)
	if rx != nil {
		e.rxTasks[q] = t
	}
	if tx != nil {
		e.txTasks[q] = t
	}
}

// vectorOf is a queue's vector, -1 if it has none.
func vectorOf(vectors []int, q int) int {
	if q >= len(vectors) {
		return -1
	}
	return vectors[q]
}

func waker(tasks []*task, q int) func() {
	if q >= len(tasks) {
		return func() {}
	}
	t := tasks[q]
	return func() { t.schedule(byUpper) }
}

// tie finds the tasks that a vector serves. A queue without a vector is served
// with its partner.
func (v *vector) tie(e *Engine, p *Plan) {
	v.tasks = nil
	for q, t := range e.rxTasks {
		if n := vectorOf(p.Interrupts.RxVector, q); n == v.index || n < 0 && vectorOf(p.Interrupts.TxVector, q) == v.index {
			v.add(t)
		}
	}
	for q, t := range e.txTasks {
		if n := vectorOf(p.Interrupts.TxVector, q); n == v.index || n < 0 && vectorOf(p.Interrupts.RxVector, q) == v.index {
			v.add(t)
		}
	}
	for _, t := range v.tasks {
		for _, s := range v.tasks {
			if s != t {
				t.siblings = append(t.siblings, s)
			}
		}
	}
}

func (v *vector) add(t *task) {
	for _, have := range v.tasks {
		if have == t {
			return
		}
	}
	v.tasks = append(v.tasks, t)
	t.vectors = append(t.vectors, v)
}

func (e *Engine) startTasks() {
	for _, t := range e.tasks {
		t.start()
	}
}

func (e *Engine) stopTasks() {
	for _, t := range e.tasks {
		t.stop()
	}
}

// openVectors makes the vectors' events and has the bus signal them.
func (e *Engine) openVectors(p *Plan) error {
	n := p.Interrupts.Vectors
	if n == 0 {
		return nil
	}
	for i := range n {
		ev, err := bus.NewEvent()
		if err != nil {
			e.closeVectors()
			return err
		}
		e.events = append(e.events, ev)
		e.vectors = append(e.vectors, &vector{
			index: i, event: ev, device: e.dev, source: e.opts.Interrupts,
			kind: p.Interrupts.Kind, engine: e,
			masked: true, // as Start leaves it
		})
	}
	if err := e.opts.Interrupts.SetInterrupts(p.Interrupts.Kind, e.events); err != nil {
		e.closeVectors()
		return fmt.Errorf("%s: %d %s vectors: %w", e.opts.Name, n, p.Interrupts.Kind, err)
	}
	return nil
}

// startVectors begins to wait for interrupts. A vector without tasks is unmasked
// here, the others when their tasks are idle.
func (e *Engine) startVectors() {
	ctx, cancel := context.WithCancel(context.Background())
	e.stopWait = cancel
	for _, v := range e.vectors {
		e.waiters.Go(func() { v.wait(ctx) })
		v.release()
	}
}

// stopVectors ends waiting.
func (e *Engine) stopVectors() {
	if e.stopWait != nil {
		e.stopWait()
		e.stopWait = nil
	}
	e.waiters.Wait()
}

// closeVectors turns interrupts off at the bus.
func (e *Engine) closeVectors() {
	if len(e.events) == 0 {
		return
	}
	if err := e.opts.Interrupts.SetInterrupts(e.vectors[0].kind, nil); err != nil && !errors.Is(err, bus.ErrGone) {
		e.opts.Log.Warn().Err(err).Msg("interrupts off")
	}
	for _, ev := range e.events {
		_ = ev.Close()
	}
	e.events, e.vectors = nil, nil
}

// halt stops everything in the opposite order of run. The turn is held. It
// succeeds in stopping even when it reports an error.
func (e *Engine) halt(ctx context.Context) error {
	e.stopVectors()
	e.stopTasks()
	e.keepHardwareCounters()
	err := e.dev.Stop(ctx)
	for _, q := range e.rx[:e.plan.RxQueues] {
		q.stop()
	}
	for _, q := range e.tx[:e.plan.TxQueues] {
		q.stop()
	}
	e.opts.Stopped()
	e.closeVectors()
	e.tasks, e.rxTasks, e.txTasks = nil, nil, nil
	e.admin.takeFaults() // of what does not run any more
	e.state = attached
	if err != nil {
		return fmt.Errorf("%s: stop: %w", e.opts.Name, err)
	}
	return nil
}

// Change makes p the plan in force. Only what differs is touched: software LRO
// and the budget are the engine's own; for settings the driver says whether it
// has to be stopped. If it does and does not come up with p, it is started again
// with the old plan.
func (e *Engine) Change(ctx context.Context, p Plan) (framework.Effect, error) {
	if err := e.take(ctx, started); err != nil {
		return 0, err
	}
	defer e.give()
	effect, err := e.effect(&p)
	if err != nil {
		return 0, err
	}
	if effect == framework.Reset {
		return effect, e.restart(ctx, p)
	}
	return effect, e.applyLive(p, effect)
}

// Effect says what Change would take. It changes nothing.
func (e *Engine) Effect(ctx context.Context, p Plan) (framework.Effect, error) {
	if err := e.take(ctx, started); err != nil {
		return 0, err
	}
	defer e.give()
	return e.effect(&p)
}

// effect is what it takes to get from the plan in force to p: what the driver
// says, or more if the engine's own part in the change takes more.
func (e *Engine) effect(p *Plan) (framework.Effect, error) {
	if err := e.checkPlan(p); err != nil {
		return 0, err
	}
	if p.Restart || !sameLayout(&e.plan, p) {
		return framework.Reset, nil
	}
	effect, err := e.dev.Plan(p.Settings)
	if err != nil {
		return 0, err
	}
	if e.disturbs(p) {
		effect = max(effect, framework.Quiesce)
	}
	return effect, nil
}

// disturbs tells whether tasks have to be halted for a moment on the way to p:
// their queues hold packets that were prepared for other features or another MTU,
// or they run by another budget, spin or place. LRO is not among these: a queue
// takes over another coalescer between two batches.
func (e *Engine) disturbs(p *Plan) bool {
	return (p.Features^e.plan.Features)&^framework.LRO != 0 || p.MTU != e.plan.MTU || !samePace(&e.plan, p)
}

// samePace tells whether tasks run alike by two plans.
func samePace(a, b *Plan) bool {
	return a.budget() == b.budget() && a.SpinMicros == b.SpinMicros && slices.Equal(a.CPUs, b.CPUs)
}

// applyLive changes settings while the device runs. Halted for it is at most one
// queue pair at a time.
func (e *Engine) applyLive(p Plan, effect framework.Effect) error {
	if effect == framework.Quiesce {
		e.shed(&p)
	}
	if err := e.dev.Apply(p.Settings); err != nil {
		e.setRules(&e.plan)
		return err
	}
	if err := e.dev.SetFilters(fitFilters(p.Filters, &e.info)); err != nil {
		err = errors.Join(err, e.dev.Apply(e.plan.Settings))
		e.setRules(&e.plan)
		return err
	}
	old := e.plan
	e.plan = p
	if p.LRO != old.LRO || p.MTU != old.MTU || p.budget() != old.budget() {
		e.setMergers(&p)
	}
	e.setRules(&p)
	if !samePace(&old, &p) {
		e.eachPair(func(q int, tasks []*task) {
			if q < p.RxQueues {
				e.rx[q].setBudget(p.budget())
			}
			for _, t := range tasks {
				t.place(&p)
			}
		})
	}
	return nil
}

// shed brings each transmit queue to ask the device for nothing that p does not
// have. Until p is in force all of them keep to both plans.
func (e *Engine) shed(p *Plan) {
	both := e.plan
	both.Features &= p.Features
	both.MTU = min(e.plan.MTU, p.MTU)
	lost := e.plan.Features &^ p.Features
	r := newTxRules(&e.info, &both, e.opts.Quirks)
	e.eachPair(func(q int, _ []*task) {
		if q < p.TxQueues {
			e.tx[q].rules.Store(r)
			e.tx[q].forsake(lost)
		}
	})
}

// eachPair halts one queue pair after the other and calls change for it. The others
// go on meanwhile.
func (e *Engine) eachPair(change func(q int, tasks []*task)) {
	for q := range max(e.plan.RxQueues, e.plan.TxQueues) {
		tasks := e.tasksOf(q)
		for _, t := range tasks {
			t.stop()
		}
		change(q, tasks)
		for _, t := range tasks {
			t.start()
		}
	}
}

// restart stops the device and starts it with p, or with the old plan if that
// fails.
func (e *Engine) restart(ctx context.Context, p Plan) error {
	old := e.plan
	e.page.add(DeviceResets, 1)
	e.page.add(ResetsByChange, 1)
	if err := e.halt(ctx); err != nil {
		e.opts.Log.Warn().Err(err).Msg("stop for a change of settings")
	}
	err := e.run(ctx, p)
	if err == nil {
		for _, q := range e.tx[p.TxQueues:max(p.TxQueues, old.TxQueues)] {
			q.retire()
		}
		return nil
	}
	if again := e.run(ctx, old); again != nil {
		e.page.add(FailedResets, 1)
		e.lose("does not start after a failed change: " + again.Error())
		return errors.Join(err, again)
	}
	return err
}
