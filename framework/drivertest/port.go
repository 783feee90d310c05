package drivertest

import (
	"sync"

	"nicd/framework"
	"nicd/framework/drivertest/rig"
	"nicd/framework/engine"
)

// port is what is above the engine: it keeps copies of what is delivered, gives
// the buffers back at once unless told to keep them, and sends.
type port struct {
	t       *c
	buffers *framework.Buffers
	own     func(frame []byte) bool // of rig.Station

	mu        sync.Mutex
	delivered []arrival
	keeping   bool
	kept      [][]framework.Buffer // by queue
	back      [][]framework.Buffer // for Reclaim
	toSend    []*framework.Batch
	free      [][]framework.Buffer
	away      map[framework.Buffer]bool // sent and not come back
	wakeRx    []func()
	wakeTx    []func()
}

// arrival is a delivered packet.
type arrival struct {
	queue int
	bytes []byte
	framework.Packet
}

var _ engine.Upper = (*port)(nil)

func newPort(t *c, n *rig.Net, send []engine.BufferRange) *port {
	queues := len(send)
	p := &port{
		t: t, buffers: n.Buffers, own: n.Own, away: map[framework.Buffer]bool{},
		kept: make([][]framework.Buffer, queues), back: make([][]framework.Buffer, queues),
		free: make([][]framework.Buffer, queues), wakeRx: make([]func(), queues), wakeTx: make([]func(), queues),
	}
	for q, r := range send {
		p.toSend = append(p.toSend, &framework.Batch{})
		for i := range r.Count {
			p.free[q] = append(p.free[q], r.First+framework.Buffer(i))
		}
	}
	return p
}

// Deliver implements engine.Upper.
func (p *port) Deliver(queue int, b *framework.Batch) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, pkt := range b.Packets {
		a := arrival{queue: queue, Packet: pkt}
		for _, f := range b.Fragments(i) {
			a.bytes = append(a.bytes, p.buffers.Bytes(f)...)
			if p.keeping {
				p.kept[queue] = append(p.kept[queue], f.Buffer)
			} else {
				p.back[queue] = append(p.back[queue], f.Buffer)
			}
		}
		if p.own == nil || p.own(a.bytes) {
			p.delivered = append(p.delivered, a)
		}
	}
	return len(b.Packets)
}

// Reclaim implements engine.Upper.
func (p *port) Reclaim(queue int, dst []framework.Buffer) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := copy(dst, p.back[queue])
	p.back[queue] = p.back[queue][n:]
	return n
}

// Take implements engine.Upper.
func (p *port) Take(queue int, b *framework.Batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s, n := p.toSend[queue], 0
	for n < len(s.Packets) && b.Room(int(s.Packets[n].Frags)) {
		pkt, frags := s.Packets[n], s.Fragments(n)
		pkt.First = uint32(len(b.Frags))
		b.Frags = append(b.Frags, frags...)
		b.Packets = append(b.Packets, pkt)
		n++
	}
	if s.Packets = s.Packets[n:]; len(s.Packets) == 0 {
		p.toSend[queue] = &framework.Batch{}
	}
}

// Complete implements engine.Upper.
func (p *port) Complete(queue int, bufs []framework.Buffer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range bufs {
		if !p.away[b] {
			p.t.Errorf("buffer %d comes back, and was not sent", b)
		}
		delete(p.away, b)
		p.free[queue] = append(p.free[queue], b)
	}
}

// ArmRx implements engine.Upper.
func (p *port) ArmRx(queue int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.back[queue]) > 0
}

// ArmTx implements engine.Upper.
func (p *port) ArmTx(queue int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.toSend[queue].Packets) > 0
}

// SetWaker implements engine.Upper.
func (p *port) SetWaker(queue int, rx, tx func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wakeRx[queue], p.wakeTx[queue] = rx, tx
}

// send queues a packet and tells whether there were buffers for it.
func (p *port) send(queue int, meta framework.Packet, pieces [][]byte) bool {
	p.mu.Lock()
	if len(p.free[queue]) < len(pieces) {
		p.mu.Unlock()
		return false
	}
	s := p.toSend[queue]
	meta.First, meta.Frags = uint32(len(s.Frags)), uint16(len(pieces))
	for i, piece := range pieces {
		f := framework.Fragment{Buffer: p.free[queue][0], Offset: uint32(i % 5), Len: uint32(len(piece))}
		p.free[queue] = p.free[queue][1:]
		p.away[f.Buffer] = true
		copy(p.buffers.Bytes(f), piece)
		s.Frags = append(s.Frags, f)
		meta.Len += f.Len
	}
	s.Packets = append(s.Packets, meta)
	wake := p.wakeTx[queue]
	p.mu.Unlock()
	if wake != nil {
		wake()
	}
	return true
}

// take returns what was delivered since the last call.
func (p *port) take() []arrival {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.delivered
	p.delivered = nil
	return all
}

// sending is how many buffers are with the engine to be sent.
func (p *port) sending() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.away)
}

// keep makes the port hold on to what is delivered, or not any more.
func (p *port) keep(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keeping = on
}

// giveBack gives back what was kept.
func (p *port) giveBack() {
	p.mu.Lock()
	var wake []func()
	for q := range p.kept {
		p.back[q] = append(p.back[q], p.kept[q]...)
		p.kept[q] = nil
		wake = append(wake, p.wakeRx[q])
	}
	p.mu.Unlock()
	for _, w := range wake {
		if w != nil {
			w()
		}
	}
}

// arrived is how many packets take would return.
func (p *port) arrived() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.delivered)
}

// waiting is how many buffers are in packets that nobody has taken yet.
func (p *port) waiting() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.toSend {
		for _, pkt := range b.Packets {
			n += int(pkt.Frags)
		}
	}
	return n
}
