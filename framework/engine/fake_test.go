package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"nicd/bus"
	"nicd/framework"
)

// fakeDevice is a device and its driver in one, in memory that the race detector
// sees. A test plays the wire and scripts faults.
type fakeDevice struct {
	info framework.Info

	mu       sync.Mutex
	cfg      framework.Config
	running  bool
	rx       []*fakeRx
	tx       []*fakeTx
	masked   []bool
	cause    []framework.Cause // not yet acknowledged, by vector
	deaf     int               // interrupts to lose
	link     framework.Link
	admin    framework.Events
	starts   int
	stops    int
	detached int
	refuse   error // of Apply
	asked    int   // packets that asked for what the settings in force do not have
	applied  int
	resets   int // of queues
	failing  int // starts that fail
	settings framework.Settings
	effect   framework.Effect
	filters  framework.Filters
	counters uint64
	hangs    map[int]bool // transmit queues that hang, also after a restart
	kicks    []int        // bells without anything new, by transmit queue
	unmasks  int          // of INTx at the bus
	events   []*bus.Event
	kind     bus.InterruptKind
	mute     bool // finished transmit packets raise no interrupt
	// perSegment is how many descriptors each segment of a TSO packet takes, besides
	// those of the packet's fragments.
	perSegment int
	autoTx     bool // the device completes what it is told of at once
	sent       func(q int, frame []byte, p framework.Packet)
	// fragments is what sent is for how a packet lies in memory.
	fragments func(p framework.Packet, frags []framework.Fragment)
	stuck     chan struct{} // a running Admin does not return before this is closed
}

func newFakeDevice(queues int) *fakeDevice {
	rule := framework.RingRule{Min: 8, Max: 4096, Multiple: 1, Default: 256}
	return &fakeDevice{
		info: framework.Info{
			Model: "fake", MaxRxQueues: queues, MaxTxQueues: queues, RxRing: rule, TxRing: rule,
			MinMTU: 68, MaxMTU: 9000, Features: framework.AllFeatures,
			MaxUnicast: 4, MaxMulticast: 4,
			Counters: []framework.CounterInfo{{Name: "starts_seen"}},
		},
		link:   framework.Link{Up: true, Mbps: 1000, FullDuplex: true},
		hangs:  map[int]bool{},
		kicks:  make([]int, queues),
		autoTx: true,
	}
}

func (d *fakeDevice) Gone() bool { return false }

func (d *fakeDevice) Info() framework.Info { return d.info }

func (d *fakeDevice) Start(cfg framework.Config) (framework.Queues, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running {
		return framework.Queues{}, errors.New("started twice")
	}
	d.starts++
	if d.failing > 0 {
		d.failing--
		return framework.Queues{}, fmt.Errorf("start %d: %w", d.starts, framework.ErrDevice)
	}
	d.cfg, d.running, d.settings = cfg, true, cfg.Settings
	d.masked = make([]bool, max(cfg.Interrupts.Vectors, 1))
	for i := range d.masked {
		d.masked[i] = true
	}
	d.cause = make([]framework.Cause, len(d.masked))
	d.rx, d.tx = nil, nil
	var q framework.Queues
	for i := range cfg.RxQueues {
		d.rx = append(d.rx, &fakeRx{d: d, q: i, size: cfg.RxDescriptors})
		q.Rx = append(q.Rx, d.rx[i])
	}
	for i := range cfg.TxQueues {
		d.tx = append(d.tx, &fakeTx{d: d, q: i, size: cfg.TxDescriptors})
		q.Tx = append(q.Tx, d.tx[i])
	}
	d.counters = 1
	return q, nil
}

func (d *fakeDevice) Stop(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = false
	d.stops++
	return nil
}

func (d *fakeDevice) Detach() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.detached++
	return nil
}

func (d *fakeDevice) Plan(framework.Settings) (framework.Effect, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.effect, nil
}

func (d *fakeDevice) Apply(s framework.Settings) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.settings = s
	d.applied++
	return d.refuse
}

func (d *fakeDevice) Link() (framework.Link, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.link, nil
}

func (d *fakeDevice) SetFilters(f framework.Filters) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.filters = f
	return nil
}

func (d *fakeDevice) ReadCounters(dst []uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	dst[0] = d.counters
	return nil
}

