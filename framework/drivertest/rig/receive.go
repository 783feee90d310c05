package rig

import "nicd/framework"

// This file is what a device received.

// Received is a copy of a packet that a device received.
type Received struct {
	Queue int
	Bytes []byte
	Frags int
	// Fragments are where the bytes were; the buffers are the rig's again.
	Fragments []framework.Fragment
	// Posted says of each fragment's buffer when it was posted, counted in
	// buffers.
	Posted []uint64
	framework.Packet
}

// Poll polls receive queue q once and refills it.
func (r *Rig) Poll(q int) []Received {
	r.T.Helper()
	got, verdict := r.PollOnly(q)
	if verdict != framework.Healthy {
		r.T.Fatalf("receive queue %d: verdict %d", q, verdict)
	}
	r.Refill(q)
	return got
}

// PollOnly polls receive queue q once.
func (r *Rig) PollOnly(q int) ([]Received, framework.Verdict) { return r.PollInto(q, r.batch) }

// PollInto polls receive queue q once into a batch of the caller's.
func (r *Rig) PollInto(q int, batch *framework.Batch) ([]Received, framework.Verdict) {
	r.T.Helper()
	batch.Reset()
	verdict := r.Queues.Rx[q].Poll(batch)
	var all []Received
	for i, p := range batch.Packets {
		got := Received{Queue: q, Packet: p, Frags: int(p.Frags)}
		for _, f := range batch.Fragments(i) {
			if r.with[f.Buffer] != device {
				r.T.Fatalf("buffer %d handed out, which the device did not have", f.Buffer)
			}
			if f.Offset < framework.RxOffset || f.Offset+f.Len > framework.RxOffset+r.Buffers.Size {
				r.T.Fatalf("fragment %+v of a received packet reaches outside its buffer", f)
			}
			got.Bytes = append(got.Bytes, r.Buffers.Bytes(f)...)
			got.Fragments = append(got.Fragments, f)
			got.Posted = append(got.Posted, r.seq[f.Buffer])
			r.give(f.Buffer)
		}
		if uint32(len(got.Bytes)) != p.Len {
			r.T.Fatalf("packet of %d bytes has fragments of %d", p.Len, len(got.Bytes))
		}
		if r.opt.Own == nil || r.opt.Own(got.Bytes) {
			all = append(all, got)
		}
	}
	return all, verdict
}

// Receive polls all queues until it has n packets.
func (r *Rig) Receive(n int) []Received {
	r.T.Helper()
	var all []Received
	r.Until("packets to arrive", func() bool {
		for q := range r.Queues.Rx {
			all = append(all, r.Poll(q)...)
		}
		return len(all) >= n
	})
	if len(all) != n {
		r.T.Fatalf("%d packets, want %d", len(all), n)
	}
	return all
}

// Quiet fails the test if a packet arrives. Whatever was sent before has to have
// been followed by a packet that did arrive.
func (r *Rig) Quiet() {
	r.T.Helper()
	for q := range r.Queues.Rx {
		if got := r.Poll(q); len(got) > 0 {
			r.T.Fatalf("queue %d received %x", q, got[0].Bytes)
		}
	}
}
