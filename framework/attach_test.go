package framework

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"nicd/bus"
)

// slot is where a device would be. It has an identity and a command register.
type slot struct {
	bus.Device
	info    bus.Info
	command uint32
	fails   error
}

func (s *slot) Info() bus.Info { return s.info }

func (s *slot) ReadConfig(int, int) (uint32, error) { return s.command, s.fails }

func (s *slot) WriteConfig(_, _ int, v uint32) error {
	s.command = v
	return s.fails
}

// nic is a driver and its device, which does as it is told and is gone after so many
// more calls.
type nic struct {
	Device
	left     int
	fails    error
	env      Env
	calls    []string
	features Features
	counted  uint64
}

func (n *nic) call(name string) error {
	n.calls = append(n.calls, name)
	n.left--
	return n.fails
}

func (n *nic) Describe() Description {
	return Description{Name: "acme", IDs: []DeviceID{{Vendor: 1, Device: 2}, {Vendor: 1, Device: 3}, {Vendor: 4, Device: 3}}}
}

func (n *nic) Attach(_ context.Context, _ bus.Device, env Env) (Device, error) {
	n.env = env
	return n, n.call("attach")
}

func (n *nic) Gone() bool { return n.left <= 0 }
func (n *nic) Info() Info { return Info{Counters: make([]CounterInfo, 1)} }

func (n *nic) Start(c Config) (Queues, error) {
	n.features = c.Features
	return Queues{Rx: make([]RxQueue, 1)}, n.call("start")
}

func (n *nic) Stop(context.Context) error { return n.call("stop") }
func (n *nic) Detach() error              { return n.call("detach") }
func (n *nic) SetFilters(Filters) error   { return n.call("filters") }
func (n *nic) Admin() Events              { _ = n.call("admin"); return Events{LinkChanged: true} }

func (n *nic) Plan(s Settings) (Effect, error) {
	n.features = s.Features
	return Quiesce, n.fails
}

func (n *nic) Apply(s Settings) error {
	n.features = s.Features
	return n.call("apply")
}

func (n *nic) Link() (Link, error) { return Link{Up: true}, n.call("link") }

func (n *nic) ReadCounters(dst []uint64) error {
	n.counted += 5
	dst[0] = n.counted
	return n.call("counters")
}

// resetter is a nic that can reset queues.
type resetter struct{ *nic }

func (r resetter) Attach(ctx context.Context, dev bus.Device, env Env) (Device, error) {
	_, err := r.nic.Attach(ctx, dev, env)
	return r, err
}

func (r resetter) ResetQueue(int) (RxQueue, TxQueue, error) { return nil, nil, r.call("reset") }

