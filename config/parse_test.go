package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"nicd/framework"
)

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	_, err := Load(filepath.Join(dir, "none.hcl"), testVocabulary)
	if !errors.Is(err, fs.ErrNotExist) || strings.Count(err.Error(), "none.hcl") != 1 {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := Load(dir, testVocabulary); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a directory: %v", err)
	}
	file := filepath.Join(dir, "nicd.hcl")
	if err := os.WriteFile(file, []byte(DefaultSource()), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(file, testVocabulary)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Interfaces[0].Origin.String(), file+":28: interface vmx0"; got != want {
		t.Errorf("origin %q, want %q", got, want)
	}
}

func TestEverySetting(t *testing.T) {
	const src = `
daemon {
  socket     = "run/nicd.sock"
  plugin_dir = "/opt/drivers"
  log_level  = "debug"
}
wire "w0" {
  flow_control = false
  loss         = 1
  duplicate    = 0.25
  reorder      = 0.5
  corrupt      = 0
  seed         = 18446744073709551615
  delay        = "1ms"
  jitter       = "10us"
}
driver "alpha" {
  path   = "alpha"
  sha256 = "00000000000000000000000000000000000000000000000000000000000000AB"
  quirks {
    alpha-own = 3
  }
}
interface "x" {
  driver         = "alpha"
  mtu            = 9000
  mac            = "02:00:00:00:00:09"
  rx_queues      = 2
  tx_queues      = 3
  rx_descriptors = 256
  tx_descriptors = 512
  buffer_size    = 4096
  buffers        = 8192
  interrupts     = "intx"
  moderation     = "50us"
  rx_budget      = 32
  spin           = "5us"
  cpus           = [1, 1, 0]
  tx_handoff     = "abdicate"
  features {
    tso  = "software"
    tso6 = false
  }
  device "vfio-user" {
    socket = "dev.sock"
  }
  port "sink" {}
}
`
	c, err := Parse("d/nicd.hcl", []byte(src), Vocabulary{})
	if err != nil {
		t.Fatal(err)
	}
	if want := (Daemon{"d/run/nicd.sock", "/opt/drivers", "debug", false}); c.Daemon != want {
		t.Errorf("daemon %+v", c.Daemon)
	}
	w := c.Wires[0]
	w.Origin = Origin{}
	if want := (Wire{Name: "w0", Loss: 1, Duplicate: 0.25, Reorder: 0.5, Seed: 1<<64 - 1, Delay: time.Millisecond, Jitter: 10 * time.Microsecond}); w != want {
		t.Errorf("wire %+v", w)
	}
	a, _ := c.Driver("alpha")
	if a.Path != "d/alpha" || !strings.HasSuffix(a.SHA256, "00ab") || len(a.Quirks) != 1 || a.Quirks[0].Value != "3" {
		t.Errorf("driver %+v", a)
	}
	x := c.Interfaces[0]
	if x.MTU != 9000 || x.MAC.String() != "02:00:00:00:00:09" || x.RxQueues != 2 || x.TxQueues != 3 ||
		x.RxDescriptors != 256 || x.TxDescriptors != 512 || x.BufferSize != 4096 || x.Buffers != 8192 ||
		x.Interrupts != INTx || x.Moderation != 50*time.Microsecond || x.RxBudget != 32 ||
		x.Spin != 5*time.Microsecond || len(x.CPUs) != 3 || x.CPUs[2] != 0 || len(x.Features) != 2 ||
		x.Device.VFIOUser.Socket != "d/dev.sock" || x.Port.Sink == nil || x.Port.Netstack != nil || x.Device.Sim != nil {
		t.Errorf("interface %+v", x)
	}
}

