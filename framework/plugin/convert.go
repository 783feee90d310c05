package plugin

import (
	"fmt"

	"nicd/bus"
	"nicd/framework"
	"nicd/framework/engine"
	"nicd/proto/driverpb"
)

// This file converts between the framework's types and the protocol's. What
// comes from the other process is checked where the types do not do it.

// Description is what a plugin says of its driver.
type Description struct {
	framework.Description
	// Knows are the quirks that the plugin knows: the driver's own, and those of
	// the framework that it was built with. nil is all that this program knows.
	Knows []framework.QuirkInfo
}

// maxQuirks is how many quirks a plugin may know, far above what there are.
const maxQuirks = 1024

// Check says what in a plugin's description makes no sense. What its quirks are is
// judged when they are resolved.
func (d *Description) Check() error {
	if err := d.Description.Check(); err != nil {
		return err
	}
	if len(d.Knows) > maxQuirks {
		return fmt.Errorf("%w: it knows %d quirks", framework.ErrInfo, len(d.Knows))
	}
	for i := range d.Knows {
		if err := d.Knows[i].CheckWords(); err != nil {
			return err
		}
	}
	return nil
}

func descriptionTo(d framework.Description) *driverpb.Description {
	pb := &driverpb.Description{Name: d.Name, Version: d.Version}
	for _, id := range d.IDs {
		pb.Ids = append(pb.Ids, &driverpb.DeviceID{Vendor: uint32(id.Vendor), Device: uint32(id.Device), Name: id.Name})
	}
	for _, q := range d.Quirks {
		pb.Declarations = append(pb.Declarations, &driverpb.Declaration{
			Quirk: q.Quirk, Value: q.Value, Reference: q.Reference, When: &driverpb.Match{
				Device:      uint32(q.When.Device),
				MinRevision: int64(q.When.MinRevision), MaxRevision: int64(q.When.MaxRevision),
				Mode: q.When.Mode, LinkBelow: int64(q.When.LinkBelow),
				Subsystem: q.When.Subsystem, Scattered: q.When.Scattered,
			},
		})
	}
	for _, q := range framework.QuirksOf(d.Name) {
		pb.Quirks = append(pb.Quirks, &driverpb.QuirkInfo{
			Name: q.Name, Type: q.Type, Choices: q.Choices, Default: q.Default, Doc: q.Doc,
			Reference: q.Reference, Min: int64(q.Min), Max: int64(q.Max), Driver: q.Driver,
			Live: q.Live, Unsafe: q.Unsafe,
		})
	}
	return pb
}

func descriptionFrom(pb *driverpb.Description) Description {
	d := Description{Description: framework.Description{Name: pb.GetName(), Version: pb.GetVersion()}}
	for _, id := range pb.GetIds() {
		d.IDs = append(d.IDs, framework.DeviceID{Vendor: uint16(id.GetVendor()), Device: uint16(id.GetDevice()), Name: id.GetName()})
	}
	for _, q := range pb.GetDeclarations() {
		w := q.GetWhen()
		d.Quirks = append(d.Quirks, framework.Declaration{
			Quirk: q.GetQuirk(), Value: q.GetValue(), Reference: q.GetReference(), When: framework.Match{
				Device:      uint16(w.GetDevice()),
				MinRevision: int(w.GetMinRevision()), MaxRevision: int(w.GetMaxRevision()),
				Mode: w.GetMode(), LinkBelow: int(w.GetLinkBelow()),
				Subsystem: w.GetSubsystem(), Scattered: w.GetScattered(),
			},
		})
	}
	for _, q := range pb.GetQuirks() {
		d.Knows = append(d.Knows, framework.QuirkInfo{
			Name: q.GetName(), Type: q.GetType(), Choices: q.GetChoices(), Default: q.GetDefault(), Doc: q.GetDoc(),
			Reference: q.GetReference(), Min: int(q.GetMin()), Max: int(q.GetMax()), Driver: q.GetDriver(),
			Live: q.GetLive(), Unsafe: q.GetUnsafe(),
		})
	}
	return d
}

