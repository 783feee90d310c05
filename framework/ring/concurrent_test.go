package ring

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
)

// TestConcurrentDevice lets a device run beside the driver; with -race it shows
// that the owner words order everything else.
func TestConcurrentDevice(t *testing.T) {
	const n, packets = 32, 20000
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	m := newTransmitModel(t, n)
	failed := make(chan error, 1)
	go func() { failed <- echo(m.dev, m.done, packets) }()
	sent, finished := 0, 0
	for finished < packets {
		for sent < packets && m.cmd.Space() >= 4 {
			descs := 1 + rng.IntN(4)
			last := uint32(0)
			for k := range descs {
				d := m.cmd.Next()
				d.Addr, d.Info = uint64(sent), 0
				if k == descs-1 {
					d.Info = eopBit
				}
				last = m.cmd.Tail()
				m.cmd.Add(0)
			}
			m.cmd.Publish()
			m.flight.Add(last, descs, true)
			sent++
		}
		for d, ok := m.comp.Take(); ok; d, ok = m.comp.Take() {
			m.cmd.Release(m.flight.RetireThrough(m.cmd.Through(d.Word)))
		}
		finished += m.flight.Completed(n)
		select {
		case err := <-failed:
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			failed = nil
		default:
		}
	}
}

// echo reads packets and reports each.
func echo(in, out *genDevice[desc], packets int) error {
	for p := range packets {
		for {
			i, d, ok := in.next()
			if !ok {
				continue
			}
			if d.Addr != uint64(p) {
				return fmt.Errorf("packet %d carries %d", p, d.Addr)
			}
			if d.Info&eopBit != 0 {
				out.complete(func(c *desc) { c.Word = i }, 0)
				break
			}
		}
	}
	return nil
}

func TestDoneTakeConsumesOneByOne(t *testing.T) {
	r := must[*Done[desc]](t)(NewDone[desc](heap(4, 16), 4, Owner{Offset: 8, Bit: 1}))
	for lap := range uint32(9) {
		*r.Next() = desc{Addr: uint64(lap)}
		r.Add()
		if _, _, ok := r.Take(); ok {
			t.Fatal("took a descriptor that is not done")
		}
		atomic.StoreUint32(r.owner(lap%4), 1)
		i, d, ok := r.Take()
		if !ok || i != lap%4 || d.Addr != uint64(lap) || r.Outstanding() != 0 {
			t.Fatalf("lap %d: took %+v at %d, %v; %d outstanding", lap, d, i, ok, r.Outstanding())
		}
		if _, _, ok := r.Take(); ok {
			t.Fatal("took a descriptor that was not added")
		}
	}
}

// TestConcurrentDoneDevice does the same with a done-bit ring and a tail
// register.
func TestConcurrentDoneDevice(t *testing.T) {
	const n, packets = 16, 20000
	r := must[*Done[desc]](t)(NewDone[desc](heap(n, 16), n, Owner{Offset: 12, Bit: 1}))
	var tail atomic.Uint32
	failed := make(chan error, 1)
	go func() { failed <- finish(r.memory, &tail, packets) }()
	posted, taken := 0, 0
	for taken < packets {
		for posted < packets && r.Space() > 0 {
			*r.Next() = desc{Addr: uint64(posted)}
			r.Add()
			posted++
		}
		tail.Store(r.Tail())
		for _, d, ok := r.Take(); ok; _, d, ok = r.Take() {
			if d.Word != uint32(taken) {
				t.Fatalf("descriptor %d was answered with %d", taken, d.Word)
			}
			taken++
		}
		runtime.Gosched()
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
}

// finish answers each descriptor with its own number.
func finish(m memory[desc], tail *atomic.Uint32, packets int) error {
	for p, i := 0, uint32(0); p < packets; {
		if tail.Load() == i {
			runtime.Gosched()
			continue
		}
		d := &m.desc[i]
		if d.Addr != uint64(p) || d.Info != 0 {
			return fmt.Errorf("descriptor %d is %+v", p, *d)
		}
		d.Word = uint32(p)
		atomic.StoreUint32(m.owner(i), 1)
		if i++; int(i) == len(m.desc) {
			i = 0
		}
		p++
	}
	return nil
}
