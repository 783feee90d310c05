package vmxnet3_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"nicd/bus"
	"nicd/drivers/vmxnet3"
	"nicd/framework"
	"nicd/framework/drivertest"
	"nicd/framework/drivertest/rig"
	"nicd/framework/drivertest/simbench"
	"nicd/sim"
	"nicd/sim/e1000"
	model "nicd/sim/vmxnet3"
)

// These tests run the driver on the device model. What needs a hand on every
// completion is in queue_test.go.

// start runs the driver on a model.
func start(t testing.TB, m model.Options, opt rig.NetOptions) (*rig.Net, *model.Model) {
	t.Helper()
	dev := model.New(m)
	return rig.NewNet(t, vmxnet3.New(), dev, opt), dev
}

// TestConformance runs what holds for each driver, on each revision.
func TestConformance(t *testing.T) {
	for _, model := range simbench.Models(vmxnet3.New()) {
		t.Run(model, func(t *testing.T) {
			b, err := simbench.New(vmxnet3.New(), model, simbench.Options{})
			if err != nil {
				t.Fatal(err)
			}
			drivertest.Run(t, b)
		})
	}
}

func TestDescribe(t *testing.T) {
	d := vmxnet3.New().Describe()
	if len(d.IDs) != 1 || d.IDs[0].Vendor != 0x15AD || d.IDs[0].Device != 0x07B0 {
		t.Errorf("ids %+v", d.IDs)
	}
	owner := func(mode string) string {
		r, err := framework.ResolveQuirks(framework.QuirkSources{
			Driver: d.Name, Declarations: d.Quirks, Facts: framework.DeviceFacts{Device: 0x07B0, Mode: mode},
		})
		if err != nil {
			t.Fatal(err)
		}
		return r.Map()["lro-owner"]
	}
	if got := [2]string{owner(""), owner("passthrough")}; got != [2]string{"hardware-only", "software"} {
		t.Errorf("LRO owners %v", got)
	}
}

// TestRevisions: the highest that both know.
func TestRevisions(t *testing.T) {
	for bitmap, want := range map[uint32]int{0x1: 1, 0x3: 2, 0x7: 3, 0xF: 4, 0x1FF: 4, 0x1F3: 2, 0x8: 4} {
		n, _ := start(t, model.Options{Variations: model.Variations{RevisionBitmap: bitmap}}, rig.NetOptions{})
		if n.Info.Revision != want || n.Info.CoalescedSizeKnown != (want > 1) {
			t.Errorf("bitmap %#x: revision %d, size known %v", bitmap, n.Info.Revision, n.Info.CoalescedSizeKnown)
		}
	}
}

func TestAttachRefuses(t *testing.T) {
	attach := func(m sim.Model) error {
		dev, err := sim.NewDevice(m, sim.Options{HeapDoorbells: true})
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		_, err = framework.Attach(t.Context(), vmxnet3.New(), dev, framework.Env{Quirks: framework.NewQuirkSet()})
		return err
	}
	if err := attach(e1000.New(e1000.Options{})); !errors.Is(err, framework.ErrNotOurs) {
		t.Errorf("an e1000: %v", err)
	}
	later := model.Options{Variations: model.Variations{RevisionBitmap: 0x30}}
	if err := attach(model.New(later)); !errors.Is(err, framework.ErrUnsupported) {
		t.Errorf("a device that speaks revisions 5 and 6 only: %v", err)
	}
}

// merge is what is known of a merged packet.
type merge struct {
	coalesced      bool
	segments, size uint16
}

