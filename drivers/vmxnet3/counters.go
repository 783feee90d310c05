package vmxnet3

import "nicd/framework"

// counters are the statistics that the device keeps per queue, first those of
// transmit queues, then those of receive queues, in the order of its structures.
var counters = []framework.CounterInfo{
	{Name: "tx_tso_packets", Doc: "segments that the device cut"},
	{Name: "tx_tso_bytes", Doc: "bytes of segments that the device cut"},
	{Name: "tx_unicast_packets", Doc: "unicast frames sent"},
	{Name: "tx_unicast_bytes", Doc: "bytes of unicast frames sent"},
	{Name: "tx_multicast_packets", Doc: "multicast frames sent"},
	{Name: "tx_multicast_bytes", Doc: "bytes of multicast frames sent"},
	{Name: "tx_broadcast_packets", Doc: "broadcast frames sent"},
	{Name: "tx_broadcast_bytes", Doc: "bytes of broadcast frames sent"},
	{Name: "tx_errors", Doc: "packets that the device could not send", Bad: true},
	{Name: "tx_discards", Doc: "packets that the device threw away", Bad: true},
	{Name: "rx_lro_packets", Doc: "packets that the device merged"},
	{Name: "rx_lro_bytes", Doc: "bytes of packets that the device merged"},
	{Name: "rx_unicast_packets", Doc: "unicast frames received"},
	{Name: "rx_unicast_bytes", Doc: "bytes of unicast frames received"},
	{Name: "rx_multicast_packets", Doc: "multicast frames received"},
	{Name: "rx_multicast_bytes", Doc: "bytes of multicast frames received"},
	{Name: "rx_broadcast_packets", Doc: "broadcast frames received"},
	{Name: "rx_broadcast_bytes", Doc: "bytes of broadcast frames received"},
	{Name: "rx_out_of_buffer", Doc: "frames dropped because no buffer was posted", Bad: true},
	{Name: "rx_errors", Doc: "frames received with an error", Bad: true},
}

// readStats asks the device for its statistics, added up over queues.
func (d *device) readStats() (sums [2 * numStats]uint64) {
	d.regs.command(cmdStats)
	for kind, queues := range [...][]queueDesc{d.run.txDescs(), d.run.rxDescs()} {
		for q := range queues {
			for i := range numStats {
				sums[kind*numStats+i] += queues[q].stats[i].Load()
			}
		}
	}
	return sums
}

// ReadCounters reports what has happened since Start: a device may or may not
// begin anew when it is activated.
func (d *device) ReadCounters(dst []uint64) error {
	for i, now := range d.readStats() {
		dst[i] = now - d.run.statsAtStart[i]
	}
	return nil
}
