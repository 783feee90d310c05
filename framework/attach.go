package framework

import (
	"context"
	"fmt"

	"nicd/bus"
)

// Attach attaches driver d to dev and returns a Device that does around the driver's
// what is the same for all of them, so that no driver has to:
//
//   - dev is one of Description.IDs, Env.ID, or Attach fails with ErrNotOurs before the
//     driver sees it. It is made a bus master.
//   - After a call that is answered from registers, Device.Gone is asked. Of a device
//     that is gone such a call fails with bus.ErrGone, whatever it has read; Stop and
//     Detach succeed; Admin says so.
//   - Counters begin at zero with each Start.
//   - RSSHash is not in force with one receive queue.
//   - Errors say which driver they are of.
//
// Whoever runs a driver attaches it by this.
func Attach(ctx context.Context, d Driver, dev bus.Device, env Env) (Device, error) {
	about := d.Describe()
	a := &attached{name: about.Name}
	id, err := identify(dev.Info(), about.IDs)
	if err != nil {
		return nil, a.named(err)
	}
	if err := bus.EnableMaster(dev); err != nil {
		return nil, a.named(err)
	}
	env.ID = id
	if a.Device, err = d.Attach(ctx, dev, env); err != nil {
		return nil, a.named(err)
	}
	if err := a.answer(nil); err != nil {
		_ = a.Device.Detach()
		return nil, err
	}
	if r, ok := a.Device.(QueueResetter); ok {
		return resettable{a, r}, nil
	}
	return a, nil
}

// identify finds a device among those that a driver drives: the index of its PCI
// identity in ids.
func identify(info bus.Info, ids []DeviceID) (int, error) {
	for i, id := range ids {
		if id.Vendor == info.Vendor && id.Device == info.Device {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%w: %04x:%04x", ErrNotOurs, info.Vendor, info.Device)
}

// attached is a driver's Device as the framework has it, see Attach.
type attached struct {
	Device
	name   string
	alone  bool     // there is one receive queue
	before []uint64 // the counters at Start
}

// resettable is one whose driver is a QueueResetter.
type resettable struct {
	*attached
	QueueResetter
}

// named says which driver an error is of.
func (a *attached) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", a.name, err)
}

// answer is the error of a call that the driver has answered with err.
func (a *attached) answer(err error) error {
	if a.Gone() {
		err = bus.ErrGone
	}
	return a.named(err)
}

// settings are what of s is the driver's.
func (a *attached) settings(s Settings) Settings {
	if a.alone {
		s.Features &^= RSSHash
	}
	return s
}

func (a *attached) Start(cfg Config) (Queues, error) {
	a.alone = cfg.RxQueues == 1
	cfg.Settings = a.settings(cfg.Settings)
	queues, err := a.Device.Start(cfg)
	if err != nil {
		return Queues{}, a.answer(err)
	}
	a.before = make([]uint64, len(a.Info().Counters))
	if err := a.answer(a.Device.ReadCounters(a.before)); err != nil {
		_ = a.Device.Stop(context.Background())
		return Queues{}, err
	}
	return queues, nil
}

func (a *attached) Stop(ctx context.Context) error { return a.ended(a.Device.Stop(ctx)) }

func (a *attached) Detach() error { return a.ended(a.Device.Detach()) }

// ended is the error of a call that ends something, which what is gone has done.
func (a *attached) ended(err error) error {
	if err != nil && a.Gone() {
		return nil
	}
	return a.named(err)
}

func (a *attached) Plan(next Settings) (Effect, error) {
	effect, err := a.Device.Plan(a.settings(next))
	return effect, a.named(err)
}

func (a *attached) Apply(next Settings) error { return a.answer(a.Device.Apply(a.settings(next))) }

func (a *attached) Link() (Link, error) {
	l, err := a.Device.Link()
	if err := a.answer(err); err != nil {
		return Link{}, err
	}
	return l, nil
}

func (a *attached) SetFilters(f Filters) error { return a.answer(a.Device.SetFilters(f)) }

func (a *attached) ReadCounters(dst []uint64) error {
	if err := a.answer(a.Device.ReadCounters(dst)); err != nil {
		return err
	}
	for i := range dst {
		dst[i] -= a.before[i]
	}
	return nil
}

func (a *attached) Admin() Events {
	e := a.Device.Admin()
	if a.Gone() {
		return Events{Gone: true, Reason: "device does not answer"}
	}
	return e
}
