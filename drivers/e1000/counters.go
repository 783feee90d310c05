package e1000

import (
	"nicd/bus"
	"nicd/framework"
)

// counter is a statistics register, which clears when it is read and stops at its
// maximum. A wide one is two registers, the low one of which is read first.
type counter struct {
	reg  uint32
	wide bool
	framework.CounterInfo
}

var counters = []counter{
	{0x4000, false, framework.CounterInfo{Name: "rx_crc_errors", Doc: "frames with a bad frame check sequence", Bad: true}},
	{0x4004, false, framework.CounterInfo{Name: "rx_alignment_errors", Doc: "frames with an odd number of nibbles", Bad: true}},
	{0x4008, false, framework.CounterInfo{Name: "rx_symbol_errors", Doc: "symbol errors", Bad: true}},
	{0x400C, false, framework.CounterInfo{Name: "rx_errors", Doc: "frames that the PHY called bad", Bad: true}},
	{0x4010, false, framework.CounterInfo{Name: "rx_missed", Doc: "frames lost because the receive FIFO was full", Bad: true}},
	{0x40A0, false, framework.CounterInfo{Name: "rx_no_buffer", Doc: "frames that found no descriptor and had to wait", Bad: true}},
	{0x4040, false, framework.CounterInfo{Name: "rx_length_errors", Doc: "frames whose length field is wrong", Bad: true}},
	{0x40A4, false, framework.CounterInfo{Name: "rx_undersize", Doc: "frames shorter than 64 bytes", Bad: true}},
	{0x40A8, false, framework.CounterInfo{Name: "rx_fragments", Doc: "short frames with a bad frame check sequence", Bad: true}},
	{0x40AC, false, framework.CounterInfo{Name: "rx_oversize", Doc: "frames longer than allowed", Bad: true}},
	{0x40B0, false, framework.CounterInfo{Name: "rx_jabber", Doc: "long frames with a bad frame check sequence", Bad: true}},
	{0x4048, false, framework.CounterInfo{Name: "rx_xon", Doc: "XON frames received"}},
	{0x4050, false, framework.CounterInfo{Name: "rx_xoff", Doc: "XOFF frames received"}},
	{0x4074, false, framework.CounterInfo{Name: "rx_packets", Doc: "good frames received"}},
	{0x4088, true, framework.CounterInfo{Name: "rx_bytes", Doc: "bytes of good frames received"}},
	{0x4078, false, framework.CounterInfo{Name: "rx_broadcast", Doc: "broadcast frames received"}},
	{0x407C, false, framework.CounterInfo{Name: "rx_multicast", Doc: "multicast frames received"}},
	{0x4080, false, framework.CounterInfo{Name: "tx_packets", Doc: "good frames sent"}},
	{0x4090, true, framework.CounterInfo{Name: "tx_bytes", Doc: "bytes of good frames sent"}},
	{0x40F0, false, framework.CounterInfo{Name: "tx_multicast", Doc: "multicast frames sent"}},
	{0x40F4, false, framework.CounterInfo{Name: "tx_broadcast", Doc: "broadcast frames sent"}},
	{0x40F8, false, framework.CounterInfo{Name: "tx_tso", Doc: "TSO packets sent"}},
	{0x40FC, false, framework.CounterInfo{Name: "tx_tso_failed", Doc: "TSO packets with a bad context", Bad: true}},
	{0x4048 + 4, false, framework.CounterInfo{Name: "tx_xon", Doc: "XON frames sent"}},
	{0x4050 + 4, false, framework.CounterInfo{Name: "tx_xoff", Doc: "XOFF frames sent"}},
	{0x4018, false, framework.CounterInfo{Name: "tx_excess_collisions", Doc: "frames given up after 16 collisions", Bad: true}},
	{0x4020, false, framework.CounterInfo{Name: "tx_late_collisions", Doc: "collisions after the first 64 bytes", Bad: true}},
	{0x4028, false, framework.CounterInfo{Name: "tx_collisions", Doc: "collisions"}},
	{0x4034, false, framework.CounterInfo{Name: "tx_no_carrier", Doc: "frames sent without carrier", Bad: true}},
}

func counterInfos() (infos []framework.CounterInfo) {
	for i := range counters {
		infos = append(infos, counters[i].CounterInfo)
	}
	return infos
}

// addStats reads, and by that clears, the statistics and adds them to totals.
func (d *device) addStats(totals []uint64) {
	for i := range counters {
		c := &counters[i]
		n := uint64(d.read(c.reg))
		if c.wide {
			n |= uint64(d.read(c.reg+4)) << 32
		}
		if totals != nil {
			totals[i] += n
		}
	}
}

// ReadCounters reports what has been counted since Start.
func (d *device) ReadCounters(dst []uint64) error {
	if d.gone() {
		return d.fail(bus.ErrGone)
	}
	d.addStats(d.run.totals)
	copy(dst, d.run.totals)
	return nil
}
