// Package offload turns what is known of a received packet into what has to be
// done to a sent one: a coalesced packet becomes one to be segmented, a checksum
// that somebody vouches for becomes one to be filled in.
//
// What lives here are the rules that every port needs that hands packets on, to
// the kernel or to another interface. They edit headers in place; payload is
// neither read nor copied. What does not live here: cutting packets (package gso
// and the engine) and deciding who coalesces (package framework).
package offload

import (
	"encoding/binary"

	"nicd/framework"
	"nicd/gso"
	"nicd/internal/checksum"
)

// Headers as far as they are edited here.
const (
	ipv4LengthAt    = 2 // RFC 791 section 3.1
	ipv4ChecksumAt  = 10
	ipv4AddressesAt = 12
	ipv6LengthAt    = 4 // RFC 8200 section 3
	ipv6HeaderLen   = 40
	ipv6AddressesAt = 8

	longestIPv4 = 65535 // RFC 791 section 3.1; IPv6's length does not count its header

	protocolTCP   = 6
	protocolUDP   = 17
	tcpFlagsAt    = 13
	tcpCWR        = 0x80
	tcpChecksumAt = 16 // RFC 9293 section 3.1
	udpLengthAt   = 4  // RFC 768
	udpChecksumAt = 6
	udpHeaderLen  = 8
)

// CWR tells whether the TCP header at offset l4 has CWR set.
func CWR(frame []byte, l4 uint16) bool {
	at := int(l4) + tcpFlagsAt
	return at < len(frame) && frame[at]&tcpCWR != 0
}

// Result says what became of a packet.
type Result uint8

// Results.
const (
	Plain      Result = iota // nothing was to be done
	Turned                   // it is to be segmented, or its checksum to be filled in
	Estimated                // as Turned, with a segment size that is a guess
	Opaque                   // it was coalesced, but its headers make no sense
	Unverified               // it was coalesced, but nobody verified what it was made of
)

// received are the flags that only a received packet has.
const received = framework.ChecksumVerified | framework.ChecksumBad | framework.Coalesced | framework.SoftwareCoalesced

// Turn makes a received packet into one to be sent. first is the packet's first
// fragment, which holds all headers, and is the caller's to write; mtu is that of
// the link that the packet came over.
//
// A coalesced packet gets the lengths and checksums that segmentation needs: the
// device leaves the TCP checksum of one segment in it, and nothing may rely on
// the IP header's. If the device did not tell the segments' size, the largest
// that fits mtu is taken, as Linux's vmxnet3 driver does (drivers/net/vmxnet3,
// "hw lro"): no segment is then larger than those that arrived could be, but the
// cuts are elsewhere.
//
// A coalesced packet whose segments nobody verified stays as it is. A checksum made
// anew would hide whatever was wrong with them; with the stale one its receiver
// drops it, unless it was right after all.
//
// A checksum that was left to be filled in stays so. Flags that mean nothing on
// the way down are cleared.
func Turn(p *framework.Packet, first []byte, mtu int) Result {
	was := p.Flags
	p.Flags &^= received
	switch {
	case was&framework.SoftwareCoalesced != 0:
		segment(p)
		return Turned
	case was&framework.Coalesced != 0 && was&framework.ChecksumVerified == 0:
		p.Segments, p.SegmentSize = 0, 0
		return Unverified
	case was&framework.Coalesced != 0:
		return turnCoalesced(p, first, mtu)
	case was&framework.ChecksumPartial != 0:
		return Turned
	}
	p.Segments, p.SegmentSize = 0, 0
	return Plain
}

// segment asks for segmentation if the packet is more than one segment.
func segment(p *framework.Packet) {
	if p.Len-uint32(p.HeaderLen) > uint32(p.SegmentSize) {
		p.Flags |= framework.Segment
		return
	}
	p.Segments, p.SegmentSize = 0, 0
}

// headers is where a frame's headers are. The frame is memory of the driver's process,
// which may write to it at any time: what says where something is, is read once.
type headers struct {
	gso.Params
	ipv6 bool
}

func parse(first []byte) (h headers, err error) {
	if h.Params, err = gso.Parse(first); err != nil {
		return h, err
	}
	h.ipv6 = first[h.L3Offset]>>4 == 6
	if h.ipv6 && h.L4Offset-h.L3Offset < ipv6HeaderLen {
		return h, gso.ErrHeader // it was none when Parse looked
	}
	return h, nil
}

