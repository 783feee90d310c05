package tap

import (
	"math/rand/v2"
	"testing"

	"nicd/framework"
)

// What encode says decode understands: a packet that came up goes down as it was.
func TestHeaderRoundTrip(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		first := make([]byte, 200)
		for i := range first {
			first[i] = byte(r.Uint32())
		}
		want := framework.Packet{ChecksumStart: uint16(34 + r.IntN(60)), ChecksumOffset: 16}
		words := byte(5 + r.IntN(11))
		first[want.ChecksumStart+12] = words << 4
		switch r.IntN(4) {
		case 0:
			want = framework.Packet{}
		case 1:
			want.Flags = framework.ChecksumPartial
		case 2:
			want.Flags = framework.ChecksumPartial | framework.Segment | framework.TCP | framework.IPv4
			if r.IntN(2) == 0 {
				want.Flags ^= framework.IPv4 | framework.IPv6
			}
			want.HeaderLen, want.SegmentSize = want.ChecksumStart+uint16(words)*4, 1+uint16(r.IntN(9000))
		case 3:
			want.Flags = framework.ChecksumPartial | framework.Segment | framework.UDP
			want.ChecksumOffset, want.HeaderLen, want.SegmentSize = 6, want.ChecksumStart+8, 1+uint16(r.IntN(9000))
			first[12], first[14] = 0, 0x45 // no tag
			if want.Flags |= framework.IPv4; r.IntN(2) == 0 {
				want.Flags ^= framework.IPv4 | framework.IPv6
				first[14] = 0x60
			}
		}
		var h vnetHeader
		h.encode(&want, first, 0)
		var got framework.Packet
		if !h.decode(&got, first) {
			t.Fatalf("%+v: not understood", want)
		}
		if got != want {
			t.Fatalf("%+v became %+v", want, got)
		}
		var shifted vnetHeader
		shifted.encode(&want, first, tagLen)
		var down framework.Packet
		if want.Flags != 0 && shifted.decode(&down, append(append(first[:12:12], 0x81, 0, 0, 7), first[12:]...)) && down.ChecksumStart != want.ChecksumStart+tagLen {
			t.Fatalf("with a tag: %+v", down)
		}
	}
}

func TestCWR(t *testing.T) {
	first := make([]byte, 80)
	first[34+12] = 5 << 4
	p := framework.Packet{
		Flags:     framework.ChecksumPartial | framework.Segment | framework.IPv4,
		HeaderLen: 54, SegmentSize: 100, ChecksumStart: 34, ChecksumOffset: 16,
	}
	var h vnetHeader
	if h.encode(&p, first, 0); h[atGSOType] != gsoTCPv4 {
		t.Errorf("type %#x", h[atGSOType])
	}
	first[34+13] = 0x80
	if h.encode(&p, first, 0); h[atGSOType] != gsoTCPv4|gsoECN {
		t.Errorf("with CWR: type %#x", h[atGSOType])
	}
}

// No header and frame give a packet that lies about itself.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{1, 1, 66, 0, 0xa8, 5, 34, 0, 16, 0}, make([]byte, 100))
	f.Add([]byte{1, 5, 0, 0, 0xa8, 5, 0xfa, 0xff, 6, 0}, append(make([]byte, 14), 0x45, 0)) // UDP, beyond the frame
	f.Fuzz(func(t *testing.T, header, first []byte) {
		var h vnetHeader
		copy(h[:], header)
		p := framework.Packet{Len: uint32(len(first))}
		if h.decode(&p, first) && p.Flags&framework.Segment != 0 && (int(p.HeaderLen) > len(first) || p.HeaderLen <= p.ChecksumStart || p.SegmentSize == 0) {
			t.Fatalf("%+v", p)
		}
	})
}
