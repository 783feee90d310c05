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
	i.deviceID = function.Device
	if err := i.driver.drives(bus.Info{Address: i.address, Vendor: function.Vendor, Device: function.Device}, i.config.Origin); err != nil {
		return nil, err
	}
	handle, err := host.Open(c.Address)
	if errors.Is(err, vfio.ErrNotBound) {
		return refused(fmt.Errorf("%w (nicd bind %s gives it to vfio-pci)", err, c.Address))
	}
	if err != nil {
		return refused(err)
	}
	if i.driverCfg.Mode != config.InProcess {
		return &openedDevice{vfio: handle}, nil
	}
	device, err := vfio.New(handle)
	if err != nil {
		return refused(err)
	}
	i.atClose(func() { device.Close() })
	return &openedDevice{bus: device}, nil
}
