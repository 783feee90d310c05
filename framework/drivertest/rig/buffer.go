package rig

import "nicd/framework"

// This file is who has which buffer.

func (r *Rig) give(b framework.Buffer) {
	r.with[b] = free
	r.free = append(r.free, b)
}

// take takes n buffers for w.
func (r *Rig) take(n int, w owner) []framework.Buffer {
	r.T.Helper()
	if n > len(r.free) {
		r.T.Fatalf("out of buffers: %d wanted, %d left", n, len(r.free))
	}
	at := len(r.free) - n
	taken := append([]framework.Buffer(nil), r.free[at:]...)
	r.free = r.free[:at]
	for _, b := range taken {
		r.with[b] = w
	}
	return taken
}

// Take takes n buffers that the test uses by itself, until Return.
func (r *Rig) Take(n int) []framework.Buffer { return r.take(n, test) }

// Lend takes n buffers that the test posts by itself.
func (r *Rig) Lend(n int) []framework.Buffer { return r.take(n, device) }

// Return takes back what Take gave.
func (r *Rig) Return(bufs []framework.Buffer) {
	for _, b := range bufs {
		r.give(b)
	}
}

// Refill posts as many buffers as receive queue q takes and returns how many.
func (r *Rig) Refill(q int) int {
	const chunk = 16
	for total := 0; ; {
		n := r.post(q, chunk)
		if total += n; n < chunk {
			r.Queues.Rx[q].Bell()
			return total
		}
	}
}

// Post posts up to n buffers.
func (r *Rig) Post(q, n int) int {
	n = r.post(q, n)
	r.Queues.Rx[q].Bell()
	return n
}

// post is Post without the bell.
func (r *Rig) post(q, n int) int {
	bufs := r.take(min(n, len(r.free)), device)
	n = r.Queues.Rx[q].Post(bufs)
	for _, b := range bufs[:n] {
		r.posts++
		r.seq[b] = r.posts
	}
	for _, b := range bufs[n:] {
		r.give(b)
	}
	return n
}

// Posted is how many buffers are with the device.
func (r *Rig) Posted() (n int) {
	for _, w := range r.with {
		if w == device {
			n++
		}
	}
	return n
}
