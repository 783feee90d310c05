package engine

import (
	"context"
	"time"

	"nicd/framework"
)

// This file is what happens after a fault: a reset of the queue, of the device, or the
// end.

// fault is something that takes a reset.
type fault struct {
	queue  int  // if neither of the following
	device bool // the device has to be reset
	gone   bool // nobody answers
	cause  DeviceCounter
	reason string
}

// maxFaults bounds the faults that wait: more say nothing new.
const maxFaults = 64

// report tells the admin task of a fault. Any goroutine may call it.
func (e *Engine) report(f fault) {
	a := &e.admin
	if f.cause == 0 {
		f.cause = ResetsByDeviceFault
	}
	a.mu.Lock()
	if len(a.faults) < maxFaults {
		a.faults = append(a.faults, f)
	}
	a.mu.Unlock()
	e.wakeAdmin()
}

// reportVerdict tells the admin task what a poll said of queue q.
func (e *Engine) reportVerdict(q int, v framework.Verdict) {
	switch v {
	case framework.QueueFault:
		e.report(fault{queue: q, cause: ResetsByQueueFault, reason: "receive queue fault"})
	case framework.DeviceFault:
		e.report(fault{device: true, reason: "receive found a device fault"})
	default:
		e.report(fault{gone: true, reason: "no answer to a poll"})
	}
}

func (a *adminTask) takeFaults() []fault {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.faults
	a.faults = nil
	return f
}

func faultsOf(ev framework.Events) []fault {
	var faults []fault
	if ev.Gone {
		faults = append(faults, fault{gone: true, reason: ev.Reason})
	}
	if ev.DeviceFault {
		faults = append(faults, fault{device: true, cause: ResetsByDeviceFault, reason: ev.Reason})
	}
	for q := range 64 {
		if ev.QueueFault&(1<<q) != 0 {
			faults = append(faults, fault{queue: q, cause: ResetsByQueueFault, reason: ev.Reason})
		}
	}
	return faults
}

// recover does the most thorough of what the faults ask for.
func (e *Engine) recover(ctx context.Context, faults []fault) {
	var device *fault
	for i := range faults {
		f := &faults[i]
		if f.gone {
			e.abandon(f.reason)
			return
		}
		if f.device {
			device = f
		}
	}
	if device != nil {
		e.resetDevice(ctx, *device)
		return
	}
	seen := uint64(0)
	for _, f := range faults {
		if f.queue >= max(e.plan.RxQueues, e.plan.TxQueues) || seen&(1<<f.queue) != 0 {
			continue
		}
		seen |= 1 << f.queue
		if !e.resetQueue(f) {
			e.resetDevice(ctx, f)
			return
		}
	}
}

// resetQueue resets one queue pair while the others run, and tells whether the
// driver could.
func (e *Engine) resetQueue(f fault) bool {
	r, ok := e.dev.(framework.QueueResetter)
	if !ok {
		return false
	}
	q := f.queue
	tasks := e.tasksOf(q)
	for _, t := range tasks {
		t.stop()
	}
	rx, tx, err := r.ResetQueue(q)
	hasRx, hasTx := q < e.plan.RxQueues, q < e.plan.TxQueues
	if err != nil || hasRx && rx == nil || hasTx && tx == nil {
		e.opts.Log.Warn().Err(err).Int("queue", q).Msg("queue reset failed; the device is reset")
		return false
	}
	if hasRx {
		e.rx[q].stop()
		e.startRx(q, rx)
	}
	if hasTx {
		e.tx[q].stop()
		e.tx[q].start(tx, e.plan.TxDescriptors)
		e.page.tx[q].counter(int(TxQueueResets)).Add(1)
	}
	e.page.add(QueueResets, 1)
	e.page.add(f.cause, 1)
	e.opts.Log.Warn().Int("queue", q).Str("reason", f.reason).Msg("queue was reset")
	e.emit(Event{Kind: QueueReset, Queue: q, Reason: f.reason})
	for _, t := range tasks {
		t.start()
	}
	return true
}

// resetTimeout bounds how long a driver may take to stop a device.
const resetTimeout = 10 * time.Second

// restartTries is how often a device that does not come up is reset again.
const restartTries = 3

// resetDevice stops the device and starts it by the same plan.
func (e *Engine) resetDevice(ctx context.Context, f fault) {
	ctx, cancel := context.WithTimeout(ctx, resetTimeout)
	defer cancel()
	p := e.plan
	e.watch.lastReset = e.opts.Now()
	e.page.add(DeviceResets, 1)
	e.page.add(f.cause, 1)
	e.opts.Log.Warn().Str("reason", f.reason).Msg("device is reset")
	if err := e.halt(ctx); err != nil {
		e.opts.Log.Warn().Err(err).Msg("reset")
	}
	var err error
	for range restartTries {
		if e.ending.begun.Load() {
			return // somebody waits for the end
		}
		if err = e.run(ctx, p); err == nil {
			e.emit(Event{Kind: DeviceReset, Reason: f.reason})
			return
		}
		e.page.add(FailedResets, 1)
	}
	e.lose("does not start after a reset (" + f.reason + "): " + err.Error())
}

// abandon gives up a device that does not answer.
func (e *Engine) abandon(reason string) {
	ctx, cancel := context.WithTimeout(context.Background(), resetTimeout)
	defer cancel()
	if err := e.halt(ctx); err != nil {
		e.opts.Log.Warn().Err(err).Msg("device is gone")
	}
	e.lose(reason)
}

// lose makes a stopped engine a lost one.
func (e *Engine) lose(reason string) {
	e.state = lost
	e.linkUp.Store(false)
	e.link = framework.Link{}
	e.opts.Log.Error().Str("reason", reason).Msg("device is lost")
	e.emit(Event{Kind: DeviceLost, Reason: reason})
}
