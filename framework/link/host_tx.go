package link

import (
	"sync"
	"sync/atomic"

	"nicd/bus"
	"nicd/framework"
)

// hostQueue is the host's end of a queue pair.
//
// Locks: mu before any queue's freeMu or rxMu, and never two of those.
type hostQueue struct {
	host     *Host
	index    int
	rxPool   Range
	txPool   Range
	self     atomic.Pointer[bus.Event] // wakes the receiver
	engine   atomic.Pointer[bus.Event] // wakes the engine
	counters queueCounters

	// The receiver's.
	rx    packetReader
	batch *framework.Batch

	// A sender was refused for want of ring entries, or of buffers, and is owed
	// a TxReady.
	wantRoom, wantBuffers atomic.Bool

	mu       sync.Mutex // transmit: many senders
	tx       packetWriter
	starts   []bool // by slot of tx: a packet begins there. The ring itself is the engine's to write
	txReturn bufferReader
	returned [returnBatch]framework.Buffer // scratch
	// foreign counts buffers with the engine that are not of txPool: received ones
	// that the port sent, and another queue's. Nobody here asks for them, and somebody
	// elsewhere waits. It changes with mu held.
	foreign atomic.Int32

	freeMu sync.Mutex
	free   []framework.Buffer // transmit buffers, last in first out

	rxMu     sync.Mutex // receive buffers on their way back to the engine
	rxReturn bufferWriter
}

// returnBatch is how many returned buffers are looked at in one go.
const returnBatch = 64

func (q *hostQueue) open(h *Host, i int) {
	q.host, q.index = h, i
	q.rxPool, q.txPool, _ = h.layout.pool(i)
	q.batch = framework.NewBatch(rxBatchPackets, rxBatchFragments)
	q.starts = make([]bool, h.layout.capacity(ringTx))
	q.free = make([]framework.Buffer, 0, h.layout.TxBuffers)
}

// Alloc takes up to len(dst) empty transmit buffers of a queue. When it gets
// fewer, TxReady will say that there are more.
func (h *Host) Alloc(queue int, dst []framework.Buffer) int {
	q := &h.queues[queue]
	n := q.pop(dst)
	if n == len(dst) {
		return n
	}
	q.mu.Lock()
	v := q.reclaim()
	n += q.pop(dst[n:])
	if n < len(dst) && v == nil {
		q.needBuffers()
	}
	q.mu.Unlock()
	if v != nil {
		h.broken(v)
	}
	return n
}

// pop takes buffers from the queue's pool for the port.
func (q *hostQueue) pop(dst []framework.Buffer) int {
	q.freeMu.Lock()
	defer q.freeMu.Unlock()
	n := min(len(dst), len(q.free))
	rest := len(q.free) - n
	for i, b := range q.free[rest:] {
		q.host.owners.move(b, ownerHost, ownerPort)
		dst[i] = b
	}
	q.free = q.free[:rest]
	return n
}

// Send queues packets, as many as fit. A packet that makes no sense is counted,
// its buffers are taken back, and it counts as queued. While the link is
// stopped nothing is queued.
//
// A queue that is not in use any more stands for one that is, modulo their
// number; TxReady names that one.
func (h *Host) Send(queue int, b *framework.Batch) int {
	q := h.lockSender(queue)
	n, wake, v := q.send(b)
	q.mu.Unlock()
	if wake {
		q.wakeEngine()
	}
	if v != nil {
		h.broken(v)
	}
	return n
}

// wakeEngine tells the sleeping engine that there is something to send. In this
// process it may send it before this returns. No lock is held.
func (q *hostQueue) wakeEngine() {
	if l := q.host.near.Load(); l != nil {
		l.wakeTx(q.index)
		return
	}
	q.engine.Load().Signal()
}

// lockSender locks the queue in use that a sender means.
func (h *Host) lockSender(queue int) *hostQueue {
	for {
		q := &h.queues[queue%h.Queues()]
		q.mu.Lock()
		if q.index < h.Queues() {
			return q
		}
		q.mu.Unlock()
	}
}

func (q *hostQueue) send(b *framework.Batch) (n int, wake bool, v *Violation) {
	if q.host.state.Load() != hostRunning {
		q.turnAway()
		return 0, false, nil
	}
	n, v = q.fill(b)
	if n < len(b.Packets) && v == nil {
		q.counters.refused.Add(1)
		q.needRoom()
	}
	if v == nil {
		v = q.fetchForeign()
	}
	return n, q.tx.unpublished() && q.tx.publish(), v
}

// turnAway refuses a sender because nothing flows. Since that was looked at Start may
// have come, and its receiver have looked for who waits: then it looks again. With mu
// held.
func (q *hostQueue) turnAway() {
	q.counters.refused.Add(1)
	q.needRoom()
	if q.host.state.Load() == hostRunning {
		q.self.Load().Signal()
	}
}

