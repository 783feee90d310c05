package e1000

import "nicd/framework"

// statistics are the registers that Info and ReadCounters are about.
var statistics = framework.Statistics{
	{Offset: 0x4000, Name: "rx_crc_errors", Doc: "frames with a bad frame check sequence", Bad: true},
	{Offset: 0x4004, Name: "rx_alignment_errors", Doc: "frames with an odd number of nibbles", Bad: true},
	{Offset: 0x4008, Name: "rx_symbol_errors", Doc: "symbol errors", Bad: true},
	{Offset: 0x400C, Name: "rx_errors", Doc: "frames that the PHY called bad", Bad: true},
	{Offset: 0x4010, Name: "rx_missed", Doc: "frames lost because the receive FIFO was full", Bad: true},
	{Offset: 0x40A0, Name: "rx_no_buffer", Doc: "frames that found no descriptor and had to wait", Bad: true},
	{Offset: 0x4040, Name: "rx_length_errors", Doc: "frames whose length field is wrong", Bad: true},
	{Offset: 0x40A4, Name: "rx_undersize", Doc: "frames shorter than 64 bytes", Bad: true},
	{Offset: 0x40A8, Name: "rx_fragments", Doc: "short frames with a bad frame check sequence", Bad: true},
	{Offset: 0x40AC, Name: "rx_oversize", Doc: "frames longer than allowed", Bad: true},
	{Offset: 0x40B0, Name: "rx_jabber", Doc: "long frames with a bad frame check sequence", Bad: true},
	{Offset: 0x4048, Name: "rx_xon", Doc: "XON frames received"},
	{Offset: 0x4050, Name: "rx_xoff", Doc: "XOFF frames received"},
	{Offset: 0x4074, Name: "rx_packets", Doc: "good frames received"},
	{Offset: 0x4088, Wide: true, Name: "rx_bytes", Doc: "bytes of good frames received"},
	{Offset: 0x4078, Name: "rx_broadcast", Doc: "broadcast frames received"},
	{Offset: 0x407C, Name: "rx_multicast", Doc: "multicast frames received"},
	{Offset: 0x4080, Name: "tx_packets", Doc: "good frames sent"},
	{Offset: 0x4090, Wide: true, Name: "tx_bytes", Doc: "bytes of good frames sent"},
	{Offset: 0x40F0, Name: "tx_multicast", Doc: "multicast frames sent"},
	{Offset: 0x40F4, Name: "tx_broadcast", Doc: "broadcast frames sent"},
	{Offset: 0x40F8, Name: "tx_tso", Doc: "TSO packets sent"},
	{Offset: 0x40FC, Name: "tx_tso_failed", Doc: "TSO packets with a bad context", Bad: true},
	{Offset: 0x404C, Name: "tx_xon", Doc: "XON frames sent"},
	{Offset: 0x4054, Name: "tx_xoff", Doc: "XOFF frames sent"},
	{Offset: 0x4018, Name: "tx_excess_collisions", Doc: "frames given up after 16 collisions", Bad: true},
	{Offset: 0x4020, Name: "tx_late_collisions", Doc: "collisions after the first 64 bytes", Bad: true},
	{Offset: 0x4028, Name: "tx_collisions", Doc: "collisions"},
	{Offset: 0x4034, Name: "tx_no_carrier", Doc: "frames sent without carrier", Bad: true},
}

// ReadCounters reports what has been counted since Attach.
func (d *device) ReadCounters(dst []uint64) error {
	statistics.Read(d.bar, d.totals)
	copy(dst, d.totals)
	return nil
}
