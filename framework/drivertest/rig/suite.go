package rig

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"testing"

	"nicd/bus"
	"nicd/framework"
	"nicd/sim"
)

// Make makes a driver on a device.
type Make func(t *testing.T, opt NetOptions) *Net

// Suite is what holds for each driver, whatever its device. Tests that a device
// can't take are left out by its Info.
func Suite(t *testing.T, make Make) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Make)
	}{
		{"RoundTrip", func(t *testing.T, make Make) { make(t, NetOptions{}).RoundTrip() }},
		{"Wrap", testWrap},
		{"TransmitFull", testTransmitFull},
		{"ReceiveDry", testReceiveDry},
		{"ReceiveDropped", testReceiveDropped},
		{"Jumbo", testJumbo},
		{"ReceiveChecksums", testReceiveChecksums},
		{"TransmitChecksums", testTransmitChecksums},
		{"TSO", testTSO},
		{"VLAN", testVLAN},
		{"VLANFilter", testVLANFilter},
		{"Filters", testFilters},
		{"Spread", testSpread},
		{"Interrupts", testInterrupts},
		{"LinkChange", testLinkChange},
		{"Settings", testSettings},
		{"Polled", testPolled},
		{"StopUnderInterrupts", testStopUnderInterrupts},
		{"Restart", testRestart},
		{"Unplugged", testUnplugged},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, make) })
	}
}

// RoundTrip sends a frame each way.
func (n *Net) RoundTrip() {
	n.T.Helper()
	in := Frame{Payload: 100}.Build()
	n.Inject(in)
	got := n.Receive(1)[0]
	if !bytes.Equal(got.Bytes, in) || got.Error != framework.NoDrop {
		n.T.Errorf("received %x, error %v", got.Bytes, got.Error)
	}
	out := Frame{To: Peer, From: MAC, Payload: 333}.Build()
	n.Send(0, out, 100, framework.Packet{})
	if f := n.Arrives(); !bytes.Equal(f.Bytes, out) {
		n.T.Errorf("sent %x", f.Bytes)
	}
}

// testWrap goes around the rings several times, both ways at once, with packets
// of all sizes in fragments of all sizes.
func testWrap(t *testing.T, make Make) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	n := make(t, NetOptions{})
	for i := range 400 {
		in := Frame{Port: 7, Seq: uint32(i), Payload: rng.IntN(1400) + 20}.Build()
		n.Inject(in)
		out := Frame{To: Peer, From: MAC, Seq: uint32(i), Payload: rng.IntN(1400) + 20}.Build()
		meta := framework.Packet{}
		if i%5 == 0 {
			meta.Flags = framework.Completion
		}
		for !n.Put(0, out, 200+rng.IntN(1300), meta) {
			n.T.Fatal("full")
		}
		n.Queues.Tx[0].Bell()
		if f := n.Arrives(); !bytes.Equal(f.Bytes, out) {
			t.Fatalf("packet %d sent as %x", i, f.Bytes)
		}
		if got := n.Receive(1)[0]; !bytes.Equal(got.Bytes, in) {
			t.Fatalf("packet %d received as %x", i, got.Bytes)
		}
		n.Until("completions", func() bool { n.Reap(0); return n.InFlight(0) < 5 })
	}
}

// testTransmitFull fills the ring without a bell, and empties it.
func testTransmitFull(t *testing.T, make Make) {
	n := make(t, NetOptions{})
	frame := Frame{To: Peer, From: MAC, Payload: 50}.Build()
	for lap := range 3 {
		sent := 0
		for n.Put(0, frame, len(frame), framework.Packet{Flags: framework.Completion}) {
			sent++
		}
		if sent > n.Config.TxDescriptors-1 || sent < n.Config.TxDescriptors/2 {
			t.Fatalf("lap %d: %d packets in a ring of %d", lap, sent, n.Config.TxDescriptors)
		}
		if n.Queues.Tx[0].Pending() || n.Reap(0) != 0 {
			t.Fatal("packets finished that were not announced")
		}
		n.Queues.Tx[0].Bell()
		for range sent {
			n.Arrives()
		}
		n.Until("all to be finished", func() bool { n.Reap(0); return n.InFlight(0) == 0 })
		if n.Queues.Tx[0].Pending() {
			t.Error("something pending in an idle queue")
		}
	}
}

