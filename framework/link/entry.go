package link

import (
	"structs"

	"nicd/framework"
)

// Fragments in a packet's first entry and in each that follows.
const (
	inlineFragments = 3
	moreInEntry     = 5

	// maxEntries is what a packet of MaxFragments takes.
	maxEntries = 1 + (framework.MaxFragments-inlineFragments+moreInEntry-1)/moreInEntry

	// minPacketSlots keeps the longest packet from filling more than half a
	// ring.
	minPacketSlots = 2 * maxEntries
)

// entry is a packet in a ring, in host byte order. Entries of one packet follow
// each other and are published together.
type entry struct {
	_              structs.HostLayout
	length         uint32
	flags          uint32
	hash           uint32
	fragments      uint16
	vlan           uint16
	segments       uint16
	segmentSize    uint16
	headerLen      uint16
	checksumStart  uint16
	checksumOffset uint16
	err            uint8
	_              uint8
	inline         [inlineFragments]fragment
}

type fragment struct {
	_      structs.HostLayout
	buffer uint32
	offset uint32
	length uint32
}

// moreFragments is an entry that continues a packet.
type moreFragments struct {
	_         structs.HostLayout
	fragments [moreInEntry]fragment
	_         uint32
}

// entriesFor is how many entries a packet of n fragments takes.
func entriesFor(n int) uint32 {
	if n <= inlineFragments {
		return 1
	}
	return 1 + uint32(n-inlineFragments+moreInEntry-1)/moreInEntry
}

// at is fragment i of the packet that starts at e[from&mask].
func at(e []entry, from, mask uint32, i int) *fragment {
	if i < inlineFragments {
		return &e[from&mask].inline[i]
	}
	i -= inlineFragments
	return &e[(from+1+uint32(i/moreInEntry))&mask].more().fragments[i%moreInEntry]
}

// encode writes packet p with its fragments to the slots from index from on.
func encode(e []entry, from, mask uint32, p *framework.Packet, frags []framework.Fragment) {
	first := &e[from&mask]
	first.length = p.Len
	first.flags = uint32(p.Flags)
	first.hash = p.Hash
	first.fragments = uint16(len(frags))
	first.vlan = p.VLAN
	first.segments = p.Segments
	first.segmentSize = p.SegmentSize
	first.headerLen = p.HeaderLen
	first.checksumStart = p.ChecksumStart
	first.checksumOffset = p.ChecksumOffset
	first.err = uint8(p.Error)
	for i := range frags {
		f := at(e, from, mask, i)
		f.buffer, f.offset, f.length = uint32(frags[i].Buffer), frags[i].Offset, frags[i].Len
	}
}

// packet stores an entry's metadata to p; First is the caller's. Field by field:
// a composite literal is built aside and copied in wide words, which stall on
// the narrow stores before them (a third of a packet's cost).
func (e *entry) packet(p *framework.Packet) {
	p.Len = e.length
	p.Flags = framework.PacketFlags(e.flags)
	p.Hash = e.hash
	p.Frags = e.fragments
	p.VLAN = e.vlan
	p.Segments = e.segments
	p.SegmentSize = e.segmentSize
	p.HeaderLen = e.headerLen
	p.ChecksumStart = e.checksumStart
	p.ChecksumOffset = e.checksumOffset
	p.Error = framework.DropReason(e.err)
}

// decode appends the packet that e starts with to b. The entries are private
// copies; published is how many the producer has published from e[0] on. It
// returns how many entries the packet took: zero if b, or e, has no room for
// the whole of it.
func decode(e []entry, published uint32, b *framework.Batch, bufs *framework.Buffers) (uint32, Rule) {
	n := int(e[0].fragments)
	if n == 0 || n > framework.MaxFragments {
		return 0, RuleFragmentCount
	}
	need := entriesFor(n)
	if need > published {
		return 0, RuleTruncated
	}
	if int(need) > len(e) || !b.Room(n) {
		return 0, ruleKept
	}
	first := len(b.Frags)
	if rule := fragmentsOf(e, b.Frags[first:first+n], e[0].length, bufs); rule != ruleKept {
		return 0, rule
	}
	last := len(b.Packets)
	b.Packets = b.Packets[:last+1]
	p := &b.Packets[last]
	e[0].packet(p)
	p.First = uint32(first)
	b.Frags = b.Frags[:first+n]
	return need, ruleKept
}

// fragmentsOf fills dst and checks that each fragment lies in its buffer and
// that together they are as long as the packet says.
func fragmentsOf(e []entry, dst []framework.Fragment, length uint32, bufs *framework.Buffers) Rule {
	var sum uint32 // at most MaxFragments strides: no overflow
	for i := range dst {
		from := at(e, 0, ^uint32(0), i)
		f := &dst[i]
		f.Buffer, f.Offset, f.Len = framework.Buffer(from.buffer), from.offset, from.length
		if !bufs.Valid(*f) || f.Len == 0 {
			return RuleFragmentBounds
		}
		sum += f.Len
	}
	if sum != length || length > framework.MaxPacketLen {
		return RuleLength
	}
	return ruleKept
}
