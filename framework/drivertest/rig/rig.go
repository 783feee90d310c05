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
	"slices"
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
		RxDescriptors: r.Info.RxRing.Fit(64), TxDescriptors: r.Info.TxRing.Fit(64),
		Buffers:    r.Buffers,
		Interrupts: Plan(choice, queues),
		Fire:       r.fire,
	}
	for i := range c.RSS.Indirection {
		c.RSS.Indirection[i] = uint8(i % queues)
	}
	return c
}

// fire is framework.Config.Fire.
func (r *Rig) fire(vector int) {
	if vector >= 0 && vector < len(r.Events) {
		r.Events[vector].Signal()
	}
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
	r.must(r.TryStart())
	for q := range r.Queues.Rx {
		r.Refill(q)
	}
	r.UnmaskAll()
}

// TryStart starts the device with r.Config and nothing else: no buffer is posted
// and every vector is masked.
func (r *Rig) TryStart() error {
	if r.opt.BeforeStart != nil {
		r.opt.BeforeStart()
	}
	r.mark = r.dmaUsed
	if err := r.setInterrupts(); err != nil {
		return err
	}
	qs, err := r.Device.Start(r.Config)
	if err != nil {
		r.dmaUsed = r.mark
		return err
	}
	r.Queues = qs
	r.sent = make([][]sentPacket, len(qs.Tx))
	return nil
}

// UnmaskAll unmasks all vectors.
func (r *Rig) UnmaskAll() {
	for v := range r.Config.Interrupts.Vectors {
		r.Device.Unmask(v)
	}
}

func (r *Rig) setInterrupts() error {
	for len(r.Events) < r.Config.Interrupts.Vectors {
		e, err := bus.NewEvent()
		if err != nil {
			return err
		}
		r.Events = append(r.Events, e)
	}
	return r.Bus.SetInterrupts(r.Config.Interrupts.Kind, r.Events[:r.Config.Interrupts.Vectors])
}

// Stop stops the device; every buffer is the rig's again.
func (r *Rig) Stop() {
	r.T.Helper()
	if err := r.Device.Stop(context.WithoutCancel(r.Context)); err != nil {
		r.T.Errorf("stop: %v", err)
	}
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

// Take takes n buffers that the test uses by itself, until Return.
func (r *Rig) Take(n int) []framework.Buffer { return r.take(n, test) }

// Lend takes n buffers that the test posts by itself.
func (r *Rig) Lend(n int) []framework.Buffer { return r.take(n, device) }

// Return takes back what Take gave.
func (r *Rig) Return(bufs []framework.Buffer) {
	for _, b := range bufs {
		r.give(b)
	}
}

// Refill posts as many buffers as receive queue q takes and returns how many.
func (r *Rig) Refill(q int) int {
	const chunk = 16
	for total := 0; ; {
		n := r.post(q, chunk)
		if total += n; n < chunk {
			r.Queues.Rx[q].Bell()
			return total
		}
	}
}

// Post posts up to n buffers.
func (r *Rig) Post(q, n int) int {
	n = r.post(q, n)
	r.Queues.Rx[q].Bell()
	return n
}

// post is Post without the bell.
func (r *Rig) post(q, n int) int {
	bufs := r.take(min(n, len(r.free)), device)
	n = r.Queues.Rx[q].Post(bufs)
	for _, b := range bufs[:n] {
		r.posts++
		r.seq[b] = r.posts
	}
	for _, b := range bufs[n:] {
		r.give(b)
	}
	return n
}

// Posted is how many buffers are with the device.
func (r *Rig) Posted() (n int) {
	for _, w := range r.with {
		if w == device {
			n++
		}
	}
	return n
}

// Received is a copy of a packet that a device received.
type Received struct {
	Queue int
	Bytes []byte
	Frags int
	// Fragments are where the bytes were; the buffers are the rig's again.
	Fragments []framework.Fragment
	// Posted says of each fragment's buffer when it was posted, counted in
	// buffers.
	Posted []uint64
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
func (r *Rig) PollOnly(q int) ([]Received, framework.Verdict) { return r.PollInto(q, r.batch) }

// PollInto polls receive queue q once into a batch of the caller's.
func (r *Rig) PollInto(q int, batch *framework.Batch) ([]Received, framework.Verdict) {
	r.T.Helper()
	batch.Reset()
	verdict := r.Queues.Rx[q].Poll(batch)
	var all []Received
	for i, p := range batch.Packets {
		got := Received{Queue: q, Packet: p, Frags: int(p.Frags)}
		for _, f := range batch.Fragments(i) {
			if r.with[f.Buffer] != device {
				r.T.Fatalf("buffer %d handed out, which the device did not have", f.Buffer)
			}
			if f.Offset < framework.RxOffset || f.Offset+f.Len > framework.RxOffset+r.Buffers.Size {
				r.T.Fatalf("fragment %+v of a received packet reaches outside its buffer", f)
			}
			got.Bytes = append(got.Bytes, r.Buffers.Bytes(f)...)
			got.Fragments = append(got.Fragments, f)
			got.Posted = append(got.Posted, r.seq[f.Buffer])
			r.give(f.Buffer)
		}
		if uint32(len(got.Bytes)) != p.Len {
			r.T.Fatalf("packet of %d bytes has fragments of %d", p.Len, len(got.Bytes))
		}
		if r.opt.Own == nil || r.opt.Own(got.Bytes) {
			all = append(all, got)
		}
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
	return r.PutPieces(q, meta, slices.Collect(slices.Chunk(data, size))...)
}

// PutPieces is Put with the fragments given.
func (r *Rig) PutPieces(q int, meta framework.Packet, pieces ...[]byte) bool {
	r.T.Helper()
	b := framework.NewBatch(1, framework.MaxFragments)
	bufs := r.take(len(pieces), test)
	meta.Frags = uint16(len(bufs))
	for i, buf := range bufs {
		f := framework.Fragment{Buffer: buf, Offset: uint32(i % 7), Len: uint32(len(pieces[i]))}
		meta.Len += f.Len
		copy(r.Buffers.Bytes(f), pieces[i])
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
func (r *Rig) Reap(q int) int { return r.ReapAtMost(q, 64) }

// ReapAtMost is Reap with the number of completions that are asked for.
func (r *Rig) ReapAtMost(q, most int) int {
	r.T.Helper()
	n := r.Queues.Tx[q].Completed(most)
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