func attach(t *testing.T, n *nic) Device {
	t.Helper()
	d, err := Attach(t.Context(), n, &slot{info: bus.Info{Vendor: 1, Device: 2}}, Env{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestAttachIdentifies(t *testing.T) {
	for i, id := range (&nic{}).Describe().IDs {
		n, s := &nic{left: 9}, &slot{info: bus.Info{Vendor: id.Vendor, Device: id.Device}}
		if _, err := Attach(t.Context(), n, s, Env{Name: "if0"}); err != nil || n.env.ID != i || n.env.Name != "if0" || s.command == 0 {
			t.Errorf("%+v: %v, env %+v, command %#x", id, err, n.env, s.command)
		}
	}
	n, s := &nic{left: 9}, &slot{info: bus.Info{Vendor: 4, Device: 2}}
	_, err := Attach(t.Context(), n, s, Env{})
	if want := "acme: " + ErrNotOurs.Error() + ": 0004:0002"; !errors.Is(err, ErrNotOurs) || err.Error() != want {
		t.Errorf("a foreign device: %v", err)
	}
	if n.calls != nil || s.command != 0 {
		t.Errorf("of a foreign device: calls %v, command %#x", n.calls, s.command)
	}
	s = &slot{info: bus.Info{Vendor: 1, Device: 2}, fails: bus.ErrUnsupported}
	if _, err := Attach(t.Context(), n, s, Env{}); !errors.Is(err, bus.ErrUnsupported) || n.calls != nil {
		t.Errorf("without a bus master: %v, calls %v", err, n.calls)
	}
}

// TestAttachedGone: whatever a call says of a device that is not there any more, it
// fails with ErrGone, or succeeds if it is an end.
func TestAttachedGone(t *testing.T) {
	ctx, cfg := t.Context(), Config{RxQueues: 2}
	counters := make([]uint64, 1)
	for name, c := range map[string]struct {
		call func(Device) error
		want error
	}{
		"start":    {func(d Device) error { _, err := d.Start(cfg); return err }, bus.ErrGone},
		"apply":    {func(d Device) error { return d.Apply(Settings{}) }, bus.ErrGone},
		"filters":  {func(d Device) error { return d.SetFilters(Filters{}) }, bus.ErrGone},
		"link":     {func(d Device) error { _, err := d.Link(); return err }, bus.ErrGone},
		"counters": {func(d Device) error { return d.ReadCounters(counters) }, bus.ErrGone},
		"stop":     {func(d Device) error { return d.Stop(ctx) }, nil},
		"detach":   {func(d Device) error { return d.Detach() }, nil},
	} {
		for _, fails := range []error{nil, ErrDevice} {
			n := &nic{left: 9}
			d := attach(t, n)
			if _, err := d.Start(cfg); err != nil {
				t.Fatal(err)
			}
			n.left, n.fails = 1, fails
			if err := c.call(d); !errors.Is(err, c.want) || c.want != nil && err.Error() != "acme: "+c.want.Error() {
				t.Errorf("%s, of which the driver says %v: %v", name, fails, err)
			}
			n.left = 9
			if err := c.call(d); !errors.Is(err, fails) || fails != nil && err.Error() != "acme: "+fails.Error() {
				t.Errorf("%s of a device that is there: %v, not %v", name, err, fails)
			}
		}
	}
	n := &nic{left: 9}
	d := attach(t, n)
	if e := d.Admin(); e != (Events{LinkChanged: true}) {
		t.Errorf("Admin: %+v", e)
	}
	n.left = 1
	if e := d.Admin(); !e.Gone || e.LinkChanged || e.Reason == "" {
		t.Errorf("Admin of a device that is gone: %+v", e)
	}
}

// TestAttachedLeavesNothing: a device that goes away while it is attached or started
// has been detached, or stopped, when that is said.
func TestAttachedLeavesNothing(t *testing.T) {
	n := &nic{left: 1}
	_, err := Attach(t.Context(), n, &slot{info: bus.Info{Vendor: 1, Device: 2}}, Env{})
	if !errors.Is(err, bus.ErrGone) || !slices.Equal(n.calls, []string{"attach", "detach"}) {
		t.Errorf("Attach: %v, calls %v", err, n.calls)
	}
	n = &nic{left: 9}
	d := attach(t, n)
	n.left, n.calls = 2, nil
	q, err := d.Start(Config{RxQueues: 2})
	if !errors.Is(err, bus.ErrGone) || q.Rx != nil || !slices.Equal(n.calls, []string{"start", "counters", "stop"}) {
		t.Errorf("Start: %v, queues %+v, calls %v", err, q, n.calls)
	}
}

func TestAttachedCounters(t *testing.T) {
	n := &nic{left: 99}
	d := attach(t, n)
	for start := range 3 {
		if _, err := d.Start(Config{RxQueues: 1}); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			var got [1]uint64
			if err := d.ReadCounters(got[:]); err != nil || got[0] != uint64(5*(i+1)) {
				t.Errorf("start %d, reading %d: %d, %v", start, i, got[0], err)
			}
		}
	}
}

func TestAttachedRSS(t *testing.T) {
	for queues, want := range map[int]Features{1: RxChecksum, 2: RxChecksum | RSSHash} {
		n := &nic{left: 99}
		d, s := attach(t, n), Settings{Features: RxChecksum | RSSHash}
		for name, call := range map[string]func() error{
			"start": func() error { _, err := d.Start(Config{Settings: s, RxQueues: queues}); return err },
			"plan": func() error {
				e, err := d.Plan(s)
				if e != Quiesce {
					return fmt.Errorf("effect %v", e)
				}
				return err
			},
			"apply": func() error { return d.Apply(s) },
		} {
			if name != "start" {
				if _, err := d.Start(Config{Settings: s, RxQueues: queues}); err != nil {
					t.Fatal(err)
				}
			}
			n.features = 0
			if err := call(); err != nil || n.features != want {
				t.Errorf("%s with %d queues: %v, %v", name, queues, n.features, err)
			}
		}
	}
}

func TestAttachedResetsQueues(t *testing.T) {
	if _, ok := attach(t, &nic{left: 9}).(QueueResetter); ok {
		t.Error("a device that can't reset queues is a QueueResetter")
	}
	n := &nic{left: 9}
	d, err := Attach(t.Context(), resetter{n}, &slot{info: bus.Info{Vendor: 1, Device: 2}}, Env{})
	if err != nil {
		t.Fatal(err)
	}
	r, ok := d.(QueueResetter)
	if !ok {
		t.Fatal("a device that can reset queues is no QueueResetter")
	}
	if _, _, err := r.ResetQueue(0); err != nil || n.calls[len(n.calls)-1] != "reset" {
		t.Errorf("%v, calls %v", err, n.calls)
	}
	if _, err := d.Link(); err != nil {
		t.Error(err)
	}
	n.left = 1
	if _, err := d.Link(); !errors.Is(err, bus.ErrGone) {
		t.Errorf("link of a device that is gone: %v", err)
	}
}
