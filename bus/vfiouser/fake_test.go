package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"nicd/bus"
)

// No goroutine outlives its connection.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeDevice is a PCI function with two BARs, doorbells in BAR0, and nothing
// behind them: it remembers what was done to it.
type fakeDevice struct {
	mu     sync.Mutex
	config [256]byte
	bars   [2]*fakeRegion
	bells  *bus.Doorbells
	maps   map[*bus.Memory]uint64
	kind   bus.InterruptKind
	events []*bus.Event
	log    []string // calls, but for register and configuration accesses
	mapErr error
	gone   bool // UnmapDMA fails as that of a device that was unplugged
}

const (
	fakeVendor, fakeID = 0x15ad, 0x07b0
	fakeMSI            = 4
	fakeMSIX           = 5
	bellOffset         = 0x600
	bellStride         = 8
	bellFirst          = 2 // the first doorbell's index in the page
	bellCount          = 4
)

func newFakeDevice(t testing.TB) *fakeDevice {
	t.Helper()
	bells, err := newBells()
	if err != nil {
		t.Fatal(err)
	}
	d := &fakeDevice{bells: bells, maps: map[*bus.Memory]uint64{}}
	t.Cleanup(func() {
		d.bells.Memory().Close()
		d.bells.Event().Close()
	})
	for i := range d.bars {
		d.bars[i] = &fakeRegion{device: d, index: i, regs: make([]uint32, 0x1000/4)}
	}
	host.PutUint16(d.config[0:], fakeVendor)
	host.PutUint16(d.config[2:], fakeID)
	d.config[8] = 3
	return d
}

func newBells() (*bus.Doorbells, error) {
	mem, err := bus.NewMemory("bells", bus.DoorbellPageSize)
	if err != nil {
		return nil, err
	}
	e, err := bus.NewEvent()
	return bus.NewDoorbells(mem, e), err
}

func (d *fakeDevice) Info() bus.Info {
	return bus.Info{Address: "fake:0", Vendor: fakeVendor, Device: fakeID, Revision: 3,
		Vectors: [3]int{1, fakeMSI, fakeMSIX}, CanReset: true, DMABase: 0x100000000}
}

func (d *fakeDevice) ReadConfig(offset, size int) (uint32, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if offset+size > len(d.config) {
		return allOnes(size), nil
	}
	return getWidth(d.config[offset : offset+size]), nil
}

func (d *fakeDevice) WriteConfig(offset, size int, value uint32) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if offset+size <= len(d.config) {
		putWidth(d.config[offset:offset+size], value)
	}
	return nil
}

func (d *fakeDevice) Region(index int) (bus.Region, error) {
	if index >= len(d.bars) {
		return nil, bus.ErrNoRegion
	}
	return d.bars[index], nil
}

func (d *fakeDevice) SetInterrupts(kind bus.InterruptKind, events []*bus.Event) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kind, d.events = kind, events
	d.note("interrupts %v %d", kind, len(events))
	return nil
}

// fire signals a vector as the device does; it is lost if nothing is assigned.
func (d *fakeDevice) fire(vector int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if vector < len(d.events) {
		d.events[vector].Signal()
	}
}

func (d *fakeDevice) UnmaskInterrupt(vector int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.note("unmask %d", vector)
	return nil
}

func (d *fakeDevice) MapDMA(m *bus.Memory, iova uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mapErr != nil {
		return d.mapErr
	}
	d.maps[m] = iova
	d.note("map %#x+%#x", iova, m.Size())
	return nil
}

func (d *fakeDevice) UnmapDMA(m *bus.Memory) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gone {
		return bus.ErrGone
	}
	if _, ok := d.maps[m]; !ok {
		return errors.New("not mapped")
	}
	d.note("unmap %#x", d.maps[m])
	delete(d.maps, m)
	return nil
}

func (d *fakeDevice) Reset(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.note("reset")
	return nil
}

func (d *fakeDevice) Close() error { return nil }

func (d *fakeDevice) Doorbells() (*bus.Doorbells, []bus.DoorbellRange) {
	return d.page(), []bus.DoorbellRange{{
		Region: 0, Offset: bellOffset, Stride: bellStride, First: bellFirst, Count: bellCount,
	}}
}

func (d *fakeDevice) RenewDoorbells() error {
	bells, err := newBells()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.note("renew")
	d.bells.Memory().Abandon() // a test may still look at it
	d.bells.Event().Close()
	d.bells = bells
	return err
}

// page is the doorbells in force.
func (d *fakeDevice) page() *bus.Doorbells {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.bells
}

func (d *fakeDevice) writePosted(region int, offset, value uint32) {
	d.bars[region].Write32(offset, value)
}

// refuseMaps makes MapDMA fail from now on.
func (d *fakeDevice) refuseMaps(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mapErr = err
}

func (d *fakeDevice) note(format string, args ...any) {
	d.log = append(d.log, fmt.Sprintf(format, args...))
}

// takeLog returns what was logged since the last call.
func (d *fakeDevice) takeLog() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	log := d.log
	d.log = nil
	return log
}

// memoryAt is the mapped memory at a device address, nil if there is none.
func (d *fakeDevice) memoryAt(iova uint64) *bus.Memory {
	d.mu.Lock()
	defer d.mu.Unlock()
	for m, at := range d.maps {
		if at == iova {
			return m
		}
	}
	return nil
}

// write is a register write that arrived, with the doorbells at that time.
type write struct {
	offset, value uint32
	bells         [bellCount]uint32
}

type fakeRegion struct {
	device *fakeDevice
	index  int
	mu     sync.Mutex
	regs   []uint32
	reads  []uint32
	writes []write
	narrow []narrowWrite
	gate   chan struct{} // if not nil, a write to gateOffset waits for it
	quiet  bool          // keep no list of reads and writes
}

const gateOffset = 0x100

func (r *fakeRegion) Size() int { return len(r.regs) * 4 }

func (r *fakeRegion) Read32(offset uint32) uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.quiet {
		r.reads = append(r.reads, offset)
	}
	if i, ok := r.bell(offset); ok {
		return r.device.page().Value(i).Load()
	}
	return r.regs[offset/4]
}

func (r *fakeRegion) Write32(offset, value uint32) {
	if offset == gateOffset && r.gate != nil {
		<-r.gate
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.quiet {
		w := write{offset: offset, value: value}
		for i := range w.bells {
			w.bells[i] = r.device.page().Value(bellFirst + i).Load()
		}
		r.writes = append(r.writes, w)
	}
	if i, ok := r.bell(offset); ok {
		r.device.page().Ring(i, value)
		return
	}
	r.regs[offset/4] = value
}

// Read is part of a register; what is written to one is lost.
func (r *fakeRegion) Read(offset uint32, size int) uint32 {
	return r.Read32(offset&^3) >> (8 * (offset & 3)) & bus.GoneOf(size)
}

func (r *fakeRegion) Write(offset uint32, size int, value uint32) {
	if size == 4 {
		r.Write32(offset, value)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.narrow = append(r.narrow, narrowWrite{offset, size, value})
}

type narrowWrite struct {
	offset uint32
	size   int
	value  uint32
}

func (r *fakeRegion) bell(offset uint32) (int, bool) {
	_, ranges := r.device.Doorbells()
	return ranges[0].Index(r.index, offset)
}

func (r *fakeRegion) takeWrites() []write {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.writes
	r.writes = nil
	return w
}
