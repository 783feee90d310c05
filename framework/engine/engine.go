// Package engine runs a NIC that a driver has attached: it is what is the same
// for all devices. It lives between a framework.Device below and an [Upper]
// above, in nicd or in a driver plugin's process.
//
// What lives here: the interrupt state machine and the tasks it schedules, the
// receive pipeline (poll, refill, software LRO by its owner, deliver), the
// transmit pipeline (take, check, help where the device cannot, put, ring,
// reap), the watchdog, the admin task, changes of settings, counters. What does
// not: what is true of one device (its driver), where packets come from and go
// to (package link, ports), and decisions: features, quirks and queue layout
// arrive ready-made in a [Plan].
//
// # Goroutines
//
// A task owns the queues of a pair and is the only one that touches them: no
// locks, no allocation and no call through an interface per packet. Each
// interrupt vector has a goroutine that waits for it. One admin task per device
// handles link changes, resets and the watchdog. The control methods (package
// plugin calls them over gRPC, nicd directly) and the admin task take turns.
// Stopping cancels and joins; nothing is synchronised by sleeping.
//
// # Where to begin
//
// [Control] and [Plan] are what is asked of an engine, [Upper] is who it works for.
// A packet's way up is rxQueue.round, its way down txQueue.round; task.work calls
// both and decides when to sleep, vector.fire wakes it. An engine starts in
// Engine.run and stops in Engine.halt, changes in Engine.applyLive, and recovers in
// Engine.recover. What can be counted is in counters.go, and that it adds up in
// account.go.
package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"nicd/bus"
	"nicd/framework"
)

// Errors of an Engine, wrapped with what happened.
var (
	// ErrState: the call does not fit the engine's state (Start of a running
	// engine, anything after Detach).
	ErrState = errors.New("engine is not in a state for this")
	// ErrPlan: the plan breaks a rule of the device's.
	ErrPlan = errors.New("plan does not fit the device")
	// ErrLost: the device is gone or did not come back from a reset.
	ErrLost = errors.New("device is lost")
	// ErrEnding: the driver has not returned in time, and the engine is still
	// about to end: what it was given is in use.
	ErrEnding = errors.New("engine has not ended yet")
)

// Options configure an Engine. Buffers and RxBuffers are needed, the rest may be
// zero.
type Options struct {
	Name string // the interface, for messages
	Log  zerolog.Logger
	// Quirks are the effective values, shared with the driver; nil are the
	// defaults.
	Quirks *framework.QuirkSet

	// Buffers is where packets lie. RxBuffers are the receive buffers of each
	// queue: the engine's, until they are delivered, and again when reclaimed.
	// TxBuffers are the buffers of each transmit queue for headers and copies,
	// used when the device cannot do what was asked; a queue without any drops
	// what needs one.
	Buffers              *framework.Buffers
	RxBuffers, TxBuffers []BufferRange

	// RxAbove says that the receive buffers are the upper side's at first: those
	// that are free come with Reclaim, and the port may still have some that an
	// earlier engine delivered.
	RxAbove bool

	// Counters is the memory of the counters page, of CountersSize(RxQueues,
	// TxQueues) bytes, 8-byte aligned; nil is memory of the engine's. The
	// number of queues in it is that of RxBuffers, and of TxBuffers or
	// Info.MaxTxQueues, whichever is larger.
	Counters []byte

	// Interrupts is the bus's part in interrupts, usually the bus.Device. Nil
	// means that there are none: then tasks look for work each millisecond, or
	// all the time if the plan says so.
	Interrupts Interrupter

	// SeparateTasks gives receive and transmit of a pair a task each. That can
	// pay when there are more processors than queues and ringing a bell is slow.
	// On two processors it is no faster, and the two tasks do not keep pace with
	// each other (BenchmarkTasks).
	SeparateTasks bool

	// Stopped, if set, is called each time when the device has been stopped or did
	// not start: memory that the driver was given meanwhile is nobody's any more
	// (framework.DMA).
	Stopped func()

	// Watchdog is the age at which a packet that the device was given makes its
	// queue suspect; 0 is two seconds. Cooldown is the least time between two
	// resets of a device by the watchdog; 0 is ten seconds.
	Watchdog, Cooldown time.Duration

	// Now is the time in nanoseconds on a monotonic clock that never reads 0,
	// and Tick makes the admin task look; nil are real ones, the latter one
	// second. For tests.
	Now  func() int64
	Tick <-chan time.Time
}

// state is where the engine is in its life.
type state uint8

const (
	attached state = iota
	started
	lost     // device gone; only Detach is possible
	detached // dead
)

func (s state) String() string {
	return [...]string{"attached", "started", "lost", "detached"}[s]
}

