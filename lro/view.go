package lro

import (
	"encoding/binary"
	"math/bits"
)

const (
	ethernetLen = 14
	ipv6Len     = 40
	maxIPv4Len  = 65535
	maxIPv6Len  = ipv6Len + 65535
	maxTags     = 8 // more VLAN tags than that and the frame is not looked into

	protocolTCP = 6

	flagFIN = 0x01
	flagSYN = 0x02
	flagRST = 0x04
	flagPSH = 0x08
	flagACK = 0x10
	flagURG = 0x20
	flagCWR = 0x80
)

// scope says which open aggregates a packet must not overtake.
type scope uint8

const (
	scopeNone scope = iota // not of any flow that can be open
	scopeFlow              // its own flow
	scopePair              // any flow between its two addresses, as the ports are not known
	scopeAll               // any flow, as nothing is known
)

// identity names a flow.
type identity struct {
	addr  [4]uint64 // source and destination: IPv4 in the first word, IPv6 in all
	ports uint64    // source and destination port, and Packet.Port
	tags  uint64    // the first two VLAN tags in the frame
	meta  uint64    // stripped tag, family, IP offset
}

// shape is what must be equal, apart from the identity, for one segment to follow another in an aggregate. Words are
// loaded little-endian from the frame; bytes that may differ are masked out.
type shape struct {
	link [2]uint64 // the two MAC addresses, overlapping
	net  uint64    // IPv4: version, TOS, TTL, protocol, flags; IPv6: version, class, label, next header, hop limit
	tcp  uint64    // data offset, flags without FIN and PSH, window, urgent pointer
	opt  uint64    // the first 8 bytes of options
	tail uint64    // the next 4 bytes of options, and the acknowledgement number
}

// view is one packet as parsed.
type view struct {
	identity
	shape
	mark      uint32
	seq       uint32
	payload   uint32 // bytes of TCP payload, without padding
	l3        uint16
	l4        uint16
	headerLen uint16
	id        uint16
	ending    uint8  // FIN and PSH
	modes     IDMode // all bits for IPv4, none for IPv6, which has no identification
	deep      bool   // tags or options are longer than what is in identity and shape
	scope     scope
	flags     AggregateFlags
}

// parse fills in the view. It returns reasonNone if the packet may become part of an aggregate.
func (v *view) parse(p *Packet, e *Engine) Reason {
	r := v.parseEthernet(p, e)
	if !p.coalesced(v.payload) {
		return r
	}
	if v.meta>>32 == 0 { // not IP: nothing is known about what was merged
		v.scope = scopeAll
	}
	return ReasonHardware
}

// parseEthernet parses from the beginning of the frame on.
func (v *view) parseEthernet(p *Packet, e *Engine) Reason {
	v.scope, v.meta = scopeAll, 0
	v.opaque(p)
	d := p.Data[:min(len(p.Data), int(p.Len))]
	if len(d) < ethernetLen {
		return ReasonUnparsable
	}
	l3, etherType := ethernetLen, binary.BigEndian.Uint16(d[12:])
	if isTag(etherType) {
		if l3, etherType = skipTags(d); l3 == 0 {
			return ReasonUnparsable
		}
	}
	v.link[0] = binary.LittleEndian.Uint64(d)
	v.link[1] = binary.LittleEndian.Uint64(d[6:])
	v.mark = p.Mark
	v.l3 = uint16(l3)
	v.tags = tagWord(d, l3)
	v.meta = uint64(l3)
	if p.Flags&VLANStripped != 0 {
		v.meta |= 1<<8 | uint64(p.VLAN)<<16
	}
	switch etherType {
	case 0x0800:
		return v.parseIPv4(p, d[l3:], e)
	case 0x86dd:
		return v.parseIPv6(p, d[l3:], e)
	}
	v.scope = scopeNone
	return ReasonNotTCP
}

