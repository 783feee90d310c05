package vmxnet3

import (
	"testing"

	"nicd/bus"
)

// TestALapIsTheMost: who looks for a packet's descriptors goes round a ring once, whatever
// its driver, which can turn generation bits all the time, hands over behind it.
func TestALapIsTheMost(t *testing.T) {
	const size = 32
	for start := range size {
		q := rxQueue{}
		for k := range q.rings {
			q.rings[k] = rxRing{size: size, view: make([]byte, size*descSize), cursor: cursor{next: start, gen: rxGen}}
		}
		c := q.cursors()
		offer := func(k int, flags uint32) { // all of a ring is what the device looks for
			for i := range size {
				bus.Word(q.rings[k].view, i*descSize+rxDescGenWord).Store(c[k].gen | flags | 64)
			}
		}
		for k, flags := range []uint32{0, rxBody} {
			n := 0
			for ; n < 3*size; n++ {
				offer(k, flags)
				if _, _, ok := q.head(&c, k == 0); !ok {
					break
				}
				c[k].advance(size)
			}
			if n != size {
				t.Errorf("from %d: %d descriptors of ring %d, which has %d", start, n, k, size)
			}
		}
		c = q.cursors()
		for range 4 {
			offer(0, rxBody)
			if _, _, ok := q.head(&c, true); ok {
				t.Fatalf("from %d: a body is a packet's head", start)
			}
		}
		if c[0].next != start || c[0].gen == rxGen {
			t.Errorf("from %d: bodies were passed as far as %+v", start, c[0])
		}
	}
}
