package drivertest

import (
	"nicd/framework"
	"nicd/framework/drivertest/rig"
	"nicd/framework/engine"
)

var vlanChecks = []*check{
	{name: "vlan.strip", features: framework.VLANStrip, run: vlanStrip,
		doc: "Tags are taken out of received frames and reported with their priority; untagged frames have none."},
	{name: "vlan.insert", features: framework.VLANInsert, run: vlanInsert,
		doc: "Tags are put into sent frames, with checksums filled in behind them."},
	{name: "vlan.off", features: framework.VLANStrip, run: vlanOff,
		doc: "With vlan-strip and vlan-insert off tags stay where they are; turned on again they do not."},
	{name: "vlan.filter", features: framework.VLANFilter, run: vlanFilter,
		doc: "Frames of VLANs that were not asked for do not arrive, whatever changes between."},
	{name: "vlan.filter-untagged", features: framework.VLANFilter, run: vlanUntagged,
		doc: "Untagged frames arrive, whatever VLANs were asked for."},
	{name: "vlan.engine", run: vlanEngine,
		doc: "The engine sends a tag, whoever inserts it."},
}

// tagged receives a frame with a tag and wants it stripped.
func (t *c) stripped(n *rig.Net, f rig.Frame) {
	bare := f
	bare.TCI = 0
	n.Inject(f.Build())
	got := n.Receive(1)[0]
	t.same(got, bare.Build())
	if got.Flags&framework.VLANTag == 0 || got.VLAN != f.TCI {
		t.Errorf("tag %#x is reported as %#x, flags %b", f.TCI, got.VLAN, got.Flags)
	}
}

func vlanStrip(t *c) {
	n := t.net(on{})
	for _, tci := range []uint16{1, 0x6123, 0xFFFE, 0xE000, 4095} {
		for _, f := range []rig.Frame{{}, {UDP: true}, {V6: true}} {
			f.TCI, f.Payload = tci, 100
			t.stripped(n, f)
		}
		n.Inject(in(1, 100))
		if got := n.Receive(1)[0]; got.Flags&framework.VLANTag != 0 {
			t.Error("a tag where there was none")
		}
	}
}

func vlanInsert(t *c) {
	n := t.net(on{})
	for _, tci := range []uint16{1, 0x3045, 0xFFFE, 0xE000} {
		f := rig.Frame{To: rig.Peer, From: rig.MAC, Payload: 200}
		n.Send(0, f.Build(), 90, framework.Packet{Flags: framework.VLANTag, VLAN: tci})
		f.TCI = tci
		t.sent(n, f.Build())
		n.Send(0, out(1, 70), 90, framework.Packet{})
		t.sent(n, out(1, 70))
		if !n.Info.Features.Has(framework.TxChecksum) {
			continue
		}
		sum := rig.Frame{To: rig.Peer, From: rig.MAC, UDP: true, Payload: 300, Partial: true}
		meta := sum.Offload()
		meta.Flags |= framework.VLANTag
		meta.VLAN = tci
		n.Send(0, sum.Build(), 2000, meta)
		sum.Partial, sum.TCI = false, tci
		t.sent(n, sum.Build())
	}
}

func vlanOff(t *c) {
	n := t.net(on{})
	f := rig.Frame{TCI: 0x6123, Payload: 100}
	for range 3 {
		t.stripped(n, f)
		n.Change(func(s *framework.Settings) { s.Features &^= framework.VLANStrip | framework.VLANInsert })
		n.Inject(f.Build())
		got := n.Receive(1)[0]
		t.same(got, f.Build())
		if got.Flags&framework.VLANTag != 0 {
			t.Error("a tag is reported with vlan-strip off")
		}
		n.Change(func(s *framework.Settings) {
			s.Features |= n.Info.Features & (framework.VLANStrip | framework.VLANInsert)
		})
	}
	t.stripped(n, f)
}

// vlans is a filter for some VLANs.
func vlans(ids ...int) *[4096 / 64]uint64 {
	v := new([4096 / 64]uint64)
	for _, id := range ids {
		v[id/64] |= 1 << (id % 64)
	}
	return v
}

func vlanFilter(t *c) {
	n := t.net(on{Options: rig.Options{Config: oneQueue}})
	accepts := func(vid uint16, want bool) {
		n.Inject(rig.Frame{TCI: vid, Payload: 80}.Build(), marker)
		seen, done := false, false
		n.Until("the marker", func() bool {
			for _, p := range n.Poll(0) {
				if string(p.Bytes) == string(marker) {
					done = true
				} else {
					seen = true
				}
			}
			return done
		})
		if seen != want {
			t.Errorf("a frame of VLAN %d arrives: %v, should: %v", vid, seen, want)
		}
	}
	accepts(100, true)
	ids := framework.Filters{VLANs: vlans(100, 4095)}
	n.SetFilters(ids)
	for vid, want := range map[uint16]bool{100: true, 4095: true, 101: false, 36: false, 1: false, 4094: false} {
		accepts(vid, want)
	}
	n.SetFilters(framework.Filters{VLANs: vlans(100, 4095), Promiscuous: true})
	accepts(101, true)
	n.SetFilters(ids)
	accepts(101, false)
	accepts(100, true)
	n.Change(func(s *framework.Settings) { s.Features &^= framework.VLANFilter })
	accepts(101, true)
	n.Change(func(s *framework.Settings) { s.Features |= framework.VLANFilter })
	accepts(101, false)
	n.Change(func(s *framework.Settings) { s.MTU = max(1400, n.Info.MinMTU) })
	accepts(101, false)
	accepts(100, true)
	n.SetFilters(framework.Filters{})
	accepts(101, true)
}

func vlanUntagged(t *c) {
	n := t.net(on{})
	for _, f := range []framework.Filters{{VLANs: vlans(7)}, {VLANs: vlans()}, {VLANs: vlans(0)}} {
		n.SetFilters(f)
		n.Inject(in(1, 100))
		t.same(n.Receive(1)[0], in(1, 100))
	}
}

func vlanEngine(t *c) {
	for _, off := range []framework.Features{0, framework.VLANInsert} {
		s := t.stack(stackOptions{})
		s.change(func(p *engine.Plan) { p.Features &^= off })
		for i := range uint16(20) {
			f := rig.Frame{To: rig.Peer, From: rig.MAC, Payload: 100 + int(i)}
			s.send(0, framework.Packet{Flags: framework.VLANTag, VLAN: 0x2001 + i}, f.Build())
			f.TCI = 0x2001 + i
			t.sent(s.net, f.Build())
		}
		s.finish()
	}
}
