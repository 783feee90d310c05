package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMatrix runs a row and what it is compared with, by their plugins, and writes
// every kind of report.
func TestMatrix(t *testing.T) {
	dir := t.TempDir()
	if r := nicd(t, dir, "matrix", "--list"); r.status != 0 || !strings.Contains(r.stdout, "r2-hybrid") || !strings.Contains(r.stdout, "negative controls") {
		t.Errorf("--list: status %d\n%s%s", r.status, r.stdout, r.stderr)
	}
	r := nicd(t, dir, "matrix", "--rows", "r2-hardware,starved-refused", "--time", "400ms", "--json", "m.json", "--svg", "m.svg", "--html", "m.html")
	if r.status != 0 {
		t.Fatalf("status %d\n%s%s", r.status, r.stdout, r.stderr)
	}
	for _, want := range []string{"r2-none", "r2-hardware-only", "starved-refused", "refused"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("no %q in\n%s", want, r.stdout)
		}
	}
	var report struct {
		OK   bool `json:"ok"`
		Rows []struct {
			ID    string
			Ratio float64 `json:"ratio_to_base"`
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, "m.json"))
	if err != nil || json.Unmarshal(data, &report) != nil || !report.OK || len(report.Rows) != 4 || report.Rows[1].Ratio <= 1 {
		t.Errorf("JSON: %v\n%s", err, data)
	}
	for name, begins := range map[string]string{"m.svg": "<svg", "m.html": "<!doctype html>"} {
		if data, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.HasPrefix(string(data), begins) {
			t.Errorf("%s: %v", name, err)
		}
	}
	leftovers(t, dir)
}

func TestSoakCommand(t *testing.T) {
	dir := t.TempDir()
	// A machine that runs other tests at the same time makes long pauses.
	r := nicd(t, dir, "soak", "--for", "3s", "--seed", "7", "--every", "150ms", "--stall", "8s")
	if r.status != 0 || !strings.Contains(r.stdout, "seed 7") || !strings.Contains(r.stdout, "no stall, no connection lost, all counters add up, no leak") {
		t.Errorf("status %d\n%s%s", r.status, r.stdout, r.stderr)
	}
	// Nothing can move anything in a microsecond: a soak that fails says so.
	r = nicd(t, dir, "soak", "--for", "2s", "--seed", "7", "--stall", "1us")
	if r.status != 1 || !strings.Contains(r.stdout, "PROBLEM") || !strings.Contains(r.stderr, "soak failed with seed 7: stream") {
		t.Errorf("with a stall: status %d\n%s%s", r.status, r.stdout, r.stderr)
	}
	leftovers(t, dir)
}

func TestMeasuringMistakes(t *testing.T) {
	dir := t.TempDir()
	for args, want := range map[string]string{
		"matrix --rows nothing": `no row begins with nothing`,
		"matrix --time 0s":      "--time takes a time",
		"matrix --rounds 0":     "--rounds a number",
		"run --for 0s":          "takes a time above zero",
		"soak --for -1s":        "take a time above zero",
		"soak --stall 0s":       "take a time above zero",
	} {
		if r := nicd(t, dir, strings.Fields(args)...); r.status != 2 || !strings.Contains(r.stderr, want) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%s: status %d, %q", args, r.status, r.stderr)
		}
	}
	// What can't be written is said before anything is measured.
	good, bad := filepath.Join(dir, "m.json"), filepath.Join(dir, "none", "m.svg")
	r := nicd(t, dir, "matrix", "--rows", "r1-none", "--time", "1h", "--json", good, "--svg", bad)
	if r.status != 1 || !strings.Contains(r.stderr, bad) || strings.Count(r.stderr, "\n") != 1 || r.stdout != "" {
		t.Errorf("a file in a folder that is not there: %+v", r)
	}
	if _, err := os.Stat(good); err == nil {
		t.Error("an empty file stays")
	}
}
