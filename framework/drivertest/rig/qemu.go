package rig

import (
	"context"
	"fmt"
	"os"
	"syscall"

	"nicd/bus"
	"nicd/bus/qemu"
	"nicd/sim"
)

// QEMUOptions are the settings of a station that is one of QEMU's models.
type QEMUOptions struct {
	Model string // of qemu.Models, or another with qemu.OtherModel
	MAC   [6]byte
	// Program is the QEMU to run; the one in the path if empty.
	Program string
	// Limit is how many frames the tester takes before it has no room; 0 is no
	// limit.
	Limit int
	// NoFlowControl drops frames that QEMU's socket has no room for.
	NoFlowControl bool
}

// NewQEMUStation starts a QEMU with a model whose network is a wire with a tester.
// Its memory has to be a file's: see Options.Memory and bus.NewMemory.
func NewQEMUStation(ctx context.Context, opt QEMUOptions) (*Station, error) {
	far, near, err := datagrams()
	if err != nil {
		return nil, err
	}
	defer far.Close()
	defer near.Close()
	dev, err := qemu.Start(ctx, qemu.Options{
		Name: "test", Model: opt.Model, Program: opt.Program, MAC: opt.MAC, Netdev: qemu.Datagram{File: far},
	})
	if err != nil {
		return nil, err
	}
	wire := sim.NewWire(sim.WireOptions{NoFlowControl: opt.NoFlowControl})
	peer := sim.NewTester(wire, sim.Wants{})
	peer.Limit = opt.Limit
	socket, err := sim.NewSocket(wire, near, func(up bool) {
		ctx, cancel := context.WithTimeout(context.Background(), Deadline)
		defer cancel()
		_ = dev.SetLink(ctx, up) // fails on a device that is gone, and nowhere else
	})
	if err != nil {
		dev.Close()
		return nil, err
	}
	return &Station{
		Bus: dev, Peer: settledPeer{peer, dev}, SetLink: wire.SetLink, SetFaults: wire.SetFaults, Unplug: dev.Kill,
		Close: func() {
			socket.Close()
			wire.Close()
		},
	}, nil
}

// settledPeer sends when all register writes before hold. They take another way
// into QEMU than frames do, and a frame would overtake a change of filters, say.
type settledPeer struct {
	*sim.Tester
	device bus.Device
}

// Send implements Tester.
func (p settledPeer) Send(ctx context.Context, frames ...sim.Frame) error {
	_, _ = p.device.ReadConfig(0, 4) // waits for what was written before; an error is for the driver
	return p.Tester.Send(ctx, frames...)
}

// SharedMemory is Options.Memory for devices in other processes.
func SharedMemory(size int) (*bus.Memory, error) { return bus.NewMemory("rig", size) }

func datagrams() (a, b *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "wire"), os.NewFile(uintptr(fds[1]), "wire"), nil
}
