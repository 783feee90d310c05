package forward

import (
	"sync/atomic"

	"nicd/framework"
)

// Stats are a bridge's totals.
type Stats struct {
	Forwarded  uint64 // copies that an egress interface took
	Flooded    uint64 // packets that went to all other ports
	Filtered   uint64 // packets that no port was to get
	Unverified uint64 // dropped: coalesced, and nobody verified what they were made of
	TooLong    uint64 // dropped: larger than the egress MTU as they were sent
	Full       uint64 // dropped: the egress queue was full
	Addresses  int    // in the table now
	Moved      uint64 // addresses that were seen at another port than before
	Evicted    uint64 // addresses that gave way to newer ones
}

type counters struct {
	forwarded, flooded, filtered, unverified, tooLong, full atomic.Uint64
}

// Stats reads the totals.
func (b *Bridge) Stats() Stats {
	c := &b.counters
	return Stats{
		Forwarded: c.forwarded.Load(), Flooded: c.flooded.Load(), Filtered: c.filtered.Load(),
		Unverified: c.unverified.Load(), TooLong: c.tooLong.Load(), Full: c.full.Load(),
		Addresses: b.table.size(b.second()), Moved: b.table.moved.Load(), Evicted: b.table.evicted.Load(),
	}
}

// Counters implements framework.CountingPort: those of the whole bridge.
func (p *Port) Counters() []framework.PortCounter {
	s := p.bridge.Stats()
	return []framework.PortCounter{
		{Name: "bridge_forwarded", Unit: "packets", Value: s.Forwarded, Doc: "Copies that an egress interface of the bridge took."},
		{Name: "bridge_flooded", Unit: "packets", Value: s.Flooded, Doc: "Packets that went to all other ports."},
		{Name: "bridge_filtered", Unit: "packets", Value: s.Filtered, Doc: "Packets that no port was to get."},
		{Name: "bridge_unverified", Unit: "packets", Value: s.Unverified, Doc: "Dropped: coalesced packets whose segments nobody verified.", Bad: true},
		{Name: "bridge_too_long", Unit: "packets", Value: s.TooLong, Doc: "Dropped: larger than the egress MTU as they were sent."},
		{Name: "bridge_full", Unit: "packets", Value: s.Full, Doc: "Dropped: the egress queue was full."},
		{Name: "bridge_addresses", Unit: "level", Value: uint64(s.Addresses), Doc: "Addresses whose port is known now."},
		{Name: "bridge_moved", Unit: "times", Value: s.Moved, Doc: "Addresses that were seen at another port than before."},
		{Name: "bridge_evicted", Unit: "times", Value: s.Evicted, Doc: "Addresses that gave way to newer ones."},
	}
}
