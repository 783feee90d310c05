package engine

import (
	"context"
	"sync"
	"sync/atomic"

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

// release unmasks the vector if none of its tasks is busy.
func (v *vector) release() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.masked {
		return
	}
	for _, t := range v.tasks {
		if t.state.Load() != idle {
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
	if c.Gone {
		e.report(fault{gone: true, reason: "no answer to an interrupt"})
	}
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

// counter is a counter that others than the block's owner add to.
func (b block) counter(i int) *atomic.Uint64 { return &b.words[1+i] }