// testReceiveDry: with flow control nothing is lost while there is no buffer.
func testReceiveDry(t *testing.T, make Make) {
	n := make(t, NetOptions{Options: Options{Config: oneQueue}})
	const frames = 200
	done := go1(func() {
		for i := range frames {
			n.Inject(Frame{Seq: uint32(i), Payload: 64}.Build())
		}
	})
	for want := 0; want < frames; {
		var got []Received
		n.Until("a frame", func() bool {
			if len(got) == 0 {
				got, _ = n.PollOnly(0)
			}
			return len(got) > 0
		})
		for _, g := range got {
			if seq := binary.BigEndian.Uint32(g.Bytes[38:]); int(seq) != want {
				t.Fatalf("frame %d, want %d", seq, want)
			}
			want++
		}
		n.Refill(0)
	}
	<-done
}

func go1(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return done
}

func oneQueue(c *framework.Config) {
	c.RxQueues, c.TxQueues = 1, 1
	c.Interrupts.RxVector, c.Interrupts.TxVector = c.Interrupts.RxVector[:1], c.Interrupts.TxVector[:1]
	clear(c.RSS.Indirection[:])
}

// testReceiveDropped: without flow control what does not fit is dropped, and the
// queue goes on afterwards.
func testReceiveDropped(t *testing.T, make Make) {
	n := make(t, NetOptions{Options: Options{Config: oneQueue}, SimOptions: SimOptions{Wire: sim.WireOptions{NoFlowControl: true}}})
	for i := range 200 {
		n.Inject(Frame{Seq: uint32(i), Payload: 64}.Build())
	}
	total := 0
	n.Until("frames", func() bool {
		got, v := n.PollOnly(0)
		if v != framework.Healthy {
			t.Fatalf("verdict %d", v)
		}
		total += len(got)
		return len(got) == 0 && total > 0
	})
	if total >= n.Config.RxDescriptors || total < n.Config.RxDescriptors/2 {
		t.Errorf("%d frames in a ring of %d", total, n.Config.RxDescriptors)
	}
	n.Refill(0)
	n.RoundTrip()
}

func testJumbo(t *testing.T, make Make) {
	n := make(t, NetOptions{Options: Options{Config: func(c *framework.Config) {
		c.MTU = 9000
		c.Features &^= framework.LRO
	}}})
	for size := 1400; size <= 8900; size += 750 {
		in := Frame{Payload: size}.Build()
		n.Inject(in)
		got := n.Receive(1)[0]
		if !bytes.Equal(got.Bytes, in) || got.Error != framework.NoDrop {
			t.Fatalf("%d bytes received as %d in %d fragments, error %v", len(in), len(got.Bytes), got.Frags, got.Error)
		}
		if want := (len(in) + BufferSize - 1) / BufferSize; got.Frags != want {
			t.Errorf("%d fragments, want %d", got.Frags, want)
		}
		if got.Flags&framework.ChecksumVerified == 0 {
			t.Errorf("%d bytes: not verified", len(in))
		}
		out := Frame{To: Peer, From: MAC, Payload: size}.Build()
		n.Send(0, out, 2000, framework.Packet{})
		if f := n.Arrives(); !bytes.Equal(f.Bytes, out) {
			t.Fatalf("%d bytes sent as %d", len(out), len(f.Bytes))
		}
	}
}

