package sim

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"nicd/bus"
)

// Options are a device's settings. The zero value works.
type Options struct {
	// Name is what messages call the device: "vmx0" makes the address "sim:vmx0".
	Name string
	// Clock is the time the model lives by; nil is SystemClock.
	Clock Clock
	// Spin is for how long an idle worker looks for work before it sleeps. Zero
	// is DefaultSpin; negative is not at all.
	Spin time.Duration
	// Budget is how many frames of a transmit queue one pass of Work may send;
	// zero is DefaultBudget.
	Budget int
	// OnFault is called for every refused access to memory, on the goroutine
	// that made it, with the model's locks held: it must not call the device.
	OnFault func(Fault)
	// HeapDoorbells keeps the doorbell page on the Go heap, where the race
	// detector sees it and other processes do not.
	HeapDoorbells bool
	// Passive devices have no worker: their owner calls Model.Work.
	Passive bool
}

// Defaults of Options.
const (
	DefaultSpin   = 10 * time.Microsecond
	DefaultBudget = 64
)

// Device is a model in this process as a bus.Device and bus.DoorbellDevice: its
// configuration space, registers, interrupts and DMA, and the worker that makes
// it run.
//
// Where the bus lets things be: memory decoding is on whatever the command
// register says, as it is for a device that a host opened; bus mastering is
// what the command register says, off at first. The MSI-X table's addresses and
// data are stored and have no effect: SetInterrupts says where messages go; it
// also unmasks the vectors, and mask bits written to the table later count.
type Device struct {
	model   Model
	narrow  NarrowModel // the model, if it is one
	host    Host
	id      Identity
	opt     Options
	config  configSpace
	table   msixTable
	ranges  []bus.DoorbellRange
	regions [bus.NumRegions]*Region
	life    sync.Mutex // held while the worker is started or stopped
	cancel  context.CancelFunc
	worker  sync.WaitGroup
	gone    atomic.Bool
	end     sync.Once
}

// NewDevice makes a device of model, in its power-on state, and starts its
// worker. The device and the model are one from then on; Close ends both.
func NewDevice(model Model, opt Options) (*Device, error) {
	if opt.Clock == nil {
		opt.Clock = SystemClock()
	}
	if opt.Spin == 0 {
		opt.Spin = DefaultSpin
	}
	if opt.Budget <= 0 {
		opt.Budget = DefaultBudget
	}
	d := &Device{model: model, id: model.Identity(), opt: opt, ranges: model.Doorbells()}
	d.narrow, _ = model.(NarrowModel)
	bells, err := d.makeDoorbells()
	if err != nil {
		return nil, fmt.Errorf("sim:%s: %w", opt.Name, err)
	}
	d.host.bells.Store(bells)
	d.config.init(d.id)
	d.table.init(d.id.MSIX.Vectors)
	d.makeRegions()
	d.connectHost()
	d.startWorker()
	return d, nil
}

func (d *Device) makeDoorbells() (*bus.Doorbells, error) {
	page, err := bus.HeapMemory(bus.DoorbellPageSize), error(nil)
	if !d.opt.HeapDoorbells {
		if page, err = bus.NewMemory("doorbells", bus.DoorbellPageSize); err != nil {
			return nil, err
		}
	}
	bell, err := bus.NewEvent()
	if err != nil {
		page.Close()
		return nil, err
	}
	return bus.NewDoorbells(page, bell), nil
}

func (d *Device) connectHost() {
	h := &d.host
	h.Tx.host, h.Rx.host = h, h
	h.clock = d.opt.Clock
	h.timer = h.clock.NewTimer(h.timerFired)
	h.onFault = d.opt.OnFault
	h.irq.init(max(d.id.MSIX.Vectors, d.id.MSI.Vectors))
	d.model.Connect(h)
}

// Faults is how many accesses to memory were refused.
func (d *Device) Faults() uint64 { return d.host.Faults() }

// Info implements bus.Device.
func (d *Device) Info() bus.Info {
	return bus.Info{
		Address:  "sim:" + d.opt.Name,
		Vendor:   d.id.Vendor,
		Device:   d.id.Device,
		Revision: d.id.Revision,
		Vectors:  [3]int{bus.INTx: 1, bus.MSI: d.id.MSI.Vectors, bus.MSIX: d.id.MSIX.Vectors},
		CanReset: true,
	}
}

