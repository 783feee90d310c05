package gso

import (
	"encoding/binary"

	"nicd/internal/checksum"
)

// Ref names a piece of the input: Len bytes from Offset in fragment Fragment of the slice given to Reset.
type Ref struct {
	Fragment int
	Offset   int
	Len      int
}

// Segmenter cuts one frame after another into segments. The zero value is ready for Reset; one Segmenter has one owner
// and is meant to be reused. It keeps references to the fragments from Reset until the next one.
type Segmenter struct {
	fragments [][]byte
	params    Params
	protocol  uint8
	ipv6      bool
	index     int // of the next segment
	count     int
	left      int // bytes of payload that are not yet handed out
	fragment  int // where they begin
	offset    int
}

// Reset starts with a new frame, which is the concatenation of the fragments. The first fragment holds at least the
// headers. Fragments may be empty. They are read, not written, and must not change until the last segment was taken.
//
// A frame that is not larger than one segment gives one segment; so does one without payload. An error leaves the
// Segmenter without segments.
func (s *Segmenter) Reset(fragments [][]byte, p Params) error {
	*s = Segmenter{}
	if len(fragments) == 0 || len(fragments[0]) < int(p.HeaderLen) || p.L4Offset > p.HeaderLen {
		return ErrOffsets
	}
	head := fragments[0][:p.HeaderLen]
	l4, protocol, err := network(head, int(p.L3Offset))
	if err != nil {
		return err
	}
	end, err := transport(head, l4, protocol)
	if err != nil {
		return err
	}
	if l4 != int(p.L4Offset) || end != int(p.HeaderLen) {
		return ErrOffsets
	}
	ipv6 := head[p.L3Offset]>>4 == 6
	if p.SegmentSize == 0 || end-int(p.L3Offset)+int(p.SegmentSize) > maxPacket(ipv6) {
		return ErrSegmentSize
	}
	if p.Checksum > ChecksumNone || p.Checksum == ChecksumNone && (protocol != protocolUDP || ipv6) {
		return ErrChecksum
	}
	total := -end
	for _, f := range fragments {
		total += len(f)
	}
	count := (total + int(p.SegmentSize) - 1) / int(p.SegmentSize)
	*s = Segmenter{
		fragments: fragments, params: p, protocol: protocol, ipv6: ipv6,
		count: max(count, 1), left: total, offset: end,
	}
	return nil
}

// maxPacket returns the size of the largest IP packet, header included.
func maxPacket(ipv6 bool) int {
	if ipv6 {
		return ipv6HeaderLen + 65535 // the length field does not count the header (RFC 8200 section 3)
	}
	return 65535
}

// Segments returns the number of segments of the frame, those that were taken included.
func (s *Segmenter) Segments() int { return s.count }

// Next writes the headers of the next segment into header, which must have room for Params.HeaderLen bytes, and appends
// the pieces of its payload to refs. It returns the extended refs, and false if there are no more segments. It
// allocates only if refs has too little room: a segment touches at most as many fragments as the frame has.
func (s *Segmenter) Next(header []byte, refs []Ref) ([]Ref, bool) {
	if s.index >= s.count {
		return refs, false
	}
	first := len(refs)
	size := min(int(s.params.SegmentSize), s.left)
	refs = s.cut(refs, size)
	header = header[:s.params.HeaderLen]
	copy(header, s.fragments[0])
	s.writeIP(header, size)
	s.writeTransport(header, size)
	s.writeChecksum(header, size, refs[first:])
	s.index++
	return refs, true
}

// NextFrame writes the next segment, headers and payload, into frame, which must have room for Params.HeaderLen plus
// Params.SegmentSize bytes. It returns the length of the segment, and false if there are no more.
func (s *Segmenter) NextFrame(frame []byte) (int, bool) {
	if s.index >= s.count {
		return 0, false
	}
	end := int(s.params.HeaderLen)
	size := min(int(s.params.SegmentSize), s.left)
	payload := frame[end : end+size]
	s.copyOut(payload)
	header := frame[:end]
	copy(header, s.fragments[0])
	s.writeIP(header, size)
	s.writeTransport(header, size)
	var sum uint16
	if s.params.Checksum == ChecksumFull {
		sum = checksum.Sum(payload)
	}
	s.finishChecksum(header, size, sum)
	s.index++
	return end + size, true
}