// opaque makes the frame one without a TCP header.
func (v *view) opaque(p *Packet) {
	v.flags, v.l4, v.headerLen, v.payload = 0, 0, 0, p.Len
}

func isTag(etherType uint16) bool {
	return etherType == 0x8100 || etherType == 0x88a8 || etherType == 0x9100
}

// skipTags returns where the network header begins and its type; 0 if the frame ends before, or has too many tags.
func skipTags(d []byte) (l3 int, etherType uint16) {
	for l3 = ethernetLen; l3 <= ethernetLen+4*maxTags && l3 <= len(d); l3 += 4 {
		etherType = binary.BigEndian.Uint16(d[l3-2:])
		if !isTag(etherType) {
			return l3, etherType
		}
	}
	return 0, 0
}

// tagWord returns the first two tags as they stand in the frame.
func tagWord(d []byte, l3 int) uint64 {
	switch l3 {
	case ethernetLen:
		return 0
	case ethernetLen + 4:
		return uint64(binary.LittleEndian.Uint32(d[12:]))
	}
	return binary.LittleEndian.Uint64(d[12:])
}

// parseIPv4 parses from the IPv4 header on.
func (v *view) parseIPv4(p *Packet, ip []byte, e *Engine) Reason {
	v.meta |= 4 << 32
	if len(ip) < 20 {
		return ReasonUnparsable
	}
	w0 := binary.LittleEndian.Uint64(ip)
	w1 := binary.LittleEndian.Uint64(ip[8:])
	w2 := uint64(binary.LittleEndian.Uint32(ip[16:]))
	v.addr = [4]uint64{w1>>32 | w2<<32}
	v.scope = scopePair
	if w0&0xf0 != 0x40 {
		return ReasonMalformed
	}
	if uint8(w1>>8) != protocolTCP {
		v.scope = scopeNone
		return ReasonNotTCP
	}
	header := int(w0&0x0f) * 4
	if header < 20 || header+4 > len(ip) {
		return ReasonMalformed
	}
	fragment := bits.ReverseBytes16(uint16(w0 >> 48))
	if fragment&0x1fff != 0 {
		return ReasonFragment
	}
	total := uint32(bits.ReverseBytes16(uint16(w0 >> 16)))
	v.scope = scopeFlow
	v.l4 = v.l3 + uint16(header)
	v.net = w0&0xffff00000000ffff | w1&0xffff<<16
	v.id = bits.ReverseBytes16(uint16(w0 >> 32))
	v.modes = IDIncrement | IDFixed
	r := v.parseTCP(p, ip[header:], int(total)-header)
	switch {
	case fragment&0x2000 != 0:
		v.opaque(p)
		return ReasonFragment
	case header != 20 || fragment&0x8000 != 0:
		return ReasonIPOptions
	case r != reasonNone:
		return r
	case total > e.mtu:
		return ReasonOversize
	}
	// 2^64 is 1 modulo 65535, so the header's words may be added as they are, the carry counts 1, and a right header
	// sums up to a multiple of 65535 (RFC 1071).
	s, c := bits.Add64(w0, w1, 0)
	s, c = bits.Add64(s, w2, c)
	if (s+c)%65535 != 0 {
		return ReasonBadChecksum
	}
	if uint16(w1>>16) == 0xffff {
		return ReasonOddChecksum
	}
	return v.checksum(p, e)
}