// TestLRO: a TSO frame arrives whole, reported in every style that is known.
func TestLRO(t *testing.T) {
	const mss, segments = 1428, 20
	exact, unknown := merge{true, segments, mss}, merge{true, 0, 0}
	for name, c := range map[string]struct {
		revision int
		style    model.LROStyle
		want     merge
	}{
		"revision 1":  {1, model.LROByRevision, unknown},
		"revision 2":  {2, model.LROByRevision, exact},
		"revision 3":  {3, model.LROByRevision, exact},
		"revision 4":  {4, model.LROByRevision, exact},
		"length only": {4, model.LROLengthOnly, unknown},
		"no MSS":      {4, model.LRONoMSS, exact},
		"single":      {4, model.LROSingle, exact},
		"no count":    {4, model.LRONoCount, exact},
	} {
		for _, v6 := range []bool{false, true} {
			t.Run(fmt.Sprint(name, v6), func(t *testing.T) {
				n, _ := start(t, model.Options{Revision: c.revision, Variations: model.Variations{LRO: c.style}}, rig.NetOptions{})
				f := rig.Frame{V6: v6, Payload: mss * segments}
				n.InjectFrame(rig.TSOFrame(f, mss))
				got := n.Receive(1)[0]
				want := f.Build()
				header := f.HeaderLen()
				if !bytes.Equal(got.Bytes[header:], want[header:]) {
					t.Fatalf("%s: %d bytes of another payload", name, len(got.Bytes))
				}
				m := merge{got.Flags&framework.Coalesced != 0, got.Segments, got.SegmentSize}
				if c.want == unknown && m.segments > 1 {
					m.segments = 0 // a lower bound
				}
				if m != c.want || got.Flags&framework.ChecksumVerified == 0 || got.Error != framework.NoDrop {
					t.Errorf("%s, v6 %v: %+v, flags %b, error %v", name, v6, m, got.Flags, got.Error)
				}
				if c.want == exact && got.HeaderLen != uint16(header) {
					t.Errorf("%s: header length %d", name, got.HeaderLen)
				}
				// An ordinary packet is not a merged one, whatever its completion
				// says.
				n.Inject(rig.Frame{V6: v6, Payload: mss}.Build())
				if got := n.Receive(1)[0]; got.Flags&framework.Coalesced != 0 || got.Flags&framework.ChecksumVerified == 0 {
					t.Errorf("%s: single segment with flags %b", name, got.Flags)
				}
			})
		}
	}
}

// TestLROSmall: a merged packet that fits one descriptor.
func TestLROSmall(t *testing.T) {
	n, _ := start(t, model.Options{}, rig.NetOptions{})
	n.InjectFrame(rig.TSOFrame(rig.Frame{Payload: 1500}, 500))
	got := n.Receive(1)[0]
	if got.Frags != 1 || got.Segments != 3 || got.SegmentSize != 500 || got.Flags&framework.HashValid != 0 {
		t.Errorf("packet %+v", got.Packet)
	}
}

// TestLROToggle turns LRO off and on, live, with merged packets under way.
func TestLROToggle(t *testing.T) {
	n, _ := start(t, model.Options{}, rig.NetOptions{})
	for range 10 {
		n.InjectFrame(rig.TSOFrame(rig.Frame{Payload: 20 * 1448}, 1448))
		n.Apply(framework.Live, func(s *framework.Settings) { s.Features &^= framework.LRO })
		n.InjectFrame(rig.TSOFrame(rig.Frame{Payload: 5 * 1448}, 1448))
		got := n.Receive(6)
		for i, p := range got {
			if merged := p.Flags&framework.Coalesced != 0; merged != (i == 0) {
				t.Fatalf("packet %d of %d bytes: merged %v", i, p.Len, merged)
			}
		}
		n.Apply(framework.Live, func(s *framework.Settings) { s.Features |= framework.LRO })
	}
}

