package engine

import (
	"sync/atomic"

	"nicd/framework"
)

// DefaultRxBudget is how many packets one poll takes at most when the plan does
// not say. BenchmarkBudget: 26 ns a packet with a budget of 8, 18.6 with 16, 15.2
// with 32, 13.6 with 64, 13.4 with 128; a larger one only makes others wait.
const DefaultRxBudget = 64

// maxRxBudget bounds a plan's budget.
const maxRxBudget = 1024

// reclaimBatch is how many buffers are taken back from above at once.
const reclaimBatch = 256

// rxQueue is the receive pipeline of one queue: poll, refill, coalesce, deliver.
// It lives as long as the engine; the driver's queue in it changes with every
// start. Everything in it belongs to the queue's task, or to the control side
// while the task is halted.
type rxQueue struct {
	id      int
	upper   Upper
	buffers *framework.Buffers
	dev     framework.RxQueue
	pool    rxPool

	batch    framework.Batch // with room for the budget
	back     []framework.Buffer
	capacity int  // buffers that the device can hold
	short    bool // it holds fewer, for want of any: the task asks to be woken when some come back
	dry      bool // it holds none
	faulty   bool // stopped polling; the admin task resets the queue
	forget   bool // unsafe-forget-coalesced

	// wanted is the coalescer to use, or nil: no LRO engine exists. The control
	// side stores it, the task takes it over between two batches, when nothing
	// is held, so a change loses nothing.
	wanted atomic.Pointer[coalescer]
	merger *coalescer

	fault func(framework.Verdict)

	count, was [numRxCounters]uint64
	page       block
	rounds     uint32
}

func newRxQueue(id int, upper Upper, buffers *framework.Buffers, r BufferRange, page block) *rxQueue {
	q := &rxQueue{
		id: id, upper: upper, buffers: buffers, page: page,
		pool: newRxPool(r), back: make([]framework.Buffer, reclaimBatch),
	}
	page.load(q.was[:])
	q.count = q.was
	mendRx(&q.count) // if an earlier engine died
	page.publish(q.count[:], q.was[:])
	return q
}

// setBudget makes the batch. The task is halted.
func (q *rxQueue) setBudget(n int) {
	if n == cap(q.batch.Packets) {
		return
	}
	q.batch = *framework.NewBatch(n, 4*n+framework.MaxFragments)
}

// start takes over a started device's queue and fills its rings, which hold
// capacity buffers together. It tells whether there were enough.
func (q *rxQueue) start(dev framework.RxQueue, capacity int) bool {
	q.dev, q.capacity, q.dry, q.faulty = dev, capacity, false, false
	q.reclaim()
	return q.refill()
}

// stop gives the queue up after the device has stopped.
func (q *rxQueue) stop() {
	q.pool.recover()
	q.dev, q.short, q.dry = nil, false, false
	q.publish(true)
}

// round does one poll and all that follows from it, and tells whether there was
// anything to do.
func (q *rxQueue) round() bool {
	if q.faulty {
		return false
	}
	b := &q.batch
	b.Reset()
	verdict := q.dev.Poll(b)
	q.count[RxPolls]++
	if verdict != framework.Healthy {
		q.count[RxQueueFaults]++
		q.faulty = true
		q.fault(verdict)
	}
	if len(b.Packets) == 0 {
		q.count[RxEmptyPolls]++
		return q.short && !q.faulty && q.replenish()
	}
	if q.exhausted(b) {
		q.count[RxBudgetExhausted]++
	}
	bad := q.intake(b)
	q.reclaim()
	if !q.faulty {
		q.refill()
	}
	if bad {
		q.dropBad(b)
	}
	q.deliver(q.coalesce(b))
	q.publish(false)
	return true
}

// exhausted tells whether a poll stopped because of the budget.
func (q *rxQueue) exhausted(b *framework.Batch) bool {
	return len(b.Packets) == cap(b.Packets) || len(b.Frags)+framework.MaxFragments > cap(b.Frags)
}

