// Package rig runs a driver on a device for tests: it is the framework reduced to
// what a test wants to see. It owns the memory, knows for every buffer whose it
// is, and fails the test when a driver hands one out that it was not given.
//
// What lives here: the rig itself ([Rig]), a rig whose device has a far end to
// talk to ([Net]), and frames ([Frame]). The checks that every driver has to pass
// are package drivertest's; a driver's own tests use this package directly.
package rig

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"nicd/bus"
	"nicd/framework"
)

// Sizes of the rig's memory.
const (
	defaultIOVA = 0x1_0000_0000
	dmaSize     = 4 << 20
	// BufferSize is the default of Options.BufferSize.
	BufferSize = 2048
	strideGap  = 64
	// numBuffers is the default of Options.Buffers.
	numBuffers = 1024
)

// Deadline is the default of Options.Deadline.
const Deadline = 20 * time.Second

// ErrNoMemory is what an allocation that Rig.FailAlloc names gets.
var ErrNoMemory = errors.New("no memory, as the test asked for")

// Options are a rig's settings. The zero value works.
type Options struct {
	Buffers    int    // how many; 1024 if 0
	BufferSize uint32 // bytes that a device may write to one; BufferSize if 0
	// Memory makes the memory that the device shares; nil is heap memory, which
	// the race detector sees and no other process does.
	Memory func(size int) (*bus.Memory, error)
	// Deadline is how long all of the test may take.
	Deadline time.Duration
	// Context, if not nil, ends all waiting before that when it ends.
	Context context.Context
	// Wrap puts something between driver and device.
	Wrap func(bus.Device) bus.Device
	// Quirks overrides what the driver declares.
	Quirks map[string]string
	// Config changes the configuration that Start is called with. Rings that the
	// device can't have are made the next shorter that it can.
	Config func(*framework.Config)
	// Kind of interrupts; the device's best if nil.
	Kind *bus.InterruptKind
	// Own, if not nil, tells whether a received frame is the test's. It may change
	// the frame in place. Nobody sees the others.
	Own func(frame []byte) bool
	// BeforeStart, if not nil, is called before each start.
	BeforeStart func()
	// Stopped rigs are attached, not started; Detached ones not even that.
	Stopped, Detached bool
}

// Rig is a driver on a device.
type Rig struct {
	T       T
	Bus     bus.Device // as it is, nothing between
	Device  framework.Device
	Info    framework.Info
	Config  framework.Config
	Queues  framework.Queues
	Events  []*bus.Event
	Buffers *framework.Buffers
	Context context.Context

	// Allocs is how many allocations the driver has made; the one that makes it
	// FailAlloc fails.
	Allocs, FailAlloc int

	opt     Options
	driver  framework.Driver
	quirks  *framework.QuirkSet
	memory  *bus.Memory
	iova    uint64
	dmaUsed int
	mark    int // dmaUsed at Start
	with    []owner
	seq     []uint64 // of each buffer: how many were posted before it
	posts   uint64
	free    []framework.Buffer
	sent    [][]sentPacket // per transmit queue
	batch   *framework.Batch
}

type owner uint8

const (
	free owner = iota
	device
	test
)

type sentPacket []framework.Buffer

// New attaches driver to dev, which it takes over, and starts it.
func New(t T, driver framework.Driver, dev bus.Device, opt Options) *Rig {
	t.Helper()
	if opt.Buffers == 0 {
		opt.Buffers = numBuffers
	}
	if opt.BufferSize == 0 {
		opt.BufferSize = BufferSize
	}
	if opt.Deadline == 0 {
		opt.Deadline = Deadline
	}
	if opt.Context == nil {
		opt.Context = context.Background()
	}
	ctx, cancel := context.WithTimeout(opt.Context, opt.Deadline)
	r := &Rig{
		T: t, Bus: dev, Context: ctx, opt: opt, driver: driver,
		with:  make([]owner, opt.Buffers),
		seq:   make([]uint64, opt.Buffers),
		batch: framework.NewBatch(64, 4*framework.MaxFragments),
	}
	t.Cleanup(func() {
		r.close()
		cancel()
	})
	r.makeMemory()
	r.quirks = r.resolveQuirks()
	if opt.Detached {
		return r
	}
	r.must(r.Attach())
	if !opt.Stopped {
		r.Start()
	}
	return r
}

func (r *Rig) makeMemory() {
	r.T.Helper()
	stride := r.opt.BufferSize + strideGap
	size := dmaSize + r.opt.Buffers*int(stride)
	size = (size + 4095) / 4096 * 4096
	if r.opt.Memory == nil {
		r.memory = bus.HeapMemory(size)
	} else {
		var err error
		r.memory, err = r.opt.Memory(size)
		r.must(err)
	}
	if r.iova = r.Bus.Info().DMABase; r.iova == 0 {
		r.iova = defaultIOVA
	}
	r.Buffers = &framework.Buffers{
		Memory: r.memory.Bytes()[dmaSize:], Addr: r.iova + dmaSize,
		Stride: stride, Size: r.opt.BufferSize, Count: uint32(r.opt.Buffers),
	}
	for i := range r.opt.Buffers {
		r.free = append(r.free, framework.Buffer(i))
	}
	r.must(r.Bus.MapDMA(r.memory, r.iova))
}

