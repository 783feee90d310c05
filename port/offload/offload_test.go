package offload_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"

	"nicd/bus"
	"nicd/framework"
	"nicd/gso"
	"nicd/internal/checksum"
	"nicd/port/offload"
)

func newRand(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// segments makes n TCP frames that follow each other, with right checksums.
func segments(r *rand.Rand, ipv6, tagged bool, n, size int) [][]byte {
	var link []byte
	for range 12 {
		link = append(link, byte(r.Uint32()))
	}
	if tagged {
		link = append(link, 0x81, 0, 0, 7)
	}
	options := 4 * r.IntN(11)
	seq, id := r.Uint32(), uint16(r.Uint32())
	var address [32]byte
	for i := range address {
		address[i] = byte(r.Uint32())
	}
	var frames [][]byte
	for i := range n {
		payload := make([]byte, size)
		if i == n-1 {
			payload = payload[:1+r.IntN(size)]
		}
		for j := range payload {
			payload[j] = byte(r.Uint32())
		}
		tcp := make([]byte, 20+options)
		binary.BigEndian.PutUint32(tcp[4:], seq+uint32(i*size))
		tcp[12], tcp[13] = byte(5+options/4)<<4, 0x10
		if i == n-1 {
			tcp[13] |= 0x08
		}
		for j := 20; j < len(tcp); j++ {
			tcp[j] = 1
		}
		length := len(tcp) + len(payload)
		f := append([]byte(nil), link...)
		var pseudo uint16
		if ipv6 {
			ip := append([]byte{0x60, 0, 0, 0, byte(length >> 8), byte(length), 6, 64}, address[:]...)
			f = append(append(f, 0x86, 0xdd), ip...)
			pseudo = checksum.Pseudo6(address[:], 6, length)
		} else {
			ip := append([]byte{0x45, 0, byte((20 + length) >> 8), byte(20 + length), 0, 0, 0x40, 0, 64, 6, 0, 0}, address[:8]...)
			binary.BigEndian.PutUint16(ip[4:], id+uint16(i))
			binary.BigEndian.PutUint16(ip[10:], ^checksum.Sum(ip))
			f = append(append(f, 8, 0), ip...)
			pseudo = checksum.Pseudo4(address[:8], 6, length)
		}
		body := append(tcp, payload...)
		binary.BigEndian.PutUint16(body[16:], ^checksum.Add(pseudo, checksum.Sum(body)))
		frames = append(frames, append(f, body...))
	}
	return frames
}

// merge does what a device does that merges: the first frame's headers with the
// last one's PSH, the payload of all, and checksums and lengths left as they were.
func merge(frames [][]byte) []byte {
	h, _ := gso.Parse(frames[0])
	whole := append([]byte(nil), frames[0]...)
	for _, f := range frames[1:] {
		whole = append(whole, f[h.HeaderLen:]...)
	}
	last := frames[len(frames)-1]
	whole[h.L4Offset+13] |= last[h.L4Offset+13] & 0x08
	return whole
}

// cut does what the engine or a device does with a packet that is to be sent.
func cut(t *testing.T, p *framework.Packet, frame []byte) [][]byte {
	t.Helper()
	if p.Flags&framework.ChecksumPartial == 0 {
		return [][]byte{frame}
	}
	if p.Flags&framework.Segment == 0 {
		if err := gso.FillChecksum([][]byte{frame}, int(p.ChecksumStart), int(p.ChecksumOffset)); err != nil {
			t.Fatal(err)
		}
		return [][]byte{frame}
	}
	h, err := gso.Parse(frame)
	if err != nil || h.HeaderLen != p.HeaderLen || h.L4Offset != p.ChecksumStart {
		t.Fatalf("%+v for %+v: %v", h, p, err)
	}
	h.SegmentSize = p.SegmentSize
	var s gso.Segmenter
	if err := s.Reset([][]byte{frame}, h); err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for range s.Segments() {
		head := make([]byte, h.HeaderLen)
		refs, _ := s.Next(head, nil)
		for _, ref := range refs {
			head = append(head, frame[ref.Offset:ref.Offset+ref.Len]...)
		}
		out = append(out, head)
	}
	return out
}

// What a device merged comes out again as the frames that it merged, byte for
// byte, checksums included.
func TestCoalescedComesApart(t *testing.T) {
	r := newRand(t)
	for range 2000 {
		ipv6, tagged := r.IntN(2) == 0, r.IntN(2) == 0
		want := segments(r, ipv6, tagged, 1+r.IntN(20), 1+r.IntN(1400))
		h, _ := gso.Parse(want[0])
		size := len(want[0]) - int(h.HeaderLen)
		frame := merge(want)
		p := framework.Packet{
			Len: uint32(len(frame)), Flags: framework.Coalesced | framework.ChecksumVerified | framework.TCP,
			Segments: uint16(len(want)), SegmentSize: uint16(size),
		}
		if got := offload.Turn(&p, frame, 1500); got != offload.Turned {
			t.Fatalf("result %v", got)
		}
		got := cut(t, &p, frame)
		if len(got) != len(want) {
			t.Fatalf("%d segments, want %d", len(got), len(want))
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("segment %d of %d (IPv6 %v, tag %v):\n%x\n%x", i, len(want), ipv6, tagged, got[i], want[i])
			}
		}
		if p.Flags&(framework.Coalesced|framework.ChecksumVerified) != 0 {
			t.Fatalf("flags %#x mean nothing on the way down", p.Flags)
		}
	}
}

