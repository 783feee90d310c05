package sim

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// naive is RFC 1071 word by word.
func naive(s uint32, b []byte) uint32 {
	for i := 0; i < len(b); i += 2 {
		w := uint32(b[i]) << 8
		if i+1 < len(b) {
			w |= uint32(b[i+1])
		}
		s += w
		s = s&0xffff + s>>16
	}
	return s
}

// newTSO is a TSO frame with payload bytes of TCP, cut into random parts.
func newTSO(rng *rand.Rand, v6, tagged bool, payload, mss int) Frame {
	be := binary.BigEndian
	b := make([]byte, 12, 200+payload)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	if tagged {
		b = append(b, 0x81, 0, 0x20, 7)
	}
	ip, options := len(b)+2, rng.IntN(11)*4
	tcpLen := 20 + options + payload
	if v6 {
		b = append(b, 0x86, 0xdd, 0x60, 0, 0, 0)
		b = be.AppendUint16(b, uint16(tcpLen))
		b = append(b, ProtocolTCP, 64)
		for range 32 {
			b = append(b, byte(rng.Uint32()))
		}
	} else {
		b = append(b, 8, 0, 0x45, 3)
		b = be.AppendUint16(b, uint16(20+tcpLen))
		b = be.AppendUint16(b, uint16(rng.Uint32()))
		b = append(b, 0x40, 0, 64, ProtocolTCP, 0, 0)
		for range 8 {
			b = append(b, byte(rng.Uint32()))
		}
	}
	l4 := len(b)
	for range 20 + options + payload {
		b = append(b, byte(rng.Uint32()))
	}
	b[l4+12] = byte(20+options) / 4 << 4
	addrs := b[ip+12 : ip+20]
	if v6 {
		addrs = b[ip+8 : ip+40]
	}
	be.PutUint16(b[l4+16:], uint16(naive(ProtocolTCP, addrs)))
	f := Frame{Len: len(b), Flags: Segment | Partial, SegmentSize: mss, HeaderLen: l4 + 20 + options, ChecksumStart: l4, ChecksumOffset: 16}
	for rest := b; len(rest) > 0; {
		n := min(len(rest), 1+rng.IntN(3000))
		f.Parts = append(f.Parts, rest[:n])
		rest = rest[n:]
	}
	return f
}

func flat(f *Frame) []byte {
	b := make([]byte, f.Len)
	f.CopyTo(b, 0)
	return b
}

func TestSegmentsAddUpToTheFrame(t *testing.T) {
	const seed = 7
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, seed))
	for range 300 {
		v6, tagged := rng.IntN(2) == 0, rng.IntN(2) == 0
		f := newTSO(rng, v6, tagged, 1+rng.IntN(60000), 500+rng.IntN(1500))
		whole := flat(&f)
		var s Segmenter
		var payload []byte
		for i := 0; i < f.Segments(); {
			segs := s.Cut(&f, i, true)
			for j := range segs {
				b := flat(&segs[j])
				checkSegment(t, b, whole, &f, i+j, v6)
				payload = append(payload, b[f.HeaderLen:]...)
			}
			i += len(segs)
		}
		if !bytes.Equal(payload, whole[f.HeaderLen:]) {
			t.Fatal("payload differs")
		}
		if !bytes.Equal(whole, flat(&f)) {
			t.Fatal("the frame's own bytes were changed")
		}
	}
}

func checkSegment(t *testing.T, b, whole []byte, f *Frame, i int, v6 bool) {
	t.Helper()
	be, l4 := binary.BigEndian, f.ChecksumStart
	ip := l4 - 20
	if v6 {
		ip = l4 - 40
	}
	last := i == f.Segments()-1
	if n := len(b) - f.HeaderLen; n != f.SegmentSize && !(last && n > 0 && n < f.SegmentSize) {
		t.Fatalf("segment %d has %d bytes", i, n)
	}
	if got, want := be.Uint32(b[l4+4:]), be.Uint32(whole[l4+4:])+uint32(i*f.SegmentSize); got != want {
		t.Fatalf("segment %d: seq %d, want %d", i, got, want)
	}
	flags := whole[l4+13]
	if !last {
		flags &^= TCPFin | TCPPsh
	}
	if i > 0 {
		flags &^= TCPCwr
	}
	if b[l4+13] != flags {
		t.Fatalf("segment %d: flags %#x of %#x", i, b[l4+13], whole[l4+13])
	}
	addrs := b[ip+12 : ip+20]
	if v6 {
		addrs = b[ip+8 : ip+40]
		if int(be.Uint16(b[ip+4:])) != len(b)-l4 {
			t.Fatal("IPv6 length")
		}
	} else {
		if int(be.Uint16(b[ip+2:])) != len(b)-ip || be.Uint16(b[ip+4:]) != be.Uint16(whole[ip+4:])+uint16(i) {
			t.Fatal("IPv4 length or identification")
		}
		if naive(0, b[ip:l4]) != 0xffff {
			t.Fatal("IPv4 header checksum")
		}
	}
	s := naive(naive(ProtocolTCP, addrs), []byte{byte((len(b) - l4) >> 8), byte(len(b) - l4)})
	if naive(s, b[l4:]) != 0xffff {
		t.Fatalf("segment %d: TCP checksum", i)
	}
	var h Headers
	g := FrameOf(b)
	if !ParseHeaders(&h, b, len(b)) || !h.ChecksumGood(&g, b) || !h.HeaderChecksumGood(b) {
		t.Fatal("our own check disagrees")
	}
}

