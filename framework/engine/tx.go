package engine

import (
	"sync/atomic"

	"nicd/framework"
)

// txBatch is how many packets are taken from above at once.
const txBatch = 64

// txQueue is the transmit pipeline of one queue: take, check, help, put, ring,
// reap. It lives as long as the engine; the driver's queue in it changes with
// every start. Everything in it belongs to the queue's task, or to the control
// side while the task is halted; the atomics are for the watchdog.
type txQueue struct {
	id      int
	upper   Upper
	buffers *framework.Buffers
	dev     framework.TxQueue
	now     func() int64

	rules  atomic.Pointer[txRules]
	linkUp *atomic.Bool

	in    *framework.Batch // taken; in.Packets[next:] is still to be prepared
	next  int
	stage txStage
	fifo  txFIFO
	done  []framework.Buffer // to be completed upwards
	own   txPool
	cut   cutter
	draft draft

	bellAt int64 // when the bell that is still to be rung became due; 0: none

	kick   atomic.Bool
	oldest atomic.Int64 // when the oldest packet with the device was put; 0: none

	count, was [numTxCounters]uint64
	page       block
}

// txStage is what has been prepared and not yet put.
type txStage struct {
	out *framework.Batch
	put int // packets of out that the device has
	// plain: out is a batch as it was taken; a packet's buffers are those of
	// its fragments. Otherwise the buffers of packet i end at ends[i] in bufs,
	// and parts[i] tells what it is.
	plain bool
	bufs  []framework.Buffer
	ends  []uint32
	parts []part
}

// part is what a prepared packet is of a packet from above.
type part uint8

const (
	all     part = iota
	segment      // one that was cut off
	tail         // the last one that was cut off: it completes the packet
)

func newTxQueue(id int, upper Upper, buffers *framework.Buffers, r BufferRange, page block) *txQueue {
	q := &txQueue{
		id: id, upper: upper, buffers: buffers, page: page,
		in:    framework.NewBatch(txBatch, 4*txBatch+2*framework.MaxFragments),
		own:   newTxPool(r),
		done:  make([]framework.Buffer, 0, 512),
		stage: newTxStage(),
		draft: newDraft(),
	}
	page.load(q.was[:])
	q.count = q.was
	mendTx(&q.count) // if an earlier engine died
	page.publish(q.count[:], q.was[:])
	return q
}

func newTxStage() txStage {
	return txStage{
		out:   framework.NewBatch(txBatch, 4*txBatch+2*framework.MaxFragments),
		bufs:  make([]framework.Buffer, 0, 8*txBatch+4*framework.MaxFragments),
		ends:  make([]uint32, 0, txBatch),
		parts: make([]part, 0, txBatch),
	}
}

func (s *txStage) empty() bool { return s.put == len(s.out.Packets) }

func (s *txStage) reset() {
	s.out.Reset()
	s.bufs, s.ends, s.parts = s.bufs[:0], s.ends[:0], s.parts[:0]
	s.put, s.plain = 0, false
}

// room tells whether any packet, however much work it makes, fits.
func (s *txStage) room() bool {
	return s.out.Room(2*framework.MaxFragments) && len(s.bufs)+3*framework.MaxFragments <= cap(s.bufs)
}

// of returns the buffers that come back with packet i.
func (s *txStage) of(i int) []framework.Buffer {
	from := uint32(0)
	if i > 0 {
		from = s.ends[i-1]
	}
	return s.bufs[from:s.ends[i]]
}

// start takes over a started device's queue.
func (q *txQueue) start(dev framework.TxQueue, descriptors int) {
	q.dev, q.bellAt = dev, 0
	q.fifo = newTxFIFO(descriptors, &q.stage)
	q.kick.Store(false)
}

// stop drops all that is in the queue and gives it up. The device has stopped.
func (q *txQueue) stop() {
	q.dropAll()
	q.dev = nil
	q.publish()
}

// round reaps, takes, prepares, puts and rings, and tells whether there was
// anything to do.
func (q *txQueue) round() bool {
	worked := q.reap()
	if q.stage.empty() && q.next == len(q.in.Packets) && q.take() {
		worked = true
	}
	if q.idle() {
		if worked {
			q.settle()
		}
		return worked
	}
	now := q.now()
	full := len(q.in.Packets) == cap(q.in.Packets)
	if q.push(now) {
		worked = true
	}
	q.ring(now, full && !q.blocked())
	q.settle()
	return worked
}

