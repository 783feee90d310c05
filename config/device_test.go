package config

import (
	"strings"
	"testing"
)

func TestPCIAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"0000:03:00.0": "0000:03:00.0", "03:00.0": "0000:03:00.0", "03:1F.7": "0000:03:1f.7", "10000:00:1f.6": "10000:00:1f.6",
		"": "", "3:0.0": "", "03:00.8": "", "03:20.0": "", "../../x": "", "0000:03:00.0/": "", "0000-03:00.0": "",
	} {
		if got, ok := pciAddress(text); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", text, got, ok)
		}
	}
}

func TestVFIODevices(t *testing.T) {
	const src = `
interface "a" {
  driver = "x"
  device "vfio" { address = "03:00.0" }
  port "sink" {}
}
interface "b" {
  driver = "x"
  device "vfio" { address = "03:00.0" }
  port "sink" {}
}
`
	_, err := Parse("nicd.hcl", []byte(src), Vocabulary{Drivers: []string{"x"}})
	if err == nil || !strings.Contains(err.Error(), "interface b has the device of interface a") {
		t.Errorf("two interfaces with one device: %v", err)
	}
	c, err := Parse("nicd.hcl", []byte(src[:strings.Index(src, `interface "b"`)]), Vocabulary{Drivers: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	if d := c.Interfaces[0].Device; d.VFIO == nil || d.VFIO.Address != "0000:03:00.0" || d.VFIO.AllowUnsafeNoIOMMU || d.Sim != nil {
		t.Errorf("device %+v", d)
	}
	unsafe := strings.Replace(src[:strings.Index(src, `interface "b"`)], `{ address = "03:00.0" }`, "{\naddress = \"03:00.0\"\nallow_unsafe_noiommu = true\n}", 1)
	c, err = Parse("nicd.hcl", []byte(unsafe), Vocabulary{Drivers: []string{"x"}})
	if err != nil || !c.Interfaces[0].Device.VFIO.AllowUnsafeNoIOMMU {
		t.Errorf("allow_unsafe_noiommu: %+v, %v", c, err)
	}
}

func TestQEMUDevices(t *testing.T) {
	parse := func(device string) (*Config, error) {
		return Parse("/etc/nicd.hcl", []byte(`
wire "w0" {}
interface "a" {
  driver = "x"
  device "qemu" {
    `+device+`
  }
  port "sink" {}
}
`), Vocabulary{Drivers: []string{"x"}})
	}
	for text, want := range map[string]QEMUDevice{
		`model = "82545EM"`: {Model: "82545EM", Netdev: NetdevUser},
		"model = \"vmxnet3\"\n netdev = \"wire\"\n wire = \"w0\"":                                       {Model: "vmxnet3", Netdev: NetdevWire, Wire: "w0"},
		"model = \"vmxnet3\"\n netdev = \"tap\"\n tap = \"t0\"\n program = \"q\"":                       {Model: "vmxnet3", Netdev: NetdevTAP, TAP: "t0", Program: "q"},
		"model = \"82574L\"\n netdev = \"dgram\"\n local = \"l\"\n remote = \"/r\"\n program = \"./q\"": {Model: "82574L", Netdev: NetdevDgram, Local: "/etc/l", Remote: "/r", Program: "/etc/q"},
	} {
		c, err := parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := *c.Interfaces[0].Device.QEMU
		if want.MAC = got.MAC; got != want || got.MAC[0] != 2 {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
	for text, want := range map[string]string{
		`model = "82574l"`:                       `QEMU has no model "82574l"; did you mean "82574L"?`,
		``:                                       "has no model",
		"model = \"vmxnet3\"\n netdev = \"usr\"": `did you mean "user"?`,
		"model = \"vmxnet3\"\n netdev = \"wire\"":                 "has no wire",
		"model = \"vmxnet3\"\n netdev = \"wire\"\n wire = \"w1\"": `unknown wire "w1" of interface a; did you mean "w0"?`,
		"model = \"vmxnet3\"\n tap = \"t0\"":                      "tap",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
