package vmxnet3

import "nicd/framework"

// This file is about what a packet's completions say of it as a whole: the last
// one, or the first one, of checksums, VLAN and hash (metadata-on), the first one
// of merging.

// finish gives the packet, of which last is the last completion, what there is to
// say of it. All devices that are known say it with the last.
func (q *rxQueue) finish(last *rxComp) {
	c, p := last, &q.Packet
	if q.firstSpeaks {
		c = &q.first
	}
	if c.bad() {
		q.Fail(errorReason(c))
		return
	}
	p.Flags |= verdict(c)
	q.coalesced()
	if p.Flags&framework.Coalesced == 0 && !framework.Features(q.run.features.Load()).Has(framework.RxChecksum) {
		p.Flags = 0 // of a merged packet the checksum is stale: the verdict stays
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
}

// errorReason reads why a packet is bad.
func errorReason(c *rxComp) framework.DropReason {
	if c.flags&rcFCSOK == 0 {
		return framework.DropCRC
	}
	return framework.DropDevice
}

// verdict is what the device found out about protocols and checksums. What it found
// out about a packet within the packet, which nobody asks it for, is left alone.
func verdict(c *rxComp) (f framework.PacketFlags) {
	if c.where&(rcNoChecksum|rcInner) != 0 {
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

// coalesced says what is known of segments that the device merged. From revision 2
// on the first completion tells, though devices are known to leave out the size, or
// both size and number, and to call a packet merged that is a single segment (Linux
// 50219538ffc0, DPDK ae2705b80d). A device of revision 1 hands over a packet that is
// longer than any frame can be, and nothing else.
func (q *rxQueue) coalesced() {
	if c := &q.first; c.merged() {
		q.Coalesce(q.run.cfg.Buffers, c.hash&rcSegments, c.flags&rcLow, q.longest)
	} else if q.run.merges.Load() {
		q.Coalesce(q.run.cfg.Buffers, 0, 0, q.longest)
	}
}
