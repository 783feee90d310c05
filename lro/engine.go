package lro

import "math/rand/v2"

// Options configure an Engine. The zero value is ready to use.
type Options struct {
	// MTU is the largest IP packet in bytes that the link brings as one segment; 0 means 1500. A larger packet that is
	// not marked is taken as coalesced by a device that forgot to say so. Too small a value costs speed, never
	// correctness; too large a value removes that defence.
	MTU int
	// MaxSegments is the largest number of packets in one aggregate; 0 means 64, which is also what UDP GSO allows in
	// Linux and what one poll of a receive ring usually brings. The most is 65535.
	MaxSegments int
	// MaxLen is the largest IP packet in bytes that may come out; 0 means as much as the 16-bit length field can say.
	MaxLen int
	// Flows is the number of flows that the engine can tell apart within one batch; it is rounded up to a power of two,
	// and 0 means 1024. If there are more, the oldest ones of a set of eight end early; nothing is lost.
	Flows int
	// PassUnverified lets packets with ChecksumUnknown pass alone, instead of having the engine verify them.
	PassUnverified bool
	// Seed starts the hash over addresses and ports; 0 means random, so that nobody outside can choose flows that
	// collide. The result does not depend on it unless flows are evicted.
	Seed uint64
}

// Engine coalesces the packets of one receive queue. It has one owner at a time: it has no locks, and two goroutines
// must not use it at once. It allocates when it is made, and Batch allocates only if out has too little room.
type Engine struct {
	table          table
	mtu            uint32
	maxLen         uint32
	maxSegments    uint16
	passUnverified bool
	open           uint64      // aggregates that are open now
	out            []Aggregate // of the batch that runs
	longWay        bool        // for tests: never take quick
	stats          Stats
	view           view
}

// New returns an engine. Values out of range are brought into range.
func New(o Options) *Engine {
	e := &Engine{
		maxSegments:    uint16(clamp(o.MaxSegments, 64, 65535)),
		maxLen:         uint32(clamp(o.MaxLen, maxIPv6Len, maxIPv6Len)),
		passUnverified: o.PassUnverified,
	}
	e.SetMTU(o.MTU)
	if o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	e.table.init(clamp(o.Flows, 1024, 1<<16), o.Seed)
	return e
}

// clamp returns v, or def if v is not positive, or most if v is larger.
func clamp(v, def, most int) int {
	if v <= 0 {
		return def
	}
	return min(v, most)
}

// SetMTU changes Options.MTU between two batches.
func (e *Engine) SetMTU(mtu int) { e.mtu = uint32(clamp(mtu, 1500, maxIPv6Len)) }

// Stats returns a copy of the counters. It must not be called while Batch runs.
func (e *Engine) Stats() Stats { return e.stats }

// Batch coalesces the packets of in and appends the outputs to out, in the arrival order of their first packets. Every
// packet is part of exactly one output, and nothing is held when Batch returns.
//
// It writes the result fields of in, and the headers of the first frame of each merged aggregate. The indexes in the
// outputs refer to in.
func (e *Engine) Batch(in []Packet, out []Aggregate) []Aggregate {
	first := len(out)
	out = e.run(in, 0, out)
	e.closeAll(ReasonBatchEnd)
	for i := first; i < len(out); i++ {
		if out[i].Head != out[i].Tail {
			e.finish(in, &out[i])
		}
	}
	e.stats.Batches++
	e.stats.Packets += uint64(len(in))
	e.stats.Outputs += uint64(len(out) - first)
	e.stats.Merged += uint64(len(in) - (len(out) - first))
	return out
}

// run takes the packets from index i on and appends the outputs to out.
func (e *Engine) run(in []Packet, i int, out []Aggregate) []Aggregate {
	e.out = out
	for {
		if !e.longWay {
			i = e.quick(in, i)
		}
		if i >= len(in) {
			break
		}
		e.one(in, i)
		i++
	}
	out, e.out = e.out, nil
	return out
}

// one takes packet i, whatever it is.
func (e *Engine) one(in []Packet, i int) {
	p, v := &in[i], &e.view
	r := v.parse(p, e)
	p.Next = -1
	p.PayloadOffset = v.headerLen
	p.PayloadLen = v.payload
	if r != reasonNone {
		e.pass(p, int32(i), r)
		return
	}
	e.take(in, int32(i))
}

// pass lets packet i go alone, after ending what it must not overtake.
func (e *Engine) pass(p *Packet, i int32, r Reason) {
	v := &e.view
	switch v.scope {
	case scopeFlow:
		if x, _ := e.table.find(v, e.table.hash(v)); x != nil {
			e.close(x, r)
		}
	case scopePair:
		e.closePair(r)
	case scopeAll:
		e.closeAll(r)
	}
	e.alone(p, i, r)
}

// alone appends packet i as an output of its own.
func (e *Engine) alone(p *Packet, i int32, r Reason) {
	e.stats.Passed[r]++
	e.out = append(e.out, e.aggregate(p, i))
	a := &e.out[len(e.out)-1]
	switch r {
	case ReasonHardware, ReasonOversize:
		a.Flags |= Bypassed
		a.Segments = max(p.Segments, 1)
		a.SegmentSize = p.SegmentSize
	case ReasonBadChecksum:
		a.Checksum = ChecksumBad
	}
}

// aggregate returns an output with packet i, as it was parsed, as its only member.
func (e *Engine) aggregate(p *Packet, i int32) Aggregate {
	v := &e.view
	a := Aggregate{Head: i, Tail: i, Len: p.Len, Segments: 1, Checksum: p.Checksum, Flags: v.flags}
	if v.flags&TCP == 0 {
		return a
	}
	a.L3Offset, a.L4Offset, a.HeaderLen = v.l3, v.l4, v.headerLen
	if v.payload <= 0xffff {
		a.SegmentSize = uint16(v.payload)
	}
	return a
}
