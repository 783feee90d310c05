package drivertest

import (
	"context"
	"fmt"
	"time"

	"nicd/bus"
	"nicd/framework"
	"nicd/framework/drivertest/rig"
	"nicd/sim"
)

// These checks are the quirk linter's: each makes the device show what a quirk is
// about, and fails if the driver declares something else.
var quirkChecks = []*check{
	{name: "quirk.lro-owner", run: quirkLROOwner,
		doc: "A device whose owner of LRO is the hardware is seen to merge; any other never merges."},
	{name: "quirk.metadata-on", features: framework.RxChecksum, run: quirkMetadata,
		doc: "Tag and verdict of a packet of several buffers are found where the driver looks for them."},
	{name: "quirk.skips-rx-slots", run: quirkSkips,
		doc: "A device that is not declared to skip receive slots returns its buffers in the order in which it got them."},
	{name: "quirk.rx-bell", run: quirkRxBell,
		doc: "The receive bell is rung as often as declared, and no frame waits for one."},
	{name: "quirk.tx-interrupt", run: quirkTxInterrupt,
		doc: "Finished packets interrupt as declared."},
	{name: "quirk.contiguous-headers", features: framework.TxChecksum, run: quirkHeaders,
		doc: "A device that is not declared to need contiguous headers fills in checksums of packets whose headers lie in several fragments."},
	{name: "quirk.min-frame", run: quirkMinFrame,
		doc: "Frames of the shortest declared length are sent as they are, or padded with zeros."},
	{name: "quirk.tso-min-link", features: framework.TSO4, run: quirkTSOLink,
		doc: "On a link of the declared speed the device cuts TCP."},
	{name: "quirk.max-descriptor-bytes", run: quirkDescriptorBytes,
		doc: "The declared longest piece of a descriptor is no more than the format has, and long fragments are sent whole."},
	{name: "quirk.checksum-trust", features: framework.RxChecksum, run: quirkTrust,
		doc: "A device whose verdicts are trusted never calls a bad checksum good, and good ones good."},
	{name: "quirk.vlan-one-switch", features: framework.VLANStrip | framework.VLANInsert, run: quirkVLANSwitch,
		doc: "A device that is not declared to have one switch for VLAN tags inserts them while it strips none; one that is does not."},
	{name: "quirk.reset-method", run: quirkReset,
		doc: "The driver resets the device in the declared way."},
}

func value[T fmt.Stringer](v T) string { return v.String() }

func quirkLROOwner(t *c) {
	n := t.lroNet(on{})
	owner := framework.LROOwnerQuirk.Get(n.Quirks())
	merged, arrived := 0, 0
	for i := range 20 {
		f := rig.Frame{Seq: uint32(10000 * i), Payload: 6 * 1400}
		if t.can(MergedFrames) {
			n.InjectFrame(rig.TSOFrame(f, 1400))
		} else {
			var all []sim.Frame
			for j := range 6 {
				all = append(all, sim.FrameOf(in(10000*i+1400*j, 1400)))
			}
			t.must(n.Peer.Send(n.Context, all...))
		}
		bytes := 0
		n.Until("the segments", func() bool {
			for _, p := range n.Poll(0) {
				arrived++
				if bytes += int(p.Len) - 54; p.Flags&framework.Coalesced != 0 || p.Len > 1514 {
					merged++
				}
			}
			return bytes >= 6*1400
		})
	}
	hardware := owner == framework.LROHardwareOnly || owner == framework.LROHybrid
	a := agrees(hardware == (merged > 0))
	if hardware && merged == 0 && (!t.can(MergedFrames) || !n.Info.Features.Has(framework.LRO)) {
		a = NotSeen
	}
	t.see(framework.LROOwnerQuirk.Info(), value(owner), a, "120 segments arrive as %d packets, %d of them merged by the device", arrived, merged)
}

