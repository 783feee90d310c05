package vmxnet3

import "nicd/framework"

// SetFilters replaces the receive filters.
func (d *device) SetFilters(f framework.Filters) error {
	d.run.cfg.Filters = f
	d.applyFilters()
	return nil
}

// applyFilters makes the device read the receive filters anew. The mode comes
// first; the VLAN table goes with it because promiscuous mode uses a table of its
// own, and a driver that forgot to put the old one back lost its VLANs (DPDK
// c1f7b53c83).
func (d *device) applyFilters() {
	cfg, shared := &d.run.cfg, d.run.shared
	s := &shared.driver
	s.rxMode = rxMode(&cfg.Filters)
	d.regs.command(cmdUpdateRxMode)

	s.vlans, _ = cfg.Filters.VLANTable(cfg.Features)
	s.vlans[0] |= 1 // untagged frames
	d.regs.command(cmdUpdateVLAN)

	s.multicastLen = uint16(copy(shared.multicast[:], cfg.Filters.Multicast) * len(framework.MAC{}))
	d.regs.command(cmdUpdateFilters)
}

func rxMode(f *framework.Filters) uint32 {
	mode := uint32(rxUnicast | rxBroadcast)
	if len(f.Multicast) > 0 {
		mode |= rxMulticast
	}
	if f.AllMulticast {
		mode |= rxAllMulticast
	}
	if f.Promiscuous {
		mode |= rxPromiscuous
	}
	return mode
}
