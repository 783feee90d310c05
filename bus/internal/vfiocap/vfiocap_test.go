package vfiocap

import (
	"reflect"
	"testing"
)

// describe is a description of a region of 16 KiB with capabilities.
func describe(flags, capOffset uint32, caps ...uint64) []byte {
	b := Info{Argsz: InfoSize + uint32(8*len(caps)), Flags: flags, Index: 2, CapOffset: capOffset,
		Size: 0x4000, Offset: 2 << 40}.Append(nil)
	for _, c := range caps {
		b = host.AppendUint64(b, c)
	}
	return b
}

// head is a capability's first 8 bytes.
func head(id, next uint64) uint64 { return id | 1<<16 | next<<32 }

func TestAreas(t *testing.T) {
	for what, c := range map[string]struct {
		b    []byte
		want []Area // nil for an error
	}{
		"not mappable":        {describe(Read|Write, 0), []Area{}},
		"whole":               {describe(Mmap, 0), []Area{{0, 0x4000}}},
		"whole, unknown caps": {describe(Mmap|Caps, 32, head(3, 0)), []Area{{0, 0x4000}}},
		"around an MSI-X table": {describe(Mmap|Caps, 32, head(1, 0), 2, 0, 0x1000, 0x3000, 0x1000),
			[]Area{{0, 0x1000}, {0x3000, 0x1000}}},
		"sparse after another": {describe(Mmap|Caps, 32, head(3, 40), head(1, 0), 1, 0x1000, 0x1000), []Area{{0x1000, 0x1000}}},
		"sparse but nothing":   {describe(Mmap|Caps, 32, head(1, 0), 0), []Area{}},
		"circle":               {describe(Mmap|Caps, 32, head(3, 32)), nil},
		"backwards":            {describe(Mmap|Caps, 40, head(1, 0), head(3, 32)), nil},
		"beyond the end":       {describe(Mmap|Caps, 40, head(1, 0)), nil},
		"inside the struct":    {describe(Mmap|Caps, 8, head(1, 0)), nil},
		"too many areas":       {describe(Mmap|Caps, 32, head(1, 0), 1<<32-1), nil},
		"area cut short":       {describe(Mmap|Caps, 32, head(1, 0), 1, 0), nil},
		"empty area":           {describe(Mmap|Caps, 32, head(1, 0), 1, 0, 0), nil},
		"area over the end":    {describe(Mmap|Caps, 32, head(1, 0), 1, 0x3000, 0x2000), nil},
		"area that wraps":      {describe(Mmap|Caps, 32, head(1, 0), 1, ^uint64(0), 2), nil},
	} {
		info, err := Parse(c.b)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		areas, err := Areas(c.b, info)
		if (err != nil) != (c.want == nil) {
			t.Errorf("%s: %v, %v", what, areas, err)
		} else if len(areas)+len(c.want) > 0 && !reflect.DeepEqual(areas, c.want) {
			t.Errorf("%s: %v, want %v", what, areas, c.want)
		}
	}
}

func TestParseShort(t *testing.T) {
	b := describe(0, 0)
	for n := range InfoSize {
		if _, err := Parse(b[:n]); err == nil {
			t.Errorf("%d bytes are enough", n)
		}
	}
	b[0] = InfoSize - 1
	if _, err := Parse(b); err == nil {
		t.Error("argsz does not matter")
	}
}