func testReceiveChecksums(t *testing.T, make Make) {
	n := make(t, NetOptions{})
	const mask = framework.ChecksumVerified | framework.ChecksumBad
	for _, c := range []struct {
		Frame
		want framework.PacketFlags
	}{
		{Frame{}, framework.ChecksumVerified},
		{Frame{UDP: true}, framework.ChecksumVerified},
		{Frame{V6: true}, framework.ChecksumVerified},
		{Frame{V6: true, UDP: true}, framework.ChecksumVerified},
		{Frame{BadL4: true}, framework.ChecksumBad},
		{Frame{UDP: true, BadL4: true}, framework.ChecksumBad},
		{Frame{BadIP: true}, framework.ChecksumBad},
		{Frame{V6: true, BadL4: true}, framework.ChecksumBad},
	} {
		if c.V6 && n.NoReceiveV6 {
			c.want = 0
		}
		c.Payload = 100
		n.Inject(c.Build())
		if got := n.Receive(1)[0]; got.Flags&mask != c.want {
			t.Errorf("%+v: flags %b", c.Frame, got.Flags)
		}
	}
	n.Apply(framework.Live, func(s *framework.Settings) { s.Features &^= framework.RxChecksum | framework.LRO })
	n.Inject(Frame{Payload: 100}.Build())
	if got := n.Receive(1)[0]; got.Flags&mask != 0 {
		t.Errorf("a verdict with rx-csum off: %b", got.Flags)
	}
}

func testTransmitChecksums(t *testing.T, make Make) {
	n := make(t, NetOptions{})
	for range 3 {
		for _, f := range []Frame{{}, {UDP: true}, {}, {}, {V6: true}, {V6: true, UDP: true}} {
			f.To, f.From, f.Partial, f.Payload = Peer, MAC, true, 101
			n.Send(0, f.Build(), 64, f.Offload())
			got := n.Arrives()
			f.Partial = false
			if !bytes.Equal(got.Bytes, f.Build()) {
				t.Errorf("%+v sent as %x", f, got.Bytes)
			}
		}
	}
}

// testTSO sends TSO packets between ordinary ones, has the wire cut them, and
// puts the stream together again.
func testTSO(t *testing.T, make Make) {
	n := make(t, NetOptions{Options: Options{Config: func(c *framework.Config) { c.TxDescriptors = 256 }}})
	for _, v6 := range []bool{false, true}[:1+btoi(n.Info.Features.Has(framework.TSO6))] {
		for _, payload := range []int{1449, 3000, 8 * 1448, 40000} {
			f := Frame{V6: v6, To: Peer, From: MAC, Payload: payload, Seq: 500, NoLength: true}
			n.Send(0, f.Build(), 2000, f.TSO(1448))
			small := Frame{To: Peer, From: MAC, Payload: 30}
			n.Send(0, small.Build(), 2000, framework.Packet{})
			want := f.Build()[f.HeaderLen():]
			var stream []byte
			for len(stream) < payload {
				got := n.Arrives().Bytes
				if !Sums(got) {
					t.Fatalf("v6 %v: segment with wrong sums: %x", v6, got)
				}
				if seq := binary.BigEndian.Uint32(got[f.L4()+4:]); int(seq) != 500+len(stream) {
					t.Fatalf("sequence number %d at %d bytes", seq, len(stream))
				}
				if part := got[f.HeaderLen():]; len(part) == 1448 || len(stream)+len(part) == payload {
					stream = append(stream, part...)
				} else {
					t.Fatalf("segment of %d bytes", len(part))
				}
			}
			if !bytes.Equal(stream, want) {
				t.Fatalf("v6 %v, %d bytes: another stream came out", v6, payload)
			}
			if got := n.Arrives(); !bytes.Equal(got.Bytes, small.Build()) {
				t.Fatalf("small packet after TSO sent as %x", got.Bytes)
			}
		}
	}
}

func testVLAN(t *testing.T, make Make) {
	n := make(t, NetOptions{})
	tagged := Frame{TCI: 0x6123, Payload: 100}
	bare := tagged
	bare.TCI = 0
	n.Inject(tagged.Build())
	got := n.Receive(1)[0]
	if got.Flags&framework.VLANTag == 0 || got.VLAN != tagged.TCI || !bytes.Equal(got.Bytes, bare.Build()) {
		t.Errorf("tag not stripped: VLAN %#x, %x", got.VLAN, got.Bytes)
	}
	n.Inject(bare.Build())
	if got := n.Receive(1)[0]; got.Flags&framework.VLANTag != 0 {
		t.Error("tag where there was none")
	}
	out := Frame{To: Peer, From: MAC, Payload: 200}
	n.Send(0, out.Build(), 90, framework.Packet{Flags: framework.VLANTag, VLAN: 0x3045})
	out.TCI = 0x3045
	if f := n.Arrives(); !bytes.Equal(f.Bytes, out.Build()) {
		t.Errorf("inserted tag: sent %x", f.Bytes)
	}
	n.Apply(framework.Live, func(s *framework.Settings) { s.Features &^= framework.VLANStrip | framework.VLANInsert })
	n.Inject(tagged.Build())
	got = n.Receive(1)[0]
	if got.Flags&framework.VLANTag != 0 || !bytes.Equal(got.Bytes, tagged.Build()) {
		t.Errorf("tag stripped with vlan-strip off: %x", got.Bytes)
	}
}