func (d *fakeDevice) Interrupt(v int) framework.Cause {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.cause[v]
	d.cause[v] = framework.Cause{}
	return c
}

func (d *fakeDevice) Mask(v int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.masked[v] = true
}

func (d *fakeDevice) Unmask(v int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.masked[v] = false
	if !d.cause[v].None() {
		d.signal(v)
	}
}

func (d *fakeDevice) Admin() framework.Events {
	d.mu.Lock()
	stuck := d.stuck
	d.mu.Unlock()
	if stuck != nil {
		<-stuck
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	ev := d.admin
	d.admin = framework.Events{}
	return ev
}

// ResetQueue is there for devices made with resettable.
func (d *fakeDevice) resetQueue(q int) (framework.RxQueue, framework.TxQueue, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.resets++
	var rx framework.RxQueue
	var tx framework.TxQueue
	if q < len(d.rx) {
		d.rx[q] = &fakeRx{d: d, q: q, size: d.cfg.RxDescriptors}
		rx = d.rx[q]
	}
	if q < len(d.tx) {
		d.tx[q] = &fakeTx{d: d, q: q, size: d.cfg.TxDescriptors}
		tx = d.tx[q]
	}
	return rx, tx, nil
}

// resettable is a fakeDevice whose queues can be reset one by one.
type resettable struct{ *fakeDevice }

func (d resettable) ResetQueue(q int) (framework.RxQueue, framework.TxQueue, error) {
	return d.resetQueue(q)
}

// SetInterrupts and UnmaskInterrupt are the bus's part.
func (d *fakeDevice) SetInterrupts(kind bus.InterruptKind, events []*bus.Event) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kind, d.events = kind, append([]*bus.Event(nil), events...)
	return nil
}

func (d *fakeDevice) UnmaskInterrupt(int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unmasks++
	return nil
}

// raise makes vector v interrupt for c. The lock is held.
func (d *fakeDevice) raise(v int, c framework.Cause) {
	if v < 0 || v >= len(d.cause) {
		return
	}
	p := &d.cause[v]
	p.Rx |= c.Rx
	p.Tx |= c.Tx
	p.Admin = p.Admin || c.Admin
	if !d.masked[v] {
		d.signal(v)
	}
}

func (d *fakeDevice) signal(v int) {
	if d.deaf > 0 {
		d.deaf--
		return
	}
	if v < len(d.events) {
		d.events[v].Signal()
	}
}

// raiseAdmin makes the admin vector interrupt.
func (d *fakeDevice) raiseAdmin(ev framework.Events) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.admin = ev
	d.raise(d.cfg.Interrupts.AdminVector, framework.Cause{Admin: true})
}

func (d *fakeDevice) rxVector(q int) int {
	if len(d.cfg.Interrupts.RxVector) > q {
		return d.cfg.Interrupts.RxVector[q]
	}
	return -1
}

func (d *fakeDevice) txVector(q int) int {
	v := -1
	if len(d.cfg.Interrupts.TxVector) > q {
		v = d.cfg.Interrupts.TxVector[q]
	}
	if v < 0 {
		v = d.rxVector(q)
	}
	return v
}

// fakeRx is a receive queue. All is under the device's lock.
type fakeRx struct {
	d       *fakeDevice
	q       int
	size    int
	posted  []framework.Buffer
	done    []framework.Packet
	frags   []framework.Fragment
	verdict framework.Verdict
	bells   int
	twice   bool // return a buffer twice
}

func (r *fakeRx) Poll(dst *framework.Batch) framework.Verdict {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	if !r.d.running {
		panic("poll of a stopped device")
	}
	for len(r.done) > 0 && dst.Room(int(r.done[0].Frags)) {
		p := r.done[0]
		n := int(p.Frags)
		p.First = uint32(len(dst.Frags))
		dst.Frags = append(dst.Frags, r.frags[:n]...)
		dst.Packets = append(dst.Packets, p)
		r.done, r.frags = r.done[1:], r.frags[n:]
		if r.twice {
			r.twice = false
			p.First = uint32(len(dst.Frags))
			dst.Frags = append(dst.Frags, dst.Frags[len(dst.Frags)-n:]...)
			dst.Packets = append(dst.Packets, p)
		}
	}
	v := r.verdict
	r.verdict = framework.Healthy
	return v
}

