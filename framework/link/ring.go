package link

import (
	"sync/atomic"

	"nicd/bus"
	"nicd/framework"
)

type ringKind int

const (
	ringRx ringKind = iota
	ringRxReturn
	ringTx
	ringTxReturn
	numRings
)

func (k ringKind) String() string {
	return [...]string{"rx", "rx-return", "tx", "tx-return"}[k]
}

// The shared words before a ring's slots. They lie two cache lines apart, because
// processors fetch lines in pairs. How many slots there are is not among them:
// each end knows it from the layout.
const (
	offProducer     = 0   // next slot to be written; free running
	offConsumer     = 128 // next slot to be read; free running
	offWake         = 256 // 1 while the consumer sleeps
	offRoom         = 384 // 1 while the producer waits for room
	ringControlSize = 512
)

// ring is what both ends of every ring have: the shared words and where it is.
type ring struct {
	producer, consumer *atomic.Uint32
	wake, room         *atomic.Uint32
	mask               uint32
	kind               ringKind
	queue              int
}

func newRing(arena *bus.Memory, l Layout, queue int, kind ringKind) ring {
	b := arena.Bytes()[l.ringOffset(queue, kind):]
	return ring{
		producer: bus.Word(b, offProducer),
		consumer: bus.Word(b, offConsumer),
		wake:     bus.Word(b, offWake),
		room:     bus.Word(b, offRoom),
		mask:     uint32(l.capacity(kind) - 1),
		kind:     kind,
		queue:    queue,
	}
}

func (r *ring) clear() {
	for _, w := range []*atomic.Uint32{r.producer, r.consumer, r.wake, r.room} {
		w.Store(0)
	}
}

func (r *ring) violation(rule Rule, index uint32, value uint64) *Violation {
	return &Violation{Queue: r.queue, Ring: r.kind.String(), Rule: rule, Index: index, Value: value}
}

// empty tells whether everything published was consumed, by the shared words
// alone. For whoever is neither producer nor consumer.
func (r *ring) empty() bool { return r.producer.Load() == r.consumer.Load() }

// take clears a flag and tells whether it was set. The load first keeps the
// line shared while nobody sleeps.
func take(flag *atomic.Uint32) bool {
	return flag.Load() != 0 && flag.Swap(0) != 0
}

// producerEnd is the writing end's private state.
type producerEnd struct {
	ring
	tail uint32 // next slot to write
	told uint32 // as published
	head uint32 // the consumer's index as last seen
}

// reserve tells whether n more slots are free.
func (p *producerEnd) reserve(n uint32) (bool, *Violation) {
	if p.mask+1-(p.tail-p.head) >= n {
		return true, nil
	}
	head := p.consumer.Load()
	if head-p.head > p.tail-p.head {
		return false, p.violation(RuleIndex, p.head, uint64(head))
	}
	p.head = head
	return p.mask+1-(p.tail-p.head) >= n, nil
}

// unpublished tells whether slots were written since the last publish.
func (p *producerEnd) unpublished() bool { return p.tail != p.told }

// publish makes what was written visible, and tells whether the consumer sleeps
// and has to be woken. Sequentially consistent atomics order the index's store
// before the flag's load, as arm's are ordered the other way round.
func (p *producerEnd) publish() bool {
	p.told = p.tail
	p.producer.Store(p.tail)
	return take(p.wake)
}

// armRoom asks for a wake when the consumer makes progress, and tells whether it
// has by now.
func (p *producerEnd) armRoom() bool {
	p.room.Store(1)
	return p.consumer.Load() != p.head
}

// consumerEnd is the reading end's private state.
type consumerEnd struct {
	ring
	head uint32 // next slot to read
}

// available is how many slots can be read.
func (c *consumerEnd) available() (uint32, *Violation) {
	tail := c.producer.Load()
	if tail-c.head > c.mask+1 {
		return 0, c.violation(RuleIndex, c.head, uint64(tail))
	}
	return tail - c.head, nil
}

// release gives n slots back, and tells whether the producer waits for them.
func (c *consumerEnd) release(n uint32) bool {
	if n == 0 {
		return false
	}
	c.head += n
	c.consumer.Store(c.head)
	return take(c.room)
}

// arm says that the consumer is about to sleep, and tells whether there is
// something to read after all.
func (c *consumerEnd) arm() bool {
	c.wake.Store(1)
	if c.producer.Load() == c.head {
		return false
	}
	c.wake.Store(0)
	return true
}

