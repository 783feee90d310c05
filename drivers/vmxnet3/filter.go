package vmxnet3

import "nicd/framework"

// applyFilters writes the receive filters of f and makes the device read them.
// The mode comes first; the VLAN table goes with it because promiscuous mode uses
// a table of its own, and a driver that forgot to put the old one back lost its
// VLANs (DPDK c1f7b53c83).
func (d *device) applyFilters(f *framework.Filters, features framework.Features) {
	s := d.run.shared
	s.driver.put32(dsRxMode, rxMode(f))
	d.regs.command(cmdUpdateRxMode)

	writeVLANs(s.driver.Bytes[dsVLANs:][:512], f, features)
	d.regs.command(cmdUpdateVLAN)

	n := 0
	for _, mac := range f.Multicast {
		n += copy(s.multicast.Bytes[n:], mac[:])
	}
	s.driver.put16(dsMulticastLen, uint16(n))
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

// writeVLANs fills the table of accepted VLANs. Bit 0 lets untagged frames in.
func writeVLANs(table []byte, f *framework.Filters, features framework.Features) {
	if f.Promiscuous || f.VLANs == nil || !features.Has(framework.VLANFilter) {
		for i := range table {
			table[i] = 0xFF
		}
		return
	}
	for i := range table {
		table[i] = byte(f.VLANs[i/8] >> (i % 8 * 8))
	}
	table[0] |= 1
}
