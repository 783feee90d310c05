package link

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"nicd/bus"
	"nicd/framework"
)

// ErrRunning: that can be done to a stopped host only.
var ErrRunning = errors.New("link is running")

// Receiver is the part of a framework.Port that a link needs.
type Receiver interface {
	Deliver(queue int, b *framework.Batch)
	TxReady(queue int)
}

// HostOptions say how nicd's end of a link is to be.
type HostOptions struct {
	Name string // the interface
	// Memory is the arena, of at least the layout's size. It stays the caller's
	// and outlives the Host.
	Memory *bus.Memory
	Layout Options
	// OnViolation is told, once a generation, that the engine broke a rule and
	// that the link has stopped for that. It is called with no lock held, by a
	// goroutine of the link or of a sender: it must not block, nor call Start,
	// Stop, Reset or Close.
	OnViolation func(*Violation)
	// Spin is how often an idle queue looks again before it sleeps; 0 is the
	// default, negative is never.
	Spin int
}

const defaultSpin = 32

// Host is nicd's end of a link. It owns all buffers, lends them to the engine
// and to the port, and has its own record of which is where. It is the port's
// framework.Interface and outlives any number of engines:
//
//	NewHost → Start → engine attaches … engine is gone → Stop → Reset → Start …
//
// Start, Stop, Reset and Close are for one goroutine at a time; the methods of
// framework.Interface are for all, always.
type Host struct {
	name     string
	layout   Layout
	arena    *bus.Memory
	buffers  *framework.Buffers
	owners   owners
	queues   []hostQueue
	events   atomic.Pointer[Events]
	near     atomic.Pointer[Lower] // the engine's end, if that is in this process
	onBroken func(*Violation)
	spin     int

	settings  atomic.Pointer[framework.Settings]
	txQueues  atomic.Int32
	state     atomic.Uint32
	violation atomic.Pointer[Violation]

	generation uint32
	joined     sync.WaitGroup
}

// States of a Host.
const (
	hostStopped  uint32 = iota
	hostRunning         //
	hostStopping        // receivers deliver what is there, and end
	hostBroken          // after a violation: receivers end at once
)

// NewHost writes the arena's header and makes a stopped host. The engine's
// receive buffers wait for it in the rx-return rings.
func NewHost(o HostOptions) (*Host, error) {
	layout, err := o.Layout.Layout()
	if err != nil {
		return nil, err
	}
	if o.Memory.Size() < layout.size {
		return nil, fmt.Errorf("%w: %d bytes, layout needs %d", ErrArena, o.Memory.Size(), layout.size)
	}
	h := &Host{
		name:     o.Name,
		layout:   layout,
		arena:    o.Memory,
		buffers:  layout.Buffers(o.Memory, 0),
		owners:   newOwners(layout),
		queues:   make([]hostQueue, layout.Queues),
		onBroken: o.OnViolation,
		spin:     o.Spin,
	}
	if o.Spin == 0 {
		h.spin = defaultSpin
	}
	h.settings.Store(&framework.Settings{})
	h.txQueues.Store(int32(layout.Queues))
	for i := range h.queues {
		h.queues[i].open(h, i)
	}
	if err := h.Reset(); err != nil {
		return nil, err
	}
	return h, nil
}

// Layout is the arena's layout.
func (h *Host) Layout() Layout { return h.layout }

// Memory is the arena.
func (h *Host) Memory() *bus.Memory { return h.arena }

// Generation counts the engines that the arena was prepared for, from 1 on.
func (h *Host) Generation() uint32 { return h.generation }

// Events are what the present generation's engine needs to open its end. They
// stay the host's and last until the next Reset.
func (h *Host) Events() Events { return *h.events.Load() }

// Counters is the page where the engine counts. What stands there is an
// untrusted process's: numbers to show, not to rely on.
func (h *Host) Counters() []byte { return h.layout.Counters(h.arena) }