// fetchForeign sends foreign buffers home that the engine has given back, and asks it
// to signal when it gives back more. With mu held.
func (q *hostQueue) fetchForeign() *Violation {
	for q.foreign.Load() > 0 && q.txReturn.arm() {
		if v := q.reclaim(); v != nil {
			return v
		}
	}
	return nil
}

// fill writes packets of b until the ring is full.
func (q *hostQueue) fill(b *framework.Batch) (n int, v *Violation) {
	malformed := 0
	for n < len(b.Packets) {
		need := min(entriesFor(int(b.Packets[n].Frags)), maxEntries)
		var ok bool
		if ok, v = q.tx.reserve(need); !ok {
			break
		}
		if frags := b.Fragments(n); q.takes(&b.Packets[n], frags) {
			q.noteStart(need)
			q.tx.write(&b.Packets[n], frags)
		} else {
			q.drop(frags)
			malformed++
		}
		n++
	}
	q.counters.sent.Add(uint64(n - malformed))
	return n, v
}

// noteStart remembers that the next packet takes so many entries.
func (q *hostQueue) noteStart(entries uint32) {
	q.starts[q.tx.tail&q.tx.mask] = true
	for i := uint32(1); i < entries; i++ {
		q.starts[(q.tx.tail+i)&q.tx.mask] = false
	}
}

// waiting is how many packets the engine has not taken from the tx ring, by its own
// account; if that cannot be, by the last one that could.
func (q *hostQueue) waiting() (n uint64) {
	head, tail := q.tx.head, q.tx.told
	if at := q.tx.consumer.Load(); at-head <= tail-head {
		head = at
	}
	for ; head != tail; head++ {
		if q.starts[head&q.tx.mask] {
			n++
		}
	}
	return n
}

// takes checks a packet and takes its buffers from the port.
func (q *hostQueue) takes(p *framework.Packet, frags []framework.Fragment) bool {
	if p.Frags == 0 || p.Frags > framework.MaxFragments || p.Len > framework.MaxPacketLen {
		return false
	}
	var sum uint32
	for i := range frags {
		if !q.host.buffers.Valid(frags[i]) || frags[i].Len == 0 {
			return false
		}
		sum += frags[i].Len
	}
	if sum != p.Len {
		return false
	}
	if _, ok := q.host.owners.claim(frags, ownerPort, ownerEngine); !ok {
		return false
	}
	for i := range frags {
		if !q.txPool.has(frags[i].Buffer) {
			q.foreign.Add(1)
		}
	}
	return true
}

// drop takes the buffers of a malformed packet back, as far as they are the
// port's.
func (q *hostQueue) drop(frags []framework.Fragment) {
	q.counters.malformed.Add(1)
	for _, f := range frags {
		one := [1]framework.Buffer{f.Buffer}
		q.host.Release(q.index, one[:])
	}
}

// Release gives back buffers that Deliver or Alloc handed out, in any mixture;
// queue is where most are from. A buffer that is not the port's stays where it
// is and is counted.
func (h *Host) Release(queue int, bufs []framework.Buffer) {
	for len(bufs) > 0 {
		n := h.settle(bufs, ownerPort, &h.queues[queue])
		if n == len(bufs) {
			return
		}
		h.queues[queue].counters.misused.Add(1)
		bufs = bufs[n+1:]
	}
}

// settle gives buffers that from had back: receive buffers to the engine,
// transmit buffers to their pool. It stops at the first that from had not and
// returns how many it settled.
func (h *Host) settle(bufs []framework.Buffer, from owner, guess *hostQueue) int {
	done := 0
	for done < len(bufs) {
		q := h.home(bufs[done], guess)
		if q == nil {
			return done
		}
		n := 0
		switch {
		case q.rxPool.has(bufs[done]):
			n = q.settleRx(bufs[done:], from)
		case q.txPool.has(bufs[done]):
			n = q.settleTx(bufs[done:], from)
		}
		if n == 0 {
			return done
		}
		done += n
	}
	return done
}

// home is the queue that a buffer is from, nil if there is no such buffer. The
// guess is tried first.
func (h *Host) home(b framework.Buffer, guess *hostQueue) *hostQueue {
	if guess.rxPool.has(b) || guess.txPool.has(b) {
		return guess
	}
	if uint32(b) >= h.buffers.Count {
		return nil
	}
	return &h.queues[int(b)/h.layout.buffersPerQueue()]
}

// settleRx gives leading receive buffers of the queue back to the engine.
func (q *hostQueue) settleRx(bufs []framework.Buffer, from owner) int {
	q.rxMu.Lock()
	n := 0
	for n < len(bufs) && q.rxPool.has(bufs[n]) && q.host.owners.move(bufs[n], from, ownerEngine) {
		q.rxReturn.put(bufs[n])
		n++
	}
	wake := q.rxReturn.publish()
	q.rxMu.Unlock()
	if wake {
		q.engine.Load().Signal()
	}
	return n
}

