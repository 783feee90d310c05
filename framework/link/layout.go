package link

import (
	"errors"
	"fmt"
	"math/bits"

	"nicd/bus"
	"nicd/framework"
)

// Errors of opening an arena, wrapped with what was found.
var (
	// ErrOptions: no arena can look like that.
	ErrOptions = errors.New("bad link options")
	// ErrArena: the memory is not an arena of this version, or not all of it.
	ErrArena = errors.New("not a link arena")
	// ErrGeneration: the arena belongs to a later engine by now.
	ErrGeneration = errors.New("link arena of another generation")
)

// Options say how large an arena is. The zero value works.
type Options struct {
	Queues      int // queue pairs; 1
	RxBuffers   int // receive buffers of a queue; 1024
	TxBuffers   int // transmit buffers of a queue; 1024
	OwnBuffers  int // buffers of a queue that are the engine's own, for headers and copies; 128
	BufferSize  int // bytes that a device may write to a buffer; 2048
	DMASize     int // bytes for descriptor rings; 1 MiB and as much per queue
	CounterSize int // bytes of the counters page; 4096 per queue and for the device
}

// Limits of Options.
const (
	MaxQueues      = 64
	MaxBuffers     = 1 << 16 // of one kind in a queue
	MinBufferSize  = 64
	MaxBufferSize  = 1 << 16
	MaxDMASize     = 1 << 30
	MaxCounterSize = 1 << 20
)

const (
	pageSize  = 4096
	lineSize  = 64
	entrySize = 64
)

// withDefaults replaces zero fields.
func (o Options) withDefaults() Options {
	set := func(field *int, def int) {
		if *field == 0 {
			*field = def
		}
	}
	set(&o.Queues, 1)
	set(&o.RxBuffers, 1024)
	set(&o.TxBuffers, 1024)
	set(&o.OwnBuffers, 128)
	set(&o.BufferSize, 2048)
	set(&o.DMASize, (1+o.Queues)<<20)
	set(&o.CounterSize, (1+o.Queues)*pageSize)
	return o
}

func (o Options) check() error {
	for _, f := range []struct {
		name            string
		value, min, max int
	}{
		{"queues", o.Queues, 1, MaxQueues},
		{"receive buffers", o.RxBuffers, 1, MaxBuffers},
		{"transmit buffers", o.TxBuffers, 1, MaxBuffers},
		{"own buffers", o.OwnBuffers, 1, MaxBuffers},
		{"buffer size", o.BufferSize, MinBufferSize, MaxBufferSize},
		{"DMA size", o.DMASize, pageSize, MaxDMASize},
		{"counter size", o.CounterSize, lineSize, MaxCounterSize},
	} {
		if f.value < f.min || f.value > f.max {
			return fmt.Errorf("%w: %s %d, allowed are %d to %d", ErrOptions, f.name, f.value, f.min, f.max)
		}
	}
	return nil
}

// Layout says where everything lies in an arena. Both ends compute it from the
// same Options; offsets are bytes from the arena's start.
type Layout struct {
	Options  // with defaults filled in
	counters int
	rings    int // of queue 0
	perQueue int // bytes of one queue's rings
	dma      int
	buffers  int
	stride   int
	size     int
}

// Layout computes the layout, with defaults for zero fields.
func (o Options) Layout() (Layout, error) {
	o = o.withDefaults()
	if err := o.check(); err != nil {
		return Layout{}, err
	}
	l := Layout{Options: o}
	l.DMASize = roundUp(o.DMASize, pageSize)
	l.CounterSize = roundUp(o.CounterSize, pageSize)
	l.counters = pageSize
	l.rings = l.counters + l.CounterSize
	for kind := range numRings {
		l.perQueue += l.ringSize(kind)
	}
	l.dma = roundUp(l.rings+o.Queues*l.perQueue, pageSize)
	l.buffers = l.dma + l.DMASize
	// Off multiples of 2048, see framework.Buffers; and a line for RxOffset.
	l.stride = roundUp(o.BufferSize, lineSize) + lineSize
	if l.stride%2048 == 0 {
		l.stride += lineSize
	}
	l.size = roundUp(l.buffers+l.numBuffers()*l.stride, pageSize)
	return l, nil
}

// Size is the size of the arena in bytes.
func (l Layout) Size() int { return l.size }

func (l Layout) buffersPerQueue() int { return l.RxBuffers + l.TxBuffers + l.OwnBuffers }
func (l Layout) numBuffers() int      { return l.Queues * l.buffersPerQueue() }

// capacity is the number of slots of a ring: a packet has at least as many
// buffers as entries, and each buffer is in one ring at most, so no ring but tx
// can overflow. Ports may send buffers they received, of any queue: the return
// ring has room for all.
func (l Layout) capacity(kind ringKind) int {
	switch kind {
	case ringRx:
		return ceilPow2(max(l.RxBuffers+l.TxBuffers, minPacketSlots))
	case ringRxReturn:
		return ceilPow2(l.RxBuffers)
	case ringTx:
		return ceilPow2(max(l.TxBuffers, minPacketSlots))
	default:
		return ceilPow2(l.numBuffers())
	}
}

func (l Layout) ringSize(kind ringKind) int {
	slot := entrySize
	if kind == ringRxReturn || kind == ringTxReturn {
		slot = 4
	}
	return ringControlSize + roundUp(l.capacity(kind)*slot, lineSize)
}

func (l Layout) ringOffset(queue int, kind ringKind) int {
	at := l.rings + queue*l.perQueue
	for k := range kind {
		at += l.ringSize(k)
	}
	return at
}

// Counters is the page of an arena in which the engine counts. Words in it are
// read while they are written.
func (l Layout) Counters(arena *bus.Memory) []byte {
	at := l.counters
	return arena.Bytes()[at : at+l.CounterSize : at+l.CounterSize]
}

// Buffers views an arena's packet buffers. Device address base is that of the
// arena's first byte.
func (l Layout) Buffers(arena *bus.Memory, base uint64) *framework.Buffers {
	return &framework.Buffers{
		Memory: arena.Bytes()[l.buffers:l.size:l.size],
		Addr:   base + uint64(l.buffers),
		Stride: uint32(l.stride),
		Size:   uint32(l.BufferSize),
		Count:  uint32(l.numBuffers()),
	}
}

// Range is Count buffers from First on.
type Range struct {
	First framework.Buffer
	Count uint32
}

func (r Range) has(b framework.Buffer) bool { return uint32(b-r.First) < r.Count }

// pool are a queue's buffers: for receive, for transmit, the engine's own.
func (l Layout) pool(queue int) (rx, tx, own Range) {
	n := queue * l.buffersPerQueue()
	return Range{framework.Buffer(n), uint32(l.RxBuffers)},
		Range{framework.Buffer(n + l.RxBuffers), uint32(l.TxBuffers)},
		Range{framework.Buffer(n + l.RxBuffers + l.TxBuffers), uint32(l.OwnBuffers)}
}

// RxRange is a queue's receive buffers. The host has them first; an engine
// gets those that are free by Reclaim.
func (l Layout) RxRange(queue int) Range { rx, _, _ := l.pool(queue); return rx }

// OwnRange is a queue's buffers that never leave the engine.
func (l Layout) OwnRange(queue int) Range { _, _, own := l.pool(queue); return own }

func roundUp(n, to int) int { return (n + to - 1) / to * to }

func ceilPow2(n int) int { return 1 << bits.Len(uint(n-1)) }