// TestVariations runs a load over every way in which devices in the field are
// known to differ.
func TestVariations(t *testing.T) {
	for name, v := range map[string]model.Variations{
		"untyped completions":   {UntypedCompletions: true},
		"checksum in merged":    {LROChecksum: true},
		"zero length":           {ZeroLengthEvery: 2},
		"zero length in middle": {ZeroLengthBodyEvery: 1},
		"skips":                 {SkipEvery: 2},
		"bells when starved":    {RxDoorbells: model.RxDoorbellsStarved},
		"bells always":          {RxDoorbells: model.RxDoorbellsAlways},
		"bells never":           {RxDoorbells: model.RxDoorbellsNever},
		"always completes":      {AlwaysComplete: true},
		"forgets address":       {ResetForgetsAddress: true},
		"restores MAC":          {ActivateRestoresMAC: true},
		"masks":                 {ActivateMasks: true},
		"activates twice":       {ActivateTwice: true},
		"oversize":              {AcceptOversize: true},
		"no SG is one":          {ZeroRxSGIsOne: true},
		"ignores errors":        {IgnoreTxErrors: true},
		"offloads on SOP":       {OffloadsOnSOP: true},
		"no data ring":          {NoRxDataRing: true},
		"defers bells":          {TxThreshold: 8},
		"link in Gbit/s":        {LinkInGbps: true},
		"inner flags":           {InnerFlags: model.InnerFlagsBit13},
		"QEMU": {
			RevisionBitmap: 1, UntypedCompletions: true, LROChecksum: true, AlwaysComplete: true, ResetForgetsAddress: true,
			ActivateRestoresMAC: true, ActivateMasks: true, ActivateTwice: true, AcceptOversize: true, ZeroRxSGIsOne: true,
			IgnoreTxErrors: true, SkipEvery: 3,
		},
		"all at once": {
			ZeroLengthEvery: 3, ZeroLengthBodyEvery: 2, SkipEvery: 2, RxDoorbells: model.RxDoorbellsAlways,
			AlwaysComplete: true, ActivateRestoresMAC: true, OffloadsOnSOP: true, LRO: model.LRONoMSS, TxThreshold: 3,
		},
	} {
		t.Run(name, func(t *testing.T) { load(t, v, nil) })
	}
	t.Run("out of order", func(t *testing.T) {
		load(t, model.Variations{OutOfOrderEvery: 2, ZeroLengthBodyEvery: 3}, map[string]string{"reorders-rx-slots": "true"})
	})
}

// TestDisabledOffloads: what the device does not do after all is not offered.
func TestDisabledOffloads(t *testing.T) {
	const tso = framework.TSO4 | framework.TSO6
	for disabled, want := range []framework.Features{0, tso, framework.LRO, tso | framework.LRO} {
		n, _ := start(t, model.Options{Variations: model.Variations{DisabledOffloads: uint32(disabled)}}, rig.NetOptions{})
		if got := (tso | framework.LRO) &^ n.Info.Features; got != want {
			t.Errorf("%d disabled: %v not offered, want %v", disabled, got, want)
		}
		n.RoundTrip()
	}
}

// TestLinkInGbps: the unit of the link's speed is a quirk.
func TestLinkInGbps(t *testing.T) {
	for _, gbps := range []bool{false, true} {
		for mbps, want := range map[int]int{10_000: 10_000, 1000: 1000, 25_000: 25_000, 2500: 2500} {
			o := model.Options{SpeedMbps: mbps, Variations: model.Variations{LinkInGbps: gbps}}
			if gbps && mbps == 2500 {
				continue // such a device can't say it
			}
			n, _ := start(t, o, rig.NetOptions{Options: rig.Options{Quirks: map[string]string{"vmxnet3-link-in-gbps": fmt.Sprint(gbps)}}})
			if l, err := n.Device.Link(); err != nil || l.Mbps != want {
				t.Errorf("%d Mbit/s, in Gbit/s %v: %+v, %v", mbps, gbps, l, err)
			}
		}
	}
}

// TestInnerFlags: what a device says of a packet in a tunnel is not taken for
// something about the tunnel's own.
func TestInnerFlags(t *testing.T) {
	for _, style := range []model.InnerFlags{model.InnerFlagsNever, model.InnerFlagsBit12, model.InnerFlagsBit13} {
		n, _ := start(t, model.Options{Variations: model.Variations{InnerFlags: style}}, rig.NetOptions{})
		outer := rig.Frame{UDP: true, BadL4: true}
		outer.Payload = 8 + len(rig.Frame{Payload: 100}.Build())
		frame := outer.Build()
		frame[outer.L4()+2], frame[outer.L4()+3] = 4789>>8, 4789&0xff
		copy(frame[outer.HeaderLen()+8:], rig.Frame{Payload: 100}.Build())
		n.Inject(frame)
		got := n.Receive(1)[0]
		bad := got.Flags&framework.ChecksumBad != 0
		if got.Flags&framework.ChecksumVerified != 0 || got.Flags&framework.TCP != 0 || bad != (style == model.InnerFlagsNever) {
			t.Errorf("style %d: a tunnel's packet with a bad checksum has flags %b", style, got.Flags)
		}
	}
}

