package daemon

import (
	"errors"
	"fmt"

	"nicd/bus"
	"nicd/bus/vfio"
	"nicd/config"
)

// openPCI opens a PCI function of this machine. A plugin gets its descriptors
// and needs no privilege to use them.
func (i *netInterface) openPCI(host vfio.Host, c *config.VFIODevice) (*openedDevice, error) {
	refused := func(err error) (*openedDevice, error) {
		return nil, fmt.Errorf("%s: %w", i.config.Device.Origin, err)
	}
	i.address = deviceText(&i.config.Device, bus.Info{})
	function, err := host.Find(c.Address)
	if errors.Is(err, vfio.ErrNotFound) {
		return refused(fmt.Errorf("%w (nicd devices lists those that are there)", err))
	}
	if err != nil {
		return refused(err)
	}
	i.deviceID, i.subsystem = function.Device, function.Subsystem
	if err := i.driver.drives(bus.Info{Address: i.address, Vendor: function.Vendor, Device: function.Device}, i.config.Origin); err != nil {
		return nil, err
	}
	open := host.Open
	if c.AllowUnsafeNoIOMMU {
		open = host.OpenUnsafe
	}
	handle, err := open(c.Address)
	if errors.Is(err, vfio.ErrNoIOMMU) && !c.AllowUnsafeNoIOMMU {
		return refused(fmt.Errorf("%w (or accept that the device can write to all of the machine's memory: allow_unsafe_noiommu = true)", err))
	}
	if errors.Is(err, vfio.ErrNotBound) {
		return refused(fmt.Errorf("%w (nicd bind %s gives it to vfio-pci)", err, c.Address))
	}
	if err != nil {
		return refused(err)
	}
	if handle.NoIOMMU {
		i.address += " WITHOUT IOMMU, can write to all of memory"
		i.log.Warn().Str("device", c.Address).Str("config", "allow_unsafe_noiommu = true").
			Msg("NO IOMMU: the device, its driver and whoever breaks into that can read and write all of this machine's memory")
	}
	return &openedDevice{vfio: handle}, nil
}

// newArena makes the interface's memory: for a PCI function one piece of physical
// memory if there is one, because an IOMMU's tables and caches are the better for
// it, because QEMU's models lose what they are to send from two pages that only its
// vIOMMU puts side by side, which takes more descriptors to avoid, and because
// without an IOMMU nothing else will do.
func (i *netInterface) newArena(host vfio.Host, size int, handle *vfio.Handle) (*bus.Memory, error) {
	name := "nicd-" + i.config.Name
	if handle == nil {
		return bus.NewMemory(name, size)
	}
	m, at, err := host.NewContiguous(name, size)
	if err == nil {
		if handle.NoIOMMU {
			handle.DMABase, handle.DMASize = at, uint64(m.Size())
		}
		return m, nil
	}
	if handle.NoIOMMU {
		return nil, fmt.Errorf("%s: without an IOMMU the device needs it: %w", i.config.Device.Origin, err)
	}
	i.scattered = true
	i.log.Info().Err(err).Msg("the arena is in small pages")
	return bus.NewMemory(name, size)
}

// open makes a bus.Device of a PCI function for a driver in this process.
func (o *openedDevice) open(i *netInterface) error {
	device, err := vfio.New(o.vfio)
	if err != nil {
		return fmt.Errorf("%s: %w", i.config.Device.Origin, err)
	}
	i.atClose(func() { device.Close() })
	o.bus, o.vfio = device, nil
	return nil
}
