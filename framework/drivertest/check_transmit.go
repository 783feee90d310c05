package drivertest

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"nicd/framework"
	"nicd/framework/drivertest/rig"
)

var transmitChecks = []*check{
	{name: "transmit.wrap", run: transmitWrap,
		doc: "Frames of all sizes, in fragments of all sizes, are sent whole and in order, around the ring several times."},
	{name: "transmit.full", run: transmitFull,
		doc: "A ring takes at most its size less one, and nothing is sent or finished before the bell."},
	{name: "transmit.whole", run: transmitWhole,
		doc: "Put takes no packet by half when the ring has room for a part of it."},
	{name: "transmit.pending", run: transmitPending,
		doc: "Pending says whether Completed would return something, and changes nothing."},
	{name: "transmit.completed", run: transmitCompleted,
		doc: "Completed returns at most what it is asked for, and each packet once."},
	{name: "transmit.reports", run: transmitReports,
		doc: "Packets that do not ask for a completion are finished with the next one that does."},
	{name: "transmit.fragments", run: transmitFragments,
		doc: "A packet has as many fragments as Info says, of any length from one byte on."},
	{name: "transmit.long-fragment", run: transmitLongFragment,
		doc: "A fragment is as long as Info says that one descriptor carries."},
	{name: "transmit.bell", run: transmitBell,
		doc: "A bell with nothing new does no harm, and one bell sends all that was put."},
	{name: "transmit.batch", run: transmitBatch,
		doc: "A batch is taken from where the last Put stopped, in order, each packet once."},
	{name: "transmit.allocates-nothing", run: transmitAllocates,
		doc: "Put, Completed and Pending allocate nothing."},
	{name: "transmit.engine", run: transmitEngine,
		doc: "The engine sends thousands of packets in order, and every buffer comes back."},
	{name: "transmit.peer-slow", needs: []Ability{FlowControl}, run: transmitSlowPeer,
		doc: "A far end that takes frames slowly loses none and the queue does not lock up."},
}

func transmitWrap(t *c) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	n := t.net(on{})
	for i := range t.turns(400) {
		f := out(i, rng.IntN(1400)+20)
		meta := framework.Packet{}
		if i%5 == 0 {
			meta.Flags = framework.Completion
		}
		if !n.Put(0, f, 200+rng.IntN(1300), meta) {
			t.Fatalf("packet %d: the ring is full", i)
		}
		n.Queues.Tx[0].Bell()
		n.Queues.Tx[0].Bell() // for a device that waits for company
		t.sent(n, f)
		n.Until("completions", func() bool { n.Reap(0); return n.InFlight(0) < 5 })
	}
}

func transmitFull(t *c) {
	n := t.net(on{})
	f := out(0, 50)
	for lap := range 3 {
		sent := 0
		for n.Put(0, f, len(f), framework.Packet{Flags: framework.Completion}) {
			sent++
		}
		if sent > n.Config.TxDescriptors-1 || sent < (n.Config.TxDescriptors-1)/2 {
			t.Fatalf("lap %d: %d packets in a ring of %d", lap, sent, n.Config.TxDescriptors)
		}
		if n.Queues.Tx[0].Pending() || n.Reap(0) != 0 {
			t.Fatal("packets are finished that were not announced")
		}
		t.nothing(n, "before the bell")
		n.Queues.Tx[0].Bell()
		for range sent {
			t.sent(n, f)
		}
		n.Until("all to be finished", func() bool { n.Reap(0); return n.InFlight(0) == 0 })
		if n.Queues.Tx[0].Pending() {
			t.Error("something pending in an idle queue")
		}
	}
}

func transmitWhole(t *c) {
	n := t.net(on{})
	frags := min(8, n.Info.MaxTxFragments)
	long := out(7, 60*frags-54)
	for room := range frags + 2 {
		small, bells := 0, 0
		// Fill up, so that the long packet meets every amount of room.
		for small < n.Config.TxDescriptors-1-room && n.Put(0, out(small, 40), 200, framework.Packet{Flags: framework.Completion}) {
			small++
		}
		if n.Put(0, long, 60, framework.Packet{Flags: framework.Completion}) {
			bells++
		}
		n.Queues.Tx[0].Bell()
		for i := range small {
			t.sent(n, out(i, 40))
		}
		if bells == 0 {
			n.Until("room", func() bool { n.Reap(0); return n.InFlight(0) == 0 })
			t.nothing(n, "of a packet that Put did not take")
			n.Send(0, long, 60, framework.Packet{})
		}
		t.sent(n, long)
		n.Until("all to be finished", func() bool { n.Reap(0); return n.InFlight(0) == 0 })
	}
}