func (r *fakeRx) Post(bufs []framework.Buffer) int {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	n := max(0, min(len(bufs), r.size-1-len(r.posted)-len(r.frags)))
	r.posted = append(r.posted, bufs[:n]...)
	return n
}

func (r *fakeRx) Bell() {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	r.bells++
}

func (r *fakeRx) Pending() bool {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	return len(r.done) > 0
}

// receive lets a frame arrive at queue q, in buffers of which each takes at most
// chunk bytes (0: all that fit). It tells whether there were buffers.
func (d *fakeDevice) receive(q int, frame []byte, p framework.Packet, chunk int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.running {
		return false
	}
	r := d.rx[q]
	b := d.cfg.Buffers
	if chunk == 0 {
		chunk = int(b.Size)
	}
	n := max(1, (len(frame)+chunk-1)/chunk)
	if len(r.posted) < n {
		return false
	}
	p.Len, p.Frags = uint32(len(frame)), uint16(n)
	for rest := frame; n > 0; n-- {
		f := framework.Fragment{Buffer: r.posted[0], Offset: framework.RxOffset, Len: uint32(min(chunk, len(rest)))}
		r.posted = r.posted[1:]
		copy(b.Bytes(f), rest)
		rest = rest[f.Len:]
		r.frags = append(r.frags, f)
	}
	r.done = append(r.done, p)
	d.raise(d.rxVector(q), framework.Cause{Rx: 1 << q})
	return true
}

// fakeTx is a transmit queue. All is under the device's lock.
type fakeTx struct {
	d       *fakeDevice
	q       int
	size    int
	used    int   // descriptors
	costs   []int // of packets put and not completed
	unrung  int   // packets put and not told of
	rung    int   // packets told of and not finished
	ready   int   // packets finished and not reported
	marked  []bool
	bells   int
	unasked int // completions that the device makes up
}

func (t *fakeTx) Put(b *framework.Batch, from int) int {
	t.d.mu.Lock()
	defer t.d.mu.Unlock()
	n := 0
	for i := from; i < len(b.Packets); i++ {
		p := b.Packets[i]
		cost := int(p.Frags)
		if p.Flags&framework.Segment != 0 {
			cost += t.d.perSegment * int((p.Len-uint32(p.HeaderLen))/uint32(p.SegmentSize))
		}
		if t.used+cost > t.size-1 {
			break
		}
		t.used += cost
		t.costs = append(t.costs, cost)
		t.marked = append(t.marked, p.Flags&framework.Completion != 0)
		t.unrung++
		n++
		f := asked(&p, framework.AllFeatures&^t.d.settings.Features)
		if p.Flags&framework.Segment != 0 {
			f &^= framework.ChecksumPartial // goes without saying
		}
		if f != 0 {
			t.d.asked++
		}
		if t.d.fragments != nil {
			t.d.fragments(p, b.Fragments(i))
		}
		if t.d.sent != nil {
			var frame []byte
			for _, f := range b.Fragments(i) {
				frame = append(frame, t.d.cfg.Buffers.Bytes(f)...)
			}
			t.d.sent(t.q, frame, p)
		}
	}
	return n
}

func (t *fakeTx) Bell() {
	t.d.mu.Lock()
	defer t.d.mu.Unlock()
	t.bells++
	if t.unrung == 0 {
		t.d.kicks[t.q]++
	}
	t.rung += t.unrung
	t.unrung = 0
	if t.d.autoTx && !t.d.hangs[t.q] {
		t.finish(t.rung)
	}
}

// finish completes up to n packets: the ones up to the last that asked for it.
func (t *fakeTx) finish(n int) {
	n = min(n, t.rung)
	done := 0
	for i := range n {
		if t.marked[t.ready+i] {
			done = i + 1
		}
	}
	if done == 0 {
		return
	}
	t.rung -= done
	t.ready += done
	if t.d.mute {
		return
	}
	t.d.raise(t.d.txVector(t.q), framework.Cause{Tx: 1 << t.q})
}

func (t *fakeTx) Completed(max int) int {
	t.d.mu.Lock()
	defer t.d.mu.Unlock()
	if t.unasked > 0 {
		n := t.unasked
		t.unasked = 0
		return n + max
	}
	n := min(max, t.ready)
	for _, c := range t.costs[:n] {
		t.used -= c
	}
	t.costs, t.marked = t.costs[n:], t.marked[n:]
	t.ready -= n
	return n
}

