package lro

import (
	"encoding/binary"
	"math/bits"

	"nicd/internal/checksum"
)

// finish writes the headers of a merged aggregate into its first frame.
func (e *Engine) finish(in []Packet, a *Aggregate) {
	a.Flags |= Merged
	a.Checksum = ChecksumPartial
	e.stats.MaxSegments = max(e.stats.MaxSegments, uint64(a.Segments))
	d := in[a.Head].Data
	ip, tcp := d[a.L3Offset:a.L4Offset], d[a.L4Offset:a.HeaderLen]
	length := int(a.Len) - int(a.L4Offset)
	var pseudo uint16
	if a.Flags&IPv6 != 0 {
		binary.BigEndian.PutUint16(ip[4:], uint16(length))
		pseudo = checksum.Pseudo6(ip[8:40], protocolTCP, length)
	} else {
		binary.BigEndian.PutUint16(ip[2:], uint16(20+length))
		binary.BigEndian.PutUint16(ip[10:], headerChecksum(ip))
		pseudo = checksum.Pseudo4(ip[12:20], protocolTCP, length)
	}
	tcp[13] |= a.ending
	binary.BigEndian.PutUint16(tcp[16:], pseudo)
}

// headerChecksum computes the checksum of an IPv4 header without options, which is the whole of ip.
func headerChecksum(ip []byte) uint16 {
	h := (*[20]byte)(ip)
	s, c := bits.Add64(binary.BigEndian.Uint64(h[0:]), uint64(binary.BigEndian.Uint16(h[8:]))<<16, 0)
	return ^checksum.Fold(s + c + uint64(binary.BigEndian.Uint32(h[12:])) + uint64(binary.BigEndian.Uint32(h[16:])))
}

// verifyHead reports whether the checksum of the aggregate's first packet is right. It is computed when a second packet
// wants to join, and not for a packet that stays alone.
func (e *Engine) verifyHead(in []Packet, a *Aggregate) bool {
	if !e.verify(&in[a.Head], a.L3Offset, a.L4Offset, a.HeaderLen) {
		a.Checksum = ChecksumBad
		return false
	}
	a.Checksum = ChecksumVerified
	return true
}

// verify computes the TCP checksum of a packet whose frame ends with its payload and lies in Data.
func (e *Engine) verify(p *Packet, l3, l4, headerLen uint16) bool {
	e.stats.Verified++
	d := p.Data[:uint32(headerLen)+p.PayloadLen]
	ip, segment := d[l3:l4], d[l4:]
	var pseudo uint16
	if ip[0]>>4 == 6 {
		pseudo = checksum.Pseudo6(ip[8:40], protocolTCP, len(segment))
	} else {
		pseudo = checksum.Pseudo4(ip[12:20], protocolTCP, len(segment))
	}
	return checksum.Add(pseudo, checksum.Sum(segment)) == 0xffff
}
