package ring

import (
	"math/rand/v2"
	"slices"
	"testing"

	"nicd/framework"
)

// completion is what a device with generation bits says: which descriptor of which
// ring, how many bytes, and whether a packet ends.
type completion struct{ index, ring, length, end uint32 }

const (
	compEnd = 1 << 0
	compGen = 1 << 31
)

var testFormat = TransmitFormat{
	Align: 64, Desc: gen14, Comp: Owner{12, compGen}, CompletionIndex: Field{0, 0xFFF},
}

// heapDMA is a DMA on the heap.
type heapDMA struct{}

func (heapDMA) Alloc(size, align int) (framework.Block, error) {
	return framework.Block{Bytes: make([]byte, size), Addr: 1 << 30}, nil
}

// player writes completions as a device does.
type player struct {
	ring *Completion[completion]
	at   uint32
	gen  uint32
}

func newPlayer(r *Completion[completion]) *player { return &player{ring: r, gen: compGen} }

func (p *player) complete(c completion) {
	c.end = c.end&^compGen | p.gen
	p.ring.desc[p.at] = c
	if p.at++; p.at == p.ring.size {
		p.at, p.gen = 0, p.gen^compGen
	}
}

func newCommandTransmit(t testing.TB, lost func()) (*CommandTransmit[desc, completion], *player) {
	q, err := AllocCommandTransmit[desc, completion](heapDMA{}, queueSize, testFormat, lost)
	if err != nil {
		t.Fatal(err)
	}
	return &q, newPlayer(q.comp)
}

// TestCommandTransmit: packets of one to three descriptors, of which a device
// reports those that ask for it, and some that do not.
func TestCommandTransmit(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	q, p := newCommandTransmit(t, func() { t.Error("lost") })
	type packet struct {
		last, descs uint32
		reports     bool
	}
	var device, done []packet // put and not completed; completed and not finished or handed out
	ready := 0                // of done
	at, gen := uint32(0), uint32(1<<14)
	for range 5000 {
		if n := 1 + r.IntN(3); n <= q.Space() && r.IntN(2) == 0 {
			first, firstGen := at, gen
			for i := range n {
				if q.Tail() != at {
					t.Fatalf("tail %d, want %d", q.Tail(), at)
				}
				q.Next().Addr = uint64(i)
				if q.Add(7); i == 0 && q.ring.desc[first].Word&(1<<14) == firstGen {
					t.Fatal("published by half")
				}
				if at++; at == queueSize {
					at, gen = 0, gen^1<<14
				}
			}
			reports := r.IntN(2) == 0 || q.Space() < 3
			q.End(reports)
			if got := q.ring.desc[first].Word; got != 7|firstGen {
				t.Fatalf("word %#x, want %#x", got, 7|firstGen)
			}
			device = append(device, packet{(at + queueSize - 1) % queueSize, uint32(n), reports})
		}
		if len(device) > 0 && r.IntN(2) == 0 {
			i := 0 // the next that asked, or the oldest although it did not
			if r.IntN(4) > 0 {
				i = max(0, slices.IndexFunc(device, func(p packet) bool { return p.reports }))
			}
			p.complete(completion{index: device[i].last | 0xABCD000})
			done = append(done, device[:i+1]...)
			device = device[i+1:]
		}
		for i := ready; i < len(done); i++ {
			if done[i].reports {
				ready = i + 1
			}
		}
		most := 1 + r.IntN(4)
		if got := q.Completed(most); got != min(ready, most) {
			t.Fatalf("%d of %d packets, at most %d", got, ready, most)
		}
		n := min(ready, most)
		done, ready = done[n:], ready-n
		if q.Completed(64) != ready || q.Pending() {
			t.Fatal("not all that are finished, or more")
		}
		done, ready = done[ready:], 0
		used := 0
		for _, p := range append(slices.Clone(done), device...) {
			used += int(p.descs)
		}
		if q.Outstanding() != used {
			t.Fatalf("%d descriptors outstanding, want %d", q.Outstanding(), used)
		}
	}
}

