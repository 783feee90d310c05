package tap

import (
	"encoding/binary"

	"nicd/framework"
	"nicd/port/offload"
)

// The header in front of each frame: struct virtio_net_hdr of the virtio
// specification 1.2, section 5.1.6, without the fields of later versions. It is
// little-endian where this builds.
const (
	headerLen = 10

	atFlags          = 0
	atGSOType        = 1
	atHeaderLen      = 2
	atGSOSize        = 4
	atChecksumStart  = 6
	atChecksumOffset = 8
)

const (
	needsChecksum = 1 // VIRTIO_NET_HDR_F_NEEDS_CSUM
	dataValid     = 2 // VIRTIO_NET_HDR_F_DATA_VALID

	gsoNone  = 0 // VIRTIO_NET_HDR_GSO_NONE
	gsoTCPv4 = 1
	gsoTCPv6 = 4
	gsoUDP   = 5    // VIRTIO_NET_HDR_GSO_UDP_L4: datagrams of one size, over either IP
	gsoECN   = 0x80 // the TCP segment has CWR set
)

// vnetHeader is a virtio_net_hdr.
type vnetHeader [headerLen]byte

// encode describes a packet to be sent. first is its first fragment and shift how
// many bytes will stand in front of where the packet's offsets count from.
func (h *vnetHeader) encode(p *framework.Packet, first []byte, shift uint16) {
	*h = vnetHeader{}
	if p.Flags&framework.ChecksumPartial == 0 {
		return
	}
	h[atFlags] = needsChecksum
	binary.LittleEndian.PutUint16(h[atChecksumStart:], p.ChecksumStart+shift)
	binary.LittleEndian.PutUint16(h[atChecksumOffset:], p.ChecksumOffset)
	if p.Flags&framework.Segment == 0 {
		return
	}
	h[atGSOType] = gsoType(p, first)
	binary.LittleEndian.PutUint16(h[atGSOSize:], p.SegmentSize)
	binary.LittleEndian.PutUint16(h[atHeaderLen:], p.HeaderLen+shift)
}

// gsoType is what a packet to be segmented is cut into.
func gsoType(p *framework.Packet, first []byte) byte {
	kind := byte(gsoTCPv4)
	switch {
	case p.ChecksumOffset == udpChecksumAt:
		return gsoUDP
	case p.Flags&framework.IPv6 != 0:
		kind = gsoTCPv6
	}
	if offload.CWR(first, p.ChecksumStart) {
		kind |= gsoECN
	}
	return kind
}

// decode describes p as the kernel does, and tells whether that makes sense. The
// packet's length and its first fragment are known.
func (h *vnetHeader) decode(p *framework.Packet, first []byte) bool {
	if h[atFlags]&needsChecksum != 0 {
		p.Flags |= framework.ChecksumPartial
		p.ChecksumStart = binary.LittleEndian.Uint16(h[atChecksumStart:])
		p.ChecksumOffset = binary.LittleEndian.Uint16(h[atChecksumOffset:])
	}
	if h[atGSOType] == gsoNone {
		return true
	}
	// The kernel's header length is a hint: what it holds in one piece.
	length, ok := h.transport(p, first)
	if !ok || p.Flags&framework.ChecksumPartial == 0 || int(p.ChecksumStart)+int(length) > len(first) {
		return false
	}
	p.HeaderLen = p.ChecksumStart + length
	p.SegmentSize = binary.LittleEndian.Uint16(h[atGSOSize:])
	p.Flags |= framework.Segment
	return p.SegmentSize != 0
}

// transport says what a packet to be segmented carries, and returns how long the
// header of that is.
func (h *vnetHeader) transport(p *framework.Packet, first []byte) (length uint16, ok bool) {
	switch h[atGSOType] &^ gsoECN {
	case gsoTCPv4:
		p.Flags |= framework.IPv4 | framework.TCP
	case gsoTCPv6:
		p.Flags |= framework.IPv6 | framework.TCP
	case gsoUDP:
		ip, _ := framework.NetworkHeader(first)
		p.Flags |= framework.UDP | ipVersion(first, ip)
		return udpHeaderLen, p.Flags&(framework.IPv4|framework.IPv6) != 0 && p.ChecksumOffset == udpChecksumAt
	default:
		return 0, false // nothing else was offered
	}
	at := int(p.ChecksumStart) + tcpDataOffsetAt
	if at >= len(first) {
		return 0, false
	}
	length = uint16(first[at]>>4) * 4
	return length, length >= tcpMinHeaderLen
}

// ipVersion is the flag of the IP header at an offset.
func ipVersion(first []byte, at int) framework.PacketFlags {
	if at >= len(first) {
		return 0
	}
	switch first[at] >> 4 {
	case 4:
		return framework.IPv4
	case 6:
		return framework.IPv6
	}
	return 0
}

// Where TCP says how long its header is, and how long it is at least (RFC 9293
// section 3.1).
const (
	tcpDataOffsetAt = 12
	tcpMinHeaderLen = 20
)

// UDP's header and its checksum in it (RFC 768).
const (
	udpHeaderLen  = 8
	udpChecksumAt = 6
)
