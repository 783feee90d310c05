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

// ContiguousHeadersQuirk: whether a sent packet's headers have to lie in one
// fragment when the device is to look at them.
var ContiguousHeadersQuirk = NewBoolQuirk(QuirkInfo{
	Name:      "contiguous-headers",
	Doc:       "The headers of a packet with a transmit offload must lie in its first fragment; the engine pulls them up.",
	Reference: "OpenBSD vmx(4) c95756fbdbd6; Linux vmxnet3 copies headers to its data ring",
}, false)

// MinFrameQuirk is the shortest frame that the device sends as it is.
var MinFrameQuirk = NewIntQuirk(QuirkInfo{
	Name:      "min-frame",
	Doc:       "Shortest frame in bytes, without FCS, that may be given to the device; the engine pads with zeros. 0 leaves padding to the device.",
	Reference: "iflib IFLIB_NEED_ETHER_PAD; 8254x manual 3.3.3, short packets without PSP",
	Min:       0, Max: 128,
}, 0)

// BellDelayQuirk says how long a transmit bell may wait for company.
var BellDelayQuirk = NewIntQuirk(QuirkInfo{
	Name:      "bell-delay",
	Doc:       "Microseconds that a transmit bell may wait while more packets come, for devices where a bell costs a VM exit. It never waits on an idle queue.",
	Reference: "iflib txq_max_db_deferred; r343291 on vmx(4) doorbells",
	Min:       0, Max: 1000,
}, 0)