// Attach attaches the driver. Whatever it allocated is taken back if it fails.
func (r *Rig) Attach() error {
	dev := r.Bus
	if r.opt.Wrap != nil {
		dev = r.opt.Wrap(dev)
	}
	mark := r.dmaUsed
	env := framework.Env{Name: "test", Log: zerolog.Nop(), Quirks: r.quirks, DMA: r}
	d, err := framework.Attach(r.Context, r.driver, dev, env)
	if err != nil {
		r.dmaUsed = mark
		return err
	}
	r.mark = r.dmaUsed
	r.Device, r.Info = d, d.Info()
	r.Config = r.defaultConfig(r.opt.Kind)
	if r.opt.Config != nil {
		r.opt.Config(&r.Config)
	}
	r.Config.RxDescriptors, r.Config.TxDescriptors = r.Info.RxRing.Fit(r.Config.RxDescriptors), r.Info.TxRing.Fit(r.Config.TxDescriptors)
	return nil
}

// Detach detaches the driver, which is stopped.
func (r *Rig) Detach() error {
	err := r.Device.Detach()
	r.Device, r.dmaUsed, r.mark = nil, 0, 0
	return err
}

// close gives all back, also if the driver panics.
func (r *Rig) close() {
	r.T.Helper()
	defer func() {
		_ = r.Bus.Close()
		for _, e := range r.Events {
			_ = e.Close()
		}
		if r.memory != nil {
			_ = r.memory.Close()
		}
	}()
	if r.Device == nil {
		return
	}
	r.Stop()
	if err := r.Detach(); err != nil {
		r.T.Errorf("detach: %v", err)
	}
}

// Memory is all that the driver and the device share: what was allocated for the
// driver, and the buffers.
func (r *Rig) Memory() []byte { return r.memory.Bytes() }

// Quirks are the quirks in force.
func (r *Rig) Quirks() *framework.QuirkSet { return r.quirks }

func (r *Rig) resolveQuirks() *framework.QuirkSet {
	r.T.Helper()
	d := r.driver.Describe()
	var settings []framework.QuirkSetting
	for name, value := range r.opt.Quirks {
		settings = append(settings, framework.QuirkSetting{Name: name, Value: value, Origin: "test"})
	}
	res, err := framework.ResolveQuirks(framework.QuirkSources{
		Driver: d.Name, Declarations: d.Quirks, InterfaceConfig: settings,
		Facts: framework.DeviceFacts{Device: r.Bus.Info().Device},
	})
	r.must(err)
	set := framework.NewQuirkSet()
	r.must(res.Apply(set))
	return set
}

func (r *Rig) must(err error) {
	r.T.Helper()
	if err != nil {
		r.T.Fatal(err)
	}
}

// Alloc implements framework.DMA.
func (r *Rig) Alloc(size, align int) (framework.Block, error) {
	if r.Allocs++; r.Allocs == r.FailAlloc {
		return framework.Block{}, ErrNoMemory
	}
	at := (r.dmaUsed + align - 1) / align * align
	if at+size > dmaSize {
		return framework.Block{}, fmt.Errorf("driver allocates %d bytes with %d used", size, r.dmaUsed)
	}
	r.dmaUsed = at + size
	b := r.memory.Bytes()[at : at+size : at+size]
	clear(b)
	return framework.Block{Bytes: b, Addr: r.iova + uint64(at)}, nil
}

// TakeBack takes back what was allocated since Attach, for somebody else who has
// started the device and stopped it.
func (r *Rig) TakeBack() { r.dmaUsed = r.mark }

// Until calls done until it is true.
func (r *Rig) Until(what string, done func() bool) {
	r.T.Helper()
	for !done() {
		if r.Context.Err() != nil {
			r.T.Fatalf("waited too long for %s", what)
		}
		time.Sleep(50 * time.Microsecond)
	}
}

// WaitInterrupt waits for vector v and returns its cause.
func (r *Rig) WaitInterrupt(v int) framework.Cause {
	r.T.Helper()
	for {
		if _, err := r.Events[v].Wait(r.Context); err != nil {
			r.T.Fatalf("vector %d: %v", v, err)
		}
		cause := r.Device.Interrupt(v)
		if r.Config.Interrupts.Kind == bus.INTx {
			r.must(r.Bus.UnmaskInterrupt(v))
		}
		if !cause.None() {
			return cause
		}
		r.Device.Unmask(v)
	}
}

// Counter reads a hardware counter by name.
func (r *Rig) Counter(name string) uint64 {
	r.T.Helper()
	values := make([]uint64, len(r.Info.Counters))
	r.must(r.Device.ReadCounters(values))
	for i, c := range r.Info.Counters {
		if c.Name == name {
			return values[i]
		}
	}
	r.T.Fatalf("no counter %q", name)
	return 0
}
