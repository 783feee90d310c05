// Package drivertest is the conformance kit: what every driver has to do, whatever
// its device, as checks that run against any bus.
//
// A [Bench] says which driver, makes devices with a far end to talk to, and says
// what the model or the device can't be made to do. [Run] runs the checks as
// tests, [Check] as a function that reports. A check fails, passes or is not
// applicable, for a reason that the report has: a feature that the device does not
// offer, or something that the bench lacks.
//
// What lives here is the checks and what they share: the bench, the report, the
// quirk linter (what a driver declares against what its device was seen to do),
// faults between driver and device, and the engine with a port of the kit's on
// top. [Stuck] is a driver for tests of what runs above drivers. The rig below, which
// owns memory and buffers, is package rig; benches for the models that come with nicd
// are package simbench.
package drivertest

import (
	"strings"
	"time"

	"nicd/bus"
	"nicd/framework"
	"nicd/framework/drivertest/rig"
)

// Bench is a driver and a way to make devices for it. The fields up to Open are
// needed.
type Bench struct {
	// Name says what is on the bench: "vmxnet3 revision 4 on sim".
	Name   string
	Driver framework.Driver
	// Open makes a device in its power-on state with a far end, the link up, as
	// the setup asks. Several may be open at a time. A setup that asks for what
	// the bench lacks does not come.
	Open func(Setup) (*rig.Station, error)

	// Lacks says of what the bench can't do why not. What is not in it, the bench
	// can do.
	Lacks map[Ability]string
	// Excused says of checks, by name ("tso.ipv4") or category ("tso"), why the
	// device can't pass them though it offers the feature: a model's own mistakes.
	Excused map[string]string
	// Memory makes memory that the device can access; nil is heap memory, for
	// models in this process.
	Memory func(size int) (*bus.Memory, error)
	// Quirks overrides what the driver declares.
	Quirks map[string]string
	// Select chooses checks by name; nil takes all.
	Select func(name string) bool
	// Quick takes fewer turns where a check takes a thousand.
	Quick bool
	// Patience is how long a check may wait for all that it waits for; 0 is a
	// minute or more.
	Patience time.Duration
	// Progress, if not nil, is told of each check that has ended.
	Progress func(Result)
}

// Setup is how a device and the wire behind it are to behave. The zero value is
// an ordinary device on a wire without losses.
type Setup struct {
	// NoFlowControl: frames for which there is no buffer are dropped. Otherwise
	// the far end waits, if the bench has FlowControl.
	NoFlowControl bool
	// PeerLimit is how many frames the far end takes before it has no room; 0 is
	// any number.
	PeerLimit int

	// Every so-manieth frame (0: none) ...
	BadFrameEvery    int // arrives with a bad frame check sequence (BadFrames)
	BadLengthEvery   int // has a nonsensical length in its descriptor (BadLengths)
	SkipEvery        int // comes after a descriptor that is passed over (SkippedSlots)
	EmptyEvery       int // comes after a completion of nothing (EmptyBuffers)
	EmptyInsideEvery int // of several buffers has an empty one inside (EmptyBuffers)

	// LengthOnlyLRO: a merged packet is a longer packet and nothing else tells
	// (LengthOnlyLRO).
	LengthOnlyLRO bool
}

// Ability is something that a bench can do.
type Ability string

// Abilities.
const (
	FlowControl   Ability = "flow-control"    // the far end waits for a receiver without buffers
	Drops         Ability = "drops"           // frames without a buffer are dropped (Setup.NoFlowControl)
	LinkControl   Ability = "link-control"    // Station.SetLink
	WireFaults    Ability = "wire-faults"     // Station.SetFaults
	Unplug        Ability = "unplug"          // Station.Unplug
	Hang          Ability = "hang"            // Station.Hang
	ModeChange    Ability = "mode-change"     // Station.SetMode
	BadFrames     Ability = "bad-frames"      // Setup.BadFrameEvery
	BadLengths    Ability = "bad-lengths"     // Setup.BadLengthEvery
	SkippedSlots  Ability = "skipped-slots"   // Setup.SkipEvery
	EmptyBuffers  Ability = "empty-buffers"   // Setup.EmptyEvery and EmptyInsideEvery
	MergedFrames  Ability = "merged-frames"   // the device merges what the far end sends as a TSO frame
	SizedLRO      Ability = "sized-lro"       // merged packets say the size of their segments
	LengthOnlyLRO Ability = "length-only-lro" // Setup.LengthOnlyLRO
	VerifiesV6    Ability = "verifies-ipv6"   // the device verifies checksums over IPv6
	TwoDevices    Ability = "two-devices"     // two stations open at a time
	// FarEnd: Station.Peer sends and sees frames. A check that turns out to need
	// one, or a link that does not come up without, is not applicable.
	FarEnd Ability = "far-end"
)

// excuse is why a check is not applicable, if it is not.
func (b *Bench) excuse(k *check) (why string, excused bool) {
	for _, a := range k.needs {
		if why, lacks := b.Lacks[a]; lacks {
			return why, true
		}
	}
	if why, excused = b.Excused[k.name]; excused {
		return why, true
	}
	category, _, _ := strings.Cut(k.name, ".")
	why, excused = b.Excused[category]
	return why, excused
}
