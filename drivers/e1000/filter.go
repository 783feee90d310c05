package e1000

import "nicd/framework"

const (
	numRAR       = 15   // the sixteenth belongs to management firmware
	maxMulticast = 1024 // they are hashed: any number works, worse and worse
	tableWords   = 128  // of the multicast and of the VLAN table, each 4096 bits
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
	d.writeAddresses(append([]framework.MAC{cfg.MAC}, cfg.Filters.Unicast...))
	d.writeTable(regMTA, multicastTable(cfg.Filters.Multicast))
	rctl := d.run.rctl &^ (rctlUPE | rctlMPE | rctlVFE)
	if cfg.Filters.Promiscuous {
		rctl |= rctlUPE | rctlMPE
	}
	if cfg.Filters.AllMulticast {
		rctl |= rctlMPE
	}
	if vlans, all := cfg.Filters.VLANTable(cfg.Features); !all {
		rctl |= rctlVFE
		d.writeTable(regVFTA, vlans)
	}
	// Writing it stops receive for a second in some emulations (QEMU's e1000).
	if rctl != d.read(regRCTL) {
		d.write(regRCTL, rctl)
	}
}

func (d *device) writeAddresses(macs []framework.MAC) {
	for i := range uint32(numRAR) {
		var low, high uint32
		if int(i) < len(macs) {
			low, high = macs[i].Words()
			high |= rahValid
		}
		d.write(regRAL+8*i, low)
		d.write(regRAH+8*i, high)
	}
}

// writeTable writes a table from its end: what an 82544 writes to an odd word also
// lands in the even one before it (Linux e1000_set_rx_mode).
func (d *device) writeTable(reg uint32, bits [4096 / 64]uint64) {
	for i := tableWords - 1; i >= 0; i-- {
		d.write(reg+4*uint32(i), uint32(bits[i/2]>>(i%2*32)))
	}
}

// multicastTable hashes addresses by the twelve bits that RCTL.MO = 0 takes.
func multicastTable(macs []framework.MAC) (table [4096 / 64]uint64) {
	for _, m := range macs {
		hash := (uint32(m[5])<<8 | uint32(m[4])) >> 4 & 0xFFF
		table[hash/64] |= 1 << (hash % 64)
	}
	return table
}
