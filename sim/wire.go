package sim

import (
	"sync"
	"sync/atomic"
)

// End is what a wire connects: a model or a Tester.
type End interface {
	// Plug gives the end its port. It is called once, by Wire.Connect.
	Plug(p *Port)
	// Wants says in which form the end takes frames. It may change at any time.
	Wants() Wants
	// Receive takes frames, in order, and returns how many it took: all of them
	// unless pause is set, in which case it stops at the first that it has no
	// buffer for and calls Port.Room when it has one again. Without pause such
	// a frame is dropped and counted by the end. Frames that the end does not
	// want (address, VLAN, errors) are taken and forgotten. It is called by one
	// goroutine at a time for each peer.
	Receive(frames []Frame, pause bool) int
	// Resume says that Send may take frames again. It must not block.
	Resume()
	// SetLink says that the link came up or went down. A new port's link is down
	// until the first call.
	SetLink(up bool)
}

// Wants says which frames an end takes as the sender made them. What it does not
// want reaches it cut and filled in.
type Wants struct {
	Segment bool // TSO frames, whole
	Partial bool // frames with the checksum not filled in
}

// WireOptions are a wire's settings. The zero value works.
type WireOptions struct {
	// NoFlowControl lets a receiver without buffers drop frames. Otherwise it
	// pauses the sender, as IEEE 802.3 annex 31B does, and nothing is lost for
	// want of buffers. Only two ends can pause each other: with more, frames are
	// always dropped.
	NoFlowControl bool
	// Faults is what goes wrong on the wire; it can be changed with SetFaults.
	Faults Faults
	// Clock times the faults; nil is SystemClock.
	Clock Clock
}

// Wire carries the frames that each of its ends sends to all its other ends,
// with no delay and in order, unless it is told to do worse. Link is up at first.
type Wire struct {
	opt   WireOptions
	mu    sync.Mutex // of ports and link changes
	ports atomic.Pointer[[]*Port]
	down  atomic.Bool
}

// NewWire makes a wire with no ends.
func NewWire(opt WireOptions) *Wire {
	if opt.Clock == nil {
		opt.Clock = SystemClock()
	}
	w := &Wire{opt: opt}
	w.ports.Store(&[]*Port{})
	return w
}

// Connect makes e an end of the wire.
func (w *Wire) Connect(e End) *Port {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := newPort(w, e)
	ports := append(append([]*Port(nil), *w.ports.Load()...), p)
	e.Plug(p)
	w.ports.Store(&ports)
	if !w.opt.Faults.none() {
		p.impair(w.opt.Faults)
	}
	e.SetLink(!w.down.Load())
	return p
}

// Disconnect takes a port's end off the wire: its link goes down, what it sends
// is lost, and nothing more is sent to it once its peers' calls of Send that are
// under way have returned.
func (w *Wire) Disconnect(p *Port) {
	w.mu.Lock()
	var ports []*Port
	for _, q := range *w.ports.Load() {
		if q != p {
			ports = append(ports, q)
		}
	}
	w.ports.Store(&ports)
	p.off.Store(true)
	w.mu.Unlock()
	p.close()
	p.end.SetLink(false)
	p.resume()
	for _, q := range ports {
		q.resume() // if it waited for p
	}
}

// SetLink takes the link down, or up again, at all ends. What is sent while it
// is down is lost.
func (w *Wire) SetLink(up bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down.Store(!up)
	for _, p := range *w.ports.Load() {
		p.end.SetLink(up)
		p.resume()
	}
}

// SetFaults changes what goes wrong from the next frame on.
func (w *Wire) SetFaults(f Faults) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.opt.Faults = f
	for _, p := range *w.ports.Load() {
		p.impair(f)
	}
}

// Close takes the link down and ends the wire's goroutines. Frames on their way
// are lost.
func (w *Wire) Close() {
	w.SetLink(false)
	for _, p := range *w.ports.Load() {
		p.close()
	}
}
