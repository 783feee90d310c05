package config

import (
	"reflect"
	"strings"
	"testing"
)

const twoPorts = `
wire "w0" {}
wire "w1" {}
interface "a" {
  driver = "vmxnet3"
  device "sim" {
    model = "vmxnet3"
    wire = "w0"
  }
  PORT A
}
interface "b" {
  driver = "vmxnet3"
  device "sim" {
    model = "vmxnet3"
    wire = "w1"
  }
  PORT B
}
`

func parsePorts(a, b string) (*Config, error) {
	text := strings.NewReplacer("PORT A", a, "PORT B", b).Replace(twoPorts)
	return Parse("n.hcl", []byte(text), Vocabulary{Drivers: []string{"vmxnet3"}})
}

func TestPorts(t *testing.T) {
	for _, c := range []struct {
		a, b         string
		wantA, wantB Port
	}{
		{`port "tap" { }`, `port "tap" { name = "eth7" }`, Port{TAP: &TAPPort{Name: "a"}}, Port{TAP: &TAPPort{Name: "eth7"}}},
		{`port "tap" { fd = 3 }`, `port "tap" { fd = [4, 5] }`, Port{TAP: &TAPPort{Name: "a", FDs: []int{3}}}, Port{TAP: &TAPPort{Name: "b", FDs: []int{4, 5}}}},
		{`port "forward" { bridge = "br0" }`, `port "forward" { bridge = "br0" }`, Port{Forward: &ForwardPort{"br0"}}, Port{Forward: &ForwardPort{"br0"}}},
	} {
		got, err := parsePorts(c.a, c.b)
		if err != nil {
			t.Errorf("%s, %s: %v", c.a, c.b, err)
			continue
		}
		for i, want := range []Port{c.wantA, c.wantB} {
			port := got.Interfaces[i].Port
			port.Origin = Origin{}
			if !reflect.DeepEqual(port, want) {
				t.Errorf("%+v, want %+v", port, want)
			}
		}
	}
}

func TestPortsThatClash(t *testing.T) {
	for _, c := range []struct{ a, b, want string }{
		{`port "tap" { name = "eth7" }`, `port "tap" { name = "eth7" }`, "interface b has the Linux interface eth7 of interface a"},
		{`port "tap" { }`, `port "tap" { name = "a" }`, "interface b has the Linux interface a of interface a"},
		{`port "tap" { fd = 3 }`, `port "tap" { fd = [4, 3] }`, "interface b has descriptor 3 of interface a"},
		{`port "forward" { bridge = "br0" }`, `port "forward" { bridge = "br1" }`, `bridge "br0" has one port only`},
		{`port "sink" { }`, `port "taps" { }`, `unknown port "taps" of interface b; did you mean "tap"?`},
	} {
		if _, err := parsePorts(c.a, c.b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %s: %v; want %q", c.a, c.b, err, c.want)
		}
	}
}
