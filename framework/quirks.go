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
	Live:      true,
}, LROSoftware)

// ContiguousHeadersQuirk: whether a sent packet's headers have to lie in one
// fragment when the device is to look at them.
var ContiguousHeadersQuirk = NewBoolQuirk(QuirkInfo{
	Name:      "contiguous-headers",
	Doc:       "The headers of a packet with a transmit offload must lie in its first fragment, not only those of a TSO packet, which always do; the engine pulls them up.",
	Reference: "OpenBSD vmx(4) c95756fbdbd6; Linux vmxnet3 copies headers to its data ring",
	Live:      true,
}, false)

// MinFrameQuirk is the shortest frame that the device sends as it is.
var MinFrameQuirk = NewIntQuirk(QuirkInfo{
	Name:      "min-frame",
	Doc:       "Shortest frame in bytes, without FCS, that may be given to the device; the engine pads with zeros. 0 leaves padding to the device.",
	Reference: "iflib IFLIB_NEED_ETHER_PAD; 8254x manual 3.3.3, short packets without PSP",
	Min:       0, Max: 128,
	Live: true,
}, 0)

// BellDelayQuirk says how long a transmit bell may wait for company.
var BellDelayQuirk = NewIntQuirk(QuirkInfo{
	Name:      "bell-delay",
	Doc:       "Microseconds that a transmit bell may wait while more packets come, for devices where a bell costs a VM exit. It never waits on an idle queue.",
	Reference: "iflib txq_max_db_deferred; r343291 on vmx(4) doorbells",
	Min:       0, Max: 1000,
	Live: true,
}, 0)

// Position says which completion of a packet that has several.
type Position uint8

// Positions.
const (
	LastCompletion Position = iota
	FirstCompletion
)

// MetadataOnQuirk: where a packet's checksum verdict, VLAN tag and hash are.
var MetadataOnQuirk = NewChoiceQuirk(QuirkInfo{
	Name:      "metadata-on",
	Choices:   []string{"last", "first"},
	Doc:       "Which completion of a received packet with several carries its checksum verdict, VLAN tag and hash.",
	Reference: "FreeBSD D23949, LRO packets dropped for the first completion's flags; DPDK d08e3c90d4",
	Unsafe:    true,
}, LastCompletion)

// SkipsRxSlotsQuirk: whether receive descriptors come back in order and all of
// them.
var SkipsRxSlotsQuirk = NewBoolQuirk(QuirkInfo{
	Name:      "skips-rx-slots",
	Doc:       "The device may pass over receive descriptors without a completion; the driver puts their buffers back.",
	Reference: "Linux vmxnet3_rq_rx_complete; QEMU vmxnet3 skips BODY descriptors in search of a HEAD",
}, false)

// ReordersRxSlotsQuirk: whether a receive descriptor that was passed over is still
// the device's. It goes before [SkipsRxSlotsQuirk]: no completion tells the two from
// each other.
var ReordersRxSlotsQuirk = NewBoolQuirk(QuirkInfo{
	Name:      "reorders-rx-slots",
	Doc:       "The device may complete receive descriptors in another order than it got them in; one that it passes over is not done with.",
	Reference: "Linux vmxnet3_int.h, VMXNET3_CAP_OOORX_COMP of revision 7",
}, false)

// RxBellPolicy says when a device wants to hear of posted buffers.
type RxBellPolicy uint8

// Receive bell policies.
const (
	RxBellAlways RxBellPolicy = iota
	RxBellOnRequest
)

// RxBellQuirk: whether every refill rings.
var RxBellQuirk = NewChoiceQuirk(QuirkInfo{
	Name:      "rx-bell",
	Choices:   []string{"always", "on-request"},
	Doc:       "Whether the receive bell is rung after every refill or only while the device asks for it in shared memory.",
	Reference: "vmxnet3 updateRxProd: Linux, DPDK, OpenBSD; the check was lost in FreeBSD's conversion, r343291",
}, RxBellAlways)

// TxInterruptQuirk: whether finished transmit packets interrupt.
var TxInterruptQuirk = NewBoolQuirk(QuirkInfo{
	Name:      "tx-interrupt",
	Doc:       "Finished transmit packets raise an interrupt; without it they are collected when the queue's receive half runs or more is sent.",
	Reference: "iflib softirq transmit vectors; FreeBSD PR 248652, netmap transmit without interrupt",
	Live:      true,
}, true)

// TSOMinLinkQuirk: at which link speeds TSO works.
var TSOMinLinkQuirk = NewIntQuirk(QuirkInfo{
	Name:      "tso-min-link-mbps",
	Doc:       "Slowest link in Mbit/s on which the device may segment; below it the framework does. 0 is any.",
	Reference: "FreeBSD rG2ddf24f8f525, TSO at 10 and 100 Mbit/s hangs em(4)",
	Min:       0, Max: 400_000,
	Live: true,
}, 0)

