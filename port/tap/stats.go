package tap

import (
	"sync/atomic"

	"nicd/framework"
)

// Stats are a port's totals.
type Stats struct {
	UpPackets, UpBytes     uint64 // written to the kernel
	UpCoalesced            uint64 // of UpPackets: as one of several segments
	UpEstimated            uint64 // of UpCoalesced: with a segment size that the device did not tell
	UpOpaque               uint64 // coalesced packets whose headers made no sense: written as they were
	UpUnverified           uint64 // coalesced packets that nobody verified: written as they were, for the kernel to look at
	UpDown                 uint64 // dropped: the Linux interface is not up
	UpRefused              uint64 // dropped: the kernel did not take them
	UpGone                 uint64 // dropped: the Linux interface is gone
	DownPackets, DownBytes uint64 // read from the kernel
	DownSegment            uint64 // of DownPackets: to be segmented
	DownNonsense           uint64 // dropped: with a header that makes no sense
	Starved                uint64 // times that reading waited for buffers
}

type counters struct {
	upPackets, upBytes, upCoalesced, estimated, opaque atomic.Uint64
	unverified                                         atomic.Uint64
	notUp, refused, gone                               atomic.Uint64
	downPackets, downBytes, segment, nonsense          atomic.Uint64
	starved                                            atomic.Uint64
}

// down counts a batch that was read.
func (c *counters) down(packets []framework.Packet) {
	bytes, segment := uint64(0), uint64(0)
	for i := range packets {
		bytes += uint64(packets[i].Len)
		if packets[i].Flags&framework.Segment != 0 {
			segment++
		}
	}
	c.downPackets.Add(uint64(len(packets)))
	c.downBytes.Add(bytes)
	c.segment.Add(segment)
}

// Stats reads the totals. Any goroutine may call it.
func (p *Port) Stats() Stats {
	c := &p.counters
	return Stats{
		UpPackets: c.upPackets.Load(), UpBytes: c.upBytes.Load(), UpCoalesced: c.upCoalesced.Load(),
		UpEstimated: c.estimated.Load(), UpOpaque: c.opaque.Load(), UpUnverified: c.unverified.Load(),
		UpDown: c.notUp.Load(), UpRefused: c.refused.Load(), UpGone: c.gone.Load(),
		DownPackets: c.downPackets.Load(), DownBytes: c.downBytes.Load(), DownSegment: c.segment.Load(),
		DownNonsense: c.nonsense.Load(), Starved: c.starved.Load(),
	}
}

// Counters implements framework.CountingPort.
func (p *Port) Counters() []framework.PortCounter {
	s := p.Stats()
	return []framework.PortCounter{
		{Name: "port_up_packets", Unit: "packets", Value: s.UpPackets, Doc: "Packets written to the kernel."},
		{Name: "port_up_bytes", Unit: "bytes", Value: s.UpBytes, Doc: "Bytes of port_up_packets."},
		{Name: "port_up_coalesced", Unit: "packets", Value: s.UpCoalesced, Doc: "Of port_up_packets: those that the kernel got as one of several segments."},
		{Name: "port_up_estimated", Unit: "packets", Value: s.UpEstimated, Doc: "Of port_up_coalesced: those whose segment size the device did not tell."},
		{Name: "port_up_opaque", Unit: "packets", Value: s.UpOpaque, Doc: "Of port_up_packets: coalesced ones whose headers made no sense.", Bad: true},
		{Name: "port_up_unverified", Unit: "packets", Value: s.UpUnverified, Doc: "Of port_up_packets: coalesced ones whose segments nobody verified.", Bad: true},
		{Name: "port_up_not_up", Unit: "packets", Value: s.UpDown, Doc: "Dropped: the Linux interface was not set up."},
		{Name: "port_up_refused", Unit: "packets", Value: s.UpRefused, Doc: "Dropped: the kernel did not take them.", Bad: true},
		{Name: "port_up_gone", Unit: "packets", Value: s.UpGone, Doc: "Dropped: the Linux interface is gone.", Bad: true},
		{Name: "port_down_packets", Unit: "packets", Value: s.DownPackets, Doc: "Packets read from the kernel."},
		{Name: "port_down_bytes", Unit: "bytes", Value: s.DownBytes, Doc: "Bytes of port_down_packets."},
		{Name: "port_down_segment", Unit: "packets", Value: s.DownSegment, Doc: "Of port_down_packets: those to be segmented."},
		{Name: "port_down_nonsense", Unit: "packets", Value: s.DownNonsense, Doc: "Dropped: what the kernel said of them made no sense.", Bad: true},
		{Name: "port_down_starved", Unit: "times", Value: s.Starved, Doc: "Times that reading from the kernel waited for transmit buffers."},
	}
}
