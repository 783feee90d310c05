package vmxnet3

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"nicd/sim"
)

// Frames, and checks of frames, written for the tests alone: checksums are summed
// naively here.

var (
	testMAC = [6]byte{0x00, 0x50, 0x56, 0, 0, 1}
	peerMAC = [6]byte{0x02, 0, 0, 0, 0, 9}
)

type tframe struct {
	dst      [6]byte
	vlan     int // tag, -1 none
	v6       bool
	proto    byte // 6, 17, other
	src, dip [16]byte
	sport    uint16
	dport    uint16
	id       uint16
	seq      uint32
	ack      uint32
	flags    byte
	options  []byte
	payload  []byte
	partial  bool // seed only
	tso      bool // seed without length
	badL4    bool
	badIP    bool
}

func tcpFrame(payload int) tframe {
	f := tframe{dst: testMAC, vlan: -1, proto: 6, sport: 1234, dport: 80, id: 100, seq: 5000, ack: 77, flags: 0x10}
	f.src = [16]byte{10, 0, 0, 2}
	f.dip = [16]byte{10, 0, 0, 1}
	f.payload = pattern(payload, 1)
	return f
}

func pattern(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

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

func (f tframe) l4Offset() int {
	n := 14 + 20
	if f.vlan >= 0 {
		n += 4
	}
	if f.v6 {
		n += 20
	}
	return n
}

func (f tframe) headerLen() int {
	switch f.proto {
	case 6:
		return f.l4Offset() + 20 + len(f.options)
	case 17:
		return f.l4Offset() + 8
	}
	return f.l4Offset()
}

func (f tframe) bytes() []byte {
	be := binary.BigEndian
	var b []byte
	b = append(b, f.dst[:]...)
	b = append(b, peerMAC[:]...)
	if f.vlan >= 0 {
		b = be.AppendUint16(b, 0x8100)
		b = be.AppendUint16(b, uint16(f.vlan))
	}
	l4 := f.l4()
	if f.v6 {
		b = be.AppendUint16(b, 0x86dd)
		b = append(b, 0x60, 0, 0, 0)
		b = be.AppendUint16(b, uint16(len(l4)))
		b = append(b, f.proto, 64)
		b = append(b, f.src[:]...)
		b = append(b, f.dip[:]...)
		return append(b, l4...)
	}
	b = be.AppendUint16(b, 0x0800)
	ip := len(b)
	b = append(b, 0x45, 0)
	b = be.AppendUint16(b, uint16(20+len(l4)))
	b = be.AppendUint16(b, f.id)
	b = append(b, 0x40, 0, 64, f.proto, 0, 0)
	b = append(b, f.src[:4]...)
	b = append(b, f.dip[:4]...)
	c := ^uint16(naive(0, b[ip:]))
	if f.badIP {
		c ^= 0x0101
	}
	be.PutUint16(b[ip+10:], c)
	return append(b, l4...)
}

func (f tframe) pseudo(n int) uint32 {
	k := 4
	if f.v6 {
		k = 16
	}
	s := naive(naive(0, f.src[:k]), f.dip[:k])
	s += uint32(f.proto)
	s = naive(s, []byte{byte(n >> 8), byte(n)})
	return s&0xffff + s>>16
}

func (f tframe) l4() []byte {
	be := binary.BigEndian
	var b []byte
	at := 0
	switch f.proto {
	case 6:
		b = be.AppendUint16(b, f.sport)
		b = be.AppendUint16(b, f.dport)
		b = be.AppendUint32(b, f.seq)
		b = be.AppendUint32(b, f.ack)
		b = append(b, byte(20+len(f.options))/4<<4, f.flags, 0x20, 0, 0, 0, 0, 0)
		b = append(b, f.options...)
		at = 16
	case 17:
		b = be.AppendUint16(b, f.sport)
		b = be.AppendUint16(b, f.dport)
		b = be.AppendUint16(b, uint16(8+len(f.payload)))
		b = append(b, 0, 0)
		at = 6
	default:
		return append(b, f.payload...)
	}
	b = append(b, f.payload...)
	n := len(b)
	switch {
	case f.tso:
		be.PutUint16(b[at:], uint16(f.pseudo(0)))
	case f.partial:
		be.PutUint16(b[at:], uint16(f.pseudo(n)))
	default:
		be.PutUint16(b[at:], ^uint16(naive(f.pseudo(n), b)))
	}
	if f.badL4 {
		b[at] ^= 0x55
	}
	return b
}

func (f tframe) frame() sim.Frame { return sim.FrameOf(f.bytes()) }

// tsoFrame is f whole, as a sender with TSO puts it on a wire.
func (f tframe) tsoFrame(mss int) sim.Frame {
	f.tso = true
	s := f.frame()
	s.Flags = sim.Segment | sim.Partial
	s.SegmentSize, s.HeaderLen = mss, f.headerLen()
	s.ChecksumStart, s.ChecksumOffset = f.l4Offset(), 16
	return s
}

// segments is what f is on the wire: built one by one.
func (f tframe) segments(mss int) (out [][]byte) {
	for i, at := 0, 0; at < len(f.payload); i, at = i+1, at+mss {
		s := f
		s.payload = f.payload[at:min(at+mss, len(f.payload))]
		s.seq += uint32(at)
		s.id += uint16(i)
		if at+mss < len(f.payload) {
			s.flags &^= 0x09
		}
		if at > 0 {
			s.flags &^= 0x80
		}
		out = append(out, s.bytes())
	}
	return out
}

func checkIPChecksum(t *testing.T, b []byte) {
	t.Helper()
	if naive(0, b[14:34]) != 0xffff {
		t.Error("IPv4 header checksum is wrong")
	}
}