// With a size that nobody knows the cuts are elsewhere, but no segment is larger
// than the MTU, and the stream is the same.
func TestEstimate(t *testing.T) {
	r := newRand(t)
	for range 500 {
		ipv6 := r.IntN(2) == 0
		in := segments(r, ipv6, false, 2+r.IntN(20), 300+r.IntN(1000))
		frame := merge(in)
		payload := append([]byte(nil), frame...)
		p := framework.Packet{Len: uint32(len(frame)), Flags: framework.Coalesced | framework.ChecksumVerified}
		if got := offload.Turn(&p, frame, 1500); got != offload.Estimated {
			t.Fatalf("result %v", got)
		}
		var stream []byte
		for _, s := range cut(t, &p, frame) {
			if len(s) > 14+1500 {
				t.Fatalf("a segment of %d bytes", len(s))
			}
			checkTCP(t, s)
			stream = append(stream, s[p.HeaderLen:]...)
		}
		if !bytes.Equal(stream, payload[p.HeaderLen:]) {
			t.Fatal("the stream changed")
		}
	}
}

// Of a coalesced packet that nobody verified, or that was found wrong, nothing is
// made good: bytes that changed on the way must not get a checksum that is right.
func TestUnverifiedStays(t *testing.T) {
	r := newRand(t)
	for _, verdict := range []framework.PacketFlags{0, framework.ChecksumBad} {
		frame := merge(segments(r, r.IntN(2) == 0, r.IntN(2) == 0, 5, 1000))
		frame[len(frame)-1] ^= 1
		want := append([]byte(nil), frame...)
		p := framework.Packet{Len: uint32(len(frame)), Flags: framework.Coalesced | framework.TCP | verdict, Segments: 5, SegmentSize: 1000}
		offload.Vouch(&p, frame)
		if got := offload.Turn(&p, frame, 1500); got != offload.Unverified {
			t.Errorf("result %v", got)
		}
		if p.Flags != framework.TCP || p.Segments != 0 || p.SegmentSize != 0 || !bytes.Equal(frame, want) {
			t.Errorf("%+v, changed %v", p, !bytes.Equal(frame, want))
		}
	}
}

func checkTCP(t *testing.T, frame []byte) {
	t.Helper()
	h, err := gso.Parse(frame)
	if err != nil {
		t.Fatal(err)
	}
	ip, body := frame[h.L3Offset:h.L4Offset], frame[h.L4Offset:]
	sum := checksum.Sum(body)
	if ip[0]>>4 == 4 {
		if checksum.Sum(ip) != 0xffff {
			t.Fatal("IPv4 header checksum")
		}
		sum = checksum.Add(sum, checksum.Pseudo4(ip[12:20], 6, len(body)))
	} else {
		sum = checksum.Add(sum, checksum.Pseudo6(ip[8:40], 6, len(body)))
	}
	if sum != 0xffff {
		t.Fatalf("TCP checksum: sum %#x", sum)
	}
}

