package drivertest

import (
	"math/rand/v2"

	"nicd/framework"
	"nicd/framework/drivertest/rig"
	"nicd/framework/engine"
)

var receiveChecks = []*check{
	{name: "receive.wrap", run: receiveWrap,
		doc: "Frames of all sizes arrive whole and in order, around the ring several times."},
	{name: "receive.burst", run: receiveBurst,
		doc: "As many frames as a ring holds arrive at once, in order, each once."},
	{name: "receive.post-limit", run: receivePostLimit,
		doc: "Post takes as many buffers as the rings hold less one each, says how many, and then none."},
	{name: "receive.pending", run: receivePending,
		doc: "Pending says whether Poll would find a packet, and changes nothing."},
	{name: "receive.small-batch", run: receiveSmallBatch,
		doc: "Poll fills a batch as far as it goes and leaves the rest for the next."},
	{name: "receive.long-packet-small-batch", run: receiveLongSmallBatch,
		doc: "A packet with more fragments than the batch has left stays for the next Poll, whole."},
	{name: "receive.budget", run: receiveBudget,
		doc: "With the smallest budget and with a large one the engine delivers everything, in order."},
	{name: "receive.buffer-size", run: receiveBufferSize,
		doc: "Buffers of every size get no more than they hold, or Start refuses a size that the device can't be told."},
	{name: "receive.allocates-nothing", run: receiveAllocates,
		doc: "Poll, Post, Bell and Pending allocate nothing."},
	{name: "jumbo.sizes", run: jumboSizes,
		doc: "Frames that need several buffers arrive whole, with the fewest buffers that hold them."},
	{name: "jumbo.edges", run: jumboEdges,
		doc: "Frames that just fill a number of buffers, or miss it by a byte, arrive whole."},
	{name: "jumbo.between", run: jumboBetween,
		doc: "Long and short frames by turns arrive in order, around the rings several times."},
	{name: "jumbo.too-long", run: jumboTooLong,
		doc: "A frame longer than the MTU allows arrives whole, or as a bad one, or not, and the next one is good."},
	{name: "jumbo.send", run: jumboSend,
		doc: "Frames up to the MTU are sent whole."},
	{name: "runt.receive", run: runtReceive,
		doc: "Short frames arrive with nothing but zeros behind them."},
}

func receiveWrap(t *c) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	n := t.net(on{})
	for i := range t.turns(400) {
		f := in(i, rng.IntN(1400)+20)
		n.Inject(f)
		t.same(n.Receive(1)[0], f)
	}
}

func receiveBurst(t *c) {
	n := t.net(on{Options: rig.Options{Config: oneQueue}})
	burst := n.Config.RxDescriptors - 2
	for lap := range 4 {
		for i := range burst {
			n.Inject(in(lap*burst+i, 40+i))
		}
		for i, p := range n.Receive(burst) {
			t.same(p, in(lap*burst+i, 40+i))
		}
		n.Quiet()
	}
}

func receivePostLimit(t *c) {
	n := t.net(on{Options: rig.Options{Stopped: true, Config: oneQueue}})
	t.must(n.TryStart())
	n.WaitLink(true)
	most := max(n.Info.RxRings, 1) * (n.Config.RxDescriptors - 1)
	posted := n.Post(0, 3)
	if posted != 3 {
		t.Errorf("an empty ring takes %d of 3 buffers", posted)
	}
	posted += n.Refill(0)
	if posted > most || posted < n.Config.RxDescriptors-1 {
		t.Errorf("%d buffers in %d rings of %d", posted, max(n.Info.RxRings, 1), n.Config.RxDescriptors)
	}
	if again := n.Refill(0); again != 0 {
		t.Errorf("a full ring takes %d buffers more", again)
	}
	n.UnmaskAll()
	n.RoundTrip()
	n.Inject(in(1, 60))
	n.Until("a frame", n.Queues.Rx[0].Pending)
	got, _ := n.PollOnly(0)
	if len(got) != 1 {
		t.Fatalf("%d packets of one frame", len(got))
	}
	if again := n.Refill(0); again != 1 {
		t.Errorf("a ring that gave one buffer takes %d", again)
	}
}

