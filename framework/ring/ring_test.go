package ring

import (
	"errors"
	"sync/atomic"
	"testing"
)

// desc is a 16-byte descriptor; word bit 14 or 31 is the owner in these tests.
type desc struct {
	Addr       uint64
	Word, Info uint32
}

// wide is a descriptor of another size, with its owner word elsewhere.
type wide struct {
	Word uint32
	Info [7]uint32
}

var gen14 = Owner{Offset: 8, Bit: 1 << 14}

// heap is descriptor memory that the race detector sees.
func heap(n, size int) []byte { return make([]byte, n*size) }

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestLayoutIsChecked(t *testing.T) {
	type pointy struct {
		P *int
		W [2]uint32
	}
	type odd struct{ B [6]byte }
	type machine struct{ N uint }
	mem := make([]byte, 1024)
	mk := func(_ any, err error) error { return err }
	for name, err := range map[string]error{
		"pointer":          mk(NewCommand[pointy](mem, 4, Owner{8, 1})),
		"size":             mk(NewCommand[odd](mem, 4, Owner{0, 1})),
		"machine word":     mk(NewCommand[machine](mem, 4, Owner{0, 1})),
		"too few":          mk(NewCompletion[desc](mem, 1, gen14)),
		"too many":         mk(NewDone[desc](mem, 65, gen14)),
		"negative":         mk(NewDone[desc](mem, -1, gen14)),
		"misaligned":       mk(NewDone[desc](mem[4:], 8, gen14)),
		"word outside":     mk(NewDone[desc](mem, 8, Owner{16, 1})),
		"word misaligned":  mk(NewDone[desc](mem, 8, Owner{6, 1})),
		"no owner bit":     mk(NewDone[desc](mem, 8, Owner{8, 0})),
		"two owner bits":   mk(NewDone[desc](mem, 8, Owner{8, 3})),
		"no memory":        mk(NewDone[desc](nil, 8, gen14)),
		"zero size":        mk(NewDone[struct{}](mem, 8, Owner{0, 1})),
		"negative offset":  mk(NewDone[desc](mem, 8, Owner{-4, 1})),
		"absurd ring size": mk(NewDone[desc](mem, 1<<30, gen14)),
	} {
		if !errors.Is(err, ErrLayout) {
			t.Errorf("%s: got %v, want an ErrLayout", name, err)
		}
	}
	if _, err := NewCommand[desc](mem, 64, gen14); err != nil {
		t.Errorf("a good layout: %v", err)
	}
}

func TestConstructorsZeroMemory(t *testing.T) {
	mem := heap(8, 16)
	for i := range mem {
		mem[i] = 0xff
	}
	must[*Completion[desc]](t)(NewCompletion[desc](mem, 8, gen14))
	for i, b := range mem {
		if b != 0 {
			t.Fatalf("byte %d is %#x: a stale generation bit would look like a completion", i, b)
		}
	}
}

// genDevice walks a generation-bit command ring as a device does. It knows
// nothing of the implementation but the format.
type genDevice[D any] struct {
	m     memory[D]
	index uint32
	gen   uint32
}

func newGenDevice[D any](t testing.TB, mem []byte, n int, o Owner) *genDevice[D] {
	saved := append([]byte(nil), mem...)
	m := must[memory[D]](t)(overlay[D](mem, n, o))
	copy(mem, saved)
	return &genDevice[D]{m: m, gen: o.Bit}
}

// next is the index of the next descriptor that is the device's.
func (g *genDevice[D]) next() (i uint32, d D, ok bool) {
	i = g.index
	if atomic.LoadUint32(g.m.owner(i))&g.m.bit != g.gen {
		return 0, d, false
	}
	d = g.m.desc[i]
	g.advance()
	return i, d, true
}

// complete writes a completion.
func (g *genDevice[D]) complete(fill func(*D), word uint32) {
	i := g.index
	fill(&g.m.desc[i])
	atomic.StoreUint32(g.m.owner(i), word&^g.m.bit|g.gen)
	g.advance()
}

func (g *genDevice[D]) advance() {
	if g.index++; int(g.index) == len(g.m.desc) {
		g.index, g.gen = 0, g.gen^g.m.bit
	}
}

func TestCommandPublishesAsAWhole(t *testing.T) {
	const n = 8
	mem := heap(n, 16)
	r := must[*Command[desc]](t)(NewCommand[desc](mem, n, gen14))
	dev := newGenDevice[desc](t, mem, n, gen14)
	for lap := range 20 {
		for k := range 3 {
			r.Next().Addr = uint64(lap*3 + k)
			r.Add(uint32(k) | gen14.Bit) // a stray generation bit in word must not matter
			if _, _, ok := dev.next(); ok {
				t.Fatalf("lap %d: the device sees descriptor %d before Publish", lap, k)
			}
		}
		r.Publish()
		for k := range 3 {
			i, d, ok := dev.next()
			if !ok || d.Addr != uint64(lap*3+k) || d.Word&0xff != uint32(k) {
				t.Fatalf("lap %d: descriptor %d: got %+v, %v", lap, k, d, ok)
			}
			if got := r.Through(i); got != k+1 {
				t.Fatalf("Through(%d) = %d, want %d", i, got, k+1)
			}
		}
		r.Release(3)
	}
	r.Publish()
	if _, _, ok := dev.next(); ok {
		t.Fatal("Publish of nothing published something")
	}
}

