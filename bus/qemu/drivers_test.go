package qemu_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"nicd/bus"
	"nicd/bus/qemu"
	"nicd/bus/vfiouser"
	"nicd/drivers/e1000"
	"nicd/drivers/vmxnet3"
	"nicd/framework"
	"nicd/framework/drivertest/rig"
)

// These tests run the drivers, in this process, on QEMU's models. What the models
// can't do or do otherwise is said by nic, and in docs/devices.md.

const patience = 60 * time.Second

// nic is a model and what is special about it.
type nic struct {
	model  string
	driver func() framework.Driver
	// drops: a frame that finds no buffer is lost. Other models leave it with the
	// network.
	drops bool
	// deaf: for a second after the receive control register was written nothing
	// is received (QEMU's e1000.c, flush_queue_timer).
	deaf bool
	// verifies: received checksums are looked at.
	verifies bool
	// cuts: TSO frames become segments without a peer that takes them whole.
	cuts bool
	// spreads: RSS.
	spreads bool
	// served: its driver is on the other side of a vfio-user connection, as a
	// plugin's is.
	served bool
	// counters of good frames.
	rxFrames, txFrames string
}

var (
	vmx   = nic{model: "vmxnet3", driver: vmxnet3.New, drops: true, rxFrames: "rx_unicast_packets", txFrames: "tx_unicast_packets"}
	pro   = nic{model: "82540EM", driver: e1000.New, deaf: true, cuts: true, rxFrames: "rx_packets", txFrames: "tx_packets"}
	em    = nic{model: "82545EM", driver: e1000.New, deaf: true, cuts: true, rxFrames: "rx_packets", txFrames: "tx_packets"}
	gc    = nic{model: "82544GC", driver: e1000.New, deaf: true, cuts: true, rxFrames: "rx_packets", txFrames: "tx_packets"}
	pro74 = nic{model: "82574L", driver: e1000.New, verifies: true, spreads: true, rxFrames: "rx_packets", txFrames: "tx_packets"}
	nics  = []nic{vmx, pro, em, gc, pro74}
)

// TestMain lets more tests run at a time than there are processors: most of their
// time is the models' own delays.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func needQEMU(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath(qemu.DefaultProgram); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// each runs test on the NICs, several at a time: most of the time of a test is
// the models' own delays.
func each(t *testing.T, nics []nic, test func(*testing.T, nic)) {
	needQEMU(t)
	for _, n := range nics {
		t.Run(n.model, func(t *testing.T) {
			t.Parallel()
			test(t, n)
		})
	}
}

// eachWay is each, for drivers in this process and for drivers behind vfio-user.
func eachWay(t *testing.T, nics []nic, test func(*testing.T, nic)) {
	needQEMU(t)
	for _, served := range []bool{false, true} {
		for _, n := range nics {
			name := n.model
			if n.served = served; served {
				name += "/vfio-user"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, n)
			})
		}
	}
}

// serve puts vfio-user between a station's device and its driver. The device ends
// with the driver.
func serve(ctx context.Context, t *testing.T, s *rig.Station) {
	t.Helper()
	device, rest := s.Bus, s.Close
	wait := serveOne(ctx, t, s, device)
	s.Close = func() {
		wait()
		device.Close()
		rest()
	}
}

// serveOne makes a station's device one that is served to a driver. wait waits
// until the driver has left.
func serveOne(ctx context.Context, t *testing.T, s *rig.Station, device bus.Device) (wait func()) {
	t.Helper()
	server, client, err := vfiouser.Pair()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- vfiouser.ServeConn(context.Background(), server, device, vfiouser.ServeOptions{RequireSealed: true})
	}()
	if s.Bus, err = vfiouser.Open(ctx, client, vfiouser.DialOptions{Name: "test"}); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := <-ended; err != nil {
			t.Errorf("server: %v", err)
		}
	}
}

// start runs the NIC's driver on its model.
func (c nic) start(t *testing.T, opt rig.Options) *rig.Net {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := rig.NewQEMUStation(ctx, rig.QEMUOptions{Model: c.model, MAC: rig.MAC, NoFlowControl: c.drops})
	if err != nil {
		t.Fatal(err)
	}
	if c.served {
		serve(ctx, t, s)
	}
	opt.Memory, opt.Deadline = rig.SharedMemory, patience
	return rig.On(t, c.driver(), s, opt)
}