// load is a stream each way, with packets of one and of many descriptors.
func load(t *testing.T, v model.Variations, quirks map[string]string) {
	n, _ := start(t, model.Options{Variations: v}, rig.NetOptions{Options: rig.Options{Quirks: quirks}})
	for i := range 120 {
		in := rig.Frame{Seq: uint32(i), Payload: 20 + i*11%1400}
		if i%3 == 0 {
			big := in
			big.Payload = 1448 * (2 + i%9)
			n.InjectFrame(rig.TSOFrame(big, 1448))
			got := n.Receive(1)[0]
			if h := big.HeaderLen(); !bytes.Equal(got.Bytes[h:], big.Build()[h:]) || got.Flags&framework.Coalesced == 0 {
				t.Fatalf("packet %d: %d bytes, flags %b", i, got.Len, got.Flags)
			}
		}
		n.Inject(in.Build())
		got := n.Receive(1)[0]
		if !bytes.Equal(got.Bytes, in.Build()) || got.Flags&framework.ChecksumVerified == 0 {
			t.Fatalf("packet %d: %x, flags %b", i, got.Bytes, got.Flags)
		}
		out := rig.Frame{To: rig.Peer, From: rig.MAC, Seq: uint32(i), Payload: 20 + i*7%1400}.Build()
		meta := framework.Packet{}
		if i%4 == 0 {
			meta.Flags = framework.Completion
		}
		if !n.Put(0, out, 300, meta) {
			t.Fatal("full")
		}
		n.Queues.Tx[0].Bell()
		if f := n.Arrives(); !bytes.Equal(f.Bytes, out) {
			t.Fatalf("packet %d sent as %x", i, f.Bytes)
		}
		n.Until("completions", func() bool { n.Reap(0); return n.InFlight(0) < 4 })
	}
	n.Stop()
	n.Start()
	n.RoundTrip()
}

// TestMaskModes: who masks a vector that fired is the device's choice.
func TestMaskModes(t *testing.T) {
	for mode := range uint32(3) {
		for _, kind := range []bus.InterruptKind{bus.MSIX, bus.MSI, bus.INTx} {
			t.Run(fmt.Sprint(mode, kind), func(t *testing.T) {
				one := func(c *framework.Config) { c.RxQueues, c.TxQueues = 1, 1; clear(c.RSS.Indirection[:]) }
				n, _ := start(t, model.Options{Interrupt: mode << 2}, rig.NetOptions{Options: rig.Options{Kind: &kind, Config: one}})
				for range 20 {
					n.Inject(rig.Frame{Payload: 60}.Build())
					n.WaitCause(0, func(c framework.Cause) bool { return c.Rx&1 != 0 })
					n.Device.Mask(0)
					n.Receive(1)
					n.Device.Unmask(0)
				}
			})
		}
	}
}

// TestTransmitWithoutInterrupt: a transmit queue without a vector raises no
// interrupt, not on its partner's either, whatever kind there is and whoever masks;
// its completions come all the same, and so do its partner's interrupts.
func TestTransmitWithoutInterrupt(t *testing.T) {
	for mode := range uint32(3) {
		for _, kind := range []bus.InterruptKind{bus.MSIX, bus.MSI, bus.INTx} {
			t.Run(fmt.Sprint(mode, kind), func(t *testing.T) {
				n, _ := start(t, model.Options{Interrupt: mode << 2}, rig.NetOptions{Options: rig.Options{Kind: &kind, Config: func(c *framework.Config) {
					c.RxQueues, c.TxQueues = 1, 1
					clear(c.RSS.Indirection[:])
					c.Interrupts.TxVector = []int{-1}
				}}})
				v := n.Config.Interrupts.Rx(0)
				n.Events[v].Take() // what starting it may have caused
				for range 20 {
					n.Send(0, rig.Frame{To: rig.Peer, From: rig.MAC, Payload: 60}.Build(), 100, framework.Packet{Flags: framework.Completion})
					n.Arrives()
				}
				early := n.Events[v].Take()
				// Interrupts come in order: this one after any of a completion.
				n.Inject(rig.Frame{Payload: 60}.Build())
				fired, err := n.Events[v].Wait(n.Context)
				if c := n.Device.Interrupt(v); err != nil || early+fired != 1 || c.Rx&1 == 0 {
					t.Errorf("%d interrupts after 20 packets sent and one received, about %+v (%v)", early+fired, c, err)
				}
				n.Receive(1)
			})
		}
	}
}