// Engine runs one device. It implements [Control].
type Engine struct {
	dev   framework.Device
	upper Upper
	opts  Options
	page  *page

	// turn is held by whoever calls the device's control methods and changes
	// what follows.
	turn  chan struct{}
	state state
	plan  Plan
	info  framework.Info
	link  framework.Link

	rx       []*rxQueue // all that there are buffers for
	tx       []*txQueue
	tasks    []*task
	rxTasks  []*task // by queue, of the queues in use
	txTasks  []*task
	vectors  []*vector
	events   []*bus.Event
	stopWait context.CancelFunc // of the vectors' goroutines
	waiters  sync.WaitGroup

	hardware []uint64 // totals of what earlier starts counted
	watch    watchdog
	linkUp   atomic.Bool
	makeLRO  func(mtu, budget int, b *framework.Buffers) *coalescer

	admin  adminTask
	ending ending
}

// New makes an engine for a device that its driver has attached. Until Detach,
// which is the device's end too, nobody else may call its methods.
func New(dev framework.Device, upper Upper, o Options) (*Engine, error) {
	info := dev.Info()
	if err := checkOptions(&o, &info); err != nil {
		return nil, err
	}
	o.Log.Debug().Str("model", info.Model).Int("revision", info.Revision).Stringer("mac", info.MAC).Str("mode", info.Mode).Msg("attached")
	rx, tx := len(o.RxBuffers), max(len(o.TxBuffers), info.MaxTxQueues)
	if o.Counters == nil {
		o.Counters = make([]byte, CountersSize(rx, tx))
	}
	page, err := openPage(o.Counters, rx, tx)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		dev: dev, upper: upper, opts: o, page: page, info: info,
		turn:     make(chan struct{}, 1),
		hardware: make([]uint64, len(info.Counters)),
		makeLRO:  newCoalescer,
		ending:   ending{done: make(chan struct{})},
	}
	for q := range rx {
		e.rx = append(e.rx, e.newRxQueue(q))
	}
	for q := range tx {
		e.tx = append(e.tx, e.newTxQueue(q))
	}
	e.watch = newWatchdog(len(e.tx))
	e.admin.start(e)
	return e, nil
}

func (e *Engine) newRxQueue(q int) *rxQueue {
	r := newRxQueue(q, e.upper, e.opts.Buffers, e.opts.RxBuffers[q], e.page.rx[q])
	if e.opts.RxAbove {
		r.pool.lend()
	}
	r.fault = func(v framework.Verdict) { e.reportVerdict(q, v) }
	return r
}

func (e *Engine) newTxQueue(q int) *txQueue {
	var own BufferRange
	if q < len(e.opts.TxBuffers) {
		own = e.opts.TxBuffers[q]
	}
	t := newTxQueue(q, e.upper, e.opts.Buffers, own, e.page.tx[q])
	t.now, t.linkUp = e.opts.Now, &e.linkUp
	return t
}

// checkOptions completes the options and checks that buffers are where they are
// said to be, and one queue's only.
func checkOptions(o *Options, info *framework.Info) error {
	if o.Buffers == nil || len(o.RxBuffers) == 0 {
		return fmt.Errorf("%w: no buffers", ErrPlan)
	}
	if o.Buffers.Stride < headroom+shortestFragment || o.Buffers.Size == 0 {
		return fmt.Errorf("%w: buffers of %d bytes", ErrPlan, o.Buffers.Stride)
	}
	if info.MaxTxFragmentLen != 0 && info.MaxTxFragmentLen < shortestFragment {
		return fmt.Errorf("%w: device's largest transmit fragment is %d bytes; it has to be %d", ErrPlan, info.MaxTxFragmentLen, shortestFragment)
	}
	if err := checkRanges(o); err != nil {
		return err
	}
	if o.Quirks == nil {
		o.Quirks = framework.NewQuirkSet()
	}
	if o.Watchdog == 0 {
		o.Watchdog = 2 * time.Second
	}
	if o.Stopped == nil {
		o.Stopped = func() {}
	}
	if o.Cooldown == 0 {
		o.Cooldown = 10 * time.Second
	}
	if o.Now == nil {
		start := time.Now()
		o.Now = func() int64 { return int64(time.Since(start)) + 1 }
	}
	return nil
}

func checkRanges(o *Options) error {
	var all []BufferRange
	all = append(append(all, o.RxBuffers...), o.TxBuffers...)
	for i, r := range all {
		end := uint64(r.First) + uint64(r.Count)
		if end > uint64(o.Buffers.Count) {
			return fmt.Errorf("%w: buffers %d+%d of %d", ErrPlan, r.First, r.Count, o.Buffers.Count)
		}
		for _, other := range all[:i] {
			if uint64(other.First) < end && uint64(r.First) < uint64(other.First)+uint64(other.Count) {
				return fmt.Errorf("%w: buffers %d+%d are two queues'", ErrPlan, r.First, r.Count)
			}
		}
	}
	return nil
}

// take takes the turn at the device, or fails when ctx ends or the engine's
// state is none of those allowed.
func (e *Engine) take(ctx context.Context, allowed ...state) error {
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, s := range allowed {
		if e.state == s {
			return nil
		}
	}
	s := e.state
	e.give()
	if s == lost {
		return fmt.Errorf("%s: %w", e.opts.Name, ErrLost)
	}
	return fmt.Errorf("%s: %w: it is %s", e.opts.Name, ErrState, s)
}