// idle tells whether there is nothing to put and no bell to ring.
func (q *txQueue) idle() bool {
	return q.stage.empty() && q.next == len(q.in.Packets) && q.bellAt == 0 && !q.kick.Load()
}

// blocked tells whether packets wait for room in the ring or for a buffer: then
// a completion is what the queue waits for, and not the upper side.
func (q *txQueue) blocked() bool { return !q.stage.empty() || q.next != len(q.in.Packets) }

// settle ends a round: buffers go back, counters and the watchdog's mark are
// published.
func (q *txQueue) settle() {
	q.flushDone()
	if o := q.fifo.oldest(); o != q.oldest.Load() {
		q.oldest.Store(o)
	}
	q.publish()
}

// reap takes what the device has finished and tells whether that was anything.
func (q *txQueue) reap() bool {
	outstanding := q.fifo.len()
	if outstanding == 0 {
		return false
	}
	n := q.dev.Completed(outstanding)
	if n <= 0 {
		return false
	}
	if n > outstanding {
		q.count[TxBadCompletion] += uint64(n - outstanding)
		n = outstanding
	}
	q.count[TxFramesDone] += uint64(n)
	whole := uint64(0)
	for range n {
		e := q.fifo.pop()
		for range e.bufs {
			q.release(q.fifo.popBuffer())
		}
		if e.whole {
			whole++
		}
	}
	q.count[TxCompleted] += whole
	return true
}

// release gives a buffer back to where it came from.
func (q *txQueue) release(b framework.Buffer) {
	if q.own.put(b) {
		return
	}
	if len(q.done) == cap(q.done) {
		q.flushDone()
	}
	q.done = append(q.done, b)
}

func (q *txQueue) flushDone() {
	if len(q.done) > 0 {
		q.upper.Complete(q.id, q.done)
		q.done = q.done[:0]
	}
}

// take gets the next batch from above and tells whether there was one: it may all
// have been dropped, and then its buffers go back all the same.
func (q *txQueue) take() bool {
	q.in.Reset()
	q.next = 0
	q.upper.Take(q.id, q.in)
	if len(q.in.Packets) == 0 {
		return false
	}
	bytes := uint64(0)
	for i := range q.in.Packets {
		bytes += uint64(q.in.Packets[i].Len)
	}
	q.count[TxTaken] += uint64(len(q.in.Packets))
	q.count[TxTakenBytes] += bytes
	q.publish() // if the engine dies with them, the next one counts them as dropped
	if q.linkUp.Load() {
		return true
	}
	for ; q.next < len(q.in.Packets); q.next++ {
		q.dropTaken(q.next, framework.DropTxLinkDown)
	}
	return true
}

// dropTaken drops packet i of what was taken.
func (q *txQueue) dropTaken(i int, reason framework.DropReason) {
	q.count[TxDrop(reason)]++
	p := &q.in.Packets[i]
	end := min(uint64(p.First)+uint64(p.Frags), uint64(len(q.in.Frags)))
	last := framework.NoBuffer
	for j := uint64(p.First); j < end; j++ {
		if b := q.in.Frags[j].Buffer; b != last {
			q.release(b)
			last = b
		}
	}
}

// push prepares and puts until all is with the device, the ring is full or a
// buffer is missing. It tells whether it got anywhere.
func (q *txQueue) push(now int64) bool {
	worked := false
	for {
		if q.stage.empty() {
			q.stage.reset()
			before := q.next
			q.prepare()
			worked = worked || q.next != before
			if q.stage.empty() {
				return worked
			}
		}
		n := q.put(now)
		if n == 0 && q.fifo.len() == 0 {
			q.dropRefused()
			n = 1
		}
		worked = worked || n > 0
		if !q.stage.empty() && q.fifo.len() > 0 {
			q.count[TxRingFull]++
			return worked
		}
	}
}

// put gives the device as many of the prepared packets as it takes.
func (q *txQueue) put(now int64) int {
	s := &q.stage
	packets, bufs := q.fifo.room()
	if packets < len(s.out.Packets)-s.put || bufs < len(s.out.Frags)+len(s.bufs) {
		return 0 // the ring is full by any account
	}
	q.requestCompletions()
	n := max(0, min(q.dev.Put(s.out, s.put), len(s.out.Packets)-s.put))
	bytes := uint64(0)
	for i := s.put; i < s.put+n; i++ {
		bytes += uint64(s.out.Packets[i].Len)
		if s.plain {
			q.fifo.pushPlain(now, s.out.Fragments(i))
		} else {
			q.fifo.push(now, s.of(i), s.parts[i] != segment)
		}
	}
	s.put += n
	q.count[TxPackets] += uint64(n)
	q.count[TxBytes] += bytes
	if n > 0 && q.bellAt == 0 {
		q.bellAt = max(now, 1)
	}
	return n
}

