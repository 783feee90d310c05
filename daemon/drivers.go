package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/rs/zerolog"

	"nicd/bus"
	"nicd/config"
	"nicd/framework"
	"nicd/framework/plugin"
)

// pluginPrefix is what the names of plugin files in the plugin directory begin
// with: nicd-driver-vmxnet3 is the driver vmxnet3.
const pluginPrefix = "nicd-driver-"

// driver is a driver that the daemon knows: bundled, or a plugin's file.
type driver struct {
	name        string
	path        string // "" if bundled
	sha256      string // that the file must have; "" is any
	bundled     framework.Driver
	description plugin.Description
	generation  atomic.Int32 // processes started
}

func (d *driver) source() string {
	if d.path == "" {
		return "bundled"
	}
	return d.path
}

// drives tells whether the driver drives a device.
func (d *driver) drives(info bus.Info, origin config.Origin) error {
	for _, id := range d.description.IDs {
		if id.Vendor == info.Vendor && id.Device == info.Device {
			return nil
		}
	}
	return fmt.Errorf("%s: driver %s does not drive %s (%04x:%04x); it drives %s",
		origin, d.name, info.Address, info.Vendor, info.Device, d.devices())
}

// devices are those that the driver drives, in words.
func (d *driver) devices() string {
	var ids []string
	for _, id := range d.description.IDs {
		ids = append(ids, fmt.Sprintf("%04x:%04x %s", id.Vendor, id.Device, id.Name))
	}
	return strings.Join(ids, ", ")
}

// valuesOf is what the driver is told of quirks. A plugin that was built with
// another framework may not know them all: one that is at its default is not
// mentioned to it, and what was set for it and can't reach it is an error.
func (d *driver) valuesOf(r *framework.Resolution) (map[string]string, error) {
	values := r.Map()
	if d.description.Knows == nil {
		return values, nil
	}
	for _, v := range r.All() {
		at := slices.IndexFunc(d.description.Knows, func(q framework.QuirkInfo) bool { return q.Name == v.Info.Name })
		if at >= 0 {
			if err := d.description.Knows[at].Check(v.Value); err != nil {
				return nil, d.lacks(v, err)
			}
			continue
		}
		if v.Value != v.Info.Default {
			return nil, d.lacks(v, framework.ErrUnknownQuirk)
		}
		delete(values, v.Info.Name)
	}
	return values, nil
}

// lacks says that the driver's plugin can't do what is asked of it.
func (d *driver) lacks(v framework.QuirkValue, why error) error {
	return fmt.Errorf("quirk %s = %s (%s): plugin %s, version %s of driver %s, does not know that (%w): install the plugin that belongs to this nicd, or leave the quirk at %s",
		v.Info.Name, v.Value, v.Because, d.source(), d.description.Version, d.name, why, v.Info.Default)
}

// start starts a process of the driver.
func (d *driver) start(ctx context.Context, log zerolog.Logger) (*plugin.Process, error) {
	o := plugin.Options{Path: d.path, SHA256: d.sha256, Log: log, Driver: d.name, Generation: int(d.generation.Add(1))}
	if d.path == "" {
		o.Bundled = d.name
	}
	return plugin.Start(ctx, o)
}

// catalogue is all drivers that the daemon knows, by name.
type catalogue struct {
	mu      sync.Mutex
	drivers map[string]*driver
	log     zerolog.Logger
}

func newCatalogue(bundled []framework.Driver, log zerolog.Logger) *catalogue {
	c := &catalogue{drivers: map[string]*driver{}, log: log}
	for _, b := range bundled {
		d := b.Describe()
		c.drivers[d.Name] = &driver{name: d.Name, bundled: b, description: plugin.Description{Description: d}}
	}
	return c
}

// configure finds the drivers that a config names: at their path, else in the
// plugin directory, else among the bundled ones.
func (c *catalogue) configure(ctx context.Context, cfg *config.Config) error {
	for _, d := range cfg.Drivers {
		path := d.Path
		if path == "" && d.Mode == config.Plugin {
			path = inPluginDir(cfg.Daemon.PluginDir, d.Name)
		}
		known := c.drivers[d.Name]
		switch {
		case path != "":
			loaded, err := c.probe(ctx, path, d.SHA256)
			if err != nil {
				return fmt.Errorf("%s: %w", describeOrigin(d), err)
			}
			if loaded.name != d.Name {
				return fmt.Errorf("%s: %s is the plugin of driver %q", describeOrigin(d), path, loaded.name)
			}
			c.drivers[d.Name] = loaded
		case known == nil:
			return fmt.Errorf("%s: there is no driver %q: it has no path, is not in the plugin directory %q and is not bundled",
				describeOrigin(d), d.Name, cfg.Daemon.PluginDir)
		case d.SHA256 != "":
			known.sha256 = d.SHA256
		}
	}
	return nil
}

func describeOrigin(d config.Driver) string {
	if d.Origin == (config.Origin{}) {
		return "driver " + d.Name
	}
	return d.Origin.String()
}

func inPluginDir(dir, name string) string {
	if dir == "" {
		return ""
	}
	path := filepath.Join(dir, pluginPrefix+name)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return path
}

// probe starts a plugin to ask what it is, and ends it. The plugin is the file
// that was summed, and from then on no other.
func (c *catalogue) probe(ctx context.Context, path, sum string) (*driver, error) {
	p, err := plugin.Start(ctx, plugin.Options{Path: path, SHA256: sum, Log: c.log})
	if err != nil {
		return nil, err
	}
	d := p.Describe()
	kill, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
	defer cancel()
	if err := p.Kill(kill); err != nil {
		return nil, err
	}
	return &driver{name: d.Name, path: path, sha256: p.SHA256(), description: d}, nil
}

// load adds a plugin to the catalogue. A driver that is in use is not replaced.
func (c *catalogue) load(ctx context.Context, path, sum string, inUse func(name string) []string) (*driver, error) {
	d, err := c.probe(ctx, path, sum)
	if err != nil {
		return nil, err
	}
	if users := inUse(d.name); len(users) > 0 {
		return nil, fmt.Errorf("driver %s is in use by %s: it can't be replaced; name the file as its path in the config and start nicd again", d.name, strings.Join(users, ", "))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drivers[d.name] = d
	return d, nil
}

func (c *catalogue) unload(name string, inUse func(name string) []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.drivers[name] == nil {
		return fmt.Errorf("there is no driver %q; loaded are %s", name, strings.Join(c.names(), ", "))
	}
	if users := inUse(name); len(users) > 0 {
		return fmt.Errorf("driver %s is in use by %s: it can't be unloaded", name, strings.Join(users, ", "))
	}
	delete(c.drivers, name)
	return nil
}

func (c *catalogue) names() []string {
	var names []string
	for n := range c.drivers {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// all is the drivers, by name.
func (c *catalogue) all() []*driver {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []*driver
	for _, n := range c.names() {
		all = append(all, c.drivers[n])
	}
	return all
}

func (c *catalogue) get(name string) *driver {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.drivers[name]
}
