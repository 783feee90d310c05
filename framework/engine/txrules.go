package engine

import "nicd/framework"

// ringShare is the part of a ring that one packet may use: a packet that needs
// more has to be copied or cut, or it could wait for ever for a ring that is
// never empty enough (iflib's MAX_SINGLE_PACKET_FRACTION).
const ringShare = 12

// linkHeader is what a frame may have in front of the MTU's bytes: Ethernet and
// two VLAN tags.
const linkHeader = 14 + 8

// shortestFrame is an Ethernet header and nothing in it.
const shortestFrame = 14

// longestHeaders is the most that a packet to be cut may have: Ethernet, two tags,
// and IP and TCP with all their options are 142. shortestFragment is the least that
// a device must be able to send in one descriptor, so that they fit.
const (
	longestHeaders   = 192
	shortestFragment = 256
)

// tcpChecksumOffset is where TCP's checksum is in its header, udpChecksumOffset
// where UDP's is.
const (
	tcpChecksumOffset = 16
	udpChecksumOffset = 6
)

// txRules is what a transmit queue's packets must keep to. It is immutable; a
// change of features or quirks makes another.
type txRules struct {
	features    framework.Features
	maxLen      uint32 // of a packet that is not to be segmented
	maxTSOLen   uint32
	maxFrags    int
	maxTSOFrags int
	maxFragLen  uint32
	pageShift   uint8 // a fragment ends before the next multiple of 1 << pageShift
	minFrame    uint32
	contiguous  bool
	bellDelay   int64 // nanoseconds
	requestEach int   // descriptors after which a completion is asked for

	least, most uint32 // length of an ordinary packet
}

func newTxRules(info *framework.Info, p *Plan, quirks *framework.QuirkSet) *txRules {
	share := max(p.TxDescriptors/ringShare, 1)
	r := &txRules{
		features:    p.Features,
		maxLen:      uint32(p.MTU + linkHeader),
		maxTSOLen:   orMax(info.MaxTSOLen, framework.MaxPacketLen),
		maxFrags:    min(int(orMax(info.MaxTxFragments, framework.MaxFragments)), share, framework.MaxFragments),
		maxFragLen:  orMax(info.MaxTxFragmentLen, framework.MaxPacketLen),
		pageShift:   onePiece,
		minFrame:    uint32(framework.MinFrameQuirk.Get(quirks)),
		contiguous:  framework.ContiguousHeadersQuirk.Get(quirks),
		bellDelay:   int64(framework.BellDelayQuirk.Get(quirks)) * 1000,
		requestEach: max(p.TxDescriptors/8, 1),
	}
	r.least, r.most = max(shortestFrame, r.minFrame), min(r.maxLen, r.maxFragLen)
	if framework.TxWithinPageQuirk.Get(quirks) {
		r.pageShift = pageShift
		r.most = 0 // each is looked at: it may lie in two pages
	}
	r.maxTSOFrags = r.maxFrags
	if info.MaxTSOFragments > 0 {
		r.maxTSOFrags = min(info.MaxTSOFragments, share, framework.MaxFragments)
	}
	return r
}

func orMax(n, most int) uint32 {
	if n <= 0 {
		return uint32(most)
	}
	return uint32(n)
}

// work is what has to be done to a packet before the device can send it.
type work uint16

const (
	cut     work = 1 << iota // segment in software
	tag                      // insert the VLAN tag
	sum                      // compute the checksum
	gather                   // headers into the first fragment
	pad                      // to the minimum length
	split                    // fragments longer than a descriptor carries, or in two pages
	flatten                  // too many fragments
	seed                     // checksum field without length, for a device that cuts
	unmark                   // one segment only: no segmentation

	nothing work = 0
)

// ordinary tells of a packet of one fragment that nothing has to be done to it. It
// is what most packets are, so it comes first and is short; false says nothing.
func (r *txRules) ordinary(b *framework.Batch, p *framework.Packet, buffers *framework.Buffers) bool {
	if p.Frags != 1 || p.Flags&offloads != 0 || p.First >= uint32(len(b.Frags)) {
		return false
	}
	f := b.Frags[p.First]
	return f.Len == p.Len && f.Len >= r.least && f.Len <= r.most && buffers.Valid(f)
}

// offloads are the flags that may make work.
const offloads = framework.Segment | framework.ChecksumPartial | framework.VLANTag

// shape is how a packet lies in memory.
type shape struct {
	frags   int
	crossed int    // page boundaries inside of fragments
	longest uint32 // fragment
	first   uint32 // length of the first fragment
	front   uint32 // how much of that stays together, with a tag in front of it
}

// check says why a packet makes no sense, or what has to be done to it.
func (r *txRules) check(b *framework.Batch, p *framework.Packet, buffers *framework.Buffers) (work, framework.DropReason) {
	end := uint64(p.First) + uint64(p.Frags)
	if p.Frags == 0 || p.Frags > framework.MaxFragments || end > uint64(len(b.Frags)) {
		return 0, framework.DropTxMalformed
	}
	total, s := uint64(0), shape{frags: int(p.Frags)}
	for i := p.First; i < uint32(end); i++ {
		f := b.Frags[i]
		if f.Len == 0 || !buffers.Valid(f) {
			return 0, framework.DropTxMalformed
		}
		total += uint64(f.Len)
		s.longest = max(s.longest, f.Len)
		s.crossed += r.crossed(buffers, f)
	}
	if total != uint64(p.Len) || total < shortestFrame || total > framework.MaxPacketLen {
		return 0, framework.DropTxMalformed
	}
	if p.Flags&offloads == 0 &&
		s.crossed == 0 && s.frags <= r.maxFrags && s.longest <= r.maxFragLen && p.Len >= r.minFrame && p.Len <= r.maxLen {
		return nothing, framework.NoDrop
	}
	s.first, s.front = b.Frags[p.First].Len, r.front(buffers, b.Frags[p.First])
	return r.checkMarked(p, s)
}

