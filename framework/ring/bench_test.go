package ring

import (
	"sync/atomic"
	"testing"
)

// BenchmarkTransmit puts packets of two descriptors and reaps them, with a
// device that costs next to nothing. One operation is one packet.
func BenchmarkTransmit(b *testing.B) {
	const n, batch = 512, 32
	cm, dm := heap(n, 16), heap(n, 16)
	owner := Owner{Offset: 12, Bit: 1 << 31}
	cmd := must[*Command[desc]](b)(NewCommand[desc](cm, n, gen14))
	comp := must[*Completion[desc]](b)(NewCompletion[desc](dm, n, owner))
	dev := newGenDevice[desc](b, dm, n, owner)
	flight := NewFlight(n)
	b.ReportAllocs()
	for i := 0; i < b.N; i += batch {
		var last uint32
		for k := range batch {
			cmd.Next().Addr = uint64(i)
			cmd.Add(66)
			cmd.Next().Addr = uint64(i)
			last = cmd.Tail()
			cmd.Add(1448)
			cmd.Publish()
			flight.Add(last, 2, k == batch-1)
		}
		dev.complete(func(d *desc) { d.Word = last }, 0)
		for c, ok := comp.Take(); ok; c, ok = comp.Take() {
			cmd.Release(flight.RetireThrough(cmd.Through(c.Word)))
		}
		if flight.Completed(batch) != batch {
			b.Fatal("packets lost")
		}
	}
}

// BenchmarkReceive posts buffers to a done-bit ring and takes them back. One
// operation is one packet of one descriptor.
func BenchmarkReceive(b *testing.B) {
	const n, batch = 512, 32
	r := must[*Done[desc]](b)(NewDone[desc](heap(n, 16), n, Owner{Offset: 8, Bit: 1}))
	slots := NewSlots(n, ^uint32(0))
	b.ReportAllocs()
	device := uint32(0)
	for i := 0; i < b.N; i += batch {
		for k := range batch {
			slots.Put(r.Tail(), uint32(k))
			*r.Next() = desc{Addr: uint64(k)}
			r.Add()
		}
		for range batch {
			atomic.StoreUint32(r.owner(device), 1)
			device = (device + 1) % n
		}
		for range batch {
			at, d, ok := r.Take()
			if !ok || d.Word != 1 {
				b.Fatal("not done")
			}
			if _, ok := slots.Take(at); !ok {
				b.Fatal("no buffer")
			}
		}
	}
}
