package vmxnet3_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"nicd/bus"
	"nicd/drivers/internal/rig"
	"nicd/drivers/vmxnet3"
	"nicd/framework"
	"nicd/sim"
	model "nicd/sim/vmxnet3"
)

// These tests run the driver on the device model. What needs a hand on every
// completion is in queue_test.go.

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

func start(t testing.TB, o options) *setup {
	t.Helper()
	s := &setup{model: model.New(o.model), wire: sim.NewWire(o.wire)}
	dev, err := sim.NewDevice(s.model, sim.Options{Name: "vmx", HeapDoorbells: true,
		OnFault: func(f sim.Fault) { t.Errorf("device: %v", f) }})
	if err != nil {
		t.Fatal(err)
	}
	s.peer = sim.NewTester(s.wire, o.wants)
	s.wire.Connect(s.model)
	t.Cleanup(s.wire.Close)
	s.Rig = rig.New(t, vmxnet3.New(), dev, o.rig)
	return s
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

// without turns features off.
func without(f framework.Features) func(*framework.Config) {
	return func(c *framework.Config) { c.Features &^= f }
}

func TestRevisions(t *testing.T) {
	for revision := 1; revision <= 4; revision++ {
		s := start(t, options{model: model.Options{Revision: revision}})
		if s.Info.Revision != revision || s.Info.CoalescedSizeKnown != (revision > 1) {
			t.Errorf("revision %d: %+v", revision, s.Info)
		}
		s.roundTrip(t)
	}
	s := start(t, options{model: model.Options{Variations: model.Variations{RevisionBitmap: 0x1F3}}})
	if s.Info.Revision != 2 {
		t.Errorf("revision %d of bitmap 0x1F3", s.Info.Revision)
	}
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

var _ = errors.Is
var _ = fmt.Sprint
var _ = binary.BigEndian
var _ bus.InterruptKind
