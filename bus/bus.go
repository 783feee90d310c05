// Package bus is how a driver reaches a device: configuration space, register
// regions, interrupts, DMA and reset, the same for a real PCI device, a device
// model in another process and a model in this one. A driver cannot tell which
// it has.
//
// What lives here is the contract and the three things that every bus shares:
// memory that host and device both see ([Memory]), interrupts as eventfds
// ([Event]) and doorbells in shared memory ([Doorbells]). How a particular bus
// works lives in its own package (vfiouser, vfio, qemu, and sim for models in
// this process).
package bus

import (
	"context"
	"errors"
)

// Errors that every bus reports, wrapped with what and where.
var (
	// ErrGone: the device or the process that serves it is not there any more.
	// Register reads return all ones from then on.
	ErrGone = errors.New("device is gone")
	// ErrNoRegion: the device has no region of that index.
	ErrNoRegion = errors.New("no such region")
	// ErrNoInterrupt: the device lacks that kind of interrupt or that many.
	ErrNoInterrupt = errors.New("no such interrupt")
	// ErrTimeout: the device has not done in time what a driver waits for.
	ErrTimeout = errors.New("device takes too long")
	// ErrUnsupported: the bus cannot do what was asked.
	ErrUnsupported = errors.New("not supported by this bus")
)

// Region indices of a PCI function, numbered as VFIO numbers them.
const (
	BAR0 = iota
	BAR1
	BAR2
	BAR3
	BAR4
	BAR5
	ROM
	ConfigSpace
	NumRegions
)

// Gone is what a 32-bit register read returns when nobody answers: PCI's
// all-ones completion. A driver that reads it from a register that can never
// hold it reports the device as gone.
const Gone = ^uint32(0)

// InterruptKind is one of the ways in which a PCI function interrupts.
type InterruptKind uint8

// The interrupt kinds, numbered as VFIO's interrupt indices.
const (
	INTx InterruptKind = iota
	MSI
	MSIX
)

func (k InterruptKind) String() string {
	switch k {
	case INTx:
		return "INTx"
	case MSI:
		return "MSI"
	case MSIX:
		return "MSI-X"
	}
	return "unknown"
}

// Info describes a device. It does not change while the device is open.
type Info struct {
	Address  string // bus address, for messages: "0000:03:00.0", "sim:vmx0"
	Vendor   uint16
	Device   uint16
	Revision uint8
	// Vectors is how many vectors of each kind there are, by InterruptKind.
	Vectors [3]int
	// CanReset tells whether Reset does anything.
	CanReset bool
	// DMABase is the device address at which memory has to be mapped, or 0 if
	// the caller chooses.
	DMABase uint64
}

// Device is one PCI function.
//
// Methods are called by one goroutine at a time, with two exceptions: the Regions
// may be used by many, and UnmaskInterrupt may be called by whoever handles an
// interrupt, meanwhile and by several at once, but not while SetInterrupts or
// Close runs. Close ends everything: interrupts are off, DMA is unmapped, and
// later calls return ErrGone.
type Device interface {
	Info() Info

	// ReadConfig and WriteConfig access configuration space. Size is 1, 2 or 4
	// and offset is a multiple of it. Out of range reads return all ones.
	ReadConfig(offset, size int) (uint32, error)
	WriteConfig(offset, size int, value uint32) error

	// Region returns a register region. The same index gives the same Region.
	Region(index int) (Region, error)

	// SetInterrupts makes the device signal events[i] for vector i of kind,
	// and no other kind. An empty events turns interrupts off. The device
	// borrows the events until the next call or Close. A vector whose event is
	// signalled while nobody waits is not lost: eventfds count.
	//
	// For MSI len(events) is how many messages are enabled, which the device is
	// told: it folds causes that have a message beyond them into those. For
	// MSI-X vectors beyond them stay silent.
	SetInterrupts(kind InterruptKind, events []*Event) error

	// UnmaskInterrupt re-enables INTx after it fired: the bus masks a level
	// interrupt by itself (VFIO's AUTOMASKED). It does nothing for MSI and
	// MSI-X, which are masked at the device.
	UnmaskInterrupt(vector int) error

	// MapDMA lets the device access all of m at device addresses from iova on.
	// UnmapDMA takes that back; when it returns no access is in flight.
	MapDMA(m *Memory, iova uint64) error
	UnmapDMA(m *Memory) error

	// Reset brings the device into its power-on state. DMA mappings and
	// interrupt events stay. No DMA is in flight when it returns.
	Reset(ctx context.Context) error

	Close() error
}

// Region is a range of device registers, of 32 bits mostly. Offsets are in bytes
// and multiples of the register's size.
//
// Read32 has acquire order: what the device wrote to memory before it set the
// register is visible after it. Write32 is posted and ordered after all earlier
// memory writes of the caller; it does not wait for the device. A read drains
// the writes before it.
type Region interface {
	Size() int
	Read32(offset uint32) uint32
	Write32(offset uint32, value uint32)

	// Read and Write are the same for a register of size 1, 2 or 4 bytes, which a
	// device may insist on being accessed as a whole and alone. A device that does
	// not answer reads all ones in so many bytes (GoneOf); what a device of 32-bit
	// registers does with less than one is its own business.
	//
	// Write need not be posted: it may wait until the device has carried it out.
	Read(offset uint32, size int) uint32
	Write(offset uint32, size int, value uint32)
}

// GoneOf is Gone for a register of size 1, 2 or 4 bytes.
func GoneOf(size int) uint32 { return Gone >> (32 - 8*size) }
