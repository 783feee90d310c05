package lro

import (
	"encoding/binary"
	"fmt"
)

// failer is what helpers need of a test, be it one of package testing or of rapid.
type failer interface {
	Helper()
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// segment describes a frame to be built. It is written out with nothing but the layouts in the RFCs; none of the
// package's own code is used.
type segment struct {
	ipv6          bool
	srcMAC        byte // last byte
	dstMAC        byte // first byte
	tags          []uint32
	src, dst      byte // last byte of the address
	tos           byte
	ttl           byte
	id            uint16
	fragment      uint16 // flags and offset
	label         uint32
	ipOptions     []byte
	extension     []byte // IPv6 extension header, its next header field is filled in
	extensionType byte
	protocol      byte
	sport, dport  uint16
	seq, ack      uint32
	reserved      byte // low four bits of the thirteenth byte; the lowest is AE
	flags         byte
	window        uint16
	urgent        uint16
	options       []byte
	payload       []byte
	pad           int // bytes behind the IP packet
	edit          func(frame []byte, l3, l4 int)
	fix           bool // compute checksums after edit
}

// data returns a plain data segment of one connection: number n of a train of size bytes each.
func data(n, size int) segment {
	s := segment{
		dstMAC: 2, ttl: 64, id: uint16(100 + n), fragment: 0x4000, src: 1, dst: 2, protocol: 6, sport: 5001, dport: 80,
		seq: 1000 + uint32(n*size), ack: 7000, flags: 0x10, window: 500,
		options: timestamp(1, 2),
	}
	s.payload = make([]byte, size)
	for i := range s.payload {
		s.payload[i] = byte(i*7 + n*13 + 1)
	}
	return s
}

func data6(n, size int) segment {
	s := data(n, size)
	s.ipv6, s.label = true, 0x12345
	return s
}

// timestamp returns the option as RFC 7323 appendix A lays it out.
func timestamp(value, echo uint32) []byte {
	o := []byte{1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(o[4:], value)
	binary.BigEndian.PutUint32(o[8:], echo)
	return o
}

// build returns the frame, with one spare byte of capacity at most.
func (s segment) build() []byte {
	f := []byte{s.dstMAC, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, s.srcMAC}
	for _, t := range s.tags {
		f = binary.BigEndian.AppendUint32(f, t)
	}
	l3 := len(f) + 2
	if s.ipv6 {
		f = s.appendIPv6(f)
	} else {
		f = s.appendIPv4(f)
	}
	l4 := len(f)
	if s.protocol == 6 {
		f = s.appendTCP(f)
	} else {
		f = binary.BigEndian.AppendUint16(f, s.sport)
		f = binary.BigEndian.AppendUint16(f, s.dport)
		f = binary.BigEndian.AppendUint16(f, uint16(8+len(s.payload)))
		f = append(f, 0, 0)
	}
	f = append(f, s.payload...)
	end := len(f)
	for i := range s.pad {
		f = append(f, byte(0xa0+i))
	}
	fix(f[:end], l3, l4, s.protocol)
	if s.edit != nil {
		s.edit(f, l3, l4)
		if s.fix {
			fix(f[:end], l3, l4, s.protocol)
		}
	}
	return f
}

func (s segment) appendIPv4(f []byte) []byte {
	f = append(f, 8, 0)
	transport := 8 + len(s.payload)
	if s.protocol == 6 {
		transport = 20 + len(s.options) + len(s.payload)
	}
	f = append(f, 0x45+byte(len(s.ipOptions)/4), s.tos)
	f = binary.BigEndian.AppendUint16(f, uint16(20+len(s.ipOptions)+transport))
	f = binary.BigEndian.AppendUint16(f, s.id)
	f = binary.BigEndian.AppendUint16(f, s.fragment)
	f = append(f, s.ttl, s.protocol, 0, 0, 10, 0, 0, s.src, 10, 0, 0, s.dst)
	return append(f, s.ipOptions...)
}

func (s segment) appendIPv6(f []byte) []byte {
	f = append(f, 0x86, 0xdd)
	transport := 8 + len(s.payload)
	if s.protocol == 6 {
		transport = 20 + len(s.options) + len(s.payload)
	}
	next := s.protocol
	if s.extension != nil {
		next = s.extensionType
	}
	f = binary.BigEndian.AppendUint32(f, 6<<28|uint32(s.tos)<<20|s.label)
	f = binary.BigEndian.AppendUint16(f, uint16(len(s.extension)+transport))
	f = append(f, next, s.ttl)
	f = append(f, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, s.src)
	f = append(f, 0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, s.dst)
	if s.extension != nil {
		f = append(append(f, s.protocol), s.extension[1:]...)
	}
	return f
}

func (s segment) appendTCP(f []byte) []byte {
	f = binary.BigEndian.AppendUint16(f, s.sport)
	f = binary.BigEndian.AppendUint16(f, s.dport)
	f = binary.BigEndian.AppendUint32(f, s.seq)
	f = binary.BigEndian.AppendUint32(f, s.ack)
	f = append(f, byte(5+len(s.options)/4)<<4|s.reserved, s.flags)
	f = binary.BigEndian.AppendUint16(f, s.window)
	f = append(f, 0, 0)
	f = binary.BigEndian.AppendUint16(f, s.urgent)
	return append(f, s.options...)
}

// onesSum adds 16-bit words one by one (RFC 1071).
func onesSum(sum uint32, b []byte) uint32 {
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

// fix computes the IPv4 header checksum and the TCP checksum of a frame without padding.
func fix(f []byte, l3, l4 int, protocol byte) {
	ip := f[l3:]
	length := len(f) - l4
	sum := uint32(protocol) + uint32(length)
	if ip[0]>>4 == 4 {
		ip[10], ip[11] = 0, 0
		binary.BigEndian.PutUint16(ip[10:], ^uint16(onesSum(0, f[l3:l4])))
		sum = onesSum(sum, ip[12:20])
	} else {
		sum = onesSum(sum, ip[8:40])
	}
	at := 16
	if protocol != 6 {
		at = 6
	}
	f[l4+at], f[l4+at+1] = 0, 0
	binary.BigEndian.PutUint16(f[l4+at:], ^uint16(onesSum(sum, f[l4:])))
}

// packet returns the frame as a packet whose checksum nobody has verified.
func (s segment) packet() Packet {
	f := s.build()
	return Packet{Data: f, Len: uint32(len(f))}
}

// packets builds several.
func packets(s ...segment) []Packet {
	p := make([]Packet, len(s))
	for i := range s {
		p[i] = s[i].packet()
	}
	return p
}

// train returns n segments of size bytes, changed by edit if it is not nil.
func train(n, size int, edit func(i int, s *segment)) []segment {
	out := make([]segment, n)
	for i := range out {
		out[i] = data(i, size)
		if edit != nil {
			edit(i, &out[i])
		}
	}
	return out
}

// groups returns the outputs as lists of input indexes, for example "[0 1] [2]", and fails the test if the chains are
// not what an aggregate promises.
func groups(t failer, in []Packet, out []Aggregate) string {
	t.Helper()
	text := ""
	for i := range out {
		if i > 0 {
			text += " "
		}
		text += fmt.Sprint(members(t, in, &out[i]))
	}
	return text
}

// members returns the indexes of an aggregate's packets.
func members(t failer, in []Packet, a *Aggregate) []int {
	t.Helper()
	var m []int
	last := int32(-1)
	for i := a.Head; i >= 0; i = in[i].Next {
		if i <= last {
			t.Fatalf("member %d follows member %d", i, last)
		}
		m = append(m, int(i))
		last = i
	}
	if last != a.Tail {
		t.Fatalf("the chain ends with %d, Tail is %d", last, a.Tail)
	}
	return m
}