func TestCommandTransmitOfNothing(t *testing.T) {
	lost := 0
	q, p := newCommandTransmit(t, func() { lost++ })
	q.Next()
	q.Add(1)
	q.End(true)
	for _, i := range []uint32{1, queueSize - 1, queueSize, 0xFFF} {
		p.complete(completion{index: i})
	}
	if n := q.Completed(10); n != 0 || lost != 4 || q.Outstanding() != 1 {
		t.Errorf("%d packets, lost %d times, %d outstanding", n, lost, q.Outstanding())
	}
	p.complete(completion{})
	if !q.Pending() || q.Completed(10) != 1 {
		t.Error("the packet that was sent is not completed")
	}
	far := testFormat
	far.CompletionIndex.Offset = 16
	if _, err := AllocCommandTransmit[desc, completion](heapDMA{}, queueSize, far, nil); err == nil {
		t.Error("a field behind the completion")
	}
}

// ReceiveRing ids and words of the tests' queues.
const headID, bodyID = 3, 11

func newCommandReceive(t testing.TB, asked func() bool) (*CommandReceive[desc, completion], *player, *[2]bell) {
	b := new([2]bell)
	q, err := AllocCommandReceive[desc, completion](heapDMA{}, queueSize, &framework.Buffers{Addr: 1 << 20, Stride: 4096, Size: 2048, Count: 64},
		ReceiveFormat{
			Align: 64, Desc: gen14, Comp: Owner{12, compGen}, Size: 100, BellAsked: asked, Order: Skips,
			Rings: []ReceiveRing{
				{ID: headID, Word: 1, Bell: framework.Register{Region: &b[0]}},
				{ID: bodyID, Word: 2, Bell: framework.Register{Region: &b[1]}},
			},
		})
	if err != nil {
		t.Fatal(err)
	}
	if q.Completions() != 2*queueSize {
		t.Errorf("%d completions", q.Completions())
	}
	return &q, newPlayer(q.comp), b
}

func poll(q *CommandReceive[desc, completion], dst *framework.Batch) framework.Verdict {
	for {
		c, ok := q.Next(dst)
		if !ok || !q.Fill(c.ring, c.index, c.length) {
			return q.End()
		}
		if c.end&compEnd != 0 {
			q.Deliver(dst)
		}
	}
}

// TestCommandReceive plays a device that takes buffers of both rings, skips some and
// leaves some empty: each comes back once, and where the device says.
func TestCommandReceive(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	q, p, _ := newCommandReceive(t, nil)
	batch := framework.NewBatch(2, 2*framework.MaxFragments)
	with := map[framework.Buffer]bool{}
	var next [2]uint32
	held := 0
	for range 5000 {
		for i := range framework.Buffer(64) {
			if !with[i] && r.IntN(8) == 0 && q.Post([]framework.Buffer{i}) == 1 {
				with[i] = true
			}
		}
		ring := r.IntN(2)
		if q.Outstanding(ring) > 0 {
			skipped := uint32(r.IntN(min(3, q.Outstanding(ring))))
			at := (next[ring] + skipped) % queueSize
			next[ring] = (at + 1) % queueSize
			p.complete(completion{at, []uint32{headID, bodyID}[ring], uint32(r.IntN(3) * 50), uint32(r.IntN(2))})
		}
		batch.Reset()
		if v := poll(q, batch); v != framework.Healthy {
			t.Fatalf("verdict %d", v)
		}
		for _, f := range batch.Frags {
			if !with[f.Buffer] || f.Len == 0 {
				t.Fatalf("fragment %+v", f)
			}
			delete(with, f.Buffer)
		}
		held = len(q.Fragments())
		if n := q.Outstanding(0) + q.Outstanding(1) + held; n != len(with) {
			t.Fatalf("%d buffers in the queue, want %d", n, len(with))
		}
	}
}

// TestCommandReceivePosts: with few buffers each ring gets its share, with many both
// are full.
func TestCommandReceivePosts(t *testing.T) {
	q, _, _ := newCommandReceive(t, nil)
	for i := range framework.Buffer(64) {
		n := q.Post([]framework.Buffer{i})
		head, body := q.Outstanding(0), q.Outstanding(1)
		if head-body != 0 && head-body != 1 || (n == 1) != (i < 2*(queueSize-1)) {
			t.Fatalf("buffer %d, posted %d: %d and %d", i, n, head, body)
		}
	}
}

