package e1000

import (
	"fmt"

	"nicd/bus"
	"nicd/sim"
)

// Kind is which chip a model is.
type Kind uint8

// The chips.
const (
	I82540EM Kind = iota
	I82574L
	I82545EM
	I82544GC
)

// Kinds are all chips.
func Kinds() []Kind { return []Kind{I82540EM, I82545EM, I82544GC, I82574L} }

func (k Kind) String() string {
	if int(k) >= len(identities) {
		return fmt.Sprintf("chip %d", uint8(k))
	}
	return identities[k].name
}

// KindOf is the chip of a name, as String gives it.
func KindOf(name string) (Kind, error) {
	for _, k := range Kinds() {
		if k.String() == name {
			return k, nil
		}
	}
	return 0, fmt.Errorf("e1000: no chip %q; there are %v", name, Kinds())
}

// is574 tells which of the two families' rules hold: the 82574L's or the 8254x's.
func (k Kind) is574() bool { return k == I82574L }

const (
	vendorIntel = 0x8086

	flashBAR  = bus.BAR1 // 82574L
	ioBAR574  = bus.BAR2
	ioBAR540  = bus.BAR1
	msixBAR   = bus.BAR3
	msixSize  = 16 << 10
	msixPBA   = 0x2000
	maxQueues = 2
	// maxVectors is how many MSI-X vectors an 82574L can have: one for each
	// queue of each direction and one for the other causes.
	maxVectors = 5
	// fewVectors is how many some boards' NVM gives it.
	fewVectors = 3
)

// identities are what tells the chips apart before a register was read, and the
// second half of their PHYs' identifiers.
var identities = [...]struct {
	name              string
	device, subDevice uint16
	revision          uint8
	phy               uint16
}{
	I82540EM: {"82540EM", 0x100E, 0x001E, 3, phyIDM88E1011},
	I82545EM: {"82545EM", 0x100F, 0x1001, 1, phyIDM88E1011},
	I82544GC: {"82544GC", 0x100C, 0x1112, 2, phyIDM88E1000I},
	I82574L:  {"82574L", 0x10D3, 0xA01F, 0, phyIDBM574},
}

// throttles tells whether the chip has what holds interrupts back: ITR, RADV, TADV
// and TXDCTL.LWTHRESH (8254x SDM 13.4.18, 13.4.31, 13.4.43 and 13.4.44: "not
// applicable to the 82544GC/EI").
func (k Kind) throttles() bool { return k != I82544GC }

// spillsOddWords: a write of an odd word of MTA or VFTA also lands in the even one
// before it (Linux e1000_write_vfta and e1000_set_rx_mode for the 82544).
func (k Kind) spillsOddWords() bool { return k == I82544GC }

// forgetsAddress: CTRL.RST does not load the address from the EEPROM, only
// CTRL_EXT.EE_RST does (FreeBSD e1000_82543.c, e1000_reset_hw_82543).
func (k Kind) forgetsAddress() bool { return k == I82544GC }

// queues is how many queues there are in each direction.
func (k Kind) queues() int {
	if k.is574() {
		return maxQueues
	}
	return 1
}

func (k Kind) ioBAR() int {
	if k.is574() {
		return ioBAR574
	}
	return ioBAR540
}

func (k Kind) identity() sim.Identity {
	known := &identities[k]
	id := sim.Identity{
		Vendor: vendorIntel, SubVendor: vendorIntel, Class: sim.ClassEthernet,
		Device: known.device, SubDevice: known.subDevice, Revision: known.revision,
		PowerManagement: 0xDC,
	}
	id.BARs[bus.BAR0] = sim.BAR{Size: registerSpace}
	if !k.is574() {
		id.BARs[ioBAR540] = sim.BAR{Size: 64, IO: true}
		return id
	}
	id.BARs[flashBAR] = sim.BAR{Size: 128 << 10}
	id.BARs[ioBAR574] = sim.BAR{Size: 32, IO: true}
	id.BARs[msixBAR] = sim.BAR{Size: msixSize}
	id.PowerManagement, id.Express = 0xC8, 0xE0
	id.MSI = sim.MSICapability{Offset: 0xD0, Vectors: 1}
	id.MSIX = sim.MSIXCapability{Offset: 0xA0, Vectors: maxVectors, TableBAR: msixBAR, PBABAR: msixBAR, PBAOffset: msixPBA}
	return id
}