// checkMarked is check for a packet that is not the ordinary one.
func (r *txRules) checkMarked(p *framework.Packet, s shape) (work, framework.DropReason) {
	var w work
	frags, longest := s.frags+s.crossed, s.longest
	limit := r.maxFrags
	if p.Flags&framework.ChecksumPartial != 0 {
		if uint32(p.ChecksumStart)+uint32(p.ChecksumOffset)+2 > p.Len || p.ChecksumStart < 14 {
			return 0, framework.DropTxMalformed
		}
	}
	if p.Flags&framework.Segment != 0 {
		var reason framework.DropReason
		if w, reason = r.checkSegment(p); reason != framework.NoDrop {
			return 0, reason
		}
		if w&seed != 0 {
			limit = r.maxTSOFrags
		}
	}
	if w&(cut|seed) == 0 && p.Len > r.maxLen {
		return 0, framework.DropTxTooLong
	}
	if p.Flags&framework.VLANTag != 0 && !r.features.Has(framework.VLANInsert) {
		w |= tag
		frags++ // the tag and the addresses may need a fragment of their own
		longest = max(longest, s.first+tagLen)
	}
	if p.Flags&framework.ChecksumPartial != 0 && w&(cut|seed) == 0 && !r.features.Has(framework.TxChecksum) {
		w |= sum
	}
	if w&cut != 0 {
		return w, framework.NoDrop
	}
	// Drivers edit the headers of a packet that the device cuts: see
	// framework.ClearForSegment.
	if (r.contiguous || w&seed != 0) && w&sum == 0 && p.Flags&framework.ChecksumPartial != 0 && s.front < headerLen(p) {
		w |= gather
		frags++
	}
	if p.Len < r.minFrame {
		w |= pad
	}
	if s.crossed > 0 {
		w |= split
	}
	if longest > r.maxFragLen {
		w |= split
		frags += int(p.Len / r.maxFragLen)
	}
	if frags > limit {
		if w&seed != 0 {
			return w&^(seed|gather|split) | cut, framework.NoDrop
		}
		w |= flatten
	}
	return w, framework.NoDrop
}

// checkSegment says how a packet with Segment is cut.
func (r *txRules) checkSegment(p *framework.Packet) (work, framework.DropReason) {
	feature := segmentedBy(p)
	if feature == 0 || p.SegmentSize == 0 || p.HeaderLen > longestHeaders || uint32(p.HeaderLen) > p.Len ||
		p.Flags&framework.ChecksumPartial == 0 || !headersFit(p, feature) {
		return 0, framework.DropTxMalformed
	}
	if uint32(p.HeaderLen)+uint32(p.SegmentSize) > r.maxLen {
		return 0, framework.DropTxTooLong // the segments would not fit either
	}
	if p.Len-uint32(p.HeaderLen) <= uint32(p.SegmentSize) {
		return unmark, framework.NoDrop
	}
	if !r.features.Has(feature) || p.Len > r.maxTSOLen {
		return cut, framework.NoDrop
	}
	return seed, framework.NoDrop
}

// segmentedBy is the feature by which a device cuts p, 0 if nobody can cut it: it
// is neither TCP nor UDP over IP.
func segmentedBy(p *framework.Packet) framework.Features {
	switch {
	case p.Flags&(framework.IPv4|framework.IPv6) == 0:
		return 0
	case p.ChecksumOffset == udpChecksumOffset && p.Flags&framework.TCP == 0:
		return framework.USO
	case p.ChecksumOffset != tcpChecksumOffset || p.Flags&framework.UDP != 0:
		return 0
	case p.Flags&framework.IPv6 != 0:
		return framework.TSO6
	}
	return framework.TSO4
}

// Lengths of headers without options.
const (
	ipLen  = 20
	tcpLen = 20
	udpLen = 8 // always
)

// headersFit tells whether the headers of a packet to be cut end where those of its
// protocol can.
func headersFit(p *framework.Packet, feature framework.Features) bool {
	start, end := uint32(p.ChecksumStart), uint32(p.HeaderLen)
	if start < shortestFrame+ipLen {
		return false
	}
	if feature == framework.USO {
		return end == start+udpLen
	}
	return end >= start+tcpLen
}

// headerLen is how many bytes of headers a packet with an offload has, its checksum
// field included.
func headerLen(p *framework.Packet) uint32 {
	field := uint32(p.ChecksumStart) + uint32(p.ChecksumOffset) + 2
	if p.HeaderLen != 0 {
		return min(max(uint32(p.HeaderLen), field), p.Len)
	}
	n := uint32(p.ChecksumStart) + tcpLen
	if p.ChecksumOffset == udpChecksumOffset {
		n = uint32(p.ChecksumStart) + udpLen
	}
	return min(max(n, field), p.Len)
}