func testVLANFilter(t *testing.T, make Make) {
	n := make(t, NetOptions{})
	marker := Frame{Payload: 60, Port: 9}.Build()
	in := func(vid uint16) []byte { return Frame{TCI: vid, Payload: 80}.Build() }
	var vlans [4096 / 64]uint64
	vlans[100/64] |= 1 << (100 % 64)
	vlans[4095/64] |= 1 << (4095 % 64)
	set := func(f framework.Filters) {
		t.Helper()
		if err := n.Device.SetFilters(f); err != nil {
			t.Fatal(err)
		}
	}
	accepts := func(vid uint16, want bool) {
		t.Helper()
		n.Inject(in(vid), marker)
		if got := n.Receive(1 + btoi(want)); want && got[0].VLAN != vid && got[1].VLAN != vid {
			t.Errorf("VLAN %d received as %d", vid, got[0].VLAN)
		}
	}
	accepts(100, true)
	set(framework.Filters{VLANs: &vlans})
	accepts(100, true)
	accepts(4095, true)
	accepts(101, false)
	accepts(36, false)
	set(framework.Filters{VLANs: &vlans, Promiscuous: true})
	accepts(101, true)
	set(framework.Filters{VLANs: &vlans})
	accepts(101, false)
	n.Apply(framework.Live, func(s *framework.Settings) { s.Features &^= framework.VLANFilter })
	accepts(101, true)
	n.Apply(framework.Live, func(s *framework.Settings) { s.Features |= framework.VLANFilter })
	accepts(101, false)
	set(framework.Filters{})
	accepts(101, true)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func testFilters(t *testing.T, make Make) {
	n := make(t, NetOptions{})
	other := framework.MAC{0x02, 9, 9, 9, 9, 9}
	group := framework.MAC{0x01, 0, 0x5E, 1, 2, 3}
	group2 := framework.MAC{0x01, 0, 0x5E, 0x7F, 0xEE, 0xDD}
	broadcast := framework.MAC{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}
	marker := Frame{To: broadcast, Payload: 60, Port: 9}.Build()
	unicast := []framework.MAC{other}[:min(1, n.Info.MaxUnicast)]
	check := func(f framework.Filters, accepted ...framework.MAC) {
		t.Helper()
		if err := n.Device.SetFilters(f); err != nil {
			t.Fatal(err)
		}
		want := 1
		for _, to := range []framework.MAC{MAC, other, group, group2, broadcast} {
			n.Inject(Frame{To: to, Payload: 70}.Build())
			for _, a := range accepted {
				want += btoi(a == to)
			}
		}
		n.Inject(marker)
		n.Receive(want)
	}
	check(framework.Filters{}, MAC, broadcast)
	check(framework.Filters{Multicast: []framework.MAC{group}}, MAC, broadcast, group)
	check(framework.Filters{Multicast: []framework.MAC{group2, group}}, MAC, broadcast, group, group2)
	check(framework.Filters{AllMulticast: true}, MAC, broadcast, group, group2)
	check(framework.Filters{Promiscuous: true}, MAC, broadcast, group, group2, other)
	check(framework.Filters{Unicast: unicast}, append(unicast, MAC, broadcast)...)
	check(framework.Filters{}, MAC, broadcast)

	n.Apply(framework.Live, func(s *framework.Settings) { s.MAC = other })
	check(framework.Filters{}, other, broadcast)
	n.Apply(framework.Live, func(s *framework.Settings) { s.MAC = MAC })
	check(framework.Filters{}, MAC, broadcast)
}

// testSpread: flows reach all queues by the table, each flow one queue, with the
// hash that decided.
func testSpread(t *testing.T, make Make) {
	n := make(t, NetOptions{})
	if n.Config.RxQueues < 2 {
		t.Skip("one queue")
	}
	check := func(queueOf func(hash uint32) int) {
		t.Helper()
		seen := map[int]int{}
		for port := range uint16(40) {
			f := Frame{Port: 1000 + port, Payload: 40, V6: port%4 == 3}.Build()
			n.Inject(f, f)
			got := n.Receive(2)
			for _, g := range got {
				if g.Flags&framework.HashValid == 0 || g.Queue != queueOf(g.Hash) || g.Hash != got[0].Hash {
					t.Fatalf("port %d: queue %d, flags %b, hash %#x", port, g.Queue, g.Flags, g.Hash)
				}
				seen[g.Queue]++
			}
		}
		for q := range n.Config.RxQueues {
			if want := queueOf(0) == queueOf(1); !want && seen[q] == 0 {
				t.Errorf("nothing for queue %d: %v", q, seen)
			}
		}
	}
	check(func(hash uint32) int { return int(n.Config.RSS.Indirection[hash%128]) })
	n.Apply(framework.Live, func(s *framework.Settings) {
		for i := range s.RSS.Indirection {
			s.RSS.Indirection[i] = 1
		}
	})
	check(func(uint32) int { return 1 })
}

// testInterrupts: for each kind, a packet interrupts, a masked vector does not,
// and what came meanwhile interrupts once it is unmasked.
func testInterrupts(t *testing.T, make Make) {
	kinds := make(t, NetOptions{Options: Options{Stopped: true}}).Info.Interrupts
	for _, k := range kinds {
		t.Run(k.Kind.String(), func(t *testing.T) {
			n := make(t, NetOptions{Options: Options{Kind: &k.Kind, Config: oneQueue}})
			n.Admin()
			for i := range 20 {
				n.Inject(Frame{Payload: 60}.Build())
				cause := n.WaitCause(0, func(c framework.Cause) bool { return c.Rx&1 != 0 })
				n.Device.Mask(0)
				if n.Receive(1); cause.Gone {
					t.Fatalf("cause %+v", cause)
				}
				if i%2 == 1 {
					// A frame that comes while masked.
					n.Inject(Frame{Payload: 60}.Build())
					n.Until("packet", func() bool { return n.Queues.Rx[0].Pending() })
					n.Device.Unmask(0)
					n.WaitCause(0, func(c framework.Cause) bool { return c.Rx&1 != 0 })
					n.Device.Mask(0)
					n.Receive(1)
				}
				n.Device.Unmask(0)
			}
			out := Frame{To: Peer, From: MAC, Payload: 60}.Build()
			n.Put(0, out, 100, framework.Packet{Flags: framework.Completion})
			n.Queues.Tx[0].Bell()
			n.WaitCause(0, func(c framework.Cause) bool { return c.Tx&1 != 0 })
			n.Until("completion", func() bool { return n.Reap(0) == 1 })
		})
	}
}

// Admin runs the admin step once.
func (n *Net) Admin() framework.Events { return n.Device.Admin() }

// WaitCause waits for an interrupt of vector v that is about the right thing.
func (n *Net) WaitCause(v int, right func(framework.Cause) bool) framework.Cause {
	n.T.Helper()
	for {
		if c := n.WaitInterrupt(v); right(c) {
			return c
		}
		n.Device.Unmask(v)
	}
}

func testLinkChange(t *testing.T, make Make) {
	kinds := make(t, NetOptions{Options: Options{Stopped: true}}).Info.Interrupts
	for _, k := range kinds {
		t.Run(k.Kind.String(), func(t *testing.T) {
			n := make(t, NetOptions{Options: Options{Kind: &k.Kind}})
			n.Admin()
			for _, up := range []bool{false, true} {
				n.SetLink(up)
				changed := false
				for !changed {
					n.WaitCause(n.Config.Interrupts.AdminVector, func(c framework.Cause) bool { return c.Admin })
					changed = n.Admin().LinkChanged
					n.Device.Unmask(n.Config.Interrupts.AdminVector)
				}
				n.WaitLink(up)
			}
			n.RoundTrip()
			if l, _ := n.Device.Link(); l.Mbps < 1000 || !l.FullDuplex {
				t.Errorf("link %+v", l)
			}
		})
	}
}

// testSettings changes settings while packets go through.
func testSettings(t *testing.T, make Make) {
	n := make(t, NetOptions{})
	for _, mtu := range []int{9000, 1500, n.Info.MaxMTU, n.Info.MinMTU, 1500} {
		n.Apply(framework.Reset, func(s *framework.Settings) { s.MTU = mtu })
		if mtu >= 1500 {
			n.RoundTrip()
		}
	}
	for _, f := range []framework.Features{framework.TxChecksum, framework.TSO4, framework.LRO, framework.VLANStrip | framework.VLANInsert} {
		if !n.Info.Features.Has(f) {
			continue
		}
		n.Apply(framework.Live, func(s *framework.Settings) { s.Features &^= f })
		n.RoundTrip()
		n.Apply(framework.Live, func(s *framework.Settings) { s.Features |= f })
		n.RoundTrip()
	}
}

// testPolled runs without any interrupt.
func testPolled(t *testing.T, make Make) {
	n := make(t, NetOptions{Options: Options{Config: func(c *framework.Config) {
		c.Interrupts = framework.VectorPlan{AdminVector: -1}
	}}})
	n.RoundTrip()
}

// testStopUnderInterrupts stops while every vector is being served.
func testStopUnderInterrupts(t *testing.T, make Make) {
	n := make(t, NetOptions{})
	for range 20 {
		stop := n.serve()
		n.RoundTrip()
		if err := n.Device.Stop(n.Context); err != nil {
			t.Fatal(err)
		}
		stop()
		n.Stop()
		n.Start()
		n.WaitLink(true)
	}
}

// serve handles interrupts of all vectors until the function that it returns is
// called.
func (n *Net) serve() (stop func()) {
	ctx, cancel := context.WithCancel(n.Context)
	var all sync.WaitGroup
	for v := range n.Config.Interrupts.Vectors {
		all.Go(func() {
			for {
				n.Device.Interrupt(v)
				n.Device.Mask(v)
				n.Device.Unmask(v)
				if _, err := n.Events[v].Wait(ctx); err != nil {
					return
				}
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// testRestart starts and stops often, at times with packets under way.
func testRestart(t *testing.T, make Make) {
	n := make(t, NetOptions{SimOptions: SimOptions{Wire: sim.WireOptions{NoFlowControl: true}}})
	times := 1000
	if testing.Short() {
		times = 50
	}
	frame := Frame{To: Peer, From: MAC, Payload: 100}.Build()
	for i := range times {
		if i%3 == 0 {
			n.Inject(Frame{Payload: 60}.Build())
			n.Put(0, frame, 60, framework.Packet{Flags: framework.Completion})
			n.Queues.Tx[0].Bell()
		}
		if i%7 == 0 {
			for q := range n.Queues.Rx {
				n.Poll(q)
			}
		}
		n.Stop()
		n.Start()
	}
	n.WaitLink(true)
	for {
		if _, ok := n.Peer.TryNext(); !ok {
			break
		}
	}
	n.RoundTrip()
}

// testUnplugged takes the device away.
func testUnplugged(t *testing.T, make Make) {
	kinds := make(t, NetOptions{Options: Options{Stopped: true}}).Info.Interrupts
	n := make(t, NetOptions{Options: Options{Kind: &kinds[len(kinds)-1].Kind}})
	n.RoundTrip()
	n.Unplug()
	if e := n.Admin(); !e.Gone {
		t.Errorf("events %+v", e)
	}
	if n.Config.Interrupts.Kind == bus.INTx {
		if c := n.Device.Interrupt(0); !c.Gone {
			t.Errorf("cause %+v", c)
		}
	}
	if _, err := n.Device.Link(); err == nil {
		t.Error("link of a device that is gone")
	}
	n.Queues.Tx[0].Bell()
	n.Stop()
	if _, err := n.Device.Start(n.Config); err == nil {
		t.Error("a device that is gone starts")
	}
}
