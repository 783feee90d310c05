package framework

import (
	"errors"
	"strings"
	"sync"
	"testing"
)

// Quirks of two imaginary drivers, for tests that need one.
var (
	testDepthQuirk = NewIntQuirk(QuirkInfo{
		Name: "test-depth", Doc: "A number.", Reference: "this test", Min: -2, Max: 9, Driver: "alpha",
	}, 3)
	testOtherQuirk = NewBoolQuirk(QuirkInfo{
		Name: "test-other", Doc: "A switch.", Reference: "this test", Driver: "beta",
	}, true)
)

func TestEveryQuirkIsDocumented(t *testing.T) {
	all := Quirks()
	for _, name := range []string{ // what vmxnet3 and e1000 need at least
		"lro-owner", "metadata-on", "skips-rx-slots", "reorders-rx-slots", "rx-bell", "bell-delay", "tx-interrupt", "contiguous-headers",
		"tso-min-link-mbps", "min-frame", "max-descriptor-bytes", "checksum-trust", "reset-method", "tx-sentinel",
	} {
		if LookupQuirk(name) == nil {
			t.Errorf("no quirk %s", name)
		}
	}
	for i, q := range all {
		if err := q.validate(); err != nil {
			t.Error(err)
		}
		if !strings.HasSuffix(q.Doc, ".") {
			t.Errorf("%s: the doc is not a sentence: %q", q.Name, q.Doc)
		}
		if i > 0 && all[i-1].Name >= q.Name {
			t.Errorf("%s is not in order", q.Name)
		}
		if LookupQuirk(q.Name) != q {
			t.Errorf("%s is not found by name", q.Name)
		}
	}
}

func TestBadRegistrationPanics(t *testing.T) {
	good := QuirkInfo{Name: "test-good", Doc: "D.", Reference: "R", Min: 0, Max: 5}
	with := func(change func(*QuirkInfo)) QuirkInfo { q := good; change(&q); return q }
	before := len(Quirks())
	for name, do := range map[string]func(){
		"twice":        func() { NewIntQuirk(with(func(q *QuirkInfo) { q.Name = "test-depth" }), 0) },
		"name":         func() { NewIntQuirk(with(func(q *QuirkInfo) { q.Name = "Test_Good" }), 0) },
		"empty word":   func() { NewIntQuirk(with(func(q *QuirkInfo) { q.Name = "test--good" }), 0) },
		"no name":      func() { NewIntQuirk(with(func(q *QuirkInfo) { q.Name = "" }), 0) },
		"no doc":       func() { NewBoolQuirk(with(func(q *QuirkInfo) { q.Doc = "" }), true) },
		"no reference": func() { NewBoolQuirk(with(func(q *QuirkInfo) { q.Reference = "" }), true) },
		"no range":     func() { NewIntQuirk(with(func(q *QuirkInfo) { q.Max = 0 }), 0) },
		"default":      func() { NewIntQuirk(good, 6) },
		"one choice":   func() { NewChoiceQuirk[uint8](with(func(q *QuirkInfo) { q.Choices = []string{"a"} }), 0) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			do()
		})
	}
	if len(Quirks()) != before {
		t.Error("a refused quirk is registered")
	}
}

func TestQuirkValues(t *testing.T) {
	for _, c := range []struct {
		quirk, value string
		ok           bool
	}{
		{"lro-owner", "hardware-only", true},
		{"lro-owner", "hardware", false},
		{"lro-owner", "", false},
		{"skips-rx-slots", "true", true},
		{"skips-rx-slots", "1", false},
		{"skips-rx-slots", "TRUE", false},
		{"test-depth", "-2", true},
		{"test-depth", "9", true},
		{"test-depth", "10", false},
		{"test-depth", "-3", false},
		{"test-depth", "+3", false},
		{"test-depth", "03", false},
		{"test-depth", "3.0", false},
		{"test-depth", "99999999999999999999", false},
	} {
		err := LookupQuirk(c.quirk).Check(c.value)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrQuirkValue) {
			t.Errorf("%s = %q: %v", c.quirk, c.value, err)
		}
	}
}

