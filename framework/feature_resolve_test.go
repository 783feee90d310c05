package framework

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func vmxSources(t *testing.T, decls ...Declaration) FeatureSources {
	t.Helper()
	if decls == nil {
		decls = []Declaration{LROOwnerQuirk.Is(LROHardwareOnly, Match{}, "thread A")}
	}
	return FeatureSources{
		Info:   Info{Model: "VMXNET3", Revision: 3, Features: AllFeatures, CoalescedSizeKnown: true},
		Link:   Link{Up: true, Mbps: 10000},
		Quirks: resolve(t, QuirkSources{Driver: "vmxnet3", Declarations: decls}),
		Port:   PortNeeds{Name: "netstack", Accepts: AllFeatures},
	}
}

func TestEverythingOnByDefault(t *testing.T) {
	p := ResolveFeatures(vmxSources(t))
	if p.Device != AllFeatures || p.Usable != AllFeatures || p.LRO != LROHardwareOnly {
		t.Fatalf("device %v, usable %v, LRO %v", p.Device, p.Usable, p.LRO)
	}
}

func TestFeatureChains(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*FeatureSources)
		feature Features
		want    string
	}{
		"on": {func(*FeatureSources) {}, TxChecksum,
			"tx-csum: on: wanted by default; port netstack takes it; offered by VMXNET3 revision 3"},
		"operator": {func(s *FeatureSources) {
			s.Wanted = []FeatureSetting{{TSO4 | TSO6, WantOff, "n.hcl:9: interface vmx0"}}
		}, TSO6, "tso6: off: off: config n.hcl:9: interface vmx0"},
		"operator, later wins": {func(s *FeatureSources) {
			s.Wanted = []FeatureSetting{{TSO4 | TSO6, WantOff, "n.hcl:9"}, {TSO4, WantOn, "n.hcl:10"}}
		}, TSO4, "tso4: on: wanted: config n.hcl:10; port netstack takes it; offered by VMXNET3 revision 3"},
		"in software": {func(s *FeatureSources) {
			s.Wanted = []FeatureSetting{{TxChecksum, WantSoftware, "n.hcl:9"}}
		}, TxChecksum, "tx-csum: software: wanted in software: config n.hcl:9; port netstack takes it; software: the engine fills in checksums"},
		"port": {func(s *FeatureSources) { s.Port.Accepts &^= VLANStrip }, VLANStrip,
			"vlan-strip: off: wanted by default; off: port netstack does not take it"},
		"device, no fallback": {func(s *FeatureSources) { s.Info.Features &^= RSSHash }, RSSHash,
			"rss: off: wanted by default; port netstack takes it; not offered by VMXNET3 revision 3; off: the framework has no software for it"},
		"device, fallback": {func(s *FeatureSources) { s.Info.Features &^= VLANInsert }, VLANInsert,
			"vlan-insert: software: wanted by default; port netstack takes it; not offered by VMXNET3 revision 3; software: the engine writes the tag into the frame"},
		"tso without checksums in hardware": {func(s *FeatureSources) { s.Info.Features &^= TxChecksum }, TSO4,
			"tso4: software: wanted by default; port netstack takes it; offered by VMXNET3 revision 3; needs the device to do tx-csum, which is software; software: the engine segments"},
		"uso without checksums in hardware": {func(s *FeatureSources) { s.Info.Features &^= TxChecksum }, USO,
			"uso: software: wanted by default; port netstack takes it; offered by VMXNET3 revision 3; needs the device to do tx-csum, which is software; software: the engine segments"},
		"uso without checksums": {func(s *FeatureSources) { s.Port.Accepts &^= TxChecksum }, USO,
			"uso: off: wanted by default; port netstack takes it; off: needs tx-csum, which is off"},
		"uso is not TSO": {func(s *FeatureSources) {
			s.Quirks = resolve(t, QuirkSources{Driver: "e1000", Declarations: []Declaration{TSOMinLinkQuirk.Is(1000, Match{}, "bug T")}})
			s.Link.Mbps = 100
		}, USO, "uso: on: wanted by default; port netstack takes it; offered by VMXNET3 revision 3"},
		"uso, no device": {func(s *FeatureSources) { s.Info.Features &^= USO }, USO,
			"uso: software: wanted by default; port netstack takes it; not offered by VMXNET3 revision 3; software: the engine segments"},
		"tso without checksums": {func(s *FeatureSources) { s.Port.Accepts &^= TxChecksum }, TSO4,
			"tso4: off: wanted by default; port netstack takes it; off: needs tx-csum, which is off"},
		"untrusted checksums": {func(s *FeatureSources) {
			s.Quirks = resolve(t, QuirkSources{Driver: "d", InterfaceConfig: []QuirkSetting{{"checksum-trust", "nothing", "n.hcl:3"}}})
		}, RxChecksum, "rx-csum: off: wanted by default; port netstack takes it; offered by VMXNET3 revision 3; not allowed: quirk checksum-trust = nothing (config n.hcl:3); off: the framework has no software for it"},
		"tso on a slow link": {func(s *FeatureSources) {
			s.Quirks = resolve(t, QuirkSources{Driver: "e1000", Declarations: []Declaration{TSOMinLinkQuirk.Is(1000, Match{}, "bug T")}})
			s.Link.Mbps = 100
		}, TSO4, "tso4: software: wanted by default; port netstack takes it; offered by VMXNET3 revision 3; not allowed on a link of 100 Mbit/s: quirk tso-min-link-mbps = 1000 (declared by driver e1000: bug T); software: the engine segments"},
		"tags by one switch": {func(s *FeatureSources) {
			s.Quirks = resolve(t, QuirkSources{Driver: "e1000", Declarations: []Declaration{VLANOneSwitchQuirk.Is(true, Match{}, "VME")}})
			s.Port.Accepts &^= VLANStrip
		}, VLANInsert, "vlan-insert: software: wanted by default; port netstack takes it; offered by VMXNET3 revision 3; not allowed while vlan-strip is off: quirk vlan-one-switch = true (declared by driver e1000: VME); software: the engine writes the tag into the frame"},
		"tags by one switch, both on": {func(s *FeatureSources) {
			s.Quirks = resolve(t, QuirkSources{Driver: "e1000", Declarations: []Declaration{VLANOneSwitchQuirk.Is(true, Match{}, "VME")}})
		}, VLANInsert, "vlan-insert: on: wanted by default; port netstack takes it; offered by VMXNET3 revision 3"},
		"mode in the name": {func(s *FeatureSources) { s.Info.Mode = "passthrough" }, VLANFilter,
			"vlan-filter: on: wanted by default; port netstack takes it; offered by VMXNET3 revision 3 in mode passthrough"},
	} {
		s := vmxSources(t)
		c.change(&s)
		if got := ResolveFeatures(s).Of(c.feature).String(); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

func TestSlowLinkThatIsDownAllowsTSO(t *testing.T) {
	s := vmxSources(t, TSOMinLinkQuirk.Is(1000, Match{}, "bug T"))
	s.Link = Link{Mbps: 10}
	if !ResolveFeatures(s).Device.Has(TSO4) {
		t.Fatal("a link that is down has no speed")
	}
}

func TestLROOwner(t *testing.T) {
	off := func(s *FeatureSources) { s.Wanted = []FeatureSetting{{LRO, WantOff, "n.hcl:1"}} }
	soft := func(s *FeatureSources) { s.Wanted = []FeatureSetting{{LRO, WantSoftware, "n.hcl:1"}} }
	port := func(s *FeatureSources) { s.Port.Accepts &^= LRO }
	noCsum := func(s *FeatureSources) { s.Wanted = []FeatureSetting{{RxChecksum, WantOff, "n.hcl:1"}} }
	notOffered := func(s *FeatureSources) { s.Info.Features &^= LRO }
	forward := func(s *FeatureSources) { s.Port.Name, s.Port.ExactSegments = "forward", true }
	rev1 := func(s *FeatureSources) { forward(s); s.Info.Revision, s.Info.CoalescedSizeKnown = 1, false }
	none := func(*FeatureSources) {}
	for _, c := range []struct {
		name   string
		quirk  LROOwner
		change func(*FeatureSources)
		want   LROOwner
		reason string // the last one
	}{
		{"hardware-only", LROHardwareOnly, none, LROHardwareOnly, "the device merges"},
		{"hardware-only, off", LROHardwareOnly, off, LRONone, "off: config n.hcl:1"},
		{"hardware-only, in software", LROHardwareOnly, soft, LRONone, "off: only the device may merge, and it does not"},
		{"hardware-only, not offered", LROHardwareOnly, notOffered, LRONone, "off: only the device may merge, and it does not"},
		{"hardware-only, no rx-csum", LROHardwareOnly, noCsum, LRONone, "off: only the device may merge, and it does not"},
		{"hardware-only, forward", LROHardwareOnly, forward, LROHardwareOnly, "the device merges"},
		{"hardware-only, forward, revision 1", LROHardwareOnly, rev1, LRONone, "off: only the device may merge, and it does not"},
		{"software", LROSoftware, none, LROSoftware, "software: the engine merges, the device does not"},
		{"software, off", LROSoftware, off, LRONone, "off: config n.hcl:1"},
		{"software, port", LROSoftware, port, LRONone, "off: port netstack does not take it"},
		{"software, no rx-csum", LROSoftware, noCsum, LROSoftware, "software: the engine merges, the device does not"},
		{"software, forward, revision 1", LROSoftware, rev1, LROSoftware, "software: the engine merges, the device does not"},
		{"hybrid", LROHybrid, none, LROHybrid, "the engine merges what the device left"},
		{"hybrid, in software", LROHybrid, soft, LROSoftware, "software: the engine merges alone"},
		{"hybrid, not offered", LROHybrid, notOffered, LROSoftware, "software: the engine merges alone"},
		{"hybrid, no rx-csum", LROHybrid, noCsum, LROSoftware, "software: the engine merges alone"},
		{"hybrid, forward, revision 1", LROHybrid, rev1, LROSoftware, "software: the engine merges alone"},
		{"hybrid, off", LROHybrid, off, LRONone, "off: config n.hcl:1"},
		{"none", LRONone, none, LRONone, "off: nobody may merge"},
	} {
		s := vmxSources(t, LROOwnerQuirk.Is(c.quirk, Match{}, "R"))
		c.change(&s)
		p := ResolveFeatures(s)
		reasons := p.Of(LRO).Reasons
		if p.LRO != c.want || reasons[len(reasons)-1] != c.reason {
			t.Errorf("%s: %v because %q, want %v because %q", c.name, p.LRO, reasons, c.want, c.reason)
		}
	}
}

func TestHardwareLROReasonIsSaid(t *testing.T) {
	s := vmxSources(t)
	s.Port = PortNeeds{Name: "forward", Accepts: AllFeatures, ExactSegments: true}
	s.Info.CoalescedSizeKnown = false
	got := ResolveFeatures(s).Of(LRO).String()
	if !strings.Contains(got, "it does not tell the size of the segments, and port forward sends packets on") {
		t.Error(got)
	}
}

// What holds whatever the sources are.
func TestFeaturePlanInvariants(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 20000 {
		s, off := randomSources(t, rng)
		p := ResolveFeatures(s)
		quirk, _ := choice[LROOwner](s.Quirks, LROOwnerQuirk.Info())
		for what, bad := range map[string]bool{
			"the device does what it does not offer":     !s.Info.Features.Has(p.Device),
			"the port gets what it does not take":        !s.Port.Accepts.Has(p.Usable),
			"the device does what nobody may use":        !p.Usable.Has(p.Device),
			"something that is off is usable":            p.Usable&off != 0,
			"TSO without checksums":                      p.Usable&(TSO4|TSO6|USO) != 0 && !p.Usable.Has(TxChecksum),
			"TSO in hardware, checksums not":             p.Device&(TSO4|TSO6|USO) != 0 && !p.Device.Has(TxChecksum),
			"software for what has none":                 (p.Usable&^p.Device)&^SoftwareFeatures != 0,
			"the device merges, and is not the owner":    p.Device.Has(LRO) != (p.LRO == LROHardwareOnly || p.LRO == LROHybrid),
			"usable LRO without an owner":                p.Usable.Has(LRO) != (p.LRO != LRONone),
			"software merges under hardware-only":        quirk == LROHardwareOnly && (p.LRO == LROSoftware || p.LRO == LROHybrid),
			"hardware merges under software":             quirk == LROSoftware && p.Device.Has(LRO),
			"somebody merges under none":                 quirk == LRONone && p.LRO != LRONone,
			"hardware merges without rx-csum":            p.Device.Has(LRO) && !p.Device.Has(RxChecksum),
			"a forwarder gets merged packets of no size": p.Device.Has(LRO) && s.Port.ExactSegments && !s.Info.CoalescedSizeKnown,
			"a feature is missing":                       len(p.Status) != numFeatures,
		} {
			if bad {
				t.Fatalf("seed %d: %s: %+v from %+v", seed, what, p, s)
			}
		}
		for _, st := range p.Status {
			if len(st.Reasons) == 0 {
				t.Fatalf("seed %d: %v has no reason", seed, st.Feature)
			}
		}
	}
}

func randomSources(t *testing.T, rng *rand.Rand) (s FeatureSources, off Features) {
	pick := func() Features { return Features(rng.Uint32()|rng.Uint32()) & AllFeatures }
	s = vmxSources(t,
		LROOwnerQuirk.Is(LROOwner(rng.IntN(4)), Match{}, ""),
		ChecksumTrustQuirk.Is(ChecksumTrust(rng.IntN(2)), Match{}, ""),
		TSOMinLinkQuirk.Is(rng.IntN(2)*1000, Match{}, ""))
	s.Info.Features, s.Info.CoalescedSizeKnown = pick(), rng.IntN(2) == 0
	s.Port.Accepts, s.Port.ExactSegments = pick(), rng.IntN(2) == 0
	s.Link = Link{Up: rng.IntN(2) == 0, Mbps: 100}
	some := [3]Features{pick(), pick(), pick()} // few features at once
	off = some[0] & some[1] & some[2]
	s.Wanted = []FeatureSetting{{pick(), FeatureWant(rng.IntN(3)), "a"}, {off, WantOff, "b"}}
	return s, off
}

func TestParseFeature(t *testing.T) {
	for _, n := range FeatureNames() {
		f, ok := ParseFeature(n)
		if !ok || n != "tso" && f.String() != n {
			t.Errorf("%s: %v %v", n, f, ok)
		}
	}
	if f, _ := ParseFeature("tso"); f != TSO4|TSO6 {
		t.Errorf("tso: %v", f)
	}
	if _, ok := ParseFeature("tso5"); ok {
		t.Error("tso5 is a feature")
	}
	if len(FeatureNames()) != numFeatures+1 {
		t.Error("names")
	}
}
