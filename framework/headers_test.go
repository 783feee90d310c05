package framework

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
)

// tcpFrame is a TCP frame of payload bytes, and where its TCP header starts.
func tcpFrame(v6, vlan bool, options, payload int) (f []byte, tcp int) {
	f = make([]byte, etherLen)
	if vlan {
		f = append(f, 0, 5, 0, 0)
		binary.BigEndian.PutUint16(f[12:], etherVLAN)
	}
	segment := minTCPLen + options + payload
	network := len(f)
	if v6 {
		binary.BigEndian.PutUint16(f[network-2:], etherIPv6)
		f = append(f, make([]byte, ipv6Len)...)
		f[network+6] = protocolTCP
		binary.BigEndian.PutUint16(f[network+ipv6LengthAt:], uint16(segment))
		f[network+8], f[network+39] = 0xFE, 9
	} else {
		binary.BigEndian.PutUint16(f[network-2:], etherIPv4)
		f = append(f, make([]byte, 20)...)
		f[network], f[network+9] = 0x45, protocolTCP
		binary.BigEndian.PutUint16(f[network+ipv4LengthAt:], uint16(20+segment))
		binary.BigEndian.PutUint16(f[network+ipv4SumAt:], 0x1234)
		copy(f[network+12:], []byte{10, 0, 0, 1, 10, 0, 0, 255})
	}
	start := len(f)
	f = append(f, make([]byte, segment)...)
	f[start+tcpDataOffset] = byte((minTCPLen+options)/4) << 4
	return f, start
}

func TestTCPHeaderLen(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, vlan := range []bool{false, true} {
			f, tcp := tcpFrame(v6, vlan, 12, 100)
			want := tcp + minTCPLen + 12
			if got := tcpHeaderLen(f); got != want {
				t.Errorf("v6 %v vlan %v: %d, want %d", v6, vlan, got, want)
			}
			for n := range want {
				if got := tcpHeaderLen(f[:n]); got != 0 {
					t.Errorf("cut to %d bytes: %d", n, got)
				}
			}
		}
	}
	udp, _ := tcpFrame(false, false, 0, 10)
	udp[etherLen+9] = 17
	if got := tcpHeaderLen(udp); got != 0 {
		t.Errorf("UDP: %d", got)
	}
}

func TestClearForSegment(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, length := range []bool{false, true} {
			f, _ := tcpFrame(v6, v6, 0, 60000)
			before := bytes.Clone(f)
			ClearForSegment(f, length)
			network, _ := NetworkHeader(f)
			lengthAt := network + ipv4LengthAt
			if v6 {
				lengthAt = network + ipv6LengthAt
			} else {
				clear(before[network+ipv4SumAt:][:2])
			}
			if length {
				clear(before[lengthAt:][:2])
			}
			if !bytes.Equal(f, before) {
				t.Errorf("v6 %v length %v: wrong bytes changed", v6, length)
			}
		}
	}
}

func FuzzTCPHeaderLen(f *testing.F) {
	seed, _ := tcpFrame(false, true, 4, 10)
	f.Add(seed)
	f.Fuzz(func(t *testing.T, frame []byte) {
		if n := tcpHeaderLen(frame); n < 0 || n > len(frame) {
			t.Fatalf("%d of %d bytes", n, len(frame))
		}
	})
}

// TestClearForSegmentOfNonsense: what is called a packet to be cut can have any bytes,
// an IP header that begins where the headers end for one.
func TestClearForSegmentOfNonsense(t *testing.T) {
	for size := range 80 {
		for _, etherType := range []uint16{etherIPv4, etherIPv6, etherVLAN} {
			b := make([]byte, size)
			for i := etherLen - 2; i+2 <= size; i += vlanLen {
				binary.BigEndian.PutUint16(b[i:], etherVLAN)
				if i+vlanLen+2 > size {
					binary.BigEndian.PutUint16(b[i:], etherType)
				}
			}
			was := slices.Clone(b)
			ClearForSegment(b, true)
			if !bytes.Equal(b, was) {
				t.Errorf("%d bytes that end with %#x were changed", size, etherType)
			}
		}
	}
}

// TestSeedWithLength: the sum of the pseudo-header with its length, whatever carries,
// and nothing in a packet whose headers are not there.
func TestSeedWithLength(t *testing.T) {
	for _, c := range []struct {
		seed   uint16
		length uint32
		want   uint16
	}{{0x1234, 0x100, 0x1334}, {0xFFFF, 1, 1}, {0xFF00, 0xFF00, 0xFE01}, {0, 0x10001, 2}, {0xFFFF, 0x1FFFF, 1}} {
		b := make([]byte, 54)
		binary.BigEndian.PutUint16(b[50:], c.seed)
		SeedWithLength(b, &Packet{Len: 34 + c.length, ChecksumStart: 34, ChecksumOffset: 16})
		if got := binary.BigEndian.Uint16(b[50:]); got != c.want {
			t.Errorf("%#x and a length of %#x make %#x, want %#x", c.seed, c.length, got, c.want)
		}
	}
	b := make([]byte, 51)
	for _, p := range []Packet{{Len: 100, ChecksumStart: 34, ChecksumOffset: 16}, {Len: 20, ChecksumStart: 30, ChecksumOffset: 4}, {ChecksumStart: 0xFFFF, ChecksumOffset: 0xFFFF}} {
		if SeedWithLength(b, &p); !bytes.Equal(b, make([]byte, 51)) {
			t.Errorf("%+v: bytes were changed", p)
		}
	}
}
