// Package simbench has benches of package drivertest for the device models that
// come with nicd: every revision of the vmxnet3, and the parts of the e1000
// family. Any driver for these devices can be put on them.
package simbench

import (
	"fmt"
	"slices"
	"strings"

	"nicd/bus"
	"nicd/framework"
	"nicd/framework/drivertest"
	"nicd/framework/drivertest/rig"
	"nicd/sim"
	"nicd/sim/e1000"
	"nicd/sim/vmxnet3"
)

// Options are a bench's settings. The zero value works.
type Options struct {
	// Shared keeps all memory that driver and device share in memfds, as it is
	// between processes; otherwise it is on the Go heap, where the race detector
	// sees it.
	Shared bool
}

// Models are the names of the models that a driver drives, by its device ids.
func Models(d framework.Driver) (names []string) {
	for _, m := range models {
		if slices.ContainsFunc(d.Describe().IDs, func(id framework.DeviceID) bool { return id.Vendor == m.vendor && id.Device == m.device }) {
			names = append(names, m.name)
		}
	}
	return names
}

// New is a bench with a driver on the model of a name.
func New(d framework.Driver, model string, o Options) (drivertest.Bench, error) {
	i := slices.IndexFunc(models, func(m modelEntry) bool { return strings.EqualFold(m.name, model) })
	if i < 0 {
		var names []string
		for _, m := range models {
			names = append(names, m.name)
		}
		return drivertest.Bench{}, fmt.Errorf("there is no model %q; there are %s", model, strings.Join(names, ", "))
	}
	m := models[i]
	b := drivertest.Bench{
		Name: d.Describe().Name + " on sim " + m.name, Driver: d, Lacks: m.lacks(),
		Open: func(s drivertest.Setup) (*rig.Station, error) {
			return rig.NewStation(m.make(s), rig.SimOptions{
				Wire: sim.WireOptions{NoFlowControl: s.NoFlowControl}, Limit: s.PeerLimit, MemoryDoorbells: o.Shared,
			})
		},
	}
	if o.Shared {
		b.Memory = func(size int) (*bus.Memory, error) { return bus.NewMemory("conformance", size) }
	}
	return b, nil
}

type modelEntry struct {
	name           string
	vendor, device uint16
	make           func(drivertest.Setup) sim.Model
	lacks          func() map[drivertest.Ability]string
}

var models = []modelEntry{
	vmxnet3Model(1), vmxnet3Model(2), vmxnet3Model(3), vmxnet3Model(4),
	e1000Model(e1000.I82540EM), e1000Model(e1000.I82545EM), e1000Model(e1000.I82544GC), e1000Model(e1000.I82574L),
}

func vmxnet3Model(revision int) modelEntry {
	return modelEntry{
		name: fmt.Sprintf("vmxnet3-%d", revision), vendor: 0x15AD, device: 0x07B0,
		make: func(s drivertest.Setup) sim.Model {
			v := vmxnet3.Variations{
				SkipEvery: s.SkipEvery, ZeroLengthEvery: s.EmptyEvery, ZeroLengthBodyEvery: s.EmptyInsideEvery,
				BadFrameEvery: s.BadFrameEvery, BadLengthEvery: s.BadLengthEvery,
			}
			if s.LengthOnlyLRO {
				v.LRO = vmxnet3.LROLengthOnly
			}
			return vmxnet3.New(vmxnet3.Options{Revision: revision, Variations: v})
		},
		lacks: func() map[drivertest.Ability]string {
			l := map[drivertest.Ability]string{}
			if revision == 1 {
				l[drivertest.SizedLRO] = "revision 1 does not tell the size of merged segments"
			}
			return l
		},
	}
}

func e1000Model(kind e1000.Kind) modelEntry {
	id := e1000.New(e1000.Options{Kind: kind}).Identity()
	return modelEntry{
		name: kind.String(), vendor: id.Vendor, device: id.Device,
		make: func(s drivertest.Setup) sim.Model {
			return e1000.New(e1000.Options{Kind: kind, Variation: e1000.Variation{
				BadFrameEvery: s.BadFrameEvery, BadLengthEvery: s.BadLengthEvery,
			}})
		},
		lacks: func() map[drivertest.Ability]string {
			const never = "no part of the e1000 family merges segments"
			l := map[drivertest.Ability]string{
				drivertest.SkippedSlots:  "the e1000 family uses its receive descriptors in order, all of them",
				drivertest.EmptyBuffers:  "the e1000 model completes no descriptor without data but those of BadLengths",
				drivertest.MergedFrames:  never,
				drivertest.SizedLRO:      never,
				drivertest.LengthOnlyLRO: never,
				drivertest.ModeChange:    "the e1000 family has one mode",
			}
			if kind != e1000.I82574L {
				l[drivertest.VerifiesV6] = "the 8254x verify no checksums over IPv6"
			}
			return l
		},
	}
}
