package offload_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"nicd/framework"
	"nicd/port/offload"
)

// sum16 is the Internet checksum of RFC 1071 by its definition, word by word: it
// shares nothing with what the package uses.
func sum16(pieces ...[]byte) uint16 {
	var all []byte
	for _, p := range pieces {
		all = append(all, p...)
	}
	if len(all)%2 != 0 {
		all = append(all, 0)
	}
	total := uint64(0)
	for i := 0; i < len(all); i += 2 {
		total += uint64(all[i])<<8 | uint64(all[i+1])
	}
	for total > 0xffff {
		total = total>>16 + total&0xffff
	}
	return ^uint16(total)
}

// udp is a datagram with a right checksum, or none, and surplus bytes between the
// end of what UDP counts and the end of the IP packet (RFC 9868 section 5).
func udp(ipv6, sum bool, payload, surplus int) []byte {
	body := make([]byte, 8+payload+surplus)
	for i := range body {
		body[i] = byte(i * 37)
	}
	length := uint16(8 + payload)
	binary.BigEndian.PutUint16(body[4:], length)
	binary.BigEndian.PutUint16(body[6:], 0)
	f := append(bytes.Repeat([]byte{2}, 12), 8, 0)
	var addresses []byte
	if ipv6 {
		ip := append([]byte{0x60, 0, 0, 0, 0, 0, 17, 64}, bytes.Repeat([]byte{0xfd, 7}, 16)...)
		binary.BigEndian.PutUint16(ip[4:], uint16(len(body)))
		addresses, f[12], f[13] = ip[8:40], 0x86, 0xdd
		f = append(f, ip...)
	} else {
		ip := []byte{0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}
		binary.BigEndian.PutUint16(ip[2:], uint16(20+len(body)))
		binary.BigEndian.PutUint16(ip[10:], sum16(ip))
		addresses = ip[12:20]
		f = append(f, ip...)
	}
	if sum {
		pseudo := []byte{0, 17, byte(length >> 8), byte(length)}
		binary.BigEndian.PutUint16(body[6:], sum16(addresses, pseudo, body[:length]))
	}
	return append(f, body...)
}

// What is vouched for and then filled in is what it was: a datagram that is shorter
// than its IP packet is summed to its own end, and one without a checksum has none.
func TestVouchUDP(t *testing.T) {
	for _, ipv6 := range []bool{false, true} {
		for _, c := range []struct {
			sum              bool
			payload, surplus int
			vouched          bool
		}{
			{true, 100, 0, true},
			{true, 101, 0, true},
			{true, 0, 0, true},
			{true, 100, 8, false},
			{true, 101, 1, false},
			{false, 100, 0, false},
		} {
			frame := udp(ipv6, c.sum, c.payload, c.surplus)
			want := bytes.Clone(frame)
			p := framework.Packet{Len: uint32(len(frame)), Flags: framework.ChecksumVerified}
			offload.Vouch(&p, frame)
			if got := p.Flags&framework.ChecksumPartial != 0; got != c.vouched {
				t.Errorf("IPv6 %v, %+v: vouched for: %v", ipv6, c, got)
			}
			offload.Turn(&p, frame, 1500)
			if got := cut(t, &p, frame); !bytes.Equal(got[0], want) {
				t.Errorf("IPv6 %v, %+v:\n%x\n%x", ipv6, c, got[0], want)
			}
		}
	}
}

// A device that says of more bytes than an IP packet has that it merged them is not
// believed.
func TestMergedTooLong(t *testing.T) {
	r := newRand(t)
	frame := segments(r, false, false, 1, 1400)[0]
	want := bytes.Clone(frame)
	p := framework.Packet{Len: 14 + 65536, Flags: framework.Coalesced | framework.ChecksumVerified, Segments: 46, SegmentSize: 1400}
	if got := offload.Turn(&p, frame, 1500); got != offload.Opaque || !bytes.Equal(frame, want) {
		t.Errorf("result %v", got)
	}
}
