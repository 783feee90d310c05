package sink_test

import (
	"slices"
	"testing"

	"nicd/framework"
	"nicd/port/sink"
)

// returns is an interface that keeps what a port gives back.
type returns struct {
	framework.Interface
	queues  []int
	buffers []framework.Buffer
}

func (r *returns) Release(queue int, bufs []framework.Buffer) {
	r.queues = append(r.queues, queue)
	r.buffers = append(r.buffers, bufs...)
}

// TestDeliver: every buffer of a batch goes back, once, to the queue that it came
// from, however many there are.
func TestDeliver(t *testing.T) {
	for _, n := range []int{0, 1, 127, 128, 129, 1000} {
		p, r := &sink.Port{}, &returns{}
		if err := p.Attach(r); err != nil {
			t.Fatal(err)
		}
		b := framework.NewBatch(1, n)
		var want []framework.Buffer
		for i := range framework.Buffer(n) {
			b.Frags = append(b.Frags, framework.Fragment{Buffer: 7 * i, Len: 60})
			want = append(want, 7*i)
		}
		b.Packets = append(b.Packets, framework.Packet{Frags: uint16(n), Len: 60 * uint32(n)})
		p.Deliver(3, b)
		if !slices.Equal(r.buffers, want) {
			t.Errorf("%d buffers: %d came back: %v", n, len(r.buffers), r.buffers)
		}
		if slices.ContainsFunc(r.queues, func(q int) bool { return q != 3 }) {
			t.Errorf("to queues %v, they are of 3", r.queues)
		}
	}
}
