package e1000_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"nicd/bus"
	"nicd/drivers/e1000"
	"nicd/framework"
	"nicd/framework/drivertest"
	"nicd/framework/drivertest/rig"
	"nicd/framework/drivertest/simbench"
	"nicd/sim"
	model "nicd/sim/e1000"
	"nicd/sim/vmxnet3"
)

// These tests run the driver on the device models. What needs a hand on every
// descriptor is in queue_test.go.

// chips are the models, by name.
var chips = map[string]model.Kind{
	"82540EM": model.I82540EM, "82545EM": model.I82545EM, "82544GC": model.I82544GC, "82574L": model.I82574L,
}

// start runs the driver on a model.
func start(t testing.TB, m model.Options, opt rig.NetOptions) (*rig.Net, *model.Model) {
	t.Helper()
	dev := model.New(m)
	return rig.NewNet(t, e1000.New(), dev, opt), dev
}

// TestConformance runs what holds for each driver, on each chip.
func TestConformance(t *testing.T) {
	for _, model := range simbench.Models(e1000.New()) {
		t.Run(model, func(t *testing.T) {
			b, err := simbench.New(e1000.New(), model, simbench.Options{})
			if err != nil {
				t.Fatal(err)
			}
			drivertest.Run(t, b)
		})
	}
}

func TestIdentity(t *testing.T) {
	for name, kind := range chips {
		mac := [6]byte{2, 3, 4, 5, 6, 7}
		n, _ := start(t, model.Options{Kind: kind, MAC: mac}, rig.NetOptions{})
		if n.Info.Model != name || n.Info.MAC != framework.MAC(mac) || n.Info.Features.Has(framework.LRO) {
			t.Errorf("%s: %+v", name, n.Info)
		}
		if r, want := n.Info.Features.Has(framework.RSSHash), kind == model.I82574L; r != want {
			t.Errorf("%s: RSS %v", name, r)
		}
	}
}

func TestAttachRefuses(t *testing.T) {
	dev, err := sim.NewDevice(vmxnet3.New(vmxnet3.Options{}), sim.Options{HeapDoorbells: true})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	_, err = framework.Attach(t.Context(), e1000.New(), dev, framework.Env{Quirks: framework.NewQuirkSet()})
	if !errors.Is(err, framework.ErrNotOurs) {
		t.Errorf("a vmxnet3: %v", err)
	}
}

// TestVariations runs a load, changes of settings and restarts over every way in
// which devices in the field are known to differ.
func TestVariations(t *testing.T) {
	for name, v := range map[string]model.Variation{
		"none":               {},
		"few vectors":        {FewVectors: true},
		"spurious ACK":       {SpuriousACK: true},
		"ICR keeps":          {ICRKeeps: true},
		"EIAC masks":         {EIACMasks: true},
		"throttle":           {MinThrottle: 128 * time.Microsecond},
		"reset needs I/O":    {ResetNeedsIO: true},
		"no reset":           {NoReset: true},
		"deaf after RCTL":    {DeafAfterRCTL: 20 * time.Millisecond},
		"no receive sums":    {NoRxChecksum: true},
		"no legacy checksum": {NoLegacyChecksum: true},
		"split FCS":          {SplitFCS: true},
		"no FLXBUF":          {IgnoreFLXBUF: true},
		"discards runts":     {DiscardRunts: true},
		"hashes unicast":     {HashesUnicast: true},
		"empty TSO tail":     {EmptyTSOTail: true},
		"drops when short":   {DropsWhenShort: true},
		"no EERD":            {NoEERD: true},
		"QEMU": {
			EIACMasks: true, ICRKeeps: true, MinThrottle: 128 * time.Microsecond, NoReset: true, NoRxChecksum: true,
			NoLegacyChecksum: true, SplitFCS: true, SpuriousACK: true, DeafAfterRCTL: 10 * time.Millisecond,
			HashesUnicast: true, EmptyTSOTail: true,
		},
	} {
		for chip, kind := range chips {
			if v.ResetNeedsIO && kind == model.I82574L {
				continue // it is reset through memory space
			}
			if relative := kind == model.I82545EM || kind == model.I82544GC; relative && name != "none" && name != "QEMU" {
				continue // they vary as the 82540EM does
			}
			t.Run(name+" "+chip, func(t *testing.T) {
				load(t, model.Options{Kind: kind, Variation: v})
			})
		}
	}
}

