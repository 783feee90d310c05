package engine

import (
	"encoding/binary"

	"nicd/framework"
	"nicd/gso"
	"nicd/internal/checksum"
)

// draft is a packet while it is worked on: its fragments, and all buffers that
// come back when it is done.
type draft struct {
	packet framework.Packet
	frags  []framework.Fragment
	bufs   []framework.Buffer
	bytes  [][]byte // scratch
	spare  []framework.Fragment
}

func newDraft() draft {
	const most = 2 * framework.MaxFragments
	return draft{
		frags: make([]framework.Fragment, 0, most),
		spare: make([]framework.Fragment, 0, most),
		bufs:  make([]framework.Buffer, 0, 2*most),
		bytes: make([][]byte, 0, most),
	}
}

// reset makes the draft packet i of b.
func (d *draft) reset(b *framework.Batch, i int) {
	d.packet = b.Packets[i]
	d.frags = append(d.frags[:0], b.Fragments(i)...)
	d.bufs = appendBuffers(d.bufs[:0], d.frags)
}

// appendBuffers appends the buffers of fragments. Fragments that follow each
// other in one buffer are one buffer.
func appendBuffers(dst []framework.Buffer, frags []framework.Fragment) []framework.Buffer {
	last := framework.NoBuffer
	for i := range frags {
		if b := frags[i].Buffer; b != last {
			dst = append(dst, b)
			last = b
		}
	}
	return dst
}

// views returns the fragments' bytes.
func (d *draft) views(buffers *framework.Buffers) [][]byte {
	d.bytes = d.bytes[:0]
	for _, f := range d.frags {
		d.bytes = append(d.bytes, buffers.Bytes(f))
	}
	return d.bytes
}

// prepare fills the stage with what the device can send. In the ordinary case
// that is the batch as it was taken.
func (q *txQueue) prepare() {
	r := q.rules.Load()
	if q.next == 0 && !q.cut.active && q.allPlain(r) {
		q.in, q.stage.out = q.stage.out, q.in
		q.in.Reset()
		q.stage.plain = true
		return
	}
	for q.next < len(q.in.Packets) && q.stage.room() {
		if !q.prepareNext(r) {
			q.count[TxNoBuffer]++
			return
		}
	}
}

// allPlain tells whether nothing has to be done to any packet.
func (q *txQueue) allPlain(r *txRules) bool {
	for i := range q.in.Packets {
		p := &q.in.Packets[i]
		if r.ordinary(q.in, p, q.buffers) {
			continue
		}
		w, reason := r.check(q.in, p, q.buffers)
		if w != nothing || reason != framework.NoDrop {
			return false
		}
	}
	return len(q.in.Packets) > 0
}

// prepareNext does what the next packet needs, or a part of it. False means that
// it has to wait for buffers.
func (q *txQueue) prepareNext(r *txRules) bool {
	if q.cut.active {
		return q.cutMore(r)
	}
	w, reason := r.check(q.in, &q.in.Packets[q.next], q.buffers)
	need := 0
	if reason == framework.NoDrop && w != nothing {
		q.draft.reset(q.in, q.next)
		need, reason = q.buffersFor(w, r)
	}
	if reason != framework.NoDrop {
		q.dropTaken(q.next, reason)
		q.next++
		return true
	}
	if need > len(q.own.free) {
		return false
	}
	if w == nothing {
		q.draft.reset(q.in, q.next)
	}
	if w&cut != 0 {
		return q.cutBegin(r)
	}
	q.apply(w, r)
	q.commit(all)
	q.next++
	return true
}

// commit appends the draft to the stage.
func (q *txQueue) commit(what part) {
	q.stage.append(&q.draft, what)
}

func (s *txStage) append(d *draft, what part) {
	d.packet.First = uint32(len(s.out.Frags))
	d.packet.Frags = uint16(len(d.frags))
	s.out.Frags = append(s.out.Frags, d.frags...)
	s.out.Packets = append(s.out.Packets, d.packet)
	s.bufs = append(s.bufs, d.bufs...)
	s.ends = append(s.ends, uint32(len(s.bufs)))
	s.parts = append(s.parts, what)
}

