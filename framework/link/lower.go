package link

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"nicd/bus"
	"nicd/framework"
)

// LowerOptions say where an engine's end of a link is.
type LowerOptions struct {
	// Memory is the arena. It stays the caller's and outlives the Lower.
	Memory *bus.Memory
	// Events are the host's; they stay the caller's.
	Events Events
	// Base is the device address at which the arena is mapped.
	Base uint64
	// Generation is the host's when it made this engine; 0 accepts any.
	Generation uint32
	// Host is the other end if that is in this process: it then calls the waker of
	// transmit in the sender's goroutine, instead of by way of the event and the
	// goroutine that waits for it. Nil is another process.
	Host *Host
	// Fault is told, once, that the host's rings hold garbage. It must not
	// block. The Lower takes nothing more from then on.
	Fault func(error)
}

// Lower is the engine's end of a link, an engine.Upper. Its receive methods are
// for a queue's receive task, its transmit methods for the transmit task; they
// neither lock nor allocate.
type Lower struct {
	layout  Layout
	arena   *bus.Memory
	buffers *framework.Buffers
	dma     *DMA
	queues  []lowerQueue
	events  Events
	host    *Host // or nil
	report  func(error)
	failed  atomic.Pointer[Violation]
	closing atomic.Bool
	joined  sync.WaitGroup
}

type lowerQueue struct {
	rx       packetWriter
	rxReturn bufferReader
	_        [lineSize]byte // the two tasks run on different processors
	tx       packetReader
	txReturn bufferWriter
	_        [lineSize]byte
	wakers   atomic.Pointer[wakers]
	host     *bus.Event
}

type wakers struct{ rx, tx func() }

// NewLower checks the arena and opens the engine's end. Close ends it.
func NewLower(o LowerOptions) (*Lower, error) {
	layout, generation, err := readHeader(o.Memory)
	if err != nil {
		return nil, err
	}
	if o.Generation != 0 && o.Generation != generation {
		return nil, fmt.Errorf("%w: %d, this engine is of generation %d", ErrGeneration, generation, o.Generation)
	}
	if len(o.Events.Host) != layout.Queues || len(o.Events.Engine) != layout.Queues {
		return nil, fmt.Errorf("%w: %d queues, events for %d", ErrArena, layout.Queues, len(o.Events.Host))
	}
	l := &Lower{
		layout:  layout,
		arena:   o.Memory,
		buffers: layout.Buffers(o.Memory, o.Base),
		dma:     layout.newDMA(o.Memory, o.Base),
		queues:  make([]lowerQueue, layout.Queues),
		events:  o.Events,
		host:    o.Host,
		report:  o.Fault,
	}
	for i := range l.queues {
		l.queues[i].open(l, i)
	}
	for i := range l.queues {
		l.joined.Go(func() { l.wait(i) })
	}
	if l.host != nil {
		l.host.near.Store(l)
	}
	return l, nil
}

func (q *lowerQueue) open(l *Lower, i int) {
	q.rx = newPacketWriter(l.arena, l.layout, i, ringRx)
	q.rxReturn = newBufferReader(l.arena, l.layout, i, ringRxReturn)
	q.tx = newPacketReader(l.arena, l.layout, i, ringTx, l.buffers)
	q.txReturn = newBufferWriter(l.arena, l.layout, i, ringTxReturn)
	q.host = l.events.Host[i]
}

// Layout is what the arena's header says.
func (l *Lower) Layout() Layout { return l.layout }

// Buffers is where packets lie, with device addresses.
func (l *Lower) Buffers() *framework.Buffers { return l.buffers }

// DMA hands out the arena's memory for descriptor rings.
func (l *Lower) DMA() *DMA { return l.dma }

// Counters is the page where the engine counts. nicd reads it at any time, and
// after the engine has died.
func (l *Lower) Counters() []byte { return l.layout.Counters(l.arena) }

// Err is what was wrong with the host's rings, or nil.
func (l *Lower) Err() error {
	if v := l.failed.Load(); v != nil {
		return v
	}
	return nil
}

// Close ends the link's goroutines. The tasks have stopped. A sender may still be on
// its way to the waker of one, for which that is ready.
func (l *Lower) Close() {
	if l.host != nil {
		l.host.near.CompareAndSwap(l, nil)
	}
	l.closing.Store(true)
	for _, e := range l.events.Engine {
		e.Signal()
	}
	l.joined.Wait()
}

// Deliver hands packets up and returns how many were taken.
func (l *Lower) Deliver(queue int, b *framework.Batch) int {
	q := &l.queues[queue]
	n := 0
	for n < len(b.Packets) {
		frags := b.Fragments(n)
		ok, v := q.rx.reserve(entriesFor(len(frags)))
		if v != nil {
			l.fault(v)
		}
		if !ok {
			break
		}
		q.rx.write(&b.Packets[n], frags)
		n++
	}
	if n > 0 && q.rx.publish() {
		q.host.Signal()
	}
	return n
}

// Reclaim stores receive buffers that have come back to dst.
func (l *Lower) Reclaim(queue int, dst []framework.Buffer) int {
	if l.failed.Load() != nil {
		return 0
	}
	n, v := l.queues[queue].rxReturn.read(dst)
	if v != nil {
		l.fault(v)
	}
	return n
}

// Take fills b, which is empty and has room for framework.MaxFragments
// fragments, with packets to send.
func (l *Lower) Take(queue int, b *framework.Batch) {
	if l.failed.Load() != nil {
		return
	}
	q := &l.queues[queue]
	n, v := q.tx.read(b)
	if v != nil {
		l.fault(v)
	}
	if q.tx.release(n) {
		q.host.Signal()
	}
}

// Complete gives back buffers of packets that were sent or dropped.
func (l *Lower) Complete(queue int, bufs []framework.Buffer) {
	q := &l.queues[queue]
	for _, b := range bufs {
		q.txReturn.put(b)
	}
	if q.txReturn.publish() {
		q.host.Signal()
	}
}

// ArmRx says that the receive task is about to sleep, for lack of buffers or
// otherwise, and tells whether there are buffers to reclaim after all.
func (l *Lower) ArmRx(queue int) bool { return l.queues[queue].rxReturn.arm() }

// ArmTx says that the transmit task is about to sleep, and tells whether there
// are packets to take after all.
func (l *Lower) ArmTx(queue int) bool { return l.queues[queue].tx.arm() }

// SetWaker sets what to call when a sleeping task of a queue has work.
func (l *Lower) SetWaker(queue int, rx, tx func()) {
	l.queues[queue].wakers.Store(&wakers{rx: rx, tx: tx})
}

// wakeTx calls a queue's waker of transmit.
func (l *Lower) wakeTx(queue int) {
	if w := l.queues[queue].wakers.Load(); w != nil {
		w.tx() // an engine that has none yet looks by itself when it starts
	}
}

// wait turns the host's signals into calls of a queue's wakers.
func (l *Lower) wait(queue int) {
	q := &l.queues[queue]
	for {
		_, err := l.events.Engine[queue].Wait(context.Background())
		if l.closing.Load() || err != nil {
			return
		}
		w := q.wakers.Load()
		if w == nil {
			continue
		}
		if !q.rxReturn.empty() {
			w.rx()
		}
		if !q.tx.empty() {
			w.tx()
		}
	}
}

func (l *Lower) fault(v *Violation) {
	v.Interface = "engine"
	if l.failed.CompareAndSwap(nil, v) && l.report != nil {
		l.report(v)
	}
}