func load(t *testing.T, o model.Options) {
	n, _ := start(t, o, rig.NetOptions{})
	for i := range 100 {
		in := rig.Frame{Seq: uint32(i), Payload: 20 + i*11%1400}
		n.Inject(in.Build())
		n.WaitCause(0, func(c framework.Cause) bool { return c.Rx != 0 })
		n.Device.Mask(0)
		got := n.Receive(1)[0]
		n.Device.Unmask(0)
		if !bytes.Equal(got.Bytes, in.Build()) || (got.Flags&framework.ChecksumVerified != 0) == o.Variation.NoRxChecksum {
			t.Fatalf("packet %d: %x, flags %b", i, got.Bytes, got.Flags)
		}
		out := rig.Frame{To: rig.Peer, From: rig.MAC, Seq: uint32(i), Payload: 20 + i*7%1400, Partial: true}
		n.Send(0, out.Build(), 300, out.Offload())
		out.Partial = false
		if f := n.Arrives(); !bytes.Equal(f.Bytes, out.Build()) {
			t.Fatalf("packet %d sent as %x", i, f.Bytes)
		}
	}
	n.Apply(framework.Reset, func(s *framework.Settings) { s.MTU = 4000 })
	n.RoundTrip()
	n.Apply(framework.Reset, func(s *framework.Settings) { s.Features &^= framework.VLANStrip | framework.VLANInsert })
	if err := n.Device.SetFilters(framework.Filters{Promiscuous: true}); err != nil {
		t.Fatal(err)
	}
	n.RoundTrip()
	for range 5 {
		n.Stop()
		n.Start()
	}
	n.WaitLink(true)
	n.RoundTrip()
}

// TestOneSwitchForTags: with vlan-strip off tags stay in received frames.
func TestOneSwitchForTags(t *testing.T) {
	for chip, kind := range chips {
		t.Run(chip, func(t *testing.T) {
			n, _ := start(t, model.Options{Kind: kind}, rig.NetOptions{})
			n.Apply(framework.Reset, func(s *framework.Settings) { s.Features &^= framework.VLANStrip | framework.VLANInsert })
			f := rig.Frame{Payload: 100, TCI: 0x6123}
			n.Inject(f.Build())
			if got := n.Receive(1)[0]; got.Flags&framework.VLANTag != 0 || !bytes.Equal(got.Bytes, f.Build()) {
				t.Errorf("flags %b, %x", got.Flags, got.Bytes)
			}
		})
	}
}

// TestTagsInFlight: packets that were put with a tag are never sent without it, also
// if tags are turned off while a peer holds them up.
func TestTagsInFlight(t *testing.T) {
	for chip, kind := range chips {
		t.Run(chip, func(t *testing.T) {
			n, _ := start(t, model.Options{Kind: kind}, rig.NetOptions{SimOptions: rig.SimOptions{Limit: 1}})
			f := rig.Frame{Payload: 100}
			for range 8 {
				n.Put(0, f.Build(), 200, framework.Packet{Flags: framework.VLANTag | framework.Completion, VLAN: 0x123})
			}
			n.Queues.Tx[0].Bell()
			n.Change(func(s *framework.Settings) { s.Features &^= framework.VLANStrip | framework.VLANInsert })
			n.Put(0, f.Build(), 200, framework.Packet{Flags: framework.Completion})
			n.Queues.Tx[0].Bell()
			var bare int
			n.Until("sent", func() bool {
				for got, ok := n.Peer.TryNext(); ok; got, ok = n.Peer.TryNext() {
					if bytes.Equal(got.Bytes, f.Build()) {
						bare++
					}
				}
				n.Reap(0)
				return n.InFlight(0) == 0 && bare > 0
			})
			if bare != 1 {
				t.Errorf("%d packets without a tag, 1 was to be", bare)
			}
		})
	}
}

// TestBadFrames: nonsense of the device's is dropped and counted, one packet at a
// time.
func TestBadFrames(t *testing.T) {
	for chip, kind := range chips {
		t.Run(chip, func(t *testing.T) {
			v := model.Variation{BadFrameEvery: 5, BadLengthEvery: 7}
			n, _ := start(t, model.Options{Kind: kind, Variation: v}, rig.NetOptions{Options: rig.Options{Config: func(c *framework.Config) {
				c.RxQueues = 1
				clear(c.RSS.Indirection[:])
			}}})
			const frames = 140
			good, bad := 0, 0
			injected := make(chan struct{})
			go func() {
				defer close(injected)
				for i := range frames {
					n.Inject(rig.Frame{Seq: uint32(i), Payload: 100}.Build())
				}
			}()
			n.Until("good frames", func() bool {
				for _, p := range n.Poll(0) {
					switch {
					case p.Error != framework.NoDrop:
						bad++
					case len(p.Bytes) == 154:
						good++
					default:
						t.Fatalf("packet of %d bytes", len(p.Bytes))
					}
				}
				// One in five is not stored; one in seven of all or of the rest,
				// half of which are empty, has a nonsensical length.
				return good+bad >= frames*4/5-frames/7
			})
			<-injected
			if good < frames/2 || bad == 0 {
				t.Errorf("%d good packets, %d bad", good, bad)
			}
			if crc := n.Counter("rx_crc_errors"); crc != frames/5 {
				t.Errorf("%d CRC errors counted", crc)
			}
			n.Apply(framework.Reset, func(s *framework.Settings) { s.MTU = 2000 })
		})
	}
}

