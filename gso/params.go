package gso

import (
	"encoding/binary"
	"errors"
)

// ChecksumMode says what is written into the checksum field of a segment's TCP or UDP header.
type ChecksumMode uint8

const (
	// ChecksumFull: the checksum over pseudo-header, header and payload. A UDP checksum of 0 is sent as 0xffff
	// (RFC 768).
	ChecksumFull ChecksumMode = iota
	// ChecksumPartial: the folded sum of the pseudo-header, for a device that adds the rest.
	ChecksumPartial
	// ChecksumNone: 0. Only for UDP over IPv4, where it means that there is none.
	ChecksumNone
)

// Params say how a frame is laid out and how it is to be segmented.
type Params struct {
	// L3Offset and L4Offset are where the IP header and the TCP or UDP header begin, HeaderLen is where the payload
	// begins, all in bytes from the beginning of the frame.
	L3Offset, L4Offset, HeaderLen uint16
	// SegmentSize is the payload of each segment but the last, in bytes, at least 1.
	SegmentSize uint16
	// Checksum says what goes into the checksum field.
	Checksum ChecksumMode
	// FixedID repeats the IPv4 identification instead of counting.
	FixedID bool
	// CopyCWR keeps CWR in every segment.
	CopyCWR bool
}

// Errors of Parse and Segmenter.Reset. They are returned as they are.
var (
	// ErrHeader: the headers are not TCP or UDP over IPv4 or IPv6, or a length in them is impossible.
	ErrHeader = errors.New("gso: headers are not plain TCP or UDP over IP")
	// ErrOffsets: Params do not agree with the headers, or the headers do not lie in the first fragment.
	ErrOffsets = errors.New("gso: offsets do not agree with the headers")
	// ErrSegmentSize: the segment size is 0, or a segment would not fit into an IP packet.
	ErrSegmentSize = errors.New("gso: segment size out of range")
	// ErrChecksum: the checksum mode is not allowed for this protocol, or a checksum's place is outside the frame.
	ErrChecksum = errors.New("gso: checksum not possible")
)

const (
	protocolTCP = 6
	protocolUDP = 17
	maxTags     = 8 // as many as lro looks through
)

// Parse finds the offsets in a frame that begins with an Ethernet header, with up to eight VLAN tags. frame must hold
// all headers; it may end behind them. IPv4 options are allowed, and of IPv6's extension headers those that each segment
// can repeat: hop-by-hop and destination options, and routing headers that have been used up. The other fields of the
// result are zero.
func Parse(frame []byte) (Params, error) {
	l3 := ethernet(frame)
	if l3 == 0 {
		return Params{}, ErrHeader
	}
	l4, protocol, err := network(frame, l3)
	if err != nil {
		return Params{}, err
	}
	end, err := transport(frame, l4, protocol)
	if err != nil {
		return Params{}, err
	}
	return Params{L3Offset: uint16(l3), L4Offset: uint16(l4), HeaderLen: uint16(end)}, nil
}

// ethernet returns where the IP header begins; 0 if none does.
func ethernet(frame []byte) (l3 int) {
	for l3 = 14; l3 <= 14+4*maxTags && l3 <= len(frame); l3 += 4 {
		switch binary.BigEndian.Uint16(frame[l3-2:]) {
		case 0x8100, 0x88a8, 0x9100:
		case 0x0800, 0x86dd:
			return l3
		default:
			return 0
		}
	}
	return 0
}

// network returns where the IP header's payload begins, and the protocol. What says
// how long the header is, is read once: the frame may be memory of a process that writes
// to it meanwhile.
func network(frame []byte, l3 int) (l4 int, protocol uint8, err error) {
	if len(frame) < l3+20 {
		return 0, 0, ErrHeader
	}
	ip := frame[l3:]
	switch version, words := ip[0]>>4, ip[0]&15; {
	case version == 4 && words >= 5 && ip[6]&0x3f == 0 && ip[7] == 0:
		return l3 + int(words)*4, ip[9], nil
	case version == 6 && len(ip) >= ipv6HeaderLen:
		return extensions(frame, l3+ipv6HeaderLen, ip[6])
	}
	return 0, 0, ErrHeader
}

// IPv6 (RFC 8200 sections 3, 4.3, 4.4 and 4.6).
const (
	ipv6HeaderLen = 40
	maxExtensions = 8

	hopByHop    = 0
	routing     = 43
	destination = 60
)

// extensions looks through IPv6 extension headers, of which the first begins at a place and has a type, and returns
// where what they carry begins. A routing header with segments left has the address that is part of the
// pseudo-header: such packets are refused.
func extensions(frame []byte, at int, next uint8) (l4 int, protocol uint8, err error) {
	for range maxExtensions {
		if next != hopByHop && next != routing && next != destination {
			return at, next, nil
		}
		if len(frame) < at+8 || next == routing && frame[at+3] != 0 {
			return 0, 0, ErrHeader
		}
		next, at = frame[at], at+8+int(frame[at+1])*8
	}
	return 0, 0, ErrHeader
}

// transport returns where the payload begins.
func transport(frame []byte, l4 int, protocol uint8) (end int, err error) {
	switch {
	case protocol == protocolUDP && len(frame) >= l4+8:
		return l4 + 8, nil
	case protocol == protocolTCP && len(frame) >= l4+20:
		end = l4 + int(frame[l4+12]>>4)*4
		if end >= l4+20 && end <= len(frame) {
			return end, nil
		}
	}
	return 0, ErrHeader
}
