package mmio

import "testing"

func TestStore32WritesOneWord(t *testing.T) {
	words := [3]uint32{1, 2, 3}
	Store32(&words[1], 0xdeadbeef)
	if words != [3]uint32{1, 0xdeadbeef, 3} {
		t.Errorf("words are %#x", words)
	}
	if got := Load32(&words[1]); got != 0xdeadbeef {
		t.Errorf("read %#x back", got)
	}
}

func TestRegionKeepsToItsBounds(t *testing.T) {
	r := NewRegion(make([]byte, 8))
	r.Write32(4, 7)
	for _, offset := range []uint32{2, 6, 8, 0xfffffffc} {
		r.Write32(offset, 9)
		if got := r.Read32(offset); got != ^uint32(0) {
			t.Errorf("read %#x at %#x, which is no register", got, offset)
		}
	}
	if r.Read32(0) != 0 || r.Read32(4) != 7 {
		t.Errorf("registers are %#x, %#x, want 0, 7", r.Read32(0), r.Read32(4))
	}
}

func BenchmarkStore32(b *testing.B) {
	b.ReportAllocs()
	r := NewRegion(make([]byte, 64))
	for i := range b.N {
		r.Write32(8, uint32(i))
	}
}