func transmitPending(t *c) {
	n := t.net(on{})
	q := n.Queues.Tx[0]
	for i := range 100 {
		if q.Pending() {
			t.Fatalf("packet %d: pending before it was sent", i)
		}
		n.Put(0, out(i, 60), 200, framework.Packet{Flags: framework.Completion})
		q.Bell()
		n.Until("completion", q.Pending)
		for range 3 {
			if !q.Pending() {
				t.Fatalf("packet %d: not pending any more, and nobody asked Completed", i)
			}
		}
		if got := n.Reap(0); got != 1 {
			t.Fatalf("packet %d: pending, and Completed says %d", i, got)
		}
		t.sent(n, out(i, 60))
	}
}

func transmitCompleted(t *c) {
	n := t.net(on{})
	q := n.Queues.Tx[0]
	for lap := range 5 {
		const packets = 20
		for i := range packets {
			n.Put(0, out(i, 60), 200, framework.Packet{Flags: framework.Completion})
		}
		q.Bell()
		for i := range packets {
			t.sent(n, out(i, 60))
		}
		finished := 0
		n.Until("completions", func() bool {
			most := 1 + lap
			got := n.ReapAtMost(0, most)
			if got > most {
				t.Fatalf("%d packets finished, asked for %d", got, most)
			}
			finished += got
			return finished >= packets
		})
		if more := q.Completed(64); more != 0 {
			t.Errorf("%d packets finished that were not sent", more)
		}
	}
}

func transmitReports(t *c) {
	n := t.net(on{})
	for range 30 {
		for i := range 7 {
			meta := framework.Packet{}
			if i == 6 {
				meta.Flags = framework.Completion
			}
			n.Put(0, out(i, 100), 60, meta)
		}
		n.Queues.Tx[0].Bell()
		for i := range 7 {
			t.sent(n, out(i, 100))
		}
		n.Until("all to be finished", func() bool { n.Reap(0); return n.InFlight(0) == 0 })
	}
}

func transmitFragments(t *c) {
	n := t.net(on{Options: rig.Options{Config: func(cfg *framework.Config) { cfg.TxDescriptors = 256 }}})
	most := min(n.Info.MaxTxFragments, framework.MaxFragments)
	for _, count := range slices.Compact([]int{1, 2, 3, (most + 1) / 2, most - 1, most}) {
		for _, size := range []int{1, 2, 3, 17, 61} {
			if count < 1 || count*size < 60 || count*size > 1500 {
				continue
			}
			f := out(count, count*size-54)
			n.Send(0, f, size, framework.Packet{})
			t.sent(n, f)
		}
	}
	// A first fragment of one byte, and of the Ethernet header alone.
	for _, first := range []int{1, 14, 34, 54} {
		f := out(first, 200)
		if !n.PutPieces(0, framework.Packet{Flags: framework.Completion}, f[:first], f[first:]) {
			t.Fatal("the ring is full")
		}
		n.Queues.Tx[0].Bell()
		t.sent(n, f)
		n.Until("completion", func() bool { n.Reap(0); return n.InFlight(0) == 0 })
	}
}

func transmitLongFragment(t *c) {
	const size = 16 << 10
	n := t.net(on{Options: rig.Options{Stopped: true, Buffers: 128, BufferSize: size, Config: func(cfg *framework.Config) {
		oneQueue(cfg)
		cfg.Features &^= framework.LRO
	}}})
	n.Config.MTU = min(n.Info.MaxMTU, 9000)
	n.Start()
	n.WaitLink(true)
	longest := min(n.Info.MaxTxFragmentLen, n.Config.MTU+14, size)
	for _, l := range []int{longest, longest - 1, longest / 2} {
		f := out(l, l-54)
		n.Send(0, f, l, framework.Packet{})
		t.sent(n, f)
	}
	// More than one descriptor carries is the engine's to split; a driver that
	// says a number has to keep it.
	f := in(3, n.Config.MTU-40)
	n.Inject(f)
	t.same(n.Receive(1)[0], f)
}