// TestQueues uses both queues of the 82574L, with a vector each, both ways.
func TestQueues(t *testing.T) {
	n, _ := start(t, model.Options{Kind: model.I82574L}, rig.NetOptions{Options: rig.Options{Config: func(c *framework.Config) {
		c.Interrupts.Vectors, c.Interrupts.AdminVector = 5, 4
		c.Interrupts.RxVector, c.Interrupts.TxVector = []int{0, 1}, []int{2, 3}
	}}})
	for q := range 2 {
		port := uint16(1)
		for range 20 {
			f := rig.Frame{Port: port, Payload: 50}
			n.Inject(f.Build())
			if got := n.Receive(1)[0]; got.Queue == q {
				n.Inject(f.Build())
				n.WaitCause(q, func(c framework.Cause) bool { return c == framework.Cause{Rx: 1 << q} })
				n.Receive(1)
				n.Device.Unmask(q)
				break
			}
			port++
		}
		n.Send(q, rig.Frame{To: rig.Peer, Payload: 50}.Build(), 100, framework.Packet{})
		n.WaitCause(2+q, func(c framework.Cause) bool { return c == framework.Cause{Tx: 1 << q} })
		n.Arrives()
	}
	// Offloads on both queues at once, in turns: there is one context for both.
	for i := range 40 {
		f := rig.Frame{To: rig.Peer, From: rig.MAC, UDP: i%3 == 0, V6: i%2 == 0, Payload: 80 + i, Partial: true}
		n.Send(i%2, f.Build(), 200, f.Offload())
		f.Partial = false
		if got := n.Arrives(); !bytes.Equal(got.Bytes, f.Build()) {
			t.Fatalf("packet %d sent as %x", i, got.Bytes)
		}
	}
}

// TestHang: a transmit queue that stands still is set going by a restart.
func TestHang(t *testing.T) {
	for chip, kind := range chips {
		t.Run(chip, func(t *testing.T) {
			n, m := start(t, model.Options{Kind: kind}, rig.NetOptions{})
			m.Hang(0)
			n.Put(0, rig.Frame{To: rig.Peer, Payload: 60}.Build(), 100, framework.Packet{Flags: framework.Completion})
			n.Queues.Tx[0].Bell()
			n.Inject(rig.Frame{Payload: 60}.Build())
			n.Receive(1)
			if n.Reap(0) != 0 {
				t.Fatal("the queue does not hang")
			}
			n.Stop()
			n.Start()
			n.WaitLink(true)
			n.RoundTrip()
		})
	}
}

func TestCounters(t *testing.T) {
	for chip, kind := range chips {
		t.Run(chip, func(t *testing.T) {
			n, _ := start(t, model.Options{Kind: kind}, rig.NetOptions{})
			for range 2 {
				for i := range 6 {
					n.RoundTrip()
					// Reading clears the device's, not the driver's.
					if got := n.Counter("rx_packets"); got != uint64(i+1) {
						t.Errorf("%d packets counted after %d", got, i+1)
					}
				}
				for name, want := range map[string]uint64{
					"rx_packets": 6, "rx_bytes": 6 * 158, "tx_packets": 6, "tx_bytes": 6 * 391,
					"rx_crc_errors": 0, "rx_missed": 0, "tx_broadcast": 0,
				} {
					if got := n.Counter(name); got != want {
						t.Errorf("%s is %d, want %d", name, got, want)
					}
				}
				n.Stop()
				n.Start()
				n.WaitLink(true)
			}
		})
	}
}

// TestResetMethods: by whatever means a device is reset, it works afterwards.
func TestResetMethods(t *testing.T) {
	for chip, kind := range chips {
		for _, method := range []string{"register", "io-register", "bus"} {
			t.Run(chip+" "+method, func(t *testing.T) {
				n, _ := start(t, model.Options{Kind: kind}, rig.NetOptions{Options: rig.Options{
					Quirks: map[string]string{"reset-method": method},
				}})
				n.RoundTrip()
				n.Stop()
				n.Start()
				n.WaitLink(true)
				n.RoundTrip()
			})
		}
	}
}