// ReadConfig implements bus.Device.
func (d *Device) ReadConfig(offset, size int) (uint32, error) {
	if d.gone.Load() {
		return bus.Gone, d.errGone()
	}
	return d.config.read(offset, size, d.host.irq.line.Load()), nil
}

// WriteConfig implements bus.Device. Writes to read-only bits and outside have
// no effect.
func (d *Device) WriteConfig(offset, size int, value uint32) error {
	if d.gone.Load() {
		return d.errGone()
	}
	command := d.config.write(offset, size, value)
	if validAccess(offset, size) && offset < configStatus && offset+size > configCommand {
		d.host.setMaster(command&commandMaster != 0)
		d.host.irq.disableLine(command&commandINTxDisable != 0)
		d.host.Wake()
	}
	return nil
}

// Region implements bus.Device.
func (d *Device) Region(index int) (bus.Region, error) {
	if index < 0 || index >= len(d.regions) || d.regions[index] == nil {
		return nil, fmt.Errorf("sim:%s: region %d: %w", d.opt.Name, index, bus.ErrNoRegion)
	}
	return d.regions[index], nil
}

// SetInterrupts implements bus.Device. Interrupts that were pending are
// delivered.
func (d *Device) SetInterrupts(kind bus.InterruptKind, events []*bus.Event) error {
	if d.gone.Load() {
		return d.errGone()
	}
	if kind > bus.MSIX || len(events) > d.Info().Vectors[kind] {
		return fmt.Errorf("sim:%s: %d vectors of %v: %w", d.opt.Name, len(events), kind, bus.ErrNoInterrupt)
	}
	d.table.unmask(len(events))
	d.host.irq.set(kind, events)
	d.host.Wake()
	return nil
}

// UnmaskInterrupt implements bus.Device.
func (d *Device) UnmaskInterrupt(vector int) error {
	if d.gone.Load() {
		return d.errGone()
	}
	if vector != 0 {
		return nil
	}
	d.host.irq.unmaskLine()
	return nil
}

// MapDMA implements bus.Device. A range that overlaps another, or memory that is
// mapped already, is an error.
func (d *Device) MapDMA(m *bus.Memory, iova uint64) error {
	if d.gone.Load() {
		return d.errGone()
	}
	return d.host.mapMemory(m, iova)
}

// UnmapDMA implements bus.Device.
func (d *Device) UnmapDMA(m *bus.Memory) error {
	if d.gone.Load() {
		return d.errGone()
	}
	return d.host.unmapMemory(m)
}

// Reset implements bus.Device. Configuration space keeps its values, as a host
// that resets a function restores them.
func (d *Device) Reset(context.Context) error {
	if d.gone.Load() {
		return d.errGone()
	}
	d.model.Reset()
	d.host.irq.reset()
	return nil
}

// Doorbells implements bus.DoorbellDevice.
func (d *Device) Doorbells() (*bus.Doorbells, []bus.DoorbellRange) {
	return d.host.bells.Load(), d.ranges
}

// RenewDoorbells implements bus.DoorbellDevice. A passive device's owner is not in
// Model.Work meanwhile.
func (d *Device) RenewDoorbells() error {
	d.life.Lock()
	defer d.life.Unlock()
	if d.gone.Load() {
		return d.errGone()
	}
	d.stopWorker()
	defer d.startWorker()
	last := d.host.bells.Load()
	bells, err := d.makeDoorbells()
	if err != nil {
		d.host.detach()
		last.Memory().Close()
		return fmt.Errorf("sim:%s: %w", d.opt.Name, err)
	}
	d.host.attach(bells)
	last.Memory().Close()
	last.Event().Close()
	return nil
}

// Unplug removes the device as a hand that pulls the card would: from now on
// registers read all ones, calls return bus.ErrGone, nothing is signalled, and
// no DMA is in flight when it returns. Close is still to be called.
func (d *Device) Unplug() {
	d.gone.Store(true)
	d.life.Lock()
	d.stopWorker()
	d.life.Unlock()
	d.host.timer.Stop()
	d.host.irq.set(bus.INTx, nil)
	d.model.Reset()
	d.host.unmapAll()
}

// Close ends the device and its worker. The doorbell page is unmapped: nobody
// may ring any more.
func (d *Device) Close() error {
	d.end.Do(func() {
		d.Unplug()
		bells := d.host.bells.Load()
		d.host.detach()
		bells.Event().Close()
		bells.Memory().Close()
	})
	return nil
}

func (d *Device) errGone() error { return fmt.Errorf("sim:%s: %w", d.opt.Name, bus.ErrGone) }