// TestHeadersFromDataRing: of a TSO packet whose payload lies elsewhere the device
// has the headers from the data ring, round the ring and on every revision.
func TestHeadersFromDataRing(t *testing.T) {
	const mss, segments = 1000, 4
	for revision := 1; revision <= 4; revision++ {
		n, _ := start(t, model.Options{Revision: revision}, rig.NetOptions{})
		for i := range 100 {
			f := rig.Frame{To: rig.Peer, From: rig.MAC, Seq: uint32(i), Payload: segments * mss, NoLength: true}
			whole, header := f.Build(), f.HeaderLen()
			meta := f.TSO(mss)
			meta.Flags |= framework.Completion
			if !n.PutPieces(0, meta, whole[:header], whole[header:][:2000], whole[header+2000:]) {
				t.Fatal("full")
			}
			n.Queues.Tx[0].Bell()
			for s := range segments {
				got := n.Arrives().Bytes
				if want := whole[header+s*mss:][:mss]; !bytes.Equal(got[header:], want) || !bytes.Equal(got[:12], whole[:12]) {
					t.Fatalf("revision %d, packet %d, segment %d: %x", revision, i, s, got)
				}
			}
			n.Until("completion", func() bool { n.Reap(0); return n.InFlight(0) < 8 })
		}
	}
}

// TestInterruptChoice: the device may want a lesser kind.
func TestInterruptChoice(t *testing.T) {
	for kind, want := range map[uint32]bus.InterruptKind{0: bus.MSIX, 1: bus.INTx, 2: bus.MSI, 3: bus.MSIX} {
		n, _ := start(t, model.Options{Interrupt: kind}, rig.NetOptions{})
		if got := n.Info.Interrupts[0].Kind; got != want {
			t.Errorf("wants %d, gets %v", kind, got)
		}
		n.RoundTrip()
	}
}

// TestQueues spreads flows over eight queues and sends from each.
func TestQueues(t *testing.T) {
	const queues = 8
	n, _ := start(t, model.Options{}, rig.NetOptions{Options: rig.Options{Buffers: 2048, Config: func(c *framework.Config) {
		c.RxQueues, c.TxQueues = queues, queues
		c.Interrupts = rig.Plan(framework.InterruptChoice{Kind: bus.MSIX, Vectors: 25}, queues)
		for i := range c.RSS.Indirection {
			c.RSS.Indirection[i] = uint8(i % queues)
		}
	}}})
	seen := map[int]bool{}
	for port := range uint16(200) {
		n.Inject(rig.Frame{UDP: port%2 == 1, Port: 3000 + port, Payload: 50}.Build())
		got := n.Receive(1)[0]
		if got.Flags&framework.HashValid == 0 || int(got.Hash%queues) != got.Queue {
			t.Fatalf("port %d: queue %d of hash %#x, flags %b", port, got.Queue, got.Hash, got.Flags)
		}
		seen[got.Queue] = true
		out := rig.Frame{To: rig.Peer, From: rig.MAC, Port: port, Payload: 50}.Build()
		n.Send(int(port%queues), out, 100, framework.Packet{})
		if f := n.Arrives(); !bytes.Equal(f.Bytes, out) {
			t.Fatalf("sent %x", f.Bytes)
		}
	}
	if len(seen) != queues {
		t.Errorf("queues used: %v", seen)
	}
}

