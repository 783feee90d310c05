package ring

import (
	"math/rand/v2"
	"testing"

	"nicd/framework"
)

const postedWord = 0x123

func newPosted(t testing.TB, order Order) (*Posted[desc], *Command[desc]) {
	c, err := NewCommand[desc](make([]byte, 16*queueSize), queueSize, gen14)
	if err != nil {
		t.Fatal(err)
	}
	p := NewPosted(c, &framework.Buffers{Addr: 1 << 20, Stride: 4096, Size: 2048, Count: 64}, postedWord, order)
	return &p, c
}

// TestPosted plays a device that uses descriptors in order and passes over some: it
// finds each buffer that was given where it was given, in the order in which it was,
// and each comes back once.
func TestPosted(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	p, c := newPosted(t, Skips)
	var with []framework.Buffer // the device, oldest first
	next, gen, free := uint32(0), uint32(1<<14), framework.Buffer(0)
	for range 5000 {
		for p.Space() > 0 && r.IntN(3) > 0 {
			p.Give(free)
			with = append(with, free)
			free = (free + 1) % 64
		}
		if len(with) == 0 {
			continue
		}
		skipped := r.IntN(min(3, len(with)))
		for i := range skipped + 1 {
			d := c.desc[next]
			if want := uint64(1<<20+4096*int(with[i])) + framework.RxOffset; d.Addr != want || d.Word != postedWord|gen {
				t.Fatalf("descriptor %d: %+v, want address %#x and word %#x", next, d, want, postedWord|gen)
			}
			if i < skipped {
				next = (next + 1) % queueSize
				if next == 0 {
					gen ^= 1 << 14
				}
			}
		}
		b, ok := p.Take(next)
		if !ok || b != with[skipped] {
			t.Fatalf("descriptor %d had buffer %d, want %d", next, b, with[skipped])
		}
		with = append(with[skipped+1:], with[:skipped]...)
		if next = (next + 1) % queueSize; next == 0 {
			gen ^= 1 << 14
		}
		if p.Outstanding() != len(with) {
			t.Fatalf("%d outstanding, want %d", p.Outstanding(), len(with))
		}
	}
}

// TestPostedReordered plays a device that uses descriptors in any order: each buffer
// comes back once, from where it was given, and a descriptor that was passed over
// keeps its own until its turn comes.
func TestPostedReordered(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	p, _ := newPosted(t, Reorders)
	with := map[uint32]framework.Buffer{} // the device, by descriptor
	var at []uint32                       // oldest first
	free := framework.Buffer(0)
	for range 5000 {
		for p.Space() > 0 && r.IntN(3) > 0 {
			if _, ok := with[p.Tail()]; ok {
				t.Fatalf("descriptor %d was given while the device had it", p.Tail())
			}
			with[p.Tail()], at = free, append(at, p.Tail())
			p.Give(free)
			free = (free + 1) % 64
		}
		if len(at) == 0 {
			continue
		}
		k := r.IntN(min(4, len(at)))
		b, ok := p.Take(at[k])
		if !ok || b != with[at[k]] {
			t.Fatalf("descriptor %d had buffer %d, want %d", at[k], b, with[at[k]])
		}
		if _, ok := p.Take(at[k]); ok {
			t.Fatalf("descriptor %d came back twice", at[k])
		}
		delete(with, at[k])
		if at = append(at[:k], at[k+1:]...); len(at) == 0 != (p.Outstanding() == 0) {
			t.Fatalf("%d outstanding, the device has %d", p.Outstanding(), len(at))
		}
	}
	for _, i := range at {
		if b, ok := p.Take(i); !ok || b != with[i] {
			t.Fatalf("descriptor %d had buffer %d, want %d", i, b, with[i])
		}
	}
	if p.Outstanding() != 0 {
		t.Errorf("%d outstanding of none", p.Outstanding())
	}
}

func TestPostedRefuses(t *testing.T) {
	p, _ := newPosted(t, InOrder)
	for b := range framework.Buffer(queueSize - 1) {
		p.Give(b)
	}
	if p.Space() != 0 || p.Tail() != queueSize-1 {
		t.Errorf("space for %d more, tail %d", p.Space(), p.Tail())
	}
	for name, i := range map[string]uint32{"skips": 1, "empty": queueSize - 1, "outside": queueSize, "far outside": 1 << 31} {
		if b, ok := p.Take(i); ok || b != framework.NoBuffer || p.Outstanding() != queueSize-1 {
			t.Errorf("%s: buffer %d taken, %d outstanding", name, b, p.Outstanding())
		}
	}
	if b, ok := p.Take(0); !ok || b != 0 {
		t.Errorf("buffer %d taken, %v", b, ok)
	}
	if _, ok := p.Take(0); ok {
		t.Error("a buffer was taken twice")
	}
	c, err := NewCommand[wide](make([]byte, 32*queueSize), queueSize, Owner{0, 1})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("an address over the owner word")
		}
	}()
	NewPosted(c, &framework.Buffers{}, 0, InOrder)
}

func TestPostedAllocatesNothing(t *testing.T) {
	p, c := newPosted(t, Skips)
	if n := testing.AllocsPerRun(100, func() {
		p.Give(1)
		p.Give(2)
		p.Take(c.Head())
		p.Take(c.Head())
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