// Configure says what Settings and Queues answer from now on. When it returns
// nothing is queued any more for transmit queues that are not in use: what a
// sender that has not noticed yet gives them goes to one that is.
func (h *Host) Configure(s framework.Settings, txQueues int) {
	h.settings.Store(&s)
	h.txQueues.Store(int32(min(max(txQueues, 1), h.layout.Queues)))
	for i := h.Queues(); i < len(h.queues); i++ {
		q := &h.queues[i]
		q.mu.Lock() // waits for a sender that is at it
		q.wantRoom.Store(false)
		q.mu.Unlock()
	}
}

// Name is the interface's name.
func (h *Host) Name() string { return h.name }

// Settings are those that Configure was told.
func (h *Host) Settings() framework.Settings { return *h.settings.Load() }

// Queues is the number of transmit queues in use.
func (h *Host) Queues() int { return int(h.txQueues.Load()) }

// Buffers is where packets lie. Device addresses in it count from the arena's
// start.
func (h *Host) Buffers() *framework.Buffers { return h.buffers }

// Start makes packets flow to and from r. Queues whose senders wait are told.
func (h *Host) Start(r Receiver) error {
	if !h.state.CompareAndSwap(hostStopped, hostRunning) {
		return fmt.Errorf("%s: %w", h.name, ErrRunning)
	}
	for i := range h.queues {
		h.joined.Go(func() { h.queues[i].receive(r) })
	}
	return nil
}

// Stop ends the flow. Packets that the engine published before are delivered
// first, except after a violation. It returns when no Deliver is running any
// more. Senders are refused until the next Start.
func (h *Host) Stop() {
	h.state.CompareAndSwap(hostRunning, hostStopping)
	h.Events().unjam()
	h.wakeReceivers()
	h.joined.Wait()
	h.state.Store(hostStopped)
}

func (h *Host) wakeReceivers() {
	for _, e := range h.Events().Host {
		e.Signal()
	}
}

// Reset prepares the arena for a new engine: empty rings, new events, and every
// buffer that the last engine had back where it belongs. What the port holds
// stays the port's. The host is stopped, the engine's process is dead and its
// device does no DMA any more.
func (h *Host) Reset() error {
	if h.state.Load() != hostStopped {
		return fmt.Errorf("%s: reset: %w", h.name, ErrRunning)
	}
	events, err := NewEvents(h.layout.Queues)
	if err != nil {
		return fmt.Errorf("%s: %w", h.name, err)
	}
	h.lockAll()
	defer h.unlockAll()
	h.generation++
	for i := range h.queues {
		q := &h.queues[i]
		q.self.Store(events.Host[i])
		q.engine.Store(events.Engine[i])
	}
	for i := range h.queues {
		h.queues[i].reset()
	}
	if old := h.events.Swap(&events); old != nil {
		old.Close()
	}
	h.violation.Store(nil)
	writeHeader(h.arena, h.layout, h.generation)
	return nil
}

func (h *Host) lockAll() {
	for i := range h.queues {
		h.queues[i].mu.Lock()
	}
	for i := range h.queues {
		h.queues[i].freeMu.Lock()
		h.queues[i].rxMu.Lock()
	}
}

func (h *Host) unlockAll() {
	for i := range h.queues {
		h.queues[i].rxMu.Unlock()
		h.queues[i].freeMu.Unlock()
		h.queues[i].mu.Unlock()
	}
}

// Close ends a stopped host. The arena stays the caller's; nobody uses the host
// any more.
func (h *Host) Close() error {
	if h.state.Load() != hostStopped {
		return fmt.Errorf("%s: close: %w", h.name, ErrRunning)
	}
	h.Events().Close()
	return nil
}

// Violation is what stopped the link in this generation, or nil.
func (h *Host) Violation() *Violation { return h.violation.Load() }

// broken stops the link for v, once a generation.
func (h *Host) broken(v *Violation) {
	v.Interface = h.name
	if !h.violation.CompareAndSwap(nil, v) {
		return
	}
	h.state.CompareAndSwap(hostRunning, hostBroken)
	h.wakeReceivers()
	if h.onBroken != nil {
		h.onBroken(v)
	}
}
