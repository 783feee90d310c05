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
	if r.cfg.Interrupts.Kind == bus.INTx {
		switch pending := d.regs.vd.Read32(regICR); pending {
		case 0:
			return framework.Cause{}
		case bus.Gone:
			return framework.Cause{Gone: true}
		}
	}
	switch d.mask {
	case maskAuto:
		vec.Fired()
	case maskActive:
		d.Mask(v)
	}
	cause := vec.Cause
	cause.Admin = cause.Admin && r.shared.driver.load(dsEvents) != 0
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

// Admin handles the events that the device has set, and looks whether the device
// is still there and still works in the same way.
func (d *device) Admin() framework.Events {
	if d.regs.gone() {
		return framework.Events{Gone: true, Reason: "device does not answer"}
	}
	var e framework.Events
	if d.running {
		d.events(&e)
		d.run.brokenQueues(&e)
	}
	if m := d.currentMode(); m != d.mode {
		d.log.Info().Str("was", d.mode).Str("is", m).Msg("device changed its mode")
		d.mode = m
		e.ModeChanged = true
	}
	return e
}

func (d *device) events(e *framework.Events) {
	r := d.run
	events := r.shared.driver.load(dsEvents)
	if events == 0 {
		return
	}
	d.regs.vd.Write32(regECR, events)
	e.LinkChanged = events&eventLink != 0
	if events&(eventRxQueue|eventTxQueue) == 0 {
		return
	}
	d.regs.command(cmdQueueStatus)
	r.stopped(e, "transmit", r.shared.tx)
	r.stopped(e, "receive", r.shared.rx)
	if e.QueueFault == 0 {
		e.DeviceFault, e.Reason = true, "queue error, but no queue has stopped"
	}
}

// stopped adds the queues that the device has stopped.
func (r *run) stopped(e *framework.Events, kind string, queues []area) {
	for q, desc := range queues {
		if desc.load(qdStopped)&0xFF != 0 {
			r.fault(e, q, fmt.Sprintf("%s queue %d stopped: %s", kind, q, stopReason(desc.load(qdError))))
		}
	}
}

// brokenQueues adds the transmit queues whose completions made no sense.
func (r *run) brokenQueues(e *framework.Events) {
	for q := range r.tx {
		if r.tx[q].broken.Load() {
			r.fault(e, q, fmt.Sprintf("transmit queue %d: completion of a descriptor that was not sent", q))
		}
	}
}

func (r *run) fault(e *framework.Events, queue int, reason string) {
	e.QueueFault |= 1 << queue
	if e.Reason != "" {
		reason = e.Reason + "; " + reason
	}
	e.Reason = reason
}

// stopReason spells the error of a queue that the device has stopped.
func stopReason(code uint32) string {
	const first = 1 << 31
	reasons := [...]string{
		"packet without end", "transmit descriptor reused", "packet too big", "descriptor not supported",
		"buffer too small", "stress option", "switch failure", "transmit descriptor invalid",
	}
	if n := code - first; code >= first && n < uint32(len(reasons)) {
		return reasons[n]
	}
	return fmt.Sprintf("error %#x", code)
}
