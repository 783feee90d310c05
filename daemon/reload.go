package daemon

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"nicd/config"
	"nicd/framework"
	"nicd/proto/adminpb"
)

// ErrNoReload: the daemon was not told where its config comes from.
var ErrNoReload = errors.New("this nicd has no config to read again")

// Reload reads the config again and makes interfaces run as it says: all of it
// or, with an error, nothing. What only a start of nicd can change is such an
// error, and it names all of that. With dry it only says what would be changed
// and what that takes.
//
// The config's word is law: what was set since it was read ends, unless the
// config says the same by now.
func (d *Daemon) Reload(ctx context.Context, dry bool) (*adminpb.ReloadReply, error) {
	if d.options.Reload == nil {
		return nil, ErrNoReload
	}
	d.reloading.Lock()
	defer d.reloading.Unlock()
	next, err := d.options.Reload()
	if err != nil {
		return nil, err
	}
	if fixed := fixedDifferences(d.config, next); len(fixed) > 0 {
		return nil, fmt.Errorf("nothing was changed: a start of nicd is needed for %s", strings.Join(fixed, "; "))
	}
	for _, i := range d.interfaces { // in this order, always; Set has one at a time
		i.changing.Lock()
		defer i.changing.Unlock()
	}
	ctx, cancel := context.WithTimeout(ctx, changePatience)
	defer cancel()
	changes, err := d.prepareReload(ctx, next)
	if err != nil {
		return nil, fmt.Errorf("nothing was changed: %w", err)
	}
	if !dry {
		if err := commitAll(ctx, changes); err != nil {
			return nil, err
		}
		d.config = next
	}
	r := &adminpb.ReloadReply{Applied: !dry}
	for _, c := range changes {
		if len(c.entries) > 0 {
			r.Interfaces = append(r.Interfaces, c.reply(!dry))
		}
	}
	return r, nil
}

// prepareReload thinks the changes of all interfaces through. One that does not run, and
// of which the config says nothing new, keeps no other from following.
func (d *Daemon) prepareReload(ctx context.Context, next *config.Config) ([]*change, error) {
	var changes []*change
	for _, i := range d.interfaces {
		if !i.is(running) && reflect.DeepEqual(changeableOf(d.config, i.config.Name), changeableOf(next, i.config.Name)) {
			continue
		}
		c, _ := next.Interface(i.config.Name)
		driver, _ := next.Driver(c.Driver)
		change, err := i.prepare(ctx, wish{c, driver.Quirks})
		if err != nil {
			return nil, err
		}
		changes = append(changes, change)
	}
	return changes, nil
}

// changeableOf is what a config wants of an interface that can be changed, without
// where that is written.
func changeableOf(c *config.Config, name string) wish {
	i, _ := c.Interface(name)
	driver, _ := c.Driver(i.Driver)
	w := wish{i, slices.Clone(driver.Quirks)}
	w.config.Origin, w.config.Device, w.config.Port = config.Origin{}, config.Device{}, config.Port{}
	w.config.Features, w.config.Quirks = slices.Clone(i.Features), slices.Clone(i.Quirks)
	for n := range w.config.Features {
		w.config.Features[n].Origin = ""
	}
	for _, quirks := range [][]framework.QuirkSetting{w.config.Quirks, w.quirks} {
		for n := range quirks {
			quirks[n].Origin = ""
		}
	}
	return w
}

// commitAll makes all changes or, if one fails, undoes those before it.
func commitAll(ctx context.Context, changes []*change) error {
	for n, c := range changes {
		err := c.commit(ctx)
		if err == nil {
			continue
		}
		for _, done := range changes[:n] {
			if undo := done.undo(ctx); undo != nil {
				err = fmt.Errorf("%w; and what was changed before could not be undone: %w", err, undo)
			}
		}
		return err
	}
	return nil
}

// fixedDifferences names what is different between two configs and can't be
// changed while nicd runs.
func fixedDifferences(was, is *config.Config) (list []string) {
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if was.Daemon != is.Daemon {
		add("the daemon block")
	}
	named(was.Wires, is.Wires, func(w config.Wire) (string, any) { w.Origin = config.Origin{}; return "wire " + w.Name, w }, add)
	named(was.Buses, is.Buses, fixedOfBus, add)
	named(was.Drivers, is.Drivers, func(d config.Driver) (string, any) {
		d.Origin, d.Quirks = config.Origin{}, nil
		return "driver " + d.Name + " (path, sha256, mode)", d
	}, add)
	named(was.Interfaces, is.Interfaces, fixedOfInterface, add)
	named(was.Streams, is.Streams, func(s config.Stream) (string, any) { s.Origin = config.Origin{}; return "stream " + s.Name, s }, add)
	return list
}

// fixedOfInterface is what can't be changed of an interface: what it is made of.
func fixedOfInterface(i config.Interface) (string, any) {
	i.Device.Origin, i.Port.Origin = config.Origin{}, config.Origin{}
	return "interface " + i.Name + " (driver, device, port, buffers)", config.Interface{
		Name: i.Name, Driver: i.Driver, Device: i.Device, Port: i.Port, BufferSize: i.BufferSize, Buffers: i.Buffers,
	}
}

// fixedOfBus is all of a bus: QEMU is told when it starts.
func fixedOfBus(b config.QEMUBus) (string, any) {
	b.Origin, b.Devices = config.Origin{}, slices.Clone(b.Devices)
	for i := range b.Devices {
		b.Devices[i].Origin = config.Origin{}
	}
	return "bus " + b.Name, b
}

// named compares two lists of blocks by name, and then by what describe leaves of
// them.
func named[T any](was, is []T, describe func(T) (string, any), add func(string, ...any)) {
	old := map[string]any{}
	for _, b := range was {
		name, what := describe(b)
		old[name] = what
	}
	for _, b := range is {
		name, what := describe(b)
		switch before, ok := old[name]; {
		case !ok:
			add("%s: it is new", name)
		case !reflect.DeepEqual(before, what):
			add("%s: it is different", name)
		}
		delete(old, name)
	}
	for _, b := range was { // in order
		if name, _ := describe(b); old[name] != nil {
			add("%s: it is gone", name)
		}
	}
}
