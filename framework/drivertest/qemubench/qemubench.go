// Package qemubench has benches of package drivertest for QEMU's device models,
// which this project did not write: vmxnet3 of revision 1, and the e1000 family.
//
// What the models can't do is said in Bench.Lacks; how they differ from ours is in
// docs/devices.md.
package qemubench

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"nicd/bus/qemu"
	"nicd/framework"
	"nicd/framework/drivertest"
	"nicd/framework/drivertest/rig"
)

// Options are a bench's settings. The zero value works.
type Options struct {
	Program string // the QEMU; the one in the path if empty
}

type modelEntry struct {
	name           string
	vendor, device uint16
	lacks          map[drivertest.Ability]string
	excused        map[string]string
}

const (
	neverHangs  = "QEMU's models do not hang"
	rightOnly   = "QEMU's models deliver good frames only"
	noFaults    = "QEMU's models complete descriptors in order, with right lengths and with data"
	neverMerges = "no part of the e1000 family merges segments"
	byTAPOnly   = "QEMU's vmxnet3 merges only what a TAP device gives it merged"
	looksAtNone = "QEMU's model looks at no received checksum"
	oneMode     = "QEMU's models have one mode"

	cutsToIP  = "QEMU before 8.0 makes IP fragments of TSO frames"
	emptyTail = "QEMU ends a TSO frame of full segments only with an empty one"
	notSpread = "QEMU's vmxnet3 does not implement RSS"
	kept      = "frames that come while the device is stopped wait in QEMU's network and arrive later"
	anyHash   = "QEMU's e1000 family looks up unicast addresses in the multicast table as well"
	noPausing = "QEMU's vmxnet3 drops frames without a buffer, and the check counts on all"
	tooFew    = "QEMU's e1000 drops a frame for which there are descriptors, but too few"
	notKnown  = "what QEMU's model does there is not known"
	underWay  = "an interrupt that is under way from QEMU may arrive after its vector was masked"
)

// excuses joins maps.
func excuses(all ...map[string]string) map[string]string {
	joined := map[string]string{}
	for _, m := range all {
		for name, why := range m {
			joined[name] = why
		}
	}
	return joined
}

func because(why string, names ...string) map[string]string {
	m := map[string]string{}
	for _, n := range names {
		m[n] = why
	}
	return m
}

// unverified are the checks that want verdicts on checksums.
func unverified() map[string]string {
	return because(looksAtNone, "checksum.good", "checksum.bad", "checksum.off", "toggle.plan", "quirk.metadata-on", "quirk.checksum-trust")
}

// waiting are the checks in which a frame is sent to a device that is stopped.
func waiting() map[string]string {
	return because(kept, "attach.bus-error", "attach.quiet", "detach.quiet", "start.bus-error", "start.no-memory", "stop.quiet", "stop.loaded")
}

// lacks is what all models lack, and more.
func lacks(more map[drivertest.Ability]string) map[drivertest.Ability]string {
	all := map[drivertest.Ability]string{
		drivertest.Hang: neverHangs, drivertest.BadFrames: rightOnly, drivertest.BadLengths: noFaults,
		drivertest.SkippedSlots: noFaults, drivertest.EmptyBuffers: noFaults, drivertest.ModeChange: oneMode,
	}
	for a, why := range more {
		all[a] = why
	}
	return all
}

func pci(name string, device uint16) modelEntry {
	return modelEntry{name, 0x8086, device, lacks(map[drivertest.Ability]string{
		drivertest.MergedFrames: neverMerges, drivertest.SizedLRO: neverMerges, drivertest.LengthOnlyLRO: neverMerges,
		drivertest.VerifiesV6: looksAtNone,
		drivertest.Drops:      "QEMU's e1000 family leaves frames without a buffer with its network",
	}), excuses(unverified(), because(emptyTail, "tso"), because(anyHash, "filter.full"), because(underWay, "interrupt.masked"),
		because(tooFew, "starve.port"))}
}

