package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"nicd/framework"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// knobs are a model's variations as a sim package declares them.
type knobs struct {
	FewVectors bool
	ICRKeeps   bool
	Throttle   time.Duration
	Limit      uint8
	Level      int
	Chance     float64
	Style      string
	Never      [1]int
	Merge      mergeStyle
}

// mergeStyle is a knob with words for its values.
type mergeStyle uint8

func (m *mergeStyle) UnmarshalText(text []byte) error {
	i := slices.Index([]string{"plain", "odd"}, string(text))
	if i < 0 {
		return errors.New("one of plain, odd")
	}
	*m = mergeStyle(i)
	return nil
}

var mistakeVocabulary = Vocabulary{
	Drivers: []string{"vmxnet3", "e1000"},
	Models: []Model{
		{Name: "vmxnet3", Revisions: 4},
		{Name: "82574L", Variation: knobs{Limit: 7}},
	},
}

var _ = framework.NewBoolQuirk(framework.QuirkInfo{
	Name: "e1000-test", Doc: "A quirk of e1000's own.", Reference: "this test", Driver: "e1000",
}, false)

// base is a good config; a mistake replaces a piece of it.
const base = `wire "w0" {
  loss = 0.01
}
driver "vmxnet3" {
  mode = "plugin"
}
driver "other" {
  path = "other.bin"
}
interface "vmx0" {
  driver = "vmxnet3"
  mtu = 1500
  device "sim" {
    model = "vmxnet3"
    wire = "w0"
  }
  features {
    lro = true
  }
  quirks {
    lro-owner = "hybrid"
  }
  port "netstack" {
    address = "10.0.0.1/24"
  }
}
interface "em0" {
  driver = "e1000"
  device "sim" {
    model = "82574L"
    wire = "w0"
    variations {
      few-vectors = true
    }
  }
  port "netstack" {
    address = ["10.0.0.2/24", "fd00::2/64"]
  }
}
stream "a" {
  from = "vmx0"
  to = "em0"
}
`

