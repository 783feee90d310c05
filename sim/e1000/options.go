package e1000

import "time"

// Options are a model's settings. The zero value is an 82540EM as its documents
// have it.
type Options struct {
	Kind Kind
	// MAC is the permanent address in the NVM. Zero is 52:54:00:12:34:56.
	MAC [6]byte
	// Autonegotiation is how long the PHY takes to bring up a link. Zero is
	// DefaultAutonegotiation; real PHYs take one to three seconds.
	Autonegotiation time.Duration
	Variation       Variation
}

// DefaultAutonegotiation is the default of Options.Autonegotiation.
const DefaultAutonegotiation = 10 * time.Millisecond

// Variation is how known devices, real and emulated, differ from the documents.
// The zero value is none of it.
type Variation struct {
	// FewVectors: the NVM of some boards gives the 82574L three MSI-X vectors
	// (FreeBSD em(4) rewrites the word to get five).
	FewVectors bool
	// SpuriousACK: in MSI-X mode a received TCP acknowledgement raises the OTHER
	// vector even if it is masked, unless RFCTL.ACK_DIS is set (Linux e1000e,
	// "spurious interrupts on 82574 in MSI-X mode").
	SpuriousACK bool
	// ICRKeeps: in MSI-X mode reading ICR clears it only if IMS is 0 or
	// CTRL_EXT.IAME is set (QEMU 7.2; Red Hat bug 1707441).
	ICRKeeps bool
	// EIACMasks: a cause that EIAC clears is masked in IMS too, unless
	// CTRL_EXT.IAME is set (QEMU).
	EIACMasks bool
	// MinThrottle is the least time between two interrupts, whatever ITR and
	// EITR say (QEMU: 128 us).
	MinThrottle time.Duration
	// ResetNeedsIO: CTRL.RST written through memory space has no effect. The
	// 82540, 82545 and 82546 cannot acknowledge the write that resets them, so
	// drivers write it through the I/O BAR (Linux e1000_reset_hw).
	ResetNeedsIO bool
	// NoReset: CTRL.RST clears itself and resets nothing (QEMU before 8.0).
	NoReset bool
	// DeafAfterRCTL is how long nothing is received after a write of RCTL
	// (QEMU's e1000: 1 s).
	DeafAfterRCTL time.Duration
	// NoRxChecksum: every receive descriptor says IXSM (QEMU's e1000).
	NoRxChecksum bool
	// NoLegacyChecksum: the IC bit of legacy transmit descriptors has no effect
	// (QEMU's e1000).
	NoLegacyChecksum bool
	// SplitFCS: with RCTL.SECRC clear the frame check sequence arrives in a
	// descriptor of its own (QEMU 7.2.22, and 10.1.3 and later).
	SplitFCS bool
	// IgnoreFLXBUF: RCTL.FLXBUF has no effect (VMware's 82574L, DPDK em_rxtx).
	IgnoreFLXBUF bool
	// HashesUnicast: unicast addresses are looked up in the multicast table as well
	// (QEMU's e1000 and e1000e).
	HashesUnicast bool
	// EmptyTSOTail: a TSO packet whose payload is a multiple of the MSS ends with
	// one more segment, which has no payload (QEMU's e1000).
	EmptyTSOTail bool
	// DropsWhenShort: a frame that finds descriptors, but too few, is dropped; only
	// one that finds none waits (QEMU's e1000).
	DropsWhenShort bool
	// DropsAcrossPages: a packet of which a descriptor's bytes lie in two pages is not
	// sent, and not counted anywhere (QEMU's e1000e behind its vIOMMU, if the pages are
	// not side by side in physical memory too).
	DropsAcrossPages bool
	// NoEERD: EERD never says that it is done. Linux and FreeBSD read the EEPROM of
	// the 8254x by its pins only (e1000_82540.c, e1000_82543.c).
	NoEERD bool
	// DiscardRunts: frames of less than 60 bytes are discarded and counted in
	// RUC, as on a real wire. Otherwise they are padded, because senders in
	// software do not always pad, as a sending MAC would.
	DiscardRunts bool
	// BadFrameEvery: one in so many received frames has a bad frame check
	// sequence: counted in CRCERRS, dropped unless RCTL.SBP is set, then marked
	// CE. 0 is none.
	BadFrameEvery int
	// BadLengthEvery: one in so many received frames has a nonsensical length in
	// its last descriptor, zero and 0xFFFF by turns. 0 is none.
	BadLengthEvery int
}

func (o Options) withDefaults() Options {
	if o.MAC == ([6]byte{}) {
		o.MAC = [6]byte{0x52, 0x54, 0x00, 0x12, 0x34, 0x56}
	}
	if o.Autonegotiation <= 0 {
		o.Autonegotiation = DefaultAutonegotiation
	}
	return o
}

// vectors is how many MSI-X vectors the function has.
func (o Options) vectors() int {
	if o.Variation.FewVectors {
		return fewVectors
	}
	return maxVectors
}