// intake takes over what the driver returned, checks it and counts it. It tells
// whether a packet has to be dropped.
func (q *rxQueue) intake(b *framework.Batch) (bad bool) {
	stride := q.buffers.Stride
	for i := range b.Frags {
		f := &b.Frags[i]
		if !q.pool.move(f.Buffer, posted, above) {
			// The driver returned a buffer that the device did not have. It is
			// not ours to give back, and the queue is not to be trusted.
			f.Buffer, bad = framework.NoBuffer, true
			continue
		}
		q.pool.posted--
		if f.Offset > stride || f.Len > stride-f.Offset {
			f.Len, bad = 0, true
		}
	}
	bytes, segments := uint64(0), uint64(0)
	for i := range b.Packets {
		p := &b.Packets[i]
		bytes += uint64(p.Len)
		segments++
		if p.Flags&(framework.Coalesced|framework.ChecksumBad|framework.ChecksumPartial) != 0 {
			segments += q.countMarked(p)
			bad = bad || !sumInside(p)
		}
		if p.Error != framework.NoDrop || !possible(p.Len) || !consistent(b, p) {
			bad = true
		}
	}
	q.count[RxPackets] += uint64(len(b.Packets))
	q.count[RxBytes] += bytes
	q.count[RxSegments] += segments
	return bad
}

// countMarked counts what is special about a packet and returns how many frames
// on the wire it stands for besides one.
func (q *rxQueue) countMarked(p *framework.Packet) uint64 {
	if p.Flags&framework.ChecksumBad != 0 {
		q.count[RxChecksumBad]++
	}
	if p.Flags&framework.Coalesced == 0 {
		return 0
	}
	n := uint64(max(p.Segments, 1))
	q.count[RxHardwareCoalesced]++
	q.count[RxHardwareSegments] += n
	if q.forget {
		p.Flags &^= framework.Coalesced | framework.ChecksumVerified
		p.Segments, p.SegmentSize, p.HeaderLen = 0, 0, 0
	}
	return n - 1
}

// possible tells whether a frame can have that many bytes. Who is above takes no other.
func possible(n uint32) bool { return n >= shortestFrame && n <= framework.MaxPacketLen }

// sumInside tells whether a checksum that is to be filled in lies in the packet: where
// it lies the device says.
func sumInside(p *framework.Packet) bool {
	return p.Flags&framework.ChecksumPartial == 0 || uint32(p.ChecksumStart)+uint32(p.ChecksumOffset)+2 <= p.Len
}

// consistent tells whether a packet's fragments are in the batch, have something in
// them and add up.
func consistent(b *framework.Batch, p *framework.Packet) bool {
	end := uint64(p.First) + uint64(p.Frags)
	if p.Frags == 0 || p.Frags > framework.MaxFragments || end > uint64(len(b.Frags)) {
		return false
	}
	sum := uint32(0)
	for i := p.First; i < uint32(end); i++ {
		if b.Frags[i].Len == 0 {
			return false
		}
		sum += b.Frags[i].Len
	}
	return sum == p.Len
}

// dropBad takes the packets that must not be delivered out of the batch.
func (q *rxQueue) dropBad(b *framework.Batch) {
	kept := b.Packets[:0]
	for i := range b.Packets {
		p := b.Packets[i]
		reason := p.Error
		if reason == framework.NoDrop {
			reason = q.judge(b, &p)
		}
		if reason == framework.NoDrop {
			kept = append(kept, p)
			continue
		}
		q.count[RxDrop(reason)]++
		q.recycle(b, &p)
	}
	b.Packets = kept
}

// judge says why a packet that the driver found good is not.
func (q *rxQueue) judge(b *framework.Batch, p *framework.Packet) framework.DropReason {
	if p.Frags > framework.MaxFragments {
		return framework.DropTooLong
	}
	if !consistent(b, p) {
		return q.distrust()
	}
	for _, f := range b.Frags[p.First : p.First+uint32(p.Frags)] {
		if f.Buffer == framework.NoBuffer {
			return q.distrust()
		}
	}
	switch {
	case p.Len > framework.MaxPacketLen:
		return framework.DropTooLong
	case !possible(p.Len) || !sumInside(p):
		return framework.DropDevice
	}
	return framework.NoDrop
}

// distrust has the queue reset because its driver returned nonsense.
func (q *rxQueue) distrust() framework.DropReason {
	if !q.faulty {
		q.count[RxQueueFaults]++
		q.faulty = true
		q.fault(framework.QueueFault)
	}
	return framework.DropDevice
}

// recycle puts a packet's buffers back into the pool.
func (q *rxQueue) recycle(b *framework.Batch, p *framework.Packet) {
	end := min(uint64(p.First)+uint64(p.Frags), uint64(len(b.Frags)))
	for i := uint64(p.First); i < end; i++ {
		q.pool.put(b.Frags[i].Buffer)
	}
}