func receivePending(t *c) {
	n := t.net(on{Options: rig.Options{Config: oneQueue}})
	for i := range 100 {
		if n.Queues.Rx[0].Pending() {
			t.Fatalf("packet %d: pending before anything was sent", i)
		}
		n.Inject(in(i, 60))
		n.Until("a frame", n.Queues.Rx[0].Pending)
		for range 3 {
			if !n.Queues.Rx[0].Pending() {
				t.Fatalf("packet %d: it is not pending any more, and nobody polled", i)
			}
		}
		got := n.Poll(0)
		if len(got) != 1 {
			t.Fatalf("packet %d: pending, and Poll finds %d", i, len(got))
		}
		t.same(got[0], in(i, 60))
	}
}

func receiveSmallBatch(t *c) {
	n := t.net(on{Options: rig.Options{Config: oneQueue}})
	for _, room := range []int{1, 2, 7} {
		batch := framework.NewBatch(room, 4*framework.MaxFragments)
		const frames = 40
		for i := range frames {
			n.Inject(in(i, 60))
		}
		next := 0
		n.Until("all frames", func() bool {
			got, v := n.PollInto(0, batch)
			if v != framework.Healthy || len(got) > room {
				t.Fatalf("%d packets in a batch of %d, verdict %d", len(got), room, v)
			}
			for _, p := range got {
				t.same(p, in(next, 60))
				next++
			}
			n.Refill(0)
			return next >= frames
		})
	}
}

// jumbo is a configuration for frames of several buffers, one queue, nothing
// merged.
func jumbo(cfg *framework.Config) {
	oneQueue(cfg)
	cfg.MTU = 9000
	cfg.Features &^= framework.LRO
}

// jumboNet runs with an MTU of 9000, if the device has that.
func (t *c) jumboNet(o on) *rig.Net {
	o.Stopped, o.Options.Config = true, jumbo
	n := t.net(o)
	if n.Info.MaxMTU < 9000 {
		t.notApplicable("%s has an MTU of at most %d", n.Info.Model, n.Info.MaxMTU)
	}
	n.Start()
	n.WaitLink(true)
	return n
}

func receiveLongSmallBatch(t *c) {
	n := t.jumboNet(on{})
	long := in(0, 8000)
	need := (len(long) + rig.BufferSize - 1) / rig.BufferSize
	batch := framework.NewBatch(8, need+1)
	for lap := range 20 {
		n.Inject(in(lap, 60), in(lap, 60), long, in(lap, 70))
		var all []rig.Received
		n.Until("four packets", func() bool {
			got, v := n.PollInto(0, batch)
			if v != framework.Healthy {
				t.Fatalf("verdict %d", v)
			}
			all = append(all, got...)
			n.Refill(0)
			return len(all) >= 4
		})
		for i, want := range [][]byte{in(lap, 60), in(lap, 60), long, in(lap, 70)} {
			t.same(all[i], want)
		}
	}
}

func receiveBudget(t *c) {
	for _, budget := range []int{1, 3, 64, 256} {
		s := t.stack(stackOptions{budget: budget})
		const frames = 300
		sending := t.inBackground(func() {
			for i := range frames {
				s.awaitRoom(i)
				s.inject(in(i, 64))
			}
		})
		for i, p := range s.receive(frames) {
			if string(p.bytes) != string(in(i, 64)) {
				t.Fatalf("budget %d: packet %d is another one", budget, i)
			}
		}
		<-sending
		s.finish()
	}
}

// awaitRoom waits until there are buffers for a frame behind so many others, unless
// the far end does so by itself. Any goroutine may call it.
func (s *stack) awaitRoom(sent int) {
	s.t.keepTo(s.net, s.plan.RxDescriptors/2, sent, func() int { return int(s.rxCounter(engine.RxPackets)) })
}

// receiveBufferSize sends frames that fill a buffer but for a byte, just, and by a
// byte too much. A device that was told of more than there is writes into the
// next buffer, which the rig notices.
func receiveBufferSize(t *c) {
	for _, size := range []uint32{256, 1000, 2048, 3000, 4096} {
		n := t.net(on{Options: rig.Options{Stopped: true, BufferSize: size, Buffers: 256, Config: oneQueue}})
		if err := n.TryStart(); err != nil {
			t.Logf("buffers of %d bytes: %v", size, err)
			continue
		}
		n.Refill(0)
		n.UnmaskAll()
		n.WaitLink(true)
		longest := ethernetHeader + n.Config.MTU
		for i, length := range []int{60, int(size) - 1, int(size), int(size) + 1, longest} {
			if length > longest {
				continue
			}
			f := in(i, length-ethernetHeader-40)
			n.Inject(f)
			t.same(n.Receive(1)[0], f)
		}
		n.Stop()
	}
}

