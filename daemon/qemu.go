package daemon

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"nicd/bus/qemu"
	"nicd/config"
	"nicd/framework"
	"nicd/sim"
)

// openQEMU starts a QEMU and gives its device.
func (i *netInterface) openQEMU(ctx context.Context, c *config.QEMUDevice, wires map[string]*sim.Wire) (*openedDevice, error) {
	refused := func(err error) (*openedDevice, error) {
		return nil, fmt.Errorf("%s: %w", i.config.Device.Origin, err)
	}
	netdev, far, err := newNetdev(c)
	if err != nil {
		return refused(err)
	}
	defer closeFiles(far, netdevFile(netdev))
	device, err := qemu.Start(ctx, qemu.Options{
		Name: i.config.Name, Model: c.Model, MAC: c.MAC, Netdev: netdev, Program: c.Program, Report: i.qemuEnded,
	})
	if err != nil {
		return refused(err)
	}
	i.atClose(func() { device.Close() })
	if far != nil {
		if err := i.connect(device, wires[c.Wire], far); err != nil {
			return refused(err)
		}
	}
	if device.CutsWrongly() {
		i.imposed = append(i.imposed, framework.FeatureSetting{
			Features: framework.TSO4 | framework.TSO6, Want: framework.WantSoftware,
			Origin: fmt.Sprintf("QEMU %v makes IP fragments of TSO frames where its network does not take them whole", device.Version()),
		})
	}
	info := device.Info()
	i.address, i.deviceID = deviceText(&i.config.Device, info), info.Device
	if err := i.driver.drives(info, i.config.Origin); err != nil {
		return nil, err
	}
	return i.give(ctx, device)
}

// newNetdev is what QEMU connects its device to; far is the other end of it, if
// that is a wire's.
func newNetdev(c *config.QEMUDevice) (n qemu.Netdev, far *os.File, err error) {
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
func (i *netInterface) connect(device *qemu.Device, wire *sim.Wire, far *os.File) error {
	end, err := sim.NewSocket(wire, far, func(up bool) {
		ctx, cancel := context.WithTimeout(context.Background(), linkPatience)
		defer cancel()
		if err := device.SetLink(ctx, up); err != nil {
			i.log.Debug().Err(err).Msg("link")
		}
	})
	if err != nil {
		return err
	}
	i.atClose(end.Close)
	return nil
}

// qemuEnded ends an interface whose device is gone. One that is not up yet, or
// not any more, finds out by itself.
func (i *netInterface) qemuEnded(err error) {
	i.log.Error().Err(err).Msg("QEMU ended")
	if i.is(running) {
		i.fail(err.Error())
	}
}