func (t *fakeTx) Pending() bool {
	t.d.mu.Lock()
	defer t.d.mu.Unlock()
	return t.ready > 0
}

// finishNext lets the device send up to the next packet of queue q that asks for a
// completion.
func (d *fakeDevice) finishNext(q int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tx[q]
	t.finish(1 + slices.Index(t.marked[t.ready:], true))
}

// finish lets the device send up to n packets of queue q.
func (d *fakeDevice) finish(q, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running {
		d.tx[q].finish(n)
	}
}

// fakeUpper is an Upper that records what goes up and keeps account of every
// buffer.
type fakeUpper struct {
	t       testing.TB
	buffers *framework.Buffers

	mu        sync.Mutex
	delivered [][]delivery
	accept    int                  // packets to take of a batch; negative: all
	keep      bool                 // do not give receive buffers back by itself
	kept      [][]framework.Buffer // by queue, delivered and not given back
	back      [][]framework.Buffer // given back and not reclaimed
	send      []*framework.Batch   // per queue, waiting to be taken
	txFree    [][]framework.Buffer
	txHeld    map[framework.Buffer]bool // with the engine
	wakeRx    []func()
	wakeTx    []func()
	record    bool
}

type delivery struct {
	frame  []byte
	packet framework.Packet
}

func newFakeUpper(t testing.TB, b *framework.Buffers, queues int, tx []BufferRange) *fakeUpper {
	u := &fakeUpper{t: t, buffers: b, accept: -1, record: true, txHeld: map[framework.Buffer]bool{}}
	u.delivered = make([][]delivery, queues)
	u.kept = make([][]framework.Buffer, queues)
	u.back = make([][]framework.Buffer, queues)
	u.wakeRx = make([]func(), queues)
	u.wakeTx = make([]func(), queues)
	for q := range queues {
		u.send = append(u.send, &framework.Batch{})
		var free []framework.Buffer
		for i := range tx[q].Count {
			free = append(free, tx[q].First+framework.Buffer(i))
		}
		u.txFree = append(u.txFree, free)
	}
	return u
}

func (u *fakeUpper) Deliver(q int, b *framework.Batch) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := len(b.Packets)
	if u.accept >= 0 {
		n = min(n, u.accept)
	}
	for i := range b.Packets[:n] {
		d := delivery{packet: b.Packets[i]}
		total := uint32(0)
		for _, f := range b.Fragments(i) {
			total += f.Len
			if u.record {
				d.frame = append(d.frame, u.buffers.Bytes(f)...)
			}
			if u.keep {
				u.kept[q] = append(u.kept[q], f.Buffer)
			} else {
				u.back[q] = append(u.back[q], f.Buffer)
			}
		}
		if total != b.Packets[i].Len {
			u.t.Errorf("delivered packet of %d bytes has %d", b.Packets[i].Len, total)
		}
		if u.record {
			u.delivered[q] = append(u.delivered[q], d)
		}
	}
	return n
}

func (u *fakeUpper) Reclaim(q int, dst []framework.Buffer) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := copy(dst, u.back[q])
	u.back[q] = u.back[q][n:]
	return n
}

func (u *fakeUpper) Take(q int, b *framework.Batch) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.send[q]
	n := 0
	for n < len(s.Packets) && b.Room(int(s.Packets[n].Frags)) {
		p := s.Packets[n]
		frags := s.Fragments(n)
		p.First = uint32(len(b.Frags))
		b.Frags = append(b.Frags, frags...)
		b.Packets = append(b.Packets, p)
		n++
	}
	s.Packets = s.Packets[n:]
	if len(s.Packets) == 0 {
		s.Reset()
	}
}

func (u *fakeUpper) Complete(q int, bufs []framework.Buffer) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, b := range bufs {
		if !u.txHeld[b] {
			u.t.Errorf("buffer %d completed, but it was not sent", b)
		}
		delete(u.txHeld, b)
		u.txFree[q] = append(u.txFree[q], b)
	}
}

func (u *fakeUpper) ArmRx(q int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.back[q]) > 0
}

func (u *fakeUpper) ArmTx(q int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.send[q].Packets) > 0
}

