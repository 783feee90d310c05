package vmxnet3

import (
	"encoding/binary"

	"nicd/sim"
)

// packet is a frame on its way into the driver's buffers.
type packet struct {
	room [headerRoom]byte
	hdr  []byte      // its first bytes, in room: changed at will
	h    sim.Headers // of hdr
	len  int
	src  [][]byte // what is written: hdr and the parts behind it
	cast castKind
	hash uint32

	w0, w2, w3 uint32 // what the last completion tells
	segments   int    // 1 if nothing was coalesced
	mss        int
}

// read copies a frame's headers and reads them. The rest stays where it is.
func (p *packet) read(f *sim.Frame) {
	p.w0, p.w2, p.w3 = 0, 0, rcFCSCorrect
	p.segments, p.mss = 1, 0
	n := f.CopyTo(p.room[:], 0)
	p.hdr, p.len = p.room[:n], f.Len
	sim.ParseHeaders(&p.h, p.hdr, f.Len)
	if f.Len < minFrame {
		clear(p.room[n:minFrame])
		p.hdr, p.len = p.room[:minFrame], minFrame
	}
}

// whole makes all of f the source.
func (p *packet) whole(f *sim.Frame) {
	p.src = append(p.src[:0], p.hdr)
	if n := f.Len - headerRoom; n > 0 {
		p.src = f.AppendParts(p.src, headerRoom, n)
	}
}

// checksum sets what the device knows of the frame's checksums. The headers are
// still those of f.
func (p *packet) checksum(f *sim.Frame, features uint32) {
	if features&featureChecksum == 0 || p.h.IP == 0 {
		p.w0 |= rcNotChecksum
		return
	}
	p.w3 |= checksumFlags(&p.h, p.hdr, f)
}

// checksumFlags is what a completion tells of the headers h of f, whose first bytes
// are hdr.
func checksumFlags(h *sim.Headers, hdr []byte, f *sim.Frame) (w3 uint32) {
	w3 = rcIPv4
	if h.IPv6 {
		w3 = rcIPv6
	}
	// The sender of a TSO frame leaves the header's checksum to the device.
	if f.Flags&sim.Segment != 0 || h.HeaderChecksumGood(hdr) {
		w3 |= rcIPCorrect
	}
	switch {
	case h.Fragment:
		return w3 | rcFragment
	case h.Payload == 0:
		return w3
	case h.Protocol == sim.ProtocolTCP:
		w3 |= rcTCP
	case h.Protocol == sim.ProtocolUDP:
		w3 |= rcUDP
	}
	if h.ChecksumGood(f, hdr) {
		w3 |= rcL4Correct
	}
	return w3
}

// strip moves the VLAN tag from the frame to the completion.
func (p *packet) strip() {
	var tci uint16
	p.hdr, tci = p.h.Untag(p.hdr)
	p.len -= sim.VLANTagLen
	p.w2 |= rcTagStripped | uint32(tci)<<rcTCIShift
}

// fixLength makes the IP header tell the length of the packet.
func (p *packet) fixLength() {
	h := &p.h
	h.End = p.len
	if h.IPv6 {
		binary.BigEndian.PutUint16(p.hdr[h.IP+4:], uint16(p.len-h.IP-ipv6Header))
		return
	}
	binary.BigEndian.PutUint16(p.hdr[h.IP+2:], uint16(p.len-h.IP))
	h.SetHeaderChecksum(p.hdr)
}

// fillChecksum computes the TCP checksum of what src holds.
func (p *packet) fillChecksum() {
	at := p.h.ChecksumAt()
	p.hdr[at], p.hdr[at+1] = 0, 0
	n := p.len - p.h.L4
	sum := ^sim.SumParts(p.h.Pseudo(p.hdr, n), p.src, p.h.L4, n)
	binary.BigEndian.PutUint16(p.hdr[at:], sum)
}

// Offsets in headers.
const (
	ipv4ID     = 4
	ipv6Header = 40 // its length
	tcpSeq     = 4
	tcpAck     = 8
	tcpFlags   = 13
	tcpWindow  = 14
	tcpSum     = 16
	tcpUrgent  = 18
)