// cut takes size bytes of payload from the input.
func (s *Segmenter) cut(refs []Ref, size int) []Ref {
	s.left -= size
	for size > 0 {
		n := min(size, len(s.fragments[s.fragment])-s.offset)
		if n > 0 {
			refs = append(refs, Ref{s.fragment, s.offset, n})
		}
		s.advance(n)
		size -= n
	}
	return refs
}

// copyOut takes as many bytes of payload as dst has from the input and copies them.
func (s *Segmenter) copyOut(dst []byte) {
	s.left -= len(dst)
	for len(dst) > 0 {
		n := copy(dst, s.fragments[s.fragment][s.offset:])
		s.advance(n)
		dst = dst[n:]
	}
}

// advance moves the beginning of the remaining payload by n bytes within a fragment, or to the next fragment.
func (s *Segmenter) advance(n int) {
	s.offset += n
	if s.offset == len(s.fragments[s.fragment]) {
		s.fragment++
		s.offset = 0
	}
}

// writeIP sets the length, and for IPv4 the identification and the checksum.
func (s *Segmenter) writeIP(header []byte, size int) {
	ip := header[s.params.L3Offset:]
	length := len(ip) + size
	if s.ipv6 {
		binary.BigEndian.PutUint16(ip[4:], uint16(length-ipv6HeaderLen))
		return
	}
	ip = ip[:s.params.L4Offset-s.params.L3Offset]
	binary.BigEndian.PutUint16(ip[2:], uint16(length))
	if !s.params.FixedID {
		binary.BigEndian.PutUint16(ip[4:], binary.BigEndian.Uint16(ip[4:])+uint16(s.index))
	}
	binary.BigEndian.PutUint16(ip[10:], 0)
	binary.BigEndian.PutUint16(ip[10:], ^checksum.Sum(ip))
}

// writeTransport sets the fields of the TCP or UDP header, except for the checksum.
func (s *Segmenter) writeTransport(header []byte, size int) {
	t := header[s.params.L4Offset:]
	if s.protocol == protocolUDP {
		binary.BigEndian.PutUint16(t[4:], uint16(8+size))
		return
	}
	offset := uint32(s.index) * uint32(s.params.SegmentSize)
	binary.BigEndian.PutUint32(t[4:], binary.BigEndian.Uint32(t[4:])+offset)
	const fin, psh, cwr = 0x01, 0x08, 0x80
	if s.index != s.count-1 {
		t[13] &^= fin | psh
	}
	if s.index != 0 && !s.params.CopyCWR {
		t[13] &^= cwr
	}
}

// writeChecksum sets the checksum of a segment whose payload is named by refs.
func (s *Segmenter) writeChecksum(header []byte, size int, refs []Ref) {
	var sum uint16
	if s.params.Checksum == ChecksumFull {
		done := 0
		for _, r := range refs {
			sum = checksum.AddAt(sum, checksum.Sum(s.fragments[r.Fragment][r.Offset:r.Offset+r.Len]), done)
			done += r.Len
		}
	}
	s.finishChecksum(header, size, sum)
}

// finishChecksum sets the checksum field; payload is the sum of the segment's payload.
func (s *Segmenter) finishChecksum(header []byte, size int, payload uint16) {
	t := header[s.params.L4Offset:]
	at := 16
	if s.protocol == protocolUDP {
		at = 6
	}
	field := t[at : at+2]
	binary.BigEndian.PutUint16(field, 0)
	if s.params.Checksum == ChecksumNone {
		return
	}
	pseudo := s.pseudo(header, len(t)+size)
	if s.params.Checksum == ChecksumPartial {
		binary.BigEndian.PutUint16(field, pseudo)
		return
	}
	// The headers of TCP and UDP are a whole number of words, so the payload begins at an even offset.
	sum := ^checksum.Add(checksum.Add(pseudo, checksum.Sum(t)), payload)
	if sum == 0 && s.protocol == protocolUDP {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(field, sum)
}

// pseudo returns the sum of the pseudo-header; length counts from the TCP or UDP header to the end.
func (s *Segmenter) pseudo(header []byte, length int) uint16 {
	ip := header[s.params.L3Offset:]
	if s.ipv6 {
		return checksum.Pseudo6(ip[8:40], s.protocol, length)
	}
	return checksum.Pseudo4(ip[12:20], s.protocol, length)
}