func TestDriverRoundTrip(t *testing.T) {
	eachWay(t, nics, func(t *testing.T, c nic) {
		n := c.start(t, rig.Options{})
		if n.Info.MAC != rig.MAC {
			t.Errorf("permanent address is %v", n.Info.MAC)
		}
		if l, err := n.Device.Link(); err != nil || l != (framework.Link{Up: true, Mbps: 1000, FullDuplex: true}) {
			t.Errorf("link is %+v, %v", l, err)
		}
		n.RoundTrip()
	})
}

// TestDriverWrap goes around the rings many times, both ways at once, with frames
// of all sizes in fragments of all sizes.
func TestDriverWrap(t *testing.T) {
	eachWay(t, []nic{vmx, pro, pro74}, func(t *testing.T, c nic) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 1))
		n := c.start(t, rig.Options{Config: oneQueue})
		const frames, burst = 3000, 25
		for first := 0; first < frames; first += burst {
			var in, out [][]byte
			for i := range uint32(burst) {
				in = append(in, rig.Frame{Port: 7, Seq: uint32(first) + i, Payload: 20 + rng.IntN(1400)}.Build())
				out = append(out, rig.Frame{To: rig.Peer, From: rig.MAC, Seq: uint32(first) + i, Payload: 20 + rng.IntN(1400)}.Build())
			}
			n.Inject(in...)
			for i, f := range out {
				var meta framework.Packet
				if i == burst-1 || i%7 == 0 {
					meta.Flags = framework.Completion
				}
				n.Until("room", func() bool { n.Reap(0); return n.Put(0, f, 500+rng.IntN(1000), meta) })
				if i%10 == 9 {
					n.Queues.Tx[0].Bell()
				}
			}
			n.Queues.Tx[0].Bell()
			for i, got := range n.Receive(burst) {
				if !bytes.Equal(got.Bytes, in[i]) || got.Error != framework.NoDrop {
					t.Fatalf("frame %d received as %x, error %v", first+i, got.Bytes, got.Error)
				}
			}
			for i := range out {
				if f := n.Arrives(); !bytes.Equal(f.Bytes, out[i]) {
					t.Fatalf("frame %d sent as %x", first+i, f.Bytes)
				}
			}
			n.Until("completions", func() bool { n.Reap(0); return n.InFlight(0) == 0 })
		}
		if got := n.Counter(c.rxFrames); got != frames {
			t.Errorf("%s is %d after %d frames", c.rxFrames, got, frames)
		}
		if got := n.Counter(c.txFrames); got != frames {
			t.Errorf("%s is %d after %d frames", c.txFrames, got, frames)
		}
	})
}

func oneQueue(c *framework.Config) {
	c.RxQueues, c.TxQueues = 1, 1
	c.Interrupts.RxVector, c.Interrupts.TxVector = c.Interrupts.RxVector[:1], c.Interrupts.TxVector[:1]
	clear(c.RSS.Indirection[:])
}

// TestDriverTransmitFull fills the ring without a bell, and empties it.
func TestDriverTransmitFull(t *testing.T) {
	each(t, []nic{vmx, pro, pro74}, func(t *testing.T, c nic) {
		n := c.start(t, rig.Options{Config: oneQueue})
		frame := rig.Frame{To: rig.Peer, From: rig.MAC, Payload: 50}.Build()
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
		}
	})
}

