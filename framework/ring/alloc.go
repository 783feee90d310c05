package ring

import (
	"reflect"

	"nicd/framework"
)

// AllocCommand is NewCommand in memory that dma gives, aligned for the device.
// The ring knows its device address, see Addr, and lives as long as the memory.
func AllocCommand[D any](dma framework.DMA, n, align int, gen Owner) (*Command[D], error) {
	b, err := alloc[D](dma, n, align)
	if err != nil {
		return nil, err
	}
	c, err := NewCommand[D](b.Bytes, n, gen)
	if err != nil {
		return nil, err
	}
	c.addr = b.Addr
	return c, nil
}

// AllocCompletion is NewCompletion in memory that dma gives, as AllocCommand is.
func AllocCompletion[D any](dma framework.DMA, n, align int, gen Owner) (*Completion[D], error) {
	b, err := alloc[D](dma, n, align)
	if err != nil {
		return nil, err
	}
	c, err := NewCompletion[D](b.Bytes, n, gen)
	if err != nil {
		return nil, err
	}
	c.addr = b.Addr
	return c, nil
}

// AllocDone is NewDone in memory that dma gives, as AllocCommand is.
func AllocDone[D any](dma framework.DMA, n, align int, done Owner) (*Done[D], error) {
	b, err := alloc[D](dma, n, align)
	if err != nil {
		return nil, err
	}
	r, err := NewDone[D](b.Bytes, n, done)
	if err != nil {
		return nil, err
	}
	r.addr = b.Addr
	return r, nil
}

func alloc[D any](dma framework.DMA, n, align int) (framework.Block, error) {
	return dma.Alloc(max(n, 1)*int(reflect.TypeFor[D]().Size()), align)
}

// Shared is memory outside of rings that driver and device both see, as a struct:
// queue descriptors, say, or what a device reads when it is activated.
//
// T has the layout of the device's structure, without Go pointers, in
// little-endian fields and with its gaps spelled out where Go would leave none.
// What the device may write at any time is an atomic.Uint32 or atomic.Uint64; the
// rest is plain, and the device's from the register write on that makes it look.
type Shared[T any] struct {
	Fields *T
	Addr   uint64 // device address of *Fields
}

// AllocShared makes a T of zeros in memory that dma gives, aligned for the device.
// It is valid as long as the memory.
func AllocShared[T any](dma framework.DMA, align int) (Shared[T], error) {
	b, err := alloc[T](dma, 1, align)
	if err != nil {
		return Shared[T]{}, err
	}
	fields, err := view[T](b.Bytes)
	if err != nil {
		return Shared[T]{}, err
	}
	return Shared[T]{Fields: fields, Addr: b.Addr}, nil
}

// AddrOf is the device address of a part of s: a pointer to one of its fields, or
// to an element of one. Any other pointer panics.
func AddrOf[T, F any](s Shared[T], part *F) uint64 { return s.Addr + offset(s.Fields, part) }
