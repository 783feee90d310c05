package gso

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// superFrame is a frame to be segmented, with all the fields that matter.
type superFrame struct {
	ipv6, udp bool
	tags      []uint32
	ipOptions []byte
	id        uint16
	seq       uint32
	flags     byte
	options   []byte
	payload   []byte
}

// build lays the frame out. Lengths and checksums hold garbage: Reset must not depend on them.
func (s superFrame) build() []byte {
	f := []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2}
	for _, t := range s.tags {
		f = binary.BigEndian.AppendUint32(f, t)
	}
	protocol := byte(6)
	if s.udp {
		protocol = 17
	}
	if s.ipv6 {
		f = append(f, 0x86, 0xdd, 0x62, 0x34, 0x56, 0x78, 0xaa, 0xaa, protocol, 61)
		for i := range 32 {
			f = append(f, byte(i+3))
		}
	} else {
		f = append(f, 8, 0, 0x45+byte(len(s.ipOptions)/4), 0x12, 0xaa, 0xaa)
		f = binary.BigEndian.AppendUint16(f, s.id)
		f = append(f, 0x40, 0, 61, protocol, 0xaa, 0xaa, 10, 1, 2, 3, 10, 4, 5, 6)
		f = append(f, s.ipOptions...)
	}
	if s.udp {
		f = append(f, 1, 2, 3, 4, 0xaa, 0xaa, 0xaa, 0xaa)
	} else {
		f = append(f, 1, 2, 3, 4)
		f = binary.BigEndian.AppendUint32(f, s.seq)
		f = append(f, 5, 6, 7, 8, byte(5+len(s.options)/4)<<4, s.flags, 9, 10, 0xaa, 0xaa, 11, 12)
		f = append(f, s.options...)
	}
	return append(f, s.payload...)
}

func drawFrame(t *rapid.T) superFrame {
	s := superFrame{
		ipv6: rapid.Bool().Draw(t, "ipv6"), udp: rapid.Bool().Draw(t, "udp"),
		tags:  rapid.SampledFrom([][]uint32{nil, {0x81000001}, {0x88a80001, 0x81000002}}).Draw(t, "tags"),
		id:    rapid.Uint16().Draw(t, "id"),
		seq:   rapid.Uint32().Draw(t, "seq"),
		flags: rapid.Byte().Draw(t, "flags"),
	}
	if rapid.Bool().Draw(t, "ipOptions") && !s.ipv6 {
		s.ipOptions = []byte{1, 1, 1, 0}
	}
	s.options = make([]byte, 4*rapid.IntRange(0, 10).Draw(t, "options"))
	s.payload = rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "payload")
	return s
}

// fragments cuts a frame behind its headers at drawn places.
func fragments(t *rapid.T, f []byte, header int) [][]byte {
	var out [][]byte
	for at, end := 0, header; ; {
		end += rapid.IntRange(0, 60).Draw(t, "fragment")
		end = min(end, len(f))
		out = append(out, f[at:end])
		if at = end; at == len(f) {
			return out
		}
	}
}

// TestSegments compares each segment with what the description of the frame says it must be, built from scratch.
func TestSegments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawFrame(t)
		f := s.build()
		p, err := Parse(f)
		if err != nil {
			t.Fatal(err)
		}
		size := rapid.IntRange(1, 150).Draw(t, "size")
		p.SegmentSize = uint16(size)
		p.FixedID = rapid.Bool().Draw(t, "fixedID")
		p.CopyCWR = rapid.Bool().Draw(t, "copyCWR")
		p.Checksum = ChecksumMode(rapid.IntRange(0, 1).Draw(t, "checksum"))
		var refs, copies Segmenter
		parts := fragments(t, f, int(p.HeaderLen))
		if err := refs.Reset(parts, p); err != nil {
			t.Fatal(err)
		}
		if err := copies.Reset(parts, p); err != nil {
			t.Fatal(err)
		}
		count := max(1, (len(s.payload)+size-1)/size)
		if refs.Segments() != count {
			t.Fatalf("%d segments, want %d", refs.Segments(), count)
		}
		header := make([]byte, p.HeaderLen)
		for i := range count {
			want := s.segment(i, count, size, p)
			list, ok := refs.Next(header, nil)
			if !ok {
				t.Fatalf("ends before segment %d", i)
			}
			got := bytes.Clone(header)
			for _, r := range list {
				got = append(got, parts[r.Fragment][r.Offset:][:r.Len]...)
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("segment %d of %d\ngot  %x\nwant %x", i, count, got, want)
			}
			buffer := make([]byte, int(p.HeaderLen)+size)
			n, ok := copies.NextFrame(buffer)
			if !ok || !bytes.Equal(buffer[:n], want) {
				t.Fatalf("copy of segment %d of %d\ngot  %x\nwant %x", i, count, buffer[:n], want)
			}
		}
		if _, ok := refs.Next(header, nil); ok {
			t.Fatal("too many segments")
		}
		if _, ok := copies.NextFrame(nil); ok {
			t.Fatal("too many copies")
		}
	})
}

