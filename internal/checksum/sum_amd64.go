package checksum

import "golang.org/x/sys/cpu"

const (
	// vectorLeast is where the vector code begins to be faster than the generic one.
	vectorLeast = 128
	// vectorMost keeps the 32-bit lanes of sumAVX2 from overflowing: it takes 2^15 words of at most 2^15 in magnitude.
	vectorMost = 1 << 15
)

var hasAVX2 = cpu.X86.HasAVX2

// sumAVX2 returns the sum of n bytes from p as little-endian 16-bit words, each of them less 0x8000; n is a positive
// multiple of 32 and at most 65536.
//
//go:noescape
func sumAVX2(p *byte, n int) int64

func sumNative(b []byte) uint64 {
	if len(b) < vectorLeast || !hasAVX2 {
		return sumGeneric(b)
	}
	return sumVector(b)
}

// sumVector returns the same as sumGeneric modulo 65535; the CPU must have AVX2.
func sumVector(b []byte) uint64 {
	var s uint64
	for len(b) >= 32 {
		n := min(len(b), vectorMost) &^ 31
		s += uint64(sumAVX2(&b[0], n) + int64(n/2)*0x8000)
		b = b[n:]
	}
	return s + uint64(Fold(sumGeneric(b)))
}
