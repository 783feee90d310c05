package sim

import "encoding/binary"

// MaxHeaderLen is the longest chain of headers, Ethernet to TCP, that a TSO
// frame may have: 18 of Ethernet, 60 of IPv4 or some IPv6 extensions, 60 of TCP.
const MaxHeaderLen = 256

// cutBatch is how many segments Cut makes at a time.
const cutBatch = 16

// Segmenter cuts TSO frames into the frames that they stand for, and fills in
// checksums. The segments' payload stays where it is; only headers are written,
// to the segmenter's own memory. The zero value is ready for use.
//
// A segment has the frame's headers with these differences (RFC 9293, RFC 791,
// RFC 8200): the IP length is its own; the IPv4 identification counts up by one
// (RFC 6864 wants them unique only if fragmentation is allowed, and then this
// does it); the sequence number moves on; FIN and PSH are set in the last segment
// only, CWR in the first only (RFC 3168 section 6.1.2); checksums fit.
type Segmenter struct {
	frames  [cutBatch]Frame
	headers [cutBatch][MaxHeaderLen]byte
	parts   [cutBatch][][]byte
	first   [MaxHeaderLen]byte // the frame's headers
	parsed  Headers
}

// Cut makes segments of f, from number from on, as many as fit a batch. A frame
// without Segment is a single segment. With fill the layer-4 checksums are
// filled in, else the segments are Partial if f is. The result is valid until
// the next call and as long as f's bytes.
//
// A frame whose headers are not what its fields say comes back as it is, in one
// piece; so does one that needs neither cutting nor filling in.
func (s *Segmenter) Cut(f *Frame, from int, fill bool) []Frame {
	switch {
	case f.Flags&Segment != 0 && !s.parse(f):
		return s.whole(f, Segment|Partial)
	case f.Flags&Segment != 0:
		return s.cut(f, from, fill)
	case f.Flags&Partial != 0 && fill:
		return s.fillIn(f)
	}
	return s.whole(f, 0)
}

func (s *Segmenter) cut(f *Frame, from int, fill bool) []Frame {
	n, total := 0, f.Segments()
	for ; n < cutBatch && from+n < total; n++ {
		s.segment(n, f, from+n, from+n == total-1, fill)
	}
	return s.frames[:n]
}

// Count is how many segments Cut makes of f.
func (s *Segmenter) Count(f *Frame) int {
	if f.Flags&Segment == 0 || !s.parse(f) {
		return 1
	}
	return f.Segments()
}

// whole is f as it is, but for some flags.
func (s *Segmenter) whole(f *Frame, without FrameFlags) []Frame {
	s.frames[0] = *f
	s.frames[0].Flags &^= without
	return s.frames[:1]
}

// parse reads the headers of a TSO frame and tells whether it can be cut.
func (s *Segmenter) parse(f *Frame) bool {
	if f.HeaderLen > MaxHeaderLen || f.HeaderLen > f.Len || f.SegmentSize <= 0 {
		return false
	}
	b := s.first[:f.CopyTo(s.first[:f.HeaderLen], 0)]
	// The length in an IPv4 header may be 0 or of one segment; what is walked
	// here is the frame as it lies in memory.
	h := &s.parsed
	fixLength(b, f.Len)
	return ParseHeaders(h, b, f.Len) && h.Protocol == ProtocolTCP && h.Payload != 0 && h.Payload == f.HeaderLen
}

// fixLength writes the IP length that makes a packet end with the frame.
func fixLength(b []byte, length int) {
	if len(b) < EthernetHeaderLen {
		return
	}
	at, kind := EthernetHeaderLen, binary.BigEndian.Uint16(b[12:])
	if kind == EtherTypeVLAN && len(b) >= at+VLANTagLen {
		at, kind = at+VLANTagLen, binary.BigEndian.Uint16(b[16:])
	}
	switch {
	case kind == EtherTypeIPv4 && len(b) >= at+4:
		binary.BigEndian.PutUint16(b[at+2:], uint16(length-at))
	case kind == EtherTypeIPv6 && len(b) >= at+6:
		binary.BigEndian.PutUint16(b[at+4:], uint16(length-at-ipv6HeaderLen))
	}
}

// segment makes segment i in slot n.
func (s *Segmenter) segment(n int, f *Frame, i int, last, fill bool) {
	from := f.HeaderLen + i*f.SegmentSize
	size := min(f.SegmentSize, f.Len-from)
	hdr := s.headers[n][:f.HeaderLen]
	copy(hdr, s.first[:f.HeaderLen])
	h := &s.parsed
	fixLength(hdr, f.HeaderLen+size)
	if !h.IPv6 {
		id := binary.BigEndian.Uint16(hdr[h.IP+4:])
		binary.BigEndian.PutUint16(hdr[h.IP+4:], id+uint16(i))
		h.SetHeaderChecksum(hdr)
	}
	tcp := hdr[h.L4:]
	binary.BigEndian.PutUint32(tcp[4:], binary.BigEndian.Uint32(tcp[4:])+uint32(i*f.SegmentSize))
	if !last {
		tcp[13] &^= TCPFin | TCPPsh
	}
	if i > 0 {
		tcp[13] &^= TCPCwr
	}
	s.place(n, f, hdr, from, size)
	s.sumSegment(n, f, tcp, size, fill)
}

// place makes slot n a frame of hdr and size bytes of f from offset from on.
func (s *Segmenter) place(n int, f *Frame, hdr []byte, from, size int) {
	parts := f.AppendParts(append(s.parts[n][:0], hdr), from, size)
	s.parts[n] = parts
	s.frames[n] = Frame{Parts: parts, Len: len(hdr) + size}
}

// sumSegment completes the TCP checksum of slot n. The seed lacks the length.
func (s *Segmenter) sumSegment(n int, f *Frame, tcp []byte, size int, fill bool) {
	out, h := &s.frames[n], &s.parsed
	seed := binary.BigEndian.Uint16(tcp[tcpChecksumOffset:])
	good := same(seed, h.Pseudo(s.first[:], 0))
	seed = fold(uint64(seed) + uint64(len(tcp)+size))
	binary.BigEndian.PutUint16(tcp[tcpChecksumOffset:], seed)
	if !fill {
		out.Flags = Partial
		out.ChecksumStart, out.ChecksumOffset = h.L4, tcpChecksumOffset
		return
	}
	s.fill(n, h.L4, tcpChecksumOffset, good)
}

// fill sums slot n from start on and writes the checksum to its header part.
func (s *Segmenter) fill(n, start, offset int, good bool) {
	out := &s.frames[n]
	c := ^sumParts(0, out.Parts, start, out.Len-start)
	if c == 0 && offset == udpChecksumOffset {
		c = 0xffff // zero would mean that there is none (RFC 768)
	}
	binary.BigEndian.PutUint16(out.Parts[0][start+offset:], c)
	if good {
		out.Flags |= Good
	}
}

// fillIn completes the checksum of a frame that needs no cutting.
func (s *Segmenter) fillIn(f *Frame) []Frame {
	at := f.ChecksumStart + f.ChecksumOffset
	if f.ChecksumStart < 0 || f.ChecksumOffset < 0 || at+2 > min(f.Len, MaxHeaderLen) {
		return s.whole(f, Partial)
	}
	hdr := s.headers[0][:f.CopyTo(s.headers[0][:], 0)]
	good := ParseHeaders(&s.parsed, hdr, f.Len) && s.parsed.ChecksumGood(f, hdr)
	s.place(0, f, hdr, len(hdr), f.Len-len(hdr))
	s.fill(0, f.ChecksumStart, f.ChecksumOffset, good)
	return s.frames[:1]
}
