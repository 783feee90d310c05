package engine

import "nicd/framework"

// BufferRange names Count buffers from First on.
type BufferRange struct {
	First framework.Buffer
	Count uint32
}

// place is where a receive buffer is. It is the queue's own record: what the
// driver returns and what comes back from above is checked against it, so that
// no buffer is ever given to the device while someone else holds it.
type place uint8

const (
	pooled place = iota
	posted
	above // with the upper side, or in the engine on its way there
)

// rxPool is a receive queue's buffers. It is a stack: the buffer that came back
// last is the one most likely still in the cache.
type rxPool struct {
	first  framework.Buffer
	places []place
	free   []framework.Buffer
	posted int
}

func newRxPool(r BufferRange) rxPool {
	p := rxPool{first: r.First, places: make([]place, r.Count), free: make([]framework.Buffer, r.Count)}
	for i := range p.free {
		p.free[i] = r.First + framework.Buffer(int(r.Count)-1-i)
	}
	return p
}

// lend leaves all buffers of a new pool above.
func (p *rxPool) lend() {
	for i := range p.places {
		p.places[i] = above
	}
	p.free = p.free[:0]
}

// outstanding is how many buffers are above.
func (p *rxPool) outstanding() int { return len(p.places) - len(p.free) - p.posted }

// move takes b from one place to another and tells whether it was there.
func (p *rxPool) move(b framework.Buffer, from, to place) bool {
	i := uint32(b - p.first)
	if i >= uint32(len(p.places)) || p.places[i] != from {
		return false
	}
	p.places[i] = to
	return true
}

// put stores a buffer that is not posted any more.
func (p *rxPool) put(b framework.Buffer) {
	if p.move(b, above, pooled) {
		p.free = append(p.free, b)
	}
}

// fill posts up to n buffers to dev and returns how many.
func (p *rxPool) fill(dev framework.RxQueue, n int) int {
	n = min(n, len(p.free))
	if n <= 0 {
		return 0
	}
	top := len(p.free) - n
	bufs := p.free[top:]
	k := max(0, min(dev.Post(bufs), n))
	for _, b := range bufs[:k] {
		p.places[uint32(b-p.first)] = posted
	}
	copy(bufs, bufs[k:])
	p.free = p.free[:top+n-k]
	p.posted += k
	return k
}

// recover takes back all that is posted, after the device has stopped.
func (p *rxPool) recover() {
	for i := range p.places {
		if p.places[i] == posted {
			p.places[i] = pooled
			p.free = append(p.free, p.first+framework.Buffer(i))
		}
	}
	p.posted = 0
}
