package main_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
)

// Each point of a running interface is seen with what is special about it, in a
// driver's process of its own.
func TestCapture(t *testing.T) {
	dir := t.TempDir()
	start(t, dir)
	file := filepath.Join(dir, "x.pcapng")
	got := nicd(t, dir, "capture", "vmx0", "--point", "rx-wire,rx-delivered,tx-port,tx-wire", "--filter", "tcp", "--snaplen", "120", "-c", "5000", "-w", file)
	if got.status != 0 || !strings.HasPrefix(got.stderr, "5000 packets captured") || got.stdout != "" {
		t.Fatalf("%+v", got)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in, err := pcapgo.NewNgReader(f, pcapgo.NgReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	packets, comments, last := map[string]int{}, map[string]int{}, time.Time{}
	for {
		data, info, options, err := in.ReadPacketDataWithOptions()
		if err != nil {
			break
		}
		face, err := in.Interface(info.InterfaceIndex)
		if err != nil || face.Name != "vmx0" || len(data) > 120 || options.Flags == nil {
			t.Fatalf("%+v %+v %v", face, info, err)
		}
		incoming := options.Flags.Direction == pcapgo.NgEpbFlagDirectionInbound
		if incoming != strings.HasPrefix(face.Description, "rx") {
			t.Errorf("%s: direction %v", face.Description, options.Flags.Direction)
		}
		packets[face.Description]++
		for _, c := range options.Comments {
			comments[face.Description+": "+strings.Fields(c)[0]]++
		}
		last = info.Timestamp
	}
	for _, point := range []string{"rx-wire", "rx-delivered", "tx-port", "tx-wire"} {
		if packets[point] == 0 {
			t.Errorf("nothing at %s: %v", point, packets)
		}
	}
	if comments["rx-delivered: coalesced:"] == 0 || comments["tx-port: to"] == 0 || time.Since(last).Abs() > time.Minute {
		t.Errorf("comments %v, last packet at %v", comments, last)
	}
	captureText(t, dir)
	captureMistakes(t, dir)
	captureIntoTcpdump(t, dir)
}

func captureText(t *testing.T, dir string) {
	t.Helper()
	got := nicd(t, dir, "capture", "em0", "-c", "3", "--point", "rx-delivered")
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	if got.status != 0 || got.stderr != "" || len(lines) != 3 || !strings.Contains(lines[0], "tcp 10.0.0.1:") {
		t.Errorf("%+v", got)
	}
}

func captureMistakes(t *testing.T, dir string) {
	t.Helper()
	for _, c := range []struct {
		args   []string
		want   string
		status int
	}{
		{[]string{"vmx1"}, `there is no interface "vmx1"; there are vmx0, em0`, 1},
		{[]string{"vmx0", "--point", "wire"}, `there is no capture point "wire"`, 2},
		{[]string{"vmx0", "--filter", "prot 80"}, `"prot" is not known`, 2},
		{[]string{"vmx0", "-w", filepath.Join(dir, "none", "x")}, "no such file", 1},
		{nil, "takes an interface", 2},
	} {
		got := nicd(t, dir, append([]string{"capture"}, c.args...)...)
		if got.status != c.status || !strings.Contains(got.stderr, c.want) || strings.Count(got.stderr, "\n") != 1 || got.stdout != "" {
			t.Errorf("%v: %+v; want %q", c.args, got, c.want)
		}
	}
}

// captureIntoTcpdump is "nicd capture vmx0 -w - | tcpdump -r - -c 5": the reader
// hangs up first.
func captureIntoTcpdump(t *testing.T, dir string) {
	t.Helper()
	tool, err := exec.LookPath("tcpdump")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	write := command(ctx, dir, "capture", "vmx0", "-w", "-")
	read := exec.CommandContext(ctx, tool, "-nn", "-r", "-", "-c", "5")
	var out, errs bytes.Buffer
	read.Stdout, write.Stderr = &out, &errs
	if read.Stdin, err = write.StdoutPipe(); err != nil {
		t.Fatal(err)
	}
	if err := write.Start(); err != nil {
		t.Fatal(err)
	}
	if err := read.Run(); err != nil {
		t.Fatal(err)
	}
	read.Stdin.(*os.File).Close()
	if err := write.Wait(); err != nil {
		t.Errorf("nicd capture: %v: %s", err, errs.String())
	}
	if strings.Count(out.String(), "IP 10.0.0.") != 5 {
		t.Errorf("tcpdump printed %q", out.String())
	}
}
