package lro

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
)

// encode writes packets for FuzzBatch: for each one a byte of what the device says, the length, the frame.
func encode(in []Packet) []byte {
	var b []byte
	for i := range in {
		b = append(b, byte(in[i].Flags)<<6|byte(in[i].Checksum)<<4|byte(in[i].Segments)&7)
		b = binary.BigEndian.AppendUint16(b, uint16(len(in[i].Data)))
		b = append(b, in[i].Data...)
	}
	return b
}

// decode is the reverse for any bytes. A packet that claims to be verified is so only if it is.
func decode(b []byte) []Packet {
	var in []Packet
	for len(b) >= 3 && len(in) < 100 {
		meta, n := b[0], int(binary.BigEndian.Uint16(b[1:]))
		b = b[3:]
		n = min(n, len(b))
		p := Packet{
			Data: bytes.Clone(b[:n]), Len: uint32(n), Segments: uint16(meta & 7),
			Checksum: Checksum(meta >> 4 & 3), Flags: PacketFlags(meta >> 6), VLAN: uint16(meta & 8),
		}
		if p.Checksum == ChecksumVerified && !modelParse(&Packet{}, p.Data).eligible {
			p.Checksum = ChecksumUnknown
		}
		b = b[n:]
		in = append(in, p)
	}
	return in
}

// FuzzBatch runs any bytes as a batch: properties P1 to P6, P10, P11 and P13.
func FuzzBatch(f *testing.F) {
	for i, mutate := range mutations {
		f.Add(encode(packets(train(3, 20, func(j int, s *segment) {
			s.ipv6 = i%2 == 1
			if j == 1 {
				mutate(s, uint32(i*0x1234567))
			}
		})...)))
	}
	f.Fuzz(func(t *testing.T, b []byte) { compare(t, decode(b)) })
}

// FuzzPatch runs a train of well-formed packets that is changed in a few places, after which its checksums are made
// right again, so that the fuzzer gets past them: the same properties.
func FuzzPatch(f *testing.F) {
	f.Add(false, uint8(3), []byte{1, 15, 1, 2, 47, 8})
	f.Add(true, uint8(3), []byte{1, 15, 1, 2, 67, 8})
	f.Add(false, uint8(8), []byte{4, 19, 1})
	f.Fuzz(func(t *testing.T, ipv6 bool, n uint8, patches []byte) {
		in := packets(train(int(n%20), 20, func(i int, s *segment) { s.ipv6 = ipv6 })...)
		for ; len(patches) >= 3 && len(in) > 0; patches = patches[3:] {
			d := in[int(patches[0])%len(in)].Data
			d[int(patches[1])%len(d)] ^= patches[2]
		}
		for i := range in {
			if l4 := 34 + 20*btoi(ipv6); in[i].Data[14]>>4 == 4 || in[i].Data[14]>>4 == 6 {
				fix(in[i].Data, 14, l4, 6)
			}
		}
		compare(t, in)
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// compare runs a batch with all checks, and compares with the reference model.
func compare(t *testing.T, in []Packet) {
	want := ""
	for i, g := range modelBatch(in, snapshot(in), Options{}) {
		if i > 0 {
			want += " "
		}
		want += fmt.Sprint(g)
	}
	got, _, e := runBatch(t, Options{}, in)
	if got != want && e.Stats().Ended[ReasonEvicted] == 0 {
		t.Errorf("got      %s\nthe model %s", got, want)
	}
}