func quirkMetadata(t *c) {
	n := t.jumboNet(on{})
	where := framework.MetadataOnQuirk.Get(n.Quirks())
	f := rig.Frame{TCI: 0x2033, Payload: 8000}
	if !n.Info.Features.Has(framework.VLANStrip) {
		f.TCI = 0
	}
	n.Inject(f.Build())
	got := n.Receive(1)[0]
	ok := got.Flags&framework.ChecksumVerified != 0 && (f.TCI == 0 || got.Flags&framework.VLANTag != 0 && got.VLAN == f.TCI)
	name := "last"
	if where == framework.FirstCompletion {
		name = "first"
	}
	t.see(framework.MetadataOnQuirk.Info(), name, agrees(ok && got.Frags > 1), "a packet of %d buffers has verdict %s, tag %#x of %#x",
		got.Frags, verdictName(got.Flags), got.VLAN, f.TCI)
}

// outOfOrder is how many frames of one buffer came in a buffer that was posted
// before an earlier one's.
func (t *c) outOfOrder(s Setup) int {
	n := t.net(on{Setup: s, Options: rig.Options{Config: oneQueue}})
	count, last := 0, uint64(0)
	for i := range 3 * n.Config.RxDescriptors {
		n.Inject(in(i, 64))
		got := n.Receive(1)[0]
		if got.Posted[0] < last {
			count++
		}
		last = got.Posted[0]
	}
	return count
}

func quirkSkips(t *c) {
	n := t.net(on{Options: rig.Options{Stopped: true}})
	declared := framework.SkipsRxSlotsQuirk.Get(n.Quirks())
	setup, can := Setup{}, t.can(SkippedSlots)
	if can {
		setup.SkipEvery = 3
	}
	skipped := t.outOfOrder(setup)
	a := agrees(declared == (skipped > 0))
	if declared && skipped == 0 {
		a = NotSeen // it may, it does not have to
	}
	t.see(framework.SkipsRxSlotsQuirk.Info(), fmt.Sprint(declared), a, "%d frames in buffers that had been passed over before; asked to skip: %v", skipped, can)
}

func quirkRxBell(t *c) {
	p := &probe{}
	n := t.net(on{Options: rig.Options{Wrap: p.wrap, Config: oneQueue}})
	q := n.Queues.Rx[0]
	const refills = 200
	rung := 0
	for i := range refills {
		n.Inject(in(i, 64))
		n.Until("a frame", q.Pending)
		if got, _ := n.PollOnly(0); len(got) != 1 {
			t.Fatalf("%d packets of one frame", len(got))
		}
		q.Post(n.Lend(1))
		before := p.writes.Load()
		q.Bell()
		if p.writes.Load() > before {
			rung++
		}
	}
	policy := framework.RxBellQuirk.Get(n.Quirks())
	name, ok := "always", rung == refills
	if policy == framework.RxBellOnRequest {
		name, ok = "on-request", rung <= refills/10
	}
	t.see(framework.RxBellQuirk.Info(), name, agrees(ok), "%d frames and refills with %d bells", refills, rung)
}

func quirkTxInterrupt(t *c) {
	n := t.net(on{Options: rig.Options{Config: oneQueue}})
	declared := framework.TxInterruptQuirk.Get(n.Quirks())
	v := n.Config.Interrupts.Tx(0)
	const packets = 10
	fired := 0
	for i := range packets {
		n.Device.Unmask(v)
		n.Put(0, out(i, 60), 200, framework.Packet{Flags: framework.Completion})
		n.Queues.Tx[0].Bell()
		n.Until("completion", n.Queues.Tx[0].Pending)
		if t.fires(n, v, transmits) {
			fired++
		}
		n.Device.Mask(v)
		n.Reap(0)
		t.sent(n, out(i, 60))
	}
	t.see(framework.TxInterruptQuirk.Info(), fmt.Sprint(declared), agrees(declared == (fired == packets)), "%d packets sent, %d interrupts", packets, fired)
}

// fires tells whether vector v fires soon, about the right thing.
func (t *c) fires(n *rig.Net, v int, right func(framework.Cause) bool) bool {
	ctx, cancel := context.WithTimeout(n.Context, 300*time.Millisecond)
	defer cancel()
	for {
		if _, err := n.Events[v].Wait(ctx); err != nil {
			return false
		}
		cause := n.Device.Interrupt(v)
		if n.Config.Interrupts.Kind == bus.INTx {
			t.must(n.Bus.UnmaskInterrupt(v))
		}
		if right(cause) {
			return true
		}
		n.Device.Unmask(v)
	}
}