// chunk is how many bytes are put into one of the engine's own buffers. A tag may
// be inserted afterwards.
func (q *txQueue) chunk(r *txRules) uint32 {
	return min(q.buffers.Stride-headroom, r.maxFragLen-tagLen)
}

// pieces is how many own buffers n bytes take.
func (q *txQueue) pieces(n uint32, r *txRules) int {
	c := q.chunk(r)
	return int((n + c - 1) / c)
}

// buffersFor is how many own buffers the draft can need for w at most. It fails
// if that is more than there will ever be, or if the device cannot send the
// packet even so.
func (q *txQueue) buffersFor(w work, r *txRules) (int, framework.DropReason) {
	d := &q.draft
	need := 0
	straddles := w&(sum|seed) != 0 && d.field(q.buffers) == nil
	if w&gather != 0 || straddles || w&cut != 0 && d.frags[0].Len < uint32(d.packet.HeaderLen) {
		need++
		if headerLen(&d.packet) > q.longestFront(r) {
			return 0, framework.DropTxTooLong
		}
	}
	if w&tag != 0 && !d.tagFits() {
		need++
		if headersOrLess(d) > q.longestFront(r) {
			return 0, framework.DropTxTooLong
		}
	}
	longest := d.packet.Len + 4
	if w&cut != 0 {
		longest = uint32(d.packet.HeaderLen) + uint32(d.packet.SegmentSize) + 4
		need += 2 + q.pieces(longest, r)
		if q.mostDescriptors(longest, r) > r.maxFrags {
			return 0, framework.DropTxTooLong
		}
	}
	if w&(flatten|pad) != 0 {
		longest = max(longest, r.minFrame)
		need += q.pieces(longest, r)
		if q.mostDescriptors(longest, r) > r.maxFrags {
			return 0, framework.DropTxTooLong
		}
	}
	if need > int(q.own.count) {
		return 0, framework.DropTxNoBuffer
	}
	return need, framework.NoDrop
}

// apply does the work on the draft, which needs no more than the buffers that
// buffersFor said.
func (q *txQueue) apply(w work, r *txRules) {
	d := &q.draft
	if w&unmark != 0 {
		d.packet.Flags &^= framework.Segment
	}
	if w&gather != 0 {
		q.pull(headerLen(&d.packet), r)
		q.count[TxPullups]++
	}
	if w&(sum|seed) != 0 && d.field(q.buffers) == nil {
		q.pull(headerLen(&d.packet), r)
		q.count[TxPullups]++
	}
	if w&seed != 0 {
		q.seedChecksum()
	}
	if w&sum != 0 {
		q.fillChecksum()
	}
	if w&tag != 0 {
		q.insertTag(r)
	}
	if w&(flatten|pad) != 0 {
		q.copyOut(r, w)
	}
	if w&split != 0 || r.pageShift != onePiece { // what was copied lies elsewhere
		q.split(r)
	}
}

// pull copies the first n bytes into a buffer of the engine's, so that they are
// in one fragment with room in front.
func (q *txQueue) pull(n uint32, r *txRules) {
	d := &q.draft
	f := q.whole(n, r)
	dst := q.buffers.Bytes(f)
	rest := append(d.spare[:0], f)
	for _, s := range d.frags {
		c := uint32(copy(dst, q.buffers.Bytes(s)))
		dst = dst[c:]
		s.Offset += c
		s.Len -= c
		if s.Len > 0 {
			rest = append(rest, s)
		}
	}
	d.spare, d.frags = d.frags, rest
	d.bufs = append(d.bufs, f.Buffer)
}

// field is the checksum field's two bytes, nil if they are in two fragments.
func (d *draft) field(buffers *framework.Buffers) []byte {
	at := uint32(d.packet.ChecksumStart) + uint32(d.packet.ChecksumOffset)
	for _, f := range d.frags {
		if at >= f.Len {
			at -= f.Len
			continue
		}
		if at+2 > f.Len {
			return nil
		}
		return buffers.Bytes(f)[at : at+2]
	}
	return nil
}

