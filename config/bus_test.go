package config

import (
	"errors"
	"strings"
	"testing"
)

// busConfig is a config with a bus, and an interface for each device named.
func busConfig(bus string, devices ...string) string {
	text := "wire \"w0\" {}\n" + bus + "\n"
	for i, d := range devices {
		text += "interface \"" + string(rune('a'+i)) + "\" {\n  driver = \"x\"\n  device = \"" + d + "\"\n  port \"sink\" {}\n}\n"
	}
	return text
}

func parseBus(text string) (*Config, error) {
	return Parse("/etc/nicd.hcl", []byte(text), Vocabulary{Drivers: []string{"x"}})
}

func TestBusDevices(t *testing.T) {
	c, err := parseBus(busConfig(`bus "qemu" "lab" {
  program = "./q"
  netdev  = "wire"
  wire    = "w0"
  device "one" {
    model = "82574L"
    mac   = "02:00:00:00:00:07"
  }
  device "two" {
    model  = "82574L"
    netdev = "tap"
    tap    = "t0"
  }
  device "82540EM" { netdev = "user" }
  device "foreign" {
    model  = "pci:virtio-net-pci"
    netdev = "user"
  }
  device "spare" {
    model  = "82544GC"
    netdev = "dgram"
    local  = "l"
    remote = "/r"
  }
}
bus "qemu" "other" {}`, "qemu:lab/one", "qemu:lab/two", "qemu:lab/82540EM", "qemu:lab/vmxnet3", "qemu:other/vmxnet3"))
	if err != nil {
		t.Fatal(err)
	}
	if b := c.Buses[0]; b.Name != "lab" || b.Program != "/etc/q" || len(b.Devices) != 6 || c.Buses[1].Program != "" {
		t.Errorf("buses %+v", c.Buses)
	}
	macs := map[string]bool{}
	for n, want := range []struct {
		bus, model string
		network    Network
	}{
		{"lab", "82574L", Network{Netdev: NetdevWire, Wire: "w0"}},
		{"lab", "82574L", Network{Netdev: NetdevTAP, TAP: "t0"}},
		{"lab", "82540EM", Network{Netdev: NetdevUser}},
		{"lab", "vmxnet3", Network{Netdev: NetdevWire, Wire: "w0"}},
		{"other", "vmxnet3", Network{Netdev: NetdevUser}},
	} {
		a := c.Interfaces[n].Device.QEMU
		b, q := c.QEMUDevice(*a)
		if b.Name != want.bus || q.Model != want.model || q.Network != want.network || q.MAC[0] != 2 || a.String() != "qemu:"+b.Name+"/"+q.Name {
			t.Errorf("%s: %+v on %s, want %+v", a, q, b.Name, want)
		}
		macs[q.MAC.String()] = true
	}
	if len(macs) != 5 || !macs["02:00:00:00:00:07"] {
		t.Errorf("addresses %v", macs)
	}
	if _, q := c.QEMUDevice(QEMUAddress{"lab", "spare"}); q == nil || q.Network != (Network{Netdev: NetdevDgram, Local: "/etc/l", Remote: "/r"}) {
		t.Errorf("spare %+v", q)
	}
}

