// Package rig runs a driver against a device model in this process, for the
// drivers' tests: it is the framework reduced to what a test wants to see. It
// owns the memory, knows for every buffer whose it is, and fails the test when a
// driver hands one out that it was not given.
package rig

import (
	"context"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"nicd/bus"
	"nicd/framework"
	"nicd/sim"
)

// Sizes of the rig's memory, which is on the Go heap for the race detector.
const (
	iova       = 0x1_0000_0000
	dmaSize    = 4 << 20
	BufferSize = 2048
	stride     = BufferSize + 64
)

// Deadline is how long anything may take.
const Deadline = 20 * time.Second

// Options are a rig's settings. The zero value works.
type Options struct {
	Buffers int // how many, 1024 if 0
	// Quirks overrides what the driver declares.
	Quirks map[string]string
	// Config changes the configuration that Start is called with.
	Config func(*framework.Config)
	// Kind of interrupts; the device's best if nil.
	Kind *bus.InterruptKind
	// Stopped rigs are attached, not started.
	Stopped bool
}

// Rig is a driver on a device.
type Rig struct {
	T       testing.TB
	Bus     *sim.Device
	Device  framework.Device
	Info    framework.Info
	Config  framework.Config
	Queues  framework.Queues
	Events  []*bus.Event
	Buffers *framework.Buffers
	Context context.Context

	memory  *bus.Memory
	dmaUsed int
	mark    int // dmaUsed at Start
	with    []owner
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

// New attaches driver to dev and starts it.
func New(t testing.TB, driver framework.Driver, dev *sim.Device, opt Options) *Rig {
	t.Helper()
	if opt.Buffers == 0 {
		opt.Buffers = 1024
	}
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	r := &Rig{
		T: t, Bus: dev, Context: ctx,
		memory: bus.HeapMemory(dmaSize + opt.Buffers*stride),
		with:   make([]owner, opt.Buffers),
		batch:  framework.NewBatch(64, 4*framework.MaxFragments),
	}
	r.Buffers = &framework.Buffers{
		Memory: r.memory.Bytes()[dmaSize:], Addr: iova + dmaSize,
		Stride: stride, Size: BufferSize, Count: uint32(opt.Buffers),
	}
	for i := range opt.Buffers {
		r.free = append(r.free, framework.Buffer(i))
	}
	r.must(dev.MapDMA(r.memory, iova))
	env := framework.Env{Name: "test", Log: zerolog.Nop(), Quirks: quirks(t, driver, dev, opt.Quirks), DMA: r}
	d, err := driver.Attach(ctx, dev, env)
	r.must(err)
	r.Device, r.Info = d, d.Info()
	r.Config = r.defaultConfig(opt.Kind)
	if opt.Config != nil {
		opt.Config(&r.Config)
	}
	t.Cleanup(func() {
		r.Stop()
		r.must(r.Device.Detach())
		dev.Close()
		cancel()
	})
	if !opt.Stopped {
		r.Start()
	}
	return r
}

func quirks(t testing.TB, driver framework.Driver, dev bus.Device, override map[string]string) *framework.QuirkSet {
	t.Helper()
	d := driver.Describe()
	var settings []framework.QuirkSetting
	for name, value := range override {
		settings = append(settings, framework.QuirkSetting{Name: name, Value: value, Origin: "test"})
	}
	res, err := framework.ResolveQuirks(framework.QuirkSources{
		Driver: d.Name, Declarations: d.Quirks, InterfaceConfig: settings,
		Facts: framework.DeviceFacts{Device: dev.Info().Device},
	})
	if err != nil {
		t.Fatal(err)
	}
	set := framework.NewQuirkSet()
	if err := res.Apply(set); err != nil {
		t.Fatal(err)
	}
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
	at := (r.dmaUsed + align - 1) / align * align
	if at+size > dmaSize {
		r.T.Fatalf("driver allocates %d bytes with %d used", size, r.dmaUsed)
	}
	r.dmaUsed = at + size
	b := r.memory.Bytes()[at : at+size : at+size]
	clear(b)
	return framework.Block{Bytes: b, Addr: iova + uint64(at)}, nil
}

// MAC is the address that the rig gives its device.
var MAC = framework.MAC{0x02, 0, 0, 0, 0, 0x01}

// Peer is an address that the device does not have.
var Peer = framework.MAC{0x02, 0, 0, 0, 0, 0x02}

// Key is the RSS key of the published Toeplitz vectors.
var Key = [40]byte{
	0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
	0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
}

func (r *Rig) defaultConfig(kind *bus.InterruptKind) framework.Config {
	queues := min(2, r.Info.MaxRxQueues, r.Info.MaxTxQueues)
	choice := r.Info.Interrupts[0]
	if kind != nil {
		for _, c := range r.Info.Interrupts {
			if c.Kind == *kind {
				choice = c
			}
		}
	}
	c := framework.Config{
		Settings: framework.Settings{MTU: 1500, MAC: MAC, Features: r.Info.Features, RSS: framework.RSS{Key: Key}},
		RxQueues: queues, TxQueues: queues,
		RxDescriptors: 64, TxDescriptors: 64,
		Buffers:    r.Buffers,
		Interrupts: Plan(choice, queues),
	}
	for i := range c.RSS.Indirection {
		c.RSS.Indirection[i] = uint8(i % queues)
	}
	return c
}

// Plan gives each queue pair a vector and the last one to admin events, if there
// are that many.
func Plan(choice framework.InterruptChoice, queues int) framework.VectorPlan {
	p := framework.VectorPlan{Kind: choice.Kind, Vectors: min(choice.Vectors, queues+1)}
	p.AdminVector = p.Vectors - 1
	for q := range queues {
		v := q % max(p.Vectors-1, 1)
		p.RxVector = append(p.RxVector, v)
		p.TxVector = append(p.TxVector, v)
	}
	return p
}

// Start starts the device with r.Config, posts buffers to it and unmasks its
// vectors.
func (r *Rig) Start() {
	r.T.Helper()
	r.mark = r.dmaUsed
	qs, err := r.Device.Start(r.Config)
	r.must(err)
	r.Queues = qs
	r.sent = make([][]sentPacket, len(qs.Tx))
	r.setInterrupts()
	for q := range qs.Rx {
		r.Refill(q)
	}
	for v := range r.Config.Interrupts.Vectors {
		r.Device.Unmask(v)
	}
}

func (r *Rig) setInterrupts() {
	r.T.Helper()
	for len(r.Events) < r.Config.Interrupts.Vectors {
		e, err := bus.NewEvent()
		r.must(err)
		r.Events = append(r.Events, e)
	}
	r.must(r.Bus.SetInterrupts(r.Config.Interrupts.Kind, r.Events[:r.Config.Interrupts.Vectors]))
}

// Stop stops the device; every buffer is the rig's again.
func (r *Rig) Stop() {
	r.T.Helper()
	r.must(r.Device.Stop(r.Context))
	r.Queues = framework.Queues{}
	r.dmaUsed = r.mark
	for b, w := range r.with {
		if w == device {
			r.give(framework.Buffer(b))
		}
	}
	if len(r.free) != len(r.with) {
		r.T.Errorf("%d buffers after stop, %d at first", len(r.free), len(r.with))
	}
}

func (r *Rig) give(b framework.Buffer) {
	r.with[b] = free
	r.free = append(r.free, b)
}

// take takes n buffers for w.
func (r *Rig) take(n int, w owner) []framework.Buffer {
	r.T.Helper()
	if n > len(r.free) {
		r.T.Fatalf("out of buffers: %d wanted, %d left", n, len(r.free))
	}
	at := len(r.free) - n
	taken := append([]framework.Buffer(nil), r.free[at:]...)
	r.free = r.free[:at]
	for _, b := range taken {
		r.with[b] = w
	}
	return taken
}

// Refill posts as many buffers as receive queue q takes and returns how many.
func (r *Rig) Refill(q int) int { return r.Post(q, len(r.free)) }

// Post posts up to n buffers.
func (r *Rig) Post(q, n int) int {
	bufs := r.take(min(n, len(r.free)), device)
	n = r.Queues.Rx[q].Post(bufs)
	for _, b := range bufs[n:] {
		r.give(b)
	}
	r.Queues.Rx[q].Bell()
	return n
}

// Received is a copy of a packet that a device received.
type Received struct {
	Queue int
	Bytes []byte
	Frags int
	framework.Packet
}

// Poll polls receive queue q once and refills it.
func (r *Rig) Poll(q int) []Received {
	r.T.Helper()
	got, verdict := r.PollOnly(q)
	if verdict != framework.Healthy {
		r.T.Fatalf("receive queue %d: verdict %d", q, verdict)
	}
	r.Refill(q)
	return got
}

// PollOnly polls receive queue q once.
func (r *Rig) PollOnly(q int) ([]Received, framework.Verdict) {
	r.T.Helper()
	r.batch.Reset()
	verdict := r.Queues.Rx[q].Poll(r.batch)
	var all []Received
	for i, p := range r.batch.Packets {
		got := Received{Queue: q, Packet: p, Frags: int(p.Frags)}
		for _, f := range r.batch.Fragments(i) {
			if r.with[f.Buffer] != device {
				r.T.Fatalf("buffer %d handed out, which the device did not have", f.Buffer)
			}
			got.Bytes = append(got.Bytes, r.Buffers.Bytes(f)...)
			r.give(f.Buffer)
		}
		if uint32(len(got.Bytes)) != p.Len {
			r.T.Fatalf("packet of %d bytes has fragments of %d", p.Len, len(got.Bytes))
		}
		all = append(all, got)
	}
	return all, verdict
}

// Receive polls all queues until it has n packets.
func (r *Rig) Receive(n int) []Received {
	r.T.Helper()
	var all []Received
	r.Until("packets to arrive", func() bool {
		for q := range r.Queues.Rx {
			all = append(all, r.Poll(q)...)
		}
		return len(all) >= n
	})
	if len(all) != n {
		r.T.Fatalf("%d packets, want %d", len(all), n)
	}
	return all
}

// Quiet fails the test if a packet arrives. Whatever was sent before has to have
// been followed by a packet that did arrive.
func (r *Rig) Quiet() {
	r.T.Helper()
	for q := range r.Queues.Rx {
		if got := r.Poll(q); len(got) > 0 {
			r.T.Fatalf("queue %d received %x", q, got[0].Bytes)
		}
	}
}

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

// Put puts one packet of data, spread over fragments of size bytes, to transmit
// queue q, and tells whether the queue took it. It does not ring.
func (r *Rig) Put(q int, data []byte, size int, meta framework.Packet) bool {
	r.T.Helper()
	b := framework.NewBatch(1, framework.MaxFragments)
	bufs := r.take((len(data)+size-1)/size, test)
	meta.Len, meta.Frags = uint32(len(data)), uint16(len(bufs))
	for i, buf := range bufs {
		part := data[i*size : min((i+1)*size, len(data))]
		f := framework.Fragment{Buffer: buf, Offset: uint32(i % 7), Len: uint32(len(part))}
		copy(r.Buffers.Bytes(f), part)
		b.Frags = append(b.Frags, f)
	}
	b.Packets = append(b.Packets, meta)
	if r.Queues.Tx[q].Put(b, 0) == 0 {
		for _, buf := range bufs {
			r.give(buf)
		}
		return false
	}
	for _, buf := range bufs {
		r.with[buf] = device
	}
	r.sent[q] = append(r.sent[q], bufs)
	return true
}

// Reap takes completions of transmit queue q and returns how many packets were
// finished.
func (r *Rig) Reap(q int) int {
	r.T.Helper()
	n := r.Queues.Tx[q].Completed(64)
	if n > len(r.sent[q]) {
		r.T.Fatalf("%d packets finished, %d sent", n, len(r.sent[q]))
	}
	for _, bufs := range r.sent[q][:n] {
		for _, b := range bufs {
			r.give(b)
		}
	}
	r.sent[q] = r.sent[q][n:]
	return n
}

// Send puts, rings and waits until the packet is finished.
func (r *Rig) Send(q int, data []byte, size int, meta framework.Packet) {
	r.T.Helper()
	meta.Flags |= framework.Completion
	if !r.Put(q, data, size, meta) {
		r.T.Fatal("transmit queue is full")
	}
	r.Queues.Tx[q].Bell()
	r.Until("transmit completion", func() bool { r.Reap(q); return len(r.sent[q]) == 0 })
}

// InFlight is how many packets of transmit queue q are not finished.
func (r *Rig) InFlight(q int) int { return len(r.sent[q]) }

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
