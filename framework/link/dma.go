package link

import (
	"errors"
	"fmt"

	"nicd/bus"
	"nicd/framework"
)

// ErrDMAFull: the arena has not that much memory for descriptors.
var ErrDMAFull = errors.New("no DMA memory left")

// DMA hands out the arena's memory for descriptor rings, and is a
// framework.DMA. Memory is taken back all at once, down to a mark: what is
// allocated between a device's Start and Stop goes with Rewind after Stop. For
// the control path: calls do not overlap.
type DMA struct {
	mem  []byte
	addr uint64 // device address of mem[0]
	next int
}

func (l Layout) newDMA(arena *bus.Memory, base uint64) *DMA {
	return &DMA{mem: arena.Bytes()[l.dma:l.buffers:l.buffers], addr: base + uint64(l.dma)}
}

// Alloc returns size zeroed bytes whose device address is a multiple of align,
// a power of two (0 and 1: any).
func (d *DMA) Alloc(size, align int) (framework.Block, error) {
	if size <= 0 || align < 0 || align&(align-1) != 0 {
		return framework.Block{}, fmt.Errorf("DMA memory of %d bytes aligned to %d: %w", size, align, ErrOptions)
	}
	at := d.next
	if align > 1 {
		at += int(-(d.addr + uint64(at)) & uint64(align-1))
	}
	if at > len(d.mem) || size > len(d.mem)-at {
		return framework.Block{}, fmt.Errorf("%w: %d bytes asked for, %d of %d in use", ErrDMAFull, size, d.next, len(d.mem))
	}
	d.next = at + size
	b := d.mem[at:d.next:d.next]
	clear(b)
	return framework.Block{Bytes: b, Addr: d.addr + uint64(at)}, nil
}

// Mark is a point to Rewind to.
func (d *DMA) Mark() int { return d.next }

// Rewind takes back all that was allocated after mark. No device may be using
// it.
func (d *DMA) Rewind(mark int) {
	if mark >= 0 && mark <= d.next {
		d.next = mark
	}
}
