package framework

import (
	"slices"
	"testing"
)

// registers is a region whose registers clear when they are read.
type registers map[uint32]uint32

func (r registers) Size() int { return 1 << 16 }
func (r registers) Read32(offset uint32) uint32 {
	v := r[offset]
	r[offset] = 0
	return v
}
func (r registers) Write32(offset, value uint32)         { r[offset] = value }
func (r registers) Read(offset uint32, _ int) uint32     { return r.Read32(offset) }
func (r registers) Write(offset uint32, _ int, v uint32) { r.Write32(offset, v) }

func TestStatistics(t *testing.T) {
	s := Statistics{{Offset: 0x10, Name: "a"}, {Offset: 0x20, Wide: true, Name: "b", Doc: "c", Bad: true}}
	r := registers{0x10: 3, 0x14: 9, 0x20: 4, 0x24: 1}
	totals := []uint64{1, 0}
	s.Read(r, totals)
	s.Read(r, totals)
	if want := []uint64{4, 1<<32 | 4}; !slices.Equal(totals, want) {
		t.Errorf("totals %v, want %v", totals, want)
	}
	if infos := s.Infos(); len(infos) != 2 || infos[0].Name != "a" || infos[1] != (CounterInfo{"b", "c", true}) {
		t.Errorf("infos %+v", infos)
	}
}

func TestRegister(t *testing.T) {
	r := registers{}
	Register{r, 8}.Write(5)
	if r[8] != 5 || len(r) != 1 {
		t.Errorf("registers %v", r)
	}
	WriteWords(r, 0x20, []uint32{7, 8, 9})
	if r[0x20] != 7 || r[0x24] != 8 || r[0x28] != 9 || len(r) != 4 {
		t.Errorf("registers %v", r)
	}
}
