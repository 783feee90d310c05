package e1000

import (
	"nicd/bus"
	"nicd/framework"
)

// bits are a vector's causes in ICR, IMS and IMC.
func (r *run) bits(v *framework.Vector) (bits uint32) {
	if r.cfg.Interrupts.Kind != bus.MSIX {
		bits = intRx | intLink
		if v.Cause.Tx != 0 {
			bits |= intTx
		}
		return bits
	}
	bits = uint32(v.Cause.Rx)*intRxQueue | uint32(v.Cause.Tx)*intTxQueue
	if v.Cause.Admin {
		bits |= intOther | intLink
	}
	return bits
}

// Interrupt acknowledges. Without MSI-X, reading the causes clears them. The MSI-X
// vector of queues alone needs no register: when it fired, EIAC has cleared its causes
// and IAM has masked it.
func (d *device) Interrupt(v int) framework.Cause {
	vec := &d.run.vectors[v]
	cause, named := vec.Cause, d.run.cfg.Interrupts.Kind == bus.MSIX
	if named && !cause.Admin {
		vec.Fired()
		return cause
	}
	icr := d.read(regICR)
	cause.Admin = icr&intLink != 0
	if named {
		d.acknowledge(icr)
		return cause
	}
	if icr&intRx == 0 {
		cause.Rx = 0
	}
	if icr&intTx == 0 {
		cause.Tx = 0
	}
	return cause
}

// acknowledge clears the causes of MSI-X that have no queue.
func (d *device) acknowledge(icr uint32) {
	if others := icr &^ intQueues; others != 0 {
		d.write(regICR, others)
	}
	if queues := icr & intQueues; queues != 0 {
		// The read may have cleared what had not fired yet (Linux e1000e).
		d.write(regICS, queues)
	}
}

// Mask keeps a vector from firing.
func (d *device) Mask(v int) {
	vec := &d.run.vectors[v]
	if vec.Mask() {
		d.write(regIMC, d.run.bits(vec))
	}
}

// Unmask lets a vector fire, at once if a cause is there.
func (d *device) Unmask(v int) {
	vec := &d.run.vectors[v]
	vec.Unmask()
	d.write(regIMS, d.run.bits(vec))
}
