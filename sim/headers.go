package sim

import "encoding/binary"

// Ethernet and IP numbers.
const (
	EthernetHeaderLen = 14
	VLANTagLen        = 4

	EtherTypeIPv4 = 0x0800
	EtherTypeVLAN = 0x8100
	EtherTypeIPv6 = 0x86dd

	ProtocolTCP = 6
	ProtocolUDP = 17

	ipv4MinHeaderLen = 20
	ipv6HeaderLen    = 40
	tcpMinHeaderLen  = 20
	udpHeaderLen     = 8

	tcpChecksumOffset = 16
	udpChecksumOffset = 6
)

// TCP flags (RFC 9293 section 3.1).
const (
	TCPFin = 0x01
	TCPSyn = 0x02
	TCPRst = 0x04
	TCPPsh = 0x08
	TCPAck = 0x10
	TCPCwr = 0x80
)

// Headers is where the headers of a frame are and what they say. Offsets are
// from the frame's start. They are read once: the bytes may be memory of another
// process, which changes them meanwhile.
type Headers struct {
	EtherType uint16 // behind VLAN tags
	VLAN      bool   // there is a tag at 12
	IP        int    // offset of the IP header, 0 if it is not IP
	IPv6      bool
	Protocol  uint8 // of what is at L4
	Fragment  bool  // an IP fragment, also the first: there is nothing at L4
	L4        int   // offset of what follows the IP headers, 0 if there is none
	End       int   // where the IP packet ends; behind it is padding
	Payload   int   // offset behind the TCP or UDP header, 0 if there is none
	ipv4Len   int   // of an IPv4 header
}

// maxExtensions bounds the walk over IPv6 extension headers.
const maxExtensions = 8

// ParseHeaders reads the headers at the start of a frame of length length, of
// which b is the first part. It returns false for what is no IP packet or is
// broken; h then says as much as was found. An IP length of zero, as it is in
// TSO frames of some senders, stands for all of the frame.
func ParseHeaders(h *Headers, b []byte, length int) bool {
	*h = Headers{}
	if len(b) < EthernetHeaderLen {
		return false
	}
	at := EthernetHeaderLen
	h.EtherType = binary.BigEndian.Uint16(b[12:])
	if h.EtherType == EtherTypeVLAN && len(b) >= at+VLANTagLen {
		h.VLAN = true
		h.EtherType = binary.BigEndian.Uint16(b[16:])
		at += VLANTagLen
	}
	switch h.EtherType {
	case EtherTypeIPv4:
		return h.ipv4(b, at, length)
	case EtherTypeIPv6:
		return h.ipv6(b, at, length)
	}
	return false
}

func (h *Headers) ipv4(b []byte, at, length int) bool {
	if len(b) < at+ipv4MinHeaderLen || b[at]>>4 != 4 {
		return false
	}
	ihl := int(b[at]&15) * 4
	total := int(binary.BigEndian.Uint16(b[at+2:]))
	if total == 0 {
		total = length - at
	}
	if ihl < ipv4MinHeaderLen || len(b) < at+ihl || total < ihl || at+total > length {
		return false
	}
	h.IP, h.ipv4Len, h.End = at, ihl, at+total
	h.Protocol = b[at+9]
	if binary.BigEndian.Uint16(b[at+6:])&0x3fff != 0 { // MF or offset
		h.Fragment = true
		return true
	}
	h.l4(b, at+ihl)
	return true
}

func (h *Headers) ipv6(b []byte, at, length int) bool {
	if len(b) < at+ipv6HeaderLen || b[at]>>4 != 6 {
		return false
	}
	total := ipv6HeaderLen + int(binary.BigEndian.Uint16(b[at+4:]))
	if total == ipv6HeaderLen {
		total = length - at
	}
	if at+total > length {
		return false
	}
	h.IP, h.IPv6, h.End = at, true, at+total
	next, l4 := b[at+6], at+ipv6HeaderLen
	for range maxExtensions {
		switch next {
		case 0, 43, 60: // hop-by-hop, routing, destination options
			if len(b) < l4+8 {
				return true
			}
			next, l4 = b[l4], l4+8+int(b[l4+1])*8
		case 44: // fragment
			h.Protocol, h.Fragment = next, true
			return true
		default:
			h.Protocol = next
			h.l4(b, l4)
			return true
		}
	}
	return true
}

