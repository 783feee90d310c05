package engine

import (
	"nicd/framework"
	"nicd/lro"
)

// maxMergedLen is the longest IP packet that software LRO makes: with eight bytes
// of VLAN tags it is still a frame of at most framework.MaxPacketLen, also over
// IPv6, whose length field does not count its own header.
const maxMergedLen = 65535 - 40

// coalescer is a receive queue's software LRO: the engine, and the translation
// between its packets and ours. A queue whose packets are not to be merged in
// software has none.
type coalescer struct {
	engine   *lro.Engine
	in       []lro.Packet
	out      []lro.Aggregate
	batch    framework.Batch
	maxFrags uint16    // fragments of a packet that may merge
	counted  lro.Stats // what is already in the queue's counters
}

// newCoalescer makes a coalescer for batches of so many packets of a link with
// that MTU.
func newCoalescer(mtu, budget int, buffers *framework.Buffers) *coalescer {
	perPacket := (mtu + 14 + 8 + int(buffers.Size) - 1) / int(buffers.Size)
	perPacket = min(max(perPacket, 1), framework.MaxFragments)
	return &coalescer{
		engine: lro.New(lro.Options{
			MTU:         mtu,
			MaxLen:      maxMergedLen,
			MaxSegments: framework.MaxFragments / perPacket,
			Flows:       4 * budget,
		}),
		in:       make([]lro.Packet, 0, budget),
		out:      make([]lro.Aggregate, 0, budget),
		batch:    *framework.NewBatch(budget, 4*budget+framework.MaxFragments),
		maxFrags: uint16(perPacket),
	}
}

// merge coalesces b and returns what is to be delivered, which is valid until
// the next call. No packet is held back.
func (c *coalescer) merge(q *rxQueue, b *framework.Batch) *framework.Batch {
	c.in = c.in[:len(b.Packets)]
	for i := range b.Packets {
		c.describe(&c.in[i], q.buffers, b, i)
	}
	c.out = c.engine.Batch(c.in, c.out[:0])
	c.batch.Reset()
	for i := range c.out {
		c.emit(q, b, &c.out[i])
	}
	return &c.batch
}

// describe fills in what the LRO engine has to know of packet i.
func (c *coalescer) describe(p *lro.Packet, buffers *framework.Buffers, b *framework.Batch, i int) {
	from := &b.Packets[i]
	*p = lro.Packet{
		Data: buffers.Bytes(b.Frags[from.First]),
		Len:  from.Len,
		Hash: from.Hash,
	}
	switch {
	case from.Flags&framework.ChecksumBad != 0:
		p.Checksum = lro.ChecksumBad
	case from.Flags&framework.ChecksumPartial != 0:
		p.Checksum = lro.ChecksumPartial
	case from.Frags > c.maxFrags:
		// Merging it could give a packet with more fragments than there may
		// be. Said to be unverifiable, it passes alone and in order.
		p.Checksum = lro.ChecksumPartial
	case from.Flags&framework.ChecksumVerified != 0:
		p.Checksum = lro.ChecksumVerified
	}
	if from.Flags&framework.VLANTag != 0 {
		p.Flags |= lro.VLANStripped
		p.VLAN = from.VLAN
	}
	if from.Flags&framework.Coalesced != 0 {
		p.Flags |= lro.HardwareCoalesced
		p.Segments, p.SegmentSize = from.Segments, from.SegmentSize
	}
}

// emit appends an aggregate to the outgoing batch.
func (c *coalescer) emit(q *rxQueue, b *framework.Batch, a *lro.Aggregate) {
	p := b.Packets[a.Head]
	first := uint32(len(c.batch.Frags))
	c.batch.Frags = append(c.batch.Frags, b.Frags[p.First:p.First+uint32(p.Frags)]...)
	p.First = first
	c.verdict(&p, a)
	if p.Flags&^b.Packets[a.Head].Flags&framework.ChecksumBad != 0 {
		q.count[RxChecksumBad]++
	}
	for i := c.in[a.Head].Next; i >= 0; i = c.in[i].Next {
		c.appendPayload(q, b, int(i))
	}
	p.Frags = uint16(uint32(len(c.batch.Frags)) - first)
	c.batch.Packets = append(c.batch.Packets, p)
}

