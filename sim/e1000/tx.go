package e1000

import (
	"hash/crc32"

	"nicd/sim"
)

// transmit sends what a queue's tail allows, at most budget frames.
func (m *Model) transmit(q *txQueue, budget int) bool {
	if !q.run.Load() || q.paused.Load() || m.host.Doorbell(bellTDT+q.index) == q.head.Load() {
		return false
	}
	m.host.Tx.Lock()
	defer m.host.Tx.Unlock()
	return m.tx.pass(q, min(budget, passFrames))
}

// pass reads descriptors, sends their frames and writes the descriptors back. It
// returns false if it came no further.
func (t *transmitter) pass(q *txQueue, budget int) bool {
	m := t.model
	tail := m.host.Doorbell(bellTDT + q.index)
	if !q.run.Load() || tail >= q.size || tail == q.head.Load() || !t.mayPass(q) {
		return false
	}
	ring := m.host.Tx.Bytes(q.base, int(q.size)*descriptorSize)
	if ring == nil {
		q.hang()
		return true
	}
	before := q.left(tail)
	end := t.read(q, ring, tail, budget)
	if end != q.head.Load() {
		t.send(q, end)
	} else if t.literal.ready {
		t.sendLiteral(q)
	} else {
		return false // half a packet, or nonsense
	}
	t.finish(q, ring, tail, before)
	return q.left(tail) != before || t.literal.ready && !q.paused.Load()
}

// mayPass tells whether a queue may use the wire: a frame that another queue has
// begun to send goes first.
func (t *transmitter) mayPass(q *txQueue) bool {
	if t.begun == nil || t.begun == q {
		return true
	}
	if t.begun.run.Load() && t.model.host.Doorbell(bellTDT+t.begun.index) != t.begun.head.Load() {
		return false
	}
	t.abandon()
	return true
}

// abandon forgets the frame that was begun.
func (t *transmitter) abandon() {
	if t.begun == nil {
		return
	}
	t.begun.cut = 0
	t.begun.paused.Store(false)
	t.begun = nil
	t.stalled.Store(false)
	t.model.port.Abandon()
}

// left is how many descriptors the device has up to tail.
func (q *txQueue) left(tail uint32) uint32 {
	head := q.head.Load()
	if tail >= head {
		return tail - head
	}
	return tail + q.size - head
}

func (q *txQueue) next(i uint32) uint32 {
	if i++; i == q.size {
		return 0
	}
	return i
}

// read makes frames of the descriptors from the head on, and returns where the
// descriptors that it used up end.
func (t *transmitter) read(q *txQueue, ring []byte, tail uint32, budget int) (end uint32) {
	t.frames, t.units, t.done = t.frames[:0], t.units[:0], t.done[:0]
	t.parts = t.parts[:0]
	t.literal.wanted, t.literal.ready = false, false
	t.all = t.model.irq.everyTx()
	end = q.head.Load()
	for bytes := 0; end != tail && len(t.units) < budget && bytes < passBytes; {
		next, ok := t.readUnit(q, ring, end, tail)
		if !ok {
			break
		}
		end = next
		if n := len(t.frames); n > 0 {
			bytes += t.frames[n-1].Len
		}
	}
	return end
}

// packet is a packet's descriptors, as they are collected.
type packet struct {
	first  txDescriptor // the first with data: POPTS and TSE count there
	last   txDescriptor // with EOP: VLE, IFCS, IC and the tag count there
	parts  int          // its parts are transmitter.parts[parts:]
	length int
	some   bool
	lost   bool // DropsAcrossPages
}

func (p *packet) tso() bool { return p.first.extended() && p.first.command()&txCmdTSE != 0 }

// readUnit reads context descriptors and the packet after them. ok is false if
// there is no whole packet yet, if the queue hung, or if the packet has to be
// sent by itself.
func (t *transmitter) readUnit(q *txQueue, ring []byte, start, tail uint32) (end uint32, ok bool) {
	undo := len(t.done)
	u := txUnit{start: start, contexts: t.contexts, before: undo}
	p := packet{parts: len(t.parts)}
	for i := start; i != tail; {
		d := loadTxDescriptor(ring[i*descriptorSize:])
		index := i
		i = q.next(i)
		t.note(index, d)
		if d.extended() && d.dtyp() == txTypeContext {
			t.load(d)
			continue
		}
		if d.extended() && d.dtyp() != txTypeData || !t.collect(&p, d) {
			q.hang()
			break
		}
		if d.command()&txCmdEOP == 0 {
			continue
		}
		if p.lost {
			t.parts = t.parts[:p.parts]
			return i, true
		}
		p.last = d
		u.end = i
		if t.frame(q, &p, &u) {
			t.units = append(t.units, u)
			return i, true
		}
		if t.literal.wanted && len(t.units) == 0 && start == q.head.Load() {
			t.literal.ready, t.literal.packet, t.literal.unit = true, p, u
			return start, false
		}
		t.undo(&u, undo, p.parts)
		return start, false
	}
	if !p.some && !q.hung {
		return tail, true // contexts only: they are loaded
	}
	t.undo(&u, undo, p.parts)
	return start, false
}

