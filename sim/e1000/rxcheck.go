package e1000

import (
	"encoding/binary"

	"nicd/sim"
)

// check does receive checksum offload (8254x SDM 3.2.9): it sets the status and
// error bits, and completes a checksum that the sender left open.
func (r *receiver) check(x *rxFrame) {
	p := &r.parsed
	checked := uint32(0)
	if x.parsed && r.checkIP && !p.IPv6 {
		checked |= rxIPCS
		if !p.HeaderChecksumGood(x.head) {
			x.errors |= rxErrIPE
		}
	}
	if x.parsed && r.checkL4 && r.checkable(x) {
		checked |= rxTCPCS
		if p.Protocol == sim.ProtocolUDP && r.model.opt.Kind.is574() {
			checked |= rxUDPCS
		}
		if !p.ChecksumGood(x.frame, x.head) {
			x.errors |= rxErrTCPE
		}
	}
	if checked == 0 {
		checked = rxIXSM
	}
	if r.model.opt.Variation.NoRxChecksum {
		checked = rxIXSM
		x.errors &^= rxErrIPE | rxErrTCPE
	}
	x.status |= checked
	if x.frame.Flags&sim.Partial != 0 {
		r.complete(x)
	}
	if r.reportSum && r.sumFrom < x.frame.Len {
		x.sum = ^r.sumOf(x, r.sumFrom)
	}
}

// checkable tells whether the frame has a layer-4 checksum that the chip checks.
func (r *receiver) checkable(x *rxFrame) bool {
	p := &r.parsed
	at := p.ChecksumAt()
	switch {
	case at == 0 || at+2 > len(x.head), p.IPv6 && !r.checkL4IPv6:
		return false
	case p.Protocol == sim.ProtocolUDP && x.frame.Flags&sim.Partial == 0:
		return binary.BigEndian.Uint16(x.head[at:]) != 0 // zero is none (RFC 768)
	}
	return true
}

// complete fills in the checksum of a frame that carries only the seed.
func (r *receiver) complete(x *rxFrame) {
	f := x.frame
	at := f.ChecksumStart + f.ChecksumOffset
	if f.ChecksumStart < 0 || f.ChecksumOffset < 0 || at+2 > len(x.head) {
		return
	}
	c := ^sim.SumParts(0, f.Parts, f.ChecksumStart, f.Len-f.ChecksumStart)
	if c == 0 && r.parsed.Protocol == sim.ProtocolUDP {
		c = 0xFFFF
	}
	if !x.copied {
		x.head = r.scratch[:copy(r.scratch[:], x.head)]
		x.copied = true
	}
	binary.BigEndian.PutUint16(x.head[at:], c)
}

// sumOf is the ones' complement sum of the frame from an offset on.
func (r *receiver) sumOf(x *rxFrame, from int) uint16 {
	n, f := len(x.head), x.frame
	if from >= n {
		return sim.SumParts(0, f.Parts, from, f.Len-from)
	}
	s := sim.Sum(0, x.head[from:])
	rest := sim.SumParts(0, f.Parts, n, f.Len-n)
	if (n-from)&1 != 0 {
		rest = rest<<8 | rest>>8
	}
	return addSums(s, rest)
}

func addSums(a, b uint16) uint16 {
	s := uint32(a) + uint32(b)
	return uint16(s + s>>16)
}
