package sim

import (
	"sync"
	"sync/atomic"
	"time"

	"nicd/bus"
)

// Host is what a model may use of the machine around it. Device makes it.
type Host struct {
	// Tx and Rx are the two directions' locks and views of memory. Every DMA is
	// made with one of them held; who unmaps memory takes both, so that no
	// access is in flight afterwards.
	Tx, Rx Access

	clock  Clock
	timer  Timer
	wakeMu sync.Mutex
	wakeAt time.Duration // of the timer, 0 if it is not set
	// bells changes with Tx, Rx and wakers held, while there is no worker. A wire can
	// call the model after Close, and finds a page of nobody's then.
	bells    atomic.Pointer[bus.Doorbells]
	wakers   sync.RWMutex // held while Wake uses bells, which Tx and Rx do not guard
	irq      interrupts
	onFault  func(Fault)
	faults   atomic.Uint64
	master   bool       // with Tx and Rx held
	mappings []*mapping // with Tx and Rx held
}

// Doorbell is the last value stored to doorbell i, by the driver or by
// SetDoorbell. It, SetDoorbell and SwapDoorbell are called from Work, or with Tx
// or Rx held.
func (h *Host) Doorbell(i int) uint32 { return h.bells.Load().Value(i).Load() }

// SetDoorbell makes value what the driver reads from doorbell i. The model is
// not woken.
func (h *Host) SetDoorbell(i int, value uint32) { h.bells.Load().Value(i).Store(value) }

// SwapDoorbell stores value to doorbell i if it holds old, and tells whether it
// did.
func (h *Host) SwapDoorbell(i int, old, value uint32) bool {
	return h.bells.Load().Value(i).CompareAndSwap(old, value)
}

// Wake makes the worker call Work once more before it sleeps. Any goroutine may
// call it, with any lock held.
func (h *Host) Wake() {
	h.wakers.RLock()
	h.bells.Load().Rouse()
	h.wakers.RUnlock()
}

// detach parts the model from the doorbell page, which can be unmapped then.
func (h *Host) detach() {
	h.attach(bus.NewDoorbells(bus.HeapMemory(bus.DoorbellPageSize), h.bells.Load().Event()))
}

// attach gives the model another doorbell page.
func (h *Host) attach(bells *bus.Doorbells) {
	h.lockMemory()
	h.wakers.Lock()
	h.bells.Store(bells)
	h.wakers.Unlock()
	h.unlockMemory()
}

// Now is the time.
func (h *Host) Now() time.Duration { return h.clock.Now() }

// WakeAt makes the worker call Work at the time at or soon after, once. Of
// several calls the earliest time holds.
func (h *Host) WakeAt(at time.Duration) {
	h.wakeMu.Lock()
	defer h.wakeMu.Unlock()
	now := h.clock.Now()
	// A time that has come holds no more, though its timer may not have run yet.
	if h.wakeAt > now && h.wakeAt <= at {
		return
	}
	h.wakeAt = at
	h.timer.Set(at)
}

func (h *Host) timerFired() {
	h.wakeMu.Lock()
	if h.wakeAt <= h.clock.Now() { // else it was set anew meanwhile
		h.wakeAt = 0
	}
	h.wakeMu.Unlock()
	h.Wake()
}

// Raise signals message interrupt vector: MSI-X, or MSI, where a vector beyond
// those that are enabled is folded into vector 0. With neither enabled, or the
// vector masked in the MSI-X table, the vector stays pending.
func (h *Host) Raise(vector int) { h.irq.raise(vector) }

// SetLine asserts or deasserts INTA#. An asserted line interrupts once, and
// again after each bus.Device.UnmaskInterrupt that finds it still asserted.
func (h *Host) SetLine(asserted bool) { h.irq.setLine(asserted) }

// Interrupts tells which kind of interrupt is enabled and how many vectors; none
// at all is 0 of bus.INTx.
func (h *Host) Interrupts() (bus.InterruptKind, int) { return h.irq.enabled() }

// Faults is how many of the model's accesses to memory were refused.
func (h *Host) Faults() uint64 { return h.faults.Load() }
