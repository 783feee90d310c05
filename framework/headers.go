package framework

import "encoding/binary"

// This file reads and edits the headers of frames as far as more than one device
// makes its driver do it. Whoever needs more than lengths has a parser of its own.

// Ethernet and IP as far as this file goes.
const (
	etherLen      = 14
	vlanLen       = 4
	etherVLAN     = 0x8100
	etherQinQ     = 0x88A8
	etherIPv4     = 0x0800
	etherIPv6     = 0x86DD
	minIPv4Len    = 20
	ipv6Len       = 40
	protocolTCP   = 6
	minTCPLen     = 20
	ipv4LengthAt  = 2
	ipv4SumAt     = 10
	ipv6LengthAt  = 4
	tcpDataOffset = 12
)

// NetworkHeader finds the network header of a frame, behind any 802.1Q tags that
// are in it, and its EtherType, 0 if the frame is too short to tell.
func NetworkHeader(frame []byte) (at int, etherType uint16) {
	at = etherLen
	for len(frame) >= at {
		etherType = binary.BigEndian.Uint16(frame[at-2:])
		if etherType != etherVLAN && etherType != etherQinQ {
			return at, etherType
		}
		at += vlanLen
	}
	return at, 0
}

// tcpHeaderLen is the length of all headers of a TCP frame, from Ethernet to
// TCP's options, which a device that counts merged segments but not their size
// leaves to be found. It is 0 if the frame's first bytes are not a
// whole set of such headers; IPv6 with extension headers is not looked into.
func tcpHeaderLen(frame []byte) int {
	at, etherType := NetworkHeader(frame)
	switch etherType {
	case etherIPv4:
		if len(frame) < at+minIPv4Len || frame[at+9] != protocolTCP {
			return 0
		}
		at += int(frame[at]&15) * 4
	case etherIPv6:
		if len(frame) < at+ipv6Len || frame[at+6] != protocolTCP {
			return 0
		}
		at += ipv6Len
	default:
		return 0
	}
	if len(frame) < at+minTCPLen {
		return 0
	}
	at += int(frame[at+tcpDataOffset]>>4) * 4
	if len(frame) < at {
		return 0
	}
	return at
}

// ClearForSegment zeroes the fields of the IP header that a device which cuts TCP
// writes itself and wants to find zero: IPv4's header checksum and, with length,
// the length of IPv4 and IPv6. (The TCP checksum field has the seed already, see
// Packet.ChecksumStart.)
//
// Headers are the bytes of the first fragment of a packet with Segment, which has
// to hold all headers. A driver does this when nothing can stop the packet any
// more. Nobody has looked at the bytes: where no IP header is, nothing is done.
func ClearForSegment(headers []byte, length bool) {
	at, etherType := NetworkHeader(headers)
	switch {
	case etherType == etherIPv4 && len(headers) >= at+minIPv4Len:
		binary.BigEndian.PutUint16(headers[at+ipv4SumAt:], 0)
		if length {
			binary.BigEndian.PutUint16(headers[at+ipv4LengthAt:], 0)
		}
	case etherType == etherIPv6 && len(headers) >= at+ipv6Len && length:
		binary.BigEndian.PutUint16(headers[at+ipv6LengthAt:], 0)
	}
}

// SeedWithLength adds the length of layer 4 to the pseudo-header's sum in a packet
// with Segment, for a device that wants the sum of all of the packet there, as
// virtio does (1.2, 5.1.6.2), and not that of a TSO device, without length. Headers
// are as for ClearForSegment; a field that is not in them is left alone.
func SeedWithLength(headers []byte, p *Packet) {
	at := int(p.ChecksumStart) + int(p.ChecksumOffset)
	if at+2 > len(headers) || uint32(p.ChecksumStart) > p.Len {
		return
	}
	length := p.Len - uint32(p.ChecksumStart)
	sum := uint32(binary.BigEndian.Uint16(headers[at:])) + length&0xFFFF + length>>16
	for sum > 0xFFFF {
		sum = sum&0xFFFF + sum>>16
	}
	binary.BigEndian.PutUint16(headers[at:], uint16(sum))
}