func (h *Headers) l4(b []byte, at int) {
	if at > h.End || at > len(b) {
		return
	}
	h.L4 = at
	switch h.Protocol {
	case ProtocolTCP:
		if at+tcpMinHeaderLen > min(h.End, len(b)) {
			return
		}
		if n := int(b[at+12]>>4) * 4; n >= tcpMinHeaderLen && at+n <= h.End {
			h.Payload = at + n
		}
	case ProtocolUDP:
		if at+udpHeaderLen <= min(h.End, len(b)) {
			h.Payload = at + udpHeaderLen
		}
	}
}

// ChecksumAt is the offset of the layer-4 checksum, 0 if there is none.
func (h *Headers) ChecksumAt() int {
	switch {
	case h.Payload == 0:
	case h.Protocol == ProtocolTCP:
		return h.L4 + tcpChecksumOffset
	case h.Protocol == ProtocolUDP:
		return h.L4 + udpChecksumOffset
	}
	return 0
}

// Pseudo is the sum of the pseudo-header (RFC 9293 section 3.1, RFC 8200 section
// 8.1) for length bytes of layer 4. b holds the headers.
func (h *Headers) Pseudo(b []byte, length int) uint16 {
	s := fold(uint64(h.Protocol) + uint64(length))
	if h.IPv6 {
		return sum(s, b[h.IP+8:h.IP+40])
	}
	return sum(s, b[h.IP+12:h.IP+20])
}

// Untag takes the VLAN tag out of b, a frame's headers, for which h holds, and
// returns the rest of b and the tag control information. h holds for the rest.
func (h *Headers) Untag(b []byte) (rest []byte, tci uint16) {
	tci = binary.BigEndian.Uint16(b[14:])
	copy(b[VLANTagLen:VLANTagLen+12], b[:12])
	for _, at := range []*int{&h.IP, &h.L4, &h.End, &h.Payload} {
		if *at != 0 {
			*at -= VLANTagLen
		}
	}
	h.VLAN = false
	return b[VLANTagLen:], tci
}

// HeaderChecksumGood tells whether an IPv4 header's checksum is right; IPv6 has
// none. The header lies in b.
func (h *Headers) HeaderChecksumGood(b []byte) bool {
	return h.IPv6 || sum(0, b[h.IP:h.IP+h.ipv4Len]) == 0xffff
}

// SetHeaderChecksum fills in the checksum of the IPv4 header in b.
func (h *Headers) SetHeaderChecksum(b []byte) {
	ip := b[h.IP : h.IP+h.ipv4Len]
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], ^sum(0, ip))
}

// ChecksumGood tells whether the layer-4 checksum of f, whose headers lie in b,
// is right. For a frame that is Partial it tells whether the seed is, so that
// what fills the checksum in makes a right one. A UDP checksum of zero over
// IPv4 is none (RFC 768) and good.
func (h *Headers) ChecksumGood(f *Frame, b []byte) bool {
	at := h.ChecksumAt()
	if at == 0 || at+2 > len(b) {
		return false
	}
	have := binary.BigEndian.Uint16(b[at:])
	switch {
	case f.Flags&Segment != 0:
		return same(have, h.Pseudo(b, 0)) && f.ChecksumStart == h.L4
	case f.Flags&Partial != 0:
		return same(have, h.Pseudo(b, h.End-h.L4)) && f.ChecksumStart == h.L4 && f.ChecksumStart+f.ChecksumOffset == at && f.Len == h.End
	case f.Flags&Good != 0:
		return true
	case have == 0 && h.Protocol == ProtocolUDP:
		return !h.IPv6
	}
	s := sumParts(h.Pseudo(b, h.End-h.L4), f.Parts, h.L4, h.End-h.L4)
	return s == 0xffff
}

// same compares ones' complement sums: zero has two representations.
func same(a, b uint16) bool { return a == b || a^b == 0xffff && (a == 0 || b == 0) }
