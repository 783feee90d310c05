package checksum

import (
	"math/rand/v2"
	"testing"
)

// slow adds words one by one.
func slow(b []byte) uint16 {
	var s uint32
	for i := range b {
		w := uint32(b[i])
		if i%2 == 0 {
			w <<= 8
		}
		s += w
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

func TestSum(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	b := make([]byte, 70000)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	ones := make([]byte, 70000)
	for i := range ones {
		ones[i] = 0xff
	}
	for n := range 600 {
		for _, data := range [][]byte{b, ones, make([]byte, 600)} {
			off := r.IntN(64)
			data = data[min(off, len(data)-n):][:n]
			if got, want := Sum(data), slow(data); got != want {
				t.Fatalf("%d bytes: %#x, want %#x", n, got, want)
			}
		}
	}
	for range 200 {
		off, n := r.IntN(64), r.IntN(len(b)-64)
		if got, want := Sum(b[off:off+n]), slow(b[off:off+n]); got != want {
			t.Fatalf("%d bytes at %d: %#x, want %#x", n, off, got, want)
		}
		if got, want := Sum(ones[off:off+n]), slow(ones[off:off+n]); got != want {
			t.Fatalf("%d ones at %d: %#x, want %#x", n, off, got, want)
		}
	}
}

func TestAddAt(t *testing.T) {
	b := []byte{1, 2, 3, 4, 5, 6, 7, 0xff, 0xfe}
	for i := range len(b) + 1 {
		if got := AddAt(Sum(b[:i]), Sum(b[i:]), i); got != slow(b) {
			t.Errorf("cut at %d: %#x", i, got)
		}
	}
}

func TestPseudo(t *testing.T) {
	a := make([]byte, 32)
	for i := range a {
		a[i] = 0xff - byte(i)
	}
	if got, want := Pseudo4(a[:8], 6, 65535), slow(append(append([]byte{}, a[:8]...), 0, 6, 0xff, 0xff)); got != want {
		t.Errorf("IPv4: %#x, want %#x", got, want)
	}
	if got, want := Pseudo6(a, 6, 65575), slow(append(append([]byte{}, a...), 0, 1, 0, 39, 0, 0, 0, 6)); got != want {
		t.Errorf("IPv6: %#x, want %#x", got, want)
	}
}

// FuzzSum compares with the sum of word after word, at any alignment.
func FuzzSum(f *testing.F) {
	f.Add([]byte{0xff, 0xff, 0xff}, uint8(0))
	f.Add(make([]byte, 200), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, off uint8) {
		b = b[min(int(off), len(b)):]
		if got, want := Sum(b), slow(b); got != want {
			t.Errorf("%#x, want %#x", got, want)
		}
	})
}
