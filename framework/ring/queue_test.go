package ring

import (
	"math/rand/v2"
	"slices"
	"testing"

	"nicd/bus"
	"nicd/framework"
)

// done is a descriptor of a device that sets bit 0 of its last word.
type done struct {
	addr     uint64
	len, end uint32
}

var doneOwner = Owner{12, 1}

// bell is a region with one register.
type bell struct {
	bus.Region // what no doorbell is asked for
	writes     []uint32
}

func (b *bell) Size() int               { return 4 }
func (b *bell) Read32(uint32) uint32    { return 0 }
func (b *bell) Write32(_, value uint32) { b.writes = append(b.writes, value) }

const queueSize = 8

func newDone(t testing.TB) *Done[done] {
	r, err := NewDone[done](make([]byte, 16*queueSize), queueSize, doneOwner)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestTransmitQueue(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	ring, b := newDone(t), &bell{}
	q := NewTransmit(ring, framework.Register{Region: b})
	type packet struct {
		last    uint32
		reports bool
	}
	var sent []packet // not handed out, oldest first
	at := uint32(0)
	for range 5000 {
		if n := 1 + r.IntN(3); n <= q.Space() && r.IntN(2) == 0 {
			for i := range n {
				q.Add(done{addr: uint64(i), len: uint32(n)})
				at = (at + 1) % queueSize
			}
			p := packet{(at + queueSize - 1) % queueSize, r.IntN(2) == 0 || q.Space() < 3}
			q.End(p.reports)
			sent = append(sent, p)
			q.Bell()
			if got := b.writes[len(b.writes)-1]; got != at {
				t.Fatalf("bell says %d, the tail is %d", got, at)
			}
		}
		if i := slices.IndexFunc(sent, func(p packet) bool { return p.reports && ring.desc[p.last].end == 0 }); i >= 0 && r.IntN(2) == 0 {
			ring.desc[sent[i].last].end = 1
		}
		want := 0 // all up to the last that was reported
		for i, p := range sent {
			if p.reports {
				if ring.desc[p.last].end == 0 {
					break
				}
				want = i + 1
			}
		}
		if q.Pending() != (want > 0) {
			t.Fatalf("pending %v with %d packets finished", q.Pending(), want)
		}
		most := 1 + r.IntN(4)
		if got := q.Completed(most); got != min(want, most) {
			t.Fatalf("%d of %d packets, at most %d", got, want, most)
		}
		sent = sent[min(want, most):]
		if len(sent) == 0 && q.Space() != queueSize-1 {
			t.Fatalf("%d descriptors free of an empty ring", q.Space())
		}
	}
}

func TestReceiveQueue(t *testing.T) {
	buffers := &framework.Buffers{Memory: make([]byte, 64*256), Addr: 1 << 32, Stride: 256, Size: 128, Count: 64}
	ring, b := newDone(t), &bell{}
	q := NewReceive(ring, buffers, 100, framework.Register{Region: b})
	batch := framework.NewBatch(4, 64)
	var bufs []framework.Buffer
	for i := range framework.Buffer(20) {
		bufs = append(bufs, i)
	}
	ring.desc[0] = done{1, 2, 3} // what was there a lap ago
	if n := q.Post(bufs); n != queueSize-1 {
		t.Fatalf("%d buffers posted", n)
	}
	if n := q.Outstanding(); n != queueSize-1 {
		t.Errorf("%d buffers outstanding", n)
	}
	q.Bell()
	q.Bell()
	if !slices.Equal(b.writes, []uint32{queueSize - 1}) {
		t.Errorf("bells %v", b.writes)
	}
	for i := range queueSize - 1 {
		if want := (done{addr: buffers.RxAddr(framework.Buffer(i))}); ring.desc[i] != want {
			t.Errorf("descriptor %d is %+v, want %+v", i, ring.desc[i], want)
		}
	}
	if _, ok := q.Next(batch); ok || q.Pending() {
		t.Error("a descriptor that is not done")
	}
	// Lengths of the device's: a packet of two buffers, an empty one, one too long.
	for i, n := range []uint32{100, 7, 0, 0xFFFF} {
		ring.desc[i].len, ring.desc[i].end = n, 1
	}
	poll := func() framework.Verdict {
		for {
			d, ok := q.Next(batch)
			if !ok {
				return q.End()
			}
			q.Fill(d.len)
			if d.len != 100 {
				q.Packet.VLAN = uint16(d.len)
				q.Deliver(batch)
			}
		}
	}
	if !q.Pending() || poll() != framework.Healthy || q.Pending() {
		t.Error("not polled")
	}
	if len(batch.Packets) != 2 {
		t.Fatalf("packets %+v", batch.Packets)
	}
	p := batch.Packets[0]
	if want := []framework.Fragment{{Buffer: 0, Offset: framework.RxOffset, Len: 100}, {Buffer: 1, Offset: framework.RxOffset, Len: 7}}; !slices.Equal(batch.Fragments(0), want) || p.VLAN != 7 || p.Error != 0 {
		t.Errorf("%+v of %+v", p, batch.Fragments(0))
	}
	if p := batch.Packets[1]; p.Len != 100 || p.Error != framework.DropDevice {
		t.Errorf("too long: %+v", p)
	}
	// The empty one was given again, and the device told.
	if last := ring.desc[queueSize-1]; last.addr != buffers.RxAddr(2) || b.writes[len(b.writes)-1] != 0 {
		t.Errorf("given again: %+v, bells %v", last, b.writes)
	}
	if q.End(); len(b.writes) != 2 {
		t.Errorf("bells %v", b.writes)
	}
}

// TestReceiveQueueWaits: with no room for another packet nothing is taken, and a
// packet whose end is not there stays.
func TestReceiveQueueWaits(t *testing.T) {
	buffers := &framework.Buffers{Memory: make([]byte, 64*256), Addr: 1 << 32, Stride: 256, Size: 128, Count: 64}
	ring := newDone(t)
	q := NewReceive(ring, buffers, 128, framework.Register{Region: &bell{}})
	q.Post([]framework.Buffer{1, 2, 3})
	for i := range 3 {
		ring.desc[i].end = 1
	}
	batch := framework.NewBatch(1, 8)
	for i := range 2 {
		if _, ok := q.Next(batch); !ok {
			t.Fatal(i)
		}
		q.Fill(10)
	}
	q.Deliver(batch)
	if _, ok := q.Next(batch); ok || !q.Pending() {
		t.Error("taken without room")
	}
	batch.Reset()
	if _, ok := q.Next(batch); !ok {
		t.Error("not taken with room")
	}
	q.Fill(10)
	if !q.Open() || len(batch.Packets) != 0 {
		t.Error("half a packet is delivered")
	}
}

func TestQueuesAllocateNothing(t *testing.T) {
	buffers := &framework.Buffers{Memory: make([]byte, 64*256), Addr: 1 << 32, Stride: 256, Size: 128, Count: 64}
	tx, rx := newDone(t), newDone(t)
	out, in := NewTransmit(tx, framework.Register{Region: &quietBell{}}), NewReceive(rx, buffers, 128, framework.Register{Region: &quietBell{}})
	batch := framework.NewBatch(1, 8)
	bufs := []framework.Buffer{1}
	if n := testing.AllocsPerRun(500, func() {
		at := tx.Tail()
		out.Add(done{len: 1})
		out.End(true)
		out.Bell()
		tx.desc[at].end = 1
		out.Completed(4)
		batch.Reset()
		at = rx.Tail()
		in.Post(bufs)
		rx.desc[at].end = 1
		in.Next(batch)
		in.Fill(60)
		in.Deliver(batch)
		in.End()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

type quietBell struct{ bus.Region }

func (*quietBell) Size() int              { return 4 }
func (*quietBell) Read32(uint32) uint32   { return 0 }
func (*quietBell) Write32(uint32, uint32) {}
