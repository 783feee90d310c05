package rig

import (
	"slices"

	"nicd/framework"
)

// This file is what a device is to send.

// Put puts one packet of data, spread over fragments of size bytes, to transmit
// queue q, and tells whether the queue took it. It does not ring.
func (r *Rig) Put(q int, data []byte, size int, meta framework.Packet) bool {
	r.T.Helper()
	return r.PutPieces(q, meta, slices.Collect(slices.Chunk(data, size))...)
}

// PutPieces is Put with the fragments given.
func (r *Rig) PutPieces(q int, meta framework.Packet, pieces ...[]byte) bool {
	r.T.Helper()
	b := framework.NewBatch(1, framework.MaxFragments)
	bufs := r.take(len(pieces), test)
	meta.Frags = uint16(len(bufs))
	for i, buf := range bufs {
		f := framework.Fragment{Buffer: buf, Offset: uint32(i % 7), Len: uint32(len(pieces[i]))}
		meta.Len += f.Len
		copy(r.Buffers.Bytes(f), pieces[i])
		b.Frags = append(b.Frags, f)
	}
	b.Packets = append(b.Packets, meta)
	if r.Queues.Tx[q].Put(b, 0) == 0 {
		for _, buf := range bufs {
			r.give(buf)
		}
		return false
	}
	for _, buf := range bufs {
		r.with[buf] = device
	}
	r.sent[q] = append(r.sent[q], bufs)
	return true
}

// Reap takes completions of transmit queue q and returns how many packets were
// finished.
func (r *Rig) Reap(q int) int { return r.ReapAtMost(q, 64) }

// ReapAtMost is Reap with the number of completions that are asked for.
func (r *Rig) ReapAtMost(q, most int) int {
	r.T.Helper()
	n := r.Queues.Tx[q].Completed(most)
	if n > len(r.sent[q]) {
		r.T.Fatalf("%d packets finished, %d sent", n, len(r.sent[q]))
	}
	for _, bufs := range r.sent[q][:n] {
		for _, b := range bufs {
			r.give(b)
		}
	}
	r.sent[q] = r.sent[q][n:]
	return n
}

// Send puts, rings and waits until the packet is finished.
func (r *Rig) Send(q int, data []byte, size int, meta framework.Packet) {
	r.T.Helper()
	meta.Flags |= framework.Completion
	if !r.Put(q, data, size, meta) {
		r.T.Fatal("transmit queue is full")
	}
	r.Queues.Tx[q].Bell()
	r.Until("transmit completion", func() bool { r.Reap(q); return len(r.sent[q]) == 0 })
}

// InFlight is how many packets of transmit queue q are not finished.
func (r *Rig) InFlight(q int) int { return len(r.sent[q]) }
