package e1000

import (
	"sync/atomic"

	"nicd/bus"
	"nicd/framework"
)

// maxVectors is how many MSI-X vectors the 82574 has.
const maxVectors = 5

// vector is an interrupt vector of a started device.
type vector struct {
	cause  framework.Cause // what it can mean
	bits   uint32          // its causes in ICR and IMS
	masked atomic.Bool
}

func newVectors(plan *framework.VectorPlan) []vector {
	all := make([]vector, plan.Vectors)
	for q := range plan.RxVector {
		v := &all[vectorOf(plan.RxVector, plan.TxVector, q)]
		v.cause.Rx |= 1 << q
		v.bits |= intRxQueue << q
	}
	for q := range plan.TxVector {
		v := &all[vectorOf(plan.TxVector, plan.RxVector, q)]
		v.cause.Tx |= 1 << q
		v.bits |= intTxQueue << q
	}
	admin := &all[plan.AdminVector]
	admin.cause.Admin = true
	admin.bits |= intOther | intLink
	if plan.Kind != bus.MSIX {
		all[0].bits = intUnnamed
	}
	for v := range all {
		all[v].masked.Store(true) // a reset has masked everything
	}
	return all
}

// Interrupt acknowledges. A queue's MSI-X vector needs no register: EIAC has
// cleared its causes and masked it when it fired.
func (d *device) Interrupt(v int) framework.Cause {
	vec := &d.run.vectors[v]
	if d.run.cfg.Interrupts.Kind != bus.MSIX {
		return d.unnamed(vec)
	}
	if vec.bits&intQueues != 0 {
		vec.masked.Store(true)
	}
	if !vec.cause.Admin {
		return vec.cause
	}
	cause := vec.cause
	icr := d.read(regICR)
	if icr == bus.Gone {
		return framework.Cause{Gone: true}
	}
	cause.Admin = icr&intLink != 0
	if others := icr &^ intQueues; others != 0 {
		d.write(regICR, others)
	}
	return cause
}

// unnamed reads, and by that clears, the one set of causes that there is without
// MSI-X.
func (d *device) unnamed(vec *vector) framework.Cause {
	icr := d.read(regICR)
	if icr == bus.Gone {
		return framework.Cause{Gone: true}
	}
	cause := framework.Cause{Admin: icr&intLink != 0}
	if icr&intRx != 0 {
		cause.Rx = vec.cause.Rx
	}
	if icr&intTx != 0 {
		cause.Tx = vec.cause.Tx
	}
	return cause
}

// Mask keeps a vector from firing, if it does not do so by itself.
func (d *device) Mask(v int) {
	vec := &d.run.vectors[v]
	if vec.masked.CompareAndSwap(false, true) {
		d.write(regIMC, vec.bits)
	}
}

// Unmask lets a vector fire, at once if a cause is there. It always writes: the
// vector may have fired, and masked itself, without anyone having seen it yet.
func (d *device) Unmask(v int) {
	vec := &d.run.vectors[v]
	vec.masked.Store(false)
	d.write(regIMS, vec.bits)
}
