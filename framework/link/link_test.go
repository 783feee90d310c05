package link

import (
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"nicd/bus"
	"nicd/framework"
)

var (
	_ framework.Interface = (*Host)(nil)
	_ framework.DMA       = (*DMA)(nil)
)

var seedFlag = flag.Uint64("seed", 0, "seed of random tests; 0 picks one")

func newRand(t testing.TB) *rand.Rand {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// small keeps rings so short that they wrap all the time.
var small = Options{Queues: 2, RxBuffers: 32, TxBuffers: 32, OwnBuffers: 4, BufferSize: 256, DMASize: 1 << 16}

// newHost makes a host over heap memory, where the race detector sees it.
func newHost(t testing.TB, o Options, broken func(*Violation)) *Host {
	t.Helper()
	l, err := o.Layout()
	if err != nil {
		t.Fatal(err)
	}
	h, err := NewHost(HostOptions{Name: "test0", Memory: bus.HeapMemory(l.Size()), Layout: o, OnViolation: broken})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.Stop()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func newLower(t testing.TB, h *Host) *Lower {
	t.Helper()
	return newLowerOf(t, h, nil)
}

// newLowerOf is newLower for an engine that the host's senders call, if near is the
// host.
func newLowerOf(t testing.TB, h, near *Host) *Lower {
	t.Helper()
	l, err := NewLower(LowerOptions{
		Host:   near,
		Memory: h.Memory(), Events: h.Events(), Generation: h.Generation(), Base: 1 << 20,
		Fault: func(err error) { t.Errorf("lower end: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// port collects what it is told.
type port struct {
	deliver func(queue int, b *framework.Batch)
	ready   func(queue int)
}

func (p *port) Deliver(queue int, b *framework.Batch) {
	if p.deliver != nil {
		p.deliver(queue, b)
	}
}

func (p *port) TxReady(queue int) {
	if p.ready != nil {
		p.ready(queue)
	}
}

// echo is an engine whose device sends back what it is given: each packet comes
// up in a receive buffer, as a copy. One goroutine per queue does both tasks.
type echo struct {
	l     *Lower
	taken atomic.Uint64 // packets
	stop  chan struct{}
	wg    sync.WaitGroup
}

func startEcho(l *Lower) *echo {
	e := &echo{l: l, stop: make(chan struct{})}
	for q := range l.Layout().Queues {
		e.wg.Go(func() { e.run(q) })
	}
	return e
}

func (e *echo) close() {
	close(e.stop)
	e.wg.Wait()
	e.l.Close()
}

func (e *echo) run(queue int) {
	wake := make(chan struct{}, 1)
	poke := func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	e.l.SetWaker(queue, poke, poke)
	in, out := framework.NewBatch(16, 128), framework.NewBatch(16, 128)
	var spare, done []framework.Buffer
	for {
		in.Reset()
		e.l.Take(queue, in)
		e.taken.Add(uint64(len(in.Packets)))
		out.Reset()
		done = done[:0]
		for i := range in.Packets {
			p := in.Packets[i]
			p.First = uint32(len(out.Frags))
			for _, f := range in.Fragments(i) {
				spare = e.buffer(queue, spare, wake)
				if spare == nil {
					return
				}
				g := framework.Fragment{Buffer: spare[len(spare)-1], Offset: framework.RxOffset, Len: f.Len}
				spare = spare[:len(spare)-1]
				copy(e.l.Buffers().Bytes(g), e.l.Buffers().Bytes(f))
				out.Frags = append(out.Frags, g)
				done = append(done, f.Buffer)
			}
			p.Flags &= receivedFlags
			out.Packets = append(out.Packets, p)
		}
		e.l.Complete(queue, done)
		if n := e.l.Deliver(queue, out); n != len(out.Packets) {
			panic("rx ring is full")
		}
		if len(in.Packets) == 0 && !e.l.ArmTx(queue) {
			select {
			case <-wake:
			case <-e.stop:
				return
			}
		}
	}
}

// buffer sees to it that there is a spare receive buffer.
func (e *echo) buffer(queue int, spare []framework.Buffer, wake chan struct{}) []framework.Buffer {
	for len(spare) == 0 {
		spare = append(spare, make([]framework.Buffer, 8)...)
		spare = spare[:e.l.Reclaim(queue, spare)]
		if len(spare) == 0 && !e.l.ArmRx(queue) {
			select {
			case <-wake:
			case <-e.stop:
				return nil
			}
		}
	}
	return spare
}

// census counts buffers by owner and fails the test unless all add up.
func census(t testing.TB, h *Host, port int) {
	t.Helper()
	var n [4]int
	for i := range h.owners {
		n[h.owners.of(framework.Buffer(i))]++
	}
	free := 0
	for i := range h.queues {
		free += len(h.queues[i].free)
	}
	if n[ownerPort] != port || n[ownerHost] != free {
		t.Fatalf("owners: host %d (free %d), port %d (want %d), engine %d of %d",
			n[ownerHost], free, n[ownerPort], port, n[ownerEngine], len(h.owners))
	}
}

// makePacket fills b with a packet of random shape from bufs and returns how
// many buffers it took.
func makePacket(r *rand.Rand, h *Host, b *framework.Batch, bufs []framework.Buffer, number uint64) int {
	n := 1 + r.IntN(min(len(bufs), 12))
	p := framework.Packet{
		First: uint32(len(b.Frags)), Frags: uint16(n), Hash: uint32(number), VLAN: uint16(number),
		Flags: framework.IPv4 | framework.TCP | framework.HashValid,
	}
	for i := range n {
		f := framework.Fragment{Buffer: bufs[i], Offset: uint32(r.IntN(40)), Len: uint32(14 + r.IntN(200))}
		mem := h.Buffers().Bytes(f)
		binary.LittleEndian.PutUint64(mem, number)
		mem[8] = byte(i)
		p.Len += f.Len
		b.Frags = append(b.Frags, f)
	}
	b.Packets = append(b.Packets, p)
	return n
}

// Everything sent comes back once, in order, with its own bytes; at the end
// every buffer is where it belongs.
func TestEcho(t *testing.T) {
	const packets = 5000
	for _, senders := range []int{1, 3, 4} {
		h := newHost(t, small, func(v *Violation) { t.Errorf("%v", v) })
		var near *Host // once more with senders that call the engine
		if senders == 4 {
			near = h
		}
		e := startEcho(newLowerOf(t, h, near))
		var last [2][4]atomic.Uint64
		var got atomic.Uint64
		all := make(chan struct{})
		wake := [2][4]chan struct{}{}
		p := &port{}
		p.deliver = func(queue int, b *framework.Batch) {
			var back []framework.Buffer
			for i := range b.Packets {
				frags := b.Fragments(i)
				mem := h.Buffers().Bytes(frags[0])
				number := binary.LittleEndian.Uint64(mem)
				from, count := number>>56, number<<8>>8
				if was := last[queue][from].Swap(count); count != was+1 {
					t.Errorf("queue %d sender %d: packet %d after %d", queue, from, count, was)
				}
				if uint32(number) != b.Packets[i].Hash || uint16(number) != b.Packets[i].VLAN {
					t.Errorf("queue %d: packet %#x has hash %#x", queue, number, b.Packets[i].Hash)
				}
				for j, f := range frags {
					if m := h.Buffers().Bytes(f); binary.LittleEndian.Uint64(m) != number || int(m[8]) != j {
						t.Errorf("queue %d: packet %#x fragment %d has another's bytes", queue, number, j)
					}
					back = append(back, f.Buffer)
				}
			}
			n := got.Add(uint64(len(b.Packets)))
			h.Release(queue, back)
			if n == uint64(2*senders*packets) {
				close(all)
			}
		}
		p.ready = func(queue int) {
			for s := range senders {
				select {
				case wake[queue][s] <- struct{}{}:
				default:
				}
			}
		}
		for q := range wake {
			for s := range wake[q] {
				wake[q][s] = make(chan struct{}, 1)
			}
		}
		if err := h.Start(p); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for q := range 2 {
			for s := range senders {
				r := rand.New(rand.NewPCG(newRand(t).Uint64(), uint64(s)))
				wg.Go(func() { sendAll(h, q, s, packets, r, wake[q][s]) })
			}
		}
		wg.Wait()
		select {
		case <-all:
		case <-time.After(30 * time.Second):
			t.Fatalf("%d of %d packets came back", got.Load(), 2*senders*packets)
		}
		h.Stop()
		e.close()
		for q := range h.queues {
			if v := h.queues[q].reclaim(); v != nil {
				t.Error(v)
			}
		}
		census(t, h, 0)
	}
}

// sendAll is a sender that goes to sleep whenever it is refused.
func sendAll(h *Host, queue, sender, packets int, r *rand.Rand, wake chan struct{}) {
	b := framework.NewBatch(8, 8*12)
	var bufs [24]framework.Buffer
	have := 0
	for number := 1; number <= packets; {
		have += h.Alloc(queue, bufs[have:])
		if have == 0 {
			<-wake
			continue
		}
		b.Reset()
		used := 0
		for used < have && number <= packets && len(b.Packets) < 8 {
			used += makePacket(r, h, b, bufs[used:have], uint64(sender)<<56|uint64(number))
			number++
		}
		have = copy(bufs[:], bufs[used:have])
		for {
			n := h.Send(queue, b)
			b.Packets = b.Packets[n:]
			if len(b.Packets) == 0 {
				break
			}
			<-wake
		}
		b = framework.NewBatch(8, 8*12)
	}
	h.Release(queue, bufs[:have])
}

// With one packet in flight and nobody spinning, each hand-over needs a wake:
// one that is lost is a standstill.
func TestNoWakeIsLost(t *testing.T) {
	noWakeIsLost(t, func(h *Host) *Lower { return newLower(t, h) })
}

func noWakeIsLost(t *testing.T, open func(*Host) *Lower) {
	const rounds = 3000
	l, err := small.Layout()
	if err != nil {
		t.Fatal(err)
	}
	h, err := NewHost(HostOptions{Name: "wake0", Memory: bus.HeapMemory(l.Size()), Layout: small, Spin: -1})
	if err != nil {
		t.Fatal(err)
	}
	e := startEcho(open(h))
	back := make(chan struct{})
	ready := make(chan struct{}, 1)
	p := &port{
		deliver: func(q int, b *framework.Batch) {
			h.Release(q, []framework.Buffer{b.Frags[0].Buffer})
			back <- struct{}{}
		},
		ready: func(int) {
			select {
			case ready <- struct{}{}:
			default:
			}
		},
	}
	if err := h.Start(p); err != nil {
		t.Fatal(err)
	}
	var buf [1]framework.Buffer
	for i := range rounds {
		for h.Alloc(0, buf[:]) == 0 {
			<-ready
		}
		b := framework.NewBatch(1, 1)
		b.Packets = append(b.Packets, framework.Packet{Frags: 1, Len: 60})
		b.Frags = append(b.Frags, framework.Fragment{Buffer: buf[0], Len: 60})
		if h.Send(0, b) != 1 {
			t.Fatal("refused")
		}
		select {
		case <-back:
		case <-time.After(10 * time.Second):
			t.Fatalf("round %d: standstill", i)
		}
	}
	h.Stop()
	e.close()
	if n := h.QueueStats(0).Sleeps; n < uint64(rounds/10) {
		t.Errorf("the receiver slept %d times only: the test proves nothing", n)
	}
	h.Close()
}