// TestDriverReceiveFull sends more frames than there are buffers.
func TestDriverReceiveFull(t *testing.T) {
	each(t, []nic{vmx, pro, pro74}, func(t *testing.T, c nic) {
		n := c.start(t, rig.Options{Config: oneQueue})
		n.RoundTrip()
		const frames = 150
		for i := range uint32(frames) {
			n.Inject(rig.Frame{Seq: i, Payload: 64}.Build())
		}
		next := 0
		n.Until("frames", func() bool {
			got, verdict := n.PollOnly(0)
			if verdict != framework.Healthy {
				t.Fatalf("verdict %d", verdict)
			}
			for _, g := range got {
				if seq := binary.BigEndian.Uint32(g.Bytes[38:]); int(seq) != next {
					t.Fatalf("frame %d, want %d", seq, next)
				}
				next++
			}
			if !c.drops {
				n.Refill(0)
				return next == frames
			}
			// All that had no buffer is lost by then, and counted.
			return n.Counter("rx_out_of_buffer") == uint64(frames-next)
		})
		if c.drops && (next >= n.Config.RxDescriptors || next < n.Config.RxDescriptors/2) {
			t.Errorf("%d frames in a ring of %d", next, n.Config.RxDescriptors)
		}
		n.Refill(0)
		n.RoundTrip()
	})
}

func TestDriverJumbo(t *testing.T) {
	each(t, []nic{vmx, pro, pro74}, func(t *testing.T, c nic) {
		n := c.start(t, rig.Options{Config: func(c *framework.Config) { c.MTU = 9000; c.Features &^= framework.LRO }})
		for lap := range 4 {
			for size := 1400; size <= 9000-40; size += 315 {
				in := rig.Frame{Payload: size - lap}.Build()
				n.Inject(in)
				got := n.Receive(1)[0]
				if !bytes.Equal(got.Bytes, in) || got.Error != framework.NoDrop {
					t.Fatalf("%d bytes received as %d in %d fragments, error %v", len(in), len(got.Bytes), got.Frags, got.Error)
				}
				if want := (len(in) + rig.BufferSize - 1) / rig.BufferSize; got.Frags != want {
					t.Errorf("%d bytes in %d fragments, want %d", len(in), got.Frags, want)
				}
				out := rig.Frame{To: rig.Peer, From: rig.MAC, Payload: size - lap}.Build()
				n.Send(0, out, 2000, framework.Packet{})
				if f := n.Arrives(); !bytes.Equal(f.Bytes, out) {
					t.Fatalf("%d bytes sent as %d", len(out), len(f.Bytes))
				}
			}
		}
	})
}

func TestDriverChecksums(t *testing.T) {
	each(t, []nic{vmx, pro, pro74}, func(t *testing.T, c nic) {
		n := c.start(t, rig.Options{})
		for _, f := range []rig.Frame{{}, {UDP: true}, {}, {}, {V6: true}, {V6: true, UDP: true}} {
			f.To, f.From, f.Partial, f.Payload = rig.Peer, rig.MAC, true, 101
			n.Send(0, f.Build(), 64, f.Offload())
			got := n.Arrives()
			f.Partial = false
			if !bytes.Equal(got.Bytes, f.Build()) {
				t.Errorf("%+v sent as %x", f, got.Bytes)
			}
		}
		const mask = framework.ChecksumVerified | framework.ChecksumBad
		for _, k := range []struct {
			rig.Frame
			want framework.PacketFlags
		}{
			{rig.Frame{}, framework.ChecksumVerified},
			{rig.Frame{UDP: true}, framework.ChecksumVerified},
			{rig.Frame{V6: true}, framework.ChecksumVerified},
			{rig.Frame{BadL4: true}, framework.ChecksumBad},
			{rig.Frame{UDP: true, BadL4: true}, framework.ChecksumBad},
			{rig.Frame{BadIP: true}, framework.ChecksumBad},
		} {
			if !c.verifies {
				k.want = 0
			}
			k.Payload = 100
			n.Inject(k.Build())
			if got := n.Receive(1)[0]; got.Flags&mask != k.want {
				t.Errorf("%+v: flags %b", k.Frame, got.Flags)
			}
		}
	})
}

