package e1000_test

import (
	"bytes"
	"testing"

	"nicd/bus"
	"nicd/drivers/e1000"
	"nicd/drivers/internal/rig"
	"nicd/framework"
	"nicd/sim"
	model "nicd/sim/e1000"
)

// These tests run the driver on the device models. What needs a hand on every
// descriptor is in queue_test.go.

// setup is a driver on a model, with a tester at the other end of the wire.
type setup struct {
	*rig.Rig
	model *model.Model
	wire  *sim.Wire
	peer  *sim.Tester
}

type options struct {
	model model.Options
	rig   rig.Options
	wants sim.Wants // of the tester
	wire  sim.WireOptions
}

// chips are the models, by name.
var chips = map[string]model.Kind{"82540EM": model.I82540EM, "82574L": model.I82574L}

func start(t testing.TB, o options) *setup {
	t.Helper()
	s := &setup{model: model.New(o.model), wire: sim.NewWire(o.wire)}
	dev, err := sim.NewDevice(s.model, sim.Options{Name: "em", HeapDoorbells: true,
		OnFault: func(f sim.Fault) { t.Errorf("device: %v", f) }})
	if err != nil {
		t.Fatal(err)
	}
	s.peer = sim.NewTester(s.wire, o.wants)
	s.wire.Connect(s.model)
	t.Cleanup(s.wire.Close)
	s.Rig = rig.New(t, e1000.New(), dev, o.rig)
	if !o.rig.Stopped {
		s.waitLink()
	}
	return s
}

// waitLink waits for the PHY to negotiate.
func (s *setup) waitLink() {
	s.T.Helper()
	s.Until("link", func() bool {
		l, err := s.Device.Link()
		return err == nil && l.Up
	})
}

// send sends frames from the other end.
func (s *setup) send(frames ...[]byte) {
	s.T.Helper()
	for _, f := range frames {
		if err := s.peer.Send(s.Context, sim.FrameOf(f)); err != nil {
			s.T.Fatal(err)
		}
	}
}

// arrives waits for a frame at the other end.
func (s *setup) arrives() sim.Received {
	s.T.Helper()
	f, err := s.peer.Next(s.Context)
	if err != nil {
		s.T.Fatalf("nothing sent: %v", err)
	}
	return f
}

// roundTrip sends a frame each way.
func (s *setup) roundTrip(t *testing.T) {
	t.Helper()
	in := rig.Frame{Payload: 100}.Build()
	s.send(in)
	got := s.Receive(1)[0]
	if !bytes.Equal(got.Bytes, in) || got.Error != framework.NoDrop {
		t.Errorf("received %x, error %v", got.Bytes, got.Error)
	}
	out := rig.Frame{To: rig.Peer, From: rig.MAC, Payload: 333}.Build()
	s.Send(0, out, 100, framework.Packet{})
	if f := s.arrives(); !bytes.Equal(f.Bytes, out) {
		t.Errorf("sent %x", f.Bytes)
	}
}

func TestChips(t *testing.T) {
	for name, kind := range chips {
		t.Run(name, func(t *testing.T) {
			s := start(t, options{model: model.Options{Kind: kind, MAC: [6]byte{2, 3, 4, 5, 6, 7}}})
			if s.Info.Model != name || s.Info.MAC != (framework.MAC{2, 3, 4, 5, 6, 7}) {
				t.Errorf("info %+v", s.Info)
			}
			s.roundTrip(t)
		})
	}
}

var _ bus.InterruptKind
