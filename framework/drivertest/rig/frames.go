package rig

import (
	"encoding/binary"

	"nicd/framework"
)

// Frame describes a frame to build.
type Frame struct {
	To, From framework.MAC // MAC and Peer if zero
	V6       bool
	UDP      bool
	TCI      uint16 // an 802.1Q tag in the frame, if not 0
	Port     uint16 // source port
	Seq      uint32
	Payload  int
	// IPOptions and TCPOptions are so many bytes of options, multiples of four.
	IPOptions, TCPOptions int
	TCPFlags              byte   // ACK if 0
	ID                    uint16 // IPv4's, 1 if 0
	BadIP                 bool   // wrong header checksum
	BadL4                 bool   // wrong TCP or UDP checksum
	NoSum                 bool   // UDP over IPv4 without a checksum
	Partial               bool   // pseudo-header sum in place of the checksum
	NoLength              bool   // Partial, without the length, as for TSO
}

// L4 is where the frame's TCP or UDP header starts.
func (f Frame) L4() int {
	at := 14 + 20 + f.IPOptions
	if f.V6 {
		at = 14 + 40
	}
	if f.TCI != 0 {
		at += 4
	}
	return at
}

// HeaderLen is the length of the frame's headers.
func (f Frame) HeaderLen() int {
	if f.UDP {
		return f.L4() + 8
	}
	return f.L4() + 20 + f.TCPOptions
}

// SumOffset is where the checksum lies in the TCP or UDP header.
func (f Frame) SumOffset() int {
	if f.UDP {
		return 6
	}
	return 16
}

// Offload is the metadata of a packet whose checksum the device is to fill in.
func (f Frame) Offload() framework.Packet {
	flags := framework.IPv4
	if f.V6 {
		flags = framework.IPv6
	}
	if f.UDP {
		flags |= framework.UDP
	} else {
		flags |= framework.TCP
	}
	return framework.Packet{
		Flags:         flags | framework.ChecksumPartial,
		HeaderLen:     uint16(f.HeaderLen()),
		ChecksumStart: uint16(f.L4()), ChecksumOffset: uint16(f.SumOffset()),
	}
}

// TSO is the metadata of a packet that the device is to cut.
func (f Frame) TSO(mss int) framework.Packet {
	p := f.Offload()
	p.Flags |= framework.Segment
	p.SegmentSize = uint16(mss)
	return p
}

// Build makes the frame. Payload bytes count up.
func (f Frame) Build() []byte {
	if f.To == (framework.MAC{}) {
		f.To = MAC
	}
	if f.From == (framework.MAC{}) {
		f.From = Peer
	}
	b := append(append([]byte(nil), f.To[:]...), f.From[:]...)
	if f.TCI != 0 {
		b = binary.BigEndian.AppendUint16(append(b, 0x81, 0), f.TCI)
	}
	length := f.HeaderLen() - f.L4() + f.Payload
	ip := len(b) + 2
	b = f.appendIP(b, length)
	l4 := len(b)
	b = f.appendL4(b, length)
	for i := range f.Payload {
		b = append(b, byte(i+int(f.Seq)))
	}
	sumAt := l4 + f.SumOffset()
	pseudo := pseudoSum(b[ip:], f.protocol(), length)
	switch {
	case f.NoSum:
	case f.NoLength:
		binary.BigEndian.PutUint16(b[sumAt:], pseudoSum(b[ip:], f.protocol(), 0))
	case f.Partial:
		binary.BigEndian.PutUint16(b[sumAt:], pseudo)
	default:
		binary.BigEndian.PutUint16(b[sumAt:], ^sum(uint32(pseudo), b[l4:]))
	}
	if f.BadL4 {
		b[sumAt] ^= 0x55
	}
	return b
}

func (f Frame) protocol() byte {
	if f.UDP {
		return 17
	}
	return 6
}

func (f Frame) appendIP(b []byte, length int) []byte {
	if f.V6 {
		b = append(b, 0x86, 0xDD, 0x60, 0, 0, 0)
		b = binary.BigEndian.AppendUint16(b, uint16(length))
		b = append(b, f.protocol(), 64)
		b = append(b, 0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2)
		return append(b, 0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1)
	}
	b = append(b, 0x08, 0)
	at := len(b)
	b = append(b, 0x45+byte(f.IPOptions/4), 0)
	b = binary.BigEndian.AppendUint16(b, uint16(20+f.IPOptions+length))
	b = binary.BigEndian.AppendUint16(b, max(f.ID, 1))
	b = append(b, 0x40, 0, 64, f.protocol(), 0, 0, 10, 0, 0, 2, 10, 0, 0, 1)
	b = appendNOPs(b, f.IPOptions)
	binary.BigEndian.PutUint16(b[at+10:], ^sum(0, b[at:]))
	if f.BadIP {
		b[at+10] ^= 0x55
	}
	return b
}

func (f Frame) appendL4(b []byte, length int) []byte {
	port := f.Port
	if port == 0 {
		port = 1000
	}
	b = binary.BigEndian.AppendUint16(b, port)
	b = binary.BigEndian.AppendUint16(b, 2000)
	if f.UDP {
		return binary.BigEndian.AppendUint32(b, uint32(length)<<16)
	}
	b = binary.BigEndian.AppendUint32(b, f.Seq)
	b = binary.BigEndian.AppendUint32(b, 77)
	flags := f.TCPFlags
	if flags == 0 {
		flags = flagACK
	}
	b = append(b, byte(5+f.TCPOptions/4)<<4, flags, 0x20, 0, 0, 0, 0, 0)
	return appendNOPs(b, f.TCPOptions)
}

const flagACK = 0x10

// appendNOPs appends options that say nothing, which is the same byte for IPv4 and
// for TCP.
func appendNOPs(b []byte, n int) []byte {
	for range n {
		b = append(b, 1)
	}
	return b
}

// Sums tells whether the checksums of a TCP or UDP frame are right. Padding behind
// the IP packet does not count.
func Sums(b []byte) bool {
	ip, etherType := framework.NetworkHeader(b)
	var l4, end int
	var protocol byte
	switch {
	case etherType == 0x0800 && len(b) >= ip+20:
		l4, end, protocol = ip+int(b[ip]&15)*4, ip+int(binary.BigEndian.Uint16(b[ip+2:])), b[ip+9]
		if l4 > len(b) || sum(0, b[ip:l4]) != 0xFFFF {
			return false
		}
	case etherType == 0x86DD && len(b) >= ip+40:
		l4, protocol = ip+40, b[ip+6]
		end = l4 + int(binary.BigEndian.Uint16(b[ip+4:]))
	default:
		return false
	}
	if end < l4 || end > len(b) {
		return false
	}
	return sum(uint32(pseudoSum(b[ip:], protocol, end-l4)), b[l4:end]) == 0xFFFF
}

func pseudoSum(ip []byte, protocol byte, length int) uint16 {
	addresses := ip[12:20]
	if ip[0]>>4 == 6 {
		addresses = ip[8:40]
	}
	return sum(uint32(protocol)+uint32(length), addresses)
}

// sum is the ones' complement sum of RFC 1071.
func sum(s uint32, b []byte) uint16 {
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	if len(b)%2 == 1 {
		s += uint32(b[len(b)-1]) << 8
	}
	for s>>16 != 0 {
		s = s&0xFFFF + s>>16
	}
	return uint16(s)
}
