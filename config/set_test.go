package config

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"nicd/framework"
)

func settableInterface() Interface {
	return Interface{
		Name: "vmx0", Driver: "vmxnet3", MTU: 1500,
		Port:     Port{Netstack: &NetstackPort{Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}}},
		Features: []framework.FeatureSetting{{Features: framework.LRO, Want: framework.WantOn, Origin: "n.hcl:5: interface vmx0"}},
		Quirks:   []framework.QuirkSetting{{Name: "bell-delay", Value: "5", Origin: "n.hcl:9: interface vmx0"}},
	}
}

func TestSet(t *testing.T) {
	for _, test := range []struct {
		set  string // in this order
		want func(*Interface)
	}{
		{"mtu=9000", func(i *Interface) { i.MTU = 9000 }},
		{"queues=2", func(i *Interface) { i.RxQueues, i.TxQueues = 2, 2 }},
		{"rx-queues=3 tx_queues=1", func(i *Interface) { i.RxQueues, i.TxQueues = 3, 1 }},
		{"rx-descriptors=64 tx-descriptors=128", func(i *Interface) { i.RxDescriptors, i.TxDescriptors = 64, 128 }},
		{"rx-budget=16 spin=50us moderation=100us", func(i *Interface) {
			i.RxBudget, i.Spin, i.Moderation = 16, 50*time.Microsecond, 100*time.Microsecond
		}},
		{"tx-handoff=inline", func(i *Interface) { i.TxHandoff = Inline }},
		{"tx-handoff=inline tx-handoff=abdicate", func(i *Interface) { i.TxHandoff = Abdicate }},
		{"promisc=on", func(i *Interface) { i.Promiscuous = true }},
		{"promisc=on promisc=off", func(*Interface) {}},
		{"tso=off", func(i *Interface) { wants(i, framework.TSO4|framework.TSO6, framework.WantOff) }},
		{"tso4=off tso=software", func(i *Interface) { wants(i, framework.TSO4|framework.TSO6, framework.WantSoftware) }},
		{"rx-csum=off rx-csum=on", func(i *Interface) { wants(i, framework.RxChecksum, framework.WantOn) }},
		{"lro=off", func(i *Interface) { wants(i, framework.LRO, framework.WantOff) }},
		{"lro=off lro=on", func(i *Interface) { wants(i, framework.LRO, framework.WantOn) }},
		{"lro=hardware", func(i *Interface) { wants(i, framework.LRO, framework.WantOn); owner(i, "hardware-only") }},
		{"lro=software", func(i *Interface) { wants(i, framework.LRO, framework.WantOn); owner(i, "software") }},
		{"lro=software lro=hybrid", func(i *Interface) { wants(i, framework.LRO, framework.WantOn); owner(i, "hybrid") }},
		{"lro=software lro=on", func(i *Interface) { wants(i, framework.LRO, framework.WantOn) }},
		{"bell-delay=7 bell-delay=8", func(i *Interface) {
			i.Quirks = append(i.Quirks, framework.QuirkSetting{Name: "bell-delay", Value: "8", Origin: "nicd set"})
		}},
	} {
		got, want := settableInterface(), settableInterface()
		for _, s := range strings.Fields(test.set) {
			name, value, _ := strings.Cut(s, "=")
			if err := got.Set(name, value, "nicd set"); err != nil {
				t.Errorf("%s: %v", test.set, err)
			}
		}
		test.want(&want)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v\nwant %+v", test.set, got, want)
		}
	}
}

func wants(i *Interface, f framework.Features, w framework.FeatureWant) {
	i.Features = append(i.Features, framework.FeatureSetting{Features: f, Want: w, Origin: "nicd set"})
}

func owner(i *Interface, who string) {
	i.Quirks = append(i.Quirks, framework.QuirkSetting{Name: "lro-owner", Value: who, Origin: "nicd set"})
}

// TestSetRefuses: a mistake is said with what would be right, and changes nothing.
func TestSetRefuses(t *testing.T) {
	for set, says := range map[string]string{
		"mut=9000":          `did you mean "mtu"?`,
		"mtu=":              "a whole number from 68 to 65535",
		"mtu=67":            "from 68",
		"mtu=9k":            "whole number",
		"queues=0":          "from 1 to 64",
		"spin=5":            "such as 50us",
		"spin=2s":           "from 0s to 1s",
		"promisc=true":      "on or off",
		"tx-handoff=maybe":  "abdicate or inline",
		"lro=maybe":         "on, off, software, hardware or hybrid",
		"tso=hardware":      "on, off or software",
		"rx-csum=software":  "on or off",
		"lro-owner=me":      "lro-owner is one of",
		"lro-owned=none":    `did you mean "lro-owner"?`,
		"test-unknown=none": "there is no such setting",
	} {
		i := settableInterface()
		name, value, _ := strings.Cut(set, "=")
		err := i.Set(name, value, "nicd set")
		if err == nil || !strings.Contains(err.Error(), says) || !strings.HasPrefix(err.Error(), set+": ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", set, err)
		}
		if !reflect.DeepEqual(i, settableInterface()) {
			t.Errorf("%s: refused, and changed something", set)
		}
	}
	i := settableInterface()
	i.Port.Netstack.Addresses = append(i.Port.Netstack.Addresses, netip.MustParsePrefix("fd00::1/64"))
	if err := i.Set("mtu", "1279", ""); err == nil || !strings.Contains(err.Error(), "IPv6") {
		t.Errorf("IPv6 with MTU 1279: %v", err)
	}
}

func TestUnsafeIsAccepted(t *testing.T) {
	src := strings.Replace(base, `lro-owner = "hybrid"`, `metadata-on = "first"`, 1) + "daemon {\n  unsafe = true\n}\n"
	c, err := Parse("n.hcl", []byte(src), mistakeVocabulary)
	if err != nil {
		t.Fatal(err)
	}
	if !c.Daemon.Unsafe || c.Interfaces[0].Quirks[0].Value != "first" {
		t.Errorf("%+v", c)
	}
}