// verdict writes into the head packet what the LRO engine says of the aggregate.
func (c *coalescer) verdict(p *framework.Packet, a *lro.Aggregate) {
	if a.Flags&lro.TCP != 0 {
		p.HeaderLen = a.HeaderLen
	}
	if a.Flags&lro.Merged == 0 {
		switch {
		case p.Flags&framework.ChecksumPartial != 0:
		case a.Checksum == lro.ChecksumVerified:
			p.Flags |= framework.ChecksumVerified
		case a.Checksum == lro.ChecksumBad:
			p.Flags = p.Flags&^framework.ChecksumVerified | framework.ChecksumBad
		}
		return
	}
	p.Len = a.Len
	p.Segments, p.SegmentSize = a.Segments, a.SegmentSize
	p.ChecksumStart, p.ChecksumOffset = a.L4Offset, tcpChecksumOffset
	// The field holds a pseudo-header's sum; the segments' checksums were right.
	p.Flags |= framework.SoftwareCoalesced | framework.TCP | framework.ChecksumPartial | framework.ChecksumVerified
	if a.Flags&lro.IPv6 != 0 {
		p.Flags |= framework.IPv6
	} else {
		p.Flags |= framework.IPv4
	}
	if a.IDMode == lro.IDFixed {
		p.Flags |= framework.IPIDFixed
	}
	if a.Flags&lro.CWRCopied != 0 {
		p.Flags |= framework.CWRCopied
	}
}

// appendPayload appends the fragments of a later member of an aggregate without
// its headers and without what follows the payload.
func (c *coalescer) appendPayload(q *rxQueue, b *framework.Batch, i int) {
	skip, left := uint32(c.in[i].PayloadOffset), c.in[i].PayloadLen
	for _, f := range b.Fragments(i) {
		cut := min(skip, f.Len)
		skip -= cut
		f.Offset += cut
		f.Len = min(f.Len-cut, left)
		left -= f.Len
		if f.Len == 0 {
			q.pool.put(f.Buffer)
			continue
		}
		c.batch.Frags = append(c.batch.Frags, f)
	}
}

// foldLRO adds what the LRO engine counted since the last time to the queue's
// counters.
func (q *rxQueue) foldLRO() {
	c := q.merger
	if c == nil {
		return
	}
	now := c.engine.Stats()
	was := &c.counted
	q.count[LROPackets] += now.Packets - was.Packets
	q.count[LROMerged] += now.Merged - was.Merged
	q.count[LROVerified] += now.Verified - was.Verified
	for r := range lro.NumReasons {
		q.count[endCounter(r)] += now.Ended[r] - was.Ended[r]
		q.count[passCounter(r)] += now.Passed[r] - was.Passed[r]
	}
	c.counted = now
}

// endCounter is under which counter the end of an aggregate goes.
func endCounter(r lro.Reason) RxCounter {
	switch r {
	case lro.ReasonBatchEnd:
		return LROEndBatch
	case lro.ReasonPush, lro.ReasonFIN, lro.ReasonShort:
		return LROEndPush
	case lro.ReasonSegmentLimit, lro.ReasonSizeLimit:
		return LROEndLimit
	case lro.ReasonLarger, lro.ReasonSequence, lro.ReasonIPID:
		return LROEndSequence
	case lro.ReasonEvicted, lro.ReasonExpired:
		return LROEndEvicted
	}
	return LROEndHeader
}

// passCounter is under which counter a packet that passed alone goes.
func passCounter(r lro.Reason) RxCounter {
	switch r {
	case lro.ReasonHardware, lro.ReasonOversize:
		return LROPassHardware
	case lro.ReasonNoPayload:
		return LROPassNoPayload
	case lro.ReasonNotTCP:
		return LROPassNotTCP
	case lro.ReasonBadChecksum, lro.ReasonUnverified, lro.ReasonOddChecksum:
		return LROPassChecksum
	}
	return LROPassOther
}
