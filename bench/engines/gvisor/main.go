// Command gvisor benchmarks the GRO engine of gVisor's network stack. What is timed is Enqueue for each packet and
// Flush: parsing, merging, with verification also the checksums. Making the packet buffers is not timed, releasing them
// is (it is part of Flush).
package main

import (
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/stack/gro"

	"nicd/bench/harness"
	"nicd/bench/trace"
)

type engine struct {
	gro     gro.GRO
	frames  [][]byte
	packets []*stack.PacketBuffer
	verify  bool
	outputs int
}

func (e *engine) DeliverNetworkPacket(tcpip.NetworkProtocolNumber, *stack.PacketBuffer) { e.outputs++ }

func (e *engine) DeliverLinkPacket(tcpip.NetworkProtocolNumber, *stack.PacketBuffer) {}

func main() {
	harness.Main(func(s trace.Spec, frames [][]byte, verify bool) harness.Engine {
		e := &engine{frames: frames, packets: make([]*stack.PacketBuffer, s.N), verify: verify}
		e.gro.Init(true)
		e.gro.Dispatcher = e
		return e
	})
}

func (e *engine) Reset() {
	for range trace.Batch {
		e.gro.Flush() // one call flushes one packet of each bucket only
	}
	for i, f := range e.frames {
		if e.packets[i] != nil {
			e.packets[i].DecRef()
		}
		p := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(f[14:])})
		p.NetworkProtocolNumber = header.IPv4ProtocolNumber
		p.RXChecksumValidated = !e.verify
		e.packets[i] = p
	}
}

func (e *engine) Batch(from, to int) int {
	e.outputs = 0
	for _, p := range e.packets[from:to] {
		e.gro.Enqueue(p)
	}
	e.gro.Flush()
	return e.outputs
}
