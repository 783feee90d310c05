package link

import (
	"encoding/binary"
	"fmt"

	"nicd/bus"
)

// The arena's header, in host byte order. The host writes it; the lower end
// copies it out once, checks it and computes its own layout.
const (
	headerMagic   = 0x6b6e696c6463696e // "nicdlink"
	headerVersion = 1

	offMagic      = 0
	offVersion    = 8
	offGeneration = 12
	offOptions    = 16 // seven words: the fields of Options in order
	offSize       = 48
	headerSize    = 56
)

func writeHeader(arena *bus.Memory, l Layout, generation uint32) {
	b := arena.Bytes()
	binary.NativeEndian.PutUint32(b[offVersion:], headerVersion)
	fields := []int{l.Queues, l.RxBuffers, l.TxBuffers, l.OwnBuffers, l.BufferSize, l.DMASize, l.CounterSize}
	for i, v := range fields {
		binary.NativeEndian.PutUint32(b[offOptions+4*i:], uint32(v))
	}
	binary.NativeEndian.PutUint64(b[offSize:], uint64(l.size))
	binary.NativeEndian.PutUint64(b[offMagic:], headerMagic)
	bus.Word(b, offGeneration).Store(generation)
}

// readHeader returns the layout and the generation that the header tells.
func readHeader(arena *bus.Memory) (Layout, uint32, error) {
	if arena.Size() < pageSize {
		return Layout{}, 0, fmt.Errorf("%w: %d bytes", ErrArena, arena.Size())
	}
	var h [headerSize]byte
	generation := bus.Word(arena.Bytes(), offGeneration).Load()
	copy(h[:], arena.Bytes())
	if m := binary.NativeEndian.Uint64(h[offMagic:]); m != headerMagic {
		return Layout{}, 0, fmt.Errorf("%w: magic %#x", ErrArena, m)
	}
	if v := binary.NativeEndian.Uint32(h[offVersion:]); v != headerVersion {
		return Layout{}, 0, fmt.Errorf("%w: version %d, this is version %d", ErrArena, v, headerVersion)
	}
	field := func(i int) int { return int(binary.NativeEndian.Uint32(h[offOptions+4*i:])) }
	l, err := Options{
		Queues: field(0), RxBuffers: field(1), TxBuffers: field(2), OwnBuffers: field(3),
		BufferSize: field(4), DMASize: field(5), CounterSize: field(6),
	}.Layout()
	if err != nil {
		return Layout{}, 0, fmt.Errorf("%w: %w", ErrArena, err)
	}
	if said := binary.NativeEndian.Uint64(h[offSize:]); said != uint64(l.size) || l.size > arena.Size() {
		return Layout{}, 0, fmt.Errorf("%w: header says %d bytes, layout needs %d, memory has %d",
			ErrArena, said, l.size, arena.Size())
	}
	return l, generation, nil
}
