package drivertest_test

import (
	"sync/atomic"
	"testing"

	"nicd/bus"
	"nicd/drivers/e1000"
	"nicd/framework/drivertest"
	"nicd/framework/drivertest/rig"
	"nicd/framework/drivertest/simbench"
)

// counted is a device that is open until it is closed.
type counted struct {
	bus.Device
	open *atomic.Int32
}

func (d counted) Close() error {
	d.open.Add(-1)
	return d.Device.Close()
}

// count counts a bench's devices: those that are open, and how many were at a time.
func count(b *drivertest.Bench) (open, most *atomic.Int32) {
	open, most = &atomic.Int32{}, &atomic.Int32{}
	station := b.Open
	b.Open = func(s drivertest.Setup) (*rig.Station, error) {
		st, err := station(s)
		if err == nil {
			most.Store(max(most.Load(), open.Add(1)))
			st.Bus = counted{st.Bus, open}
		}
		return st, err
	}
	return open, most
}

// TestFewDevicesAtATime: no check keeps open what it is done with. A device may be a
// process, and a driver may read any number of registers.
func TestFewDevicesAtATime(t *testing.T) {
	b, err := simbench.New(e1000.New(), "82574L", simbench.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b.Quick = true
	open, most := count(&b)
	if r := drivertest.Check(t.Context(), b); !r.Ok() {
		t.Errorf("%d failed", r.Failed)
	}
	const few = 6
	if open.Load() != 0 || most.Load() > few {
		t.Errorf("%d devices were open at a time, %d still are", most.Load(), open.Load())
	}
}

// TestDeviceOfABadDriverIsClosed, whatever a driver does when it is stopped.
func TestDeviceOfABadDriverIsClosed(t *testing.T) {
	b, err := simbench.New(&broken{Driver: e1000.New(), device: func(d *brokenDevice) {
		d.stop = func() bool { panic("stop") }
	}}, "82574L", simbench.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b.Quick = true
	b.Select = func(name string) bool { return name == "receive.burst" }
	open, most := count(&b)
	r := drivertest.Check(t.Context(), b)
	if r.Failed == 0 || most.Load() == 0 || open.Load() != 0 {
		t.Errorf("%d failed; %d devices were open at a time, %d still are", r.Failed, most.Load(), open.Load())
	}
}
