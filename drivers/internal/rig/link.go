package rig

import (
	"testing"

	"nicd/framework"
	"nicd/sim"
)

// Net is a rig with its device on a wire and a tester at the wire's other end.
type Net struct {
	*Rig
	Wire *sim.Wire
	Peer *sim.Tester
	// NoReceiveV6: the device says nothing of checksums over IPv6.
	NoReceiveV6 bool
}

// NetOptions are what a Net is made of. The zero value works.
type NetOptions struct {
	Options
	Wire  sim.WireOptions
	Wants sim.Wants // of the tester
	Limit int       // of the tester
}

// NewNet connects model to a new wire and runs driver on it, with the link up.
func NewNet(t testing.TB, driver framework.Driver, model sim.Model, opt NetOptions) *Net {
	t.Helper()
	n := &Net{Wire: sim.NewWire(opt.Wire)}
	dev, err := sim.NewDevice(model, sim.Options{Name: "test", HeapDoorbells: true,
		OnFault: func(f sim.Fault) { t.Errorf("device: %v", f) }})
	if err != nil {
		t.Fatal(err)
	}
	n.Peer = sim.NewTester(n.Wire, opt.Wants)
	n.Peer.Limit = opt.Limit
	n.Wire.Connect(model)
	t.Cleanup(n.Wire.Close)
	n.Rig = New(t, driver, dev, opt.Options)
	if !opt.Stopped {
		n.WaitLink(true)
	}
	return n
}

// WaitLink waits until the link is as it should be.
func (n *Net) WaitLink(up bool) {
	n.T.Helper()
	n.Until("link", func() bool {
		l, err := n.Device.Link()
		if err != nil {
			n.T.Fatal(err)
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
	next := n.Config.Settings
	change(&next)
	effect, err := n.Device.Plan(next)
	n.must(err)
	if effect != want {
		n.T.Errorf("effect is %v, want %v", effect, want)
	}
	n.Config.Settings = next
	if effect == framework.Reset {
		n.Stop()
		n.Start()
		n.WaitLink(true)
		return
	}
	n.must(n.Device.Apply(next))
}
