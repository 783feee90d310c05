package gso

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// tcpFrame returns an Ethernet, IPv4 and TCP header with a 12-byte option, and n bytes of payload.
func tcpFrame(n int, flags byte) []byte {
	f := []byte{
		2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0,
		0x45, 0x28, 0, 0, 0xff, 0xff, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
		0x13, 0x89, 0, 80, 0xff, 0xff, 0xff, 0xf0, 0, 0, 0, 9, 0x80, flags, 1, 0, 0, 0, 0, 0,
		1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2,
	}
	for i := range n {
		f = append(f, byte(i*3+1))
	}
	return f
}

func sum16(sum uint32, b []byte) uint32 {
	for i := range b {
		w := uint32(b[i])
		if i%2 == 0 {
			w <<= 8
		}
		sum += w
		sum = sum&0xffff + sum>>16
	}
	return sum
}

func TestSegmentsOfTCP(t *testing.T) {
	frame := tcpFrame(2500, 0x80|0x10|0x08|0x01)
	p, err := Parse(frame)
	if err != nil {
		t.Fatal(err)
	}
	p.SegmentSize = 1000
	var s Segmenter
	if err := s.Reset([][]byte{frame}, p); err != nil {
		t.Fatal(err)
	}
	if s.Segments() != 3 {
		t.Fatalf("%d segments", s.Segments())
	}
	buf := make([]byte, 2000)
	var payload []byte
	for i := 0; ; i++ {
		n, ok := s.NextFrame(buf)
		if !ok {
			break
		}
		f := buf[:n]
		ip, tcp := f[14:34], f[34:]
		if got := binary.BigEndian.Uint16(ip[2:]); int(got) != n-14 {
			t.Errorf("segment %d: IP length %d of %d", i, got, n-14)
		}
		if got := binary.BigEndian.Uint16(ip[4:]); got != uint16(0xffff+i) {
			t.Errorf("segment %d: identification %#x", i, got)
		}
		if sum16(0, ip) != 0xffff {
			t.Errorf("segment %d: IP checksum", i)
		}
		if sum16(sum16(6+uint32(len(tcp)), ip[12:20]), tcp) != 0xffff {
			t.Errorf("segment %d: TCP checksum", i)
		}
		if got := binary.BigEndian.Uint32(tcp[4:]); got != 0xfffffff0+uint32(i*1000) {
			t.Errorf("segment %d: sequence %#x", i, got)
		}
		if want := []byte{0x90, 0x10, 0x19}[i]; tcp[13] != want {
			t.Errorf("segment %d: flags %#x, want %#x", i, tcp[13], want)
		}
		payload = append(payload, tcp[32:]...)
	}
	if !bytes.Equal(payload, frame[66:]) {
		t.Error("payload differs")
	}
}

// TestNextIsNextFrame compares the variant without copying with the one that copies, for all ways to cut the payload
// into three fragments.
func TestNextIsNextFrame(t *testing.T) {
	frame := tcpFrame(23, 0x18)
	p, _ := Parse(frame)
	p.SegmentSize = 7
	header := make([]byte, p.HeaderLen)
	want := make([]byte, 100)
	for a := int(p.HeaderLen); a <= len(frame); a++ {
		for b := a; b <= len(frame); b++ {
			fragments := [][]byte{frame[:a], frame[a:b], frame[b:]}
			var s, c Segmenter
			if err := s.Reset(fragments, p); err != nil {
				t.Fatal(err)
			}
			c.Reset([][]byte{frame}, p)
			for {
				refs, ok := s.Next(header, nil)
				n, more := c.NextFrame(want)
				if ok != more {
					t.Fatalf("%d, %d: one variant ends early", a, b)
				}
				if !ok {
					break
				}
				got := bytes.Clone(header)
				for _, r := range refs {
					got = append(got, fragments[r.Fragment][r.Offset:r.Offset+r.Len]...)
				}
				if !bytes.Equal(got, want[:n]) {
					t.Fatalf("%d, %d:\ngot  %x\nwant %x", a, b, got, want[:n])
				}
			}
		}
	}
}

func TestFillChecksum(t *testing.T) {
	whole := tcpFrame(33, 0x10)
	p, _ := Parse(whole)
	if err := PartialChecksum(whole, p, len(whole)); err != nil {
		t.Fatal(err)
	}
	for cut := 52; cut <= len(whole); cut++ {
		f := bytes.Clone(whole)
		if err := FillChecksum([][]byte{f[:cut], nil, f[cut:]}, 34, 16); err != nil {
			t.Fatal(err)
		}
		if sum16(sum16(6+uint32(len(f)-34), f[26:34]), f[34:]) != 0xffff {
			t.Errorf("cut at %d: wrong", cut)
		}
	}
	if err := FillChecksum([][]byte{whole}, 34, len(whole)); err != ErrChecksum {
		t.Errorf("outside the frame: %v", err)
	}
}