func (u *fakeUpper) SetWaker(q int, rx, tx func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.wakeRx[q], u.wakeTx[q] = rx, tx
}

// giveBack returns the buffers that keep has kept.
func (u *fakeUpper) giveBack(q int) {
	u.mu.Lock()
	u.back[q] = append(u.back[q], u.kept[q]...)
	u.kept[q] = nil
	wake := u.wakeRx[q]
	u.mu.Unlock()
	if wake != nil {
		wake()
	}
}

// frame puts a frame to send into the queue, each piece in a buffer of its own at
// offset, and tells whether there were buffers.
func (u *fakeUpper) frame(q int, p framework.Packet, offset uint32, pieces ...[]byte) bool {
	u.mu.Lock()
	if len(u.txFree[q]) < len(pieces) {
		u.mu.Unlock()
		return false
	}
	s := u.send[q]
	p.First, p.Frags, p.Len = uint32(len(s.Frags)), uint16(len(pieces)), 0
	for _, b := range pieces {
		f := framework.Fragment{Buffer: u.txFree[q][0], Offset: offset, Len: uint32(len(b))}
		u.txFree[q] = u.txFree[q][1:]
		u.txHeld[f.Buffer] = true
		copy(u.buffers.Bytes(f), b)
		s.Frags = append(s.Frags, f)
		p.Len += f.Len
	}
	s.Packets = append(s.Packets, p)
	wake := u.wakeTx[q]
	u.mu.Unlock()
	if wake != nil {
		wake()
	}
	return true
}

// rig is an engine between a fakeDevice and a fakeUpper.
type rig struct {
	t     testing.TB
	dev   *fakeDevice
	up    *fakeUpper
	above Upper // up, or something around it
	e     *Engine
	tick  chan time.Time
	clock *fakeClock
	opts  Options
	plan  Plan
	lros  int // LRO engines made
	// resettable gives the device the method to reset one queue.
	resettable bool
}

type fakeClock struct {
	mu  sync.Mutex
	now int64
}

func (c *fakeClock) read() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += int64(d)
}

const (
	rxPerQueue  = 600
	txPerQueue  = 400
	ownPerQueue = 96
)

func newBuffers(count uint32) *framework.Buffers {
	const size = 2048
	return &framework.Buffers{
		Memory: bus.HeapMemory(int(count) * (size + 64)).Bytes(),
		Stride: size + 64, Size: size, Count: count,
	}
}

// newRig makes a rig with so many queue pairs. setup may change device, options
// and plan first.
func newRig(t testing.TB, queues int, setup func(*rig)) *rig {
	t.Helper()
	per := uint32(rxPerQueue + txPerQueue + ownPerQueue)
	b := newBuffers(uint32(queues) * per)
	r := &rig{t: t, dev: newFakeDevice(queues), tick: make(chan time.Time), clock: &fakeClock{now: 1e9}}
	var sendable []BufferRange
	for q := range queues {
		at := framework.Buffer(uint32(q) * per)
		r.opts.RxBuffers = append(r.opts.RxBuffers, BufferRange{at, rxPerQueue})
		sendable = append(sendable, BufferRange{at + rxPerQueue, txPerQueue})
		r.opts.TxBuffers = append(r.opts.TxBuffers, BufferRange{at + rxPerQueue + txPerQueue, ownPerQueue})
	}
	r.up = newFakeUpper(t, b, queues, sendable)
	r.above = r.up
	r.opts.Name, r.opts.Buffers, r.opts.Interrupts = "fake0", b, r.dev
	r.opts.Quirks = framework.NewQuirkSet()
	r.opts.Tick, r.opts.Now = r.tick, r.clock.read
	r.plan = Plan{
		Settings: framework.Settings{MTU: 1500, Features: framework.AllFeatures},
		RxQueues: queues, TxQueues: queues, RxDescriptors: 256, TxDescriptors: 256,
		Interrupts: framework.VectorPlan{Kind: bus.MSIX, Vectors: queues + 1, AdminVector: queues},
		LRO:        framework.LRONone,
	}
	for q := range queues {
		r.plan.Interrupts.RxVector = append(r.plan.Interrupts.RxVector, q)
		r.plan.Interrupts.TxVector = append(r.plan.Interrupts.TxVector, q)
	}
	if setup != nil {
		setup(r)
	}
	dev := framework.Device(r.dev)
	if r.resettable {
		dev = resettable{r.dev}
	}
	r.build(dev)
	return r
}

