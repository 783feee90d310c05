package sim

import (
	"encoding/binary"
	"math/bits"
)

// sum adds data to an Internet checksum in progress (RFC 1071): a folded ones'
// complement sum of big-endian 16-bit words. Data starts at an even offset of
// what is summed.
func sum(s uint16, data []byte) uint16 {
	// Words of 64 bits may be added with end-around carry in either byte order
	// (RFC 1071, 2(A), 2(B)); the sum is swapped at the end.
	var acc, carry uint64
	for len(data) >= 64 {
		d := (*[64]byte)(data)
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(d[0:]), carry)
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(d[8:]), carry)
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(d[16:]), carry)
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(d[24:]), carry)
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(d[32:]), carry)
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(d[40:]), carry)
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(d[48:]), carry)
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(d[56:]), carry)
		data = data[64:]
	}
	for len(data) >= 8 {
		acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(data), carry)
		data = data[8:]
	}
	var tail [8]byte
	copy(tail[:], data)
	acc, carry = bits.Add64(acc, binary.LittleEndian.Uint64(tail[:]), carry)
	acc, carry = bits.Add64(acc, carry, 0)
	return fold(uint64(s) + uint64(bits.ReverseBytes16(fold(acc+carry))))
}

func fold(s uint64) uint16 {
	s = s>>32 + s&0xffffffff
	s = s>>32 + s&0xffffffff
	s = s>>16 + s&0xffff
	s = s>>16 + s&0xffff
	return uint16(s)
}

// sumParts adds n bytes of parts from offset from on.
func sumParts(s uint16, parts [][]byte, from, n int) uint16 {
	odd := false
	for _, p := range parts {
		if from >= len(p) {
			from -= len(p)
			continue
		}
		p = p[from:min(len(p), from+n)]
		from = 0
		if odd {
			// A piece at an odd offset has its bytes in the other halves.
			s = fold(uint64(s) + uint64(bits.ReverseBytes16(sum(0, p))))
		} else {
			s = sum(s, p)
		}
		odd = odd != (len(p)&1 != 0)
		if n -= len(p); n == 0 {
			break
		}
	}
	return s
}
