package vmxnet3

import (
	"bytes"
	"encoding/binary"

	"nicd/sim"
)

// piece is a part of a TSO frame that becomes one packet: segments [from, to).
type piece struct {
	from, to int
	len      int
	slots    int // of receiver.slots, in order of the pieces
}

// placeTSO receives a TSO frame as one coalesced packet, or as several if the
// driver's buffers or the segment count hold no more.
func (r *receiver) placeTSO(q *rxQueue, f *sim.Frame, pause bool) int {
	p := &r.packet
	hlen := f.HeaderLen
	if p.w2&rcTagStripped != 0 {
		hlen -= sim.VLANTagLen
	}
	if p.h.Payload == 0 || p.h.Payload != hlen || p.h.Protocol != sim.ProtocolTCP || hlen > len(p.hdr) || f.SegmentSize <= 0 {
		r.counters[q.id].err++ // no TSO frame; no sender makes it
		return 1
	}
	slots, c, total := r.slots[:0], q.cursors(), f.Segments()
	r.pieces = r.pieces[:0]
	from := 0
	for from < total {
		got, next, end, res := r.reservePiece(q, slots, c, f, hlen, from, pause)
		if res == planHopeless {
			r.counters[q.id].outOfBuf += uint64(total - from)
			break // the tail is lost
		}
		if res != planFits && res != planTooLong {
			if q.need > 0 {
				q.need = f.Len // all pieces or none
			}
			return r.refused(q, res, 1)
		}
		slots, c, from = got, end, next
	}
	q.commit(c)
	r.writePieces(q, f, hlen, slots)
	return 1
}

// reservePiece plans for as many segments, from number from on, as can be one
// packet, and notes the piece. It returns the segment after it.
func (r *receiver) reservePiece(q *rxQueue, slots []slot, c [2]cursor, f *sim.Frame, hlen, from int, pause bool) ([]slot, int, [2]cursor, planResult) {
	to := min(f.Segments(), from+rcMaxSegments)
	before := len(slots)
	size := func() int { return hlen + min((to-from)*f.SegmentSize, f.Len-f.HeaderLen-from*f.SegmentSize) }
	got, end, res := r.reserve(q, slots, c, size(), pause)
	fit := (capacity(got[before:]) - hlen) / f.SegmentSize
	if (res == planTooLong || res == planHopeless) && fit > 0 {
		to = from + fit
		got, end, res = r.reserve(q, slots, c, size(), pause)
	}
	r.pieces = append(r.pieces, piece{from, to, size(), len(got) - before})
	if res != planFits && res != planTooLong {
		r.pieces = r.pieces[:len(r.pieces)-1]
	}
	return got, to, end, res
}

// writePieces writes a TSO frame's pieces, each with headers of its own.
func (r *receiver) writePieces(q *rxQueue, f *sim.Frame, hlen int, slots []slot) {
	p := &r.packet
	total := f.Segments()
	ip, tcp := p.hdr[p.h.IP:], p.hdr[p.h.L4:]
	id, seq, flags := binary.BigEndian.Uint16(ip[ipv4ID:]), binary.BigEndian.Uint32(tcp[tcpSeq:]), tcp[tcpFlags]
	p.hdr = p.hdr[:hlen]
	for _, c := range r.pieces {
		p.len, p.segments, p.mss = c.len, c.to-c.from, f.SegmentSize
		p.src = f.AppendParts(append(p.src[:0], p.hdr), f.HeaderLen+c.from*f.SegmentSize, c.len-hlen)
		if !p.h.IPv6 {
			binary.BigEndian.PutUint16(ip[ipv4ID:], id+uint16(c.from))
		}
		binary.BigEndian.PutUint32(tcp[tcpSeq:], seq+uint32(c.from*f.SegmentSize))
		tcp[tcpFlags] = pieceFlags(flags, c, total)
		p.fixLength()
		r.finishLRO()
		r.write(q, slots[:c.slots], capacity(slots[:c.slots]) < c.len)
		slots = slots[c.slots:]
	}
}

// pieceFlags are the TCP flags of a piece (RFC 3168 section 6.1.2 for CWR).
func pieceFlags(flags byte, c piece, total int) byte {
	if c.from > 0 {
		flags &^= sim.TCPCwr
	}
	if c.to < total {
		flags &^= sim.TCPFin | sim.TCPPsh
	}
	return flags
}

// finishLRO completes the header of a packet that was coalesced, or of a TSO
// frame that is one segment only: that one is an ordinary packet.
func (r *receiver) finishLRO() {
	good := r.packet.w3&rcL4Correct != 0
	if good && (r.packet.segments == 1 || r.m.opt.Variations.LROChecksum) {
		r.packet.fillChecksum()
	}
}

// reportsLRO tells whether the packet's first completion is of type 4.
func (r *receiver) reportsLRO() bool {
	p, style := &r.packet, r.m.opt.Variations.LRO
	if r.m.revision < 2 || style == LROLengthOnly || !r.m.lro.Load() {
		return false
	}
	return p.segments > 1 || style == LROSingle && p.w3&rcTCP != 0 && !p.tunnelled() && p.h.Payload < p.h.End
}

