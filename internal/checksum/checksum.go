// Package checksum holds the Internet checksum (RFC 1071): sums over byte slices and chains, and the pseudo-headers of
// TCP and UDP over IPv4 and IPv6.
//
// It computes and compares; it does not parse packets and it decides nothing. Parsing and policy live in lro and gso.
//
// A sum here is the folded 16-bit ones' complement sum of the data read as big-endian 16-bit words, as a number: the
// value that is written big-endian into a header is Sum's complement. A trailing odd byte counts as the high half of a
// word (RFC 1071 section 4.1). Nothing here allocates.
package checksum

import (
	"encoding/binary"
	"math/bits"
)

// Sum returns the folded sum of b. The sum of no bytes is 0; the sum of any other data is 0 only if all bytes are zero.
func Sum(b []byte) uint16 { return bits.ReverseBytes16(Fold(sumNative(b))) }

// Fold adds the four 16-bit parts of a sum with end-around carries (RFC 1071 section 1). The byte order of the parts is
// kept.
func Fold(s uint64) uint16 {
	s = s>>32 + s&0xffffffff
	s = s>>32 + s&0xffffffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	return uint16(s)
}

// Add returns the ones' complement sum of a and b.
func Add(a, b uint16) uint16 {
	s := uint32(a) + uint32(b)
	return uint16(s + s>>16)
}

// AddAt adds the sum of a piece of data that starts offset bytes behind the start of the whole. A piece at an odd
// offset has its bytes in the other halves of the words, which for a ones' complement sum is a byte swap (RFC 1071
// section 2(B)).
func AddAt(sum, piece uint16, offset int) uint16 {
	if offset&1 != 0 {
		piece = bits.ReverseBytes16(piece)
	}
	return Add(sum, piece)
}

// Pseudo4 returns the sum of the IPv4 pseudo-header (RFC 9293 section 3.1): addresses is the source and the destination
// address as they stand in the header, 8 bytes; length is the length of the transport header and its payload.
func Pseudo4(addresses []byte, protocol uint8, length int) uint16 {
	a := (*[8]byte)(addresses)
	s := uint64(binary.BigEndian.Uint32(a[0:])) + uint64(binary.BigEndian.Uint32(a[4:]))
	return Fold(s + uint64(protocol) + uint64(length))
}

// Pseudo6 returns the sum of the IPv6 pseudo-header (RFC 8200 section 8.1): addresses is the source and the destination
// address as they stand in the header, 32 bytes; length is the upper-layer packet length.
func Pseudo6(addresses []byte, protocol uint8, length int) uint16 {
	a := (*[32]byte)(addresses)
	s, c := bits.Add64(binary.BigEndian.Uint64(a[0:]), binary.BigEndian.Uint64(a[8:]), 0)
	s, c = bits.Add64(s, binary.BigEndian.Uint64(a[16:]), c)
	s, c = bits.Add64(s, binary.BigEndian.Uint64(a[24:]), c)
	s, c = bits.Add64(s, uint64(protocol)+uint64(length), c)
	return Fold(s + c)
}

// sumGeneric returns an unfolded sum of b as little-endian words. Words of 64 bits may be added because 2^64 is 1
// modulo 65535; the carry out of a word has the weight of the lowest bit.
func sumGeneric(b []byte) uint64 {
	var s, c uint64
	for len(b) >= 32 {
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b), 0)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b[8:]), c)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b[16:]), c)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b[24:]), c)
		s += c
		b = b[32:]
	}
	for len(b) >= 8 {
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(b), 0)
		s += c
		b = b[8:]
	}
	if len(b) > 0 {
		var last [8]byte
		copy(last[:], b)
		s, c = bits.Add64(s, binary.LittleEndian.Uint64(last[:]), 0)
		s += c
	}
	return s
}
