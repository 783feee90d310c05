package qemu

import "nicd/bus"

// configSpace is what a driver sees of the function's configuration space: BARs
// that are its own to write, memory and I/O always decoded, and message
// interrupts that only [Device.SetInterrupts] sets up.
type configSpace struct {
	function *function
	bars     [6]uint32
	fixed    []span // that the driver's writes do not reach
}

const (
	msiSize  = 24
	msixSize = 12
)

func newConfigSpace(f *function, msi, msix int) *configSpace {
	c := &configSpace{function: f, fixed: []span{{configROM, configROM + 4}}}
	if msi != 0 {
		c.fixed = append(c.fixed, span{uint32(msi), uint32(msi + msiSize)})
	}
	if msix != 0 {
		c.fixed = append(c.fixed, span{uint32(msix), uint32(msix + msixSize)})
	}
	for i, b := range f.bars {
		c.bars[i] = b.flags
	}
	return c
}

func validAccess(offset, size int) bool {
	return (size == 1 || size == 2 || size == 4) && offset >= 0 && offset%size == 0 && offset+size <= configSize
}

// barAt is the BAR at an offset, or -1.
func barAt(offset int) int {
	if offset < configBAR0 || offset >= configBAR0+4*6 {
		return -1
	}
	return (offset - configBAR0) / 4
}

func (c *configSpace) read(offset, size int) uint32 {
	if !validAccess(offset, size) {
		return ^uint32(0) >> (32 - 8*min(max(size, 1), 4))
	}
	if i := barAt(offset); i >= 0 {
		return c.bars[i] >> (8 * (offset & 3)) & (^uint32(0) >> (32 - 8*size))
	}
	return c.function.read(offset, size)
}

func (c *configSpace) write(offset, size int, v uint32) {
	if !validAccess(offset, size) {
		return
	}
	if i := barAt(offset); i >= 0 {
		if b := c.function.bars[i]; size == 4 && b.size > 0 {
			c.bars[i] = v&^uint32(b.size-1) | b.flags
		}
		return
	}
	for _, s := range c.fixed {
		if s.has(uint32(offset)) {
			return
		}
	}
	if offset == configCommand {
		v |= commandIO | commandMemory
	}
	c.function.write(offset, size, v)
}

// ReadConfig implements bus.Device.
func (d *Device) ReadConfig(offset, size int) (uint32, error) {
	if err := d.gone(); err != nil {
		return bus.Gone, err
	}
	v := d.config.read(offset, size)
	if v == bus.Gone { // which it may have become meanwhile
		return v, d.gone()
	}
	return v, nil
}

// WriteConfig implements bus.Device.
func (d *Device) WriteConfig(offset, size int, v uint32) error {
	d.config.write(offset, size, v)
	return d.gone()
}
