package forward

import "sync/atomic"

// Stats are a bridge's totals.
type Stats struct {
	Forwarded uint64 // copies that an egress interface took
	Flooded   uint64 // packets that went to all other ports
	Filtered  uint64 // packets that no port was to get
	TooLong   uint64 // dropped: larger than the egress MTU as they were sent
	Full      uint64 // dropped: the egress queue was full
	Addresses int    // in the table now
	Moved     uint64 // addresses that were seen at another port than before
	Evicted   uint64 // addresses that gave way to newer ones
}

type counters struct {
	forwarded, flooded, filtered, tooLong, full atomic.Uint64
}

// Stats reads the totals.
func (b *Bridge) Stats() Stats {
	c := &b.counters
	return Stats{
		Forwarded: c.forwarded.Load(), Flooded: c.flooded.Load(), Filtered: c.filtered.Load(),
		TooLong: c.tooLong.Load(), Full: c.full.Load(),
		Addresses: b.table.size(b.second()), Moved: b.table.moved.Load(), Evicted: b.table.evicted.Load(),
	}
}