// TestDriverTSO puts the stream together again that was cut.
func TestDriverTSO(t *testing.T) {
	each(t, []nic{pro, em, gc}, func(t *testing.T, c nic) {
		n := c.start(t, rig.Options{Config: func(c *framework.Config) { c.TxDescriptors = 256 }})
		for _, payload := range []int{1449, 3000, 8 * 1448, 40000} {
			f := rig.Frame{To: rig.Peer, From: rig.MAC, Payload: payload, Seq: 500, NoLength: true}
			n.Send(0, f.Build(), 2000, f.TSO(1448))
			small := rig.Frame{To: rig.Peer, From: rig.MAC, Payload: 30}
			n.Send(0, small.Build(), 2000, framework.Packet{})
			want := f.Build()[f.HeaderLen():]
			var stream []byte
			for len(stream) < payload {
				got := n.Arrives().Bytes
				if !rig.Sums(got) {
					t.Fatalf("segment with wrong sums: %x", got[:60])
				}
				if seq := binary.BigEndian.Uint32(got[f.L4()+4:]); int(seq) != 500+len(stream) {
					t.Fatalf("sequence number %d at %d bytes", seq, len(stream))
				}
				part := got[f.HeaderLen():]
				if len(part) != 1448 && len(stream)+len(part) != payload {
					t.Fatalf("segment of %d bytes", len(part))
				}
				stream = append(stream, part...)
			}
			if !bytes.Equal(stream, want) {
				t.Fatalf("%d bytes: another stream came out", payload)
			}
			got := n.Arrives()
			if payload%1448 == 0 && len(got.Bytes) == f.HeaderLen() && binary.BigEndian.Uint32(got.Bytes[f.L4()+4:]) == uint32(500+payload) {
				got = n.Arrives() // QEMU ends a packet of full segments only with an empty one
			}
			if !bytes.Equal(got.Bytes, small.Build()) {
				t.Fatalf("small packet after TSO sent as %x", got.Bytes)
			}
		}
		if got := n.Counter("tx_tso"); got != 4 && got != 5 { // with the empty one
			t.Errorf("tx_tso is %d after 4 packets", got)
		}
	})
}

func TestDriverVLAN(t *testing.T) {
	each(t, []nic{vmx, pro, gc, pro74}, func(t *testing.T, c nic) {
		n := c.start(t, rig.Options{})
		tagged := rig.Frame{TCI: 0x6123, Payload: 100}
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
		out := rig.Frame{To: rig.Peer, From: rig.MAC, Payload: 200}
		n.Send(0, out.Build(), 90, framework.Packet{Flags: framework.VLANTag, VLAN: 0x3045})
		out.TCI = 0x3045
		if f := n.Arrives(); !bytes.Equal(f.Bytes, out.Build()) {
			t.Errorf("inserted tag: sent %x", f.Bytes)
		}
		takes := framework.Reset // an e1000's switch would be one for packets on their way, too
		if c.model == vmx.model {
			takes = framework.Live
		}
		n.Apply(takes, func(s *framework.Settings) { s.Features &^= framework.VLANStrip | framework.VLANInsert })
		settle(n)
		n.Inject(tagged.Build())
		got = n.Receive(1)[0]
		if got.Flags&framework.VLANTag != 0 || !bytes.Equal(got.Bytes, tagged.Build()) {
			t.Errorf("tag stripped with vlan-strip off: %x", got.Bytes)
		}
	})
}

func TestDriverVLANFilter(t *testing.T) {
	each(t, []nic{vmx, pro, pro74}, func(t *testing.T, c nic) {
		n := c.start(t, rig.Options{})
		marker := rig.Frame{Payload: 60, Port: 9}.Build()
		var vlans [4096 / 64]uint64
		vlans[100/64] |= 1 << (100 % 64)
		vlans[4095/64] |= 1 << (4095 % 64)
		accepts := func(filters *framework.Filters, vids map[uint16]bool) {
			t.Helper()
			if filters != nil {
				setFilters(n, *filters)
			}
			settle(n)
			want := 1
			for vid, in := range vids {
				n.Inject(rig.Frame{TCI: vid, Payload: 80}.Build())
				want += btoi(in)
			}
			n.Inject(marker)
			for _, g := range n.Receive(want)[:want-1] {
				if !vids[g.VLAN] {
					t.Errorf("received VLAN %d", g.VLAN)
				}
			}
		}
		accepts(&framework.Filters{VLANs: &vlans}, map[uint16]bool{100: true, 4095: true, 101: false, 36: false})
		accepts(&framework.Filters{VLANs: &vlans, Promiscuous: true}, map[uint16]bool{100: true, 101: true})
		accepts(&framework.Filters{VLANs: &vlans}, map[uint16]bool{100: true, 101: false})
		n.Apply(framework.Live, func(s *framework.Settings) { s.Features &^= framework.VLANFilter })
		accepts(nil, map[uint16]bool{101: true, 100: true})
		n.Apply(framework.Live, func(s *framework.Settings) { s.Features |= framework.VLANFilter })
		accepts(nil, map[uint16]bool{101: false, 100: true})
		accepts(&framework.Filters{}, map[uint16]bool{101: true})
	})
}

