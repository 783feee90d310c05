package checksum

import (
	"math/bits"
	"math/rand/v2"
	"testing"
)

// TestVectorIsGeneric compares the two implementations on random data of all lengths and alignments, and on the data
// that brings the lanes to their limits.
func TestVectorIsGeneric(t *testing.T) {
	if !hasAVX2 {
		t.Skip("the CPU has no AVX2")
	}
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	random := make([]byte, 200000)
	for i := range random {
		random[i] = byte(r.Uint32())
	}
	same := func(b []byte) {
		t.Helper()
		if got, want := Fold(sumVector(b)), Fold(sumGeneric(b)); got != want {
			t.Fatalf("%d bytes: %#x, want %#x", len(b), bits.ReverseBytes16(got), bits.ReverseBytes16(want))
		}
	}
	for n := range 1000 {
		off := r.IntN(64)
		same(random[off : off+n])
	}
	for range 300 {
		off := r.IntN(64)
		same(random[off : off+r.IntN(len(random)-off)])
	}
	for _, v := range []byte{0, 0x7f, 0x80, 0xff} {
		b := make([]byte, 200000)
		for i := range b {
			b[i] = v
		}
		for _, n := range []int{32, 64, 128, 160, vectorMost - 1, vectorMost, vectorMost + 31, vectorMost + 32, 2 * vectorMost, len(b)} {
			same(b[:n])
		}
	}
}

func BenchmarkSumGeneric(b *testing.B) { benchmarkSum(b, sumGeneric) }

func BenchmarkSumVector(b *testing.B) {
	if !hasAVX2 {
		b.Skip("the CPU has no AVX2")
	}
	benchmarkSum(b, sumVector)
}

func benchmarkSum(b *testing.B, sum func([]byte) uint64) {
	data := make([]byte, 1480)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		sum(data)
	}
}
