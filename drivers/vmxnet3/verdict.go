package vmxnet3

import "nicd/framework"

// This file is about what a packet's completions say of it as a whole: the last
// one, or the first one, of checksums, VLAN and hash (metadata-on), the first one
// of merging.

// merge is what a packet's first completion said of the segments that the device
// merged into it.
type merge struct {
	said          bool   // it was of typeLRO
	segments, mss uint32 // either may be 0
}

func mergeOf(c *rxComp) merge {
	if !c.merged() {
		return merge{}
	}
	return merge{said: true, segments: c.hash & rcSegments, mss: c.flags & rcLow}
}

// speaker is the completion that says of a packet what metadata-on is about, given
// its last one. All devices that are known use the last.
func (q *rxQueue) speaker(last *rxComp) *rxComp {
	if q.headSpeaks {
		return &q.head
	}
	return last
}

// finish gives the packet what the completion that speaks for it says.
func (q *rxQueue) finish(c *rxComp) {
	p := &q.packet.Packet
	if c.bad() {
		q.packet.Fail(errorReason(c))
		return
	}
	if framework.Features(q.features.Load()).Has(framework.RxChecksum) {
		p.Flags |= verdict(c)
	}
	if c.data&rcTagged != 0 {
		p.VLAN = uint16(c.data >> rcTagShift)
		p.Flags |= framework.VLANTag
	}
	// The first completion of a merged packet has other things in this word.
	if c.where>>rcHashShift&rcHashMask != 0 && !c.merged() {
		p.Hash = c.hash
		p.Flags |= framework.HashValid
	}
	if q.merge.said || q.merges.Load() {
		q.coalesced()
	}
}

// errorReason reads why a packet is bad.
func errorReason(c *rxComp) framework.DropReason {
	if c.flags&rcFCSOK == 0 {
		return framework.DropCRC
	}
	return framework.DropDevice
}

// verdict is what the device found out about protocols and checksums.
func verdict(c *rxComp) (f framework.PacketFlags) {
	if c.where&rcNoChecksum != 0 {
		return 0
	}
	switch {
	case c.flags&rcIPv4 != 0 && c.flags&rcIPOK == 0:
		return framework.IPv4 | framework.ChecksumBad
	case c.flags&rcIPv4 != 0:
		f = framework.IPv4
	case c.flags&rcIPv6 != 0:
		f = framework.IPv6
	}
	switch {
	case c.flags&rcFragment != 0:
		return f
	case c.flags&rcTCP != 0:
		f |= framework.TCP
	case c.flags&rcUDP != 0:
		f |= framework.UDP
	default:
		return f
	}
	switch {
	case c.flags&rcL4OK != 0:
		f |= framework.ChecksumVerified
	case !c.merged() && c.flags&rcLow == 0:
		f |= framework.ChecksumBad
		// Otherwise the low half is a sum over part of the packet, or an MSS,
		// and nothing is known.
	}
	return f
}

// coalesced finds out whether the packet is several segments that the device
// merged, how many and of what size. From revision 2 on the device says so,
// though it is known to leave out the size, or both, and to call a packet merged
// that is a single segment (Linux 50219538ffc0, DPDK ae2705b80d). A device of
// revision 1 hands over a packet that is longer than any frame can be, and
// nothing else: its size is not known, and its count a lower bound.
func (q *rxQueue) coalesced() {
	p, m := &q.packet.Packet, &q.merge
	tooLong := p.Flags&framework.TCP != 0 && p.Len > q.longest
	if p.Len == 0 || !tooLong && (!m.said || m.segments == 1) {
		return
	}
	header := uint32(framework.TCPHeaderLen(q.buffers.Bytes(q.packet.Fragments()[0])))
	if header >= p.Len {
		header = 0
	}
	payload, segments, mss := p.Len-header, m.segments, m.mss
	switch {
	case segments > 1 && mss == 0 && header > 0:
		mss = (payload + segments - 1) / segments
	case segments <= 1 && mss > 0 && header > 0:
		segments = (payload + mss - 1) / mss
	case segments <= 1 && tooLong:
		segments, mss = (p.Len+q.longest-1)/q.longest, 0
	}
	if segments <= 1 {
		return
	}
	p.Flags |= framework.Coalesced
	p.Segments, p.SegmentSize, p.HeaderLen = uint16(segments), uint16(mss), uint16(header)
}
