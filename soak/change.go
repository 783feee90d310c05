package soak

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"nicd/daemon"
)

// change is something to set on one or several interfaces, one after another.
type change struct {
	interfaces []string
	settings   []daemon.Assignment
}

func (c change) String() string {
	var settings []string
	for _, s := range c.settings {
		settings = append(settings, s.String())
	}
	return strings.Join(c.interfaces, ",") + " " + strings.Join(settings, " ")
}

// kind is what the change is about.
func (c change) kind() string { return c.settings[0].Name }

// nics are the interfaces, and what their devices can do.
var nics = []struct {
	name   string
	lro    []string // words for lro=
	queues int
}{
	{"vmx0", []string{"on", "off", "software", "hardware", "hybrid"}, 4},
	{"em0", []string{"on", "off", "software"}, 2},
	{"left", []string{"on", "off", "software"}, 2},
	{"in", []string{"on", "off", "software", "hardware", "hybrid"}, 4},
	{"out", []string{"on", "off", "software"}, 2},
	{"right", []string{"on", "off", "software", "hardware", "hybrid"}, 4},
}

// networks are interfaces whose MTU has to be the same.
var networks = [][]string{{"vmx0", "em0"}, {"left", "in", "out", "right"}}

// pick draws a change. LRO is what this is about, so it is drawn most often.
//
// Some changes rest on others: a device can merge only if it verifies checksums, and
// nobody can segment who does not fill them in. So the one is asked for together
// with the other.
func pick(random *rand.Rand) change {
	n := nics[random.IntN(len(nics))]
	one := func(name, value string, more ...daemon.Assignment) change {
		return change{[]string{n.name}, append([]daemon.Assignment{{Name: name, Value: value}}, more...)}
	}
	choose := func(values ...string) string { return values[random.IntN(len(values))] }
	switch random.IntN(10) {
	case 0, 1, 2, 3:
		value := choose(n.lro...)
		if value == "off" || value == "software" {
			return one("lro", value)
		}
		return one("lro", value, daemon.Assignment{Name: "rx-csum", Value: "on"})
	case 4, 5:
		network := networks[random.IntN(len(networks))]
		return change{network, []daemon.Assignment{{Name: "mtu", Value: choose("1500", "9000")}}}
	case 6:
		value := choose("on", "off", "software")
		if value == "off" {
			return one("tso", value)
		}
		return one("tso", value, daemon.Assignment{Name: "tx-csum", Value: "on"})
	case 7:
		return one(choose("tx-csum", "rx-csum"), choose("on", "off"))
	case 8:
		return one("queues", fmt.Sprint(1+random.IntN(n.queues)))
	}
	return one("promisc", choose("on", "off"))
}
