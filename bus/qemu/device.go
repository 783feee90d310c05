package qemu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"nicd/bus"
)

// Options are the settings of a device that is alone in its QEMU, those of a bus
// and a device. Model is needed.
type Options struct {
	Name    string // "vmx0" makes the address "qemu:vmx0"
	Model   string
	MAC     [6]byte
	Netdev  Netdev
	Program string
	Timeout time.Duration
	Report  func(error)
}

// Device is a device model in a QEMU, a bus.Device.
//
// QEMU's end makes the device one that is gone: registers read all ones, calls
// return bus.ErrGone. Reset is a reset by the port that the device is behind.
type Device struct {
	machine *Bus
	opt     DeviceOptions
	index   int // among the machine's devices
	alone   bool
	model   *model
	info    bus.Info

	port        port
	nic         function
	config      *configSpace
	regions     [bus.NumRegions]bus.Region
	messages    messages
	firstVector int // of the machine's
	irq         interrupts
	kind        bus.InterruptKind // what SetInterrupts asked for
	vectors     int

	closed atomic.Bool
	end    sync.Once
}

// Start starts a QEMU and gives its only device, whose Close ends QEMU. ctx is for
// the start only.
func Start(ctx context.Context, o Options) (*Device, error) {
	b, err := StartBus(ctx, BusOptions{
		Devices: []DeviceOptions{{Name: o.Name, Model: o.Model, MAC: o.MAC, Netdev: o.Netdev}},
		Program: o.Program, Timeout: o.Timeout, Report: o.Report,
	})
	if err != nil {
		return nil, err
	}
	b.devices[0].alone = true
	return b.devices[0], nil
}

func (b *Bus) newDevice(index int, m *model, o DeviceOptions) *Device {
	return &Device{machine: b, opt: o, index: index, model: m, port: newPort(index), info: bus.Info{
		Address: b.opt.address(&o), CanReset: true, DMABase: DMABase + uint64(index)*dmaWindow,
	}}
}

// Names of things in QEMU.
func (d *Device) netdevID() string { return fmt.Sprintf("net%d", d.index) }
func (d *Device) portID() string   { return fmt.Sprintf("port%d", d.index) }

// arguments are the device's part of QEMU's command line.
func (d *Device) arguments(f *inheritance) []string {
	args := []string{"-device", fmt.Sprintf("pcie-root-port,id=%s,chassis=%d,addr=%#x,hotplug=off", d.portID(), d.index, d.port.slot)}
	device := fmt.Sprintf("%s,bus=%s", d.model.device, d.portID())
	if d.opt.MAC != [6]byte{} {
		device += ",mac=" + net.HardwareAddr(d.opt.MAC[:]).String()
	}
	if d.opt.Netdev == nil {
		return append(args, "-device", device)
	}
	return append(args, "-netdev", d.opt.Netdev.option(f)+",id="+d.netdevID(), "-device", device+",netdev="+d.netdevID())
}

// open sets the device up.
func (d *Device) open() {
	q := d.machine.qtest
	d.port.qtest = q
	d.nic = function{qtest: q, bus: d.port.secondary()}
	d.port.open()
	free := d.port.space()
	d.nic.measure(&free)
	d.nic.place()
	d.find()
	d.config = newConfigSpace(&d.nic, d.messages.msi, d.messages.msix)
}

// find finds out what the device is.
func (d *Device) find() {
	f, m := &d.nic, &d.messages
	id := f.read(configID, 4)
	d.info.Vendor, d.info.Device, d.info.Revision = uint16(id), uint16(id>>16), uint8(f.read(configRevision, 1))
	for i, b := range f.bars {
		if b.size > 0 {
			d.regions[i] = &region{qtest: f.qtest, bar: b}
		}
	}
	if f.read(configPin, 1) != 0 {
		d.info.Vectors[bus.INTx] = 1
	}
	if m.msi = f.capability(capabilityMSI); m.msi != 0 && d.model.vectors > 0 {
		d.info.Vectors[bus.MSI] = 1
	}
	if m.msix = f.capability(capabilityMSIX); m.msix == 0 {
		return
	}
	m.vectors = int(f.read(m.msix+msiControl, 2)&msixCount) + 1
	table := f.read(m.msix+msixTable, 4)
	m.table, _ = d.regions[table&msixBAR].(*region)
	if m.table == nil {
		return
	}
	m.offset = table &^ msixBAR
	m.table.table = span{m.offset, m.offset + msixEntry*uint32(m.vectors)}
	d.info.Vectors[bus.MSIX] = min(m.vectors, d.model.vectors)
}

// Info implements bus.Device.
func (d *Device) Info() bus.Info { return d.info }

// Version is QEMU's.
func (d *Device) Version() Version { return d.machine.version }

// CutsWrongly tells whether this QEMU makes IP fragments, and not TCP segments, of
// TSO frames that the device is given: it must not be asked to cut.
func (d *Device) CutsWrongly() bool {
	return d.model.cutsWrongly && d.machine.version.Major < 8 && (d.opt.Netdev == nil || !d.opt.Netdev.whole())
}

// SetLink takes the device's link down or up again. Any goroutine may call it.
func (d *Device) SetLink(ctx context.Context, up bool) error {
	err := d.machine.qmp.run(ctx, "set_link", qmpArguments{"name": d.netdevID(), "up": up}, nil)
	if err != nil {
		return fmt.Errorf("%s: link: %w", d.info.Address, err)
	}
	return nil
}

// gone is an error once QEMU has ended, or the device was closed.
func (d *Device) gone() error {
	if d.closed.Load() || d.machine.gone() != nil {
		return fmt.Errorf("%s: %w", d.info.Address, bus.ErrGone)
	}
	return nil
}

// Reset implements bus.Device. Configuration space is as it was afterwards.
func (d *Device) Reset(context.Context) error {
	if err := d.gone(); err != nil {
		return err
	}
	command := d.nic.read(configCommand, 2)
	d.port.reset()
	d.nic.place()
	d.nic.write(configCommand, 2, command)
	d.enableMessages(d.kind, d.vectors)
	return d.gone()
}

// Kill ends QEMU, see Bus.Kill.
func (d *Device) Kill() { d.machine.Kill() }

// Close implements bus.Device. QEMU goes on with the bus's other devices, if it was
// not this device's own.
func (d *Device) Close() error {
	if d.alone {
		return d.machine.Close()
	}
	var err error
	d.end.Do(func() { err = d.release() })
	return err
}

// release makes the device do nothing more, and gives back its memory.
func (d *Device) release() error {
	if d.gone() != nil {
		return nil
	}
	err := errors.Join(d.SetInterrupts(bus.INTx, nil), d.Reset(context.Background()), d.unmapAll())
	d.closed.Store(true)
	if errors.Is(err, bus.ErrGone) {
		return nil
	}
	return err
}
