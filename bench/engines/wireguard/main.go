//go:build export

// Command wireguard benchmarks handleGRO of golang.zx2c4.com/wireguard. That function is not exported: the command run builds
// this one against a copy of the module with engines/wireguard/export.go.txt added to package tun. What is timed is handleGRO and the reset
// of its table: parsing, copying payload, checksums in software (always), the virtio-net header.
//
// Payload is copied into the first packet's buffer, which therefore needs room for 64 KiB; 64 of these buffers are
// filled before each batch, outside of the time. So the data is always hot.
package main

import (
	"golang.zx2c4.com/wireguard/tun"

	"nicd/bench/harness"
	"nicd/bench/trace"
)

const offset = 10 // virtio-net header

type engine struct {
	gro     *tun.BenchGRO
	frames  [][]byte
	buffers [][]byte
	toWrite []int
}

func main() {
	harness.Main(func(s trace.Spec, frames [][]byte, verify bool) harness.Engine {
		if !verify || s.N != trace.Hot {
			return nil
		}
		e := &engine{gro: tun.NewBenchGRO(), frames: frames, buffers: make([][]byte, trace.Batch), toWrite: make([]int, 0, trace.Batch)}
		for i := range e.buffers {
			e.buffers[i] = make([]byte, 0, offset+65535)
		}
		return e
	})
}

func (e *engine) Reset() {}

func (e *engine) Prepare(from, to int) {
	for i, f := range e.frames[from:to] {
		e.buffers[i] = append(e.buffers[i][:offset], f[14:]...)
	}
}

func (e *engine) Batch(from, to int) int {
	e.toWrite = e.toWrite[:0]
	if err := e.gro.Handle(e.buffers[:to-from], offset, &e.toWrite); err != nil {
		panic(err)
	}
	return len(e.toWrite)
}
