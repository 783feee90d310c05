package e1000

import (
	"encoding/binary"
	"testing"

	"nicd/sim"
)

// pair is two devices on a wire, worked by the benchmark itself.
func pair(b *testing.B, kind Kind) (from, to *nic) {
	clock := &sim.ManualClock{}
	wire := sim.NewWire(sim.WireOptions{Clock: clock})
	b.Cleanup(wire.Close)
	from = newNIC(b, wire, clock, Options{Kind: kind, MAC: [6]byte{2, 0, 0, 0, 0, 1}})
	to = newNIC(b, wire, clock, Options{Kind: kind, MAC: [6]byte{2, 0, 0, 0, 0, 2}})
	from.start(0)
	to.start(0)
	to.w(0x5000, 0x300)
	return from, to
}

// drain takes what was received and posts its buffers again.
func (n *nic) drain() {
	r := &n.rx[0]
	at, count := 12, 0
	if n.ext {
		at = 8
	}
	for {
		d := n.rxDesc(0, r.next)
		if d[at]&1 == 0 {
			break
		}
		d[at] = 0
		binary.LittleEndian.PutUint64(d, uint64(iova+n.rxBuf(0, r.next)))
		d[8], d[9], d[10], d[11] = 0, 0, 0, 0
		r.next = (r.next + 1) % n.n
		count++
	}
	r.tail = (r.tail + uint32(count)) % n.n
	n.w(0x2818, r.tail)
}

func benchmarkFrames(b *testing.B, kind Kind, size, batch int) {
	from, to := pair(b, kind)
	frame := tcpip(to.mac(), flow{}, make([]byte, size-54))
	at := from.stage(0, frame)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		cmd := uint32(txCmdEOP | txCmdIFCS)
		if i%batch == batch-1 {
			cmd |= txCmdRS
		}
		from.put(0, at, uint32(size)|cmd<<24, 0)
		if i%batch == batch-1 {
			from.w(0x3818, from.tx[0].tail)
			from.work()
			to.drain()
		}
	}
}

func BenchmarkTxRx64(b *testing.B) {
	b.Run("82540EM", func(b *testing.B) { benchmarkFrames(b, I82540EM, 64, 32) })
	b.Run("82574L", func(b *testing.B) { benchmarkFrames(b, I82574L, 64, 32) })
}

func BenchmarkTxRx1514(b *testing.B) { benchmarkFrames(b, I82574L, 1514, 32) }

// BenchmarkTSO64K sends one TSO packet an operation to a receiver that takes it
// cut, and to one that takes it whole.
func BenchmarkTSO64K(b *testing.B) {
	for _, whole := range []bool{false, true} {
		name := "cut"
		if whole {
			name = "whole"
		}
		b.Run(name, func(b *testing.B) { benchmarkTSO(b, whole) })
	}
}

func benchmarkTSO(b *testing.B, whole bool) {
	from, to := pair(b, I82574L)
	if whole {
		clock := &sim.ManualClock{}
		wire := sim.NewWire(sim.WireOptions{Clock: clock})
		from = newNIC(b, wire, clock, Options{Kind: I82574L})
		wire.Connect(&sink{buf: make([]byte, 1<<16)})
		from.start(0)
	}
	frame, c, _ := tso(false, make([]byte, 65160), 1448)
	copy(frame, to.m.opt.MAC[:])
	from.stage(0, frame)
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		from.context(0, c)
		from.put(0, iova+txBufs, uint32(c.hdrlen)|dextData|txCmdTSE<<24, 3<<8)
		at := uint64(iova+txBufs) + uint64(c.hdrlen)
		for left := len(frame) - int(c.hdrlen); left > 0; left -= 4096 {
			cmd := uint32(txCmdTSE)
			if left <= 4096 {
				cmd |= txCmdEOP | txCmdIFCS | txCmdRS
			}
			from.put(0, at, uint32(min(left, 4096))|dextData|cmd<<24, 0)
			at += 4096
		}
		from.w(0x3818, from.tx[0].tail)
		from.work()
		if !whole {
			to.drain()
		}
	}
}

// sink takes frames in any form and copies them.
type sink struct{ buf []byte }

func (s *sink) Plug(*sim.Port)   {}
func (s *sink) Wants() sim.Wants { return sim.Wants{Segment: true, Partial: true} }
func (s *sink) Resume()          {}
func (s *sink) SetLink(bool)     {}

func (s *sink) Receive(frames []sim.Frame, _ bool) int {
	for i := range frames {
		frames[i].CopyTo(s.buf, 0)
	}
	return len(frames)
}
