package e1000

import (
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

// txQueue is a transmit queue.
type txQueue struct {
	ring.Transmit[txDesc]
	buffers *framework.Buffers
	cutter  framework.Cutter

	burst       uint32 // bytes in one descriptor of a TSO packet, in multiples of the MSS; 0: no limit
	contextEach bool   // the device does not remember contexts
	context     txDesc // the last checksum context
}

// Put writes descriptors, besides those for a packet's bytes one for its context.
// The device sees none of them before Bell.
func (q *txQueue) Put(b *framework.Batch, from int) int {
	for i := from; i < len(b.Packets); i++ {
		p, frags := &b.Packets[i], b.Fragments(i)
		cut := q.cutter.Cut(p, frags, q.longestOf(p))
		if q.Space() < cut.Pieces()+1 {
			return i - from
		}
		q.put(p, frags, &cut)
	}
	return len(b.Packets) - from
}

// longestOf is how many bytes of p one descriptor may carry.
func (q *txQueue) longestOf(p *framework.Packet) uint32 {
	if p.Flags&framework.Segment == 0 || q.burst == 0 {
		return q.cutter.Longest
	}
	return min(q.cutter.Longest, q.burst*uint32(p.SegmentSize))
}

func (q *txQueue) put(p *framework.Packet, frags []framework.Fragment, cut *framework.Cut) {
	command, more := q.offload(p, frags)
	report := p.Flags&framework.Completion != 0
	for cut.Next() {
		if cut.Last {
			command |= txEOP
			if report {
				command |= txReport
			}
		}
		q.Add(txDesc{q.buffers.FragmentAddr(cut.Piece), command | cut.Piece.Len, more})
	}
	q.cutter.Sent(p)
	q.End(report)
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
	q.Add(d)
}

// segmentContext writes the context of a TSO packet and returns the options of
// its data descriptors. It is never the same twice: it holds the length.
func (q *txQueue) segmentContext(p *framework.Packet, headers []byte) (options uint32) {
	network, _ := framework.NetworkHeader(headers)
	network = min(network, int(p.ChecksumStart)) // whoever made the headers
	framework.ClearForSegment(headers, true)
	header := uint32(p.HeaderLen)
	command := uint32(txExtended | txSegment | txTCP)
	if p.Flags&framework.IPv4 != 0 {
		command |= txIPv4
		options = txSumIP
	}
	q.Add(txDesc{
		addr:    checksums(p, uint32(network)),
		command: command | (p.Len - header),
		more:    header<<txHeadShift | uint32(p.SegmentSize)<<txMSSShift,
	})
	return options
}