func TestCommandReceiveBells(t *testing.T) {
	asked := false
	q, p, b := newCommandReceive(t, func() bool { return asked })
	rings := func() [2]int { return [2]int{len(b[0].writes), len(b[1].writes)} }
	batch := framework.NewBatch(4, 64)
	q.Post([]framework.Buffer{1, 2, 3})
	if q.Bell(); b[0].writes[0] != 2 || b[1].writes[0] != 1 {
		t.Errorf("told %v", *b)
	}
	p.complete(completion{0, headID, 0, compEnd}) // empty: given again
	if q.Bell(); poll(q, batch) != framework.Healthy || len(batch.Packets) != 0 || rings() != [2]int{1, 1} {
		t.Errorf("%d packets, bells %v that nobody asked for", len(batch.Packets), rings())
	}
	asked = true
	if q.Bell(); rings() != [2]int{2, 2} {
		t.Errorf("bells %v", rings())
	}
	p.complete(completion{1, headID, 0, compEnd})
	if poll(q, batch); rings() != [2]int{3, 3} {
		t.Errorf("bells %v after a buffer was given again", rings())
	}
	if poll(q, batch); rings() != [2]int{3, 3} {
		t.Errorf("bells %v with nothing new", rings())
	}
}

// TestCommandReceiveComesAgain: a completion that Fill did not take is the next one,
// and none is taken without room.
func TestCommandReceiveComesAgain(t *testing.T) {
	q, p, _ := newCommandReceive(t, nil)
	q.Post([]framework.Buffer{1, 2})
	p.complete(completion{0, headID, 10, 0})
	p.complete(completion{0, bodyID, 20, compEnd})
	batch := framework.NewBatch(1, 8)
	for range 2 {
		if c, ok := q.Next(batch); !ok || c.length != 10 || !q.Pending() {
			t.Fatalf("%+v, %v", c, ok)
		}
	}
	if poll(q, batch); len(batch.Packets) != 1 || batch.Packets[0].Len != 30 {
		t.Fatalf("packets %+v", batch.Packets)
	}
	q.Post([]framework.Buffer{3})
	p.complete(completion{1, headID, 10, compEnd})
	if _, ok := q.Next(batch); ok || !q.Pending() {
		t.Error("taken without room")
	}
}

func TestCommandReceiveOfNothing(t *testing.T) {
	for name, c := range map[string]completion{
		"no such ring": {0, headID + 1, 10, compEnd}, "empty slot": {3, headID, 10, compEnd}, "outside": {queueSize, bodyID, 10, compEnd},
	} {
		q, p, _ := newCommandReceive(t, nil)
		q.Post([]framework.Buffer{1, 2})
		p.complete(completion{0, headID, 10, compEnd})
		p.complete(c)
		p.complete(completion{0, bodyID, 10, compEnd})
		batch := framework.NewBatch(4, 64)
		if v := poll(q, batch); v != framework.QueueFault || len(batch.Packets) != 1 || q.Pending() {
			t.Errorf("%s: verdict %d, %d packets", name, v, len(batch.Packets))
		}
		if v := poll(q, batch); v != framework.QueueFault || len(batch.Packets) != 1 {
			t.Errorf("%s: the queue goes on", name)
		}
	}
}

func TestCommandQueuesAllocateNothing(t *testing.T) {
	tx, out := newCommandTransmit(t, nil)
	rx, in, _ := newCommandReceive(t, func() bool { return false })
	batch, bufs := framework.NewBatch(1, 8), []framework.Buffer{1}
	if n := testing.AllocsPerRun(500, func() {
		at := tx.Tail()
		tx.Next()
		tx.Add(1)
		tx.End(true)
		out.complete(completion{index: at})
		tx.Completed(4)
		batch.Reset()
		at = rx.rings[0].Tail()
		rx.Post(bufs)
		rx.Bell()
		in.complete(completion{at, headID, 60, compEnd})
		poll(rx, batch)
	}); n != 0 || len(batch.Packets) != 1 || tx.Outstanding() != 0 {
		t.Errorf("%v allocations, %d packets, %d descriptors", n, len(batch.Packets), tx.Outstanding())
	}
}
