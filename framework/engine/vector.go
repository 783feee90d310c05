package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"nicd/bus"
	"nicd/framework"
)

// Interrupter is the part of a bus.Device that delivers interrupts.
type Interrupter interface {
	SetInterrupts(kind bus.InterruptKind, events []*bus.Event) error
	UnmaskInterrupt(vector int) error
}

// vector is one interrupt vector and the goroutine that waits for it. An
// interrupt is acknowledged and masked, and the tasks that it names are
// scheduled; when all tasks of the vector are idle again it is unmasked.
type vector struct {
	index  int
	event  *bus.Event
	device framework.Device
	source Interrupter
	kind   bus.InterruptKind
	tasks  []*task // served by this vector
	engine *Engine

	mu     sync.Mutex // serialises the driver's calls for this vector
	masked bool
}

// wait serves the vector until ctx ends.
func (v *vector) wait(ctx context.Context) {
	for {
		if _, err := v.event.Wait(ctx); err != nil {
			if ctx.Err() == nil {
				v.engine.report(fault{device: true, reason: "interrupt " + err.Error()})
			}
			return
		}
		v.fire()
	}
}

// fire handles one interrupt.
func (v *vector) fire() {
	v.mu.Lock()
	cause := v.device.Interrupt(v.index)
	v.device.Mask(v.index)
	v.masked = true
	v.mu.Unlock()
	if v.kind == bus.INTx {
		// The bus had masked the line; the device is quiet now.
		_ = v.source.UnmaskInterrupt(v.index)
	}
	v.engine.interrupted(cause)
	v.release()
}

// fire is framework.Config.Fire. The vectors are there from before Start until after
// Stop.
func (e *Engine) fire(vector int) {
	if vector >= 0 && vector < len(e.events) {
		e.events[vector].Signal()
	}
}

// release unmasks the vector if none of its tasks is busy.
func (v *vector) release() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.masked {
		return
	}
	for _, t := range v.tasks {
		if s := t.state.Load(); s != idle && s != lent {
			return
		}
	}
	v.masked = false
	v.device.Unmask(v.index)
}

// interrupted counts a cause and schedules who is named.
func (e *Engine) interrupted(c framework.Cause) {
	e.page.add(Interrupts, 1)
	if c.None() {
		e.page.add(SpuriousInterrupts, 1)
		return
	}
	e.scheduleQueues(c.Rx, e.rxTasks, e.page.rx, int(RxInterrupts))
	e.scheduleQueues(c.Tx, e.txTasks, e.page.tx, int(TxInterrupts))
	if c.Admin {
		e.page.add(AdminInterrupts, 1)
		e.wakeAdmin()
	}
}

func (e *Engine) scheduleQueues(named uint64, tasks []*task, blocks []block, counter int) {
	for q, t := range tasks {
		if named&(1<<q) != 0 {
			blocks[q].counter(counter).Add(1)
			t.schedule(byInterrupt)
		}
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
