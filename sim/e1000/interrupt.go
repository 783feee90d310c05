package e1000

import (
	"sync"
	"time"

	"nicd/bus"
)

// interrupts is the path from a cause to an interrupt: ICR and its masks,
// throttling, and the 82574L's vectors. Its lock is a leaf: it may be taken with
// any other held, and only the host's own are taken under it.
//
// When a message is sent (MSI, MSI-X) the documents leave open in part. Here a
// vector sends when the first of its causes becomes pending and unmasked, and
// again if an access that acknowledges or unmasks leaves one so: so nothing that
// happens between an acknowledgement and an unmasking is lost.
type interrupts struct {
	model *Model
	mu    sync.Mutex
	interruptState
}

// interruptState is what a reset clears.
type interruptState struct {
	icr, ims             uint32
	eiac, iam, ivar, ext uint32
	itr                  uint32
	eitr                 [maxVectors]uint32
	vectors              [maxVectors]vector // INTx and MSI use the first
	line                 bool
	asserted             uint32 // IAC: how many interrupts there were
	delays               delays
}

// vector is the state of one interrupt.
type vector struct {
	active bool          // a cause is pending and unmasked, and was told
	held   bool          // throttled: to be sent at next
	next   time.Duration // the earliest time of the next interrupt
}

func (q *interrupts) reset() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.interruptState = interruptState{line: q.line}
	q.deliver(0)
}

// is574 tells which chip's rules hold.
func (q *interrupts) is574() bool { return q.model.opt.Kind.is574() }

// raise sets causes in ICR at once.
func (q *interrupts) raise(causes uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.set(causes)
	q.deliver(0)
}

// set adds causes to ICR, and OTHER for those that it sums up.
func (q *interrupts) set(causes uint32) {
	if !q.is574() {
		q.icr |= causes & causes540
		return
	}
	sum := causes & otherCauses
	if q.ims&causeACK == 0 && !(q.model.opt.Variation.SpuriousACK && q.msix()) {
		sum &^= causeACK
	}
	if sum != 0 {
		causes |= causeOther
	}
	q.icr |= causes & causes574
}

func (q *interrupts) msix() bool {
	kind, n := q.model.host.Interrupts()
	return kind == bus.MSIX && n > 0
}

// deliver makes the interrupt outputs follow ICR and IMS. Pending causes in
// again interrupt even if their vector's software was told already.
func (q *interrupts) deliver(again uint32) {
	kind, n := q.model.host.Interrupts()
	if n > 0 && kind == bus.MSIX {
		q.setLine(false)
		for v := range q.vectors {
			q.deliverMessage(v, q.causesOf(v), again)
		}
		return
	}
	if n > 0 && kind == bus.MSI {
		q.setLine(false)
		q.deliverMessage(0, ^uint32(0), again)
		return
	}
	q.deliverLine()
}

// causesOf are the causes that IVAR gives to a vector.
func (q *interrupts) causesOf(v int) uint32 {
	var causes uint32
	for i, c := range ivarCauses {
		field := q.ivar >> (i * ivarFieldBits)
		if field&ivarValid != 0 && int(field&ivarVectorMask) == v {
			causes |= c
		}
	}
	return causes
}

func (q *interrupts) deliverMessage(v int, causes, again uint32) {
	pending := q.icr & q.ims & causes
	vec := &q.vectors[v]
	if pending == 0 {
		vec.active, vec.held = false, false
		return
	}
	if vec.active && pending&again == 0 && !vec.held {
		return
	}
	vec.active = true
	if !q.mayFire(v) {
		return
	}
	q.fired(v, causes)
	q.model.host.Raise(v)
}

// takeAsserted reads IAC of the 82574L.
func (q *interrupts) takeAsserted() uint32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.asserted
	q.asserted = 0
	if !q.is574() {
		return 0
	}
	return n
}

// fired does what sending a vector's message does to ICR and IMS.
func (q *interrupts) fired(v int, causes uint32) {
	q.asserted++
	q.flushDelays()
	if kind, _ := q.model.host.Interrupts(); kind != bus.MSIX {
		return
	}
	if q.ext&ctrlExtEIAME != 0 {
		q.ims &^= q.iam & causes
	}
	clear := q.eiac & causes
	if q.model.opt.Variation.EIACMasks && q.ext&ctrlExtIAME == 0 {
		q.ims &^= q.icr & clear
	}
	q.icr &^= clear
	q.vectors[v].active = q.icr&q.ims&causes != 0
}

func (q *interrupts) deliverLine() {
	if q.icr&q.ims == 0 {
		q.vectors[0].held = false
		q.setLine(false)
		return
	}
	if q.line || !q.mayFire(0) {
		return
	}
	q.flushDelays()
	q.asserted++
	q.setLine(true)
}

func (q *interrupts) setLine(on bool) {
	if q.line != on {
		q.line = on
		q.model.host.SetLine(on)
	}
}

// mayFire tells whether the throttle lets vector v interrupt now, and starts the
// next interval if so. If not, the vector is held until the interval ends.
func (q *interrupts) mayFire(v int) bool {
	vec := &q.vectors[v]
	interval := q.interval(v)
	if interval == 0 && vec.next == 0 {
		vec.held = false
		return true
	}
	now := q.model.host.Now()
	if interval != 0 && now < vec.next {
		vec.held = true
		q.model.schedule(vec.next)
		return false
	}
	vec.held, vec.next = false, 0
	if interval != 0 {
		vec.next = now + interval
	}
	return true
}

// interval is the least time between two interrupts of a vector.
func (q *interrupts) interval(v int) time.Duration {
	units := q.itr
	if q.is574() && q.msix() {
		units = q.eitr[v]
	}
	d := time.Duration(units&timerMask) * throttleUnit
	return max(d, q.model.opt.Variation.MinThrottle)
}

// timers looks at what is due.
func (q *interrupts) timers(now time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.expire(now)
	for v := range q.vectors {
		if vec := &q.vectors[v]; vec.held && vec.next > now {
			q.model.schedule(vec.next)
		}
	}
	q.deliver(0)
}

// setControl is a write of CTRL_EXT.
func (q *interrupts) setControl(value uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ext = value
}

// everyTx tells whether each transmit write-back interrupts (IVAR bit 31).
func (q *interrupts) everyTx() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.is574() && q.ivar&ivarEveryTx != 0
}