// Each mistake replaces old by new in base.
var mistakes = []struct{ name, old, new string }{
	{"unsafe quirk", `lro-owner = "hybrid"`, `metadata-on = "first"`},
	{"syntax", `loss = 0.01`, `loss = = 1`},
	{"unclosed block", `  to = "em0"` + "\n}", `  to = "em0"`},
	{"unclosed text", `address = "10.0.0.1/24"`, `address = "10.0.0.1/24`},
	{"attribute twice", `mtu = 1500`, "mtu = 1500\n  mtu = 9000"},
	{"unknown attribute", `mtu = 1500`, `mut = 1500`},
	{"far unknown attribute", `mtu = 1500`, `zzzzzzzzzzzz = 1500`},
	{"unknown attribute of a wire", `loss = 0.01`, `los = 0.01`},
	{"unknown block", `features {`, `feature {`},
	{"unknown top block", `stream "a"`, `streem "a"`},
	{"attribute at the top", `wire "w0" {`, "mtu = 3\nwire \"w0\" {"},
	{"block written as attribute", "features {\n    lro = true\n  }", `features = { lro = true }`},
	{"attribute written as block", `mtu = 1500`, `mtu { }`},
	{"feature outside features", `mtu = 1500`, `lro = true`},
	{"quirk outside quirks", `mode = "plugin"`, `lro-owner = "none"`},
	{"label missing", `wire "w0" {`, `wire {`},
	{"label too many", `features {`, `features "x" {`},
	{"name empty", `stream "a"`, `stream ""`},
	{"name odd", `stream "a"`, `stream "../a"`},
	{"name long", `stream "a"`, `stream "abcdefghijklmnop"`},
	{"interface twice", `interface "em0"`, `interface "vmx0"`},
	{"second device", `  port "netstack" {` + "\n" + `    address = "10.0.0.1/24"`, "  device \"sim\" {\n    model = \"82574L\"\n    wire = \"w0\"\n  }\n  port \"netstack\" {\n    address = \"10.0.0.1/24\""},
	{"TAP name", `  port "netstack" {` + "\n" + `    address = "10.0.0.1/24"`, "  port \"tap\" {\n    name = \"a/b\""},
	{"TAP name long", `  port "netstack" {` + "\n" + `    address = "10.0.0.1/24"`, "  port \"tap\" {\n    name = \"a-name-that-is-long\""},
	{"TAP fd", `  port "netstack" {` + "\n" + `    address = "10.0.0.1/24"`, "  port \"tap\" {\n    fd = 1"},
	{"TAP fd text", `  port "netstack" {` + "\n" + `    address = "10.0.0.1/24"`, "  port \"tap\" {\n    fd = \"3\""},
	{"forward without bridge", `  port "netstack" {` + "\n" + `    address = "10.0.0.1/24"`, "  port \"forward\" {"},
	{"bridge of one", `  port "netstack" {` + "\n" + `    address = "10.0.0.1/24"`, "  port \"forward\" {\n    bridge = \"br0\""},
	{"text for a number", `mtu = 1500`, `mtu = "1500"`},
	{"number for text", `driver = "e1000"`, `driver = 1000`},
	{"list for a number", `mtu = 1500`, `mtu = [1500]`},
	{"object for text", `driver = "e1000"`, `driver = { a = 1 }`},
	{"null", `mtu = 1500`, `mtu = null`},
	{"no quotes", `lro-owner = "hybrid"`, `lro-owner = hardware-only`},
	{"function", `mtu = 1500`, `mtu = max(1500, 2)`},
	{"mtu low", `mtu = 1500`, `mtu = 10`},
	{"mtu fraction", `mtu = 1500`, `mtu = 1500.5`},
	{"queues", `mtu = 1500`, `rx_queues = 0`},
	{"huge number", `mtu = 1500`, `tx_queues = 1e400`},
	{"chance", `loss = 0.01`, `loss = 1.5`},
	{"seed", `loss = 0.01`, `seed = -1`},
	{"delay without unit", `loss = 0.01`, `delay = "5"`},
	{"delay as a number", `loss = 0.01`, `delay = 5`},
	{"delay too long", `loss = 0.01`, `delay = "1h"`},
	{"interrupts", `mtu = 1500`, `interrupts = "msix"`},
	{"hand-off", `mtu = 1500`, `tx_handoff = "inlined"`},
	{"hand-off of a plugin", `mtu = 1500`, `tx_handoff = "inline"`},
	{"hand-off with cpus", `mode = "plugin"`, "mode = \"in-process\"\n}\ninterface \"z\" {\n  driver = \"vmxnet3\"\n  tx_handoff = \"inline\"\n  cpus = [0]\n  device \"sim\" {\n    model = \"82574L\"\n    wire = \"w0\"\n  }\n  port \"sink\" {}"},
	{"cpus text", `mtu = 1500`, `cpus = ["a"]`},
	{"cpus negative", `mtu = 1500`, `cpus = [0, -1]`},
	{"mac", `mtu = 1500`, `mac = "02:00:00:00:01"`},
	{"mac multicast", `mtu = 1500`, `mac = "01:00:5e:00:00:01"`},
	{"mac twice", `model = "82574L"`, "model = \"82574L\"\n    mac = \"02:00:00:00:00:05\"\n    wire = \"w0\"\n  }\n  port \"sink\" {}\n}\ninterface \"x\" {\n  driver = \"e1000\"\n  device \"sim\" {\n    model = \"82574L\"\n    mac = \"02:00:00:00:00:05\""},
	{"driver unknown", `driver = "e1000"`, `driver = "e100"`},
	{"driver missing", `driver = "e1000"`, ``},
	{"driver empty", `driver = "e1000"`, `driver = ""`},
	{"mode", `mode = "plugin"`, `mode = "inprocess"`},
	{"in-process of a stranger", `path = "other.bin"`, `mode = "in-process"`},
	{"in-process with a path", `path = "other.bin"`, "path = \"other.bin\"\n  mode = \"in-process\""},
	{"sha256", `path = "other.bin"`, `sha256 = "abc"`},
	{"log level", `wire "w0" {`, "daemon {\n  log_level = \"verbose\"\n}\nwire \"w0\" {"},
	{"daemon twice", `wire "w0" {`, "daemon {}\ndaemon {}\nwire \"w0\" {"},
	{"bus", "device \"sim\" {\n    model = \"vmxnet3\"", "device \"simm\" {\n    model = \"vmxnet3\""},
	{"bus without socket", "device \"sim\" {\n    model = \"vmxnet3\"\n    wire = \"w0\"", `device "vfio-user" {`},
	{"bus without address", "device \"sim\" {\n    model = \"vmxnet3\"\n    wire = \"w0\"", `device "vfio" {`},
	{"address of no PCI function", "device \"sim\" {\n    model = \"vmxnet3\"\n    wire = \"w0\"", "device \"vfio\" {\n    address = \"03:00.8\""},
	{"model unknown", `model = "82574L"`, `model = "82574"`},
	{"model missing", `model = "82574L"`, ``},
	{"revision high", `model = "vmxnet3"`, "model = \"vmxnet3\"\n    revision = 5"},
	{"revision of what has none", `model = "82574L"`, "model = \"82574L\"\n    revision = 1"},
	{"wire unknown", `    wire = "w0"` + "\n    variations", `    wire = "w1"` + "\n    variations"},
	{"wire missing", `    wire = "w0"` + "\n    variations", `    variations`},
	{"variation unknown", `few-vectors = true`, `few-vector = true`},
	{"variation type", `few-vectors = true`, `few-vectors = 1`},
	{"variation range", `few-vectors = true`, `limit = 256`},
	{"variation time", `few-vectors = true`, `throttle = 5`},
	{"variation word", `few-vectors = true`, `merge = "even"`},
	{"variation word as a number", `few-vectors = true`, `merge = 1`},
	{"variation of an odd type", `few-vectors = true`, `never = [1]`},
	{"variations of a model without", "model = \"vmxnet3\"\n    wire = \"w0\"", "model = \"vmxnet3\"\n    wire = \"w0\"\n    variations { x = 1 }"},
	{"feature unknown", `lro = true`, `lor = true`},
	{"feature value", `lro = true`, `lro = "maybe"`},
	{"feature has no software", `lro = true`, `rss = "software"`},
	{"quirk unknown", `lro-owner = "hybrid"`, `lro-ownr = "hybrid"`},
	{"quirk choice", `lro-owner = "hybrid"`, `lro-owner = "hardware"`},
	{"quirk type", `lro-owner = "hybrid"`, `skips-rx-slots = "true"`},
	{"quirk range", `lro-owner = "hybrid"`, `min-frame = 999`},
	{"quirk list", `lro-owner = "hybrid"`, `min-frame = [1]`},
	{"quirk of another driver", `lro-owner = "hybrid"`, `e1000-test = true`},
	{"port kind", "port \"netstack\" {\n    address = \"10.0.0.1/24\"", "port \"netstak\" {\n    address = \"10.0.0.1/24\""},
	{"port missing", "  port \"netstack\" {\n    address = \"10.0.0.1/24\"\n  }\n", ``},
	{"address missing", `address = "10.0.0.1/24"`, ``},
	{"address without prefix", `address = "10.0.0.1/24"`, `address = "10.0.0.1"`},
	{"address of a network", `address = "10.0.0.1/24"`, `address = "10.0.0.0/24"`},
	{"address multicast", `address = "10.0.0.1/24"`, `address = "224.0.0.1/24"`},
	{"address twice", `address = "10.0.0.1/24"`, `address = "10.0.0.2/24"`},
	{"gateway", `address = "10.0.0.1/24"`, "address = \"10.0.0.1/24\"\n    gateway = \"10.0.1.1\""},
	{"gateway odd", `address = "10.0.0.1/24"`, "address = \"10.0.0.1/24\"\n    gateway = \"router\""},
	{"IPv6 and a small MTU", `driver = "e1000"`, "driver = \"e1000\"\n  mtu = 1000"},
	{"stream to nowhere", `to = "em0"`, `to = "em1"`},
	{"stream to itself", `to = "em0"`, `to = "vmx0"`},
	{"stream to a sink", "port \"netstack\" {\n    address = [\"10.0.0.2/24\", \"fd00::2/64\"]", `port "sink" {`},
	{"stream without a common network", `address = "10.0.0.1/24"`, `address = "10.9.0.1/24"`},
	{"stream without an end", `to = "em0"`, ``},
	{"many", "loss = 0.01", "los = 1\n  delay = 7\n  seed = 1.5"},
}