// TestTransmitWithoutInterrupt: a transmit queue without a vector raises no
// interrupt, not on its partner's either; its completions come all the same, and so
// do its partner's interrupts.
func TestTransmitWithoutInterrupt(t *testing.T) {
	for name, chip := range chips {
		for _, kind := range []bus.InterruptKind{bus.MSIX, bus.MSI, bus.INTx} {
			if kind != bus.INTx && chip != model.I82574L {
				continue
			}
			for _, silent := range []bool{true, false} {
				t.Run(fmt.Sprint(name, kind, silent), func(t *testing.T) {
					n, _ := start(t, model.Options{Kind: chip}, rig.NetOptions{Options: rig.Options{Kind: &kind, Config: func(c *framework.Config) {
						c.RxQueues, c.TxQueues = 1, 1
						if silent {
							c.Interrupts.TxVector = []int{-1}
						}
					}}})
					v := n.Config.Interrupts.Rx(0)
					n.WaitLink(true)
					n.Device.Interrupt(v) // of the link, and whatever else there was
					n.Events[v].Take()
					if err := n.Bus.UnmaskInterrupt(v); err != nil {
						t.Fatal(err)
					}
					n.Device.Unmask(v)
					for range 20 {
						n.Send(0, rig.Frame{To: rig.Peer, From: rig.MAC, Payload: 60}.Build(), 100, framework.Packet{})
						n.Arrives()
					}
					if fired := n.Events[v].Take(); (fired == 0) != silent {
						t.Errorf("%d interrupts after 20 packets sent", fired)
					}
					if !silent {
						return
					}
					n.Inject(rig.Frame{Payload: 60}.Build())
					if c := n.WaitInterrupt(v); c.Rx != 1 || c.Tx != 0 {
						t.Errorf("an interrupt about %+v", c)
					}
					n.Receive(1)
				})
			}
		}
	}
}

// TestFilterTables: words of the multicast and the VLAN table that are neighbours.
// An 82544GC, in which the odd ones spill into the even ones, has them all the same.
func TestFilterTables(t *testing.T) {
	// A bit of its own in each of the words 0 to 3.
	groups := []framework.MAC{{1, 0, 0x5E, 0, 0x50, 0}, {1, 0, 0x5E, 0, 0x60, 2}, {1, 0, 0x5E, 0, 0x70, 4}, {1, 0, 0x5E, 0, 0x80, 6}}
	tags := []uint16{5, 32 + 6, 64 + 7, 96 + 8}
	var vlans [64]uint64
	for _, id := range tags {
		vlans[id/64] |= 1 << (id % 64)
	}
	for name, kind := range chips {
		t.Run(name, func(t *testing.T) {
			n, _ := start(t, model.Options{Kind: kind}, rig.NetOptions{})
			if err := n.Device.SetFilters(framework.Filters{Multicast: groups, VLANs: &vlans}); err != nil {
				t.Fatal(err)
			}
			for i, group := range groups {
				n.Inject(rig.Frame{To: group, TCI: tags[i], Payload: 60}.Build())
				if got := n.Receive(1)[0]; got.VLAN != tags[i] {
					t.Errorf("group %d: %+v", i, got.Packet)
				}
			}
			n.Inject(rig.Frame{To: framework.MAC{1, 0, 0x5E, 0, 0x90, 0}, TCI: 5, Payload: 60}.Build())
			n.Inject(rig.Frame{To: groups[0], TCI: 6, Payload: 60}.Build())
			n.Inject(rig.Frame{To: groups[0], TCI: 5, Payload: 61}.Build())
			if got := n.Receive(1)[0]; len(got.Bytes) != len(rig.Frame{Payload: 61}.Build()) {
				t.Errorf("what nobody asked for: %x", got.Bytes)
			}
		})
	}
}

// TestAddressWithoutEERD: the address is the one that the reset has loaded.
func TestAddressWithoutEERD(t *testing.T) {
	for name, kind := range chips {
		mac := [6]byte{2, 3, 4, 5, 6, 7}
		n, _ := start(t, model.Options{Kind: kind, MAC: mac, Variation: model.Variation{NoEERD: true}}, rig.NetOptions{})
		if n.Info.MAC != framework.MAC(mac) {
			t.Errorf("%s: %v", name, n.Info.MAC)
		}
	}
}
