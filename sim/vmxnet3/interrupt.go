package vmxnet3

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"time"

	"nicd/bus"
	"nicd/sim"
)

// Moderation: the device's own choice of what the levels 1 to 7 mean, the least
// time between two interrupts of a vector. Level 8, adaptive, adapts to a
// driver that masks while it works, and so needs no time.
const (
	moderationStep  = 25 * time.Microsecond
	moderationMax   = 7
	staticHold      = 100 * time.Microsecond // longest wait for coalesced completions
	staticMaxDepth  = 128
	rbcMinRate      = 100
	rbcMaxRate      = 100_000
	coalesceOff     = 0
	coalesceAdapt   = 1
	coalesceStatic  = 2
	coalesceRBC     = 3
	coalesceSize    = 16
	varConfLen      = 4 // offsets in DriverShared.cu.cmdInfo as a varConf
	varConfPA       = 8
	coalMode        = 0 // offsets in Vmxnet3_CoalesceScheme
	coalRate        = 4
	coalTxCompDepth = 8
	coalRxDepth     = 12
)

// vector is what is known of one interrupt.
type vector struct {
	gap    time.Duration // least time between interrupts
	last   time.Duration // it fired
	first  time.Duration // the oldest completion that waits came
	events int           // completions that wait
	depth  int           // so many are worth an interrupt
}

// interrupts is the device's interrupt block. Its lock is taken with Host.Tx or
// Host.Rx held, which lets it read the driver's memory.
type interrupts struct {
	m *Model

	mu       sync.Mutex
	on       bool // the device is active
	autoMask bool
	pending  uint32
	vectors  [maxVectors]vector
	line     bool
	shared   uint64
}

// raise makes vector v pending for n completions and signals it if it may.
func (q *interrupts) raise(a *sim.Access, v, n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.on {
		return
	}
	c := &q.vectors[v]
	if c.depth > 1 && c.events == 0 {
		c.first = q.m.host.Now()
	}
	c.events += n
	q.pending |= 1 << v
	q.fire(a, v)
}

// urgent makes vector v pending without moderation.
func (q *interrupts) urgent(a *sim.Access, v int) { q.raise(a, v, staticMaxDepth) }

// poll signals what was held back by a mask or by moderation, and tells whether
// anything was.
func (q *interrupts) poll(a *sim.Access) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	before := q.pending
	for p := q.pending; p != 0; p &= p - 1 {
		q.fire(a, bits.TrailingZeros32(p))
	}
	return q.pending != before
}

// fire signals vector v unless something holds it back.
func (q *interrupts) fire(a *sim.Access, v int) {
	host := q.m.host
	imr := host.Doorbell(bellIMR + v)
	if imr&1 != 0 && q.line && q.m.opt.Variations.MaskForgets {
		q.sent(v)
		q.setLine(q.pending != 0)
	}
	if imr&1 != 0 || q.disabled(a) || !q.due(v) {
		return
	}
	kind, n := host.Interrupts()
	if kind == bus.INTx {
		q.setLine(n > 0 || q.line)
		return
	}
	// Masked before it is signalled, so that an unmask by the handler comes after.
	if q.autoMask && !host.SwapDoorbell(bellIMR+v, imr, imr|1) {
		return // the driver wrote it just now and rings: looked at again then
	}
	q.sent(v)
	host.Raise(v)
}

func (q *interrupts) disabled(a *sim.Access) bool {
	b := a.Bytes(q.shared+dsIntrCtrl, 4)
	return b == nil || bus.Word(b, 0).Load()&intrDisableAll != 0
}

// due tells whether moderation lets vector v go, and sees to it that it is
// looked at again if not.
func (q *interrupts) due(v int) bool {
	c := &q.vectors[v]
	if c.gap == 0 && c.depth <= 1 {
		return true
	}
	now := q.m.host.Now()
	at := c.last + c.gap
	if c.depth > 1 && c.events < c.depth {
		at = max(at, c.first+staticHold)
	}
	if now >= at {
		return true
	}
	q.m.host.WakeAt(at)
	return false
}

func (q *interrupts) sent(v int) {
	c := &q.vectors[v]
	q.pending &^= 1 << v
	c.events = 0
	if c.gap != 0 {
		c.last = q.m.host.Now()
	}
}

func (q *interrupts) setLine(on bool) {
	q.line = on
	q.m.host.SetLine(on)
}

// acknowledge is a read of ICR: it returns 1 if the line is asserted, and
// deasserts it. With automask the vectors that caused it are masked.
func (q *interrupts) acknowledge() uint32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.line {
		return 0
	}
	for p := q.pending; p != 0; p &= p - 1 {
		v := bits.TrailingZeros32(p)
		imr := q.m.host.Doorbell(bellIMR + v)
		if imr&1 != 0 {
			continue
		}
		if q.autoMask {
			q.m.host.SwapDoorbell(bellIMR+v, imr, imr|1)
		}
		q.sent(v)
	}
	q.setLine(false)
	return 1
}

// start makes the block work for an active device; stop ends that and forgets
// what is pending.
func (q *interrupts) start(shared uint64, s *shared) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.on, q.shared, q.autoMask = true, shared, s.autoMask
	q.setLevels(s.modLevels[:])
}

func (q *interrupts) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.on, q.pending = false, 0
	q.vectors = [maxVectors]vector{}
	if q.line {
		q.setLine(false)
	}
}

func (q *interrupts) setLevels(levels []uint8) {
	for i := range q.vectors {
		q.vectors[i].gap = 0
		if levels[i] <= moderationMax {
			q.vectors[i].gap = time.Duration(levels[i]) * moderationStep
		}
	}
}

// updateLevels is UPDATE_IML.
func (q *interrupts) updateLevels(levels []uint8) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.setLevels(levels)
}

// coalesce applies a Vmxnet3_CoalesceScheme to the vectors of the queues, and
// tells whether it is valid.
func (q *interrupts) coalesce(b []byte, rx, tx uint32) bool {
	le := binary.LittleEndian
	gap, rxDepth, txDepth := time.Duration(0), 0, 0
	switch le.Uint32(b[coalMode:]) {
	case coalesceOff, coalesceAdapt:
	case coalesceStatic:
		rxDepth, txDepth = int(le.Uint32(b[coalRxDepth:])), int(le.Uint32(b[coalTxCompDepth:]))
		if uint(rxDepth) > staticMaxDepth || uint(txDepth) > staticMaxDepth {
			return false
		}
	case coalesceRBC:
		rate := le.Uint32(b[coalRate:])
		if rate < rbcMinRate || rate > rbcMaxRate {
			return false
		}
		gap = time.Second / time.Duration(rate)
	default:
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for v := range q.vectors {
		c := &q.vectors[v]
		if (rx|tx)>>v&1 != 0 {
			c.gap, c.depth = gap, 0
		}
		if tx>>v&1 != 0 {
			c.depth = txDepth
		}
		if rx>>v&1 != 0 {
			c.depth = rxDepth
		}
	}
	return true
}