// reclaim takes back what the upper side is done with.
func (q *rxQueue) reclaim() {
	for {
		n := q.upper.Reclaim(q.id, q.back)
		for _, b := range q.back[:n] {
			if !q.pool.move(b, above, pooled) {
				q.count[RxBadReclaim]++
				continue
			}
			q.pool.free = append(q.pool.free, b)
		}
		if n < len(q.back) {
			return
		}
	}
}

// refill replaces the buffers that a poll took, counts it if there are too few,
// and tells whether the ring is full.
//
// A ring that cannot be refilled runs low, and then dry: what was received is
// delivered all the same. Where there is flow control the device pauses its peer
// meanwhile, and nothing is lost; elsewhere it drops what it has no buffer for, and
// counts that itself. A dry ring receives nothing, so no interrupt will tell of
// it: the task is woken when buffers come back (see task.arm).
func (q *rxQueue) refill() bool {
	q.topUp()
	if q.short {
		q.count[RxAllocFailed]++
	}
	return !q.short
}

// replenish gives a short ring what has come back from above and tells whether
// that was anything.
func (q *rxQueue) replenish() bool {
	had := q.pool.posted
	q.reclaim()
	q.topUp()
	return q.pool.posted > had
}

// topUp posts as many buffers as there are and as fit.
func (q *rxQueue) topUp() {
	want := q.capacity - q.pool.posted
	if want <= 0 {
		q.short = false
		return
	}
	q.short = len(q.pool.free) < want
	want = min(want, len(q.pool.free))
	n := q.pool.fill(q.dev, want)
	if n < want {
		q.count[RxPostRefused]++
	}
	if n > 0 {
		q.count[RxRefills]++
		q.dev.Bell()
	}
	q.setDry(q.pool.posted == 0)
}

func (q *rxQueue) setDry(dry bool) {
	if dry && !q.dry {
		q.count[RxRingDry]++
	}
	q.dry = dry
}

// coalesce runs software LRO over the batch if the queue has it.
func (q *rxQueue) coalesce(b *framework.Batch) *framework.Batch {
	if m := q.wanted.Load(); m != q.merger {
		q.foldLRO()
		q.merger = m
	}
	// More than the budget is a driver's bug (it made the batch grow), but no
	// reason to lose packets.
	if q.merger == nil || len(b.Packets) == 0 || len(b.Packets) > cap(q.merger.in) {
		return b
	}
	return q.merger.merge(q, b)
}

// deliver hands the batch up, and drops what is not taken.
func (q *rxQueue) deliver(b *framework.Batch) {
	if len(b.Packets) == 0 {
		return
	}
	n := max(0, min(q.upper.Deliver(q.id, b), len(b.Packets)))
	q.countDelivered(b.Packets[:n])
	if n == len(b.Packets) {
		return
	}
	for i := range b.Packets[n:] {
		p := &b.Packets[n+i]
		q.count[RxDropPortFull] += inputs(p)
		q.recycle(b, p)
	}
	if !q.faulty {
		q.topUp()
	}
}

// countDelivered counts packets that went up.
func (q *rxQueue) countDelivered(packets []framework.Packet) {
	bytes, accepted := uint64(0), uint64(0)
	for i := range packets {
		p := &packets[i]
		bytes += uint64(p.Len)
		n := inputs(p)
		accepted += n
		if p.Flags&framework.SoftwareCoalesced != 0 {
			q.count[RxSoftwareCoalesced]++
			q.count[RxSoftwareSegments] += n
		}
	}
	q.count[RxAccepted] += accepted
	q.count[RxDelivered] += uint64(len(packets))
	q.count[RxDeliveredBytes] += bytes
}

// inputs is how many received packets a packet to deliver is made of.
func inputs(p *framework.Packet) uint64 {
	if p.Flags&framework.SoftwareCoalesced != 0 {
		return uint64(p.Segments)
	}
	return 1
}

// publish stores the counters to the page. Summing up the LRO engine's costs more
// than a small batch, so that is done now and then, and when all is asked for.
func (q *rxQueue) publish(all bool) {
	const foldEvery = 32
	q.rounds++
	if all || q.rounds%foldEvery == 0 {
		q.foldLRO()
	}
	q.count[RxBuffersPosted] = uint64(q.pool.posted)
	q.count[RxBuffersFree] = uint64(len(q.pool.free))
	q.count[RxBuffersOutstanding] = uint64(q.pool.outstanding())
	q.page.publish(q.count[:], q.was[:])
}
