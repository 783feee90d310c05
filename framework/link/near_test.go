package link

import (
	"testing"

	"nicd/framework"
)

// oneEach is a batch of packets of one fragment in these buffers.
func oneEach(bufs ...framework.Buffer) *framework.Batch {
	b := framework.NewBatch(len(bufs), len(bufs))
	for i, buf := range bufs {
		b.Packets = append(b.Packets, framework.Packet{First: uint32(i), Frags: 1, Len: 60})
		b.Frags = append(b.Frags, framework.Fragment{Buffer: buf, Len: 60})
	}
	return b
}

// inlineEngine takes and completes all that there is whenever it is called.
type inlineEngine struct {
	l     *Lower
	in    *framework.Batch
	done  []framework.Buffer
	calls int
	taken int
	also  func()
}

func (e *inlineEngine) transmit() {
	e.calls++
	for more := true; more; more = e.l.ArmTx(0) {
		e.in.Reset()
		e.l.Take(0, e.in)
		e.taken += len(e.in.Packets)
		e.done = e.done[:0]
		for i := range e.in.Frags {
			e.done = append(e.done, e.in.Frags[i].Buffer)
		}
		e.l.Complete(0, e.done)
	}
	if e.also != nil {
		e.also()
	}
}

func newNear(t *testing.T) (*Host, *inlineEngine) {
	h := newHost(t, small, func(v *Violation) { t.Errorf("%v", v) })
	e := &inlineEngine{l: newLowerOf(t, h, h), in: framework.NewBatch(16, 64), done: make([]framework.Buffer, 0, 64)}
	if err := h.Start(&port{}); err != nil {
		t.Fatal(err)
	}
	return h, e
}

// TestNear: an engine in the same process is called by who sends, with nothing held,
// before Send returns, and only if it sleeps.
func TestNear(t *testing.T) {
	h, e := newNear(t)
	var bufs [6]framework.Buffer
	if h.Alloc(0, bufs[:]) != len(bufs) {
		t.Fatal("no buffers")
	}
	h.Send(0, oneEach(bufs[0])) // there is no waker yet: the engine looks when it starts
	e.l.SetWaker(0, func() {}, e.transmit)
	h.Send(0, oneEach(bufs[1]))
	if e.calls != 0 {
		t.Error("an engine that does not sleep was woken")
	}
	e.transmit()
	if e.calls != 1 || e.taken != 2 {
		t.Errorf("%d packets in %d calls, want 2 in 1", e.taken, e.calls)
	}
	h.Send(0, oneEach(bufs[2], bufs[3]))
	if e.calls != 2 || e.taken != 4 {
		t.Errorf("%d packets in %d calls when Send returned, want 4 in 2", e.taken, e.calls)
	}
	e.also = func() { // would wait for ever for a lock of the sender's
		e.also = nil
		h.Release(0, bufs[5:])
		h.Configure(framework.Settings{}, 1)
		h.Send(0, oneEach(bufs[4]))
	}
	var one [1]framework.Buffer
	h.Alloc(0, one[:])
	h.Send(0, oneEach(one[0]))
	if e.calls != 4 || e.taken != 6 {
		t.Errorf("%d packets in %d calls, want 6 in 4", e.taken, e.calls)
	}
	// Nobody is called any more.
	e.l.Close()
	h.Alloc(0, one[:])
	h.Send(0, oneEach(one[0]))
	if e.calls != 4 {
		t.Error("an engine that has ended was called")
	}
}

// TestNearAllocatesNothing: a send through to the engine and back.
func TestNearAllocatesNothing(t *testing.T) {
	h, e := newNear(t)
	defer e.l.Close()
	e.l.SetWaker(0, func() {}, e.transmit)
	e.transmit()
	var bufs [4]framework.Buffer
	b := oneEach(make([]framework.Buffer, len(bufs))...)
	if n := testing.AllocsPerRun(100, func() {
		if h.Alloc(0, bufs[:]) != len(bufs) {
			t.Error("no buffers")
		}
		for i := range bufs {
			b.Frags[i].Buffer = bufs[i]
		}
		if h.Send(0, b) != len(bufs) {
			t.Error("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations a send", n)
	}
	if e.taken != 101*len(bufs) {
		t.Errorf("%d packets, want %d", e.taken, 101*len(bufs))
	}
}

// TestNoWakeOfNearIsLost: as TestNoWakeIsLost, for an engine whose task is called
// instead of by an event.
func TestNoWakeOfNearIsLost(t *testing.T) {
	noWakeIsLost(t, func(h *Host) *Lower { return newLowerOf(t, h, h) })
}
