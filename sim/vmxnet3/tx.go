package vmxnet3

import (
	"sync/atomic"
	"time"

	"nicd/bus"
	"nicd/sim"
)

const (
	txBatch    = 64                          // frames that are sent at a time
	txBatchSG  = txBatch * (maxTxPacket + 2) // parts of theirs
	minTxFrame = sim.EthernetHeaderLen
	// deferredLook is how often a device that lets its driver defer bells looks
	// by itself (V9).
	deferredLook = time.Millisecond
)

// transmitter is the transmit half of the device.
type transmitter struct {
	m        *Model
	queues   [maxTxQueues]txQueue
	counters [maxTxQueues]txCounters
	// A receiver had no room: nothing is sent until resumed, and then the queue
	// that was refused goes first.
	blocked *txQueue
	resumed atomic.Bool
	turn    int
	look    time.Duration // for packets without a bell, at that time; 0 is never

	frames [txBatch]sim.Frame
	sent   [txBatch]txPacket
	tags   [txBatch][sim.VLANTagLen]byte
	parts  [][]byte
}

// txQueue is one transmit queue.
type txQueue struct {
	id      int
	desc    uint64 // TxQueueDesc
	base    uint64
	size    int
	next    int
	gen     uint32 // txGen or 0
	comp    completion
	intr    int
	on      bool
	stopped bool
	hung    bool
	err     uint32
	view    []byte
	done    int // completions of this pass
}

// txPacket is what is remembered of a packet that is being sent.
type txPacket struct {
	index int // of its last descriptor
	descs int
	comp  bool
	tso   bool
	drop  bool // counted as an error, not sent
}

func (t *transmitter) init() { t.parts = make([][]byte, 0, txBatchSG+maxTSOPacket+2) }

func (t *transmitter) start(i int, c txConfig, desc uint64) {
	t.queues[i] = txQueue{
		id: i, desc: desc, base: c.ring.base, size: c.ring.size, gen: txGen, intr: c.intr, on: true,
		comp: completion{base: c.comp.base, size: c.comp.size, gen: compGen},
	}
	t.m.host.SetDoorbell(bellTXPROD+i, 0)
}

func (t *transmitter) stop() {
	for i := range t.queues {
		t.queues[i] = txQueue{}
	}
	t.blocked, t.look = nil, 0
	if t.m.port != nil {
		t.m.port.Abandon()
	}
}

// work sends up to budget frames of each queue and tells whether it did
// anything. Queues take turns in going first.
func (t *transmitter) work(budget int) bool {
	if !t.m.active || t.m.port == nil {
		return false
	}
	if t.blocked != nil {
		if !t.resumed.Swap(false) {
			return false
		}
		q := t.blocked
		t.blocked = nil
		t.run(q, budget)
		if t.blocked != nil {
			return true
		}
	}
	did := false
	n := t.m.shared.txQueues
	for i := range n {
		q := &t.queues[(t.turn+i)%n]
		if t.m.active && q.on && !q.stopped && !q.hung && t.pending(q) && t.run(q, budget) {
			did = true
		}
		if t.blocked != nil {
			break
		}
	}
	t.turn++
	return t.lookAround(budget) || did
}

// expectDeferred has the device look for deferred packets soon.
func (t *transmitter) expectDeferred() {
	t.look = t.m.host.Now() + deferredLook
	t.m.host.WakeAt(t.look)
}

// lookAround sends what the driver has deferred, when it is time to.
func (t *transmitter) lookAround(budget int) (did bool) {
	if t.look == 0 {
		return false
	}
	if t.m.host.Now() < t.look {
		t.m.host.WakeAt(t.look) // the wake-up that came was for an earlier look
		return false
	}
	for i := range t.m.shared.txQueues {
		q := &t.queues[i]
		if t.blocked != nil || !q.on || q.stopped || q.hung {
			continue
		}
		if b := t.m.host.Tx.Bytes(q.desc+qdTxDeferred, 4); b == nil || bus.Word(b, 0).Load() == 0 {
			continue
		}
		did = t.run(q, budget) || did
	}
	t.expectDeferred()
	return did
}

// pending tells whether the driver's producer index is ahead. An index that is
// none stands for all that the generation bits hand over.
func (t *transmitter) pending(q *txQueue) bool {
	return t.m.host.Doorbell(bellTXPROD+q.id) != uint32(q.next)
}

// run sends from one queue and tells whether it got anywhere.
func (t *transmitter) run(q *txQueue, budget int) bool {
	a := &t.m.host.Tx
	q.view = a.Bytes(q.base, q.size*descSize)
	q.comp.view = a.Bytes(q.comp.base, q.comp.size*descSize)
	if q.view == nil || q.comp.view == nil {
		t.halt(q, errTxDescInvalid)
		return true
	}
	did := false
	for budget > 0 && t.blocked == nil && !q.stopped {
		n, failure := t.collect(q, min(budget, txBatch))
		if n > 0 {
			did = true
			t.send(q, n)
			budget -= n
		}
		if failure != 0 && t.blocked == nil {
			did = true
			t.fail(q, failure)
		}
		if n == 0 {
			break
		}
	}
	if q.done > 0 {
		t.m.intr.raise(a, q.intr, q.done)
		q.done = 0
	}
	return did
}

// send sends the first n collected packets and completes those that were taken.
// Packets that are dropped split the batch.
func (t *transmitter) send(q *txQueue, n int) {
	for from := 0; from < n; {
		if t.sent[from].drop {
			t.counters[q.id].err++
			t.finish(q, from)
			from++
			continue
		}
		to := from + 1
		for to < n && !t.sent[to].drop {
			to++
		}
		t.resumed.Store(false)
		took := t.m.port.Send(t.frames[from:to])
		for i := from; i < from+took; i++ {
			t.count(q, i)
			t.finish(q, i)
		}
		if from += took; from < to {
			t.blocked = q
			return
		}
	}
}

// finish uses packet i up, and completes it if it asks for that.
func (t *transmitter) finish(q *txQueue, i int) {
	p := &t.sent[i]
	q.advance(p.descs)
	if p.comp || t.m.opt.Variations.AlwaysComplete {
		q.comp.put(uint32(p.index)&txCompIndex, 0, 0, typeTxComp<<compTypeShift)
		q.done++
	}
}

func (q *txQueue) advance(n int) {
	if q.next += n; q.next >= q.size {
		q.next -= q.size
		q.gen ^= txGen
	}
}

func (t *transmitter) count(q *txQueue, i int) {
	f, c := &t.frames[i], &t.counters[q.id]
	n := f.Segments()
	bytes := f.Len + (n-1)*f.HeaderLen
	var dst [6]byte // the first descriptor may be shorter
	f.CopyTo(dst[:], 0)
	c.cast.add(castOf(dst[:]), n, bytes)
	if t.sent[i].tso {
		c.tsoPkts += uint64(n)
		c.tsoBytes += uint64(bytes)
	}
}

// fail is what the device does with a chain of descriptors that is broken.
func (t *transmitter) fail(q *txQueue, code uint32) {
	t.counters[q.id].err++
	if !t.m.opt.Variations.IgnoreTxErrors {
		t.halt(q, code)
		return
	}
	for i := 0; i < q.size && t.pending(q) && q.owns(q.next); i++ {
		q.advance(1)
	}
}

// halt stops a queue with an error, and says so.
func (t *transmitter) halt(q *txQueue, code uint32) {
	q.stopped, q.err = true, code
	t.m.event(&t.m.host.Tx, eventTxQueue)
}