// lroWords are words 1 and 3 of a type 4 completion whose flags are in w3.
func (r *receiver) lroWords(w3 uint32) (uint32, uint32) {
	p := &r.packet
	segments, mss := uint32(p.segments), uint32(p.mss)
	switch r.m.opt.Variations.LRO {
	case LRONoMSS:
		mss = 0
	case LRONoCount:
		segments = 0
	}
	if p.segments == 1 {
		mss = uint32(p.h.End - p.h.Payload)
	}
	return segments, w3&^(0x7f<<compTypeShift) | typeRxCompLRO<<compTypeShift | mss&0xffff
}

// gather coalesces the packet with the frames after its first one, as long as
// they are the next segments of the same flow, up to limit bytes, and returns how
// many frames it took. Only what can be cut again into the same segments is
// coalesced: the headers are equal but for lengths, checksums, sequence number,
// an identification that stays or counts up, and FIN and PSH in the last.
func (r *receiver) gather(frames []sim.Frame, limit int) (took int) {
	p, n := &r.packet, &r.next
	took = 1
	if !p.coalesces() {
		return took
	}
	p.mss = p.h.End - p.h.Payload
	id := idUnknown
	for took < len(frames) && p.segments < rcMaxSegments && !p.ended() {
		f := &frames[took]
		tag := r.look(f)
		size := n.h.End - n.h.Payload
		if !n.coalesces() || size > p.mss || p.len+size > limit || !p.precedes(n, &id) {
			break
		}
		p.src = f.AppendParts(p.src, n.h.Payload+tag, size)
		p.tcp()[tcpFlags] |= n.tcp()[tcpFlags]
		p.len += size
		p.segments++
		took++
	}
	return took
}

// look reads f to r.next as the packet before it was read, and returns the length
// of the tag that was stripped.
func (r *receiver) look(f *sim.Frame) (tag int) {
	n := &r.next
	n.read(f)
	if f.Flags&sim.Segment != 0 {
		return 0 // coalesced by itself
	}
	n.checksum(f, r.m.shared.features)
	if n.h.VLAN && r.packet.w2&rcTagStripped != 0 {
		n.strip()
		return sim.VLANTagLen
	}
	return 0
}

// ended tells whether nothing can come after the packet: its last segment was
// short, or said so.
func (p *packet) ended() bool {
	short := (p.len-p.h.Payload)%p.mss != 0
	return short || p.tcp()[tcpFlags]&(sim.TCPFin|sim.TCPPsh) != 0
}

func (p *packet) tcp() []byte { return p.hdr[p.h.L4:p.h.Payload] }

// coalesces tells whether a packet is a plain segment with good checksums. Its
// frame ends with the IP packet.
func (p *packet) coalesces() bool {
	const need = rcTCP | rcL4Correct | rcIPCorrect
	if p.w3&need != need || p.tunnelled() || p.h.Payload >= p.len || p.h.End != p.len || p.h.Payload > len(p.hdr) {
		return false
	}
	return p.tcp()[tcpFlags]&^(sim.TCPAck|sim.TCPPsh|sim.TCPFin) == 0
}

// precedes tells whether n is the segment after p, and no header says anything
// else. id is what is known of how the IPv4 identification goes on.
func (p *packet) precedes(n *packet, id *idMode) bool {
	layout := n.h
	layout.End = p.h.End
	if layout != p.h || n.w2 != p.w2 || n.w3 != p.w3 {
		return false
	}
	a, b, l4 := p.hdr, n.hdr, p.h.L4
	seq := binary.BigEndian.Uint32(a[l4+tcpSeq:]) + uint32(p.len-p.h.Payload)
	return binary.BigEndian.Uint32(b[l4+tcpSeq:]) == seq &&
		bytes.Equal(a[:p.h.IP], b[:p.h.IP]) && p.sameIP(n, id) && p.sameTCP(n)
}

// sameTCP compares ports, acknowledgement, window, urgent pointer and options.
// Flags were looked at before.
func (p *packet) sameTCP(n *packet) bool {
	a, b := p.tcp(), n.tcp()
	return bytes.Equal(a[:tcpSeq], b[:tcpSeq]) && bytes.Equal(a[tcpAck:tcpFlags], b[tcpAck:tcpFlags]) &&
		bytes.Equal(a[tcpWindow:tcpSum], b[tcpWindow:tcpSum]) && bytes.Equal(a[tcpUrgent:], b[tcpUrgent:])
}

// sameIP compares all but length, checksum and identification.
func (p *packet) sameIP(n *packet, id *idMode) bool {
	a, b := p.hdr[p.h.IP:p.h.L4], n.hdr[p.h.IP:p.h.L4]
	if p.h.IPv6 {
		return bytes.Equal(a[:4], b[:4]) && bytes.Equal(a[6:], b[6:])
	}
	return bytes.Equal(a[:2], b[:2]) && bytes.Equal(a[6:10], b[6:10]) && bytes.Equal(a[12:], b[12:]) && p.nextID(n, id)
}

// idMode is how the IPv4 identification goes on from segment to segment.
type idMode int8

const (
	idConstant idMode = iota
	idCounts
	idUnknown
)

// nextID tells whether the identification of n follows.
func (p *packet) nextID(n *packet, id *idMode) bool {
	first := binary.BigEndian.Uint16(p.hdr[p.h.IP+ipv4ID:])
	moved := binary.BigEndian.Uint16(n.hdr[n.h.IP+ipv4ID:]) - first
	if *id != idUnknown {
		return moved == uint16(*id)*uint16(p.segments)
	}
	*id = idMode(min(moved, uint16(idUnknown)))
	return *id != idUnknown
}
