package engine

import (
	"context"
	"errors"
	"slices"

	"nicd/framework"
)

// This file is the way from one plan to another: what that takes, and doing it with
// as little as possible standing still.

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

// sameLayout tells whether two plans differ in nothing that takes a restart
// whatever the driver says.
func sameLayout(a, b *Plan) bool {
	if a.RxQueues != b.RxQueues || a.TxQueues != b.TxQueues ||
		a.RxDescriptors != b.RxDescriptors || a.TxDescriptors != b.TxDescriptors {
		return false
	}
	v, w := &a.Interrupts, &b.Interrupts
	return v.Kind == w.Kind && v.Vectors == w.Vectors && v.AdminVector == w.AdminVector && v.Moderation == w.Moderation &&
		slices.Equal(v.RxVector, w.RxVector) && slices.Equal(v.TxVector, w.TxVector)
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
	if p.InlineTx != old.InlineTx {
		e.setWakers(&p)
	}
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