func (e *Engine) give() { <-e.turn }

// Info describes the device as the driver sees it now.
func (e *Engine) Info(ctx context.Context) (framework.Info, error) {
	if err := e.take(ctx, attached, started); err != nil {
		return framework.Info{}, err
	}
	defer e.give()
	e.info = e.dev.Info()
	return e.info, nil
}

// Counters reads the engine's counters page.
func (e *Engine) Counters() Snapshot {
	s, err := ReadCounters(e.opts.Counters, len(e.rx), len(e.tx))
	if err != nil {
		s.Torn = true // someone overwrote the page
	}
	return s
}

// HardwareCounters returns the device's own counters as totals since New: the
// driver counts from one start to the next.
func (e *Engine) HardwareCounters(ctx context.Context) ([]uint64, error) {
	if err := e.take(ctx, attached, started, lost); err != nil {
		return nil, err
	}
	defer e.give()
	total := append([]uint64(nil), e.hardware...)
	if e.state != started || len(total) == 0 {
		return total, nil
	}
	now := make([]uint64, len(total))
	if err := e.dev.ReadCounters(now); err != nil {
		return total, err
	}
	for i := range total {
		total[i] += now[i]
	}
	return total, nil
}

// keepHardwareCounters adds what this start counted to the totals, before the
// device forgets it.
func (e *Engine) keepHardwareCounters() {
	now := make([]uint64, len(e.hardware))
	if len(now) == 0 {
		return
	}
	if err := e.dev.ReadCounters(now); err != nil {
		e.opts.Log.Warn().Err(err).Msg("hardware counters are lost")
		return
	}
	for i := range now {
		e.hardware[i] += now[i]
	}
}

// SetQuirks changes quirks' effective values; all of them or, if one is wrong,
// none. What the engine itself makes of them takes effect with the next batch. Who
// merges received segments is for a plan to say: [Engine.Change] follows when
// nicd has worked out anew what that quirk and the features come to.
func (e *Engine) SetQuirks(ctx context.Context, values map[string]string) error {
	for name, value := range values {
		q := framework.LookupQuirk(name)
		if q == nil {
			return fmt.Errorf("no quirk %q", name)
		}
		if err := q.Check(value); err != nil {
			return err
		}
	}
	if err := e.take(ctx, attached, started); err != nil {
		return err
	}
	defer e.give()
	for name, value := range values {
		if err := e.opts.Quirks.Set(name, value); err != nil {
			return err
		}
	}
	if e.state == started {
		e.setRules(&e.plan)
	}
	return nil
}

// SetFilters sets what the device is to receive. What does not fit its filters is
// replaced by promiscuity.
func (e *Engine) SetFilters(ctx context.Context, f framework.Filters) error {
	if err := e.take(ctx, attached, started); err != nil {
		return err
	}
	defer e.give()
	if e.state == started {
		if err := e.dev.SetFilters(fitFilters(f, &e.info)); err != nil {
			return err
		}
	}
	e.plan.Filters = f
	return nil
}

// fitFilters replaces lists that are longer than the device's by promiscuity.
func fitFilters(f framework.Filters, info *framework.Info) framework.Filters {
	if len(f.Unicast) > info.MaxUnicast {
		f.Unicast, f.Promiscuous = nil, true
	}
	if len(f.Multicast) > info.MaxMulticast {
		f.Multicast, f.AllMulticast = nil, true
	}
	return f
}

// Events delivers what happens by itself until Detach.
func (e *Engine) Events() <-chan Event { return e.admin.events }

// Detach stops the engine if it runs and ends it and the device. When ctx ends
// first, because a driver does not return from a call, Detach fails with ErrEnding
// and the engine ends as soon as it can. Until then it uses all that it was given:
// buffers, counters, the device and what lies below it, the upper side. Another
// Detach waits for that end.
func (e *Engine) Detach(ctx context.Context) error {
	e.ending.begin.Do(func() {
		e.ending.begun.Store(true)
		go e.end(ctx)
	})
	select {
	case <-e.ending.done:
	case <-ctx.Done():
		return fmt.Errorf("%s: detach: %w: %w", e.opts.Name, ErrEnding, ctx.Err())
	}
	if e.ending.told.Swap(true) {
		return fmt.Errorf("%s: %w: it is %s", e.opts.Name, ErrState, detached)
	}
	return e.ending.err
}

// ending is the way of an engine to its end.
type ending struct {
	begin sync.Once
	begun atomic.Bool
	done  chan struct{} // closed at the end
	err   error         // valid then
	told  atomic.Bool   // a caller of Detach has err
}

// end waits for its turn and ends everything. It does not return before the last
// task has: nobody can take memory away from under one.
func (e *Engine) end(ctx context.Context) {
	defer close(e.ending.done)
	e.turn <- struct{}{}
	var err error
	if e.state == started {
		err = e.halt(ctx)
	}
	e.ending.err = errors.Join(err, e.dev.Detach())
	e.state = detached
	e.give()
	e.admin.stop()
}

var _ Control = (*Engine)(nil)