func TestSegmentsWithoutFillingAreFilledLater(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	f := newTSO(rng, false, true, 5000, 1400)
	var a, b, c Segmenter
	filled := a.Cut(&f, 0, true)
	seeded := b.Cut(&f, 0, false)
	for i := range seeded {
		if seeded[i].Flags != Partial || filled[i].Flags != Good {
			t.Fatalf("flags %v %v", seeded[i].Flags, filled[i].Flags)
		}
		if got := c.Cut(&seeded[i], 0, true); !bytes.Equal(flat(&got[0]), flat(&filled[i])) {
			t.Fatal("filled in later differs")
		}
	}
}

func TestAWrongSeedIsNotGood(t *testing.T) {
	f := newTSO(rand.New(rand.NewPCG(1, 2)), false, false, 3000, 1400)
	f.Parts = [][]byte{flat(&f)}
	f.Parts[0][f.ChecksumStart+16] ^= 1
	var s Segmenter
	for _, g := range s.Cut(&f, 0, true) {
		if g.Flags&Good != 0 {
			t.Error("good")
		}
	}
}

func TestUDPChecksumOfZeroIsSentAsOnes(t *testing.T) {
	// Two bytes of payload make the sum come out as all ones.
	b := []byte{0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 8, 0,
		0x45, 0, 0, 30, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
		0, 7, 0, 9, 0, 10, 0, 0, 0, 0}
	pseudo := naive(17+10, b[26:34])
	binary.BigEndian.PutUint16(b[40:], uint16(pseudo))
	binary.BigEndian.PutUint16(b[42:], ^uint16(naive(pseudo, b[34:40])))
	f := FrameOf(b)
	f.Flags, f.ChecksumStart, f.ChecksumOffset = Partial, 34, 6
	var s Segmenter
	got := flat(&s.Cut(&f, 0, true)[0])
	if got[40] != 0xff || got[41] != 0xff {
		t.Errorf("checksum %x", got[40:42])
	}
}

func FuzzSegmenter(f *testing.F) {
	rng := rand.New(rand.NewPCG(3, 3))
	for i := range 4 {
		t := newTSO(rng, i&1 == 0, i&2 == 0, 300, 100)
		f.Add(flat(&t), uint16(100), uint16(t.HeaderLen), uint16(t.ChecksumStart), uint16(16), true, uint16(9))
	}
	f.Fuzz(func(t *testing.T, b []byte, mss, hlen, start, offset uint16, segment bool, split uint16) {
		if len(b) == 0 || len(b) > 70000 {
			return
		}
		k := int(split) % len(b)
		g := Frame{Len: len(b), Flags: Partial, SegmentSize: int(mss), HeaderLen: int(hlen), ChecksumStart: int(start), ChecksumOffset: int(offset)}
		g.Parts = [][]byte{b[:k], b[k:]}
		if k == 0 {
			g.Parts = [][]byte{b}
		}
		if segment {
			g.Flags |= Segment
		}
		before := bytes.Clone(b)
		var s Segmenter
		n, payload := s.Count(&g), 0
		if n > 1 && n != g.Segments() {
			t.Fatalf("count %d of %d", n, g.Segments())
		}
		for i := 0; i < n && i < 4096; {
			segs := s.Cut(&g, i, true)
			if len(segs) == 0 {
				t.Fatal("no segments")
			}
			for j := range segs {
				payload += len(flat(&segs[j])) - g.HeaderLen
			}
			i += len(segs)
		}
		if n > 1 && n <= 4096 && payload != g.Len-g.HeaderLen {
			t.Fatalf("%d bytes of payload of %d", payload, g.Len-g.HeaderLen)
		}
		if !bytes.Equal(b, before) {
			t.Fatal("the frame's own bytes were changed")
		}
	})
}

func BenchmarkSegmenter(b *testing.B) {
	f := newTSO(rand.New(rand.NewPCG(1, 9)), false, false, 65000, 1448)
	b.SetBytes(int64(f.Len))
	b.ReportAllocs()
	var s Segmenter
	for range b.N {
		for i := 0; i < f.Segments(); {
			i += len(s.Cut(&f, i, true))
		}
	}
}