func transmitBell(t *c) {
	n := t.net(on{})
	q := n.Queues.Tx[0]
	for range 20 {
		q.Bell()
		for i := range 10 {
			n.Put(0, out(i, 60), 200, framework.Packet{Flags: framework.Completion})
		}
		q.Bell()
		q.Bell()
		for i := range 10 {
			t.sent(n, out(i, 60))
		}
		n.Until("all to be finished", func() bool { n.Reap(0); return n.InFlight(0) == 0 })
	}
	q.Bell()
	t.nothing(n, "for a bell with nothing new")
}

func transmitBatch(t *c) {
	n := t.net(on{})
	const packets = 200
	b := framework.NewBatch(packets, packets)
	bufs := n.Take(packets)
	for i, buf := range bufs {
		f := framework.Fragment{Buffer: buf, Len: uint32(len(out(i, 80)))}
		copy(n.Buffers.Bytes(f), out(i, 80))
		b.Packets = append(b.Packets, framework.Packet{First: uint32(i), Frags: 1, Len: f.Len, Flags: framework.Completion})
		b.Frags = append(b.Frags, f)
	}
	from, finished, q := 0, 0, n.Queues.Tx[0]
	n.Until("the batch to be sent", func() bool {
		took := q.Put(b, from)
		if took < 0 || from+took > packets {
			t.Fatalf("Put takes %d of %d packets", took, packets-from)
		}
		from += took
		q.Bell()
		finished += q.Completed(64)
		return finished >= packets
	})
	if finished > packets {
		t.Errorf("%d packets finished of %d", finished, packets)
	}
	for i := range packets {
		t.sent(n, out(i, 80))
	}
	n.Return(bufs)
}

func transmitAllocates(t *c) {
	n := t.net(on{})
	q := n.Queues.Tx[0]
	bufs := n.Take(8)
	b := framework.NewBatch(8, 8)
	for i, buf := range bufs {
		f := framework.Fragment{Buffer: buf, Len: uint32(len(out(i, 80)))}
		copy(n.Buffers.Bytes(f), out(i, 80))
		b.Packets = append(b.Packets, framework.Packet{First: uint32(i), Frags: 1, Len: f.Len, Flags: framework.Completion})
		b.Frags = append(b.Frags, f)
	}
	waiting := 0
	t.allocates("transmit", func() {
		// All that was put is sent and waits to be collected: nobody else is busy.
		q.Bell()
		for range waiting {
			n.Arrives()
		}
		if waiting > 0 {
			n.Until("completions", q.Pending)
		}
	}, func() {
		for range 4 {
			waiting -= q.Completed(64)
		}
		q.Pending()
		waiting += q.Put(b, 0)
	})
	q.Bell()
	n.Until("completions", func() bool { waiting -= q.Completed(64); return waiting == 0 })
	n.Return(bufs)
}

func transmitEngine(t *c) {
	s := t.stack(stackOptions{})
	const ahead = 64
	packets, arrived := t.turns(3000), atomic.Int64{}
	sending := t.inBackground(func() {
		for i := range packets {
			t.keepTo(s.net, ahead, i, func() int { return int(arrived.Load()) })
			s.send(0, framework.Packet{}, out(i, 60+i%1300))
		}
	})
	for i := range packets {
		t.sent(s.net, out(i, 60+i%1300))
		arrived.Add(1)
	}
	<-sending
	s.until("all buffers to come back", func() bool { return s.port.sending() == 0 })
	s.finish()
}

func transmitSlowPeer(t *c) {
	n := t.net(on{Setup: Setup{PeerLimit: 8}})
	q := n.Queues.Tx[0]
	const packets = 300
	put, seen := 0, 0
	n.Until("all packets", func() bool {
		for put < packets && n.Put(0, out(put, 60), 200, framework.Packet{Flags: framework.Completion}) {
			put++
		}
		q.Bell()
		n.Reap(0)
		if f, ok := n.Peer.TryNext(); ok {
			if string(f.Bytes) != string(out(seen, 60)) {
				t.Fatalf("packet %d is another one: %x", seen, head(f.Bytes))
			}
			seen++
		}
		return seen == packets
	})
	n.Until("completions", func() bool { n.Reap(0); return n.InFlight(0) == 0 })
}
