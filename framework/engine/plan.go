package engine

import (
	"fmt"
	"runtime"

	"nicd/bus"
	"nicd/framework"
)

// Plan is how an interface is to run: what nicd decided from config, quirks, the
// port's needs and the driver's Info.
type Plan struct {
	framework.Settings
	RxQueues, TxQueues           int
	RxDescriptors, TxDescriptors int
	Interrupts                   framework.VectorPlan
	Filters                      framework.Filters
	LRO                          framework.LROOwner // per effective features and quirks
	RxBudget                     int                // packets a poll; 0 is the default
	SpinMicros                   int                // how long an idle task looks before it sleeps
	CPUs                         []int              // per queue; nil leaves placement to the scheduler
	// InlineTx has a sender that finds a transmit task asleep do its work, as far
	// as Upper calls the waker of transmit in the sender's goroutine. Otherwise the
	// task does all of it: in iflib's words, senders abdicate.
	InlineTx bool
	// Restart has Change stop and start the device even if nothing in the plan
	// asks for that: a quirk has another value that drivers read at Start.
	Restart bool
}

// budget is a plan's receive budget.
func (p *Plan) budget() int {
	if p.RxBudget == 0 {
		return DefaultRxBudget
	}
	return p.RxBudget
}

// checkPlan says what in a plan the device, the buffers or this machine cannot
// do.
func (e *Engine) checkPlan(p *Plan) error {
	i := &e.info
	switch {
	case p.RxQueues < 1 || p.RxQueues > i.MaxRxQueues || p.RxQueues > len(e.rx) || p.RxQueues > 64:
		return fmt.Errorf("%w: %d receive queues; the device has %d, there are buffers for %d", ErrPlan, p.RxQueues, i.MaxRxQueues, len(e.rx))
	case p.TxQueues < 1 || p.TxQueues > i.MaxTxQueues || p.TxQueues > len(e.tx) || p.TxQueues > 64:
		return fmt.Errorf("%w: %d transmit queues; the device has %d", ErrPlan, p.TxQueues, i.MaxTxQueues)
	case p.MTU < i.MinMTU || i.MaxMTU > 0 && p.MTU > i.MaxMTU || p.MTU <= 0:
		return fmt.Errorf("%w: MTU %d; the device takes %d to %d", ErrPlan, p.MTU, i.MinMTU, i.MaxMTU)
	case p.Features&^i.Features != 0:
		return fmt.Errorf("%w: the device does not offer %v", ErrPlan, p.Features&^i.Features)
	case p.Features.Has(framework.LRO) && !p.Features.Has(framework.RxChecksum):
		// The sums of merged packets are stale: only the verdict is good.
		return fmt.Errorf("%w: a device that merges has to do rx-csum", ErrPlan)
	case p.Features.Has(framework.VLANInsert) && !p.Features.Has(framework.VLANStrip) && framework.VLANOneSwitchQuirk.Get(e.opts.Quirks):
		return fmt.Errorf("%w: a device with one switch for tags can't insert without stripping", ErrPlan)
	case p.RxBudget < 0 || p.RxBudget > maxRxBudget:
		return fmt.Errorf("%w: receive budget %d; it is at most %d", ErrPlan, p.RxBudget, maxRxBudget)
	}
	if err := checkRing("receive", p.RxDescriptors, i.RxRing); err != nil {
		return err
	}
	if err := checkRing("transmit", p.TxDescriptors, i.TxRing); err != nil {
		return err
	}
	if err := e.checkVectors(p); err != nil {
		return err
	}
	return checkPolling(p)
}

func checkRing(what string, n int, r framework.RingRule) error {
	if !r.Allows(n) || n < 2 {
		return fmt.Errorf("%w: %d %s descriptors; they are %v", ErrPlan, n, what, r)
	}
	return nil
}

func (e *Engine) checkVectors(p *Plan) error {
	v := &p.Interrupts
	if v.Vectors == 0 {
		return nil
	}
	if e.opts.Interrupts == nil {
		return fmt.Errorf("%w: %d vectors, but there are no interrupts", ErrPlan, v.Vectors)
	}
	if v.Kind == bus.INTx && v.Vectors != 1 {
		return fmt.Errorf("%w: INTx has one vector, not %d", ErrPlan, v.Vectors)
	}
	if len(v.RxVector) < p.RxQueues || len(v.TxVector) < p.TxQueues {
		return fmt.Errorf("%w: vectors are given for %d+%d queues of %d+%d", ErrPlan, len(v.RxVector), len(v.TxVector), p.RxQueues, p.TxQueues)
	}
	all := append(append([]int{v.AdminVector}, v.RxVector[:p.RxQueues]...), v.TxVector[:p.TxQueues]...)
	for _, n := range all {
		if n < -1 || n >= v.Vectors {
			return fmt.Errorf("%w: vector %d of %d", ErrPlan, n, v.Vectors)
		}
	}
	return nil
}

// checkPolling: a task that never sleeps takes a processor from the Go scheduler,
// which needs one for the rest. A task that sleeps must not be bound to a thread
// (waking it would take forty times as long), so it cannot be placed.
func checkPolling(p *Plan) error {
	if p.SpinMicros >= 0 {
		if p.CPUs != nil {
			return fmt.Errorf("%w: only tasks that poll all the time can be placed on processors", ErrPlan)
		}
		return nil
	}
	if p.InlineTx {
		return fmt.Errorf("%w: tasks that poll all the time leave nothing for senders to do inline", ErrPlan)
	}
	pollers := max(p.RxQueues, p.TxQueues)
	if procs := runtime.GOMAXPROCS(0); procs < pollers+1 {
		return fmt.Errorf("%w: %d queues poll all the time, so GOMAXPROCS has to be %d or more; it is %d", ErrPlan, pollers, pollers+1, procs)
	}
	if p.CPUs != nil && len(p.CPUs) < pollers {
		return fmt.Errorf("%w: %d processors for %d queues", ErrPlan, len(p.CPUs), pollers)
	}
	return nil
}