// cutsInPieces sends a packet to be cut whose fragments end at the given bytes and
// tells whether what arrives is right.
func (t *c) cutsInPieces(n *rig.Net, cuts ...int) bool {
	f := rig.Frame{To: rig.Peer, From: rig.MAC, Payload: 3000, NoLength: true}
	whole, at := f.Build(), 0
	var pieces [][]byte
	for _, cut := range append(cuts, 1500, len(whole)) {
		pieces = append(pieces, whole[at:cut])
		at = cut
	}
	meta := f.TSO(1400)
	meta.Flags |= framework.Completion
	n.PutPieces(0, meta, pieces...)
	n.Queues.Tx[0].Bell()
	n.Queues.Tx[0].Bell()
	ctx, cancel := context.WithTimeout(n.Context, time.Second)
	defer cancel()
	f.NoLength = false
	for at, size := 0, 1400; at < f.Payload; at += size {
		size = min(size, f.Payload-at)
		got, err := n.Peer.Next(ctx)
		if err != nil || t.segment(f, got.Bytes, at, size) != nil {
			return false
		}
	}
	return true
}

func quirkHeaders(t *c) {
	n := t.net(on{})
	declared := framework.ContiguousHeadersQuirk.Get(n.Quirks())
	splits := [][]int{{54}, {60}}
	if !declared {
		splits = append(splits, []int{14}, []int{14, 34}, []int{14, 34, 54}, []int{20, 50, 52}, []int{1})
	}
	ok := true
	for i, cuts := range splits {
		f := rig.Frame{To: rig.Peer, From: rig.MAC, Payload: 300, Seq: uint32(i), Partial: true}
		whole, at := f.Build(), 0
		var pieces [][]byte
		for _, cut := range append(cuts, len(whole)) {
			pieces = append(pieces, whole[at:cut])
			at = cut
		}
		meta := f.Offload()
		meta.Flags |= framework.Completion
		n.PutPieces(0, meta, pieces...)
		n.Queues.Tx[0].Bell()
		n.Queues.Tx[0].Bell()
		f.Partial = false
		ok = ok && t.comesOut(n, f.Build())
	}
	seen := "headers in one fragment"
	if !declared {
		seen = "headers in several fragments"
	}
	t.see(framework.ContiguousHeadersQuirk.Info(), fmt.Sprint(declared), agrees(ok), "checksums of packets with %s are filled in: %v", seen, ok)
}

// comesOut tells whether the next frame at the far end is want, and comes soon.
func (t *c) comesOut(n *rig.Net, want []byte) bool {
	ctx, cancel := context.WithTimeout(n.Context, time.Second)
	defer cancel()
	got, err := n.Peer.Next(ctx)
	return err == nil && string(got.Bytes) == string(want)
}

func quirkMinFrame(t *c) {
	n := t.net(on{})
	least := framework.MinFrameQuirk.Get(n.Quirks())
	for _, size := range []int{max(least, 15), max(least, 17), max(least, 42), max(least, 60)} {
		f := out(1, 100)[:size]
		f[12], f[13] = 0x88, 0xB5 // for local experiments, IEEE 802
		n.Send(0, f, 64, framework.Packet{})
		got := n.Arrives().Bytes
		ok := len(got) >= size && string(got[:size]) == string(f) && len(got) <= max(size, 60)
		for _, b := range got[min(size, len(got)):] {
			ok = ok && b == 0
		}
		t.see(framework.MinFrameQuirk.Info(), fmt.Sprint(least), agrees(ok), "a frame of %d bytes arrives as %d", size, len(got))
	}
}

func quirkTSOLink(t *c) {
	n := t.net(on{})
	least := framework.TSOMinLinkQuirk.Get(n.Quirks())
	link, err := n.Device.Link()
	t.must(err)
	if link.Mbps < least {
		t.see(framework.TSOMinLinkQuirk.Info(), fmt.Sprint(least), NotSeen, "the link has %d Mbit/s", link.Mbps)
		return
	}
	t.see(framework.TSOMinLinkQuirk.Info(), fmt.Sprint(least), agrees(t.cutsInPieces(n, 54)), "a packet is cut on a link of %d Mbit/s", link.Mbps)
}

