package vmxnet3

import (
	"encoding/binary"

	"nicd/sim"
)

// VXLAN (RFC 7348).
const (
	vxlanPort      = 4789
	vxlanHeaderLen = 8
)

// inner makes the checksum flags of a VXLAN packet, which is f, those of the packet
// within it, on a device that does so.
func (r *receiver) inner(f *sim.Frame) {
	p, style := &r.packet, r.m.opt.Variations.InnerFlags
	at := p.h.Payload + vxlanHeaderLen
	if style == InnerFlagsNever || r.m.revision < 4 || p.w0&rcNotChecksum != 0 || !p.vxlan() || at >= len(p.hdr) {
		return
	}
	r.parts = f.AppendParts(r.parts[:0], at, f.Len-at)
	whole := sim.Frame{Parts: r.parts, Len: f.Len - at}
	var h sim.Headers
	if !sim.ParseHeaders(&h, p.hdr[at:], whole.Len) {
		return
	}
	p.w3 = rcFCSCorrect | checksumFlags(&h, p.hdr[at:], &whole)
	p.w0 |= rcInner13
	if style == InnerFlagsBit12 {
		p.w0 ^= rcInner13 | rcInner12
	}
}

// vxlan tells whether the packet is one in a tunnel, by its port.
func (p *packet) vxlan() bool {
	return p.h.Protocol == sim.ProtocolUDP && p.h.Payload != 0 && binary.BigEndian.Uint16(p.hdr[p.h.L4+2:]) == vxlanPort
}

// tunnelled tells whether the packet's flags are about another within it.
func (p *packet) tunnelled() bool { return p.w0&(rcInner12|rcInner13) != 0 }