func infoTo(i framework.Info) *driverpb.Info {
	pb := &driverpb.Info{
		Model: i.Model, Revision: int64(i.Revision), Mode: i.Mode, Mac: i.MAC[:],
		MaxRxQueues: int64(i.MaxRxQueues), MaxTxQueues: int64(i.MaxTxQueues),
		RxRing: ringRuleTo(i.RxRing), TxRing: ringRuleTo(i.TxRing), RxRings: int64(i.RxRings),
		MinMtu: int64(i.MinMTU), MaxMtu: int64(i.MaxMTU), Features: uint32(i.Features),
		CoalescedSizeKnown: i.CoalescedSizeKnown,
		MaxTxFragments:     int64(i.MaxTxFragments), MaxTsoFragments: int64(i.MaxTSOFragments),
		MaxTsoLen: int64(i.MaxTSOLen), MaxTxFragmentLen: int64(i.MaxTxFragmentLen),
		MaxRxFragments: int64(i.MaxRxFragments),
		MaxUnicast:     int64(i.MaxUnicast), MaxMulticast: int64(i.MaxMulticast),
	}
	for _, c := range i.Interrupts {
		pb.Interrupts = append(pb.Interrupts, &driverpb.InterruptChoice{Kind: uint32(c.Kind), Vectors: int64(c.Vectors)})
	}
	for _, c := range i.Counters {
		pb.Counters = append(pb.Counters, &driverpb.CounterInfo{Name: c.Name, Doc: c.Doc, Bad: c.Bad})
	}
	return pb
}

func infoFrom(pb *driverpb.Info) framework.Info {
	i := framework.Info{
		Model: pb.GetModel(), Revision: int(pb.GetRevision()), Mode: pb.GetMode(), MAC: macFrom(pb.GetMac()),
		MaxRxQueues: int(pb.GetMaxRxQueues()), MaxTxQueues: int(pb.GetMaxTxQueues()),
		RxRing: ringRuleFrom(pb.GetRxRing()), TxRing: ringRuleFrom(pb.GetTxRing()), RxRings: int(pb.GetRxRings()),
		MinMTU: int(pb.GetMinMtu()), MaxMTU: int(pb.GetMaxMtu()), Features: framework.Features(pb.GetFeatures()),
		CoalescedSizeKnown: pb.GetCoalescedSizeKnown(),
		MaxTxFragments:     int(pb.GetMaxTxFragments()), MaxTSOFragments: int(pb.GetMaxTsoFragments()),
		MaxTSOLen: int(pb.GetMaxTsoLen()), MaxTxFragmentLen: int(pb.GetMaxTxFragmentLen()),
		MaxRxFragments: int(pb.GetMaxRxFragments()),
		MaxUnicast:     int(pb.GetMaxUnicast()), MaxMulticast: int(pb.GetMaxMulticast()),
	}
	for _, c := range pb.GetInterrupts() {
		i.Interrupts = append(i.Interrupts, framework.InterruptChoice{Kind: bus.InterruptKind(c.GetKind()), Vectors: int(c.GetVectors())})
	}
	for _, c := range pb.GetCounters() {
		i.Counters = append(i.Counters, framework.CounterInfo{Name: c.GetName(), Doc: c.GetDoc(), Bad: c.GetBad()})
	}
	return i
}

func identityTo(i bus.Info) *driverpb.Identity {
	return &driverpb.Identity{Vendor: uint32(i.Vendor), Device: uint32(i.Device), Revision: uint32(i.Revision)}
}

func identityFrom(pb *driverpb.Identity) bus.Info {
	return bus.Info{Vendor: uint16(pb.GetVendor()), Device: uint16(pb.GetDevice()), Revision: uint8(pb.GetRevision())}
}

func ringRuleTo(r framework.RingRule) *driverpb.RingRule {
	return &driverpb.RingRule{Min: int64(r.Min), Max: int64(r.Max), Multiple: int64(r.Multiple), Default: int64(r.Default)}
}

func ringRuleFrom(pb *driverpb.RingRule) framework.RingRule {
	return framework.RingRule{
		Min: int(pb.GetMin()), Max: int(pb.GetMax()), Multiple: int(pb.GetMultiple()), Default: int(pb.GetDefault()),
	}
}

func planTo(p engine.Plan) *driverpb.Plan {
	return &driverpb.Plan{
		Settings: &driverpb.Settings{
			Mtu: int64(p.MTU), Mac: p.MAC[:], Features: uint32(p.Features),
			RssKey: p.RSS.Key[:], RssIndirection: p.RSS.Indirection[:],
		},
		RxQueues: int64(p.RxQueues), TxQueues: int64(p.TxQueues),
		RxDescriptors: int64(p.RxDescriptors), TxDescriptors: int64(p.TxDescriptors),
		Interrupts: &driverpb.VectorPlan{
			Kind: uint32(p.Interrupts.Kind), Vectors: int64(p.Interrupts.Vectors),
			RxVector: int64s(p.Interrupts.RxVector), TxVector: int64s(p.Interrupts.TxVector),
			AdminVector: int64(p.Interrupts.AdminVector), Moderation: int64(p.Interrupts.Moderation),
		},
		Filters: filtersTo(p.Filters),
		Lro:     uint32(p.LRO), RxBudget: int64(p.RxBudget), SpinMicros: int64(p.SpinMicros), Cpus: int64s(p.CPUs),
		Restart: p.Restart,
	}
}

