package link

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"nicd/bus"
	"nicd/framework"
)

func TestLayout(t *testing.T) {
	r := newRand(t)
	for range 200 {
		o := Options{
			Queues: 1 + r.IntN(8), RxBuffers: 1 + r.IntN(300), TxBuffers: 1 + r.IntN(300), OwnBuffers: 1 + r.IntN(20),
			BufferSize: MinBufferSize + r.IntN(4096), DMASize: pageSize + r.IntN(1<<16), CounterSize: 64 + r.IntN(9000),
		}
		l, err := o.Layout()
		if err != nil {
			t.Fatal(o, err)
		}
		end := l.counters + l.CounterSize
		for q := range o.Queues {
			for k := range numRings {
				at := l.ringOffset(q, k)
				if at < end || at%lineSize != 0 {
					t.Fatalf("%+v: ring %d/%v at %d overlaps %d", o, q, k, at, end)
				}
				end = at + l.ringSize(k)
			}
		}
		if l.dma < end || l.dma%pageSize != 0 || l.buffers != l.dma+l.DMASize {
			t.Fatalf("%+v: DMA area at %d, buffers at %d", o, l.dma, l.buffers)
		}
		if l.size < l.buffers+l.numBuffers()*l.stride || l.stride < o.BufferSize+framework.RxOffset || l.stride%2048 == 0 {
			t.Fatalf("%+v: %d buffers of %d in %d", o, l.numBuffers(), l.stride, l.size-l.buffers)
		}
		h, err := NewHost(HostOptions{Name: "x", Memory: bus.HeapMemory(l.Size()), Layout: o})
		if err != nil {
			t.Fatal(err)
		}
		got, generation, err := readHeader(h.Memory())
		if err != nil || got != l || generation != 1 {
			t.Fatalf("header says %+v, %d, %v; want %+v", got, generation, err, l)
		}
		h.Close()
	}
}

