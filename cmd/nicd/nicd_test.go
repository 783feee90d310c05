package main_test

// These tests run the binary as its users do.

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"nicd/internal/testns"
)

var binaries string // directory with nicd and the plugins

func TestMain(m *testing.M) {
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "nicd-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", dir, "nicd/cmd/...")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%s%v\n", out, err)
		return 1
	}
	binaries = dir
	return m.Run()
}

// result is what a command did.
type result struct {
	stdout, stderr string
	status         int
}

// nicd runs a command to its end. Sockets are in the test's own directory.
func nicd(t testing.TB, dir string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := command(ctx, dir, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("nicd %v: %v", args, err)
	}
	return result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

func command(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(binaries, "nicd"), args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "NICD_SOCKET="+filepath.Join(dir, "run", "s"), "TMPDIR="+filepath.Join(dir, "tmp"))
	_ = os.Mkdir(filepath.Join(dir, "tmp"), 0o700)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// leftovers are the files below dir that a daemon should have removed, and the
// processes that are still there.
func leftovers(t *testing.T, dir string) {
	t.Helper()
	for _, sub := range []string{"tmp", "run"} {
		entries, err := os.ReadDir(filepath.Join(dir, sub))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for _, e := range entries {
			t.Errorf("%s/%s was left behind", sub, e.Name())
		}
	}
	comms, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, c := range comms {
		if b, err := os.ReadFile(c); err == nil && bytes.Contains(b, []byte(dir)) && !strings.Contains(c, fmt.Sprint("/", os.Getpid(), "/")) {
			t.Errorf("a process was left behind: %s", c)
		}
	}
}

// report is the part of the JSON report that these tests look at.
type report struct {
	OK         bool     `json:"ok"`
	Problems   []string `json:"problems"`
	Interfaces []struct {
		Interface struct {
			Name     string `json:"name"`
			LROOwner string `json:"lro_owner"`
			Mode     string `json:"mode"`
			PID      int    `json:"pid"`
		} `json:"interface"`
		RxGbps               float64 `json:"rx_gbps"`
		SegmentsPerDelivered float64 `json:"segments_per_delivered"`
		Violation            string  `json:"violation"`
	} `json:"interfaces"`
	Streams []struct {
		Stream struct {
			Name  string `json:"name"`
			State string `json:"state"`
		} `json:"stream"`
		Gbps float64 `json:"gbps"`
	} `json:"streams"`
	CPUSecondsPerGigabyte float64 `json:"cpu_seconds_per_gigabyte"`
	PeakResidentBytes     uint64  `json:"peak_resident_bytes"`
}

func runReport(t *testing.T, dir string, args ...string) report {
	t.Helper()
	r := nicd(t, dir, append([]string{"run", "--json", "--for", "2s"}, args...)...)
	var got report
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil {
		t.Fatalf("stdout is not one JSON report: %v\n%s\n%s", err, r.stdout, r.stderr)
	}
	if r.status != 0 || !got.OK {
		t.Fatalf("status %d: %v\n%s", r.status, got.Problems, r.stderr)
	}
	return got
}

// TestQuickstart is the README's first command: two devices, two plugins, a TCP
// stream each way, all counters adding up, nothing left behind.
func TestQuickstart(t *testing.T) {
	dir := t.TempDir()
	got := runReport(t, dir)
	if len(got.Interfaces) != 2 || len(got.Streams) != 2 {
		t.Fatalf("%+v", got)
	}
	for _, s := range got.Streams {
		if s.Gbps <= 0 {
			t.Errorf("stream %s moved no data", s.Stream.Name)
		}
	}
	pids := map[int]bool{}
	for _, i := range got.Interfaces {
		pids[i.Interface.PID] = true
		if i.Interface.Mode != "plugin" || i.Violation != "" {
			t.Errorf("%+v", i)
		}
	}
	if len(pids) != 2 {
		t.Errorf("the drivers are not in processes of their own: %v", pids)
	}
	if vmx := got.Interfaces[0]; vmx.Interface.LROOwner != "hardware-only" || vmx.SegmentsPerDelivered < 2 {
		t.Errorf("the vmxnet3 does not coalesce: %+v", vmx)
	}
	if got.PeakResidentBytes > 400e6 {
		t.Errorf("%d bytes resident", got.PeakResidentBytes)
	}
	leftovers(t, dir)
}

// TestInProcess runs the same drivers inside nicd, and from a config file.
func TestInProcess(t *testing.T) {
	dir := t.TempDir()
	file := defaultConfig(t, dir, `mode = "plugin"`, `mode = "in-process"`)
	for _, i := range runReport(t, dir, "-c", file).Interfaces {
		if i.Interface.Mode != "in-process" {
			t.Errorf("%+v", i)
		}
	}
	leftovers(t, dir)
}

// TestPluginFiles runs the drivers from their own binaries, one found in the
// plugin directory, the other by a path with its checksum.
func TestPluginFiles(t *testing.T) {
	dir := t.TempDir()
	vmx := filepath.Join(binaries, "nicd-driver-vmxnet3")
	file := defaultConfig(t, dir,
		"daemon {", "daemon {\n  plugin_dir = \""+binaries+"\"",
		"driver \"vmxnet3\" {", fmt.Sprintf("driver \"vmxnet3\" {\n  path = %q\n  sha256 = %q", vmx, sum(t, vmx)))
	runReport(t, dir, "-c", file)
	leftovers(t, dir)
}

func sum(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// defaultConfig writes the embedded config, with replacements, to a file.
func defaultConfig(t testing.TB, dir string, replace ...string) string {
	t.Helper()
	text := nicd(t, dir, "config", "show").stdout
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(text, replace[i]) {
			t.Fatalf("the embedded config has no %q", replace[i])
		}
	}
	file := filepath.Join(dir, "nicd.hcl")
	if err := os.WriteFile(file, []byte(strings.NewReplacer(replace...).Replace(text)), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestPluginQuits: a plugin that ends while it attaches is one line, with its last
// words.
func TestPluginQuits(t *testing.T) {
	dir := t.TempDir()
	quits := filepath.Join(dir, "quits")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", quits, "./testdata/quits").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	refuses(t, dir, defaultConfig(t, dir, "driver \"vmxnet3\" {", fmt.Sprintf("driver \"vmxnet3\" {\n  path = %q", quits)),
		"interface vmx0", quits, "exit status 7", "assertion failed: ring != NULL")
}

// TestPortInUse: the Linux interface of a port is there already, and another's.
func TestPortInUse(t *testing.T) {
	testns.NeedTAP(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "nicd.hcl")
	if err := os.WriteFile(file, []byte(`
wire "w0" {}
interface "vmx0" {
  driver = "vmxnet3"
  device "sim" {
    model = "vmxnet3"
    wire  = "w0"
  }
  port "tap" { name = "lo" }
}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	refuses(t, dir, file, "nicd.hcl:", "port of interface vmx0", "the name lo is in use", "choose another")
}

// refuses checks that nicd does not run a config, says so in one line with these
// words, and leaves nothing behind.
func refuses(t *testing.T, dir, file string, words ...string) {
	t.Helper()
	r := nicd(t, dir, "run", "--for", "1s", "-c", file)
	if lines := errorLines(r.stderr); r.status != 1 || len(lines) != 1 {
		t.Errorf("status %d:\n%s", r.status, r.stderr)
	}
	for _, w := range words {
		if !strings.Contains(strings.Join(errorLines(r.stderr), ""), w) {
			t.Errorf("no %q in %q", w, r.stderr)
		}
	}
	leftovers(t, dir)
}

// underWay tells whether a daemon answers and all its streams have moved so much
// that they will be found to have moved something when it is stopped.
func underWay(t *testing.T, dir string) bool {
	t.Helper()
	r := nicd(t, dir, "status", "--json")
	if r.status != 0 {
		return false
	}
	var s struct{ Streams []struct{ Bytes uint64 } }
	if err := json.Unmarshal([]byte(r.stdout), &s); err != nil {
		t.Fatal(err)
	}
	for _, stream := range s.Streams {
		if stream.Bytes < 10e6 {
			return false
		}
	}
	return true
}

// start runs a daemon in the background until the test ends it. It returns when
// the daemon is under way.
func start(t *testing.T, dir string, args ...string) (stop func(os.Signal) result) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	cmd := command(ctx, dir, append([]string{"run", "--json"}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	for !underWay(t, dir) {
		select {
		case <-ended:
			t.Fatalf("nicd ended: %s%s", out.String(), errs.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return func(s os.Signal) result {
		t.Helper()
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		<-ended
		return result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
	}
}

// TestClient asks a running daemon everything, as text and as JSON, and ends it
// with Ctrl-C.
func TestClient(t *testing.T) {
	dir := t.TempDir()
	stop := start(t, dir)
	if st, err := os.Stat(filepath.Join(dir, "run", "s")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("admin socket: %v %v", st.Mode(), err)
	}
	for _, test := range []struct {
		args string
		want []string
	}{
		{"status", []string{"vmx0", "em0", "running", "10.0.0.1/24", "vmx0-em0"}},
		{"show vmx0", []string{"VMXNET3", "revision 3", "MSI-X, 5 vectors", "at most 64 packets a poll", "lro", "hardware-only", "lro-owner", "rx 3"}},
		{"show em0", []string{"82574L", "software", "lro-owner"}},
		{"explain vmx0 lro", []string{"lro of vmx0 is on", "1."}},
		{"explain em0 lro", []string{"lro of em0 is software"}},
		{"explain em0", []string{"em0 in ", "Gbit/s received", "segments a packet"}},
		{"stats vmx0", []string{"rx_packets", "tx_packets", "interrupts"}},
		{"stats --all em0", []string{"rx_drop_crc", "tx_watchdog_kicks"}},
		{"driver list", []string{"vmxnet3", "e1000", "15ad:07b0", "8086:10d3", "bundled"}},
		{"quirks", []string{"lro-owner", "freebsd-net"}},
		{"quirks vmxnet3", []string{"lro-owner"}},
		{"version", []string{"nicd ", "plugin protocol 1"}},
	} {
		t.Run(test.args, func(t *testing.T) {
			args := strings.Fields(test.args)
			r := nicd(t, dir, args...)
			for _, want := range test.want {
				if !strings.Contains(r.stdout, want) {
					t.Errorf("no %q in:\n%s%s", want, r.stdout, r.stderr)
				}
			}
			if r.status != 0 || r.stderr != "" {
				t.Errorf("status %d, stderr %q", r.status, r.stderr)
			}
			if j := nicd(t, dir, append(args, "--json")...); j.status != 0 || !json.Valid([]byte(j.stdout)) {
				t.Errorf("--json: status %d, %s%s", j.status, j.stdout, j.stderr)
			}
		})
	}
	t.Run("completion", func(t *testing.T) { completion(t, dir) })
	t.Run("load and unload", func(t *testing.T) { loadAndUnload(t, dir) })
	r := stop(os.Interrupt)
	if r.status != 0 {
		t.Errorf("after Ctrl-C: status %d\n%s%s", r.status, r.stdout, r.stderr)
	}
	leftovers(t, dir)
}

// completion asks as a shell's completion script does.
func completion(t *testing.T, dir string) {
	for args, want := range map[string][]string{
		"show": {"vmx0", "em0"}, "explain em0": {"lro", "rss"}, "set vmx0": {"mtu=", "lro-owner="}, "set vmx0 mtu=9000": {"lro="},
		"driver unload": {"e1000"}, "conformance": {"vmxnet3"}, "": {"status", "completion"},
	} {
		r := nicd(t, dir, append(append([]string{"__complete"}, strings.Fields(args)...), "")...)
		for _, w := range want {
			if r.status != 0 || !slices.ContainsFunc(strings.Split(r.stdout, "\n"), func(l string) bool { return l == w || strings.HasPrefix(l, w+"\t") }) {
				t.Errorf("%q is completed by %q, status %d, without %s", args, r.stdout, r.status, w)
			}
		}
	}
}

func loadAndUnload(t *testing.T, dir string) {
	e1000 := filepath.Join(binaries, "nicd-driver-e1000")
	r := nicd(t, dir, "driver", "unload", "e1000")
	if r.status != 1 || !strings.Contains(r.stderr, "in use by em0") {
		t.Errorf("unload of a driver in use: status %d, %q", r.status, r.stderr)
	}
	r = nicd(t, dir, "driver", "load", e1000)
	if r.status != 1 || !strings.Contains(r.stderr, "in use by em0") {
		t.Errorf("load over a driver in use: status %d, %q", r.status, r.stderr)
	}
	r = nicd(t, dir, "driver", "load", "--sha256", strings.Repeat("0", 64), e1000)
	if r.status != 1 || !strings.Contains(r.stderr, "sha256") {
		t.Errorf("load with a wrong checksum: status %d, %q", r.status, r.stderr)
	}
	r = nicd(t, dir, "driver", "load", filepath.Join(dir, "absent"))
	if r.status != 1 || !strings.Contains(r.stderr, "no such plugin") {
		t.Errorf("load of nothing: status %d, %q", r.status, r.stderr)
	}
}

// TestLoad loads a plugin into a daemon that does not use its driver yet.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "nicd.hcl")
	if err := os.WriteFile(file, []byte(`
wire "w0" {}
interface "vmx0" {
  driver = "vmxnet3"
  device "sim" {
    model = "vmxnet3"
    wire  = "w0"
  }
  port "sink" {}
}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	stop := start(t, dir, "-c", file)
	e1000 := filepath.Join(binaries, "nicd-driver-e1000")
	r := nicd(t, dir, "driver", "load", e1000, "--sha256", sum(t, e1000))
	for _, want := range []string{"driver e1000", e1000, "sha256", "8086:10d3", "none here"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("no %q in %q %q", want, r.stdout, r.stderr)
		}
	}
	if r = nicd(t, dir, "driver", "list"); !strings.Contains(r.stdout, e1000) {
		t.Errorf("the loaded driver is not in the list:\n%s", r.stdout)
	}
	if r = nicd(t, dir, "driver", "unload", "e1000"); r.status != 0 {
		t.Errorf("unload: %q", r.stderr)
	}
	if r = nicd(t, dir, "driver", "list"); strings.Contains(r.stdout, "e1000") {
		t.Errorf("the unloaded driver is in the list:\n%s", r.stdout)
	}
	stop(syscall.SIGTERM)
	leftovers(t, dir)
}

// TestPluginDies: nicd and the other interface go on, and it is said which
// driver died and how.
func TestPluginDies(t *testing.T) {
	dir := t.TempDir()
	stop := start(t, dir)
	var show struct {
		Interfaces []struct {
			Name, State string
			Reason      string `json:"state_reason"`
			PID         int
		}
	}
	status := func() {
		t.Helper()
		if err := json.Unmarshal([]byte(nicd(t, dir, "status", "--json").stdout), &show); err != nil {
			t.Fatal(err)
		}
	}
	status()
	victim := show.Interfaces[1]
	if err := syscall.Kill(victim.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for status(); show.Interfaces[1].State != "failed"; status() {
		if time.Now().After(deadline) {
			t.Fatalf("the death was not noticed: %+v", show)
		}
	}
	if !strings.Contains(show.Interfaces[1].Reason, fmt.Sprint(victim.PID)) || show.Interfaces[0].State != "running" {
		t.Errorf("%+v", show.Interfaces)
	}
	r := stop(os.Interrupt)
	if r.status != 1 || !strings.Contains(r.stdout, "interface em0: failed") {
		t.Errorf("a run whose driver died: status %d\n%s", r.status, r.stdout)
	}
	leftovers(t, dir)
}

// TestBadInput: one line that says what, where and what to do; status 1, or 2 for
// the command line; nothing left behind.
func TestBadInput(t *testing.T) {
	dir := t.TempDir()
	script := func(name, body string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(body), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	vmxAt := func(path string, more string) []string {
		return []string{"driver \"vmxnet3\" {", fmt.Sprintf("driver \"vmxnet3\" {\n  path = %q\n%s", path, more)}
	}
	vmx := filepath.Join(binaries, "nicd-driver-vmxnet3")
	taken := filepath.Join(dir, "taken")
	if err := os.WriteFile(taken, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name    string
		replace []string // in the embedded config; nil to run args as they are
		args    []string
		status  int
		want    []string
	}{
		{name: "unknown command", args: []string{"rum"}, status: 2, want: []string{`"rum"`, `did you mean "run"`}},
		{name: "unknown flag", args: []string{"run", "--fro", "1s"}, status: 2, want: []string{"--fro", "--help"}},
		{name: "bad duration", args: []string{"run", "--for", "soon"}, status: 2, want: []string{"soon"}},
		{name: "unknown subcommand", args: []string{"driver", "lost"}, status: 2, want: []string{`nicd driver has no command "lost"`, `did you mean "list"`}},
		{name: "help for no subcommand", args: []string{"help", "config", "chek"}, status: 2, want: []string{`"chek"`, `did you mean "check"`}},
		{name: "setting without a name", args: []string{"set", "em0", "=9000"}, status: 2, want: []string{`"=9000"`, "NAME=VALUE"}},
		{name: "no such model", args: []string{"device", "serve", "vmxnet4", "--socket", "x"}, status: 2, want: []string{`"vmxnet4"`, "vmxnet3"}},
		{name: "model without a socket", args: []string{"device", "serve", "vmxnet3"}, status: 2, want: []string{"no socket"}},
		{name: "no such bundled driver", args: []string{"conformance", "e100"}, status: 2, want: []string{`"e100"`, "e1000"}},
		{name: "quirks of no driver", args: []string{"quirks", "e100"}, status: 1, want: []string{`"e100"`, "e1000"}},
		{name: "missing argument", args: []string{"show"}, status: 2, want: []string{"nicd show takes an interface"}},
		{name: "help for no command", args: []string{"help", "rum"}, status: 2, want: []string{`"rum"`, `did you mean "run"`}},
		{name: "config without its flag", args: []string{"run", "my.hcl"}, status: 2, want: []string{"-c FILE"}},
		{name: "negative count", args: []string{"capture", "vmx0", "-c", "-1"}, status: 2, want: []string{"-c -1", "0 is no end"}},
		{name: "setting twice", args: []string{"set", "em0", "lro=on", "lro=off"}, status: 2, want: []string{"lro", "twice"}},
		{name: "no daemon", args: []string{"status"}, status: 1, want: []string{"no nicd runs at", "nicd run", "--socket"}},
		{name: "no config", args: []string{"run", "-c", "absent.hcl"}, status: 1, want: []string{"absent.hcl", "no such file"}},
		{name: "socket taken", args: []string{"run", "--socket", taken}, status: 1, want: []string{taken, "not a socket", "--socket"}},
		{name: "config syntax", replace: []string{"wire \"w0\" {", "wire \"w0\" {{"}, status: 1, want: []string{"nicd.hcl:"}},
		{name: "unknown quirk", replace: []string{"driver \"e1000\" {", "driver \"e1000\" {\n quirks {\n lro-owned = \"none\"\n }"},
			status: 1, want: []string{"nicd.hcl:", "lro-owned", "lro-owner"}},
		{name: "quirk of a wrong type", replace: []string{"driver \"e1000\" {", "driver \"e1000\" {\n quirks {\n lro-owner = 7\n }"},
			status: 1, want: []string{"nicd.hcl:", "lro-owner", "7"}},
		{name: "missing plugin", replace: vmxAt("/nonexistent/plugin", ""), status: 1, want: []string{"/nonexistent/plugin", "no such plugin"}},
		{name: "plugin not executable", replace: vmxAt(script("plain", "text", 0o600), ""), status: 1, want: []string{"plain", "not executable", "chmod"}},
		{name: "wrong sha256", replace: vmxAt(vmx, `  sha256 = "`+strings.Repeat("0", 64)+`"`), status: 1, want: []string{vmx, "sha256", strings.Repeat("0", 64)}},
		{name: "plugin of another version", replace: vmxAt(script("old", "#!/bin/sh\necho '1|99|unix|/tmp/x|grpc'\nsleep 5\n", 0o700), ""),
			status: 1, want: []string{"old", "version 99"}},
		{name: "plugin prints garbage", replace: vmxAt(script("chatty", "#!/bin/sh\necho hello there\nsleep 5\n", 0o700), ""),
			status: 1, want: []string{"chatty", "not a nicd plugin", "hello there"}},
		{name: "plugin exits", replace: vmxAt(script("quitter", "#!/bin/sh\necho out of luck >&2\nexit 3\n", 0o700), ""),
			status: 1, want: []string{"quitter", "exit status 3", "out of luck"}},
		{name: "plugin of another driver", replace: vmxAt(filepath.Join(binaries, "nicd-driver-e1000"), ""),
			status: 1, want: []string{"nicd-driver-e1000", `driver "e1000"`}},
		{name: "driver of another device", replace: []string{"model = \"82574L\"", "model = \"vmxnet3\""},
			status: 1, want: []string{"interface em0", "e1000 does not drive", "15ad:07b0"}},
		{name: "device that is not there", replace: []string{"device \"sim\" {\n    model = \"82574L\"\n    wire  = \"w0\"", "device \"vfio-user\" {\n    socket = \"/nonexistent/socket\""},
			status: 1, want: []string{"em0", "/nonexistent/socket"}},
		{name: "more queues than the device has", replace: []string{"driver = \"e1000\"\n", "driver = \"e1000\"\n  rx_queues = 3\n"},
			status: 1, want: []string{"interface em0", "rx_queues", "82574L has 2, not 3"}},
		{name: "MTU that the device can't take", replace: []string{"driver = \"e1000\"\n", "driver = \"e1000\"\n  mtu = 20000\n"},
			status: 1, want: []string{"interface em0", "mtu 20000", "82574L takes"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			args := test.args
			if test.replace != nil {
				args = []string{"run", "--for", "1s", "-c", defaultConfig(t, dir, test.replace...)}
			}
			r := nicd(t, dir, args...)
			if r.status != test.status {
				t.Errorf("status %d, want %d", r.status, test.status)
			}
			lines := errorLines(r.stderr)
			if len(lines) != 1 {
				t.Errorf("not one line:\n%s", r.stderr)
			}
			for _, want := range test.want {
				if !strings.Contains(r.stderr, want) {
					t.Errorf("no %q in %q", want, r.stderr)
				}
			}
		})
	}
	leftovers(t, dir)
}

// errorLines are the lines of stderr that are not log records of a start that
// was under way, nor a config's source line with its mark.
func errorLines(stderr string) []string {
	return slices.DeleteFunc(strings.Split(strings.TrimSpace(stderr), "\n"), func(l string) bool {
		return strings.HasPrefix(l, "  ") || len(l) > 12 && l[2] == ':' && l[5] == ':'
	})
}

// TestSecondDaemon: the first one goes on, the second says who is there.
func TestSecondDaemon(t *testing.T) {
	dir := t.TempDir()
	stop := start(t, dir)
	r := nicd(t, dir, "run")
	if r.status != 1 || len(errorLines(r.stderr)) != 1 || !strings.Contains(r.stderr, "a nicd runs there already (pid ") {
		t.Errorf("status %d, %q", r.status, r.stderr)
	}
	if r := stop(os.Interrupt); r.status != 0 {
		t.Errorf("the first one: status %d, %s%s", r.status, r.stdout, r.stderr)
	}
	leftovers(t, dir)
}

// TestSocketOfTheConfig: who asks finds a nicd by the config that it was given.
func TestSocketOfTheConfig(t *testing.T) {
	dir := t.TempDir()
	file := defaultConfig(t, dir, "daemon {", "daemon {\n  socket = \"run/of-config\"")
	t.Setenv("NICD_SOCKET", "")
	cmd := exec.CommandContext(t.Context(), filepath.Join(binaries, "nicd"), "run", "--json", "-c", file)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ask := func(args ...string) (string, error) {
		b, err := exec.CommandContext(t.Context(), filepath.Join(binaries, "nicd"), args...).CombinedOutput()
		return string(b), err
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		out, err := ask("status", "--config", file)
		if err == nil && strings.Contains(out, fmt.Sprint("pid ", cmd.Process.Pid)) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v: %s", err, out)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if out, err := ask("status", "--config", filepath.Join(dir, "absent.hcl")); err == nil || !strings.Contains(out, "absent.hcl: no such file") {
		t.Errorf("%v: %q", err, out)
	}
	if out, err := ask("quirks", "--config", file, "e1000"); err != nil || !strings.Contains(out, "e1000-tso-burst") {
		t.Errorf("%v: %q", err, out)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // that the streams moved something by then is not what this is about
	leftovers(t, dir)
}

// TestColours: log records have colours on a terminal and nowhere else, wherever the
// table goes.
func TestColours(t *testing.T) {
	dir := t.TempDir()
	pty, tty := openTerminal(t)
	seen := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(pty) // to the error that a terminal ends with
		seen <- string(b)
	}()
	cmd := command(t.Context(), dir, "run", "--for", "2500ms") // two tables
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = tty, &errs
	err := cmd.Run()
	tty.Close()
	if err != nil {
		t.Fatalf("%v: %s", err, &errs)
	}
	if table := <-seen; !strings.Contains(table, "\x1b[") {
		t.Errorf("no colours on a terminal: %q", table)
	}
	if strings.Contains(errs.String(), "\x1b[") || !strings.Contains(errs.String(), "link changed") {
		t.Errorf("log records that do not go to a terminal: %q", &errs)
	}
	if r := nicd(t, dir, "run", "--for", "1s"); strings.Contains(r.stdout+r.stderr, "\x1b[") {
		t.Errorf("colours in a pipe: %q", r.stdout+r.stderr)
	}
}

// TestStaleSocket: what a daemon that was killed left behind is no obstacle.
func TestStaleSocket(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "run", "s")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	runReport(t, dir)
	leftovers(t, dir)
}
