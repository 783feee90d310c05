package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"nicd/framework"
)

// This file is about settings that are given one by one to an interface that
// runs: "mtu=9000 lro=off", what `nicd set` takes.

// setting is something of an interface that can be set by name.
type setting struct {
	name string
	set  func(i *Interface, value string) error
}

// settable are the settings besides features and quirks.
var settable = []setting{
	{"mtu", integer(minMTU, maxMTU, func(i *Interface) []*int { return []*int{&i.MTU} })},
	{"queues", integer(1, maxQueues, func(i *Interface) []*int { return []*int{&i.RxQueues, &i.TxQueues} })},
	{"rx-queues", integer(1, maxQueues, func(i *Interface) []*int { return []*int{&i.RxQueues} })},
	{"tx-queues", integer(1, maxQueues, func(i *Interface) []*int { return []*int{&i.TxQueues} })},
	{"rx-descriptors", integer(8, maxDescriptors, func(i *Interface) []*int { return []*int{&i.RxDescriptors} })},
	{"tx-descriptors", integer(8, maxDescriptors, func(i *Interface) []*int { return []*int{&i.TxDescriptors} })},
	{"rx-budget", integer(1, maxBudget, func(i *Interface) []*int { return []*int{&i.RxBudget} })},
	{"spin", pause(time.Second, func(i *Interface) *time.Duration { return &i.Spin })},
	{"moderation", pause(maxModeration, func(i *Interface) *time.Duration { return &i.Moderation })},
	{"tx-handoff", func(i *Interface, value string) error { return i.setTxHandoff(TxHandoff(value)) }},
	{"promisc", func(i *Interface, value string) (err error) { i.Promiscuous, err = onOff(value); return err }},
}

// SettingNames are the names that Interface.Set knows, without quirks.
func SettingNames() []string {
	var names []string
	for _, s := range settable {
		names = append(names, s.name)
	}
	return append(names, framework.FeatureNames()...)
}

// Set changes one setting of the interface, by name: one of SettingNames, or a
// quirk's. The origin stands in the chain of reasons of features and quirks. Values
// are checked as far as the config's are; what the device makes of them is seen
// when it is asked. On error i is as it was.
//
// lro takes, besides on, off and software, hardware and hybrid: those three name
// the owner (quirk lro-owner); on leaves the owner to the config and the driver.
func (i *Interface) Set(name, value, origin string) error {
	name = strings.ReplaceAll(name, "_", "-")
	next := *i
	next.Features, next.Quirks = slices.Clone(i.Features), slices.Clone(i.Quirks)
	if err := next.set(name, value, origin); err != nil {
		return fmt.Errorf("%s=%s: %w", name, value, err)
	}
	*i = next
	return nil
}

func (i *Interface) set(name, value, origin string) error {
	if n := slices.IndexFunc(settable, func(s setting) bool { return s.name == name }); n >= 0 {
		if err := settable[n].set(i, value); err != nil {
			return err
		}
		return i.checkMTU()
	}
	if f, ok := framework.ParseFeature(name); ok {
		return i.setFeature(f, value, origin)
	}
	if q := framework.LookupQuirk(name); q != nil {
		if err := q.Check(value); err != nil {
			return err
		}
		i.setQuirk(name, value, origin)
		return nil
	}
	if n := nearest(name, append(SettingNames(), quirkNames(i.Driver)...)); n != "" {
		return fmt.Errorf("there is no such setting; did you mean %q?", n)
	}
	return fmt.Errorf("there is no such setting; there are %s, and quirks (nicd quirks lists them)", strings.Join(SettingNames(), ", "))
}

// checkMTU: what the config's check says of IPv6 holds here as well.
func (i *Interface) checkMTU() error {
	if n := i.Port.Netstack; n != nil && i.MTU < minIPv6MTU {
		for _, p := range n.Addresses {
			if p.Addr().Is6() {
				return fmt.Errorf("interface %s has an IPv6 address, which needs %d (RFC 8200 section 5)", i.Name, minIPv6MTU)
			}
		}
	}
	return nil
}

// owners are the words of lro= that name an owner.
var owners = map[string]framework.LROOwner{
	"software": framework.LROSoftware, "hardware": framework.LROHardwareOnly, "hybrid": framework.LROHybrid,
}

func (i *Interface) setFeature(f framework.Features, value, origin string) error {
	want := framework.WantOn
	owner, owned := owners[value]
	switch {
	case value == "on":
	case value == "off":
		want = framework.WantOff
	case f == framework.LRO && owned:
	case value == "software" && framework.SoftwareFeatures.Has(f):
		want = framework.WantSoftware
	case f == framework.LRO:
		return fmt.Errorf("it is on, off, software, hardware or hybrid")
	case framework.SoftwareFeatures.Has(f):
		return fmt.Errorf("it is on, off or software")
	default:
		return fmt.Errorf("it is on or off")
	}
	if f == framework.LRO {
		i.dropQuirk(framework.LROOwnerQuirk.Info().Name, origin)
		if owned {
			i.setQuirk(framework.LROOwnerQuirk.Info().Name, owner.String(), origin)
		}
	}
	i.Features = slices.DeleteFunc(i.Features, func(s framework.FeatureSetting) bool {
		return s.Origin == origin && f.Has(s.Features)
	})
	i.Features = append(i.Features, framework.FeatureSetting{Features: f, Want: want, Origin: origin})
	return nil
}

func (i *Interface) setQuirk(name, value, origin string) {
	i.dropQuirk(name, origin)
	i.Quirks = append(i.Quirks, framework.QuirkSetting{Name: name, Value: value, Origin: origin})
}

func (i *Interface) dropQuirk(name, origin string) {
	i.Quirks = slices.DeleteFunc(i.Quirks, func(q framework.QuirkSetting) bool { return q.Name == name && q.Origin == origin })
}

func (i *Interface) setTxHandoff(h TxHandoff) error {
	if h != Abdicate && h != Inline {
		return fmt.Errorf("it is %s or %s", Abdicate, Inline)
	}
	i.TxHandoff = h
	return nil
}

func integer(least, most int, fields func(*Interface) []*int) func(*Interface, string) error {
	return func(i *Interface, value string) error {
		n, err := strconv.Atoi(value)
		if err != nil || n < least || n > most {
			return fmt.Errorf("it is a whole number from %d to %d", least, most)
		}
		for _, f := range fields(i) {
			*f = n
		}
		return nil
	}
}

func pause(most time.Duration, field func(*Interface) *time.Duration) func(*Interface, string) error {
	return func(i *Interface, value string) error {
		t, err := time.ParseDuration(value)
		if err != nil || t < 0 || t > most {
			return fmt.Errorf("it is a time from 0s to %v such as 50us", most)
		}
		*field(i) = t
		return nil
	}
}

func onOff(value string) (bool, error) {
	if value != "on" && value != "off" {
		return false, fmt.Errorf("it is on or off")
	}
	return value == "on", nil
}
