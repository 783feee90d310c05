package sim

import (
	"sync"
	"sync/atomic"

	"nicd/bus"
)

// interrupts is a function's interrupt pin and messages. Its lock is a leaf: it
// is held while an event is signalled and nothing else.
type interrupts struct {
	mu      sync.Mutex
	kind    bus.InterruptKind
	events  []*bus.Event
	masked  []uint32 // MSI-X: mask bits of the table, one word per 32 vectors
	pending []uint32 // message interrupts that could not be signalled
	line    atomic.Bool
	auto    bool // INTx: it fired and was not unmasked since
	noLine  bool // INTx: disabled in the command register
}

func (q *interrupts) init(vectors int) {
	words := (max(vectors, 1) + 31) / 32
	q.masked = make([]uint32, words)
	q.pending = make([]uint32, words)
}

// set makes events the ones to signal and delivers what was pending. Like a host
// that enables vectors, it unmasks them.
func (q *interrupts) set(kind bus.InterruptKind, events []*bus.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.kind = kind
	q.events = append([]*bus.Event(nil), events...)
	if len(events) == 0 {
		q.kind = bus.INTx
	}
	q.auto = false
	clear(q.masked)
	q.deliver()
}

// deliver signals all that waits and may go.
func (q *interrupts) deliver() {
	if q.kind == bus.INTx {
		q.fireLine()
		return
	}
	for v := range q.events {
		word, bit := v/32, uint32(1)<<(v%32)
		if q.pending[word]&bit != 0 && q.masked[word]&bit == 0 {
			q.pending[word] &^= bit
			q.events[v].Signal()
		}
	}
}

func (q *interrupts) enabled() (bus.InterruptKind, int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.kind, len(q.events)
}

func (q *interrupts) raise(vector int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.kind == bus.MSI && vector >= len(q.events) {
		vector = 0
	}
	word, bit := vector/32, uint32(1)<<(vector%32)
	if vector < 0 || word >= len(q.pending) {
		return
	}
	if q.kind == bus.INTx || vector >= len(q.events) || q.masked[word]&bit != 0 {
		q.pending[word] |= bit
		return
	}
	q.events[vector].Signal()
}

func (q *interrupts) setLine(asserted bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.line.Store(asserted)
	q.fireLine()
}

func (q *interrupts) fireLine() {
	if !q.line.Load() || q.kind != bus.INTx || q.auto || q.noLine || len(q.events) == 0 {
		return
	}
	q.auto = true
	q.events[0].Signal()
}

func (q *interrupts) unmaskLine() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.auto = false
	q.fireLine()
}

func (q *interrupts) disableLine(off bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.noLine = off
	q.fireLine()
}

// maskVector sets a vector's mask bit in the MSI-X table.
func (q *interrupts) maskVector(vector int, masked bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	word, bit := vector/32, uint32(1)<<(vector%32)
	if masked {
		q.masked[word] |= bit
		return
	}
	q.masked[word] &^= bit
	if q.kind == bus.MSIX {
		q.deliver()
	}
}

func (q *interrupts) pendingWord(i int) uint32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i >= len(q.pending) {
		return 0
	}
	return q.pending[i]
}

func (q *interrupts) reset() {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.pending)
	q.line.Store(false)
	q.auto = false
}