func TestBusMistakes(t *testing.T) {
	const plain = `bus "qemu" "lab" {}`
	for _, c := range []struct {
		bus     string
		devices []string
		line    int
		want    string
	}{
		{`bus "lab" {}`, []string{"qemu:lab/vmxnet3"}, 2, `write bus "qemu" "NAME" {`},
		{`bus "qem" "lab" {}`, []string{"qemu:lab/vmxnet3"}, 2, `unknown kind of bus "qem"; did you mean "qemu"?`},
		{plain + "\n" + plain, []string{"qemu:lab/vmxnet3"}, 3, `a second bus "lab"; the first is on line 2`},
		{`bus "qemu" "a b" {}`, []string{"qemu:lab/vmxnet3"}, 2, `name "a b" of bus`},
		{"bus \"qemu\" \"lab\" {\n netdv = \"user\"\n}", []string{"qemu:lab/vmxnet3"}, 3, `unknown attribute "netdv" in bus "qemu" "lab"; did you mean "netdev"?`},
		{"bus \"qemu\" \"lab\" {\n netdev = \"usr\"\n}", []string{"qemu:lab/vmxnet3"}, 3, `did you mean "user"?`},
		{"bus \"qemu\" \"lab\" {\n tap = \"t0\"\n}", []string{"qemu:lab/vmxnet3"}, 3, `tap is for netdev = "tap"`},
		{"bus \"qemu\" \"lab\" {\n device \"vmxnet3\" {\n local = \"t0\"\n}\n}", []string{"qemu:lab/vmxnet3"}, 4, `local is for netdev = "dgram"`},
		{"bus \"qemu\" \"lab\" {\n netdev = \"tap\"\n tap = \"a/b\"\n}", []string{"qemu:lab/vmxnet3"}, 4, `tap is a Linux interface's`},
		{"bus \"qemu\" \"lab\" {\n device \"82574l\" {}\n}", []string{"qemu:lab/vmxnet3"}, 3, `did you mean "82574L"?`},
		{"bus \"qemu\" \"lab\" {\n device \"a\" { model = \"vmxnet\" }\n}", []string{"qemu:lab/a"}, 3, `QEMU has no model "vmxnet"; did you mean "vmxnet3"?`},
		{"bus \"qemu\" \"lab\" {\n device \"vmxnet3\" {}\n device \"vmxnet3\" {}\n}", []string{"qemu:lab/vmxnet3"}, 4, `a second device "vmxnet3"; the first is on line 3`},
		{"bus \"qemu\" \"lab\" {\n netdev = \"wire\"\n}", []string{"qemu:lab/vmxnet3"}, 7, `device vmxnet3 of bus lab has netdev "wire" and no wire`},
		{"bus \"qemu\" \"lab\" {\n netdev = \"wire\"\n wire = \"w1\"\n}", []string{"qemu:lab/vmxnet3"}, 4, `unknown wire "w1" of device vmxnet3 of bus lab; did you mean "w0"?`},
		{"bus \"qemu\" \"lab\" {\n device \"vmxnet3\" {\n netdev = \"dgram\"\n local = \"l\"\n}\n}", []string{"qemu:lab/vmxnet3"}, 3, `has netdev "dgram" and no remote`},
		{"bus \"qemu\" \"lab\" {\n netdev = \"tap\"\n tap = \"t0\"\n}", []string{"qemu:lab/vmxnet3", "qemu:lab/82574L"}, 4, `interface b has the Linux interface t0 of interface a; say another in device "82574L" { } of bus lab`},
		{"", []string{"qemu:lab/vmxnet3"}, 5, `there is no bus "lab" for interface a; write bus "qemu" "lab" { } beside it`},
		{plain, []string{"qemu:lap/vmxnet3"}, 5, `unknown bus "lap" of interface a; did you mean "lab"?`},
		{plain, []string{"qemu:lab/vmxnet"}, 5, `bus lab has no device "vmxnet" for interface a, and it is no model of QEMU's; did you mean "vmxnet3"?`},
		{plain, []string{"qemu:lab/pci:virtio-net-pci"}, 5, `takes a block in bus lab: device "NAME" { model = "pci:virtio-net-pci" }`},
		{plain, []string{"qemu:lab/vmxnet3", "qemu:lab/vmxnet3"}, 10, `device "NAME" { model = "vmxnet3" }`},
		{plain, []string{"qemu:lab"}, 5, `such as "qemu:BUS/DEVICE"`},
		{plain, []string{"vfio:0000:03:00.0"}, 5, `write device "vfio" { }`},
		{"bus \"qemu\" \"lab\" {\n device \"f\" { model = \"vmxnet3\" }\n}",
			[]string{"qemu:lab/vmxnet3", "qemu:lab/82540EM", "qemu:lab/82545EM", "qemu:lab/82544GC", "qemu:lab/f"}, 27, `bus lab has at most 4 devices, and that of interface e is one more`},
		{"interface \"z\" {\n driver = \"x\"\n device \"qemu\" {}\n port \"sink\" {}\n}", nil, 4, `write bus "qemu" "NAME" { } beside the interface`},
		{"interface \"z\" {\n driver = \"x\"\n device = \"qemu:lab/vmxnet3\"\n device \"vfio-user\" { socket = \"s\" }\n port \"sink\" {}\n}", nil, 4, `has two devices, this and a block`},
		{"interface \"z\" {\n driver = \"x\"\n device = 3\n port \"sink\" {}\n}", nil, 4, `device is text, not a number`},
	} {
		_, err := parseBus(busConfig(c.bus, c.devices...))
		var all Diagnostics
		if !errors.As(err, &all) {
			t.Errorf("%s %v: %v", c.bus, c.devices, err)
			continue
		}
		if p := all[0]; len(all) != 1 || p.Line != c.line || !strings.Contains(p.Text, c.want) || p.Source == "" {
			t.Errorf("%s %v:\n got %s\nwant line %d, %s", c.bus, c.devices, all.Detail(), c.line, c.want)
		}
	}
}
