// Package sink holds the two simplest ports, for benchmarks and tests: one that
// swallows all that it is given and one that besides sends as fast as it can.
package sink

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"nicd/framework"
)

// Port swallows packets. The zero value is ready; make it a source with Run.
type Port struct {
	iface   framework.Interface
	packets atomic.Uint64
	bytes   atomic.Uint64
	ready   chan struct{}
	once    sync.Once
}

var _ framework.Port = (*Port)(nil)

// Attach implements framework.Port.
func (p *Port) Attach(i framework.Interface) error {
	p.iface = i
	p.wake()
	return nil
}

func (p *Port) wake() {
	p.once.Do(func() { p.ready = make(chan struct{}, 1) })
	select {
	case p.ready <- struct{}{}:
	default:
	}
}

// Deliver implements framework.Port.
func (p *Port) Deliver(queue int, b *framework.Batch) {
	var buffers [128]framework.Buffer
	var bytes uint64
	for i := range b.Packets {
		bytes += uint64(b.Packets[i].Len)
	}
	for frags := b.Frags; len(frags) > 0; {
		n := min(len(frags), len(buffers))
		for i, f := range frags[:n] {
			buffers[i] = f.Buffer
		}
		p.iface.Release(queue, buffers[:n])
		frags = frags[n:]
	}
	p.packets.Add(uint64(len(b.Packets)))
	p.bytes.Add(bytes)
}

// TxReady implements framework.Port.
func (p *Port) TxReady(int) { p.wake() }

// LinkChanged implements framework.Port.
func (p *Port) LinkChanged(framework.Link) {}

// Needs implements framework.Port: a sink takes everything.
func (p *Port) Needs() framework.PortNeeds {
	return framework.PortNeeds{Name: "sink", Accepts: framework.AllFeatures}
}

// Close implements framework.Port.
func (p *Port) Close() error { return nil }

// Received are the totals of what was swallowed.
func (p *Port) Received() (packets, bytes uint64) { return p.packets.Load(), p.bytes.Load() }

// Frame makes the next frame to send in to, which holds a whole buffer, and
// returns its length.
type Frame func(to []byte) int

// Run sends frames on one queue until ctx ends, and returns how many the
// interface took. A full queue is waited for.
func (p *Port) Run(ctx context.Context, queue int, next Frame) (sent uint64, err error) {
	if p.iface == nil {
		return 0, errors.New("the port has no interface")
	}
	memory := p.iface.Buffers()
	batch := framework.NewBatch(32, 32)
	var held []framework.Buffer
	buffers := make([]framework.Buffer, 32)
	for ctx.Err() == nil {
		got := p.iface.Alloc(queue, buffers[:len(buffers)-len(held)])
		held = append(held, buffers[:got]...)
		batch.Reset()
		for i, b := range held {
			f := framework.Fragment{Buffer: b, Offset: framework.RxOffset, Len: memory.Size}
			f.Len = uint32(next(memory.Bytes(f)))
			batch.Frags = append(batch.Frags, f)
			batch.Packets = append(batch.Packets, framework.Packet{First: uint32(i), Frags: 1, Len: f.Len})
		}
		n := p.iface.Send(queue, batch)
		sent += uint64(n)
		if held = held[:copy(held, held[n:])]; n > 0 {
			continue
		}
		select {
		case <-ctx.Done():
		case <-p.ready:
		}
	}
	p.iface.Release(queue, held)
	return sent, nil
}
