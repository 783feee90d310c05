package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"nicd/bus"
	"nicd/framework"
	"nicd/sim"
)

// Tester is the far end of a device's link. Send waits while the device has no room.
type Tester interface {
	Send(ctx context.Context, frames ...sim.Frame) error
	Next(ctx context.Context) (sim.Received, error)
	TryNext() (sim.Received, bool)
}

// Station is a device in its power-on state with a far end, and what can be done
// to both. Functions are nil where that can't be done.
type Station struct {
	Bus  bus.Device
	Peer Tester

	SetLink   func(up bool)
	SetFaults func(sim.Faults) // of the wire
	Unplug    func()
	Hang      func(queue int)  // transmit queue: until it is set up anew
	SetMode   func(other bool) // of Info.Mode
	// Trouble is what the device did that no device may do (access to memory that
	// is not mapped), nil if nothing.
	Trouble func() error
	// Own and Restart are Options.Own and BeforeStart, for a wire that is not the
	// test's alone, or that keeps what was sent to a stopped device.
	Own     func(frame []byte) bool
	Restart func()
	// MaxFrame is the longest frame that Peer sends and sees, in bytes without
	// frame check sequence and tag; 0 is any.
	MaxFrame int
	// NoLink, if set, ends a test whose link has not come up for some seconds, where
	// that may be for want of a cable.
	NoLink func()
	Close  func() // after Bus.Close
}

// SimOptions are a station's settings. The zero value works.
type SimOptions struct {
	Wire  sim.WireOptions
	Wants sim.Wants // of the tester
	Limit int       // of the tester
	// MemoryDoorbells keeps doorbells out of the Go heap, where another process
	// sees them and the race detector does not.
	MemoryDoorbells bool
}

// NewStation puts a model and a tester on a wire.
func NewStation(model sim.Model, opt SimOptions) (*Station, error) {
	var mu sync.Mutex
	var faults []error
	dev, err := sim.NewDevice(model, sim.Options{
		Name: "test", HeapDoorbells: !opt.MemoryDoorbells,
		OnFault: func(f sim.Fault) {
			mu.Lock()
			defer mu.Unlock()
			if len(faults) < 4 {
				faults = append(faults, fmt.Errorf("device: %v", f))
			}
		},
	})
	if err != nil {
		return nil, err
	}
	wire := sim.NewWire(opt.Wire)
	peer := sim.NewTester(wire, opt.Wants)
	peer.Limit = opt.Limit
	wire.Connect(model)
	s := &Station{
		Bus: dev, Peer: peer, SetLink: wire.SetLink, SetFaults: wire.SetFaults, Unplug: dev.Unplug, Close: wire.Close,
		Trouble: func() error {
			mu.Lock()
			defer mu.Unlock()
			return errors.Join(faults...)
		},
	}
	if h, ok := model.(interface{ Hang(queue int) }); ok {
		s.Hang = h.Hang
	}
	if m, ok := model.(interface{ SetPassthrough(bool) }); ok {
		s.SetMode = m.SetPassthrough
	}
	return s, nil
}

// Net is a rig whose device has a far end.
type Net struct {
	*Rig
	*Station
	Bus bus.Device
}

// NetOptions are what a Net is made of. The zero value works.
type NetOptions struct {
	Options
	SimOptions
}

// NewNet connects model to a new wire and runs driver on it, with the link up.
func NewNet(t T, driver framework.Driver, model sim.Model, opt NetOptions) *Net {
	t.Helper()
	s, err := NewStation(model, opt.SimOptions)
	if err != nil {
		t.Fatal(err)
	}
	return On(t, driver, s, opt.Options)
}

// On runs driver on a station, which it takes over, with the link up.
func On(t T, driver framework.Driver, s *Station, opt Options) *Net {
	t.Helper()
	t.Cleanup(func() {
		if s.Close != nil {
			s.Close()
		}
		if s.Trouble == nil {
			return
		}
		if err := s.Trouble(); err != nil {
			t.Errorf("%v", err)
		}
	})
	opt.Own, opt.BeforeStart = s.Own, s.Restart
	n := &Net{Rig: New(t, driver, s.Bus, opt), Station: s, Bus: s.Bus}
	if !opt.Stopped && !opt.Detached {
		n.WaitLink(true)
	}
	return n
}

// loneLink is how long a link may take that may have nobody behind it: to negotiate
// takes a 1000BASE-T part up to some seconds.
const loneLink = 5 * time.Second

