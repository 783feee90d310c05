package drivertest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"nicd/bus"
)

// errInjected is what a bus call gets that was chosen to fail.
var errInjected = errors.New("injected bus error")

// probe stands between a driver and its bus. It counts what the driver does, makes
// a chosen call fail, and takes the device away at a chosen register read. The zero
// value but Device changes nothing.
type probe struct {
	bus.Device
	// failAt is the call that fails and goneAt the register read from which on
	// nobody answers, counted from 1; 0 is none.
	failAt, goneAt int64
	calls, reads   atomic.Int64 // calls that can fail, register reads
	writes, resets atomic.Int64
	ioWrites       atomic.Int64 // writes of any region but the first
	failed, gone   atomic.Bool
	mapped, armed  atomic.Int64 // DMA mappings of the driver's; events that it gave

	mu      sync.Mutex
	regions map[int]bus.Region
}

// wrap is for rig.Options.Wrap.
func (p *probe) wrap(d bus.Device) bus.Device {
	p.Device = d
	return p
}

// arm chooses what is to go wrong and counts from the start.
func (p *probe) arm(failAt, goneAt int64) {
	p.failAt, p.goneAt = failAt, goneAt
	p.calls.Store(0)
	p.reads.Store(0)
	p.writes.Store(0)
	p.failed.Store(false)
	p.gone.Store(false)
}

// call counts a call that can fail and says whether it does.
func (p *probe) call() error {
	n := p.calls.Add(1)
	if p.gone.Load() {
		return bus.ErrGone
	}
	if n == p.failAt {
		p.failed.Store(true)
		return errInjected
	}
	return nil
}

func (p *probe) ReadConfig(offset, size int) (uint32, error) {
	if err := p.call(); err != nil {
		return bus.Gone, err
	}
	return p.Device.ReadConfig(offset, size)
}

func (p *probe) WriteConfig(offset, size int, value uint32) error {
	if err := p.call(); err != nil {
		return err
	}
	return p.Device.WriteConfig(offset, size, value)
}

func (p *probe) Region(index int) (bus.Region, error) {
	if err := p.call(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.regions[index]; r != nil {
		return r, nil
	}
	below, err := p.Device.Region(index)
	if err != nil {
		return nil, err
	}
	if p.regions == nil {
		p.regions = map[int]bus.Region{}
	}
	r := &probeRegion{Region: below, probe: p, index: index}
	p.regions[index] = r
	return r, nil
}

func (p *probe) SetInterrupts(kind bus.InterruptKind, events []*bus.Event) error {
	if err := p.call(); err != nil {
		return err
	}
	p.armed.Store(int64(len(events)))
	return p.Device.SetInterrupts(kind, events)
}

func (p *probe) MapDMA(m *bus.Memory, iova uint64) error {
	if err := p.call(); err != nil {
		return err
	}
	p.mapped.Add(1)
	return p.Device.MapDMA(m, iova)
}

func (p *probe) UnmapDMA(m *bus.Memory) error {
	if err := p.call(); err != nil {
		return err
	}
	p.mapped.Add(-1)
	return p.Device.UnmapDMA(m)
}

func (p *probe) Reset(ctx context.Context) error {
	if err := p.call(); err != nil {
		return err
	}
	p.resets.Add(1)
	return p.Device.Reset(ctx)
}

// leftBehind says what of the driver's is still there that should not be.
func (p *probe) leftBehind() error {
	switch {
	case p.armed.Load() != 0:
		return errors.New("interrupts are left behind")
	case p.mapped.Load() != 0:
		return errors.New("a DMA mapping is left behind")
	}
	return nil
}

type probeRegion struct {
	bus.Region
	probe *probe
	index int
}

func (r *probeRegion) Read32(offset uint32) uint32 { return r.Read(offset, 4) }

func (r *probeRegion) Write32(offset, value uint32) { r.Write(offset, 4, value) }

func (r *probeRegion) Read(offset uint32, size int) uint32 {
	if r.probe.reads.Add(1) == r.probe.goneAt {
		r.probe.gone.Store(true)
	}
	if r.probe.gone.Load() {
		return bus.GoneOf(size)
	}
	return r.Region.Read(offset, size)
}

func (r *probeRegion) Write(offset uint32, size int, value uint32) {
	r.probe.writes.Add(1)
	if r.index != bus.BAR0 {
		r.probe.ioWrites.Add(1)
	}
	if !r.probe.gone.Load() {
		r.Region.Write(offset, size, value)
	}
}
