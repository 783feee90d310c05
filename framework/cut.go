package framework

// Cutter cuts packets that are to be sent into pieces of what one transmit
// descriptor may carry, by the quirks max-descriptor-bytes and tx-sentinel. It
// belongs to a transmit queue's owner.
//
//	cut := cutter.Cut(&packet, fragments, cutter.Longest)
//	if cut.Pieces() > space {
//		return
//	}
//	for cut.Next() {
//		// a descriptor for cut.Piece, which is the packet's end if cut.Last
//	}
//	cutter.Sent(&packet)
type Cutter struct {
	// Longest is how many bytes one descriptor may carry.
	Longest  uint32
	sentinel bool
	afterTSO bool // the packet sent last was a TSO packet
}

// sentinelLen is what the last descriptor of a packet carries where the device
// would otherwise report the packet too early.
const sentinelLen = 4

// NewCutter is a cutter for descriptors that can hold so many bytes.
func NewCutter(quirks *QuirkSet, longest int) Cutter {
	if limit := MaxDescriptorBytesQuirk.Get(quirks); limit > 0 {
		longest = min(longest, limit)
	}
	return Cutter{Longest: uint32(longest), sentinel: TxSentinelQuirk.Get(quirks)}
}

// Cut cuts a packet into pieces of at most longest bytes. It changes nothing.
func (c *Cutter) Cut(p *Packet, frags []Fragment, longest uint32) Cut {
	cut := Cut{frags: frags, longest: longest, left: p.Len}
	for _, f := range frags {
		cut.pieces += (f.Len + longest - 1) / longest
	}
	// A TSO packet needs a sentinel, and a packet of one descriptor right after one.
	if c.sentinel && (p.Flags&Segment != 0 || c.afterTSO && cut.pieces == 1) {
		cut.sentinel = sentinelLen
	}
	return cut
}

// Sent says that a packet was put.
func (c *Cutter) Sent(p *Packet) { c.afterTSO = p.Flags&Segment != 0 }

// Cut is a packet on its way into descriptors.
type Cut struct {
	Piece Fragment // the piece that Next went to; it lies in one fragment
	Last  bool     // Piece is the packet's last

	frags                           []Fragment
	at                              uint32 // bytes of frags[0] that are done
	left, longest, sentinel, pieces uint32
}

// Pieces is how many pieces there are, at most.
func (c *Cut) Pieces() int {
	if c.sentinel != 0 {
		return int(c.pieces) + 1
	}
	return int(c.pieces)
}

// Next goes to the next piece, if there is one. Empty fragments have none.
func (c *Cut) Next() bool {
	for len(c.frags) > 0 && c.at == c.frags[0].Len {
		c.frags, c.at = c.frags[1:], 0
	}
	if len(c.frags) == 0 {
		return false
	}
	f := c.frags[0]
	n := min(f.Len-c.at, c.longest)
	if n == c.left && n > 2*c.sentinel {
		n -= c.sentinel
	}
	c.Piece = Fragment{Buffer: f.Buffer, Offset: f.Offset + c.at, Len: n}
	c.at += n
	c.left -= n
	c.Last = c.left == 0
	return true
}