func (r *rig) build(dev framework.Device) {
	r.t.Helper()
	e, err := New(dev, r.above, r.opts)
	if err != nil {
		r.t.Fatal(err)
	}
	make := e.makeLRO
	e.makeLRO = func(mtu, budget int, b *framework.Buffers) *coalescer {
		r.lros++
		return make(mtu, budget, b)
	}
	r.e = e
}

func (r *rig) start() *rig {
	r.t.Helper()
	if err := r.e.Start(context.Background(), r.plan); err != nil {
		r.t.Fatal(err)
	}
	return r
}

// until waits for a condition; the deadline is only there so that a broken engine
// fails the test.
func (r *rig) until(what string, cond func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !cond() {
		if time.Now().After(deadline) {
			r.t.Fatalf("never: %s\n%s", what, r.dump())
		}
		time.Sleep(100 * time.Microsecond)
	}
}

func (r *rig) dump() string {
	var b bytes.Buffer
	s := r.e.Counters()
	for q := range s.Rx {
		for i, v := range s.Rx[q] {
			if v != 0 {
				fmt.Fprintf(&b, "rx%d %s=%d ", q, RxCounters[i].Name, v)
			}
		}
	}
	for q := range s.Tx {
		for i, v := range s.Tx[q] {
			if v != 0 {
				fmt.Fprintf(&b, "tx%d %s=%d ", q, TxCounters[i].Name, v)
			}
		}
	}
	for i, v := range s.Device {
		if v != 0 {
			fmt.Fprintf(&b, "%s=%d ", DeviceCounters[i].Name, v)
		}
	}
	return b.String()
}

func (r *rig) rxCount(q int, c RxCounter) uint64 { return r.e.Counters().Rx[q][c] }
func (r *rig) txCount(q int, c TxCounter) uint64 { return r.e.Counters().Tx[q][c] }
func (r *rig) count(c DeviceCounter) uint64      { return r.e.Counters().Device[c] }

func (r *rig) deliveries(q int) []delivery {
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	return append([]delivery(nil), r.up.delivered[q]...)
}

// finish stops the engine and checks that nothing is lost: counters add up and
// every buffer is back.
func (r *rig) finish() {
	r.t.Helper()
	if err := r.e.Stop(context.Background()); err != nil {
		r.t.Error(err)
	}
	r.audit()
	if err := r.e.Detach(context.Background()); err != nil {
		r.t.Error(err)
	}
}

// audit checks a stopped engine's account of packets and buffers.
func (r *rig) audit() {
	r.t.Helper()
	if err := Check(r.e.Counters()); err != nil {
		r.t.Errorf("%v\n%s", err, r.dump())
	}
	if r.dev.asked != 0 {
		r.t.Errorf("%d packets asked the device for what it was not to do", r.dev.asked)
	}
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	for q, rx := range r.e.rx {
		above := len(r.up.back[q]) + len(r.up.kept[q])
		if rx.pool.posted != 0 || len(rx.pool.free)+above != len(rx.pool.places) {
			r.t.Errorf("receive queue %d: %d buffers, but %d free, %d posted, %d above",
				q, len(rx.pool.places), len(rx.pool.free), rx.pool.posted, above)
		}
		seen := map[framework.Buffer]bool{}
		for _, b := range rx.pool.free {
			if seen[b] {
				r.t.Errorf("receive queue %d: buffer %d is free twice", q, b)
			}
			seen[b] = true
		}
	}
	for q, tx := range r.e.tx {
		if len(tx.own.free) != int(tx.own.count) {
			r.t.Errorf("transmit queue %d: %d of %d own buffers are back", q, len(tx.own.free), tx.own.count)
		}
		if n := tx.count[TxInFlight]; n != 0 {
			r.t.Errorf("transmit queue %d: %d packets in flight after stop", q, n)
		}
		for _, p := range r.up.send[q].Packets {
			for _, f := range r.up.send[q].Frags[p.First : p.First+uint32(p.Frags)] {
				delete(r.up.txHeld, f.Buffer) // never taken
			}
		}
	}
	if len(r.up.txHeld) != 0 {
		r.t.Errorf("%d transmit buffers did not come back", len(r.up.txHeld))
	}
}
