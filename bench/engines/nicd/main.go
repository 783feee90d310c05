// Command nicd benchmarks this repository's engine. What is timed is Engine.Batch: parsing, merging, and the headers of
// the aggregates; with verification also the checksums.
package main

import (
	"nicd/bench/harness"
	"nicd/bench/trace"
	"nicd/lro"
)

// The layout that the documentation recommends: two bytes before the frame, a stride that is no multiple of 2048.
const (
	stride = 2048 + 64
	offset = 2
)

type engine struct {
	lro     *lro.Engine
	in      []lro.Packet
	out     []lro.Aggregate
	headers [][trace.HeaderLen]byte
}

func main() {
	harness.Main(func(s trace.Spec, frames [][]byte, verify bool) harness.Engine {
		e := &engine{
			lro: lro.New(lro.Options{}), in: make([]lro.Packet, s.N), out: make([]lro.Aggregate, 0, trace.Batch),
			headers: make([][trace.HeaderLen]byte, s.N),
		}
		arena := make([]byte, s.N*stride)
		for i, f := range frames {
			d := arena[i*stride+offset:][:len(f):len(f)]
			copy(d, f)
			copy(e.headers[i][:], f)
			e.in[i] = lro.Packet{Data: d, Len: uint32(len(d))}
			if !verify {
				e.in[i].Checksum = lro.ChecksumVerified
			}
		}
		return e
	})
}

func (e *engine) Reset() {
	for i := range e.in {
		copy(e.in[i].Data, e.headers[i][:])
	}
}

func (e *engine) Batch(from, to int) int {
	e.out = e.lro.Batch(e.in[from:to], e.out[:0])
	return len(e.out)
}