func turnCoalesced(p *framework.Packet, first []byte, mtu int) Result {
	h, err := parse(first)
	if err != nil || int(h.L4Offset)+tcpChecksumAt+2 > int(h.HeaderLen) || !h.ipv6 && p.Len-uint32(h.L3Offset) > longestIPv4 {
		p.Segments, p.SegmentSize = 0, 0
		return Opaque // UDP has no such place: what a device merges is TCP
	}
	p.HeaderLen = h.HeaderLen
	setLength(p, first, &h)
	seed(p, first, &h, int(p.Len)-int(h.L4Offset))
	p.Flags |= framework.TCP
	result := Turned
	if p.SegmentSize == 0 {
		p.SegmentSize = estimate(p, h.L3Offset, mtu)
		result = Estimated
	}
	segment(p)
	return result
}

// estimate is the most payload that a segment of a packet can have had.
func estimate(p *framework.Packet, l3 uint16, mtu int) uint16 {
	return uint16(max(mtu-int(p.HeaderLen-l3), 1))
}

// setLength writes the IP header's length, and IPv4's checksum.
func setLength(p *framework.Packet, first []byte, h *headers) {
	ip := first[h.L3Offset:h.L4Offset]
	length := p.Len - uint32(h.L3Offset)
	if h.ipv6 {
		p.Flags = p.Flags&^framework.IPv4 | framework.IPv6
		binary.BigEndian.PutUint16(ip[ipv6LengthAt:], uint16(length-ipv6HeaderLen))
		return
	}
	p.Flags = p.Flags&^framework.IPv6 | framework.IPv4
	binary.BigEndian.PutUint16(ip[ipv4LengthAt:], uint16(length))
	binary.BigEndian.PutUint16(ip[ipv4ChecksumAt:], 0)
	binary.BigEndian.PutUint16(ip[ipv4ChecksumAt:], ^checksum.Sum(ip))
}

// seed writes the pseudo-header's sum, with length, into the layer-4 checksum
// field and asks for the rest.
func seed(p *framework.Packet, first []byte, h *headers, length int) {
	ip, protocol, at := first[h.L3Offset:], uint8(protocolTCP), uint16(tcpChecksumAt)
	if h.HeaderLen == h.L4Offset+udpHeaderLen { // TCP's is longer
		protocol, at = protocolUDP, udpChecksumAt
	}
	var sum uint16
	if h.ipv6 {
		sum = checksum.Pseudo6(ip[ipv6AddressesAt:ipv6HeaderLen], protocol, length)
	} else {
		sum = checksum.Pseudo4(ip[ipv4AddressesAt:ipv4AddressesAt+8], protocol, length)
	}
	p.ChecksumStart, p.ChecksumOffset = h.L4Offset, at
	binary.BigEndian.PutUint16(first[p.ChecksumStart+at:], sum)
	p.Flags |= framework.ChecksumPartial
}

// Vouch makes the verified checksum of an ordinary TCP or UDP packet one to be
// filled in, which says the same to a receiver that has no other way to be told:
// the checksum need not be looked at. It must come before Turn. Packets that are
// not of that kind stay as they are, and so do those that have bytes behind the IP
// packet, or behind what UDP counts of it (RFC 9868): what is filled in is the sum
// to the end.
func Vouch(p *framework.Packet, first []byte) {
	const not = framework.Coalesced | framework.SoftwareCoalesced | framework.ChecksumPartial
	if p.Flags&framework.ChecksumVerified == 0 || p.Flags&not != 0 {
		return
	}
	h, err := parse(first)
	if err != nil {
		return
	}
	ip := first[h.L3Offset:]
	length := int(binary.BigEndian.Uint16(ip[ipv4LengthAt:]))
	if h.ipv6 {
		length = ipv6HeaderLen + int(binary.BigEndian.Uint16(ip[ipv6LengthAt:]))
	}
	if int(h.L3Offset)+length != int(p.Len) {
		return
	}
	length -= int(h.L4Offset - h.L3Offset)
	if h.HeaderLen == h.L4Offset+udpHeaderLen && !wholeUDP(first[h.L4Offset:], length) {
		return
	}
	seed(p, first, &h, length)
}

// wholeUDP tells whether a UDP header's checksum is that of all of the IP packet's
// payload. There may be none, over IPv6 too (RFC 6935).
func wholeUDP(header []byte, length int) bool {
	return binary.BigEndian.Uint16(header[udpChecksumAt:]) != 0 && int(binary.BigEndian.Uint16(header[udpLengthAt:])) == length
}
