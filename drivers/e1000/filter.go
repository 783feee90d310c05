package e1000

import (
	"encoding/binary"

	"nicd/framework"
)

const (
	numRAR       = 15   // the sixteenth belongs to management firmware
	maxMulticast = 1024 // they are hashed: any number works, worse and worse
	tableWords   = 128
)

// SetFilters replaces the receive filters.
func (d *device) SetFilters(f framework.Filters) error {
	d.run.cfg.Filters = f
	d.applyFilters()
	return nil
}

// applyFilters writes addresses, tables and the receive control register, which
// also starts receive the first time.
func (d *device) applyFilters() {
	cfg := &d.run.cfg
	d.writeRAR(0, cfg.MAC, true)
	for i := range numRAR - 1 {
		if i < len(cfg.Filters.Unicast) {
			d.writeRAR(i+1, cfg.Filters.Unicast[i], true)
		} else {
			d.writeRAR(i+1, framework.MAC{}, false)
		}
	}
	table := multicastTable(cfg.Filters.Multicast)
	for i, w := range table {
		d.write(regMTA+4*uint32(i), w)
	}
	rctl := d.run.rctl &^ (rctlUPE | rctlMPE | rctlVFE)
	if cfg.Filters.Promiscuous {
		rctl |= rctlUPE | rctlMPE
	}
	if cfg.Filters.AllMulticast {
		rctl |= rctlMPE
	}
	if vlans := cfg.Filters.VLANs; vlans != nil && cfg.Features.Has(framework.VLANFilter) && !cfg.Filters.Promiscuous {
		rctl |= rctlVFE
		for i := range tableWords {
			d.write(regVFTA+4*uint32(i), uint32(vlans[i/2]>>(i%2*32)))
		}
	}
	// Writing it stops receive for a second in some emulations (QEMU's e1000).
	if rctl != d.read(regRCTL) {
		d.write(regRCTL, rctl)
	}
}

func (d *device) writeRAR(entry int, mac framework.MAC, valid bool) {
	high := uint32(binary.LittleEndian.Uint16(mac[4:]))
	if valid {
		high |= rahValid
	}
	at := 8 * uint32(entry)
	d.write(regRAL+at, binary.LittleEndian.Uint32(mac[:]))
	d.write(regRAH+at, high)
}

// multicastTable hashes addresses by the twelve bits that RCTL.MO = 0 takes.
func multicastTable(macs []framework.MAC) (table [tableWords]uint32) {
	for _, m := range macs {
		hash := (uint32(m[5])<<8 | uint32(m[4])) >> 4 & 0xFFF
		table[hash>>5] |= 1 << (hash & 31)
	}
	return table
}
