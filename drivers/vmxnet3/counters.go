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

// ReadCounters asks the device for its statistics and adds them up over queues.
func (d *device) ReadCounters(dst []uint64) error {
	d.regs.command(cmdStats)
	clear(dst)
	for kind, queues := range [...][]queueDesc{d.run.txDescs(), d.run.rxDescs()} {
		for q := range queues {
			for i := range numStats {
				dst[kind*numStats+i] += queues[q].stats[i].Load()
			}
		}
	}
	return nil
}