var models = []modelEntry{
	{"vmxnet3", 0x15AD, 0x07B0, lacks(map[drivertest.Ability]string{
		drivertest.MergedFrames: byTAPOnly, drivertest.SizedLRO: byTAPOnly, drivertest.LengthOnlyLRO: byTAPOnly,
		drivertest.VerifiesV6:  looksAtNone,
		drivertest.FlowControl: "QEMU's vmxnet3 drops frames without a buffer",
	}), excuses(unverified(), because(cutsToIP, "tso", "quirk.tso-min-link"), because(notSpread, "rss", "start.queues", "start.vectors"),
		because(noPausing, "starve.dropped"), because(underWay, "interrupt.masked"))},
	pci("82540EM", 0x100E), pci("82545EM", 0x100F), pci("82544GC", 0x100C),
	{"82574L", 0x8086, 0x10D3, lacks(map[drivertest.Ability]string{
		drivertest.MergedFrames: neverMerges, drivertest.SizedLRO: neverMerges, drivertest.LengthOnlyLRO: neverMerges,
		drivertest.Drops: "QEMU's e1000 family leaves frames without a buffer with its network",
	}), excuses(because(cutsToIP, "tso", "quirk.tso-min-link"), because(anyHash, "filter.full"), because(underWay, "interrupt.masked"))},
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

// here is what is excused where the kit itself is QEMU's network. The e1000 family
// leaves frames for a device that is stopped there.
func (m *modelEntry) here() map[string]string {
	if m.name == "vmxnet3" {
		return m.excused
	}
	return excuses(m.excused, waiting())
}

// Excuses are the checks, by name or category, that the model of a name can't pass
// wherever its network leads, and why; nil if there is no such model.
func Excuses(model string) map[string]string {
	for _, m := range models {
		if m.name != model {
			continue
		}
		all := excuses(m.excused)
		if why, lacks := m.lacks[drivertest.VerifiesV6]; lacks {
			all["checksum.good-ipv6"] = why
		}
		return all
	}
	return nil
}

// other is a model of which nothing is known here but that it is one of QEMU's.
func other(name string) modelEntry {
	return modelEntry{name, 0, 0, lacks(map[drivertest.Ability]string{
		drivertest.MergedFrames: notKnown, drivertest.SizedLRO: notKnown, drivertest.LengthOnlyLRO: notKnown,
		drivertest.VerifiesV6: notKnown, drivertest.Drops: notKnown,
	}), because(underWay, "interrupt.masked")}
}

// New is a bench with a driver on the model of a name. For one with qemu.OtherModel,
// which no driver here is for, it lacks and excuses what holds of all of QEMU's; its
// maps are the caller's, who knows better, to change.
func New(d framework.Driver, model string, o Options) (drivertest.Bench, error) {
	i := slices.IndexFunc(models, func(m modelEntry) bool { return strings.EqualFold(m.name, model) })
	var m modelEntry
	switch {
	case i >= 0:
		m = models[i]
	case strings.HasPrefix(model, qemu.OtherModel):
		m = other(model)
	default:
		return drivertest.Bench{}, fmt.Errorf("QEMU has no model %q of use here; a driver's author names one as %sNAME", model, qemu.OtherModel)
	}
	return drivertest.Bench{
		Name: d.Describe().Name + " on QEMU " + m.name, Driver: d, Lacks: m.lacks, Excused: m.here(), Memory: rig.SharedMemory,
		Open: func(s drivertest.Setup) (*rig.Station, error) {
			ctx, cancel := context.WithTimeout(context.Background(), rig.Deadline)
			defer cancel()
			return rig.NewQEMUStation(ctx, rig.QEMUOptions{
				Model: m.name, MAC: rig.MAC, Program: o.Program, NoFlowControl: s.NoFlowControl, Limit: s.PeerLimit,
			})
		},
	}, nil
}