// MaxDescriptorBytesQuirk caps Info.MaxTxFragmentLen.
var MaxDescriptorBytesQuirk = NewIntQuirk(QuirkInfo{
	Name:      "max-descriptor-bytes",
	Doc:       "Most bytes that one transmit descriptor may carry, where the format would allow more. 0 leaves it to the format.",
	Reference: "Linux e1000_tx_map: errata 10 on PCI-X (2015 bytes), TSO FIFO overrun (4096 bytes)",
	Min:       0, Max: 1 << 20,
}, 0)

// TxWithinPageQuirk: whether a transmit descriptor may reach from one page into the
// next.
var TxWithinPageQuirk = NewBoolQuirk(QuirkInfo{
	Name:      "tx-within-page",
	Doc:       "The bytes of a transmit descriptor must lie in one page of 4 KiB, because the device loses what lies in two that only an IOMMU puts side by side; the engine splits fragments there.",
	Reference: "QEMU net_tx_pkt_add_raw_fragment, vmxnet3 and e1000e: a mapping shorter than the fragment is an error",
	Live:      true,
}, false)

// ChecksumTrust says which of a device's checksum verdicts are believed. A bad
// verdict is never the end of a packet: the port looks for itself.
type ChecksumTrust uint8

// Degrees of trust.
const (
	TrustGood    ChecksumTrust = iota // what the device found good is good
	TrustNothing                      // the feature rx-csum is off
)

// ChecksumTrustQuirk: what a checksum verdict is worth.
var ChecksumTrustQuirk = NewChoiceQuirk(QuirkInfo{
	Name:      "checksum-trust",
	Choices:   []string{"good", "nothing"},
	Doc:       "Whether a packet whose checksums the device found good is believed to be, or nothing it says of them, which turns rx-csum and with it hardware LRO off.",
	Reference: "QEMU e1000 sets IXSM on every packet; FreeBSD D13561, LRO merged segments with bad checksums",
	Live:      true,
}, TrustGood)

// VLANOneSwitchQuirk: whether tags can be inserted without being stripped.
var VLANOneSwitchQuirk = NewBoolQuirk(QuirkInfo{
	Name:      "vlan-one-switch",
	Doc:       "The device inserts VLAN tags only while it strips received ones; with vlan-strip off the engine inserts.",
	Reference: "8254x manual 13.4.1, CTRL.VME; 82574 datasheet 10.2.2.1",
	Live:      true,
}, false)

// ResetMethod says how a device is reset.
type ResetMethod uint8

// Reset methods.
const (
	ResetByRegister   ResetMethod = iota // the memory-mapped one
	ResetByIORegister                    // the same register through the I/O BAR
	ResetByBus                           // bus.Device.Reset
)

// ResetMethodQuirk: what brings the device into its initial state.
var ResetMethodQuirk = NewChoiceQuirk(QuirkInfo{
	Name:      "reset-method",
	Choices:   []string{"register", "io-register", "bus"},
	Doc:       "How the driver resets the device: by its reset register, by that register in the I/O BAR, or through the bus.",
	Reference: "FreeBSD e1000_82540.c, no acknowledge of a 64-bit write during reset; QEMU before 8.0 resets nothing on CTRL.RST",
}, ResetByRegister)

// TxSentinelQuirk: whether the end of a TSO packet needs a descriptor of its own.
var TxSentinelQuirk = NewBoolQuirk(QuirkInfo{
	Name:      "tx-sentinel",
	Doc:       "The last bytes of a TSO packet, and of the one after it, get a descriptor of their own, or the device reports them finished too early.",
	Reference: "Linux e1000_tx_map and FreeBSD em(4) TSO_WORKAROUND, premature write-back",
}, false)

// The quirks below make the framework do what broke others. They exist to show, in
// the matrix, that it would be seen; no driver declares them.

// ForgetCoalescedQuirk: what iflib did to vmxnet3.
var ForgetCoalescedQuirk = NewBoolQuirk(QuirkInfo{
	Name:      "unsafe-forget-coalesced",
	Doc:       "What the device says of packets that it has merged, their checksum verdict included, is thrown away, and the software LRO engine gets them whoever owns LRO.",
	Reference: "freebsd-net 2020-02, terrible vmxnet3 rx performance with lro (post iflib)",
	Unsafe:    true,
}, false)

// RxRefillCapQuirk: what a driver does that refills too little.
var RxRefillCapQuirk = NewIntQuirk(QuirkInfo{
	Name:      "unsafe-rx-refill-cap",
	Doc:       "Most buffers that a receive queue's device has at a time; with fewer than the longest packet needs, such packets are lost. 0 is as many as fit.",
	Reference: "FreeBSD D23949: refills of budget + 8 buffers, receive rings that ran dry in the middle of merged packets",
	Min:       0, Max: 1 << 16,
	Unsafe: true,
}, 0)