// Vouching and filling in again is no change; what can't be vouched for is left.
func TestVouch(t *testing.T) {
	r := newRand(t)
	vouched := 0
	for range 1000 {
		frame := segments(r, r.IntN(2) == 0, r.IntN(2) == 0, 1, 1+r.IntN(1400))[0]
		want := append([]byte(nil), frame...)
		padded := r.IntN(4) == 0
		if padded {
			frame = append(frame, 1, 2, 3)
			want = append(want, 1, 2, 3)
		}
		p := framework.Packet{Len: uint32(len(frame)), Flags: framework.ChecksumVerified}
		offload.Vouch(&p, frame)
		if partial := p.Flags&framework.ChecksumPartial != 0; partial == padded {
			t.Fatalf("padded %v, partial %v", padded, partial)
		} else if partial {
			vouched++
		}
		if got := offload.Turn(&p, frame, 1500); (got == offload.Turned) == padded {
			t.Fatalf("result %v", got)
		}
		if got := cut(t, &p, frame); !bytes.Equal(got[0], want) {
			t.Fatalf("\n%x\n%x", got[0], want)
		}
	}
	if vouched == 0 {
		t.Error("nothing was vouched for")
	}
	for _, flags := range []framework.PacketFlags{0, framework.ChecksumBad, framework.ChecksumVerified | framework.Coalesced} {
		frame := segments(r, false, false, 1, 100)[0]
		want := append([]byte(nil), frame...)
		p := framework.Packet{Len: uint32(len(frame)), Flags: flags}
		if offload.Vouch(&p, frame); p.Flags != flags || !bytes.Equal(frame, want) {
			t.Errorf("flags %#x were vouched for", flags)
		}
	}
}

// No frame makes Turn or Vouch touch what is not a header.
func FuzzTurn(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, ipv6 := range []bool{false, true} {
		f.Add(segments(r, ipv6, true, 1, 100)[0], uint32(framework.Coalesced), uint16(0))
		f.Add(segments(r, ipv6, false, 1, 100)[0], uint32(framework.ChecksumVerified), uint16(1448))
	}
	f.Fuzz(func(t *testing.T, frame []byte, flags uint32, size uint16) {
		if len(frame) < 14 {
			return
		}
		before := append([]byte(nil), frame...)
		p := framework.Packet{Len: uint32(len(frame)), Flags: framework.PacketFlags(flags) &^ framework.SoftwareCoalesced &^ framework.ChecksumPartial, SegmentSize: size}
		offload.Vouch(&p, frame)
		offload.Turn(&p, frame, 1500)
		if p.Flags&framework.Segment != 0 && (p.SegmentSize == 0 || uint32(p.HeaderLen) >= p.Len) {
			t.Fatalf("%+v", p)
		}
		if p.Flags&framework.ChecksumPartial != 0 && uint32(p.ChecksumStart+p.ChecksumOffset)+2 > p.Len {
			t.Fatalf("%+v", p)
		}
		if h, err := gso.Parse(before); err == nil && !bytes.Equal(frame[h.HeaderLen:], before[h.HeaderLen:]) {
			t.Fatal("payload changed")
		} else if err != nil && !bytes.Equal(frame, before) {
			t.Fatal("a frame without headers changed")
		}
	})
}

// TestHeadersThatChange: a driver's process can write to a packet while its headers
// are looked at. That makes nonsense of the packet, and no more.
func TestHeadersThatChange(t *testing.T) {
	r := newRand(t)
	memory, err := bus.NewMemory("frame", 4096) // the race detector does not look there
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	stop := make(chan struct{})
	var rogue sync.WaitGroup
	defer rogue.Wait()
	defer close(stop)
	rogue.Go(func() {
		b := memory.Bytes()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			b[14] = [...]byte{0x45, 0x4f, 0x45, 0x40, 0x45, 0x65}[i%6]
		}
	})
	for i := range 300_000 {
		n := 54 + r.IntN(40)
		if i%2 == 0 {
			n -= 12
		}
		frame := memory.Bytes()[:n:n]
		copy(frame[12:], []byte{8, 0, 0x45, 0, 0, byte(n - 14), 0, 0, 0, 0, 64, 6, 0, 0})
		if i%2 == 0 {
			frame[23], frame[39], frame[40] = 17, byte(n-34), 1
		} else {
			frame[46] = 0x50
		}
		p := framework.Packet{Len: uint32(n), Flags: framework.ChecksumVerified}
		if r.IntN(2) == 0 {
			p.Flags |= framework.Coalesced
			p.Len += 1000
		}
		offload.Vouch(&p, frame)
		offload.Turn(&p, frame, 1500)
		if p.HeaderLen > uint16(n) || p.Flags&framework.ChecksumPartial != 0 && int(p.ChecksumStart+p.ChecksumOffset)+2 > n {
			t.Fatalf("%+v", p)
		}
	}
}