func TestOneSlotStaysEmptyAtEverySize(t *testing.T) {
	for n := 2; n <= 70; n++ {
		mem := heap(n, 16)
		r := must[*Command[desc]](t)(NewCommand[desc](mem, n, gen14))
		dev := newGenDevice[desc](t, mem, n, gen14)
		for lap := range 3*n + 1 {
			if r.Space() != n-1 {
				t.Fatalf("size %d lap %d: an empty ring has space %d", n, lap, r.Space())
			}
			for r.Space() > 0 {
				r.Give(7)
			}
			if r.Head() == r.Tail() {
				t.Fatalf("size %d: a full ring looks empty", n)
			}
			for k := range n - 1 {
				if _, _, ok := dev.next(); !ok {
					t.Fatalf("size %d lap %d: descriptor %d of %d is not the device's", n, lap, k, n-1)
				}
			}
			if _, _, ok := dev.next(); ok {
				t.Fatalf("size %d lap %d: the device owns the empty slot", n, lap)
			}
			r.Release(n - 1)
		}
	}
}

func TestMisusePanics(t *testing.T) {
	n := 4
	full := func() *Command[desc] {
		r := must[*Command[desc]](t)(NewCommand[desc](heap(n, 16), n, gen14))
		for r.Space() > 0 {
			r.Give(0)
		}
		return r
	}
	for name, do := range map[string]func(){
		"Give to a full ring":     func() { full().Give(0) },
		"Add to a full ring":      func() { full().Add(0) },
		"Release of too many":     func() { full().Release(n) },
		"Release of less than no": func() { full().Release(-1) },
		"Give between Add and Publish": func() {
			r := full()
			r.Release(3)
			r.Add(0)
			r.Give(0)
		},
		"Done past full": func() {
			r := must[*Done[desc]](t)(NewDone[desc](heap(n, 16), n, gen14))
			for range n {
				r.Add()
			}
		},
		"Flight of too many": func() {
			f := NewFlight(n)
			for range n + 1 {
				f.Add(0, 1, true)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			do()
		})
	}
}

func TestThroughRefusesWhatIsNotOutstanding(t *testing.T) {
	for n := 2; n < 20; n++ {
		s := span{size: uint32(n)}
		for start := range n {
			for used := range n {
				s.head, s.used = uint32(start), uint32(used)
				for i := range 3 * n {
					want := 0
					if d := (i - start + n) % n; i < n && d < used {
						want = d + 1
					}
					if got := s.Through(uint32(i)); got != want {
						t.Fatalf("size %d head %d used %d: Through(%d) = %d, want %d", n, start, used, i, got, want)
					}
				}
				if got := s.Through(^uint32(0)); got != 0 {
					t.Fatalf("Through(-1) = %d", got)
				}
			}
		}
	}
}

func TestCompletionFollowsTheDeviceAtEverySize(t *testing.T) {
	owner := Owner{Offset: 12, Bit: 1 << 31}
	for n := 2; n <= 40; n++ {
		mem := heap(n, 16)
		c := must[*Completion[desc]](t)(NewCompletion[desc](mem, n, owner))
		dev := newGenDevice[desc](t, mem, n, owner)
		sent, taken := 0, 0
		for step := range 10 * n {
			for range step % (n + 1) { // bursts up to a whole ring
				dev.complete(func(d *desc) { d.Addr = uint64(sent) }, 5)
				sent++
			}
			for c.Ready() {
				d, ok := c.Take()
				if !ok || d.Addr != uint64(taken) {
					t.Fatalf("size %d: got %+v %v, want number %d", n, d, ok, taken)
				}
				taken++
			}
			if _, ok := c.Take(); ok {
				t.Fatalf("size %d: took more than was there", n)
			}
			if taken != sent {
				t.Fatalf("size %d: took %d of %d", n, taken, sent)
			}
		}
	}
}

