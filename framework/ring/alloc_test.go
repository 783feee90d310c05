package ring

import (
	"errors"
	"sync/atomic"
	"testing"

	"nicd/framework"
)

// testDMA gives memory at device addresses that have nothing to do with Go's.
type testDMA struct {
	fails bool
	align int // of the last Alloc
}

var errNoMemory = errors.New("no memory")

const testAddr = 0x4000_0000

func (d *testDMA) Alloc(size, align int) (framework.Block, error) {
	if d.fails {
		return framework.Block{}, errNoMemory
	}
	d.align = align
	return framework.Block{Bytes: make([]byte, size), Addr: testAddr}, nil
}

type testShared struct {
	magic  uint32
	_      uint32
	queues uint64
	status atomic.Uint32
	table  [4]uint16
}

func TestAllocRings(t *testing.T) {
	dma := &testDMA{}
	c, err := AllocCommand[desc](dma, 8, 512, Owner{8, 1 << 31})
	if err != nil || c.Addr() != testAddr || c.Size() != 8 || dma.align != 512 {
		t.Errorf("command ring of %d at %#x, aligned to %d: %v", c.Size(), c.Addr(), dma.align, err)
	}
	p, err := AllocCompletion[desc](dma, 16, 256, Owner{8, 1 << 31})
	if err != nil || p.Addr() != testAddr || p.Size() != 16 || dma.align != 256 {
		t.Errorf("completion ring of %d at %#x, aligned to %d: %v", p.Size(), p.Addr(), dma.align, err)
	}
	d, err := AllocDone[desc](dma, 32, 128, Owner{8, 1})
	if err != nil || d.Addr() != testAddr || d.Size() != 32 || dma.align != 128 {
		t.Errorf("done ring of %d at %#x, aligned to %d: %v", d.Size(), d.Addr(), dma.align, err)
	}
}

func TestAllocFails(t *testing.T) {
	for want, dma := range map[error]*testDMA{errNoMemory: {fails: true}, ErrLayout: {}} {
		owner := Owner{8, 3} // two bits are none
		if _, err := AllocCommand[desc](dma, 8, 64, owner); !errors.Is(err, want) {
			t.Errorf("command ring: %v, want %v", err, want)
		}
		if _, err := AllocCompletion[desc](dma, 8, 64, owner); !errors.Is(err, want) {
			t.Errorf("completion ring: %v, want %v", err, want)
		}
		if _, err := AllocDone[desc](dma, 8, 64, owner); !errors.Is(err, want) {
			t.Errorf("done ring: %v, want %v", err, want)
		}
		if _, err := AllocShared[struct{ p *int }](dma, 64); !errors.Is(err, want) {
			t.Errorf("shared memory with a pointer: %v, want %v", err, want)
		}
	}
}

func TestShared(t *testing.T) {
	s, err := AllocShared[testShared](&testDMA{}, 64)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ got, want uint64 }{
		"start":   {AddrOf(s, s.Fields), testAddr},
		"field":   {AddrOf(s, &s.Fields.queues), testAddr + 8},
		"atomic":  {AddrOf(s, &s.Fields.status), testAddr + 16},
		"element": {AddrOf(s, &s.Fields.table[2]), testAddr + 24},
	} {
		if c.got != c.want {
			t.Errorf("%s at %#x, want %#x", name, c.got, c.want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("an address outside was given one")
		}
	}()
	AddrOf(s, new(uint64))
}

// TestSharedIsTheMemory: the struct is the block itself, not a copy.
func TestSharedIsTheMemory(t *testing.T) {
	mem := make([]byte, 32)
	s, err := view[testShared](mem)
	if err != nil {
		t.Fatal(err)
	}
	s.magic = 0x01020304
	s.status.Store(7)
	if mem[0] != 4 || mem[3] != 1 || mem[16] != 7 {
		t.Errorf("memory % x", mem)
	}
	if _, err := view[testShared](mem[:31]); !errors.Is(err, ErrLayout) {
		t.Errorf("too little memory: %v", err)
	}
	if _, err := view[testShared](mem[4:]); !errors.Is(err, ErrLayout) {
		t.Errorf("memory that is not aligned: %v", err)
	}
}
