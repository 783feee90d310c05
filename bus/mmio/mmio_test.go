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

// Narrow registers are accessed alone: what lies beside one keeps its value.
func TestNarrowRegisters(t *testing.T) {
	mem := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	r := NewRegion(mem)
	r.Write(1, 1, 0xffaa)
	r.Write(6, 2, 0xffbbcc)
	for _, c := range []struct {
		offset uint32
		size   int
		want   uint32
	}{
		{0, 1, 1}, {1, 1, 0xaa}, {2, 1, 3}, {0, 2, 0xaa01}, {2, 2, 0x0403}, {4, 2, 0x0605}, {6, 2, 0xbbcc},
		{0, 4, 0x0403aa01}, {4, 4, 0xbbcc0605},
		{1, 2, 0xffff}, {8, 1, 0xff}, {7, 2, 0xffff}, {0xffffffff, 1, 0xff}, {2, 4, 0xffffffff},
	} {
		if got := r.Read(c.offset, c.size); got != c.want {
			t.Errorf("%d bytes at %#x are %#x, want %#x", c.size, c.offset, got, c.want)
		}
	}
	r.Write(1, 2, 0)
	r.Write(8, 1, 0)
	if got := r.Read(0, 4); got != 0x0403aa01 {
		t.Errorf("a write to no register made %#x", got)
	}
}

func BenchmarkStore32(b *testing.B) {
	b.ReportAllocs()
	r := NewRegion(make([]byte, 64))
	for i := range b.N {
		r.Write32(8, uint32(i))
	}
}