func quirkDescriptorBytes(t *c) {
	const size = 16 << 10
	n := t.net(on{Options: rig.Options{Stopped: true, Buffers: 128, BufferSize: size, Config: func(cfg *framework.Config) {
		oneQueue(cfg)
		cfg.Features &^= framework.LRO
	}}})
	declared := framework.MaxDescriptorBytesQuirk.Get(n.Quirks())
	if declared > n.Info.MaxTxFragmentLen {
		t.see(framework.MaxDescriptorBytesQuirk.Info(), fmt.Sprint(declared), Contradicts, "Info says %d", n.Info.MaxTxFragmentLen)
	}
	n.Config.MTU = min(n.Info.MaxMTU, 9000)
	n.Start()
	n.WaitLink(true)
	whole := true
	for l := min(n.Info.MaxTxFragmentLen, n.Config.MTU+14); l > 200; l /= 2 {
		n.Send(0, out(l, l-54), l, framework.Packet{})
		whole = whole && string(n.Arrives().Bytes) == string(out(l, l-54))
	}
	t.see(framework.MaxDescriptorBytesQuirk.Info(), fmt.Sprint(declared), agrees(whole),
		"fragments of %d bytes and less are sent whole: %v", min(n.Info.MaxTxFragmentLen, n.Config.MTU+14), whole)
}

func quirkTrust(t *c) {
	n := t.net(on{Options: rig.Options{Config: oneQueue}})
	trust := framework.ChecksumTrustQuirk.Get(n.Quirks())
	name := "good"
	if trust == framework.TrustNothing {
		name = "nothing"
	}
	right, wrong := 0, 0
	for i := range 40 {
		f := rig.Frame{UDP: i%4 == 1, Payload: 30 + i, BadL4: i%2 == 1, BadIP: i%8 == 7}
		n.Inject(f.Build())
		got := n.Receive(1)[0]
		switch verified := got.Flags&framework.ChecksumVerified != 0; {
		case verified && (f.BadL4 || f.BadIP):
			wrong++
		case verified:
			right++
		}
	}
	ok := wrong == 0 && right > 0
	if trust == framework.TrustNothing {
		ok = true // that can't be wrong
	}
	t.see(framework.ChecksumTrustQuirk.Info(), name, agrees(ok), "of 20 good frames %d are called good, of 20 bad ones %d", right, wrong)
}

func quirkVLANSwitch(t *c) {
	n := t.net(on{})
	declared := framework.VLANOneSwitchQuirk.Get(n.Quirks())
	next := n.Config.Settings
	next.Features &^= framework.VLANStrip
	works := false
	_, err := n.Device.Plan(next)
	if err == nil {
		n.Change(func(s *framework.Settings) { s.Features &^= framework.VLANStrip })
		f := rig.Frame{To: rig.Peer, From: rig.MAC, Payload: 100}
		n.Send(0, f.Build(), 2000, framework.Packet{Flags: framework.VLANTag, VLAN: 0x2044})
		f.TCI = 0x2044
		f2 := rig.Frame{TCI: 0x2044, Payload: 90}
		n.Inject(f2.Build())
		got := n.Receive(1)[0]
		works = t.comesOut(n, f.Build()) && got.Flags&framework.VLANTag == 0 && string(got.Bytes) == string(f2.Build())
	}
	t.see(framework.VLANOneSwitchQuirk.Info(), fmt.Sprint(declared), agrees(works == !declared),
		"to insert without stripping works: %v, Plan says %v", works, err)
}

func quirkReset(t *c) {
	p := &probe{}
	n := t.net(on{Options: rig.Options{Detached: true, Wrap: p.wrap}})
	how := framework.ResetMethodQuirk.Get(n.Quirks())
	t.must(n.Attach())
	resets, io := p.resets.Load(), p.ioWrites.Load()
	var name string
	var ok bool
	switch how {
	case framework.ResetByBus:
		name, ok = "bus", resets > 0
	case framework.ResetByIORegister:
		name, ok = "io-register", resets == 0 && io > 0
	default:
		name, ok = "register", resets == 0 && p.writes.Load() > 0
	}
	t.see(framework.ResetMethodQuirk.Info(), name, agrees(ok), "%d resets by the bus, %d writes of registers, %d of them not in BAR 0", resets, p.writes.Load(), io)
}
