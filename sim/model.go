package sim

import "nicd/bus"

// Model is the device side of one PCI function.
//
// Registers are accessed by any goroutine, Work is called by the device's one
// worker, Receive by the workers of peers, and the rest by control goroutines.
// A model locks in the order: its own control lock, Host.Tx, Host.Rx. Port.Send
// is called with Host.Tx held and leads to the peer's Receive, which takes the
// peer's Host.Rx and nothing after it: so two models that send to each other
// can't wait for each other.
type Model interface {
	// Identity says what the function looks like on its bus. It never changes.
	Identity() Identity
	// Connect gives the model its host, once and before anything else, and
	// brings the model into its power-on state.
	Connect(h *Host)

	// ReadRegister and WriteRegister access a 32-bit register that is no
	// doorbell. Region is a bus.BAR0.. number; the offset is a multiple of four
	// and inside the BAR. Writes act before they return.
	ReadRegister(region int, offset uint32) uint32
	WriteRegister(region int, offset, value uint32)

	// Reset brings the model into its power-on state. No DMA is in flight when
	// it returns.
	Reset()

	// Doorbells says which registers live in the doorbell page. It never
	// changes. The model reads them with Host.Doorbell, from Work.
	Doorbells() []bus.DoorbellRange

	// Work does one pass: doorbells that rang, at most budget frames for each
	// transmit queue, timers that ran out, interrupts that were unmasked. It
	// returns false if there was nothing to do.
	Work(budget int) bool

	End
}

// NarrowModel is a Model with registers of 8 and 16 bits. Without this, reads of
// less than 32 bits are parts of the register around them, and writes are lost.
type NarrowModel interface {
	Model

	// ReadNarrow and WriteNarrow are ReadRegister and WriteRegister for a register
	// of size 1 or 2 bytes, of which the offset is a multiple. A narrow write of a
	// doorbell is not among them: it rings.
	ReadNarrow(region int, offset uint32, size int) uint32
	WriteNarrow(region int, offset uint32, size int, value uint32)
}

// Identity is what configuration space says of a function.
type Identity struct {
	Vendor, Device       uint16
	SubVendor, SubDevice uint16
	Revision             uint8
	Class                uint32 // 24 bits: class, subclass, interface
	BARs                 [6]BAR
	MSI                  MSICapability
	MSIX                 MSIXCapability
	// PowerManagement and Express are the offsets of those capabilities, 0 if
	// the function has none.
	PowerManagement, Express uint8
	// VendorCapabilities are vendor-specific capabilities (09h), which a driver finds in the
	// order of their offsets, as all others.
	VendorCapabilities []VendorCapability
}

// VendorCapability is a vendor-specific capability: where it lies, a multiple of
// four, and its bytes behind the three that all have (identifier, next capability,
// length), which are made from it. They are read-only.
type VendorCapability struct {
	Offset uint8
	Bytes  []byte
}

// ClassEthernet is the class code of an Ethernet controller.
const ClassEthernet = 0x020000

// BAR is one base address register. A Size of zero is none; otherwise it is a
// power of two.
type BAR struct {
	Size uint32
	IO   bool // I/O space
}

// MSICapability is where the MSI capability lies and how many vectors it has (a
// power of two); no vectors, no capability.
type MSICapability struct {
	Offset  uint8
	Vectors int
}

// MSIXCapability is the same for MSI-X. The device serves the table and the
// pending bit array itself: the model sees no access to them.
type MSIXCapability struct {
	Offset      uint8
	Vectors     int
	TableBAR    int
	TableOffset uint32
	PBABAR      int
	PBAOffset   uint32
}
