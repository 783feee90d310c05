package daemon

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"nicd/bus/qemu"
	"nicd/config"
	"nicd/framework"
	"nicd/sim"
)

// qemuBus is a config's bus: a QEMU, and the wires' ends that its devices are.
type qemuBus struct {
	*qemu.Bus
	log  zerolog.Logger
	ends []*sim.Socket
}

// openBuses starts the QEMUs of all devices that interfaces use, at once.
func (d *Daemon) openBuses(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var opening sync.WaitGroup
	for _, c := range d.options.Config.Buses {
		devices := d.usedDevices(&c)
		if len(devices) == 0 {
			continue
		}
		b := &qemuBus{log: d.log.With().Str("bus", c.Name).Logger()}
		d.buses[c.Name] = b
		opening.Go(func() {
			if err := b.open(ctx, &c, devices, d.wires, func(err error) { d.busEnded(c.Name, err) }); err != nil {
				cancel(fmt.Errorf("%s: %w", c.Origin, err))
			}
		})
	}
	opening.Wait()
	return context.Cause(ctx)
}

// usedDevices are the devices of a bus that interfaces use.
func (d *Daemon) usedDevices(b *config.QEMUBus) []config.QEMUDevice {
	return slices.DeleteFunc(slices.Clone(b.Devices), func(q config.QEMUDevice) bool {
		return !slices.ContainsFunc(d.options.Config.Interfaces, func(i config.Interface) bool {
			return i.Device.QEMU != nil && *i.Device.QEMU == config.QEMUAddress{Bus: b.Name, Device: q.Name}
		})
	})
}

// busEnded ends the interfaces whose devices are gone. One that is not up yet, or
// not any more, finds out by itself.
func (d *Daemon) busEnded(bus string, err error) {
	d.log.Error().Str("bus", bus).Err(err).Msg("QEMU ended")
	for _, i := range d.interfaces {
		if a := i.config.Device.QEMU; a != nil && a.Bus == bus && i.is(running) {
			i.fail(err.Error())
		}
	}
}

// open starts QEMU. What fails is undone by close.
func (b *qemuBus) open(ctx context.Context, c *config.QEMUBus, devices []config.QEMUDevice, wires map[string]*sim.Wire, report func(error)) error {
	o := qemu.BusOptions{Name: c.Name, Program: c.Program, Report: report}
	far := map[string]*os.File{} // the other ends of devices that are on a wire
	for _, q := range devices {
		netdev, other, err := newNetdev(&q.Network)
		if err != nil {
			return fmt.Errorf("%s: %w", q.Name, err)
		}
		defer closeFiles(other, netdevFile(netdev))
		if other != nil {
			far[q.Name] = other
		}
		o.Devices = append(o.Devices, qemu.DeviceOptions{Name: q.Name, Model: q.Model, MAC: q.MAC, Netdev: netdev})
	}
	var err error
	if b.Bus, err = qemu.StartBus(ctx, o); err != nil {
		return err
	}
	for _, q := range devices {
		if file := far[q.Name]; file != nil {
			if err := b.connect(b.Device(q.Name), wires[q.Network.Wire], file); err != nil {
				return err
			}
		}
	}
	return nil
}

// close ends QEMU. The interfaces are closed.
func (b *qemuBus) close() {
	for _, e := range b.ends {
		e.Close()
	}
	if b.Bus != nil {
		b.Bus.Close()
	}
}

// openQEMU gives the device on a bus to the driver.
func (i *netInterface) openQEMU(ctx context.Context, address config.QEMUAddress, buses map[string]*qemuBus) (*openedDevice, error) {
	device := buses[address.Bus].Device(address.Device)
	if device.CutsWrongly() {
		i.imposed = append(i.imposed, framework.FeatureSetting{
			Features: framework.TSO4 | framework.TSO6, Want: framework.WantSoftware,
			Origin: fmt.Sprintf("QEMU %v makes IP fragments of TSO frames where its network does not take them whole", device.Version()),
		})
	}
	i.atClose(func() {
		if err := device.Close(); err != nil {
			i.log.Debug().Err(err).Msg("closing the device")
		}
	})
	info := device.Info()
	i.address, i.deviceID = info.Address, info.Device
	if err := i.driver.drives(info, i.config.Origin); err != nil {
		return nil, err
	}
	return i.give(ctx, device)
}

// newNetdev is what QEMU connects its device to; far is the other end of it, if
// that is a wire's.
func newNetdev(c *config.Network) (n qemu.Netdev, far *os.File, err error) {
	switch c.Netdev {
	case config.NetdevTAP:
		file, err := qemu.OpenTap(c.TAP)
		return qemu.Tap{File: file}, nil, err
	case config.NetdevDgram:
		return qemu.Datagram{Local: c.Local, Remote: c.Remote}, nil, nil
	case config.NetdevWire:
		fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
		if err != nil {
			return nil, nil, fmt.Errorf("socketpair: %w", err)
		}
		return qemu.Datagram{File: os.NewFile(uintptr(fds[0]), "wire")}, os.NewFile(uintptr(fds[1]), "wire"), nil
	}
	return qemu.User{}, nil, nil
}

func netdevFile(n qemu.Netdev) *os.File {
	switch n := n.(type) {
	case qemu.Tap:
		return n.File
	case qemu.Datagram:
		return n.File
	}
	return nil
}

func closeFiles(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// linkPatience is how long QEMU gets to take a device's link up or down.
const linkPatience = 5 * time.Second

// connect makes a device's network an end of a wire, whose link is the device's.
func (b *qemuBus) connect(device *qemu.Device, wire *sim.Wire, far *os.File) error {
	end, err := sim.NewSocket(wire, far, func(up bool) {
		ctx, cancel := context.WithTimeout(context.Background(), linkPatience)
		defer cancel()
		if err := device.SetLink(ctx, up); err != nil {
			b.log.Debug().Err(err).Msg("link")
		}
	})
	if err != nil {
		return err
	}
	b.ends = append(b.ends, end)
	return nil
}
