package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// seen is the part of a daemon's status that these tests look at.
type seen struct {
	Interfaces []struct {
		Name, State string
		LROOwner    string `json:"lro_owner"`
		MTU         int
		RxPackets   uint64 `json:"rx_packets"`
	}
	Streams []struct {
		Name, State string
		Bytes       uint64
	}
}

func look(t *testing.T, dir string) (s seen) {
	t.Helper()
	if err := json.Unmarshal([]byte(nicd(t, dir, "status", "--json").stdout), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// goesOn waits until both streams have moved more data than before. The
// connections must be the ones they were.
func goesOn(t *testing.T, dir string, before seen) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		now := look(t, dir)
		moved := 0
		for n, s := range now.Streams {
			if s.State != "running" {
				t.Fatalf("stream %+v", s)
			}
			if s.Bytes > before.Streams[n].Bytes+1<<20 {
				moved++
			}
		}
		for n, i := range now.Interfaces {
			if i.RxPackets < before.Interfaces[n].RxPackets {
				t.Fatalf("%s: counters went back from %d to %d", i.Name, before.Interfaces[n].RxPackets, i.RxPackets)
			}
		}
		if moved == len(now.Streams) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("a stream stands still: %+v", now.Streams)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestSet changes a running interface in each of the three ways. What it takes is
// said beforehand, connections live on, the reason is on record.
func TestSet(t *testing.T) {
	dir := t.TempDir()
	stop := start(t, dir)
	for _, test := range []struct {
		set, takes string
		want       []string
		explain    string
		reasons    string
	}{
		{"vmx0 lro=off", "live", []string{"hardware-only", "off: nicd set"}, "vmx0 lro", "lro of vmx0 is off"},
		{"vmx0 lro=on", "live", []string{"off", "hardware-only"}, "vmx0 lro", "wanted: nicd set"},
		{"em0 tso=off", "quiesce", []string{"tso4", "tso6"}, "em0 tso", "tso4: off: nicd set"},
		{"vmx0 lro=software", "live", []string{"lro-owner"}, "vmx0 lro", "quirk lro-owner = software (nicd set)"},
		{"em0 lro=off rx_csum=off", "quiesce", []string{"rx-csum"}, "em0 rx-csum", "off: nicd set"},
		{"vmx0 mtu=9000", "reset", []string{"1500", "9000"}, "", ""},
		{"em0 mtu=9000", "reset", []string{"1500", "9000"}, "", ""},
		{"vmx0 queues=1 promisc=on", "reset", []string{"rx-queues", "tx-queues", "promisc"}, "", ""},
		{"vmx0 queues=3", "reset", []string{"rx-queues"}, "", ""},
		{"vmx0 mtu=1500", "reset", []string{"9000", "1500"}, "", ""},
		{"em0 mtu=1500", "reset", []string{"9000", "1500"}, "", ""},
	} {
		before := look(t, dir)
		args := append([]string{"set"}, strings.Fields(test.set)...)
		plan := nicd(t, dir, append(args, "--dry-run")...)
		done := nicd(t, dir, args...)
		for _, r := range []result{plan, done} {
			if r.status != 0 || !strings.Contains(r.stdout, "all together: "+test.takes) {
				t.Errorf("%s: status %d, want %s:\n%s%s", test.set, r.status, test.takes, r.stdout, r.stderr)
			}
			for _, want := range test.want {
				if !strings.Contains(r.stdout, want) {
					t.Errorf("%s: no %q in:\n%s", test.set, want, r.stdout)
				}
			}
		}
		if strings.Contains(plan.stdout, "done") || !strings.HasSuffix(done.stdout, "done\n") {
			t.Errorf("%s: %q, %q", test.set, plan.stdout, done.stdout)
		}
		if again := nicd(t, dir, append(args, "--dry-run")...); !strings.Contains(again.stdout, "nothing is different") {
			t.Errorf("%s a second time: %s", test.set, again.stdout)
		}
		if test.explain != "" {
			if e := nicd(t, dir, append([]string{"explain"}, strings.Fields(test.explain)...)...); !strings.Contains(e.stdout, test.reasons) {
				t.Errorf("%s: no %q in:\n%s", test.set, test.reasons, e.stdout)
			}
		}
		goesOn(t, dir, before)
	}
	var reply struct {
		Interface, Effect string
		Applied           bool
		Changes           []struct{ What, From, To, Effect, Because string }
	}
	out := nicd(t, dir, "set", "--json", "vmx0", "lro=off").stdout
	if err := json.Unmarshal([]byte(out), &reply); err != nil || !reply.Applied || reply.Interface != "vmx0" || len(reply.Changes) == 0 {
		t.Errorf("--json: %v\n%s", err, out)
	}
	if r := stop(os.Interrupt); r.status != 0 {
		t.Errorf("status %d\n%s%s", r.status, r.stdout, r.stderr)
	}
	leftovers(t, dir)
}

// TestExplainReceive: what was made wrong with a running interface is what it is
// said to suffer from.
func TestExplainReceive(t *testing.T) {
	dir := t.TempDir()
	stop := start(t, dir)
	for _, test := range []struct{ set, want string }{
		{"lro=off", "nobody merges: off: nicd set"},
		{"lro=on rx-budget=1", "as many as the budget of 1 allows"},
		{"rx-budget=64 rx-csum=off", "rx-csum: processors verify what the device could: off: nicd set"},
	} {
		before := look(t, dir)
		if r := nicd(t, dir, append([]string{"set", "em0"}, strings.Fields(test.set)...)...); r.status != 0 {
			t.Fatalf("%s: %s", test.set, r.stderr)
		}
		goesOn(t, dir, before)
		eventually(t, dir, []string{"explain", "em0"}, test.want) // it takes a second with enough packets
	}
	if r := stop(os.Interrupt); r.status != 0 {
		t.Errorf("status %d\n%s", r.status, r.stderr)
	}
}

// eventually asks until the answer has the wanted words.
func eventually(t *testing.T, dir string, args []string, want string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		r := nicd(t, dir, args...)
		if r.status != 0 {
			t.Fatalf("%v: status %d: %s", args, r.status, r.stderr)
		}
		if strings.Contains(r.stdout, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %q in:\n%s", want, r.stdout)
		}
	}
}

// TestSetRefuses: one line that says what is wrong; nothing is changed, not even
// what was right beside it.
func TestSetRefuses(t *testing.T) {
	dir := t.TempDir()
	stop := start(t, dir)
	show := nicd(t, dir, "show", "vmx0").stdout + nicd(t, dir, "show", "em0").stdout
	for _, test := range []struct {
		set    string
		status int
		want   string
	}{
		{"vmx0", 2, "takes an interface and settings"},
		{"vmx0 mtu", 2, `"mtu" is no setting`},
		{"vmx1 mtu=9000", 1, "there are vmx0, em0"},
		{"vmx0 mut=9000", 1, `did you mean "mtu"?`},
		{"vmx0 mtu=9000 mut=1", 1, `did you mean "mtu"?`},
		{"vmx0 lro=off mtu=9001", 1, "takes 60 to 9000"},
		{"vmx0 lro=off queues=5", 1, "has buffers for 4"},
		{"em0 queues=3", 1, "rx_queues: the 82574L has 2, not 3"},
		{"em0 lro=off rx-descriptors=33", 1, "takes 64"},
		{"em0 lro=hardware", 1, "not offered by 82574L"},
		{"vmx0 rx-csum=off lro=hardware", 1, "needs rx-csum"},
		{"vmx0 lro=sideways", 1, "on, off, software, hardware or hybrid"},
		{"vmx0 lro=off metadata-on=first", 1, "unsafe = true"},
		{"vmx0 lro-owner=hybrit", 1, "hybrid"},
	} {
		r := nicd(t, dir, append([]string{"set"}, strings.Fields(test.set)...)...)
		if r.status != test.status || !strings.Contains(r.stderr, test.want) || strings.Count(r.stderr, "\n") != 1 || r.stdout != "" {
			t.Errorf("%s: status %d, %q %q, want %q", test.set, r.status, r.stdout, r.stderr, test.want)
		}
	}
	now := nicd(t, dir, "show", "vmx0").stdout + nicd(t, dir, "show", "em0").stdout
	if now != show {
		t.Errorf("something was changed:\n%s\nwas\n%s", now, show)
	}
	stop(os.Interrupt)
	leftovers(t, dir)
}

// TestReload changes the config under a running nicd: by command and by signal,
// all of it or nothing.
func TestReload(t *testing.T) {
	dir := t.TempDir()
	file := defaultConfig(t, dir)
	rewrite := func(replace ...string) { defaultConfig(t, dir, replace...) }
	stop := start(t, dir, "-c", file)

	if r := nicd(t, dir, "reload"); r.status != 0 || !strings.Contains(r.stdout, "nothing is different") {
		t.Errorf("no change: %+v", r)
	}

	rewrite(`driver     = "vmxnet3"`, "driver = \"vmxnet3\"\n  mtu = 9000", "lro = true", "lro = false",
		`model = "82574L"`, `model = "82540EM"`, `flow_control = true`, `flow_control = false`)
	r := nicd(t, dir, "reload")
	for _, want := range []string{"nothing was changed", "wire w0", "interface em0"} {
		if r.status != 1 || !strings.Contains(r.stderr, want) {
			t.Errorf("what takes a start: no %q in %+v", want, r)
		}
	}
	rewrite(`lro = true`, `lro = true`+"\n    loose = true")
	if r := nicd(t, dir, "reload"); r.status != 1 || !strings.Contains(r.stderr, "loose") {
		t.Errorf("a mistake: %+v", r)
	}
	rewrite(`driver     = "vmxnet3"`, "driver = \"vmxnet3\"\n  mtu = 9000", `driver = "e1000"`, "driver = \"e1000\"\n  mtu = 60000")
	if r := nicd(t, dir, "reload"); r.status != 1 || !strings.Contains(r.stderr, "mtu 60000") {
		t.Errorf("more than a device can: %+v", r)
	}
	if s := look(t, dir); s.Interfaces[0].MTU != 1500 || s.Interfaces[0].LROOwner != "hardware-only" {
		t.Errorf("refused, and changed something: %+v", s.Interfaces)
	}

	rewrite(`driver     = "vmxnet3"`, "driver = \"vmxnet3\"\n  mtu = 9000", `driver = "e1000"`, "driver = \"e1000\"\n  mtu = 9000", "lro = true", "lro = false")
	before := look(t, dir)
	if r := nicd(t, dir, "reload", "--dry-run"); r.status != 0 || !strings.Contains(r.stdout, "9000") || look(t, dir).Interfaces[0].MTU != 1500 {
		t.Errorf("dry run: %+v", r)
	}
	if r := nicd(t, dir, "reload"); r.status != 0 || !strings.Contains(r.stdout, "reset") {
		t.Errorf("reload: %+v", r)
	}
	if s := look(t, dir); s.Interfaces[0].MTU != 9000 || s.Interfaces[1].MTU != 9000 || s.Interfaces[0].LROOwner != "none" {
		t.Errorf("reloaded: %+v", s.Interfaces)
	}
	if e := nicd(t, dir, "explain", "vmx0", "lro").stdout; !strings.Contains(e, filepath.Base(file)+":") {
		t.Errorf("the config is not the reason:\n%s", e)
	}
	goesOn(t, dir, before)

	rewrite("driver \"e1000\" {", "driver \"e1000\" {\n  quirks {\n    lro-owner = \"none\"\n  }")
	hangup(t, dir)
	deadline := time.Now().Add(10 * time.Second)
	for s := look(t, dir); s.Interfaces[0].MTU != 1500 || s.Interfaces[1].LROOwner != "none"; s = look(t, dir) {
		if time.Now().After(deadline) {
			t.Fatalf("SIGHUP did nothing: %+v", s.Interfaces)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if r := stop(os.Interrupt); r.status != 0 {
		t.Errorf("status %d\n%s%s", r.status, r.stdout, r.stderr)
	}
	leftovers(t, dir)
}

func hangup(t *testing.T, dir string) {
	t.Helper()
	var s struct{ PID int }
	if err := json.Unmarshal([]byte(nicd(t, dir, "status", "--json").stdout), &s); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(s.PID, syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

// A SIGHUP that comes while nicd starts is followed when it has started.
func TestEarlyHangUp(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := command(ctx, dir, "run", "--for", "1s", "-c", defaultConfig(t, dir))
	logs, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for ctx.Err() == nil { // the socket comes first, and what takes time after it
		if _, err := os.Stat(filepath.Join(dir, "run", "s")); err == nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for lines := bufio.NewScanner(logs); lines.Scan(); {
		text.WriteString(lines.Text() + "\n")
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(text.String(), "config reloaded") {
		t.Errorf("%v\n%s", err, &text)
	}
	leftovers(t, dir)
}
