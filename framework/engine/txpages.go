package engine

import "nicd/framework"

// This file knows where in a fragment's memory pages end, for devices that can't
// send from two of them (framework.TxWithinPageQuirk). Boundaries are those of
// device addresses: memory is mapped from the start of a page on.

// pageShift is that of the IOMMUs' smallest page, 4 KiB. A kernel's pages are no
// smaller, and so begin at such boundaries too.
const (
	pageShift = 12
	pageSize  = 1 << pageShift
)

// onePiece is a pageShift for which there are no boundaries.
const onePiece = 63

// crossed is how many page boundaries are inside of a fragment, which is not empty.
func (r *txRules) crossed(b *framework.Buffers, f framework.Fragment) int {
	first := b.FragmentAddr(f)
	return int((first+uint64(f.Len)-1)>>r.pageShift - first>>r.pageShift)
}

// inPage is how much of a fragment lies in the page in which it begins.
func (r *txRules) inPage(b *framework.Buffers, f framework.Fragment) uint32 {
	first := b.FragmentAddr(f)
	return uint32(min(uint64(f.Len), (first>>r.pageShift+1)<<r.pageShift-first))
}

// front is piece for a packet's first fragment with a VLAN tag in front of it,
// without the tag: 0 if that would be in another page.
func (r *txRules) front(b *framework.Buffers, f framework.Fragment) uint32 {
	first := b.FragmentAddr(f)
	if (first-min(first, tagLen))>>r.pageShift != first>>r.pageShift {
		return 0
	}
	return min(r.inPage(b, f), r.maxFragLen-tagLen)
}

// piece is how much of a fragment, from its start on, one descriptor may carry.
func (r *txRules) piece(b *framework.Buffers, f framework.Fragment) uint32 {
	return min(r.inPage(b, f), r.maxFragLen)
}

// descriptors is how many descriptors a fragment takes.
func (r *txRules) descriptors(b *framework.Buffers, f framework.Fragment) int {
	n := 0
	for f.Len > 0 {
		c := r.piece(b, f)
		f.Offset += c
		f.Len -= c
		n++
	}
	return n
}

// whole returns a fragment of n bytes in an own buffer that lies in one page, with
// a tag in front of it; n is no more than longestFront.
func (q *txQueue) whole(n uint32, r *txRules) framework.Fragment {
	f := framework.Fragment{Buffer: q.own.get(), Offset: headroom - tagLen, Len: n + tagLen}
	if in := r.inPage(q.buffers, f); in < f.Len {
		f.Offset += in
	}
	f.Offset += tagLen
	f.Len = n
	return f
}

// longestFront is the longest fragment that whole can make.
func (q *txQueue) longestFront(r *txRules) uint32 {
	if r.pageShift == onePiece {
		return q.chunk(r)
	}
	// At worst a page ends just before its last byte.
	return min(q.chunk(r), (q.buffers.Stride-headroom)/2-tagLen, pageSize-tagLen)
}

// mostDescriptors is how many descriptors n bytes in own buffers take at most.
func (q *txQueue) mostDescriptors(n uint32, r *txRules) int {
	pieces := q.pieces(n, r)
	if r.pageShift == onePiece {
		return pieces
	}
	return pieces * (1 + int((min(n, q.chunk(r))+pageSize-2)/pageSize))
}