func receiveAllocates(t *c) {
	n := t.net(on{Options: rig.Options{Config: oneQueue}})
	q, batch := n.Queues.Rx[0], framework.NewBatch(64, 4*framework.MaxFragments)
	bufs := make([]framework.Buffer, 0, 256)
	const frames = 30
	t.allocates("receive", func() {
		for i := range frames {
			n.Inject(in(i, 60))
		}
		n.Until("frames", q.Pending)
	}, func() {
		batch.Reset()
		q.Pending()
		q.Poll(batch)
		bufs = bufs[:0]
		for _, f := range batch.Frags {
			bufs = append(bufs, f.Buffer)
		}
		q.Post(bufs)
		q.Bell()
	})
}

func jumboSizes(t *c) {
	n := t.jumboNet(on{})
	for size := 1400; size <= 8900; size += 375 {
		f := in(size, size)
		n.Inject(f)
		got := n.Receive(1)[0]
		t.same(got, f)
		if fewest := (len(f) + rig.BufferSize - 1) / rig.BufferSize; got.Frags > fewest+1 || got.Frags < fewest {
			t.Errorf("%d bytes in %d buffers of %d", len(f), got.Frags, rig.BufferSize)
		}
	}
}

func jumboEdges(t *c) {
	n := t.jumboNet(on{})
	const headers = 54
	for k := 1; k <= 4; k++ {
		for _, off := range []int{-1, 0, 1, 2} {
			f := in(k, k*rig.BufferSize+off-headers)
			n.Inject(f)
			t.same(n.Receive(1)[0], f)
		}
	}
	f := in(0, 9000-40)
	n.Inject(f)
	t.same(n.Receive(1)[0], f)
}

func jumboBetween(t *c) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	n := t.jumboNet(on{})
	for i := 0; i < t.turns(300); i += 3 {
		var frames [][]byte
		for j := range 3 {
			size := 20 + rng.IntN(200)
			if rng.IntN(2) == 0 {
				size = 1500 + rng.IntN(7400)
			}
			frames = append(frames, in(i+j, size))
		}
		n.Inject(frames...)
		for j, p := range n.Receive(3) {
			t.same(p, frames[j])
		}
	}
}

func jumboTooLong(t *c) {
	n := t.net(on{Options: rig.Options{Config: func(cfg *framework.Config) {
		oneQueue(cfg)
		cfg.Features &^= framework.LRO
	}}})
	for _, payload := range []int{1465, 1900, 2040, 2100, 5000, 12000} {
		long := in(1, payload)
		if n.MaxFrame > 0 && len(long) > n.MaxFrame {
			t.Logf("the far end sends no frame of %d bytes", len(long))
			continue
		}
		n.Inject(long, marker)
		seen := false
		n.Until("the frame behind a long one", func() bool {
			for _, p := range n.Poll(0) {
				switch {
				case string(p.Bytes) == string(marker) && p.Error == framework.NoDrop:
					seen = true
				case p.Error == framework.NoDrop && string(p.Bytes) != string(long):
					t.Errorf("a frame of %d bytes arrives as a good one of %d", len(long), p.Len)
				}
			}
			return seen
		})
	}
	n.RoundTrip()
}

func jumboSend(t *c) {
	n := t.jumboNet(on{})
	for _, size := range []int{1460, 1461, 2000, 4000, 4096 - 54, 8192 - 54, 8900, 8960} {
		f := out(size, size)
		n.Send(0, f, 2000, framework.Packet{})
		t.sent(n, f)
	}
}

func runtReceive(t *c) {
	n := t.net(on{Options: rig.Options{Config: oneQueue}})
	for size := 0; size <= 8; size++ {
		f := rig.Frame{UDP: true, Payload: size}.Build()
		n.Inject(f)
		got := n.Receive(1)[0]
		if got.Error != framework.NoDrop || len(got.Bytes) < len(f) || string(got.Bytes[:len(f)]) != string(f) {
			t.Fatalf("a frame of %d bytes arrives as %x", len(f), got.Bytes)
		}
		for _, b := range got.Bytes[len(f):] {
			if b != 0 {
				t.Fatalf("a frame of %d bytes arrives with other bytes behind it: %x", len(f), got.Bytes)
			}
		}
	}
}