func TestBadOptions(t *testing.T) {
	for _, o := range []Options{
		{Queues: -1}, {Queues: MaxQueues + 1}, {RxBuffers: -5}, {TxBuffers: MaxBuffers + 1}, {OwnBuffers: -1},
		{BufferSize: 10}, {BufferSize: MaxBufferSize + 1}, {DMASize: 1}, {CounterSize: 1},
	} {
		if _, err := o.Layout(); !errors.Is(err, ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := NewHost(HostOptions{Memory: bus.HeapMemory(4096)}); !errors.Is(err, ErrArena) {
		t.Errorf("too small: %v", err)
	}
}

func TestNotAnArena(t *testing.T) {
	h := newHost(t, small, nil)
	for _, c := range []struct {
		name string
		bad  func(b []byte)
		is   error
	}{
		{"magic", func(b []byte) { b[0]++ }, ErrArena},
		{"version", func(b []byte) { b[offVersion]++ }, ErrArena},
		{"queues", func(b []byte) { b[offOptions] = 200 }, ErrArena},
		{"one queue less", func(b []byte) { b[offOptions]-- }, ErrArena},
		{"size", func(b []byte) { b[offSize+3]++ }, ErrArena},
		{"generation", func(b []byte) { b[offGeneration]++ }, ErrGeneration},
	} {
		mem := bus.HeapMemory(h.Memory().Size())
		copy(mem.Bytes(), h.Memory().Bytes())
		c.bad(mem.Bytes())
		if _, err := NewLower(LowerOptions{Memory: mem, Events: h.Events(), Generation: 1}); !errors.Is(err, c.is) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := NewLower(LowerOptions{Memory: bus.HeapMemory(100), Events: h.Events()}); !errors.Is(err, ErrArena) {
		t.Errorf("short: %v", err)
	}
	if _, err := NewLower(LowerOptions{Memory: h.Memory()}); !errors.Is(err, ErrArena) {
		t.Errorf("without events: %v", err)
	}
}

func TestDMA(t *testing.T) {
	h := newHost(t, small, nil)
	l := newLower(t, h)
	defer l.Close()
	d := l.DMA()
	r := newRand(t)
	arena, base := h.Memory().Bytes(), uint64(1<<20)
	mark := d.Mark()
	for range 20 {
		end := uint64(0)
		for {
			size, align := 1+r.IntN(9000), 1<<r.IntN(13)
			b, err := d.Alloc(size, align)
			if errors.Is(err, ErrDMAFull) {
				break
			}
			if err != nil || len(b.Bytes) != size || b.Addr%uint64(align) != 0 || b.Addr < end {
				t.Fatalf("%d/%d: %d at %#x after %#x, %v", size, align, len(b.Bytes), b.Addr, end, err)
			}
			if bytes.ContainsFunc(b.Bytes, func(r rune) bool { return r != 0 }) {
				t.Fatal("not zeroed")
			}
			if &arena[b.Addr-base] != &b.Bytes[0] {
				t.Fatal("address is another place's")
			}
			for i := range b.Bytes {
				b.Bytes[i] = 0xaa
			}
			end = b.Addr + uint64(size)
		}
		d.Rewind(mark)
	}
	for _, c := range [][2]int{{0, 1}, {-1, 1}, {1, 3}, {1, -4}} {
		if _, err := d.Alloc(c[0], c[1]); !errors.Is(err, ErrOptions) {
			t.Errorf("Alloc%v: %v", c, err)
		}
	}
}

// Entries survive the ring as they are, at any place in it.
func TestEntryRoundTrip(t *testing.T) {
	r := newRand(t)
	h := newHost(t, Options{RxBuffers: 64, TxBuffers: 64}, nil)
	l := newLower(t, h)
	defer l.Close()
	w, rd := &h.queues[0].tx, &l.queues[0].tx
	in, out := framework.NewBatch(8, 8*framework.MaxFragments), framework.NewBatch(8, 8*framework.MaxFragments)
	for range 5000 {
		in.Reset()
		out.Reset()
		for range 1 + r.IntN(8) {
			p := randomPacket(r, in, h.Buffers())
			if ok, v := w.reserve(entriesFor(int(p.Frags))); v != nil {
				t.Fatal(v)
			} else if !ok {
				in.Packets = in.Packets[:len(in.Packets)-1]
				break
			}
			w.write(&p, in.Fragments(len(in.Packets)-1))
		}
		w.publish()
		for len(out.Packets) < len(in.Packets) {
			n, v := rd.read(out)
			if v != nil || n == 0 {
				t.Fatalf("read %d of %d packets: %v", len(out.Packets), len(in.Packets), v)
			}
			rd.release(n)
		}
		for i := range in.Packets {
			want, got := in.Packets[i], out.Packets[i]
			want.First = got.First
			if got != want {
				t.Fatalf("packet %+v became %+v", want, got)
			}
			for j, f := range in.Fragments(i) {
				if out.Fragments(i)[j] != f {
					t.Fatalf("fragment %d: %+v became %+v", j, f, out.Fragments(i)[j])
				}
			}
		}
	}
}

func randomPacket(r *rand.Rand, b *framework.Batch, bufs *framework.Buffers) framework.Packet {
	p := framework.Packet{
		First: uint32(len(b.Frags)), Frags: uint16(1 + r.IntN(framework.MaxFragments)),
		Flags: framework.PacketFlags(r.Uint32()), Hash: r.Uint32(), VLAN: uint16(r.Uint32()),
		Segments: uint16(r.Uint32()), SegmentSize: uint16(r.Uint32()), HeaderLen: uint16(r.Uint32()),
		ChecksumStart: uint16(r.Uint32()), ChecksumOffset: uint16(r.Uint32()), Error: framework.DropReason(r.Uint32()),
	}
	for range p.Frags {
		f := framework.Fragment{Buffer: framework.Buffer(r.IntN(int(bufs.Count))), Offset: uint32(r.IntN(500)), Len: uint32(1 + r.IntN(1000))}
		b.Frags = append(b.Frags, f)
		p.Len += f.Len
	}
	b.Packets = append(b.Packets, p)
	return p
}

// What a port does wrong is counted and harms nobody.
func TestPortMistakes(t *testing.T) {
	h := newHost(t, small, func(v *Violation) { t.Error(v) })
	if err := h.Start(&port{}); err != nil {
		t.Fatal(err)
	}
	var bufs [4]framework.Buffer
	if n := h.Alloc(0, bufs[:]); n != 4 {
		t.Fatal(n)
	}
	good := framework.Fragment{Buffer: bufs[0], Len: 60}
	for _, c := range []struct {
		name  string
		frags []framework.Fragment
		len   uint32
	}{
		{"length", []framework.Fragment{good}, 61},
		{"no fragments", nil, 0},
		{"empty fragment", []framework.Fragment{{Buffer: bufs[0]}}, 0},
		{"outside", []framework.Fragment{{Buffer: bufs[0], Offset: 10000, Len: 60}}, 60},
		{"no such buffer", []framework.Fragment{{Buffer: framework.NoBuffer, Len: 60}}, 60},
		{"same buffer twice", []framework.Fragment{good, good}, 120},
		{"not the port's", []framework.Fragment{{Buffer: 0, Len: 60}}, 60},
		{"too many", make([]framework.Fragment, framework.MaxFragments+1), 0},
	} {
		before := h.QueueStats(0)
		b := &framework.Batch{Packets: []framework.Packet{{Frags: uint16(len(c.frags)), Len: c.len}}, Frags: c.frags}
		if n := h.Send(0, b); n != 1 {
			t.Errorf("%s: Send took %d", c.name, n)
		}
		if after := h.QueueStats(0); after.Malformed != before.Malformed+1 || after.Sent != before.Sent {
			t.Errorf("%s: %+v", c.name, after)
		}
		h.Release(0, bufs[:1]) // in case it was not taken; otherwise misuse
		h.Alloc(0, bufs[:1])
	}
	before := h.QueueStats(0).Misused
	h.Release(0, []framework.Buffer{bufs[1], bufs[1], framework.NoBuffer, 0, bufs[2], bufs[3], bufs[0]})
	if n := h.QueueStats(0).Misused - before; n != 3 {
		t.Errorf("misused %d, want 3", n)
	}
	h.Stop()
	census(t, h, 0)
}

// Buffers may be given back through any queue, in any mixture, and sent on any.
func TestBuffersFindTheirHome(t *testing.T) {
	h := newHost(t, small, func(v *Violation) { t.Error(v) })
	var mine []framework.Buffer
	var mu sync.Mutex
	all := make(chan struct{})
	p := &port{deliver: func(_ int, b *framework.Batch) {
		mu.Lock()
		defer mu.Unlock()
		for _, f := range b.Frags {
			mine = append(mine, f.Buffer)
		}
		if len(mine) == 40 {
			close(all)
		}
	}}
	if err := h.Start(p); err != nil {
		t.Fatal(err)
	}
	l := newLower(t, h)
	defer l.Close()
	r := &rogue{t: t, h: h, l: l}
	for q := range 2 {
		bufs := make([]framework.Buffer, 20)
		if n := l.Reclaim(q, bufs); n != 20 {
			t.Fatal(n)
		}
		if n := l.Deliver(q, r.batch(bufs)); n != 20 {
			t.Fatal(n)
		}
	}
	<-all
	tx := make([]framework.Buffer, 20)
	for q := range 2 {
		mine = append(mine, tx[:h.Alloc(q, tx[:10])]...)
	}
	rnd := newRand(t)
	rnd.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
	if n := h.Send(1, r.batch(mine[:20])); n != 20 { // received ones are sent as well
		t.Fatal(n)
	}
	h.Release(0, mine[20:])
	b := framework.NewBatch(64, 128)
	l.Take(1, b)
	if len(b.Packets) != 20 {
		t.Fatal(len(b.Packets))
	}
	var sent []framework.Buffer
	for _, f := range b.Frags {
		sent = append(sent, f.Buffer)
	}
	l.Complete(1, sent)
	if v := h.queues[1].reclaim(); v != nil {
		t.Fatal(v)
	}
	back := 0
	for q := range 2 {
		bufs := make([]framework.Buffer, 64)
		for _, b := range bufs[:l.Reclaim(q, bufs)] {
			if !l.Layout().RxRange(q).has(b) {
				t.Errorf("buffer %d came back to queue %d", b, q)
			}
			back++
		}
	}
	if back != 64 {
		t.Errorf("%d receive buffers came back, want 64", back)
	}
	h.Stop()
	census(t, h, 0)
}

// A sender that is refused is told once there is room, for both reasons.
func TestBackpressure(t *testing.T) {
	h := newHost(t, small, func(v *Violation) { t.Error(v) })
	ready := make(chan int, 100)
	if err := h.Start(&port{ready: func(q int) { ready <- q }}); err != nil {
		t.Fatal(err)
	}
	l := newLower(t, h)
	defer l.Close()
	r := &rogue{t: t, h: h, l: l}
	bufs := make([]framework.Buffer, small.TxBuffers+1)
	if n := h.Alloc(0, bufs); n != small.TxBuffers {
		t.Fatal(n)
	}
	if n := h.Send(0, r.batch(bufs[:small.TxBuffers])); n != small.TxBuffers {
		t.Fatalf("sent %d", n)
	}
	select {
	case <-ready:
		t.Fatal("ready without progress")
	case <-time.After(20 * time.Millisecond):
	}
	b := framework.NewBatch(4, 4+framework.MaxFragments)
	l.Take(0, b)
	l.Complete(0, []framework.Buffer{b.Frags[0].Buffer})
	if q := <-ready; q != 0 {
		t.Fatal(q)
	}
	if n := h.Alloc(0, bufs[:1]); n != 1 {
		t.Fatal("not really ready")
	}
	h.Release(0, bufs[:1])
}

// Who waits for buffers is woken when some come back, and by nothing else: that the
// engine took packets, before or since, leaves the receiver asleep.
func TestWaitForBuffersIsQuiet(t *testing.T) {
	h := newHost(t, small, func(v *Violation) { t.Error(v) })
	if err := h.Start(&port{}); err != nil {
		t.Fatal(err)
	}
	l := newLower(t, h)
	defer l.Close()
	r := &rogue{t: t, h: h, l: l}
	bufs := make([]framework.Buffer, small.TxBuffers)
	if n := h.Alloc(0, bufs); n != len(bufs) {
		t.Fatal(n)
	}
	if n := h.Send(0, r.batch(bufs)); n != len(bufs) {
		t.Fatal(n)
	}
	h.Stop() // this goroutine is the receiver now
	q := &h.queues[0]
	q.self.Load().Take()
	b := framework.NewBatch(4, 4+framework.MaxFragments)
	for range 2 {
		b.Reset()
		l.Take(0, b)
		var one [1]framework.Buffer
		if n := h.Alloc(0, one[:]); n != 0 {
			t.Fatal(n)
		}
		if ready, v := q.retry(); ready || v != nil {
			t.Fatal(ready, v)
		}
	}
	if n := q.self.Load().Take(); n != 0 {
		t.Errorf("woken %d times, and no buffer came back", n)
	}
	l.Complete(0, []framework.Buffer{b.Frags[0].Buffer})
	if n := q.self.Load().Take(); n != 1 {
		t.Errorf("woken %d times for a buffer", n)
	}
	if ready, v := q.retry(); !ready || v != nil {
		t.Error(ready, v)
	}
}

// Who got too few buffers is told when there are some again, also if it was not
// the engine that gave them back.
func TestBuffersComeBackFromThePort(t *testing.T) {
	h := newHost(t, small, func(v *Violation) { t.Error(v) })
	ready := make(chan int, 100)
	if err := h.Start(&port{ready: func(q int) { ready <- q }}); err != nil {
		t.Fatal(err)
	}
	bufs := make([]framework.Buffer, small.TxBuffers)
	for range 200 {
		if n := h.Alloc(1, bufs); n != small.TxBuffers {
			t.Fatal(n)
		}
		var releasing sync.WaitGroup
		releasing.Go(func() { h.Release(0, bufs[:1]) })
		var one [1]framework.Buffer
		if h.Alloc(1, one[:]) == 0 {
			select {
			case q := <-ready:
				if q != 1 {
					t.Fatal(q)
				}
			case <-time.After(5 * time.Second):
				t.Fatal("a buffer is free and nobody was told")
			}
			if n := h.Alloc(1, one[:]); n != 1 {
				t.Fatal(n)
			}
		}
		releasing.Wait()
		h.Release(1, one[:])
		h.Release(1, bufs[1:])
	}
}

// While the link is stopped senders are refused, and told when it goes on.
func TestSendWhileStopped(t *testing.T) {
	h := newHost(t, small, func(v *Violation) { t.Error(v) })
	bufs := make([]framework.Buffer, 4)
	if n := h.Alloc(0, bufs); n != 4 {
		t.Fatal(n)
	}
	r := &rogue{t: t, h: h}
	if n := h.Send(0, r.batch(bufs)); n != 0 {
		t.Fatalf("stopped, but took %d", n)
	}
	ready := make(chan int, 1)
	if err := h.Start(&port{ready: func(q int) { ready <- q }}); err != nil {
		t.Fatal(err)
	}
	<-ready
	if n := h.Send(0, r.batch(bufs)); n != 4 {
		t.Fatalf("started, but took %d", n)
	}
	if err := h.Start(&port{}); !errors.Is(err, ErrRunning) {
		t.Errorf("second start: %v", err)
	}
	if err := h.Reset(); !errors.Is(err, ErrRunning) {
		t.Errorf("reset of a running host: %v", err)
	}
	h.Stop()
	if err := h.Reset(); err != nil {
		t.Fatal(err)
	}
	census(t, h, 0)
}

// TestTurnedAwayAtStart: a sender that has seen that nothing flows, and says that it
// waits only after Start's receivers have gone to sleep, is told all the same.
func TestTurnedAwayAtStart(t *testing.T) {
	h := newHost(t, small, func(v *Violation) { t.Error(v) })
	ready := make(chan struct{}, 1)
	if err := h.Start(&port{ready: func(int) { poke(ready)() }}); err != nil {
		t.Fatal(err)
	}
	q := &h.queues[0]
	for q.counters.sleeps.Load() == 0 {
		runtime.Gosched()
	}
	q.mu.Lock()
	q.turnAway()
	q.mu.Unlock()
	await(t, ready, "a TxReady", 0)
}

// TestNothingReclaimedAtFirst: the first engine's buffers are not taken back from
// anybody.
func TestNothingReclaimedAtFirst(t *testing.T) {
	h := newHost(t, small, func(v *Violation) { t.Error(v) })
	reclaimed := func() (n uint64) {
		for q := range h.Layout().Queues {
			n += h.QueueStats(q).Reclaimed
		}
		return n
	}
	if n := reclaimed(); n != 0 {
		t.Errorf("%d buffers before the first engine", n)
	}
	if err := h.Reset(); err != nil {
		t.Fatal(err)
	}
	if reclaimed() == 0 {
		t.Error("none after an engine")
	}
}

// Engines come and go in the middle of everything; senders and the port's
// buffers live on, no buffer is lost, and every packet that no engine has taken is
// counted.
func TestReset(t *testing.T) {
	r := newRand(t)
	h := newHost(t, small, func(v *Violation) { t.Error(v) })
	var mu sync.Mutex
	var held []framework.Buffer // by the port, across engines
	p := &port{deliver: func(_ int, b *framework.Batch) {
		mu.Lock()
		defer mu.Unlock()
		for _, f := range b.Frags {
			held = append(held, f.Buffer)
		}
	}}
	stop := make(chan struct{})
	var senders sync.WaitGroup
	for q := range 2 {
		rnd := rand.New(rand.NewPCG(r.Uint64(), 1))
		senders.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				var bufs [12]framework.Buffer
				n := h.Alloc(q, bufs[:])
				b := framework.NewBatch(8, 64)
				used := 0
				for used < n && len(b.Packets) < 8 {
					used += makePacket(rnd, h, b, bufs[used:n], 1)
				}
				done := h.Send(q, b)
				for i := done; i < len(b.Packets); i++ {
					for _, f := range b.Fragments(i) {
						h.Release(q, []framework.Buffer{f.Buffer})
					}
				}
				h.Release(q, bufs[used:n])
				mu.Lock()
				back := held[:rnd.IntN(len(held)+1)]
				h.Release(rnd.IntN(2), back)
				held = held[len(back):]
				mu.Unlock()
			}
		})
	}
	var taken uint64
	for generation := uint32(1); generation <= 30; generation++ {
		if h.Generation() != generation {
			t.Fatalf("generation %d, want %d", h.Generation(), generation)
		}
		l := newLower(t, h)
		if err := h.Start(p); err != nil {
			t.Fatal(err)
		}
		e := startEcho(l)
		time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond) // an engine's life; nothing waits for it
		e.close()
		taken += e.taken.Load()
		h.Stop()
		if err := h.Reset(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	senders.Wait()
	h.Release(0, held)
	var sent, dropped uint64
	for q := range small.Queues {
		sent += h.QueueStats(q).Sent
		dropped += h.QueueStats(q).Dropped
	}
	if sent != taken+dropped || dropped == 0 {
		t.Errorf("%d packets sent, %d taken by engines, %d dropped", sent, taken, dropped)
	}
	if n := h.QueueStats(0).Misused + h.QueueStats(0).Malformed; n != 0 {
		t.Errorf("%d mistakes", n)
	}
	census(t, h, 0)
}

// When a host has fewer transmit queues than before, what is sent to one that is
// not in use goes to one that is, its sender is told about that one, and nothing
// is added to the others.
func TestFewerQueues(t *testing.T) {
	h := newHost(t, small, func(v *Violation) { t.Error(v) })
	ready := make(chan int, 100)
	if err := h.Start(&port{ready: func(q int) { ready <- q }}); err != nil {
		t.Fatal(err)
	}
	l := newLower(t, h)
	defer l.Close()
	r := &rogue{t: t, h: h, l: l}
	bufs := make([]framework.Buffer, small.TxBuffers)
	if n := h.Alloc(1, bufs); n != len(bufs) {
		t.Fatal(n)
	}
	h.Send(1, r.batch(bufs[:2]))
	h.Configure(h.Settings(), 1)
	h.Send(1, r.batch(bufs[2:5]))
	b := framework.NewBatch(64, 64+framework.MaxFragments)
	for q, want := range []int{3, 2} {
		b.Reset()
		if l.Take(q, b); len(b.Packets) != want {
			t.Errorf("queue %d: %d packets, want %d", q, len(b.Packets), want)
		}
		var sent []framework.Buffer
		for _, f := range b.Frags {
			sent = append(sent, f.Buffer)
		}
		l.Complete(q, sent)
	}
	// Refused on queue 1, which stands for queue 0.
	for sent := 5; ; {
		n := h.Send(1, r.batch(bufs[sent:]))
		if sent += n; sent == len(bufs) || n == 0 {
			h.Reclaim()
			h.Release(1, bufs[sent:])
			break
		}
	}
	got := h.Holdings()
	if got.TxPort != 0 || got.TxFree+got.TxEngine != 2*small.TxBuffers || got.RxPort != 0 || got.RxEngine != 2*small.RxBuffers {
		t.Errorf("%+v", got)
	}
	h.Stop()
	census(t, h, 0)
}

// What an engine that is gone has left in the ring is counted packet by packet,
// also if it lied about how far it got: then as of the last time that it did not.
func TestDroppedPackets(t *testing.T) {
	for _, c := range []struct {
		name     string
		consumer func(said uint32) uint32
		want     uint64
	}{
		{"honest", func(said uint32) uint32 { return said }, 5},
		{"ahead of the producer", func(said uint32) uint32 { return said + 1000 }, 8},
		{"behind itself", func(said uint32) uint32 { return said - 1000 }, 8},
	} {
		h := newHost(t, small, func(v *Violation) { t.Error(v) })
		if err := h.Start(&port{}); err != nil {
			t.Fatal(err)
		}
		l := newLower(t, h)
		bufs := make([]framework.Buffer, small.TxBuffers)
		if n := h.Alloc(0, bufs); n != len(bufs) {
			t.Fatal(n)
		}
		rnd := newRand(t)
		b := framework.NewBatch(8, len(bufs))
		for used := 0; len(b.Packets) < 8; { // of one or two entries
			used += makePacket(rnd, h, b, bufs[used:used+len(bufs)/8], 1)
		}
		if n := h.Send(0, b); n != 8 {
			t.Fatal(n)
		}
		in := framework.NewBatch(3, 3*framework.MaxFragments)
		if l.Take(0, in); len(in.Packets) != 3 {
			t.Fatalf("%d packets", len(in.Packets))
		}
		l.Close()
		h.Stop()
		word := h.queues[0].tx.consumer
		word.Store(c.consumer(word.Load()))
		if err := h.Reset(); err != nil {
			t.Fatal(err)
		}
		if n := h.QueueStats(0).Dropped; n != c.want {
			t.Errorf("%s: %d packets dropped, want %d", c.name, n, c.want)
		}
	}
}