func setFilters(n *rig.Net, f framework.Filters) {
	n.T.Helper()
	if err := n.Device.SetFilters(f); err != nil {
		n.T.Fatal(err)
	}
	n.Config.Filters = f
}

// settle waits until all registers that were written hold. What comes from the
// network may overtake them.
func settle(n *rig.Net) { _, _ = n.Device.Link() }

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestDriverFilters(t *testing.T) {
	each(t, []nic{vmx, pro, pro74}, func(t *testing.T, c nic) {
		n := c.start(t, rig.Options{})
		other := framework.MAC{0x02, 9, 9, 9, 9, 9}
		group := framework.MAC{0x01, 0, 0x5E, 1, 2, 3}
		group2 := framework.MAC{0x01, 0, 0x5E, 0x7F, 0xEE, 0xDD}
		broadcast := framework.MAC{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}
		unicast := []framework.MAC{other}[:min(1, n.Info.MaxUnicast)]
		check := func(f framework.Filters, accepted ...framework.MAC) {
			t.Helper()
			setFilters(n, f)
			settle(n)
			var want []framework.MAC
			for _, to := range []framework.MAC{rig.MAC, other, group, group2} {
				n.Inject(rig.Frame{To: to, Payload: 70}.Build())
				for _, a := range accepted {
					if a == to {
						want = append(want, a)
					}
				}
			}
			n.Inject(rig.Frame{To: broadcast, Payload: 60}.Build())
			want = append(want, broadcast)
			for i, g := range n.Receive(len(want)) {
				if to := framework.MAC(g.Bytes); to != want[i] {
					t.Errorf("received for %v, want for %v", to, want[i])
				}
			}
		}
		check(framework.Filters{}, rig.MAC)
		check(framework.Filters{Multicast: []framework.MAC{group2, group}}, rig.MAC, group, group2)
		check(framework.Filters{Multicast: []framework.MAC{group}}, rig.MAC, group)
		check(framework.Filters{AllMulticast: true}, rig.MAC, group, group2)
		check(framework.Filters{Promiscuous: true}, rig.MAC, group, group2, other)
		check(framework.Filters{Unicast: unicast}, append(unicast, rig.MAC)...)
		check(framework.Filters{}, rig.MAC)
		n.Apply(framework.Live, func(s *framework.Settings) { s.MAC = other })
		check(framework.Filters{}, other)
	})
}

// TestDriverInterrupts: for each kind, a packet interrupts, a masked vector does
// not, and what came meanwhile interrupts once it is unmasked.
func TestDriverInterrupts(t *testing.T) {
	eachWay(t, nics, func(t *testing.T, c nic) {
		for _, k := range c.start(t, rig.Options{Stopped: true}).Info.Interrupts {
			t.Run(k.Kind.String(), func(t *testing.T) { testInterrupts(c.start(t, rig.Options{Kind: &k.Kind, Config: oneQueue})) })
		}
	})
}

func testInterrupts(n *rig.Net) {
	n.Admin()
	for i := range 20 {
		n.Inject(rig.Frame{Payload: 60}.Build())
		n.WaitCause(0, func(c framework.Cause) bool { return c.Rx&1 != 0 })
		n.Device.Mask(0)
		n.Receive(1)
		if i%2 == 1 {
			n.Inject(rig.Frame{Payload: 60}.Build())
			n.Until("packet", n.Queues.Rx[0].Pending)
			n.Device.Unmask(0)
			n.WaitCause(0, func(c framework.Cause) bool { return c.Rx&1 != 0 })
			n.Device.Mask(0)
			n.Receive(1)
		}
		n.Device.Unmask(0)
	}
	n.Put(0, rig.Frame{To: rig.Peer, From: rig.MAC, Payload: 60}.Build(), 100, framework.Packet{Flags: framework.Completion})
	n.Queues.Tx[0].Bell()
	n.WaitCause(0, func(c framework.Cause) bool { return c.Tx&1 != 0 })
	n.Until("completion", func() bool { return n.Reap(0) == 1 })
}

