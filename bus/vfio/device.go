package vfio

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"nicd/bus"
)

// Device is a PCI function behind VFIO. It implements bus.Device.
//
// The vectors' MSI-X table belongs to the kernel, which does not let it be
// mapped; interrupts are set up by SetInterrupts alone.
type Device struct {
	handle  *Handle
	info    bus.Info
	config  window
	regions [bus.ConfigSpace]*region
	kind    bus.InterruptKind
	vectors int // in force
	iommu   iommu
	dma     map[*bus.Memory]uint64
	closed  atomic.Bool
}

var _ bus.Device = (*Device)(nil)

// New makes a device of an opened handle, which it takes over. It may run in
// another process than the one that opened it.
func New(h *Handle) (*Device, error) {
	d := &Device{
		handle: h,
		info:   bus.Info{Address: h.Address, DMABase: h.DMABase},
		dma:    map[*bus.Memory]uint64{},
	}
	d.iommu = d.iommuOf(h)
	if err := d.attach(); err != nil {
		d.Close()
		return nil, fmt.Errorf("vfio %s: %w", h.Address, err)
	}
	return d, nil
}

// configRevision is where configuration space has the revision.
const configRevision = 0x08

func (d *Device) attach() error {
	var info deviceInfo
	info.argsz = sizeOf(info)
	if _, err := ioctlOn(d.handle.Device, reqDeviceGetInfo, &info); err != nil {
		return fmt.Errorf("get info: %w", err)
	}
	if info.regions <= bus.ConfigSpace {
		return fmt.Errorf("%d regions: not a PCI device", info.regions)
	}
	d.info.CanReset = info.flags&deviceCanReset != 0
	if err := d.attachRegions(); err != nil {
		return err
	}
	for kind := range min(info.irqs, uint32(len(d.info.Vectors))) {
		n, err := d.countVectors(kind)
		if err != nil {
			return err
		}
		d.info.Vectors[kind] = n
	}
	id, err := d.ReadConfig(0, 4)
	if err != nil {
		return err
	}
	revision, err := d.ReadConfig(configRevision, 1)
	d.info.Vendor, d.info.Device, d.info.Revision = uint16(id), uint16(id>>16), uint8(revision)
	return err
}

// Info describes the device.
func (d *Device) Info() bus.Info { return d.info }

func (d *Device) gone() error {
	if d.closed.Load() {
		return fmt.Errorf("vfio %s: %w: closed", d.info.Address, bus.ErrGone)
	}
	return nil
}

// wrap says what failed, and that the device is gone if the kernel says so.
func (d *Device) wrap(what string, err error) error {
	if errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("vfio %s: %s: %w: %w", d.info.Address, what, bus.ErrGone, err)
	}
	return fmt.Errorf("vfio %s: %s: %w", d.info.Address, what, err)
}

// ReadConfig reads configuration space, which the kernel virtualises in parts.
func (d *Device) ReadConfig(offset, size int) (uint32, error) {
	if err := d.checkConfig(offset, size); err != nil {
		return bus.Gone, err
	}
	if offset >= d.config.size {
		return allOnes(size), nil
	}
	v, err := d.config.read(offset, size)
	if err != nil {
		return allOnes(size), d.wrap("read configuration space", err)
	}
	return v, nil
}

// WriteConfig writes configuration space.
func (d *Device) WriteConfig(offset, size int, value uint32) error {
	if err := d.checkConfig(offset, size); err != nil {
		return err
	}
	if offset >= d.config.size {
		return nil
	}
	if err := d.config.write(offset, size, value); err != nil {
		return d.wrap("write configuration space", err)
	}
	return nil
}

func (d *Device) checkConfig(offset, size int) error {
	if size != 1 && size != 2 && size != 4 || offset < 0 || offset%size != 0 {
		return fmt.Errorf("vfio %s: configuration space access of %d bytes at %#x", d.info.Address, size, offset)
	}
	return d.gone()
}

func allOnes(size int) uint32 { return bus.Gone >> (32 - 8*size) }

// The command register, and its bit that lets the device access memory.
const (
	configCommand = 0x04
	commandMaster = 1 << 2
)

// Reset resets the function. A function that the kernel can't reset loses bus
// mastering, which ends its DMA, and keeps its state.
func (d *Device) Reset(context.Context) error {
	if err := d.gone(); err != nil {
		return err
	}
	if d.info.CanReset {
		if _, err := ioctl(d.handle.Device, reqDeviceReset, 0); err != nil {
			return d.wrap("reset", err)
		}
		return nil
	}
	return d.endMastering()
}

// endMastering ends the device's accesses to memory.
func (d *Device) endMastering() error {
	command, err := d.ReadConfig(configCommand, 2)
	if err != nil {
		return err
	}
	return d.WriteConfig(configCommand, 2, command&^commandMaster)
}

// Close turns interrupts off, ends DMA and gives the device back. Registers must
// not be accessed while it runs; their mappings end with it.
func (d *Device) Close() error {
	if d.closed.Load() {
		return nil
	}
	_ = d.SetInterrupts(d.kind, nil)
	for m := range d.dma {
		_ = d.UnmapDMA(m)
	}
	d.closed.Store(true)
	for _, r := range d.regions {
		if r != nil {
			r.unmap()
		}
	}
	return d.handle.Close()
}

// window is a region in the device's file, accessed by reading and writing the
// file.
type window struct {
	file   *os.File
	offset int64
	size   int
}

// read reads 1, 2 or 4 bytes, little endian as PCI is.
func (w window) read(offset, size int) (uint32, error) {
	var b [4]byte
	if _, err := w.file.ReadAt(b[:size], w.offset+int64(offset)); err != nil {
		return bus.Gone, err
	}
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24, nil
}

func (w window) write(offset, size int, value uint32) error {
	b := [4]byte{byte(value), byte(value >> 8), byte(value >> 16), byte(value >> 24)}
	_, err := w.file.WriteAt(b[:size], w.offset+int64(offset))
	return err
}
