package lro

import (
	"encoding/binary"
	"math/bits"
)

// quick parses what almost all packets of a bulk transfer are: an untagged frame with IPv4 and TCP without options or
// with a timestamp in its usual layout, that may become part of an aggregate. It returns false, and the view is
// undefined, for everything else; then the long way decides. For what it accepts it fills in the same view as the long
// way does, which a test compares.
//
// It exists for speed: one check of a length, ten loads at fixed places, and a handful of branches that go the same way
// for packet after packet.
func (v *view) quick(p *Packet, e *Engine) bool {
	const headers = ethernetLen + 20 + 20 + 12
	d := p.Data
	if len(d) < headers || p.Flags&HardwareCoalesced != 0 || p.Segments > 1 || p.SegmentSize != 0 {
		return false
	}
	h := (*[headers]byte)(d)
	w0 := binary.LittleEndian.Uint64(h[14:22]) // version to flags
	w1 := binary.LittleEndian.Uint64(h[22:30]) // TTL to source
	w2 := binary.LittleEndian.Uint64(h[30:38]) // destination, ports
	w4 := binary.LittleEndian.Uint64(h[46:54]) // data offset to urgent pointer
	link := binary.LittleEndian.Uint64(h[6:14])
	const control = flagSYN | flagRST | flagURG | flagACK
	odd := (link>>48 ^ 0x0008) | (w0&0xff ^ 0x45) | (w0 >> 48 &^ 0x40) | (w1>>8&0xff ^ protocolTCP) |
		(w4>>8&control ^ flagACK)
	if odd != 0 {
		return false
	}
	total := uint32(bits.ReverseBytes16(uint16(w0 >> 16)))
	if total+ethernetLen != p.Len || total > e.mtu {
		return false
	}
	s, c := bits.Add64(w0, w1, 0)
	s, c = bits.Add64(s, w2&0xffffffff, c)
	if (s+c)%65535 != 0 || uint16(w1>>16) == 0xffff || uint16(w4>>32) == 0xffff {
		return false
	}
	if p.Checksum != ChecksumVerified &&
		(p.Checksum != ChecksumUnknown || e.passUnverified || int(p.Len) > len(d)) {
		return false
	}
	sequence := binary.LittleEndian.Uint64(h[38:46]) // and acknowledgement
	v.tail = sequence >> 32 << 32
	switch w4 & 0xf0 {
	case 0x80:
		v.headerLen = headers
		v.opt = binary.LittleEndian.Uint64(h[54:62])
		v.tail |= uint64(binary.LittleEndian.Uint32(h[62:66]))
	case 0x50:
		v.headerLen = headers - 12
		v.opt = 0
	default:
		return false
	}
	v.payload = p.Len - uint32(v.headerLen)
	if int32(v.payload) <= 0 {
		return false
	}
	v.addr = [4]uint64{w1>>32 | w2<<32}
	v.ports = w2>>32 | uint64(p.Port)<<32
	v.tags = 0
	v.meta = ethernetLen | 4<<32
	if p.Flags&VLANStripped != 0 {
		v.meta |= 1<<8 | uint64(p.VLAN)<<16
	}
	v.link[0] = binary.LittleEndian.Uint64(h[0:8])
	v.link[1] = link
	v.net = w0&0xffff00000000ffff | w1&0xffff<<16
	v.tcp = w4 &^ (0xffff<<32 | (flagFIN|flagPSH)<<8)
	v.mark = p.Mark
	v.seq = bits.ReverseBytes32(uint32(sequence))
	v.l3, v.l4 = ethernetLen, ethernetLen+20
	v.id = bits.ReverseBytes16(uint16(w0 >> 32))
	v.ending = uint8(w4>>8) & (flagFIN | flagPSH)
	v.cwr = w4>>8&flagCWR != 0
	v.deep = false
	v.scope = scopeFlow
	v.flags = TCP
	return true
}
