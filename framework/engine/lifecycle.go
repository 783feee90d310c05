package engine

import (
	"context"
	"fmt"

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
		Fire:       e.fire,
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

// startRx starts a receive queue. A ring that is not full because buffers are above for
// now is filled as they come back; one that can't ever be full is worth a word.
func (e *Engine) startRx(q int, dev framework.RxQueue) {
	if e.rx[q].start(dev, e.rxCapacity()) || len(e.rx[q].pool.places) >= e.rxCapacity() {
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
