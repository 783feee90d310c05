package engine

import (
	"nicd/framework"
	"nicd/gso"
)

// cutter segments one packet in software. It keeps its place when the stage is
// full or buffers run out.
type cutter struct {
	active    bool
	segmenter gso.Segmenter
	packet    framework.Packet // the headers' description, for each segment
	frags     []framework.Fragment
	bufs      []framework.Buffer // come back with the last segment
	bytes     [][]byte
	refs      []gso.Ref
	left      int
	need      int // own buffers that a segment can take
}

// cutBegin starts with the draft. There are buffers for its headers and for a
// segment.
func (q *txQueue) cutBegin(r *txRules) bool {
	d, c := &q.draft, &q.cut
	if d.frags[0].Len < uint32(d.packet.HeaderLen) {
		q.pull(uint32(d.packet.HeaderLen), r)
		q.count[TxPullups]++
	}
	params, err := gso.Parse(q.buffers.Bytes(d.frags[0])[:d.packet.HeaderLen])
	if err == nil && params.HeaderLen == d.packet.HeaderLen {
		params.SegmentSize = d.packet.SegmentSize
		params.FixedID = d.packet.Flags&framework.IPIDFixed != 0
		params.CopyCWR = d.packet.Flags&framework.CWRCopied != 0
		if r.features.Has(framework.TxChecksum) {
			params.Checksum = gso.ChecksumPartial
		}
		c.frags = append(c.frags[:0], d.frags...)
		c.bytes = append(c.bytes[:0], d.views(q.buffers)...)
		err = c.segmenter.Reset(c.bytes, params)
	}
	if err != nil || params.HeaderLen != d.packet.HeaderLen {
		q.count[TxDropMalformed]++
		for _, b := range d.bufs {
			q.release(b)
		}
		q.next++
		return true
	}
	c.packet = d.packet
	c.packet.Flags &^= framework.Segment | framework.ChecksumPartial
	c.packet.ChecksumStart = params.L4Offset
	if params.Checksum == gso.ChecksumPartial {
		c.packet.Flags |= framework.ChecksumPartial
	}
	c.packet.Segments, c.packet.SegmentSize = 0, 0
	c.bufs = append(c.bufs[:0], d.bufs...)
	c.left = c.segmenter.Segments()
	c.need = 2 + q.pieces(uint32(d.packet.HeaderLen)+uint32(d.packet.SegmentSize)+tagLen, r)
	c.active = true
	q.count[TxTSOChopped]++
	return q.cutMore(r)
}

// cutMore makes segments until the packet is done, the stage is full or buffers
// are missing; false says the last.
func (q *txQueue) cutMore(r *txRules) bool {
	c := &q.cut
	for c.left > 0 {
		if !q.stage.room() {
			return true
		}
		if len(q.own.free) < c.need {
			return false
		}
		q.cutOne(r)
	}
	c.active = false
	q.next++
	return true
}

// cutOne makes the next segment.
func (q *txQueue) cutOne(r *txRules) {
	c, d := &q.cut, &q.draft
	head := q.whole(uint32(c.packet.HeaderLen), r)
	c.refs, _ = c.segmenter.Next(q.buffers.Bytes(head), c.refs[:0])
	c.left--
	d.packet = c.packet
	d.packet.Len = head.Len
	d.frags = append(d.frags[:0], head)
	d.bufs = append(d.bufs[:0], head.Buffer)
	for _, ref := range c.refs {
		f := c.frags[ref.Fragment]
		f.Offset += uint32(ref.Offset)
		f.Len = uint32(ref.Len)
		d.packet.Len += f.Len
		d.frags = append(d.frags, f)
	}
	if c.left == 0 {
		d.bufs = append(d.bufs, c.bufs...)
	}
	q.apply(q.segmentWork(r), r)
	if c.left == 0 {
		q.commit(tail)
	} else {
		q.commit(segment)
	}
	q.count[TxTSOChoppedSegments]++
}

// segmentWork is what is still to be done to a segment.
func (q *txQueue) segmentWork(r *txRules) work {
	d := &q.draft
	var w work
	if d.packet.Flags&framework.VLANTag != 0 && !r.features.Has(framework.VLANInsert) {
		w |= tag
	}
	if d.packet.Flags&framework.ChecksumPartial != 0 && !r.features.Has(framework.TxChecksum) {
		w |= sum
	}
	if d.packet.Len < r.minFrame {
		w |= pad
	}
	frags := 0
	for _, f := range d.frags {
		n := r.descriptors(q.buffers, f)
		frags += n
		if n > 1 {
			w |= split
		}
	}
	if frags > r.maxFrags {
		w |= flatten
	}
	return w
}

// abandon drops what is left of a packet that is being cut; q.next is past it
// afterwards.
func (c *cutter) abandon(q *txQueue) {
	if !c.active {
		return
	}
	for _, b := range c.bufs {
		q.release(b)
	}
	c.active = false
	q.next++
}
