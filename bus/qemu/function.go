package qemu

import (
	"fmt"

	"nicd/bus"
)

// Where the machine (q35) has things, or is told to have them.
const (
	machineRAM = 16 << 20
	// hostBridgeECAM is the register of the host bridge, function 0:0.0, that says
	// where in memory configuration space is.
	hostBridgeECAM = 0x60
	ecamBase       = 0xB000_0000
	ecamEnable     = 1
	configAddress  = 0xCF8 // I/O ports of the older way to it
	configData     = 0xCFC
	configEnable   = 1 << 31
	memoryBase     = 0xE000_0000 // of BARs
	ioBase         = 0xC000
)

// Configuration space: PCI Local Bus Specification 3.0, chapter 6.
const (
	configID           = 0x00
	configCommand      = 0x04
	configStatus       = 0x06
	configRevision     = 0x08
	configBAR0         = 0x10
	configROM          = 0x30
	configCapabilities = 0x34
	configPin          = 0x3D
	configSize         = 4096

	commandIO     = 1 << 0
	commandMemory = 1 << 1
	commandMaster = 1 << 2

	barIO     = 1 << 0
	barWide   = 2 << 1 // of a memory BAR: 64 bits
	barFlags  = 15
	barIOFlag = 3

	statusCapabilities = 1 << 4
	capabilityMSI      = 0x05
	capabilityMSIX     = 0x11
)

// function is a PCI function of the machine.
type function struct {
	qtest *qtest
	bus   int // 0 is the machine's first
	slot  int
	bars  [6]bar
}

// bar is a base address register and where it is.
type bar struct {
	addr  uint64
	size  uint64 // 0 if there is none
	flags uint32 // its low bits
}

func (b *bar) io() bool { return b.flags&barIO != 0 }

func (f *function) address(offset int) uint64 {
	return ecamBase | uint64(f.bus)<<20 | uint64(f.slot)<<15 | uint64(offset)
}

func (f *function) read(offset, size int) uint32 { return f.qtest.read(f.address(offset), size) }

func (f *function) write(offset, size int, v uint32) { f.qtest.write(f.address(offset), size, v) }

// openConfigSpace makes configuration space accessible in memory.
func openConfigSpace(q *qtest) {
	q.outPort(configAddress, 4, configEnable|hostBridgeECAM)
	q.outPort(configData, 4, ecamBase|ecamEnable)
}

// space is where BARs can still be put.
type space struct {
	memory, io uint64
}

func (s *space) take(size uint64, io bool) uint64 {
	next := &s.memory
	if io {
		next = &s.io
	}
	at := (*next + size - 1) &^ (size - 1)
	*next = at + size
	return at
}

// measure finds out which BARs there are and chooses their place.
func (f *function) measure(s *space) {
	for i := 0; i < len(f.bars); i++ {
		at := configBAR0 + 4*i
		f.write(at, 4, ^uint32(0))
		v := f.read(at, 4)
		b := &f.bars[i]
		b.flags = v & barFlags
		if v&barIO != 0 {
			b.flags = v & barIOFlag
		}
		b.size = uint64(^(v &^ b.flags)) + 1
		if v == 0 {
			b.size = 0
			continue
		}
		if b.io() {
			b.size &= 0xFFFF
		}
		b.addr = s.take(b.size, b.io())
		if !b.io() && b.flags&barWide != 0 {
			i++ // the upper half, which stays 0
		}
	}
}

// place writes the BARs and makes the function answer.
func (f *function) place() {
	for i, b := range f.bars {
		if b.size > 0 {
			f.write(configBAR0+4*i, 4, uint32(b.addr))
		}
	}
	f.write(configCommand, 2, f.read(configCommand, 2)|commandIO|commandMemory)
}

// capability is where in configuration space a capability is, 0 if nowhere.
func (f *function) capability(kind uint32) int {
	if f.read(configStatus, 2)&statusCapabilities == 0 {
		return 0
	}
	const most = 48 // that fit
	at := int(f.read(configCapabilities, 1)) &^ 3
	for range most {
		if at == 0 || f.read(at, 1) == kind {
			return at
		}
		at = int(f.read(at+1, 1)) &^ 3
	}
	return 0
}

// region is a BAR as a bus.Region.
type region struct {
	qtest *qtest
	bar   bar
	// table is the MSI-X table, which is not for drivers: it says where in this
	// machine messages go.
	table span
}

type span struct{ from, to uint32 }

func (s span) has(offset uint32) bool { return offset >= s.from && offset < s.to }

// Size implements bus.Region.
func (r *region) Size() int { return int(r.bar.size) }

func (r *region) inside(offset uint32, size int) bool {
	return offset%uint32(size) == 0 && uint64(offset)+uint64(size) <= r.bar.size
}

// Read32 implements bus.Region.
func (r *region) Read32(offset uint32) uint32 { return r.Read(offset, 4) }

// Write32 implements bus.Region.
func (r *region) Write32(offset, v uint32) { r.Write(offset, 4, v) }

// Read implements bus.Region.
func (r *region) Read(offset uint32, size int) uint32 {
	switch {
	case !r.inside(offset, size):
		return bus.GoneOf(size)
	case r.bar.io():
		return r.qtest.inPort(r.bar.addr+uint64(offset), size) & bus.GoneOf(size)
	}
	return r.qtest.read(r.bar.addr+uint64(offset), size) & bus.GoneOf(size)
}

// Write implements bus.Region.
func (r *region) Write(offset uint32, size int, v uint32) {
	switch {
	case !r.inside(offset, size) || r.table.has(offset):
	case r.bar.io():
		r.qtest.outPort(r.bar.addr+uint64(offset), size, v)
	default:
		r.qtest.write(r.bar.addr+uint64(offset), size, v)
	}
}

// Region implements bus.Device.
func (d *Device) Region(index int) (bus.Region, error) {
	if index < 0 || index >= len(d.regions) || d.regions[index] == nil {
		return nil, fmt.Errorf("%s: region %d: %w", d.info.Address, index, bus.ErrNoRegion)
	}
	return d.regions[index], nil
}
