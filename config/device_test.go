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