// TestMistakes compares every mistake's message, with its source line, with
// testdata/mistakes.golden. Run with -update after a change and read the diff.
func TestMistakes(t *testing.T) {
	var got strings.Builder
	for _, m := range mistakes {
		if strings.Count(base, m.old) != 1 {
			t.Fatalf("%s: %q is %d times in base", m.name, m.old, strings.Count(base, m.old))
		}
		c, err := Parse("nicd.hcl", []byte(strings.Replace(base, m.old, m.new, 1)), mistakeVocabulary)
		var d Diagnostics
		if !errors.As(err, &d) || c != nil {
			t.Errorf("%s: accepted, or not Diagnostics: %v", m.name, err)
			continue
		}
		if strings.Contains(d.Error(), "\n") || d[0].Line == 0 || d[0].Source == "" && m.name != "unclosed block" {
			t.Errorf("%s: not one line, or without its source: %q", m.name, d.Error())
		}
		got.WriteString("# " + m.name + "\n" + d.Detail() + "\n\n")
	}
	golden := filepath.Join("testdata", "mistakes.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("messages differ from %s:\n%s", golden, firstDifference(got.String(), string(want)))
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return "got  " + g[i] + "\nwant " + w[i]
		}
	}
	return "lengths differ"
}

func TestKnobs(t *testing.T) {
	const block = `few-vectors = false
      icr-keeps = true
      throttle = "128us"
      limit = 255
      level = -3
      chance = 0.5
      style = "x"
      merge = "odd"`
	c, err := Parse("n.hcl", []byte(strings.Replace(base, "few-vectors = true", block, 1)), mistakeVocabulary)
	if err != nil {
		t.Fatal(err)
	}
	want := knobs{ICRKeeps: true, Throttle: 128 * time.Microsecond, Limit: 255, Level: -3, Chance: 0.5, Style: "x", Merge: 1}
	if got := c.Interfaces[1].Device.Sim.Variation; got != any(want) {
		t.Errorf("%+v", got)
	}
	if mistakeVocabulary.Models[1].Variation != any(knobs{Limit: 7}) {
		t.Error("the vocabulary's own knobs changed")
	}
	for name, want := range map[string]string{"LRO": "lro", "LROStyle": "lro-style", "ZeroRxSGIsOne": "zero-rx-sg-is-one", "OffloadsOnSOP": "offloads-on-sop", "V5": "v5"} {
		if got := dashed(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestBaseIsGood(t *testing.T) {
	c, err := Parse("/etc/nicd/nicd.hcl", []byte(base), mistakeVocabulary)
	if err != nil {
		t.Fatal(err)
	}
	em, _ := c.Interface("em0")
	if em.Device.Sim.Variation != any(knobs{Limit: 7, FewVectors: true}) {
		t.Errorf("variation %+v", em.Device.Sim.Variation)
	}
	if len(em.Port.Netstack.Addresses) != 2 {
		t.Errorf("addresses %v", em.Port.Netstack.Addresses)
	}
	vmx, _ := c.Interface("vmx0")
	wantQuirk := framework.QuirkSetting{Name: "lro-owner", Value: "hybrid", Origin: "/etc/nicd/nicd.hcl:21: interface vmx0"}
	if len(vmx.Quirks) != 1 || vmx.Quirks[0] != wantQuirk {
		t.Errorf("quirks %+v", vmx.Quirks)
	}
	wantFeature := framework.FeatureSetting{Features: framework.LRO, Want: framework.WantOn, Origin: "/etc/nicd/nicd.hcl:18: interface vmx0"}
	if len(vmx.Features) != 1 || vmx.Features[0] != wantFeature {
		t.Errorf("features %+v", vmx.Features)
	}
	if d, _ := c.Driver("other"); d.Path != "/etc/nicd/other.bin" {
		t.Errorf("path %q is not relative to the file", d.Path)
	}
	if d, ok := c.Driver("e1000"); !ok || d.Mode != Plugin || d.Origin != (Origin{}) {
		t.Errorf("a bundled driver without a block: %+v %v", d, ok)
	}
	if vmx.Device.Sim.Revision != 4 {
		t.Errorf("revision %d is not the newest", vmx.Device.Sim.Revision)
	}
}
