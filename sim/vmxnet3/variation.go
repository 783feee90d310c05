package vmxnet3

// Options are a model's settings. The zero value is a revision 4 device of
// 10 Gbit/s that behaves as ESXi's emulation does.
type Options struct {
	// MAC is the permanent address. Zero is 00:50:56:00:00:01.
	MAC [6]byte
	// Revision is the highest revision that the device offers, 1 to 4; zero is 4.
	// It offers the lower ones as well.
	Revision int
	// SpeedMbps is what GET_LINK reports; zero is 10000.
	SpeedMbps int
	// Interrupt is what GET_CONF_INTR recommends: bits 1:0 the type (0 any,
	// 1 INTx, 2 MSI, 3 MSI-X), bits 3:2 the mask mode (0 auto, 1 active, 2 lazy).
	Interrupt  uint32
	Variations Variations
}

// Variations are the ways in which fielded devices differ from each other. The
// numbers are those of the project's catalogue.
type Variations struct {
	// RevisionBitmap, if not zero, is what VRRS reads instead of all revisions
	// up to Options.Revision (V1).
	RevisionBitmap uint32
	// LRO is how a coalesced packet is reported (V2).
	LRO LROStyle
	// UntypedCompletions: receive completions have type 0 in place of 3 (V3,
	// QEMU). LRO completions keep type 4.
	UntypedCompletions bool
	// LROChecksum: the TCP checksum in a coalesced packet's header is computed
	// anew. Otherwise it is stale (V4, ESXi).
	LROChecksum bool
	// ZeroLengthEvery: before every so-manieth packet a queue completes a
	// descriptor with SOP, EOP and no data: "buffer skipped". 0 is never (V5).
	ZeroLengthEvery int
	// ZeroLengthBodyEvery: every so-manieth packet of several descriptors has
	// one more in its middle, with no data. 0 is never (V6).
	ZeroLengthBodyEvery int
	// SkipEvery: before every so-manieth packet a queue passes over a descriptor
	// without a completion. 0 is never (V7).
	SkipEvery int
	// BadFrameEvery: every so-manieth packet is completed with the error bit and
	// without the one that says that its frame check sequence is right, as one
	// that a port in passthrough passes on. 0 is never.
	BadFrameEvery int
	// BadLengthEvery: the last completion of every so-manieth packet has the
	// longest length that its field holds, whatever the buffer's. 0 is never.
	BadLengthEvery int
	// RxDoorbells says when RxQueueCtrl.updateRxProd is set (V8).
	RxDoorbells RxDoorbells
	// TxThreshold is written to TxQueueCtrl.txThreshold at activation; 0 is 1. With
	// more than 1 the device looks by itself, each millisecond, for packets that
	// the driver put in TxQueueCtrl.txNumDeferred instead of ringing (V9).
	TxThreshold uint32
	// AlwaysComplete: each transmitted packet is completed, also without the cq
	// bit (V10, QEMU).
	AlwaysComplete bool
	// ResetForgetsAddress: RESET forgets DSAL and DSAH (V11, QEMU).
	ResetForgetsAddress bool
	// ActivateRestoresMAC: ACTIVATE sets the permanent MAC address (V12, QEMU).
	ActivateRestoresMAC bool
	// ActivateMasks: ACTIVATE masks all vectors, so that an IMR written before
	// is lost (V13, QEMU).
	ActivateMasks bool
	// ActivateTwice: ACTIVATE of an active device succeeds and does nothing
	// (V14, QEMU); otherwise it fails.
	ActivateTwice bool
	// MaskForgets: with INTx, an IMR that is set while the line is asserted takes
	// the line and the interrupt back (QEMU).
	MaskForgets bool
	// AcceptOversize: frames longer than the MTU are received (V15, QEMU).
	AcceptOversize bool
	// ZeroRxSGIsOne: maxNumRxSG of 0 means one descriptor a packet (V16, QEMU);
	// otherwise it means no limit.
	ZeroRxSGIsOne bool
	// IgnoreTxErrors: a broken chain of transmit descriptors is dropped and the
	// queue goes on (V17, QEMU); otherwise the queue stops with an error and an
	// event.
	IgnoreTxErrors bool
	// DropsAcrossPages: a packet of which a descriptor's bytes lie in two pages is
	// counted as an error and not sent (QEMU behind its vIOMMU, if the pages are not
	// side by side in physical memory too).
	DropsAcrossPages bool
	// OffloadsOnSOP: the checksum, tag and hash fields are set in a packet's first
	// completion too, not only in its last (V21).
	OffloadsOnSOP bool
	// NoRxDataRing: the receive data ring is not used (V23).
	NoRxDataRing bool
	// LinkInGbps: GET_LINK has the speed in Gbit/s, if that is a whole number (V19,
	// revision 9).
	LinkInGbps bool
	// DisabledOffloads is what GET_DISABLED_OFFLOADS reads, bit 0 for TSO and bit 1
	// for LRO: the device then does not do these (V20, revision 9).
	DisabledOffloads uint32
	// OutOfOrderEvery: every so-manieth packet sets a descriptor of the first ring
	// aside, with which the packet after it begins. 0 is never (V22, revision 7).
	OutOfOrderEvery int
	// InnerFlags: the checksum flags of a VXLAN packet's completion are about the
	// packet within it, which one of two bits says (V24, revision 4). Devices do so for
	// drivers that ask for it, and this one for any.
	InnerFlags InnerFlags
}

// InnerFlags is by which bit of its word 0 a receive completion says that its flags
// are about inner headers.
type InnerFlags uint8

// Bits for inner flags.
const (
	// InnerFlagsNever: flags are about outer headers.
	InnerFlagsNever InnerFlags = iota
	// InnerFlagsBit13, as Linux's driver has it.
	InnerFlagsBit13
	// InnerFlagsBit12, as a comment in Linux's header has it.
	InnerFlagsBit12
)

// LROStyle is how a coalesced packet is reported.
type LROStyle uint8

// LRO styles.
const (
	// LROByRevision: revision 1 reports a longer packet and nothing else, later
	// ones a type 4 completion with segment count and MSS.
	LROByRevision LROStyle = iota
	// LROLengthOnly: as revision 1, whatever revision was selected.
	LROLengthOnly
	// LRONoMSS: type 4 with an MSS of zero (DPDK commit ae2705b80d).
	LRONoMSS
	// LROSingle: type 4 also for TCP packets that are one segment, with a count
	// of 1 (Linux commit 50219538ffc0).
	LROSingle
	// LRONoCount: type 4 with a segment count of zero.
	LRONoCount
)

// RxDoorbells is when a device asks for receive doorbells.
type RxDoorbells uint8

// Receive doorbell policies.
const (
	// RxDoorbellsStarved: only while it is out of descriptors and a frame waits.
	// With descriptors to go on with, the flag is clear.
	RxDoorbellsStarved RxDoorbells = iota
	// RxDoorbellsAlways: from activation on.
	RxDoorbellsAlways
	// RxDoorbellsNever: it looks once a millisecond.
	RxDoorbellsNever
)