// parseIPv6 parses from the IPv6 header on.
func (v *view) parseIPv6(p *Packet, ip []byte, e *Engine) Reason {
	v.meta |= 6 << 32
	v.flags |= IPv6
	if len(ip) < ipv6Len {
		return ReasonUnparsable
	}
	h := (*[ipv6Len]byte)(ip)
	w0 := binary.LittleEndian.Uint64(h[0:])
	v.addr[0] = binary.LittleEndian.Uint64(h[8:])
	v.addr[1] = binary.LittleEndian.Uint64(h[16:])
	v.addr[2] = binary.LittleEndian.Uint64(h[24:])
	v.addr[3] = binary.LittleEndian.Uint64(h[32:])
	v.scope = scopePair
	if w0&0xf0 != 0x60 {
		return ReasonMalformed
	}
	switch h[6] {
	case protocolTCP:
	case 44:
		return ReasonFragment
	case 17, 58, 59:
		v.scope = scopeNone
		return ReasonNotTCP
	default:
		// An extension header, or one that nobody has heard of: TCP may be behind it.
		return ReasonIPOptions
	}
	if len(ip) < ipv6Len+4 {
		return ReasonUnparsable
	}
	v.scope = scopeFlow
	v.l4 = v.l3 + ipv6Len
	v.net = w0 &^ (0xffff << 32)
	v.id, v.modes = 0, 0
	length := int(bits.ReverseBytes16(uint16(w0 >> 32)))
	if r := v.parseTCP(p, ip[ipv6Len:], length); r != reasonNone {
		return r
	}
	if uint32(ipv6Len+length) > e.mtu {
		return ReasonOversize
	}
	return v.checksum(p, e)
}

// parseTCP parses from the TCP header on; length is what IP says about the length of header and payload. At least 4
// bytes of t are there.
func (v *view) parseTCP(p *Packet, t []byte, length int) Reason {
	v.ports = uint64(binary.LittleEndian.Uint32(t)) | uint64(p.Port)<<32
	if len(t) < 20 {
		return ReasonUnparsable
	}
	h := (*[20]byte)(t)
	w := binary.LittleEndian.Uint64(h[12:])
	header := int(w>>2) & 0x3c
	flags := uint8(w >> 8)
	frame := int(p.Len) - int(v.l4)
	if header < 20 || header > frame {
		return ReasonMalformed
	}
	v.flags |= TCP
	v.headerLen = v.l4 + uint16(header)
	v.payload = uint32(frame - header)
	if length > frame || length <= 0 {
		return ReasonTruncated
	}
	if header > length {
		return ReasonMalformed
	}
	v.payload = uint32(length - header)
	if header > len(t) {
		return ReasonUnparsable
	}
	v.seq = binary.BigEndian.Uint32(h[4:])
	v.tcp = w &^ (0xffff<<32 | (flagFIN|flagPSH)<<8)
	v.ending = flags & (flagFIN | flagPSH)
	if flags&flagCWR != 0 {
		v.flags |= CWRCopied
	}
	v.tail = uint64(binary.LittleEndian.Uint32(h[8:])) << 32
	v.opt = 0
	v.options(t[20:header])
	switch {
	case flags&(flagSYN|flagRST|flagURG|flagACK) != flagACK:
		return ReasonControl
	case v.payload == 0:
		return ReasonNoPayload
	case length != frame:
		return ReasonPadding
	}
	return reasonNone
}

// options loads the first 12 bytes of options: what a timestamp takes up (RFC 7323 appendix A).
func (v *view) options(o []byte) {
	v.deep = len(o) > 12 || v.l3 > ethernetLen+8
	if len(o) >= 8 {
		v.opt = binary.LittleEndian.Uint64(o)
		o = o[8:]
		if len(o) >= 4 {
			v.tail |= uint64(binary.LittleEndian.Uint32(o))
		}
		return
	}
	if len(o) >= 4 {
		v.opt = uint64(binary.LittleEndian.Uint32(o))
	}
}

// checksum looks at what is said about the TCP checksum, and at the field.
func (v *view) checksum(p *Packet, e *Engine) Reason {
	switch p.Checksum {
	case ChecksumVerified:
	case ChecksumUnknown:
		if e.passUnverified || int(p.Len) > len(p.Data) {
			return ReasonUnverified
		}
	case ChecksumBad:
		return ReasonBadChecksum
	default:
		return ReasonUnverified
	}
	f := p.Data[v.l4+16:]
	if f[0] == 0xff && f[1] == 0xff {
		return ReasonOddChecksum
	}
	return reasonNone
}
