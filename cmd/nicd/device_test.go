package main_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// serving starts "nicd device serve" and waits until it says so many times that
// it serves. The caller calls stop, which returns how it ended.
func serving(t *testing.T, dir string, devices int, args ...string) (stop func() result) {
	t.Helper()
	cmd := command(t.Context(), dir, append([]string{"device", "serve"}, args...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for n := 0; n < devices; n++ {
		if !lines.Scan() {
			_ = cmd.Wait()
			t.Fatalf("nicd %v: %s", args, errs.String())
		}
	}
	return func() result {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		return result{"", errs.String(), cmd.ProcessState.ExitCode()}
	}
}

const servedConfig = `
interface "vmx0" {
  driver = "vmxnet3"
  device "vfio-user" { socket = "a" }
  port "netstack" { address = "10.0.0.1/24" }
}
interface "em0" {
  driver = "e1000"
  device "vfio-user" { socket = "b" }
  port "netstack" { address = "10.0.0.2/24" }
}
stream "down" {
  from = "vmx0"
  to   = "em0"
}
stream "up" {
  from = "em0"
  to   = "vmx0"
}
`

// A nicd uses devices that another one serves, twice in a row.
func TestDeviceServe(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	stop := serving(t, dir, 2, "vmxnet3", "--socket", a, "--revision", "3", "e1000e", "--socket", b)
	for _, path := range []string{a, b} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, st, err)
		}
	}
	file := filepath.Join(dir, "c.hcl")
	if err := os.WriteFile(file, []byte(servedConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got := runReport(t, dir, "-c", file)
		for _, s := range got.Streams {
			if s.Gbps <= 0 {
				t.Errorf("stream %s moved no data", s.Stream.Name)
			}
		}
	}
	again := nicd(t, dir, "device", "serve", "e1000", "--socket", a)
	if again.status != 1 || !strings.Contains(again.stderr, "something serves there already (pid ") {
		t.Errorf("a second server of a socket: %+v", again)
	}
	if r := stop(); r.status != 0 || r.stderr != "" {
		t.Errorf("status %d: %s", r.status, r.stderr)
	}
	for _, path := range []string{a, b} {
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("%s was left behind", path)
		}
	}
	leftovers(t, dir)
}

func TestDeviceServeMistakes(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   string
		status int
		says   string
	}{
		{"", 2, "takes a model"},
		{"--tap x0", 2, "takes a model"},
		{"--socket s vmxnet3", 2, "the model comes before its flags"},
		{"vmxnet3 --sockt s", 2, "unknown flag: --sockt"},
		{"vmxnet3 --socket s --mac 01:00:00:00:00:00", 2, "unicast"},
		{"vmxnet3", 2, "no socket to serve it at"},
		{"e100 --socket s", 2, `no model "e100"; there are 82540EM, `},
		{"vmxnet3 --socket s --revision 5", 2, "revisions 1 to 4, not 5"},
		{"e1000 --socket s --revision 1", 2, "has no revisions"},
		{"vmxnet3 --socket s e1000 --socket s", 2, "socket s is another device's"},
		{"vmxnet3 --socket file", 1, "something that is not a socket is there"},
		{"vmxnet3 --socket s --tap a-name-that-is-too-long", 1, "1 to 15 characters"},
	} {
		r := nicd(t, dir, append([]string{"device", "serve"}, strings.Fields(c.args)...)...)
		if r.status != c.status || !strings.Contains(r.stderr, c.says) || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("nicd device serve %s: status %d, %q", c.args, r.status, r.stderr)
		}
	}
	if help := nicd(t, dir, "device", "serve", "--help"); help.status != 0 || !strings.Contains(help.stdout, "--revision") {
		t.Errorf("help: %+v", help)
	}
	if _, err := os.Lstat(filepath.Join(dir, "s")); err == nil {
		t.Error("a socket was left behind")
	}
}

func TestDevices(t *testing.T) {
	dir := t.TempDir()
	r := nicd(t, dir, "devices", "--json")
	var nics []map[string]any
	if err := json.Unmarshal([]byte(r.stdout), &nics); err != nil || r.status != 0 {
		t.Errorf("%+v: %v", r, err)
	}
	if r := nicd(t, dir, "devices"); r.status != 0 || r.stdout == "" {
		t.Errorf("%+v", r)
	}
	for _, c := range []struct{ args, says string }{
		{"bind 03:00.0", "an address is like 0000:03:00.0"},
		{"bind 0000:ff:1f.7", "no such PCI device"},
		{"unbind 0000:ff:1f.7", "no such PCI device"},
	} {
		if r := nicd(t, dir, strings.Fields(c.args)...); r.status != 1 || !strings.Contains(r.stderr, c.says) {
			t.Errorf("nicd %s: %+v", c.args, r)
		}
	}
}