// packetWriter is the producing end of a packet ring.
type packetWriter struct {
	producerEnd
	slots []entry
}

func newPacketWriter(arena *bus.Memory, l Layout, queue int, kind ringKind) packetWriter {
	return packetWriter{
		producerEnd: producerEnd{ring: newRing(arena, l, queue, kind)},
		slots:       slots[entry](arena, l.ringOffset(queue, kind)+ringControlSize, l.capacity(kind)),
	}
}

// write writes a packet, unpublished, to slots that were reserved.
func (w *packetWriter) write(p *framework.Packet, frags []framework.Fragment) {
	encode(w.slots, w.tail, w.mask, p, frags)
	w.tail += entriesFor(len(frags))
}

// packetReader is the consuming end of a packet ring.
type packetReader struct {
	consumerEnd
	slots   []entry
	copied  []entry // private: nothing is looked at in shared memory
	buffers *framework.Buffers
}

// copyAhead is how many entries are copied out at a time.
const copyAhead = 64

func newPacketReader(arena *bus.Memory, l Layout, queue int, kind ringKind, bufs *framework.Buffers) packetReader {
	return packetReader{
		consumerEnd: consumerEnd{ring: newRing(arena, l, queue, kind)},
		slots:       slots[entry](arena, l.ringOffset(queue, kind)+ringControlSize, l.capacity(kind)),
		copied:      make([]entry, copyAhead),
		buffers:     bufs,
	}
}

// read appends packets to b until it is full or nothing more is there. It tells
// how many entries they took; release gives those back. A violation comes after
// the good packets.
func (r *packetReader) read(b *framework.Batch) (uint32, *Violation) {
	published, v := r.available()
	if published == 0 {
		return 0, v
	}
	n := min(published, copyAhead)
	r.copyOut(n)
	var done uint32
	for done < n {
		used, rule := decode(r.copied[done:n], published-done, b, r.buffers)
		if rule != ruleKept {
			return done, r.violation(rule, r.head+done, r.found(rule, &r.copied[done]))
		}
		if used == 0 {
			break
		}
		done += used
	}
	return done, nil
}

func (r *packetReader) copyOut(n uint32) {
	at := r.head & r.mask
	first := copy(r.copied[:n], r.slots[at:])
	copy(r.copied[first:n], r.slots)
}

// found is what a violation reports.
func (r *packetReader) found(rule Rule, e *entry) uint64 {
	switch rule {
	case RuleLength:
		return uint64(e.length)
	case RuleFragmentBounds:
		return uint64(e.inline[0].buffer)
	}
	return uint64(e.fragments)
}

// bufferWriter is the producing end of a buffer ring, which has a slot for
// every buffer that can be in it.
type bufferWriter struct {
	producerEnd
	slots []uint32
}

func newBufferWriter(arena *bus.Memory, l Layout, queue int, kind ringKind) bufferWriter {
	return bufferWriter{
		producerEnd: producerEnd{ring: newRing(arena, l, queue, kind)},
		slots:       slots[uint32](arena, l.ringOffset(queue, kind)+ringControlSize, l.capacity(kind)),
	}
}

// put writes a buffer, unpublished.
func (w *bufferWriter) put(b framework.Buffer) {
	w.slots[w.tail&w.mask] = uint32(b)
	w.tail++
}

// bufferReader is the consuming end of a buffer ring.
type bufferReader struct {
	consumerEnd
	slots []uint32
	limit uint32 // number of buffers
}

func newBufferReader(arena *bus.Memory, l Layout, queue int, kind ringKind) bufferReader {
	return bufferReader{
		consumerEnd: consumerEnd{ring: newRing(arena, l, queue, kind)},
		slots:       slots[uint32](arena, l.ringOffset(queue, kind)+ringControlSize, l.capacity(kind)),
		limit:       uint32(l.numBuffers()),
	}
}

// read stores buffers to dst, as private copies, checks that they exist, and
// gives the slots back.
func (r *bufferReader) read(dst []framework.Buffer) (int, *Violation) {
	n, v := r.available()
	if n == 0 {
		return 0, v
	}
	n = min(n, uint32(len(dst)))
	for i := range n {
		b := atomic.LoadUint32(&r.slots[(r.head+i)&r.mask])
		if b >= r.limit {
			r.release(i)
			return int(i), r.violation(RuleBuffer, r.head, uint64(b))
		}
		dst[i] = framework.Buffer(b)
	}
	r.release(n)
	return int(n), nil
}