func TestQuirkSet(t *testing.T) {
	s := NewQuirkSet()
	if LROOwnerQuirk.Get(s) != LROSoftware || testDepthQuirk.Get(s) != 3 || !testOtherQuirk.Get(s) {
		t.Fatal("defaults")
	}
	if err := s.SetAll(map[string]string{"lro-owner": "hybrid", "test-depth": "-1", "test-other": "false"}); err != nil {
		t.Fatal(err)
	}
	if LROOwnerQuirk.Get(s) != LROHybrid || testDepthQuirk.Get(s) != -1 || testOtherQuirk.Get(s) {
		t.Fatal("values")
	}
	for _, bad := range []map[string]string{
		{"lro-owner": "none", "test-depth": "77"},
		{"lro-owner": "none", "no-such": "1"},
	} {
		if err := s.SetAll(bad); err == nil {
			t.Fatalf("%v accepted", bad)
		}
		if LROOwnerQuirk.Get(s) != LROHybrid {
			t.Fatalf("%v: a refused change changed something", bad)
		}
	}
	if err := s.Set("no-such", "1"); !errors.Is(err, ErrUnknownQuirk) {
		t.Fatal(err)
	}
}

func TestQuirkSetFollowsChangesConcurrently(t *testing.T) {
	s := NewQuirkSet()
	var wg sync.WaitGroup
	for _, v := range []string{"none", "hybrid"} {
		wg.Go(func() {
			for range 1000 {
				if err := s.Set("lro-owner", v); err != nil {
					t.Error(err)
				}
				if got := LROOwnerQuirk.Get(s); got != LRONone && got != LROHybrid {
					t.Errorf("value %v", got)
				}
			}
		})
	}
	wg.Wait()
}

func TestDeclarationOfAWrongValuePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	testDepthQuirk.Is(10, Match{}, "")
}

func TestMatch(t *testing.T) {
	f := DeviceFacts{Device: 0x10d3, Revision: 3, Mode: "passthrough", Link: Link{Up: true, Mbps: 100}, Subsystem: 0x80860000, Scattered: true}
	for _, c := range []struct {
		m    Match
		want bool
		text string
	}{
		{Match{}, true, "all devices"},
		{Match{Device: 0x10d3}, true, "device 10d3"},
		{Match{Device: 0x100e}, false, "device 100e"},
		{Match{MinRevision: 3}, true, "revision 3 and up"},
		{Match{MinRevision: 4}, false, "revision 4 and up"},
		{Match{MaxRevision: 3}, true, "revision up to 3"},
		{Match{MaxRevision: 2}, false, "revision up to 2"},
		{Match{MinRevision: 1, MaxRevision: 1}, false, "revision 1"},
		{Match{MinRevision: 2, MaxRevision: 4}, true, "revision 2 to 4"},
		{Match{Mode: "passthrough"}, true, "mode passthrough"},
		{Match{Mode: "emulation"}, false, "mode emulation"},
		{Match{LinkBelow: 1000}, true, "link below 1000 Mbit/s"},
		{Match{LinkBelow: 100}, false, "link below 100 Mbit/s"},
		{Match{Subsystem: 0x80860000}, true, "subsystem 8086:0000"},
		{Match{Subsystem: 0x8086a01f}, false, "subsystem 8086:a01f"},
		{Match{Scattered: true}, true, "memory in small pages"},
		{Match{Device: 0x10d3, Mode: "emulation"}, false, "device 10d3, mode emulation"},
	} {
		if got := c.m.Matches(f); got != c.want {
			t.Errorf("%v: %v", c.m, got)
		}
		if got := c.m.String(); got != c.text {
			t.Errorf("%q, want %q", got, c.text)
		}
	}
	f.Link.Up = false
	if (Match{Scattered: true}).Matches(DeviceFacts{}) || (Match{Subsystem: 0x80860000}).Matches(DeviceFacts{}) {
		t.Error("memory in one piece, or a subsystem that is not known, matches")
	}
	if (Match{LinkBelow: 1000}).Matches(f) {
		t.Error("a link that is down has no speed")
	}
}
