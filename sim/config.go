package sim

import (
	"encoding/binary"
	"slices"
	"sync"
)

// Configuration space of a function: PCI Local Bus Specification 3.0, chapter 6,
// and the capabilities' own chapters.
const (
	configSize = 256

	configVendor       = 0x00
	configDevice       = 0x02
	configCommand      = 0x04
	configStatus       = 0x06
	configRevision     = 0x08
	configClass        = 0x09
	configCacheLine    = 0x0c
	configBAR0         = 0x10
	configSubVendor    = 0x2c
	configSubDevice    = 0x2e
	configCapabilities = 0x34
	configLine         = 0x3c
	configPin          = 0x3d

	commandIO          = 1 << 0
	commandMemory      = 1 << 1
	commandMaster      = 1 << 2
	commandParity      = 1 << 6
	commandSERR        = 1 << 8
	commandINTxDisable = 1 << 10

	statusInterrupt    = 1 << 3
	statusCapabilities = 1 << 4

	capabilityPM      = 0x01
	capabilityMSI     = 0x05
	capabilityVendor  = 0x09
	capabilityExpress = 0x10
	capabilityMSIX    = 0x11

	msi64Bit = 1 << 7 // of MSI message control
)

// configSpace is the bytes of configuration space and which of their bits a
// write changes.
type configSpace struct {
	mu       sync.Mutex
	data     [configSize]byte
	writable [configSize]byte
}

func (c *configSpace) put16(at int, v, writable uint16) {
	binary.LittleEndian.PutUint16(c.data[at:], v)
	binary.LittleEndian.PutUint16(c.writable[at:], writable)
}

func (c *configSpace) put32(at int, v, writable uint32) {
	binary.LittleEndian.PutUint32(c.data[at:], v)
	binary.LittleEndian.PutUint32(c.writable[at:], writable)
}

func (c *configSpace) init(id Identity) {
	c.put16(configVendor, id.Vendor, 0)
	c.put16(configDevice, id.Device, 0)
	c.put16(configCommand, 0, commandIO|commandMemory|commandMaster|commandParity|commandSERR|commandINTxDisable)
	c.put32(configRevision, uint32(id.Revision)|id.Class<<8, 0)
	c.put16(configCacheLine, 0, 0xffff)
	for i, bar := range id.BARs {
		c.putBAR(configBAR0+4*i, bar)
	}
	c.put16(configSubVendor, id.SubVendor, 0)
	c.put16(configSubDevice, id.SubDevice, 0)
	c.put16(configLine, 1<<8, 0xff) // pin A
	c.putCapabilities(id)
}

func (c *configSpace) putBAR(at int, bar BAR) {
	switch {
	case bar.Size == 0:
	case bar.IO:
		c.put32(at, 1, ^(bar.Size-1)&^3)
	default:
		c.put32(at, 0, ^(bar.Size-1)&^15)
	}
}

// putCapabilities writes the capabilities and chains them in order of offset.
func (c *configSpace) putCapabilities(id Identity) {
	var at []int
	add := func(offset uint8, kind byte) int {
		c.data[offset] = kind
		at = append(at, int(offset))
		return int(offset)
	}
	if id.PowerManagement != 0 {
		o := add(id.PowerManagement, capabilityPM)
		c.put16(o+2, 2, 0)      // version 2 of the specification
		c.put16(o+4, 0, 3|1<<8) // power state, PME enable
	}
	if id.MSI.Vectors > 0 {
		o := add(id.MSI.Offset, capabilityMSI)
		multiple := uint16(0)
		for 1<<multiple < id.MSI.Vectors {
			multiple++
		}
		c.put16(o+2, msi64Bit|multiple<<1, 1|7<<4)
		c.put32(o+4, 0, ^uint32(3))
		c.put32(o+8, 0, ^uint32(0))
		c.put16(o+12, 0, 0xffff)
	}
	if id.MSIX.Vectors > 0 {
		o := add(id.MSIX.Offset, capabilityMSIX)
		c.put16(o+2, uint16(id.MSIX.Vectors-1), 3<<14)
		c.put32(o+4, id.MSIX.TableOffset|uint32(id.MSIX.TableBAR), 0)
		c.put32(o+8, id.MSIX.PBAOffset|uint32(id.MSIX.PBABAR), 0)
	}
	if id.Express != 0 {
		o := add(id.Express, capabilityExpress)
		c.put16(o+2, 2, 0)           // version 2, endpoint
		c.put32(o+4, 0, 0)           // device capabilities: 128-byte payload
		c.put16(o+8, 0x2810, 0x7fff) // device control
		c.put32(o+12, 0x11|3<<10, 0) // link capabilities: 2.5 GT/s, x1, ASPM
		c.put16(o+16, 0, 0x00fb)     // link control
		c.put16(o+18, 0x11, 0)       // link status
	}
	for _, v := range id.VendorCapabilities {
		o := add(v.Offset, capabilityVendor)
		c.data[o+2] = byte(3 + len(v.Bytes))
		copy(c.data[o+3:], v.Bytes)
	}
	if len(at) == 0 {
		return
	}
	slices.Sort(at)
	c.put16(configStatus, statusCapabilities, 0)
	c.data[configCapabilities] = byte(at[0])
	for i := range at[1:] {
		c.data[at[i]+1] = byte(at[i+1])
	}
}

// validAccess tells whether an access is inside and aligned.
func validAccess(offset, size int) bool {
	return (size == 1 || size == 2 || size == 4) && offset >= 0 && offset%size == 0 && offset+size <= configSize
}

// read returns size bytes at offset; interrupting is the state of the pin.
func (c *configSpace) read(offset, size int, interrupting bool) uint32 {
	if !validAccess(offset, size) {
		return ^uint32(0) >> (32 - 8*min(max(size, 1), 4))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.data[configStatus] &^= statusInterrupt
	if interrupting {
		c.data[configStatus] |= statusInterrupt
	}
	var v uint32
	for i := range size {
		v |= uint32(c.data[offset+i]) << (8 * i)
	}
	return v
}

// write stores the writable bits and returns the command register.
func (c *configSpace) write(offset, size int, value uint32) uint16 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if validAccess(offset, size) {
		for i := range size {
			mask := c.writable[offset+i]
			c.data[offset+i] = c.data[offset+i]&^mask | byte(value>>(8*i))&mask
		}
	}
	return binary.LittleEndian.Uint16(c.data[configCommand:])
}
