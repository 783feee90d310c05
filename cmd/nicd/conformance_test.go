package main_test

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestConformance(t *testing.T) {
	dir := t.TempDir()
	r := nicd(t, dir, "conformance", "e1000", "--quick", "--json", "--check", "attach.,quirk.")
	if r.status != 0 {
		t.Fatalf("status %d: %s", r.status, r.stderr)
	}
	var all struct {
		Reports []struct {
			Model  string
			Passed int
			Checks []struct{ Name, Doc, Status, Reason string }
			Quirks []struct{ Quirk, Declared, Agreement, Seen string }
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Reports) < 2 {
		t.Fatalf("%d models", len(all.Reports))
	}
	for _, m := range all.Reports {
		if m.Model == "" || m.Passed < 10 || len(m.Quirks) < 10 || len(m.Checks) < 15 {
			t.Errorf("model %q: %d checks, %d passed, %d quirks", m.Model, len(m.Checks), m.Passed, len(m.Quirks))
		}
		for _, k := range m.Checks {
			if k.Doc == "" || (k.Status == "not applicable") != (k.Reason != "") {
				t.Errorf("%+v", k)
			}
		}
	}

	r = nicd(t, dir, "conformance", "vmxnet3", "--quick", "--model", "vmxnet3-1", "--check", "lro.")
	if r.status != 0 || !strings.Contains(r.stdout, "lro.length-only") || !strings.Contains(r.stdout, "revision 1 does not tell the size") {
		t.Errorf("status %d: %s%s", r.status, r.stdout, r.stderr)
	}
	r = nicd(t, dir, "conformance", "e1000", "--quick", "--model", "82574L", "--check", "link.", "--excuse", "link.state=it has no lamp")
	if r.status != 0 || !strings.Contains(r.stdout, "it has no lamp") || !strings.Contains(r.stdout, "4 checks passed, 0 failed, 1 not applicable") {
		t.Errorf("status %d: %s%s", r.status, r.stdout, r.stderr)
	}
	r = nicd(t, dir, "conformance", "--list")
	if lines := strings.Count(r.stdout, "\n"); r.status != 0 || lines < 61 {
		t.Errorf("status %d, %d lines", r.status, lines)
	}
}

func TestConformanceMistakes(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args   string
		status int
		says   string
	}{
		{"conformance", 2, "takes a driver"},
		{"conformance e1001", 2, `no driver "e1001"`},
		{"conformance e1000 --bus pigeon", 2, "pigeon"},
		{"conformance e1000 --bus vfio:eth0", 1, "an address is like 0000:03:00.0"},
		{"conformance e1000 --bus vfio:ffff:ff:1f.7", 1, "nicd devices lists those that are there"},
		{"conformance e1000 --bus vfio:0000:00:00.0 --model 82574L", 2, "a real device is what it is"},
		{"conformance e1000 --peer eth9", 2, "--peer eth9: it takes --bus vfio:ADDRESS"},
		{"conformance e1000 --bus vfio:0000:00:00.0 --peer no-such-name", 1, `no interface "no-such-name"`},
		{"conformance e1000 --excuse tso", 2, "CHECK=WHY"},
		{"conformance e1000 --excuse tos=because", 2, `no check or category "tos"`},
		{"conformance e1000 --model 82599", 2, "82574L"},
		{"conformance e1000 --check nothing.", 2, "--list"},
	} {
		r := nicd(t, dir, strings.Fields(c.args)...)
		if r.status != c.status || !strings.Contains(r.stderr, c.says) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s: status %d, %q", c.args, r.status, r.stderr)
		}
	}
}
