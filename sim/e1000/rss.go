package e1000

import (
	"encoding/binary"

	"nicd/sim"
)

// maxHashInput is the longest input: two IPv6 addresses and two ports.
const maxHashInput = 36

// rss is the 82574L's receive-side scaling, read from the registers when they
// change. Guarded by Host.Rx.
type rss struct {
	on    bool
	types uint32 // MRQC's field enables
	dirty bool   // the key changed: table is stale
	// table holds the Toeplitz hash of each byte value at each input position:
	// the hash is linear, so that of an input is the exclusive or of its bytes'.
	table [maxHashInput][256]uint32
	reta  [4 * retaWords]uint8
}

// update reads the registers. Several queues are used, and the hash is reported,
// only with RXCSUM.PCSD and extended descriptors (82574 datasheet 7.1.8).
func (r *rss) update(m *Model) {
	mrqc := m.regs[regMRQC/4]
	r.types = mrqc
	r.on = m.opt.Kind.is574() && mrqc&mrqcEnableMask == mrqcEnableRSS &&
		m.regs[regRXCSUM/4]&rxcsumPCSD != 0 && m.regs[regRFCTL/4]&rfctlEXTEN != 0
	if !r.on {
		return
	}
	for i := range retaWords {
		binary.LittleEndian.PutUint32(r.reta[4*i:], m.regs[regRETA/4+i])
	}
	if r.dirty {
		r.dirty = false
		r.fillTable(m.regs[regRSSRK/4 : (regRSSRK+rssKeyLen)/4])
	}
}

func (r *rss) fillTable(words []uint32) {
	var key [rssKeyLen + 1]byte
	for i, w := range words {
		binary.LittleEndian.PutUint32(key[4*i:], w)
	}
	for pos := range r.table {
		// The 40 key bits that the byte's bits select windows of.
		window := uint64(binary.BigEndian.Uint32(key[pos:]))<<8 | uint64(key[pos+4])
		for v := range r.table[pos] {
			h := uint32(0)
			for bit := range 8 {
				if v>>(7-bit)&1 != 0 {
					h ^= uint32(window >> (8 - bit))
				}
			}
			r.table[pos][v] = h
		}
	}
}

func (r *rss) hash(pos int, h uint32, in []byte) uint32 {
	for i, b := range in {
		h ^= r.table[pos+i][b]
	}
	return h
}

// classify returns the hash of a frame, its type (rssNone if it is not of an
// enabled type) and its queue. b holds the headers.
func (r *rss) classify(p *sim.Headers, b []byte) (hash uint32, kind uint32, queue int) {
	if p.IP == 0 {
		return 0, rssNone, 0
	}
	addresses, two, one := b[p.IP+12:p.IP+20], uint32(rssTCPIPv4), uint32(rssIPv4)
	with, without := r.types&mrqcTCPIPv4 != 0, r.types&mrqcIPv4 != 0
	if p.IPv6 {
		addresses, two, one = b[p.IP+8:p.IP+40], rssTCPIPv6, rssIPv6
		with, without = r.types&mrqcTCPIPv6 != 0, r.types&mrqcIPv6 != 0
		if !without && r.types&mrqcIPv6Ex != 0 {
			one, without = rssIPv6Ex, true
		}
	}
	switch {
	case with && p.Protocol == sim.ProtocolTCP && p.Payload != 0:
		hash = r.hash(0, 0, addresses)
		hash = r.hash(len(addresses), hash, b[p.L4:p.L4+4])
		kind = two
	case without:
		hash, kind = r.hash(0, 0, addresses), one
	default:
		return 0, rssNone, 0
	}
	return hash, kind, int(r.reta[hash&0x7F] >> 7)
}
