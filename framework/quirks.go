package framework

// This file is the catalogue of quirks that are not one driver's own.

// LROOwner says who merges received TCP segments.
type LROOwner uint8

// Owners. Never two for one packet: merging what the hardware has merged once
// cost vmxnet3 users 95 % of their throughput (freebsd-net, February 2020).
const (
	LRONone         LROOwner = iota // nobody
	LROSoftware                     // the device does not merge, the engine does
	LROHardwareOnly                 // the device merges; no engine is even constructed
	LROHybrid                       // what the device marked bypasses the engine, the rest goes through it
)

func (o LROOwner) String() string { return LROOwnerQuirk.info.Choices[o] }

// LROOwnerQuirk is the first quirk: who owns LRO.
var LROOwnerQuirk = NewChoiceQuirk(QuirkInfo{
	Name:      "lro-owner",
	Choices:   []string{"none", "software", "hardware-only", "hybrid"},
	Doc:       "Who merges received TCP segments: nobody, the software engine, the device alone, or each what the other left.",
	Reference: "freebsd-net 2020-02, terrible vmxnet3 rx performance with lro (post iflib)",
}, LROSoftware)