// WaitLink waits until the link is as it should be.
func (n *Net) WaitLink(up bool) {
	n.T.Helper()
	begin := time.Now()
	n.Until("link", func() bool {
		l, err := n.Device.Link()
		if err != nil {
			n.T.Fatal(err)
		}
		if up && !l.Up && n.NoLink != nil && time.Since(begin) > loneLink {
			n.NoLink()
		}
		return l.Up == up
	})
}

// Inject sends frames from the other end.
func (n *Net) Inject(frames ...[]byte) {
	n.T.Helper()
	for _, f := range frames {
		n.InjectFrame(sim.FrameOf(f))
	}
}

// InjectFrame sends a frame from the other end.
func (n *Net) InjectFrame(f sim.Frame) {
	n.T.Helper()
	if err := n.Peer.Send(n.Context, f); err != nil {
		n.T.Fatal(err)
	}
}

// TSOFrame is f as one frame to be cut into segments of mss bytes.
func TSOFrame(f Frame, mss int) sim.Frame {
	f.NoLength = true
	s := sim.FrameOf(f.Build())
	s.Flags = sim.Segment | sim.Partial
	s.SegmentSize, s.HeaderLen = mss, f.HeaderLen()
	s.ChecksumStart, s.ChecksumOffset = f.L4(), f.SumOffset()
	return s
}

// Arrives waits for a frame at the other end.
func (n *Net) Arrives() sim.Received {
	n.T.Helper()
	f, err := n.Peer.Next(n.Context)
	if err != nil {
		n.T.Fatalf("nothing arrives: %v", err)
	}
	return f
}

// Apply changes the settings in force and wants the effect to be want.
func (n *Net) Apply(want framework.Effect, change func(*framework.Settings)) {
	n.T.Helper()
	if effect := n.Change(change); effect != want {
		n.T.Errorf("effect is %v, want %v", effect, want)
	}
}

// Change changes the settings in force, in the way that the driver wants, and
// returns which that was.
func (n *Net) Change(change func(*framework.Settings)) framework.Effect {
	n.T.Helper()
	next := n.Config.Settings
	change(&next)
	effect, err := n.Device.Plan(next)
	n.must(err)
	n.Config.Settings = next
	if effect == framework.Reset {
		n.Stop()
		n.Start()
		n.WaitLink(true)
		return effect
	}
	n.must(n.Device.Apply(next))
	return effect
}

// SetFilters sets the receive filters, also those of starts to come.
func (n *Net) SetFilters(f framework.Filters) {
	n.T.Helper()
	n.must(n.Device.SetFilters(f))
	n.Config.Filters = f
}

// Admin runs the admin step once.
func (n *Net) Admin() framework.Events { return n.Device.Admin() }

// WaitCause waits for an interrupt of vector v that is about the right thing.
func (n *Net) WaitCause(v int, right func(framework.Cause) bool) framework.Cause {
	n.T.Helper()
	for {
		if c := n.WaitInterrupt(v); right(c) {
			return c
		}
		n.Device.Unmask(v)
	}
}

// RoundTrip sends a frame each way.
func (n *Net) RoundTrip() {
	n.T.Helper()
	in := Frame{Payload: 100}.Build()
	n.Inject(in)
	got := n.Receive(1)[0]
	if !bytes.Equal(got.Bytes, in) || got.Error != framework.NoDrop {
		n.T.Errorf("received %x, error %v", got.Bytes, got.Error)
	}
	out := Frame{To: Peer, From: MAC, Payload: 333}.Build()
	n.Send(0, out, 100, framework.Packet{})
	if f := n.Arrives(); !bytes.Equal(f.Bytes, out) {
		n.T.Errorf("sent %x", f.Bytes)
	}
}

// Serve handles interrupts of all vectors until the function that it returns is
// called.
func (n *Net) Serve() (stop func()) {
	ctx, cancel := context.WithCancel(n.Context)
	var all sync.WaitGroup
	for v := range n.Config.Interrupts.Vectors {
		all.Go(func() {
			for {
				n.Device.Interrupt(v)
				if n.Config.Interrupts.Kind == bus.INTx {
					_ = n.Bus.UnmaskInterrupt(v)
				}
				n.Device.Mask(v)
				n.Device.Unmask(v)
				if _, err := n.Events[v].Wait(ctx); err != nil {
					return
				}
			}
		})
	}
	stop = func() {
		cancel()
		all.Wait()
	}
	n.T.Cleanup(stop) // of a test that ends early
	return stop
}