// TestQueueError: a packet of too many descriptors stops the queue, which the
// device tells, and a reset cures.
func TestQueueError(t *testing.T) {
	n, _ := start(t, model.Options{}, rig.NetOptions{})
	n.Put(1, rig.Frame{To: rig.Peer, Payload: 1200}.Build(), 40, framework.Packet{})
	n.Queues.Tx[1].Bell()
	n.WaitCause(n.Config.Interrupts.AdminVector, func(c framework.Cause) bool { return c.Admin })
	e := n.Admin()
	if e.QueueFault != 1<<1 || !strings.Contains(e.Reason, "transmit queue 1 stopped: ") {
		t.Errorf("events %+v", e)
	}
	n.Stop()
	n.Start()
	n.RoundTrip()
}

// TestThreshold: the device is content to hear of eight packets at once, counted
// after segmentation, and looks for fewer by itself. A Bell with nothing new is
// for one that does not.
func TestThreshold(t *testing.T) {
	n, _ := start(t, model.Options{Variations: model.Variations{TxThreshold: 8}}, rig.NetOptions{})
	put := func(packets int) {
		for range packets {
			n.Put(0, rig.Frame{To: rig.Peer, From: rig.MAC, Payload: 60}.Build(), 100, framework.Packet{Flags: framework.Completion})
			n.Queues.Tx[0].Bell()
		}
	}
	page, ranges := n.Bus.(bus.DoorbellDevice).Doorbells()
	told := page.Value(ranges[0].First) // of transmit queue 0
	was := told.Load()
	rung := func(want bool) {
		t.Helper()
		if now := told.Load(); (now != was) != want {
			t.Errorf("producer index %d, was %d", now, was)
		}
		was = told.Load()
	}
	arrive := func(packets int) {
		t.Helper()
		for range packets {
			n.Arrives()
		}
		n.Until("completions", func() bool { n.Reap(0); return n.InFlight(0) == 0 })
	}
	put(7)
	rung(false)
	arrive(7)
	put(1)
	rung(true)
	arrive(1)
	put(3)
	rung(false)
	arrive(3)
	n.Queues.Tx[0].Bell()
	rung(true)
	f := rig.Frame{To: rig.Peer, From: rig.MAC, Payload: 7 * 1448, NoLength: true}
	n.Put(0, f.Build(), 2000, f.TSO(1448))
	n.Queues.Tx[0].Bell()
	rung(false)
	put(1)
	rung(true)
	arrive(8)
}

// TestPassthrough: when hardware takes over, the device does not merge any more.
func TestPassthrough(t *testing.T) {
	n, m := start(t, model.Options{}, rig.NetOptions{})
	n.Admin()
	for _, on := range []bool{true, false} {
		m.SetPassthrough(on)
		e := n.Admin()
		info := n.Device.Info()
		if !e.ModeChanged || (info.Mode == "passthrough") != on || info.Features.Has(framework.LRO) == on {
			t.Errorf("passthrough %v: events %+v, mode %q, features %v", on, e, info.Mode, info.Features)
		}
		if e := n.Admin(); e.ModeChanged {
			t.Error("the mode changed twice")
		}
		n.RoundTrip()
	}
}

func TestCounters(t *testing.T) {
	n, _ := start(t, model.Options{}, rig.NetOptions{})
	for range 3 {
		for range 5 {
			n.RoundTrip()
		}
		f := rig.Frame{To: rig.Peer, From: rig.MAC, Payload: 4 * 1448, NoLength: true}
		n.Send(1, f.Build(), 2000, f.TSO(1448))
		for range 4 {
			n.Arrives()
		}
		for name, want := range map[string]uint64{
			"rx_unicast_packets": 5, "rx_unicast_bytes": 5 * 154, "tx_unicast_packets": 9,
			"tx_tso_packets": 4, "rx_errors": 0, "tx_errors": 0, "rx_multicast_packets": 0,
		} {
			if got := n.Counter(name); got != want {
				t.Errorf("%s is %d, want %d", name, got, want)
			}
		}
		n.Stop()
		n.Start()
	}
}
