package vmxnet3

import (
	"fmt"

	"nicd/bus"
	"nicd/framework"
)

// muteVector is the vector of what is not to interrupt: the one after those that
// are used. It stays masked. (A completion always wants an interrupt, and without
// completions nobody knows what was sent.)
func muteVector(p *framework.VectorPlan) int { return p.Vectors }

// txVector is where the device signals that it has completed what a queue sent.
func txVector(p *framework.VectorPlan, queue int) int {
	if !p.TxInterrupts(queue) {
		return muteVector(p)
	}
	return p.Tx(queue)
}

// Interrupt acknowledges. Only INTx has to ask the device.
func (d *device) Interrupt(v int) framework.Cause {
	r := d.run
	vec := &r.vectors[v]
	if r.cfg.Interrupts.Kind == bus.INTx && d.regs.vd.Read32(regICR) == 0 {
		return framework.Cause{}
	}
	switch d.mask {
	case maskAuto:
		vec.Fired()
	case maskActive:
		d.Mask(v)
	}
	cause := vec.Cause
	cause.Admin = cause.Admin && r.shared.driver.events.Load() != 0
	return cause
}

// Mask keeps a vector from firing.
func (d *device) Mask(v int) {
	if d.run.vectors[v].Mask() {
		d.regs.pt.Write32(regIMR+regStride*uint32(v), 1)
	}
}

// Unmask lets a vector fire.
func (d *device) Unmask(v int) {
	d.run.vectors[v].Unmask()
	d.regs.pt.Write32(regIMR+regStride*uint32(v), 0)
}

// Admin handles the events that the device has set, and looks whether it still works
// in the same way.
func (d *device) Admin() (e framework.Events) {
	d.events(&e)
	if broken := d.run.broken.Load(); broken != 0 {
		e.Fault(broken, "transmit: completion of a descriptor that was not sent")
	}
	if m := d.regs.mode(); m != d.mode {
		d.mode, e.ModeChanged = m, true
	}
	return e
}

func (d *device) events(e *framework.Events) {
	r := d.run
	events := r.shared.driver.events.Load()
	if events == 0 {
		return
	}
	d.regs.vd.Write32(regECR, events)
	e.LinkChanged = events&eventLink != 0
	if events&(eventRxQueue|eventTxQueue) == 0 {
		return
	}
	d.regs.command(cmdQueueStatus)
	r.stopped(e, "transmit", r.txDescs())
	r.stopped(e, "receive", r.rxDescs())
	if e.QueueFault == 0 {
		e.DeviceFault, e.Reason = true, "queue error, but no queue has stopped"
	}
}

// stopped adds the queues that the device has stopped.
func (r *run) stopped(e *framework.Events, kind string, queues []queueDesc) {
	for q := range queues {
		if desc := &queues[q]; desc.stopped.Load()&0xFF != 0 {
			e.Fault(1<<q, "%s queue %d stopped: %s", kind, q, stopReason(desc.error.Load()))
		}
	}
}

// stopReasons are the errors of queues that the device has stopped, from firstReason
// on.
var stopReasons = [...]string{
	"packet without end", "transmit descriptor reused", "packet too big", "descriptor not supported",
	"buffer too small", "stress option", "switch failure", "transmit descriptor invalid",
}

const firstReason = 1 << 31

func stopReason(code uint32) string {
	if n := code - firstReason; n < uint32(len(stopReasons)) {
		return stopReasons[n]
	}
	return fmt.Sprintf("error %#x", code)
}