// dropRefused drops the next prepared packet, which the device does not take although
// it has no other: it needs more descriptors than there are, and would hold up the
// queue for ever. Of a packet that is cut in software, the last segment counts.
func (q *txQueue) dropRefused() {
	s := &q.stage
	i := s.put
	s.put++
	q.releaseStaged(i)
	if s.plain || s.parts[i] != segment {
		q.count[TxDropTooLong]++
	}
}

// releaseStaged gives back the buffers of prepared packet i.
func (q *txQueue) releaseStaged(i int) {
	s := &q.stage
	if !s.plain {
		for _, b := range s.of(i) {
			q.release(b)
		}
		return
	}
	last := framework.NoBuffer
	for _, f := range s.out.Fragments(i) {
		if f.Buffer != last {
			q.release(f.Buffer)
			last = f.Buffer
		}
	}
}

// requestCompletions marks the packets that must produce a completion: the last
// one, so that an idle queue holds nothing, and one before more than an eighth of the
// ring is used without, so that a full ring empties.
func (q *txQueue) requestCompletions() {
	packets := q.stage.out.Packets[q.stage.put:]
	each := q.rules.Load().requestEach
	used, next := 0, descriptors(&packets[0])
	for i := range len(packets) - 1 {
		used += next
		if next = descriptors(&packets[i+1]); used+next > each {
			packets[i].Flags |= framework.Completion
			used = 0
		}
	}
	packets[len(packets)-1].Flags |= framework.Completion
}

// descriptors is how many of a ring's a packet takes at most: there are devices that
// want its offloads in one, and one for a few segments.
func descriptors(p *framework.Packet) int {
	n := int(p.Frags)
	if p.Flags&framework.ChecksumPartial != 0 {
		n++
	}
	if p.Flags&framework.Segment != 0 {
		n += 1 + int(p.Len/uint32(p.SegmentSize))
	}
	return n
}

// ring rings the bell for what was put, unless more is coming and the quirk
// allows to wait.
func (q *txQueue) ring(now int64, more bool) {
	if q.kick.Swap(false) && q.fifo.len() > 0 {
		q.dev.Bell()
		q.count[TxBells]++
		q.bellAt = 0
		return
	}
	if q.bellAt == 0 {
		return
	}
	if more && now-q.bellAt < q.rules.Load().bellDelay {
		q.count[TxBellsDelayed]++
		return
	}
	q.dev.Bell()
	q.count[TxBells]++
	q.bellAt = 0
}

// dropAll drops what was taken and not completed. The device does not touch it
// any more.
func (q *txQueue) dropAll() {
	for q.fifo.len() > 0 {
		e := q.fifo.pop()
		for range e.bufs {
			q.release(q.fifo.popBuffer())
		}
	}
	s := &q.stage
	for i := s.put; i < len(s.out.Packets); i++ {
		q.releaseStaged(i)
	}
	s.reset()
	q.cut.abandon(q)
	inFlight := q.inFlight()
	for ; q.next < len(q.in.Packets); q.next++ {
		q.dropTaken(q.next, framework.DropTxStopped)
		inFlight--
	}
	q.in.Reset()
	q.next = 0
	q.count[TxDropStopped] += inFlight
	q.bellAt = 0
	q.settle()
}

// retire drops what waits above for a stopped queue that is not used any more:
// nobody else would ever fetch it. The upper side adds nothing.
func (q *txQueue) retire() {
	for {
		q.take()
		if len(q.in.Packets) == 0 {
			break
		}
		for ; q.next < len(q.in.Packets); q.next++ {
			q.dropTaken(q.next, framework.DropTxStopped)
		}
		q.settle()
	}
	q.publish()
}

// inFlight is how many packets from above are neither completed nor dropped.
func (q *txQueue) inFlight() uint64 {
	return q.count[TxTaken] - q.count[TxCompleted] - droppedTx(&q.count)
}

func (q *txQueue) publish() {
	q.count[TxInFlight] = q.inFlight()
	q.page.publish(q.count[:], q.was[:])
}
