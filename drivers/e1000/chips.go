package e1000

import (
	"nicd/bus"
	"nicd/framework"
)

// chip is what differs between the parts that this driver knows, apart from
// quirks.
type chip struct {
	id       uint16
	name     string
	queues   int    // of each kind
	vectors  [3]int // of each kind of interrupt; with MSI-X come IVAR, EIAC and EITR
	extended bool   // receive descriptors, and RFCTL to ask for them
	express  bool   // PCI Express: quirks of its own, no I/O reset
	reloads  bool   // a reset reloads the EEPROM only when told (FreeBSD e1000_82543.c)
	eerdDone uint32
	eerdAddr int // shift of the address in regEERD
	// Bits of the registers of these names that the part wants besides.
	tctl, txdctl uint32
	// longest is the most bytes that one transmit descriptor takes.
	longest int
}

const vendorIntel = 0x8086

var chips = []chip{
	{id: 0x100E, name: "82540EM", queues: 1, vectors: noMSIX, eerdDone: 1 << 4, eerdAddr: 8, longest: 4096},
	{id: 0x100F, name: "82545EM", queues: 1, vectors: noMSIX, eerdDone: 1 << 4, eerdAddr: 8, longest: 4096},
	{id: 0x100C, name: "82544GC", queues: 1, vectors: noMSIX, reloads: true, eerdDone: 1 << 4, eerdAddr: 8, longest: 4096},
	{id: id82574L, name: "82574L", queues: 2, vectors: [3]int{bus.INTx: 1, bus.MSI: 1, bus.MSIX: 5}, extended: true, express: true,
		eerdDone: 1 << 1, eerdAddr: 2, tctl: tctlMULR, txdctl: txdctlReserved, longest: 8192},
}

// noMSIX is the vectors of the older parts.
var noMSIX = [3]int{bus.INTx: 1, bus.MSI: 1}

// ids are the identities of chips, in their order.
func ids() (ids []framework.DeviceID) {
	for _, c := range chips {
		ids = append(ids, framework.DeviceID{Vendor: vendorIntel, Device: c.id, Name: "Intel " + c.name})
	}
	return ids
}
