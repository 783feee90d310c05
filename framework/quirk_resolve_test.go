package framework

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// alphaSources are the sources of a driver that declares its LRO owner twice.
func alphaSources() QuirkSources {
	return QuirkSources{
		Driver: "alpha",
		Declarations: []Declaration{
			LROOwnerQuirk.Is(LROSoftware, Match{Mode: "passthrough"}, "thread P"),
			LROOwnerQuirk.Is(LROHardwareOnly, Match{}, "thread A"),
			TSOMinLinkQuirk.Is(1000, Match{Device: 0x10d3, LinkBelow: 1000}, "bug T"),
		},
		Facts: DeviceFacts{Device: 0x10d3, Mode: "emulation"},
	}
}

func resolve(t *testing.T, s QuirkSources) *Resolution {
	t.Helper()
	r, err := ResolveQuirks(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestPrecedence(t *testing.T) {
	s := alphaSources()
	expect := func(value string, level Level, because string) {
		t.Helper()
		v, ok := resolve(t, s).Lookup("lro-owner")
		if !ok || v.Value != value || v.Level != level || v.Because != because {
			t.Fatalf("got %+v, want %s from %s: %s", v, value, level, because)
		}
	}
	declarations := s.Declarations
	s.Declarations = nil
	expect("software", FromDefault, "default")
	s.Declarations = declarations
	expect("hardware-only", FromDriver, "declared by driver alpha: thread A")
	s.Facts.Mode = "passthrough"
	expect("software", FromMatch, "declared by driver alpha for mode passthrough: thread P")
	s.Declarations = append(s.Declarations, LROOwnerQuirk.Is(LROHybrid, Match{Mode: "passthrough"}, ""))
	expect("hybrid", FromMatch, "declared by driver alpha for mode passthrough")
	s.DriverConfig = []QuirkSetting{{"lro-owner", "none", `nicd.hcl:4: driver alpha`}}
	expect("none", FromDriverConfig, "config nicd.hcl:4: driver alpha")
	s.InterfaceConfig = []QuirkSetting{{"lro-owner", "hybrid", `nicd.hcl:12: interface vmx0`}}
	expect("hybrid", FromInterfaceConfig, "config nicd.hcl:12: interface vmx0")

	v, _ := resolve(t, s).Lookup("lro-owner")
	want := []string{
		"none: config nicd.hcl:4: driver alpha",
		"hybrid: declared by driver alpha for mode passthrough",
		"software: declared by driver alpha for mode passthrough: thread P",
		"hardware-only: declared by driver alpha: thread A",
	}
	if !slices.Equal(v.Overrode, want) {
		t.Fatalf("overrode\n%s", strings.Join(v.Overrode, "\n"))
	}
}

func TestResolutionFollowsTheLink(t *testing.T) {
	s := alphaSources()
	down := resolve(t, s)
	s.Facts.Link = Link{Up: true, Mbps: 100}
	slow := resolve(t, s)
	if got := slow.Changed(down); !slices.Equal(got, []string{"tso-min-link-mbps"}) {
		t.Fatalf("changed: %v", got)
	}
	s.Facts.Link.Mbps = 1000
	if got := resolve(t, s).Changed(down); got != nil {
		t.Fatalf("changed: %v", got)
	}
}

func TestResolutionAppliesToASet(t *testing.T) {
	s := alphaSources()
	s.InterfaceConfig = []QuirkSetting{{"test-depth", "7", "x.hcl:1"}}
	r := resolve(t, s)
	set := NewQuirkSet()
	if err := r.Apply(set); err != nil {
		t.Fatal(err)
	}
	if LROOwnerQuirk.Get(set) != LROHardwareOnly || testDepthQuirk.Get(set) != 7 {
		t.Fatal("not applied")
	}
	m := r.Map()
	if m["test-depth"] != "7" || m["lro-owner"] != "hardware-only" || len(m) != len(r.All()) {
		t.Fatalf("map %v", m)
	}
	if _, ok := m["test-other"]; ok {
		t.Fatal("another driver's quirk is in the map")
	}
}

func TestResolveQuirksErrors(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*QuirkSources)
		is     error
		says   string
	}{
		"unknown in config": {func(s *QuirkSources) {
			s.DriverConfig = []QuirkSetting{{"no-such", "1", "n.hcl:3: driver alpha"}}
		}, ErrUnknownQuirk, "n.hcl:3: driver alpha"},
		"value in config": {func(s *QuirkSources) {
			s.InterfaceConfig = []QuirkSetting{{"lro-owner", "me", "n.hcl:5: interface v"}}
		}, ErrQuirkValue, "n.hcl:5: interface v"},
		"foreign": {func(s *QuirkSources) {
			s.InterfaceConfig = []QuirkSetting{{"test-other", "true", "n.hcl:5: interface v"}}
		}, ErrForeignQuirk, "for driver beta, not alpha"},
		"unknown in a driver": {func(s *QuirkSources) {
			s.Declarations = []Declaration{{Quirk: "no-such", Value: "1"}}
		}, ErrUnknownQuirk, "driver alpha"},
		"value in a driver": {func(s *QuirkSources) {
			s.Declarations = []Declaration{{Quirk: "rx-bell", Value: "1", When: Match{Device: 0x10d3}}}
		}, ErrQuirkValue, "driver alpha"},
		"bad definition": {func(s *QuirkSources) {
			s.Defines = []QuirkInfo{{Name: "gamma-x", Type: "bool", Default: "true", Driver: "alpha", Doc: "D."}}
		}, nil, "no reference"},
	} {
		s := alphaSources()
		c.change(&s)
		_, err := ResolveQuirks(s)
		if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A plugin's driver may define quirks that this program has not got.
func TestResolveQuirksOfAPluginsOwn(t *testing.T) {
	s := QuirkSources{
		Driver: "gamma",
		Defines: []QuirkInfo{{
			Name: "gamma-errata", Type: "bool", Default: "false", Driver: "gamma", Doc: "D.", Reference: "R",
		}},
		Declarations: []Declaration{{Quirk: "gamma-errata", Value: "true"}},
	}
	r := resolve(t, s)
	if v, _ := r.Lookup("gamma-errata"); v.Value != "true" || v.Level != FromDriver {
		t.Fatalf("%+v", v)
	}
	if r.Map()["gamma-errata"] != "true" {
		t.Fatal("not in the map for the plugin")
	}
	if err := r.Apply(NewQuirkSet()); err != nil {
		t.Fatal(err)
	}
	has := func(all []QuirkInfo, name string) bool {
		return slices.ContainsFunc(all, func(q QuirkInfo) bool { return q.Name == name })
	}
	if known := QuirksOf("alpha"); !has(known, "test-depth") || !has(known, "lro-owner") {
		t.Errorf("alpha knows %v", known)
	}
	if known := QuirksOf("beta"); has(known, "test-depth") || !has(known, "lro-owner") {
		t.Errorf("beta knows %v", known)
	}
}

// What is unsafe takes the operator's word for it; a driver may declare it.
func TestUnsafeQuirks(t *testing.T) {
	s := alphaSources()
	s.Declarations = []Declaration{MetadataOnQuirk.Is(FirstCompletion, Match{}, "R")}
	if v, _ := resolve(t, s).Lookup("metadata-on"); v.Value != "first" {
		t.Errorf("declared by the driver: %+v", v)
	}
	s.InterfaceConfig = []QuirkSetting{{"metadata-on", "last", "n.hcl:5: interface v"}}
	if _, err := ResolveQuirks(s); !errors.Is(err, ErrUnsafeQuirk) || !strings.Contains(err.Error(), "n.hcl:5: interface v") || !strings.Contains(err.Error(), "unsafe = true") {
		t.Errorf("set by an operator: %v", err)
	}
	s.Unsafe = true
	if v, _ := resolve(t, s).Lookup("metadata-on"); v.Value != "last" {
		t.Errorf("set by an operator who accepts it: %+v", v)
	}
}

// A setting that no file made speaks for itself.
func TestOriginsOfSettings(t *testing.T) {
	s := alphaSources()
	s.InterfaceConfig = []QuirkSetting{{"lro-owner", "none", "nicd set"}}
	if v, _ := resolve(t, s).Lookup("lro-owner"); v.Because != "nicd set" || v.Level != FromInterfaceConfig {
		t.Errorf("%+v", v)
	}
	f := vmxSources(t)
	f.Wanted = []FeatureSetting{{LRO, WantOff, "nicd set"}}
	if got := ResolveFeatures(f).Of(LRO).String(); got != "lro: off: off: nicd set" {
		t.Error(got)
	}
}