// undo forgets a unit that is not to be sent now.
func (t *transmitter) undo(u *txUnit, done, parts int) {
	t.contexts = u.contexts
	t.done, t.parts = t.done[:done], t.parts[:parts]
}

// note remembers a descriptor that asks to be written back.
func (t *transmitter) note(index uint32, d txDescriptor) {
	if d.command()&txCmdRS == 0 && !t.all {
		return
	}
	t.done = append(t.done, txDone{index, d.upper | txDD, d.command()&txCmdIDE != 0})
}

// load takes over a context descriptor.
func (t *transmitter) load(d txDescriptor) {
	c := d.context()
	*t.context(c.tucmd&txCmdTSE != 0) = c
}

// collect adds a data descriptor's buffer to a packet. It returns false if the
// buffer is not in memory or the packet too long.
func (t *transmitter) collect(p *packet, d txDescriptor) bool {
	if !p.some {
		p.some, p.first = true, d
	}
	n := d.dataLen()
	if n == 0 {
		return true
	}
	b := t.model.host.Tx.Bytes(d.addr, n)
	if b == nil {
		return false
	}
	p.lost = p.lost || t.model.opt.Variation.DropsAcrossPages && sim.AcrossPages(d.addr, n)
	p.length += n
	t.parts = append(t.parts, b)
	return p.length <= maxTxFrame || p.tso() && p.length <= maxTSOFrame
}

// send puts the frames that were read on the wire and forgets those that were
// not taken.
func (t *transmitter) send(q *txQueue, end uint32) {
	taken := 0
	if n := len(t.frames); n > 0 {
		taken = t.put(q, t.frames)
	}
	if taken == len(t.units) {
		q.head.Store(end)
		return
	}
	u := &t.units[taken]
	q.head.Store(u.start)
	t.contexts = u.contexts
	t.units, t.done = t.units[:taken], t.done[:u.before]
}

// put sends frames; if not all are taken the queue pauses until Resume.
func (t *transmitter) put(q *txQueue, frames []sim.Frame) int {
	if t.model.port == nil {
		return len(frames)
	}
	q.paused.Store(true) // before Send: Resume may come before it returns
	taken := t.model.port.Send(frames)
	if taken == len(frames) {
		q.paused.Store(false)
	}
	t.stall(q, taken < len(frames))
	return taken
}

// stall follows the wire: on is that it took no more of q's frames.
func (t *transmitter) stall(q *txQueue, on bool) {
	t.begun = nil
	if on {
		t.begun = q
	}
	if t.stalled.Swap(on) == on {
		return
	}
	if on {
		t.stats.add(statXOFFRXC, 1)
		return
	}
	t.stats.add(statXONRXC, 1)
}

// finish writes descriptors back and interrupts.
func (t *transmitter) finish(q *txQueue, ring []byte, tail, before uint32) {
	for i := range t.units {
		t.count(&t.frames[i])
		if t.units[i].tso {
			t.stats.add(statTSCTC, 1)
		}
	}
	now, delayed := uint32(0), uint32(0)
	written := uint32(causeTXDW | causeTXQ0<<q.index)
	for _, d := range t.done {
		descriptorWord(ring, d.index, txStatusWord).Store(d.status)
		if d.delay {
			delayed |= written
		} else {
			now |= written
		}
	}
	left := q.left(tail)
	if left == 0 {
		now |= causeTXQE
	}
	if q.lwm != 0 && before >= q.lwm && left < q.lwm {
		now |= causeTXDLOW
	}
	if now|delayed != 0 {
		t.model.irq.raiseTx(now, delayed)
	}
}

// count adds a frame to the statistics.
func (t *transmitter) count(f *sim.Frame) {
	s := &t.stats
	n := uint64(f.Segments())
	s.add(statTPT, n)
	s.add(statGPTC, n)
	bytes := uint64(f.Len) + n*fcsLen
	if n == 1 {
		s.add(statPTC64+sizeClass(f.Len+fcsLen), 1)
	} else {
		bytes += (n - 1) * uint64(f.HeaderLen)
		last := f.Len - f.HeaderLen - int(n-1)*f.SegmentSize
		s.add(statPTC64+sizeClass(f.HeaderLen+f.SegmentSize+fcsLen), n-1)
		s.add(statPTC64+sizeClass(f.HeaderLen+last+fcsLen), 1)
	}
	s.add(statTOT, bytes)
	s.add(statGOTC, bytes)
	var dst [6]byte // the first descriptor may be shorter
	f.CopyTo(dst[:], 0)
	switch {
	case dst[0]&1 == 0:
	case isBroadcast(dst[:]):
		s.add(statBPTC, n)
	default:
		s.add(statMPTC, n)
	}
}

// fcsGood tells whether parts end with their own frame check sequence.
func fcsGood(parts [][]byte) bool {
	// The CRC of data with its CRC behind it is a constant (IEEE 802.3 3.2.9).
	const residue = 0x2144DF1C
	crc := uint32(0)
	for _, p := range parts {
		crc = crc32.Update(crc, crc32.IEEETable, p)
	}
	return crc == residue
}