// A file that is no config by its size is not read to its end.
func TestLoadEndless(t *testing.T) {
	sparse := filepath.Join(t.TempDir(), "nicd.hcl")
	if err := os.WriteFile(sparse, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(sparse, 8<<40); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{sparse, "/dev/zero"} {
		if _, err := Load(path, Vocabulary{}); err == nil || !strings.Contains(err.Error(), "at most 262144 bytes") {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestProblemsWithoutAPlace(t *testing.T) {
	_, err := Parse("n.hcl", nil, Vocabulary{})
	if err == nil || err.Error() != "n.hcl: there is no interface in the config" {
		t.Error(err)
	}
	_, err = Parse("n.hcl", make([]byte, maxSource+1), Vocabulary{})
	if err == nil || !strings.Contains(err.Error(), "at most 262144 bytes") {
		t.Error(err)
	}
	var d Diagnostics
	if !errors.As(err, &d) || d.Detail() != err.Error() {
		t.Errorf("detail %q", d.Detail())
	}
}

func TestErrorIsOneLineForMany(t *testing.T) {
	_, err := Parse("n.hcl", []byte("a = 1\nb = 2\nc = 3\n"), Vocabulary{})
	if got := err.Error(); got != `n.hcl:1: unknown attribute "a" in the config; there is none (and 2 more)` {
		t.Error(got)
	}
}

func TestHostAddress(t *testing.T) {
	for text, want := range map[string]bool{
		"10.0.0.1/24": true, "10.0.0.0/24": false, "10.0.0.255/24": false, "10.0.0.0/31": true, "10.0.0.255/32": true,
		"10.0.1.255/23": false, "10.0.0.255/23": true, "192.168.1.128/25": false, "1.2.3.4/0": true, "127.0.0.1/8": false,
		"fd00::1/64": true, "ff02::1/64": false, "::1/128": false, "::/64": false, "fe80::1/64": true,
	} {
		if got := hostAddress(netip.MustParsePrefix(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestOddNamesStayOutOfOtherMessages(t *testing.T) {
	_, err := Parse("n.hcl", []byte("wire \"a\\nb\" {\n  los = 1\n}\n"), Vocabulary{})
	for _, p := range err.(Diagnostics) {
		if strings.Contains(p.Error(), "\n") {
			t.Errorf("%q", p.Error())
		}
	}
}

func TestMarkKeepsTabs(t *testing.T) {
	_, err := Parse("n.hcl", []byte("wire \"w\" {\n\tlos = 1\n}\n"), Vocabulary{})
	if got := err.(Diagnostics).Detail(); !strings.HasSuffix(got, "\n  \tlos = 1\n  \t^") {
		t.Errorf("%q", got)
	}
}

func TestDeepNestingIsNoCrash(t *testing.T) {
	for _, piece := range []string{"(", "[", "{", "a={", "a {\n", "!", "-", "\"${", "\"%{if ", "a[", "true?1:", "a.", "a+", "<<E\n${", ")", "}(", "f("} {
		src := "a = " + strings.Repeat(piece, maxSource/2/len(piece))
		if _, err := Parse("n.hcl", []byte(src), Vocabulary{}); err == nil {
			t.Errorf("%q nested is accepted", piece)
		}
	}
}

// Brackets that close nothing make no room for others: the parser skips them.
func TestClosedBeforeIsNoCrash(t *testing.T) {
	for _, pair := range []string{"[]", "()", "{}"} {
		src := "a = " + strings.Repeat(pair[1:], maxSource/4) + "\nb = " + strings.Repeat(pair[:1], maxSource/4)
		if _, err := Parse("n.hcl", []byte(src), Vocabulary{}); err == nil || !strings.Contains(err.Error(), "nested deeper") {
			t.Errorf("%q: %v", pair, err)
		}
	}
}

// Numbers may cost far more to print, or to compute with, than to write down.
func TestHugeNumbersAreCheap(t *testing.T) {
	for _, number := range []string{"1e99999999", "1e-99999999", "-1e99999999", "1E+999999999999", strings.Repeat("9", 100_000)} {
		for _, setting := range []string{"mtu = %", "cpus = %", "cpus = [1, %]", "rx_queues = 1 + %", "quirks { min-frame = % }"} {
			setting = strings.Replace(setting, "%", number, 1)
			_, err := Parse("n.hcl", []byte(strings.Replace(base, "mtu = 1500", setting, 1)), mistakeVocabulary)
			if err == nil || !strings.Contains(err.Error(), "beyond all ranges") {
				t.Errorf("%.40s: %v", setting, err)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(DefaultSource())
	f.Add(base)
	for _, m := range mistakes {
		f.Add(strings.Replace(base, m.old, m.new, 1))
	}
	f.Fuzz(func(t *testing.T, src string) {
		c, err := Parse("n.hcl", []byte(src), mistakeVocabulary)
		if (c == nil) == (err == nil) {
			t.Fatalf("config %v, error %v", c, err)
		}
		if err == nil {
			return
		}
		var d Diagnostics
		if !errors.As(err, &d) || len(d) == 0 {
			t.Fatalf("not Diagnostics: %v", err)
		}
		for _, p := range d {
			if strings.ContainsAny(p.Error(), "\n\r") {
				t.Fatalf("more than one line: %q", p.Error())
			}
		}
		_ = d.Detail()
	})
}

// What is no text is one line, and nothing that a terminal obeys gets out.
func TestNoText(t *testing.T) {
	for _, src := range []string{"wire \"w\" {}\n\xff\xfe", "wire\x00", "\x7fELF\x02\x01\x01\x00"} {
		_, err := Parse("n.hcl", []byte(src), Vocabulary{})
		var d Diagnostics
		if !errors.As(err, &d) || len(d) != 1 || !strings.Contains(d.Detail(), "no text") || strings.ContainsAny(d.Detail(), "\n\x00") || !utf8.ValidString(d.Detail()) {
			t.Errorf("%q: %v", src, err)
		}
	}
	_, err := Parse("n.hcl", []byte("los = \"\x1b]0;x\a\""), Vocabulary{})
	var d Diagnostics
	if !errors.As(err, &d) || strings.ContainsAny(d.Detail(), "\x1b\a") {
		t.Errorf("%q", d.Detail())
	}
}

// TestSmallestBuffers: whatever buffer size is accepted, the longest packet fits as many
// buffers as a packet may have. Ports would cut it short or drop it.
func TestSmallestBuffers(t *testing.T) {
	least := 1 + sort.Search(maxBufferSize, func(n int) bool {
		text := strings.Replace(DefaultSource(), `driver = "e1000"`, fmt.Sprintf("driver = \"e1000\"\n  buffer_size = %d", n+1), 1)
		_, err := Parse("n.hcl", []byte(text), testVocabulary)
		return err == nil
	})
	if least > maxBufferSize || least*framework.MaxFragments < framework.MaxPacketLen {
		t.Errorf("buffer_size = %d is accepted: %d of them hold %d bytes", least, framework.MaxFragments, least*framework.MaxFragments)
	}
}