func planFrom(pb *driverpb.Plan) (engine.Plan, error) {
	s, v := pb.GetSettings(), pb.GetInterrupts()
	p := engine.Plan{
		Settings: framework.Settings{MTU: int(s.GetMtu()), MAC: macFrom(s.GetMac()), Features: framework.Features(s.GetFeatures())},
		RxQueues: int(pb.GetRxQueues()), TxQueues: int(pb.GetTxQueues()),
		RxDescriptors: int(pb.GetRxDescriptors()), TxDescriptors: int(pb.GetTxDescriptors()),
		Interrupts: framework.VectorPlan{
			Kind: bus.InterruptKind(v.GetKind()), Vectors: int(v.GetVectors()),
			RxVector: ints(v.GetRxVector()), TxVector: ints(v.GetTxVector()),
			AdminVector: int(v.GetAdminVector()), Moderation: int(v.GetModeration()),
		},
		LRO: framework.LROOwner(pb.GetLro()), RxBudget: int(pb.GetRxBudget()),
		SpinMicros: int(pb.GetSpinMicros()), CPUs: ints(pb.GetCpus()), Restart: pb.GetRestart(),
	}
	if p.LRO > framework.LROHybrid {
		return p, fmt.Errorf("plan with LRO owner %d", p.LRO)
	}
	copy(p.RSS.Key[:], s.GetRssKey())
	copy(p.RSS.Indirection[:], s.GetRssIndirection())
	var err error
	p.Filters, err = filtersFrom(pb.GetFilters())
	return p, err
}

func filtersTo(f framework.Filters) *driverpb.Filters {
	pb := &driverpb.Filters{
		Promiscuous: f.Promiscuous, AllMulticast: f.AllMulticast,
		Unicast: macsTo(f.Unicast), Multicast: macsTo(f.Multicast),
	}
	if f.VLANs != nil {
		pb.FilterVlans, pb.Vlans = true, f.VLANs[:]
	}
	return pb
}

func filtersFrom(pb *driverpb.Filters) (framework.Filters, error) {
	f := framework.Filters{
		Promiscuous: pb.GetPromiscuous(), AllMulticast: pb.GetAllMulticast(),
		Unicast: macsFrom(pb.GetUnicast()), Multicast: macsFrom(pb.GetMulticast()),
	}
	if !pb.GetFilterVlans() {
		return f, nil
	}
	f.VLANs = new([4096 / 64]uint64)
	if n := copy(f.VLANs[:], pb.GetVlans()); n != len(f.VLANs) {
		return f, fmt.Errorf("VLAN filter of %d words, not %d", n, len(f.VLANs))
	}
	return f, nil
}

func eventTo(e engine.Event) *driverpb.Event {
	return &driverpb.Event{
		Kind: uint32(e.Kind), Queue: int64(e.Queue), Reason: e.Reason,
		Link: &driverpb.Link{Up: e.Link.Up, Mbps: int64(e.Link.Mbps), FullDuplex: e.Link.FullDuplex, Paused: e.Link.Paused},
	}
}

func eventFrom(pb *driverpb.Event) engine.Event {
	l := pb.GetLink()
	return engine.Event{
		Kind: engine.EventKind(pb.GetKind()), Queue: int(pb.GetQueue()), Reason: oneLine(shorten(pb.GetReason())),
		Link: framework.Link{Up: l.GetUp(), Mbps: int(l.GetMbps()), FullDuplex: l.GetFullDuplex(), Paused: l.GetPaused()},
	}
}

func macFrom(b []byte) (m framework.MAC) {
	copy(m[:], b)
	return m
}

func macsTo(macs []framework.MAC) (all [][]byte) {
	for _, m := range macs {
		all = append(all, m[:])
	}
	return all
}

func macsFrom(bytes [][]byte) (all []framework.MAC) {
	for _, b := range bytes {
		all = append(all, macFrom(b))
	}
	return all
}

func int64s(in []int) (out []int64) {
	for _, v := range in {
		out = append(out, int64(v))
	}
	return out
}

func ints(in []int64) (out []int) {
	for _, v := range in {
		out = append(out, int(v))
	}
	return out
}
