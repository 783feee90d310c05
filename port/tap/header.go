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
	h[atGSOType] = gsoTCPv4
	if p.Flags&framework.IPv6 != 0 {
		h[atGSOType] = gsoTCPv6
	}
	if offload.CWR(first, p.ChecksumStart) {
		h[atGSOType] |= gsoECN
	}
	binary.LittleEndian.PutUint16(h[atGSOSize:], p.SegmentSize)
	binary.LittleEndian.PutUint16(h[atHeaderLen:], p.HeaderLen+shift)
}

// decode describes p as the kernel does, and tells whether that makes sense. The
// packet's length and its first fragment are known.
func (h *vnetHeader) decode(p *framework.Packet, first []byte) bool {
	if h[atFlags]&needsChecksum != 0 {
		p.Flags |= framework.ChecksumPartial
		p.ChecksumStart = binary.LittleEndian.Uint16(h[atChecksumStart:])
		p.ChecksumOffset = binary.LittleEndian.Uint16(h[atChecksumOffset:])
	}
	kind := h[atGSOType] &^ gsoECN
	if kind == gsoNone {
		return true
	}
	switch kind {
	case gsoTCPv4:
		p.Flags |= framework.IPv4
	case gsoTCPv6:
		p.Flags |= framework.IPv6
	default:
		return false // nothing else was offered
	}
	// The kernel's header length is a hint: what it holds in one piece.
	dataOffset := int(p.ChecksumStart) + tcpDataOffsetAt
	if p.Flags&framework.ChecksumPartial == 0 || dataOffset >= len(first) {
		return false
	}
	p.HeaderLen = p.ChecksumStart + uint16(first[dataOffset]>>4)*4
	p.SegmentSize = binary.LittleEndian.Uint16(h[atGSOSize:])
	p.Flags |= framework.Segment | framework.TCP
	return int(p.HeaderLen) <= len(first) && p.SegmentSize != 0
}

// tcpDataOffsetAt is where TCP says how long its header is (RFC 9293 section 3.1).
const tcpDataOffsetAt = 12
