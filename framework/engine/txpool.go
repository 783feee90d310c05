package engine

import "nicd/framework"

// headroom is where the engine begins in its own buffers: it leaves room for a
// VLAN tag, and keeps headers aligned.
const headroom = 16

// txPool is a transmit queue's own buffers, for headers and copies.
type txPool struct {
	first framework.Buffer
	count uint32
	free  []framework.Buffer
}

func newTxPool(r BufferRange) txPool {
	p := txPool{first: r.First, count: r.Count, free: make([]framework.Buffer, r.Count)}
	for i := range p.free {
		p.free[i] = r.First + framework.Buffer(i)
	}
	return p
}

// put takes b back if it is one of the pool's.
func (p *txPool) put(b framework.Buffer) bool {
	if uint32(b-p.first) >= p.count {
		return false
	}
	p.free = append(p.free, b)
	return true
}

// get returns a buffer. The caller has seen to it that there is one.
func (p *txPool) get() framework.Buffer {
	n := len(p.free) - 1
	b := p.free[n]
	p.free = p.free[:n]
	return b
}