func TestDriverLinkFlap(t *testing.T) {
	eachWay(t, []nic{vmx, pro, pro74}, func(t *testing.T, c nic) {
		n := c.start(t, rig.Options{})
		n.Admin()
		for _, up := range []bool{false, true, false, true} {
			n.SetLink(up)
			for changed := false; !changed; {
				n.WaitCause(n.Config.Interrupts.AdminVector, func(c framework.Cause) bool { return c.Admin })
				changed = n.Admin().LinkChanged
				n.Device.Unmask(n.Config.Interrupts.AdminVector)
			}
			n.WaitLink(up)
		}
		n.RoundTrip()
	})
}

// TestDriverQueues: what goes into each queue comes out, and received flows are
// where RSS puts them.
func TestDriverQueues(t *testing.T) {
	each(t, []nic{vmx, pro74}, func(t *testing.T, c nic) {
		n := c.start(t, rig.Options{})
		if n.Config.RxQueues != 2 || n.Config.TxQueues != 2 {
			t.Fatalf("%d and %d queues", n.Config.RxQueues, n.Config.TxQueues)
		}
		seen := [2]int{}
		for port := range uint16(64) {
			out := rig.Frame{To: rig.Peer, From: rig.MAC, Port: port, Payload: 60}.Build()
			n.Send(int(port%2), out, 100, framework.Packet{})
			if f := n.Arrives(); !bytes.Equal(f.Bytes, out) {
				t.Fatalf("queue %d sent %x", port%2, f.Bytes)
			}
			f := rig.Frame{Port: 1000 + port, Payload: 40, V6: port%4 == 3}.Build()
			n.Inject(f, f)
			for _, g := range n.Receive(2) {
				seen[g.Queue]++
				if !c.spreads {
					continue
				}
				if g.Flags&framework.HashValid == 0 || g.Queue != int(n.Config.RSS.Indirection[g.Hash%128]) {
					t.Errorf("port %d: queue %d, flags %b, hash %#x", port, g.Queue, g.Flags, g.Hash)
				}
			}
		}
		if got := seen[1] > 0 && seen[0] > 0; got != c.spreads {
			t.Errorf("queues received %v", seen)
		}
	})
}

// TestDriverRestart starts and stops with packets under way.
func TestDriverRestart(t *testing.T) {
	eachWay(t, []nic{vmx, pro, pro74}, func(t *testing.T, c nic) {
		n := c.start(t, rig.Options{})
		frame := rig.Frame{To: rig.Peer, From: rig.MAC, Payload: 100}.Build()
		for i := range 60 {
			stop := interrupted(n)
			for range 5 {
				n.Put(0, frame, 60, framework.Packet{Flags: framework.Completion})
			}
			if c.drops {
				n.Inject(rig.Frame{Payload: 60}.Build()) // else they would wait for the end
			}
			n.Queues.Tx[0].Bell()
			if i%3 == 0 {
				n.Poll(0)
			}
			stop()
			n.Stop()
			n.Start()
		}
		n.WaitLink(true)
		for ok := true; ok; {
			_, ok = n.Peer.TryNext()
		}
		n.RoundTrip()
	})
}

