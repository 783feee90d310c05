package vmxnet3

import (
	"nicd/sim"
)

// place writes the packet, whose first frame is frames[0], to the driver's
// buffers, together with the frames after it that can be coalesced to at most
// limit bytes, and returns how many frames it took.
func (r *receiver) place(q *rxQueue, frames []sim.Frame, limit int, pause bool) int {
	p, f := &r.packet, &frames[0]
	p.whole(f)
	took := 1
	if r.m.lro.Load() && len(frames) > 1 {
		took = r.gather(frames, limit)
	}
	slots, c, res := r.reserve(q, r.slots[:0], q.cursors(), p.len, pause)
	switch {
	case (res == planTooLong || res == planHopeless) && took > 1 && limit == maxPacket:
		// Once more, with no more than the buffers hold.
		p.read(f)
		r.inspect(f)
		return r.place(q, frames, capacity(slots), pause)
	case res != planFits && res != planTooLong:
		return r.refused(q, res, took)
	}
	if took > 1 {
		p.fixLength()
		r.finishLRO()
	}
	q.commit(c)
	r.write(q, slots, res == planTooLong)
	return took
}

// refused is what becomes of frames for which there are no buffers: they wait,
// or are dropped.
func (r *receiver) refused(q *rxQueue, res planResult, frames int) int {
	switch res {
	case planStarved:
		return 0
	case planHopeless:
		r.counters[q.id].outOfBuf += uint64(frames)
	default:
		r.counters[q.id].discard += uint64(frames)
	}
	return frames
}

// reserve plans. If there are not enough descriptors, and the sender can wait and
// it helps, it asks for the doorbell and looks once more; planStarved then means
// to wait, and planHopeless not to.
func (r *receiver) reserve(q *rxQueue, slots []slot, c [2]cursor, n int, pause bool) ([]slot, [2]cursor, planResult) {
	first := len(slots)
	slots, end, res := r.plan(q, c, slots, n, r.maxSlots())
	if res != planStarved {
		return slots, end, res
	}
	if !pause || q.exhausted(end) {
		return slots, end, planHopeless
	}
	if r.m.opt.Variations.RxDoorbells == RxDoorbellsStarved {
		r.askBells(q, true)
		if slots, end, res = r.plan(q, c, slots[:first], n, r.maxSlots()); res != planStarved {
			r.askBells(q, false)
			return slots, end, res
		}
	}
	r.starve(q, n)
	return slots, end, res
}

// capacity is how many bytes slots hold.
func capacity(slots []slot) (n int) {
	for i := range slots {
		if !slots[i].empty {
			n += slots[i].size
		}
	}
	return n
}

// write copies the packet to its slots and completes them. A packet that is too
// long for them, or whose buffers are not there, is an error.
func (r *receiver) write(q *rxQueue, slots []slot, truncated bool) {
	p, v := &r.packet, &r.m.opt.Variations
	broken, odd := every(v.BadFrameEvery, q.packets), every(v.BadLengthEvery, q.packets)
	q.packets++
	q.since = 0
	if broken {
		p.w3 &^= rcFCSCorrect
	}
	for len(slots) > 0 && slots[0].empty {
		r.complete(q, &slots[0], rcSOP|rcEOP, 0, 0, rcFCSCorrect)
		slots = slots[1:]
	}
	if !truncated && !broken && !odd && r.fitsDataRing(q, slots) {
		r.writeData(q, &slots[0])
		return
	}
	from, at, left, bad := 0, 0, p.len, truncated || broken
	for i := range slots {
		n := 0
		if s := &slots[i]; !s.empty {
			n = min(s.size, left)
			if buf := r.m.host.Rx.Bytes(s.addr, n); buf != nil {
				from, at = p.copyTo(buf, from, at)
			} else {
				bad = true
			}
			left -= n
		}
		last := i == len(slots)-1
		if last && odd {
			n = rcLenMask
		}
		r.completePart(q, &slots[i], i == 0, last, n, bad)
	}
	r.count(q, bad)
}

// copyTo fills buf with the source's bytes from part number from, offset at, on,
// and returns where it ended.
func (p *packet) copyTo(buf []byte, from, at int) (int, int) {
	for len(buf) > 0 && from < len(p.src) {
		n := copy(buf, p.src[from][at:])
		buf = buf[n:]
		if at += n; at == len(p.src[from]) {
			from, at = from+1, 0
		}
	}
	return from, at
}

// completePart completes slot s, which holds n bytes of the packet.
func (r *receiver) completePart(q *rxQueue, s *slot, sop, eop bool, n int, bad bool) {
	p := &r.packet
	var w0, w1, w2, w3 uint32
	if sop {
		w0 |= rcSOP
	}
	if eop {
		w0 |= rcEOP
		if bad {
			w2 |= rcErr
		}
	}
	if eop || sop && r.m.opt.Variations.OffloadsOnSOP {
		w0 |= p.w0
		w1 = p.hash
		w2 |= p.w2
		w3 |= p.w3
	}
	w3 |= r.completionType()
	if sop && r.reportsLRO() {
		w1, w3 = r.lroWords(w3)
	}
	r.complete(q, s, w0, w1, w2|uint32(n), w3)
}

func (r *receiver) completionType() uint32 {
	if r.m.opt.Variations.UntypedCompletions {
		return 0
	}
	return typeRxComp << compTypeShift
}

// complete publishes the completion of slot s.
func (r *receiver) complete(q *rxQueue, s *slot, w0, w1, w2, w3 uint32) {
	id := q.id + s.ring*r.m.shared.rxQueues
	q.comp.put(w0|uint32(s.index)|uint32(id)<<rcQueueShift, w1, w2, w3)
	q.done++
}

// fitsDataRing tells whether the packet goes to the receive data ring: one that
// is short and not coalesced.
func (r *receiver) fitsDataRing(q *rxQueue, slots []slot) bool {
	return q.dataSize > 0 && len(slots) == 1 && r.packet.len <= q.dataSize && r.packet.segments == 1 &&
		!r.m.opt.Variations.NoRxDataRing
}

// writeData copies the packet to the entry of the receive data ring that belongs
// to slot s. The slot's own buffer stays unused.
func (r *receiver) writeData(q *rxQueue, s *slot) {
	p := &r.packet
	buf := r.m.host.Rx.Bytes(q.data+uint64(s.index*q.dataSize), p.len)
	if buf != nil {
		p.copyTo(buf, 0, 0)
	}
	w2 := p.w2 | uint32(p.len)
	if buf == nil {
		w2 |= rcErr
	}
	data := slot{ring: 2, index: s.index}
	r.complete(q, &data, rcSOP|rcEOP|p.w0, p.hash, w2, p.w3|r.completionType())
	r.count(q, buf == nil)
}