func TestCursorLooksAheadWithoutConsuming(t *testing.T) {
	const n = 4
	mem := heap(n, 16)
	c := must[*Completion[desc]](t)(NewCompletion[desc](mem, n, gen14))
	dev := newGenDevice[desc](t, mem, n, gen14)
	for lap := range 10 {
		for k := range 3 {
			dev.complete(func(d *desc) { d.Addr = uint64(k) }, 0)
		}
		cur := c.Cursor()
		for k := range 3 {
			if d, ok := c.Peek(&cur); !ok || d.Addr != uint64(k) {
				t.Fatalf("lap %d: Peek %d: %+v %v", lap, k, d, ok)
			}
		}
		if _, ok := c.Peek(&cur); ok {
			t.Fatal("Peek beyond what is there")
		}
		if d, ok := c.Take(); !ok || d.Addr != 0 {
			t.Fatal("Peek consumed")
		}
		c.Seek(cur)
		if c.Ready() {
			t.Fatal("Seek did not consume")
		}
	}
}

func TestDoneRing(t *testing.T) {
	owner := Owner{Offset: 0, Bit: 1}
	for n := 2; n <= 33; n++ {
		mem := heap(n, 32)
		r := must[*Done[wide]](t)(NewDone[wide](mem, n, owner))
		next, taken, device := 0, 0, uint32(0)
		for step := range 6 * n {
			for r.Space() > 0 {
				*r.Next() = wide{Info: [7]uint32{uint32(next)}}
				r.Add()
				next++
			}
			if r.Ready() {
				t.Fatalf("size %d: done before the device did anything", n)
			}
			k := 1 + step%(n-1)
			for range k {
				atomic.StoreUint32(r.owner(device), 1)
				device = (device + 1) % uint32(n)
			}
			for range k {
				i, d, ok := r.Take()
				if !ok || i != uint32(taken%n) || d.Info[0] != uint32(taken) {
					t.Fatalf("size %d: got %+v at %d, %v, want number %d", n, d, i, ok, taken)
				}
				taken++
			}
			if _, _, ok := r.Take(); ok {
				t.Fatalf("size %d: more done than the device finished", n)
			}
			if r.Outstanding() != n-1-k {
				t.Fatalf("size %d: %d outstanding after %d were released", n, r.Outstanding(), k)
			}
		}
	}
}

// A device that sets every done bit there is gets nobody to read a descriptor
// that was not given to it.
func TestDoneRingTrustsNoBit(t *testing.T) {
	const n = 8
	r := must[*Done[desc]](t)(NewDone[desc](heap(n, 16), n, gen14))
	*r.Next() = desc{}
	r.Add()
	for i := range uint32(n) {
		r.store(i, ^uint32(0))
	}
	if i, _, ok := r.Take(); !ok || i != 0 {
		t.Fatalf("took descriptor %d, %v", i, ok)
	}
	if i, _, ok := r.Take(); ok || r.Ready() {
		t.Fatalf("an empty ring is ready, or gives descriptor %d", i)
	}
}

func TestFlightGroupsByReport(t *testing.T) {
	f := NewFlight(16)
	if _, ok := f.Oldest(); ok || f.Retire() != 0 || f.Completed(9) != 0 {
		t.Fatal("an empty flight has something")
	}
	f.Add(1, 2, false)
	f.Add(4, 3, true)
	f.Add(5, 1, true)
	f.Add(7, 2, false)
	if last, ok := f.Oldest(); !ok || last != 4 {
		t.Fatalf("Oldest = %d %v", last, ok)
	}
	if got := f.RetireThrough(4); got != 0 || f.Ready() != 0 {
		t.Fatalf("a part of a report retired %d descriptors, %d packets", got, f.Ready())
	}
	if got := f.RetireThrough(5); got != 5 || f.Ready() != 2 {
		t.Fatalf("retired %d descriptors, %d packets; want 5, 2", got, f.Ready())
	}
	if f.Completed(1) != 1 || f.Completed(8) != 1 || f.Completed(8) != 0 {
		t.Fatal("Completed does not count down")
	}
	if got := f.RetireThrough(3); got != 1 || f.Completed(8) != 1 {
		t.Fatalf("retired %d: a packet that asked for no report was finished", got)
	}
	if _, ok := f.Oldest(); ok {
		t.Fatal("a packet that asked for nothing is a report")
	}
	f.Add(9, 2, true)
	if got := f.Retire(); got != 4 || f.Completed(8) != 2 {
		t.Fatalf("Retire = %d, want 4", got)
	}
}

func TestSlots(t *testing.T) {
	s := NewSlots(4, ^uint32(0))
	if _, ok := s.Take(2); ok {
		t.Fatal("an empty slot held something")
	}
	s.Put(2, 77)
	if h, ok := s.Take(2); !ok || h != 77 {
		t.Fatalf("Take = %d %v", h, ok)
	}
	if _, ok := s.Take(2); ok {
		t.Fatal("a buffer was handed out twice")
	}
	for _, i := range []uint32{4, 1 << 31, ^uint32(0)} {
		if _, ok := s.Take(i); ok {
			t.Fatalf("slot %d of 4 held something", i)
		}
	}
}
