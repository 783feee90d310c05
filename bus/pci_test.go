package bus

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// function is a PCI function with so many BARs of I/O ports, some out of reach.
type function struct {
	Device
	config map[int]uint32
	fails  map[int]error
}

type ports struct {
	Region
	bar int
}

func (ports) Size() int              { return 64 }
func (ports) Read32(uint32) uint32   { return 0 }
func (ports) Write32(uint32, uint32) {}

func (f *function) ReadConfig(offset, _ int) (uint32, error) {
	return f.config[offset], f.fails[-offset]
}

func (f *function) Region(i int) (Region, error) {
	if err := f.fails[i]; err != nil {
		return nil, err
	}
	return ports{bar: i}, nil
}

func TestIORegion(t *testing.T) {
	io := map[int]uint32{0x10: 0xE0000000, 0x14: 0xC001, 0x1C: 0xC041}
	other := errors.New("other")
	for name, c := range map[string]struct {
		config map[int]uint32
		fails  map[int]error
		bar    int
		err    error
	}{
		"the first":        {io, nil, 1, nil},
		"one out of reach": {io, map[int]error{1: ErrUnsupported}, 3, nil},
		"all out of reach": {io, map[int]error{1: ErrUnsupported, 3: ErrNoRegion}, 0, ErrNoRegion},
		"none":             {map[int]uint32{0x10: 0xE0000000}, nil, 0, ErrNoRegion},
		"broken":           {io, map[int]error{1: other}, 0, other},
		"gone":             {io, map[int]error{-0x14: ErrGone}, 0, ErrGone},
	} {
		r, err := IORegion(&function{config: c.config, fails: c.fails})
		if !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %v", name, err, c.err)
		} else if err == nil && r.(ports).bar != c.bar {
			t.Errorf("%s: BAR %d, want %d", name, r.(ports).bar, c.bar)
		}
	}
}

func TestCapabilities(t *testing.T) {
	list := map[int]uint32{0x06: 0x10, 0x34: 0x42, 0x40: 0x09, 0x41: 0x60, 0x60: 0x11, 0x61: 0x50, 0x50: 0x09, 0x51: 0}
	loop := map[int]uint32{0x06: 0x10, 0x34: 0x40, 0x40: 0x11, 0x41: 0x40}
	for name, c := range map[string]struct {
		config map[int]uint32
		kind   uint8
		want   []int
	}{
		"two of a kind":   {list, 0x09, []int{0x40, 0x50}},
		"one":             {list, 0x11, []int{0x60}},
		"none":            {list, 0x05, nil},
		"no list":         {map[int]uint32{0x34: 0x40, 0x40: 0x09}, 0x09, nil},
		"into the header": {map[int]uint32{0x06: 0x10, 0x34: 0x10, 0x10: 0x09}, 0x09, nil},
	} {
		at, err := Capabilities(&function{config: c.config}, c.kind)
		if err != nil || !slices.Equal(at, c.want) {
			t.Errorf("%s: %v, %v, want %v", name, at, err, c.want)
		}
	}
	if at, err := Capabilities(&function{config: loop}, 0x05); at != nil || err != nil {
		t.Errorf("a list that loops has %v, %v", at, err)
	}
	if _, err := Capabilities(&function{config: list, fails: map[int]error{-0x60: ErrGone}}, 0x09); !errors.Is(err, ErrGone) {
		t.Errorf("a device that goes away: %v", err)
	}
}

// sequence is a register that reads as one value after the other, and the last one
// for ever.
type sequence struct {
	ports
	values []uint32
}

func (s *sequence) Read32(uint32) uint32 {
	v := s.values[0]
	if len(s.values) > 1 {
		s.values = s.values[1:]
	}
	return v
}

func TestAwait(t *testing.T) {
	for name, c := range map[string]struct {
		values []uint32
		limit  time.Duration
		value  uint32
		err    error
	}{
		"at once":      {[]uint32{0x15}, time.Minute, 0x15, nil},
		"later":        {[]uint32{0, 1, 0x14}, time.Minute, 0x14, nil},
		"never":        {[]uint32{1}, time.Millisecond, 1, ErrTimeout},
		"gone":         {[]uint32{0, Gone}, time.Minute, Gone, ErrGone}, // though it has the bits
		"with no time": {[]uint32{0x15}, 0, 0x15, nil},
	} {
		if v, err := Await(&sequence{values: c.values}, 0, 0x14, 0x14, c.limit); v != c.value || !errors.Is(err, c.err) {
			t.Errorf("%s: %#x, %v", name, v, err)
		}
	}
}

func TestUntil(t *testing.T) {
	turns := 0
	if !Until(time.Minute, func() bool { turns++; return turns == 3 }) || turns != 3 {
		t.Errorf("%d turns", turns)
	}
	if turns = 0; Until(-time.Second, func() bool { turns++; return false }) || turns != 1 {
		t.Errorf("after the limit: %d turns, want one look", turns)
	}
}