// settleTx gives leading transmit buffers of the queue back to the pool.
func (q *hostQueue) settleTx(bufs []framework.Buffer, from owner) int {
	q.freeMu.Lock()
	n := 0
	for n < len(bufs) && q.txPool.has(bufs[n]) && q.host.owners.move(bufs[n], from, ownerHost) {
		q.free = append(q.free, bufs[n])
		n++
	}
	q.freeMu.Unlock()
	if n > 0 && q.wantBuffers.Load() {
		q.self.Load().Signal() // the receiver tells who waits
	}
	return n
}

// reclaim settles what the engine gave back, at most a ring of it: the engine
// may write faster than this reads. With mu held.
func (q *hostQueue) reclaim() *Violation {
	for left := int(q.txReturn.mask) + 1; left > 0; {
		n, v := q.txReturn.read(q.returned[:])
		done := q.host.settle(q.returned[:n], ownerEngine, q)
		q.countHome(q.returned[:done])
		if done < n {
			at := q.txReturn.head - uint32(n-done)
			return q.txReturn.violation(RuleOwner, at, uint64(q.returned[done]))
		}
		if n == 0 || v != nil {
			return v
		}
		left -= n
	}
	return nil
}

// countHome notes that buffers are not with the engine any more. With mu held.
func (q *hostQueue) countHome(bufs []framework.Buffer) {
	if q.foreign.Load() == 0 {
		return
	}
	for _, b := range bufs {
		if !q.txPool.has(b) {
			q.foreign.Store(max(q.foreign.Load()-1, 0)) // the engine may return what was never sent
		}
	}
}

// needRoom notes that a sender was refused for want of ring entries, and asks the
// engine to signal when it takes some. If it has by now, the receiver looks. With
// mu held.
func (q *hostQueue) needRoom() {
	q.wantRoom.Store(true)
	if q.tx.armRoom() {
		q.self.Load().Signal()
	}
}

// needBuffers is the same for want of buffers, which the engine or the port gives
// back. Entries that the engine takes are no news to who waits for buffers: they
// would wake the receiver for nothing, again and again. With mu held.
func (q *hostQueue) needBuffers() {
	q.wantBuffers.Store(true)
	if q.txReturn.arm() || q.hasFree() {
		q.self.Load().Signal()
	}
}

// wanted tells whether the receiver has to look at what the engine gave back.
func (q *hostQueue) wanted() bool {
	return q.wantRoom.Load() || q.wantBuffers.Load() || q.foreign.Load() > 0
}

// retry tells whether a refused sender can go on, and forgets it if so.
func (q *hostQueue) retry() (bool, *Violation) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if v := q.reclaim(); v != nil {
		return false, v
	}
	room, v := q.tx.reserve(maxEntries)
	if v != nil {
		return false, v
	}
	ready := room && q.wantRoom.Swap(false)
	if q.hasFree() && q.wantBuffers.Swap(false) {
		ready = true
	}
	if q.wantRoom.Load() {
		q.needRoom()
	}
	if q.wantBuffers.Load() {
		q.needBuffers()
	}
	return ready, q.fetchForeign()
}

func (q *hostQueue) hasFree() bool {
	q.freeMu.Lock()
	defer q.freeMu.Unlock()
	return len(q.free) > 0
}

// reset empties the queue's rings and takes back what the last engine had. With
// all locks held and the host stopped.
func (q *hostQueue) reset() {
	arena, l := q.host.arena, q.host.layout
	again := q.tx.slots != nil // there was an engine
	if again {
		q.counters.dropped.Add(q.waiting())
	}
	q.foreign.Store(0)
	q.rx = newPacketReader(arena, l, q.index, ringRx, q.host.buffers)
	q.rxReturn = newBufferWriter(arena, l, q.index, ringRxReturn)
	q.tx = newPacketWriter(arena, l, q.index, ringTx)
	q.txReturn = newBufferReader(arena, l, q.index, ringTxReturn)
	for _, r := range []*ring{&q.rx.ring, &q.rxReturn.ring, &q.tx.ring, &q.txReturn.ring} {
		r.clear()
	}
	var taken uint64
	for i := range q.rxPool.Count {
		if b := q.rxPool.First + framework.Buffer(i); q.host.owners.of(b) == ownerEngine {
			q.rxReturn.put(b)
			taken++
		}
	}
	q.rxReturn.publish()
	for i := range q.txPool.Count {
		if b := q.txPool.First + framework.Buffer(i); q.host.owners.move(b, ownerEngine, ownerHost) {
			q.free = append(q.free, b)
			taken++
		}
	}
	if again { // the first engine's buffers were nobody's before
		q.counters.reclaimed.Add(taken)
	}
}
