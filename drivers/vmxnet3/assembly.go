package vmxnet3

import "nicd/framework"

// assembly is a packet that is being put together from completions.
type assembly struct {
	open   bool // it has begun
	merged bool // its first completion was of typeLRO
	// What that completion said of the merged segments; either may be 0.
	segments, mss uint32
	meta          framework.Packet
	n             int
	frags         [framework.MaxFragments]framework.Fragment
}

// begin starts a packet. A completion that starts none where one should start is
// the rest of something that was lost.
func (p *assembly) begin(c *rxComp) {
	p.open, p.n, p.meta = true, 0, framework.Packet{}
	p.merged, p.segments, p.mss = c.merged(), 0, 0
	if p.merged {
		p.segments, p.mss = c.hash&rcSegments, c.flags&rcLow
	}
	if !c.sop() && c.length() > 0 {
		p.drop(framework.DropDevice)
	}
}

// add appends n bytes in b, unless the packet has all the fragments that a packet
// can have; then it is too long to be delivered.
func (p *assembly) add(b framework.Buffer, n uint32) bool {
	if p.n == len(p.frags) {
		p.drop(framework.DropTooLong)
		return false
	}
	p.frags[p.n] = framework.Fragment{Buffer: b, Offset: framework.RxOffset, Len: n}
	p.n++
	p.meta.Len += n
	return true
}

// room is how many fragments a batch must have left for the next completion to
// be taken.
func (p *assembly) room() int { return min(p.n+1, len(p.frags)) }

// abandon makes a packet that has no end a bad one, if there is anything of it.
func (p *assembly) abandon() {
	if p.n > 0 {
		p.drop(framework.DropDevice)
	}
}

// drop makes the packet a bad one. The first reason stands.
func (p *assembly) drop(why framework.DropReason) {
	if p.meta.Error == framework.NoDrop {
		p.meta.Error = why
	}
}

// deliver appends the packet to dst, which has room, and is done with it. A
// packet of which nothing is left and that is not bad was a skipped buffer.
func (p *assembly) deliver(dst *framework.Batch) {
	p.open = false
	if p.n == 0 && p.meta.Error == framework.NoDrop {
		return
	}
	p.meta.First, p.meta.Frags = uint32(len(dst.Frags)), uint16(p.n)
	dst.Frags = append(dst.Frags, p.frags[:p.n]...)
	dst.Packets = append(dst.Packets, p.meta)
}

// verdict sets what the device found out about protocols and checksums.
func (p *assembly) verdict(c *rxComp, features framework.Features) {
	if c.where&rcNoChecksum != 0 || !features.Has(framework.RxChecksum) {
		return
	}
	f := &p.meta.Flags
	switch {
	case c.flags&rcIPv4 != 0:
		*f |= framework.IPv4
		if c.flags&rcIPOK == 0 {
			*f |= framework.ChecksumBad
		}
	case c.flags&rcIPv6 != 0:
		*f |= framework.IPv6
	}
	if c.flags&rcFragment != 0 || c.flags&(rcTCP|rcUDP) == 0 {
		return
	}
	if c.flags&rcTCP != 0 {
		*f |= framework.TCP
	} else {
		*f |= framework.UDP
	}
	switch {
	case *f&framework.ChecksumBad != 0:
	case c.flags&rcL4OK != 0:
		*f |= framework.ChecksumVerified
	case !c.merged() && c.flags&rcLow == 0:
		*f |= framework.ChecksumBad
		// Otherwise the low half is a sum over part of the packet, or an MSS,
		// and nothing is known.
	}
}

// coalesced finds out whether the packet is several segments that the device
// merged, how many and of what size. From revision 2 on the device says so,
// though it is known to leave out the size, or both, and to call a packet merged
// that is a single segment (Linux 50219538ffc0, DPDK ae2705b80d). A device of
// revision 1 hands over a packet that is longer than any frame can be, and
// nothing else.
func (p *assembly) coalesced(buffers *framework.Buffers, longest uint32) {
	tooLong := p.meta.Flags&framework.TCP != 0 && p.meta.Len > longest
	if !tooLong && (!p.merged || p.segments == 1) {
		return
	}
	header := uint32(framework.TCPHeaderLen(buffers.Bytes(p.frags[0])))
	if header == 0 || header >= p.meta.Len {
		header = 0
	}
	payload := p.meta.Len - header
	switch {
	case p.segments > 1 && p.mss == 0 && header > 0:
		p.mss = (payload + p.segments - 1) / p.segments
	case p.segments <= 1 && p.mss > 0 && header > 0:
		p.segments = (payload + p.mss - 1) / p.mss
	case p.segments <= 1 && tooLong:
		p.mss, p.segments = 0, (p.meta.Len+longest-1)/longest
	}
	if p.segments <= 1 {
		return
	}
	p.meta.Flags |= framework.Coalesced
	p.meta.Segments, p.meta.SegmentSize = uint16(p.segments), uint16(p.mss)
	p.meta.HeaderLen = uint16(header)
}