// interrupted handles interrupts of all vectors until stop is called.
func interrupted(n *rig.Net) (stop func()) {
	ctx, cancel := context.WithCancel(n.Context)
	var all sync.WaitGroup
	for v := range n.Config.Interrupts.Vectors {
		all.Go(func() {
			for {
				if _, err := n.Events[v].Wait(ctx); err != nil {
					return
				}
				n.Device.Interrupt(v)
				n.Device.Mask(v)
				n.Device.Unmask(v)
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// TestDriverResetByBus: the bus's reset as the driver's means to stop the device.
func TestDriverResetByBus(t *testing.T) {
	eachWay(t, []nic{pro, pro74}, func(t *testing.T, c nic) {
		n := c.start(t, rig.Options{Quirks: map[string]string{framework.ResetMethodQuirk.Info().Name: "bus"}})
		for range 3 {
			n.RoundTrip()
			n.Stop()
			n.Start()
			n.WaitLink(true)
		}
		n.RoundTrip()
	})
}

// TestDriverAttach attaches and detaches, with a start in between at times. The
// rig sees to it that no buffer is lost; what a device leaves behind in this
// process is TestNoLeak's.
func TestDriverAttach(t *testing.T) {
	eachWay(t, []nic{vmx, pro, pro74}, func(t *testing.T, c nic) {
		n := c.start(t, rig.Options{Stopped: true})
		for i := range 200 {
			if i%10 == 0 {
				n.Start()
				n.Stop()
			}
			if err := n.Detach(); err != nil {
				t.Fatal(err)
			}
			if err := n.Attach(); err != nil {
				t.Fatal(err)
			}
		}
		n.Start()
		n.WaitLink(true)
		n.RoundTrip()
	})
}

// TestDriverSuccessors: one driver after the other gets the device, with memory of
// its own, as plugins do that are replaced.
func TestDriverSuccessors(t *testing.T) {
	each(t, []nic{vmx, pro, pro74}, func(t *testing.T, c nic) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		s, err := rig.NewQEMUStation(ctx, rig.QEMUOptions{Model: c.model, MAC: rig.MAC, NoFlowControl: c.drops})
		if err != nil {
			t.Fatal(err)
		}
		device, end := s.Bus, s.Close
		defer end()
		defer device.Close()
		for i := range 6 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				next := *s
				next.Close = serveOne(ctx, t, &next, device)
				n := rig.On(t, c.driver(), &next, rig.Options{Memory: rig.SharedMemory, Deadline: patience})
				n.RoundTrip()
			})
		}
	})
}

// TestDriverUnplugged takes QEMU away.
func TestDriverUnplugged(t *testing.T) {
	eachWay(t, []nic{vmx, pro, pro74}, func(t *testing.T, c nic) {
		kind := bus.INTx
		n := c.start(t, rig.Options{Kind: &kind})
		n.RoundTrip()
		n.Unplug()
		if e := n.Admin(); !e.Gone {
			t.Errorf("events %+v", e)
		}
		if _, err := n.Device.Link(); !errors.Is(err, bus.ErrGone) {
			t.Errorf("link: %v", err)
		}
		n.Queues.Tx[0].Bell()
		n.Stop()
		if _, err := n.Device.Start(n.Config); !errors.Is(err, bus.ErrGone) {
			t.Errorf("start: %v", err)
		}
	})
}

// TestDriverInterruptsOff turns interrupts off as soon as the driver has stopped
// under traffic, and then takes the other kind. QEMU's e1000e counts down from its
// last interrupt all the time here, and before 8.0 it aborts if that ends with
// MSI-X turned off, or INTx's countdown with MSI-X turned on ("e1000e: Do not
// assert when MSI-X is disabled later").
func TestDriverInterruptsOff(t *testing.T) {
	eachWay(t, []nic{pro, pro74}, func(t *testing.T, c nic) {
		const slow, turns = 10_000, 300 // microseconds between interrupts
		n := c.start(t, rig.Options{})
		kinds := n.Info.Interrupts
		frame := rig.Frame{To: rig.Peer, From: rig.MAC, Payload: 100}.Build()
		for i := range turns {
			for q := range n.Queues.Tx {
				n.Put(q, frame, 60, framework.Packet{Flags: framework.Completion})
				n.Queues.Tx[q].Bell()
			}
			n.Stop()
			if err := n.Bus.SetInterrupts(n.Config.Interrupts.Kind, nil); err != nil {
				t.Fatalf("turn %d: %v", i, err)
			}
			n.Config.Interrupts = rig.Plan(kinds[i%len(kinds)], n.Config.RxQueues)
			n.Config.Interrupts.Moderation = slow
			n.Start()
			for ok := true; ok; {
				_, ok = n.Peer.TryNext()
			}
		}
		n.WaitLink(true)
		n.RoundTrip()
	})
}