// segment builds segment i from the description.
func (s superFrame) segment(i, count, size int, p Params) []byte {
	from := i * size
	x := s
	x.payload = s.payload[from:min(from+size, len(s.payload))]
	x.seq += uint32(from)
	if !p.FixedID {
		x.id += uint16(i)
	}
	if i < count-1 {
		x.flags &= 0xff - 9
	}
	if i > 0 && !p.CopyCWR {
		x.flags &= 0x7f
	}
	f := x.build()
	ip, l4 := f[p.L3Offset:], f[p.L4Offset:]
	at, protocol := 16, uint32(6)
	if s.udp {
		at, protocol = 6, 17
		binary.BigEndian.PutUint16(l4[4:], uint16(len(l4)))
	}
	sum := protocol + uint32(len(l4))
	if s.ipv6 {
		binary.BigEndian.PutUint16(ip[4:], uint16(len(l4)))
		sum = sum16(sum, ip[8:40])
	} else {
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		binary.BigEndian.PutUint16(ip[10:], 0)
		binary.BigEndian.PutUint16(ip[10:], ^uint16(sum16(0, ip[:p.L4Offset-p.L3Offset])))
		sum = sum16(sum, ip[12:20])
	}
	binary.BigEndian.PutUint16(l4[at:], 0)
	if p.Checksum == ChecksumPartial {
		binary.BigEndian.PutUint16(l4[at:], uint16(sum))
		return f
	}
	c := ^uint16(sum16(sum, l4))
	if c == 0 && s.udp {
		c = 0xffff
	}
	binary.BigEndian.PutUint16(l4[at:], c)
	return f
}

// TestPartialThenFill: completing a partial checksum gives the full one.
func TestPartialThenFill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawFrame(t)
		f := s.build()
		p, err := Parse(f)
		if err != nil {
			t.Fatal(err)
		}
		p.SegmentSize = 400
		want := s.segment(0, 1, 400, p)
		got := s.segment(0, 1, 400, p)
		if err := PartialChecksum(got, p, len(got)); err != nil {
			t.Fatal(err)
		}
		at := 16
		if s.udp {
			at = 6
		}
		if err := FillChecksum(fragments(t, got, int(p.HeaderLen)), int(p.L4Offset), at); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("got  %x\nwant %x", got, want)
		}
	})
}

func TestZeroUDPChecksum(t *testing.T) {
	s := superFrame{udp: true, payload: make([]byte, 2)}
	f := s.build()
	p, _ := Parse(f)
	p.SegmentSize = 2
	first := s.segment(0, 1, 2, p)
	copy(s.payload, first[p.L4Offset+6:]) // now the sum is 0xffff
	f = s.build()
	var g Segmenter
	if err := g.Reset([][]byte{f}, p); err != nil {
		t.Fatal(err)
	}
	g.NextFrame(f)
	if got := f[p.L4Offset+6:][:2]; got[0] != 0xff || got[1] != 0xff {
		t.Errorf("checksum %x", got)
	}
	p.Checksum = ChecksumNone
	if err := g.Reset([][]byte{f}, p); err != nil {
		t.Fatal(err)
	}
	g.NextFrame(f)
	if got := f[p.L4Offset+6:][:2]; got[0] != 0 || got[1] != 0 {
		t.Errorf("no checksum: %x", got)
	}
}

