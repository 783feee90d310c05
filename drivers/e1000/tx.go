package e1000

import (
	"nicd/bus"
	"nicd/framework"
	"nicd/framework/ring"
)

// txDesc is a transmit descriptor, one of two kinds that this driver uses.
//
//	word  context                           data
//	0     IP: start, checksum, end          address
//	1     TCP/UDP: start, checksum, end     address
//	2     payload length, type, command     length, type, command
//	3     status, header length, MSS        status, options, VLAN tag
type txDesc struct {
	addr          uint64
	command, more uint32
}

// Bits of txDesc.command; 19:0 are the length.
const (
	txData     = 1 << 20 // type: data; context is 0
	txEOP      = 1 << 24
	txFCS      = 1 << 25 // insert the frame check sequence
	txSegment  = 1 << 26
	txReport   = 1 << 27 // RS: say when it is done
	txExtended = 1 << 29 // not a legacy descriptor
	txVLAN     = 1 << 30

	// In a context the lower two mean other things.
	txTCP  = 1 << 24
	txIPv4 = 1 << 25
)

// Bits of txDesc.more.
const (
	txDone      = 1 << 0
	txSumIP     = 1 << 8 // data: insert the IPv4 checksum
	txSumL4     = 1 << 9 // data: insert the TCP or UDP checksum
	txTagShift  = 16     // data
	txHeadShift = 8      // context
	txMSSShift  = 16     // context
)

var txOwner = ring.Owner{Offset: 12, Bit: txDone}

// sentinelLen is what the last descriptor of a packet carries where the device
// would otherwise report the packet too early.
const sentinelLen = 4

// spare is how many descriptors a packet may take besides those for its bytes: a
// context and a sentinel.
const spare = 2

// txQueue is a transmit queue.
type txQueue struct {
	ring    *ring.Done[txDesc]
	flight  *ring.Flight
	buffers *framework.Buffers
	bar     bus.Region
	tail    uint32 // the tail register

	longest     uint32 // bytes in one descriptor
	burst       uint32 // the same of a TSO packet, in multiples of the MSS; 0: no limit
	sentinel    bool   // TSO packets need one
	contextEach bool   // the device does not remember contexts
	afterTSO    bool   // the packet before was a TSO packet
	context     txDesc // the last checksum context
}

// Put writes descriptors. The device sees none of them before Bell.
func (q *txQueue) Put(b *framework.Batch, from int) int {
	for i := from; i < len(b.Packets); i++ {
		p, frags := &b.Packets[i], b.Fragments(i)
		longest := q.longestOf(p)
		pieces := uint32(0)
		for _, f := range frags {
			pieces += (f.Len + longest - 1) / longest
		}
		if q.ring.Space() < int(pieces)+spare {
			return i - from
		}
		q.put(p, frags, longest, q.needsSentinel(p, pieces))
	}
	return len(b.Packets) - from
}

// longestOf is how many bytes of p one descriptor may carry.
func (q *txQueue) longestOf(p *framework.Packet) uint32 {
	if p.Flags&framework.Segment == 0 || q.burst == 0 {
		return q.longest
	}
	return min(q.longest, q.burst*uint32(p.SegmentSize))
}

// needsSentinel: TSO packets, and a packet of one descriptor right after one.
func (q *txQueue) needsSentinel(p *framework.Packet, pieces uint32) bool {
	tso := p.Flags&framework.Segment != 0
	needs := q.sentinel && (tso || q.afterTSO && pieces == 1)
	q.afterTSO = tso
	return needs
}

func (q *txQueue) put(p *framework.Packet, frags []framework.Fragment, longest uint32, sentinel bool) {
	before := q.ring.Outstanding()
	command, more := q.offload(p, frags)
	report := p.Flags&framework.Completion != 0
	left, last := p.Len, uint32(0)
	for _, f := range frags {
		addr := q.buffers.FragmentAddr(f)
		for rest := f.Len; rest > 0; {
			n := min(rest, longest)
			if sentinel && n == left && n > 2*sentinelLen {
				n -= sentinelLen
			}
			rest, left = rest-n, left-n
			if left == 0 {
				command |= txEOP
				if report {
					command |= txReport
				}
			}
			last = q.ring.Tail()
			*q.ring.Next() = txDesc{addr, command | n, more}
			q.ring.Add()
			addr += uint64(n)
		}
	}
	q.flight.Add(last, q.ring.Outstanding()-before, report)
}

// offload writes the packet's context, if it needs one, and returns what all of
// its data descriptors say.
func (q *txQueue) offload(p *framework.Packet, frags []framework.Fragment) (command, more uint32) {
	command = txData | txExtended | txFCS
	if p.Flags&framework.VLANTag != 0 {
		command |= txVLAN
		more = uint32(p.VLAN) << txTagShift
	}
	switch {
	case p.Flags&framework.Segment != 0:
		command |= txSegment
		more |= txSumL4 | q.segmentContext(p, q.buffers.Bytes(frags[0]))
	case p.Flags&framework.ChecksumPartial != 0:
		more |= txSumL4
		q.checksumContext(p)
	}
	return command, more
}

// checksums are words 0 and 1 of a context: where the checksums of p go. The
// TCP or UDP checksum covers all up to the end.
func checksums(p *framework.Packet, network uint32) uint64 {
	start := uint32(p.ChecksumStart)
	ip := network | (network+ipSumAt)<<8 | (start-1)<<16
	l4 := start | (start+uint32(p.ChecksumOffset))<<8
	return uint64(l4)<<32 | uint64(ip)
}

// ipSumAt is where the checksum is in an IPv4 header.
const ipSumAt = 10

// etherLen is where the network header is that a checksum context names: nothing
// comes of it, because the IPv4 checksum is in the packet already.
const etherLen = 14

func (q *txQueue) checksumContext(p *framework.Packet) {
	d := txDesc{addr: checksums(p, etherLen), command: txExtended}
	if d == q.context && !q.contextEach {
		return
	}
	q.context = d
	*q.ring.Next() = d
	q.ring.Add()
}

// segmentContext writes the context of a TSO packet and returns the options of
// its data descriptors. It is never the same twice: it holds the length.
func (q *txQueue) segmentContext(p *framework.Packet, headers []byte) (options uint32) {
	network, _ := framework.NetworkHeader(headers)
	framework.ClearForSegment(headers, true)
	header := uint32(p.HeaderLen)
	command := uint32(txExtended | txSegment | txTCP)
	if headers[network]>>4 == 4 {
		command |= txIPv4
		options = txSumIP
	}
	*q.ring.Next() = txDesc{
		addr:    checksums(p, uint32(network)),
		command: command | (p.Len - header),
		more:    header<<txHeadShift | uint32(p.SegmentSize)<<txMSSShift,
	}
	q.ring.Add()
	return options
}

// Bell moves the tail.
func (q *txQueue) Bell() { q.bar.Write32(q.tail, q.ring.Tail()) }

// Completed looks at the last descriptors of the packets that were to be
// reported, oldest first.
func (q *txQueue) Completed(max int) int {
	for q.flight.Ready() < max {
		last, ok := q.flight.Oldest()
		if !ok || !q.ring.IsDone(last) {
			break
		}
		q.ring.Release(q.flight.Retire())
	}
	return q.flight.Completed(max)
}

// Pending tells whether there is something for Completed.
func (q *txQueue) Pending() bool {
	if q.flight.Ready() > 0 {
		return true
	}
	last, ok := q.flight.Oldest()
	return ok && q.ring.IsDone(last)
}