// seedChecksum takes the length out of the pseudo-header's sum: devices that
// segment add each segment's own.
func (q *txQueue) seedChecksum() {
	p := &q.draft.packet
	f := q.draft.field(q.buffers)
	length := checksum.Fold(uint64(p.Len - uint32(p.ChecksumStart)))
	binary.BigEndian.PutUint16(f, checksum.Add(binary.BigEndian.Uint16(f), ^length))
	payload := p.Len - uint32(p.HeaderLen)
	q.count[TxTSOHardware]++
	q.count[TxTSOHardwareSegments] += uint64((payload + uint32(p.SegmentSize) - 1) / uint32(p.SegmentSize))
}

// fillChecksum completes the checksum in software.
func (q *txQueue) fillChecksum() {
	d := &q.draft
	p := &d.packet
	// The field lies in one fragment, so this cannot fail.
	if gso.FillChecksum(d.views(q.buffers), int(p.ChecksumStart), int(p.ChecksumOffset)) == nil {
		q.count[TxChecksumSoftware]++
	}
	p.Flags &^= framework.ChecksumPartial
}

// tagLen is the length of an 802.1Q tag, tagAt where it goes.
const (
	tagLen = 4
	tagAt  = 12
)

// tagFits tells whether the tag can be inserted where the frame lies.
func (d *draft) tagFits() bool { return d.frags[0].Offset >= tagLen && d.frags[0].Len >= tagAt }

// insertTag moves the addresses forward and writes the tag behind them.
func (q *txQueue) insertTag(r *txRules) {
	d := &q.draft
	if !d.tagFits() {
		q.pull(max(headersOrLess(d), tagAt), r)
	}
	f := &d.frags[0]
	f.Offset -= tagLen
	f.Len += tagLen
	b := q.buffers.Bytes(*f)
	copy(b, b[tagLen:tagLen+tagAt])
	binary.BigEndian.PutUint16(b[tagAt:], 0x8100)
	binary.BigEndian.PutUint16(b[tagAt+2:], d.packet.VLAN)
	p := &d.packet
	p.Len += tagLen
	p.Flags &^= framework.VLANTag
	if p.HeaderLen != 0 {
		p.HeaderLen += tagLen
	}
	if p.Flags&(framework.ChecksumPartial|framework.Segment) != 0 {
		p.ChecksumStart += tagLen
	}
	q.count[TxVLANSoftware]++
}

// headersOrLess is how much of the front to pull up with a tag: the headers, if
// the device is to look at them, so that they stay together.
func headersOrLess(d *draft) uint32 {
	if d.packet.Flags&(framework.ChecksumPartial|framework.Segment) == 0 {
		return tagAt
	}
	return headerLen(&d.packet)
}

// copyOut copies the draft into buffers of the engine's, and pads it.
func (q *txQueue) copyOut(r *txRules, w work) {
	d := &q.draft
	want := max(d.packet.Len, r.minFrame)
	rest := d.spare[:0]
	src, at := 0, uint32(0)
	for left := want; left > 0; {
		f := framework.Fragment{Buffer: q.own.get(), Offset: headroom, Len: min(left, q.chunk(r))}
		left -= f.Len
		rest = append(rest, f)
		d.bufs = append(d.bufs, f.Buffer)
		dst := q.buffers.Bytes(f)
		for len(dst) > 0 && src < len(d.frags) {
			n := copy(dst, q.buffers.Bytes(d.frags[src])[at:])
			dst = dst[n:]
			if at += uint32(n); at == d.frags[src].Len {
				src, at = src+1, 0
			}
		}
		clear(dst)
	}
	d.spare, d.frags = d.frags, rest
	if w&flatten != 0 {
		q.count[TxLinearised]++
	}
	if want != d.packet.Len {
		q.count[TxPads]++
		d.packet.Len = want
	}
}

// split divides fragments that one descriptor cannot carry.
func (q *txQueue) split(r *txRules) {
	d := &q.draft
	rest := d.spare[:0]
	for _, f := range d.frags {
		for n := r.piece(q.buffers, f); n < f.Len; n = r.piece(q.buffers, f) {
			rest = append(rest, framework.Fragment{Buffer: f.Buffer, Offset: f.Offset, Len: n})
			f.Offset += n
			f.Len -= n
		}
		rest = append(rest, f)
	}
	if len(rest) > len(d.frags) {
		q.count[TxSplits]++
	}
	d.spare, d.frags = d.frags, rest
}