func TestResetErrors(t *testing.T) {
	good := tcpFrame(100, 0x10)
	fits, _ := Parse(good)
	fits.SegmentSize = 1000
	edit := func(f func(b []byte)) []byte {
		b := bytes.Clone(good)
		f(b)
		return b
	}
	with := func(f func(p *Params)) Params {
		p := fits
		f(&p)
		return p
	}
	for _, c := range []struct {
		name  string
		frame []byte
		p     Params
		want  error
	}{
		{"good", good, fits, nil},
		{"header not there", good[:60], fits, ErrOffsets},
		{"fragment", edit(func(b []byte) { b[20] = 0x20 }), fits, ErrHeader},
		{"later fragment", edit(func(b []byte) { b[21] = 1 }), fits, ErrHeader},
		{"other protocol", edit(func(b []byte) { b[23] = 1 }), fits, ErrHeader},
		{"version", edit(func(b []byte) { b[14] = 0x55 }), fits, ErrHeader},
		{"IHL too small", edit(func(b []byte) { b[14] = 0x44 }), fits, ErrHeader},
		{"IHL too large", edit(func(b []byte) { b[14] = 0x4f }), fits, ErrHeader},
		{"data offset too small", edit(func(b []byte) { b[46] = 0x40 }), fits, ErrHeader},
		{"data offset too large", edit(func(b []byte) { b[46] = 0xf0 }), fits, ErrHeader},
		{"other IP header length", edit(func(b []byte) { b[14], b[50] = 0x46, 0x50 }), fits, ErrOffsets},
		{"wrong L4", good, with(func(p *Params) { p.L4Offset-- }), ErrOffsets},
		{"L4 behind the headers", good, with(func(p *Params) { p.L4Offset = 100 }), ErrOffsets},
		{"wrong header length", good, with(func(p *Params) { p.HeaderLen += 4 }), ErrOffsets},
		{"no size", good, with(func(p *Params) { p.SegmentSize = 0 }), ErrSegmentSize},
		{"size just right", good, with(func(p *Params) { p.SegmentSize = 65535 - 52 }), nil},
		{"size too large", good, with(func(p *Params) { p.SegmentSize = 65535 - 51 }), ErrSegmentSize},
		{"no checksum in TCP", good, with(func(p *Params) { p.Checksum = ChecksumNone }), ErrChecksum},
		{"unknown checksum mode", good, with(func(p *Params) { p.Checksum = 9 }), ErrChecksum},
	} {
		var s Segmenter
		if err := s.Reset([][]byte{c.frame}, c.p); err != c.want {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		} else if err != nil && s.Segments() != 0 {
			t.Errorf("%s: %d segments", c.name, s.Segments())
		}
	}
	var s Segmenter
	if err := s.Reset(nil, fits); err != ErrOffsets {
		t.Errorf("nothing: %v", err)
	}
}

func TestParseShort(t *testing.T) {
	for _, s := range []superFrame{{}, {ipv6: true}, {udp: true}, {ipv6: true, udp: true}, {tags: []uint32{0x81000001}}} {
		f := s.build()
		if _, err := Parse(f); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
		for n := range f {
			if _, err := Parse(f[:n]); err != ErrHeader {
				t.Errorf("%+v: %d bytes: %v", s, n, err)
			}
		}
	}
}

func TestParseTags(t *testing.T) {
	for n := range 12 {
		s := superFrame{tags: slices.Repeat([]uint32{0x81000001}, n)}
		p, err := Parse(s.build())
		if n <= 8 && (err != nil || int(p.L3Offset) != 14+4*n) || n > 8 && err != ErrHeader {
			t.Errorf("%d tags: %+v, %v", n, p, err)
		}
	}
	if _, err := Parse([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 8, 6, 0}); err != ErrHeader {
		t.Errorf("ARP: %v", err)
	}
}

func TestNothingAllocates(t *testing.T) {
	f := tcpFrame(64000, 0x10)
	p, _ := Parse(f)
	p.SegmentSize = 1448
	var s Segmenter
	parts := [][]byte{f[:100], f[100:40000], f[40000:]}
	header := make([]byte, p.HeaderLen)
	refs := make([]Ref, 0, 3)
	if n := testing.AllocsPerRun(10, func() {
		s.Reset(parts, p)
		for ok := true; ok; {
			refs, ok = s.Next(header, refs[:0])
		}
		FillChecksum(parts, int(p.L4Offset), 16)
		PartialChecksum(f, p, len(f))
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzReset runs any bytes and offsets: no panic, and whatever is accepted keeps all of the payload.
func FuzzReset(f *testing.F) {
	for _, s := range []superFrame{{}, {ipv6: true, udp: true}, {tags: []uint32{0x81000001}, options: make([]byte, 12)}} {
		s.payload = make([]byte, 50)
		b := s.build()
		p, _ := Parse(b)
		f.Add(b, uint8(70), p.L3Offset, p.L4Offset, p.HeaderLen, uint16(9), uint8(0))
	}
	f.Fuzz(func(t *testing.T, b []byte, cut uint8, l3, l4, header, size uint16, mode uint8) {
		at := min(int(cut), len(b))
		var s Segmenter
		p := Params{L3Offset: l3, L4Offset: l4, HeaderLen: header, SegmentSize: size, Checksum: ChecksumMode(mode)}
		if s.Reset([][]byte{b[:at], b[at:]}, p) != nil {
			return
		}
		total := 0
		buffer := make([]byte, int(header)+int(size))
		for n, ok := s.NextFrame(buffer); ok; n, ok = s.NextFrame(buffer) {
			total += n - int(header)
		}
		if total != len(b)-int(header) {
			t.Errorf("%d bytes of payload, want %d", total, len(b)-int(header))
		}
	})
}
