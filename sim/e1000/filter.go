package e1000

import (
	"bytes"
	"encoding/binary"
)

// filter is what decides which frames are received, read from the registers when
// they change. Guarded by Host.Rx.
type filter struct {
	unicastAll, multicastAll, broadcast bool

	unicastHash bool // Variation.HashesUnicast

	vlan, cfi, cfiValue bool // VFE, CFIEN, CFI
	vet                 uint16
	addresses           int // entries in use
	mtaShift            uint8
	exact               [rarEntries][6]byte
	source              [rarEntries]bool // match the source address instead
	mta                 []uint32
	vfta                []uint32
}

// multicastShift is how far a multicast hash is shifted, by RCTL.MO.
var multicastShift = [4]uint8{4, 3, 2, 0}

func (f *filter) update(m *Model) {
	rctl := m.regs[regRCTL/4]
	f.unicastAll, f.multicastAll = rctl&rctlUPE != 0, rctl&rctlMPE != 0
	f.broadcast = rctl&rctlBAM != 0
	f.vlan, f.cfi, f.cfiValue = rctl&rctlVFE != 0, rctl&rctlCFIEN != 0, rctl&rctlCFI != 0
	f.vet = uint16(m.regs[regVET/4])
	f.mtaShift = multicastShift[rctl>>rctlMOShift&3]
	f.mta = m.regs[regMTA/4 : regMTA/4+mtaWords]
	f.vfta = m.regs[regVFTA/4 : regVFTA/4+vftaWords]
	f.unicastHash = m.opt.Variation.HashesUnicast
	f.addresses = 0
	for i := range rarEntries {
		low, high := m.regs[regRAL/4+2*i], m.regs[regRAL/4+2*i+1]
		if high&rahAV == 0 {
			continue
		}
		e := &f.exact[f.addresses]
		binary.LittleEndian.PutUint32(e[:], low)
		binary.LittleEndian.PutUint16(e[4:], uint16(high))
		f.source[f.addresses] = high>>rahASELShift&rahASELMask == 1
		f.addresses++
	}
}

// match tells whether a frame's addresses pass, and whether they do so only by a
// hash or a promiscuous mode (PIF).
func (f *filter) match(h []byte) (pass, inexact bool) {
	for i := range f.exact[:f.addresses] {
		at := h[0:6]
		if f.source[i] {
			at = h[6:12]
		}
		if bytes.Equal(f.exact[i][:], at) {
			return true, false
		}
	}
	switch {
	case h[0]&1 == 0:
		return f.unicastAll || f.unicastHash && f.hashed(h), true
	case isBroadcast(h):
		// Broadcast also passes as the multicast that it is.
		return f.broadcast || f.multicastAll, false
	}
	return f.multicastAll || f.hashed(h), true
}

func (f *filter) hashed(h []byte) bool {
	v := (uint32(h[5])<<8 | uint32(h[4])) >> f.mtaShift & 0xFFF
	return f.mta[v>>5]>>(v&31)&1 != 0
}

// tagged tells whether the frame has an 802.1Q tag.
func (f *filter) tagged(h []byte) bool {
	return len(h) >= 16 && binary.BigEndian.Uint16(h[12:]) == f.vet
}

// matchVLAN tells whether a tagged frame passes.
func (f *filter) matchVLAN(tci uint16) bool {
	if !f.vlan {
		return true
	}
	if f.cfi && (tci>>12&1 != 0) != f.cfiValue {
		return false
	}
	id := tci & 0xFFF
	return f.vfta[id>>5]>>(id&31)&1 != 0
}

func isBroadcast(h []byte) bool {
	return binary.LittleEndian.Uint32(h) == 0xFFFFFFFF && h[4] == 0xFF && h[5] == 0xFF
}
