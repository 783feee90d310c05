package config

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"nicd/framework"
)

// Ranges. What a device can take is checked when it is attached.
const (
	minMTU, maxMTU = 68, 65535 // RFC 791: every module forwards 68 bytes
	maxQueues      = 64        // framework.Cause has a bit for each
	maxDescriptors = 32768
	minBufferSize  = 256
	maxBufferSize  = 16128 // with its headroom below 16 KiB
	maxBuffers     = 1 << 22
	maxCPU         = 8191
	maxPause       = 10 * time.Second
)

func (d *decoder) origin(at hcl.Range, what, name string) Origin {
	return Origin{File: d.filename, Line: at.Start.Line, What: strings.TrimSpace(what + " " + name)}
}

func (d *decoder) config(body *hclsyntax.Body) *Config {
	c := &Config{Daemon: Daemon{LogLevel: "info"}}
	s := d.section("the config", body)
	s.one("daemon", 0, func(b *hclsyntax.Block) { d.daemon(b, &c.Daemon) })
	s.each("wire", 1, func(b *hclsyntax.Block) { c.Wires = append(c.Wires, d.wire(b)) })
	s.each("driver", 1, func(b *hclsyntax.Block) { c.Drivers = append(c.Drivers, d.driver(b)) })
	s.each("interface", 1, func(b *hclsyntax.Block) { c.Interfaces = append(c.Interfaces, d.netInterface(b)) })
	s.each("stream", 1, func(b *hclsyntax.Block) { c.Streams = append(c.Streams, d.stream(b)) })
	s.end(nil)
	d.unique(body)
	return c
}

// unique reports a second block of a type and name.
func (d *decoder) unique(body *hclsyntax.Body) {
	first := map[[2]string]int{}
	for _, b := range body.Blocks {
		if len(b.Labels) != 1 {
			continue
		}
		key := [2]string{b.Type, b.Labels[0]}
		if line, ok := first[key]; ok {
			d.problem(b.LabelRanges[0], "a second %s %q; the first is on line %d", b.Type, b.Labels[0], line)
			continue
		}
		first[key] = b.TypeRange.Start.Line
	}
}

// name is a block's label, which has to do as a file name and an interface name.
func (d *decoder) name(b *hclsyntax.Block) string {
	n := b.Labels[0]
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	if n == "" || len(n) > 15 || strings.Trim(n, letters+"._-") != "" || !strings.Contains(letters, n[:1]) {
		d.problem(b.LabelRanges[0], "name %q of %s: a name is 1 to 15 letters, digits, '.', '_' and '-', and begins with a letter or digit", n, b.Type)
	}
	return n
}

// path makes a path in a file relative to the file's directory.
func (d *decoder) path(p string) string {
	if p == "" || filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(filepath.Dir(d.filename), p)
}

func (d *decoder) daemon(b *hclsyntax.Block, dst *Daemon) {
	s := d.section("daemon", b.Body)
	s.string("socket", &dst.Socket)
	s.string("plugin_dir", &dst.PluginDir)
	s.choice("log_level", &dst.LogLevel, "trace", "debug", "info", "warn", "error")
	s.end(nil)
	dst.Socket, dst.PluginDir = d.path(dst.Socket), d.path(dst.PluginDir)
}

func (d *decoder) wire(b *hclsyntax.Block) Wire {
	name := d.name(b)
	w := Wire{Name: name, FlowControl: true, Origin: d.origin(b.TypeRange, "wire", name)}
	s := d.section("wire \""+name+"\"", b.Body)
	s.bool("flow_control", &w.FlowControl)
	s.chance("loss", &w.Loss)
	s.chance("duplicate", &w.Duplicate)
	s.chance("reorder", &w.Reorder)
	s.chance("corrupt", &w.Corrupt)
	s.uint64("seed", &w.Seed)
	s.duration("delay", &w.Delay, maxPause)
	s.duration("jitter", &w.Jitter, maxPause)
	s.end(nil)
	return w
}

func (d *decoder) driver(b *hclsyntax.Block) Driver {
	name := d.name(b)
	r := Driver{Name: name, Mode: Plugin, Origin: d.origin(b.TypeRange, "driver", name)}
	s := d.section("driver \""+name+"\"", b.Body)
	s.string("path", &r.Path)
	r.Path = d.path(r.Path)
	if at, ok := s.string("sha256", &r.SHA256); ok {
		r.SHA256 = strings.ToLower(r.SHA256)
		if sum, err := hex.DecodeString(r.SHA256); err != nil || len(sum) != 32 {
			d.problem(at, "sha256 is 64 hexadecimal digits, not %q", r.SHA256)
		}
	}
	mode := string(Plugin)
	if at, ok := s.choice("mode", &mode, string(Plugin), string(InProcess)); ok {
		d.place(r.Origin.What, "mode", at)
	}
	r.Mode = Mode(mode)
	s.one("quirks", 0, func(q *hclsyntax.Block) { r.Quirks = d.quirks(q, name, r.Origin.What) })
	s.end(inQuirks)
	if r.Mode == InProcess && r.Path != "" {
		d.problem(d.at(r.Origin, "mode"), "driver %q runs in-process and has a path; only a plugin has one", name)
	}
	return r
}

// inQuirks says where an attribute that is a quirk's name belongs.
func inQuirks(name string) string {
	if framework.LookupQuirk(name) != nil {
		return name + " is a quirk: it goes in quirks { }"
	}
	return ""
}

// inFeatures says the same of a feature's name.
func inFeatures(name string) string {
	if _, ok := framework.ParseFeature(name); ok {
		return name + " is a feature: it goes in features { }"
	}
	return inQuirks(name)
}

func (d *decoder) netInterface(b *hclsyntax.Block) Interface {
	name := d.name(b)
	i := Interface{Name: name, MTU: 1500, Interrupts: AutoInterrupts, Origin: d.origin(b.TypeRange, "interface", name)}
	s := d.section("interface \""+name+"\"", b.Body)
	s.required("driver", &i.Driver, b, i.Origin)
	s.int("mtu", &i.MTU, minMTU, maxMTU)
	s.mac("mac", &i.MAC, i.Origin)
	s.int("rx_queues", &i.RxQueues, 1, maxQueues)
	s.int("tx_queues", &i.TxQueues, 1, maxQueues)
	s.int("rx_descriptors", &i.RxDescriptors, 8, maxDescriptors)
	s.int("tx_descriptors", &i.TxDescriptors, 8, maxDescriptors)
	s.int("buffer_size", &i.BufferSize, minBufferSize, maxBufferSize)
	s.int("buffers", &i.Buffers, 64, maxBuffers)
	interrupts := string(AutoInterrupts)
	s.choice("interrupts", &interrupts, string(AutoInterrupts), string(MSIX), string(MSI), string(INTx))
	i.Interrupts = Interrupts(interrupts)
	s.duration("moderation", &i.Moderation, 100*time.Millisecond)
	s.int("rx_budget", &i.RxBudget, 1, 4096)
	s.duration("spin", &i.Spin, time.Second)
	s.list("cpus", cty.Number, "a CPU number", func(v cty.Value, at hcl.Range) {
		n, _ := v.AsBigFloat().Int64()
		if n < 0 || n > maxCPU || number(v) != number(cty.NumberIntVal(n)) {
			d.problem(at, "cpus has numbers from 0 to %d, not %s", maxCPU, number(v))
			return
		}
		i.CPUs = append(i.CPUs, int(n))
	})
	s.one("features", 0, func(f *hclsyntax.Block) { i.Features = d.features(f, i.Origin.What) })
	s.one("quirks", 0, func(q *hclsyntax.Block) { i.Quirks = d.quirks(q, i.Driver, i.Origin.What) })
	if !s.one("device", 1, func(v *hclsyntax.Block) { i.Device = d.device(v, name) }) {
		d.problem(b.TypeRange, "interface %q has no device; write device \"sim\" { } in it", name)
	}
	if !s.one("port", 1, func(p *hclsyntax.Block) { i.Port = d.port(p, name) }) {
		d.problem(b.TypeRange, "interface %q has no port; write port \"netstack\" { } in it", name)
	}
	s.end(inFeatures)
	return i
}

// required decodes text that has to be there and remembers its place.
func (s *section) required(name string, dst *string, b *hclsyntax.Block, o Origin) (at hcl.Range, ok bool) {
	at, ok = s.string(name, dst)
	switch {
	case b.Body.Attributes[name] == nil:
		s.problem(b.TypeRange, "%s has no %s", s.what, name)
	case ok && *dst == "":
		s.problem(at, "%s of %s is empty", name, s.what)
		return at, false
	case ok:
		s.place(o.What, name, at)
	}
	return at, ok
}

// mac decodes an address that can be an interface's own: unicast and not zero.
func (s *section) mac(name string, dst *framework.MAC, o Origin) {
	var text string
	at, ok := s.string(name, &text)
	if !ok {
		return
	}
	hw, err := net.ParseMAC(text)
	if err != nil || len(hw) != 6 {
		s.problem(at, "%s is an address such as \"02:00:00:00:00:01\", not %q", name, text)
		return
	}
	m := framework.MAC(hw)
	if m[0]&1 != 0 || m == (framework.MAC{}) {
		s.problem(at, "%s %v is not a unicast address", name, m)
		return
	}
	*dst = m
	s.place(o.What, name, at)
}

// quirks decodes a quirks block for a driver. A name that the driver might know
// and nobody here does is kept.
func (d *decoder) quirks(b *hclsyntax.Block, driver, what string) []framework.QuirkSetting {
	s := d.section("quirks of "+what, b.Body)
	var all []framework.QuirkSetting
	for _, a := range settings(b) {
		s.attrs = append(s.attrs, a.Name)
		q := framework.LookupQuirk(a.Name)
		switch {
		case q == nil && d.judges(driver):
			d.problem(a.NameRange, "unknown quirk %q of %s%s", a.Name, what, didYouMean(a.Name, quirkNames(driver)))
			continue
		case q != nil && driver != "" && !q.For(driver):
			d.problem(a.NameRange, "quirk %q is for driver %s, not %s", a.Name, q.Driver, driver)
			continue
		}
		v, ok := d.evaluate(a)
		if !ok {
			continue
		}
		text, ok := scalar(v)
		if !ok {
			d.problem(a.Expr.Range(), "quirk %s is one value, not %s", a.Name, kind(v))
			continue
		}
		if q != nil {
			if q.Check(text) != nil || (q.Type == "bool") != (v.Type() == cty.Bool) || (q.Type == "int") != (v.Type() == cty.Number) {
				d.problem(a.Expr.Range(), "quirk %s is %s, not %s%s", a.Name, q.Values(), d.text(a.Expr.Range()), choiceHint(q, text))
				continue
			}
		}
		all = append(all, framework.QuirkSetting{Name: a.Name, Value: text, Origin: d.origin(a.NameRange, what, "").String()})
	}
	s.end(nil)
	return all
}

// choiceHint is the nearest choice; all of them are in the message already.
func choiceHint(q *framework.QuirkInfo, text string) string {
	if n := nearest(text, q.Choices); n != "" {
		return fmt.Sprintf("; did you mean %q?", n)
	}
	return ""
}

// judges tells whether all quirks of a driver are known here.
func (d *decoder) judges(driver string) bool {
	for _, n := range d.vocabulary.Drivers {
		if n == driver {
			return true
		}
	}
	return false
}

func (d *decoder) features(b *hclsyntax.Block, what string) []framework.FeatureSetting {
	s := d.section("features of "+what, b.Body)
	var all []framework.FeatureSetting
	for _, a := range settings(b) {
		s.attrs = append(s.attrs, a.Name)
		f, ok := framework.ParseFeature(a.Name)
		if !ok {
			d.problem(a.NameRange, "unknown feature %q of %s%s", a.Name, what, didYouMean(a.Name, framework.FeatureNames()))
			continue
		}
		want, ok := d.want(a, f)
		if ok {
			all = append(all, framework.FeatureSetting{Features: f, Want: want, Origin: d.origin(a.NameRange, what, "").String()})
		}
	}
	s.end(nil)
	return all
}

func (d *decoder) want(a *hclsyntax.Attribute, f framework.Features) (framework.FeatureWant, bool) {
	v, ok := d.evaluate(a)
	if !ok {
		return 0, false
	}
	switch {
	case v.Type() == cty.Bool && v.True():
		return framework.WantOn, true
	case v.Type() == cty.Bool:
		return framework.WantOff, true
	case v.Type() == cty.String && v.AsString() == "software" && framework.SoftwareFeatures.Has(f):
		return framework.WantSoftware, true
	case framework.SoftwareFeatures.Has(f):
		d.problem(a.Expr.Range(), "feature %s is true, false or \"software\", not %s", a.Name, d.text(a.Expr.Range()))
	default:
		d.problem(a.Expr.Range(), "feature %s is true or false, not %s", a.Name, d.text(a.Expr.Range()))
	}
	return 0, false
}

func (d *decoder) device(b *hclsyntax.Block, owner string) Device {
	dev := Device{Origin: d.origin(b.TypeRange, "device of interface", owner)}
	s := d.section("device \""+b.Labels[0]+"\" of interface "+owner, b.Body)
	switch b.Labels[0] {
	case "sim":
		dev.Sim = d.simDevice(s, b, dev.Origin)
	case "vfio-user":
		dev.VFIOUser = &VFIOUserDevice{}
		s.required("socket", &dev.VFIOUser.Socket, b, dev.Origin)
		dev.VFIOUser.Socket = d.path(dev.VFIOUser.Socket)
	default:
		d.problem(b.LabelRanges[0], "unknown bus %q of %s%s", b.Labels[0], dev.Origin.What, didYouMean(b.Labels[0], []string{"sim", "vfio-user"}))
		return dev
	}
	s.end(nil)
	return dev
}

func (d *decoder) simDevice(s *section, b *hclsyntax.Block, o Origin) *SimDevice {
	sim := &SimDevice{}
	at, ok := s.required("model", &sim.Model, b, o)
	model, known := d.vocabulary.model(sim.Model)
	if ok && !known {
		d.problem(at, "unknown model %q%s", sim.Model, didYouMean(sim.Model, d.vocabulary.modelNames()))
	}
	if known && model.Revisions > 0 {
		sim.Revision = model.Revisions
		s.int("revision", &sim.Revision, 1, model.Revisions)
	} else if _, at, ok := s.value("revision"); ok && known {
		d.problem(at, "model %s has no revisions", sim.Model)
	}
	s.required("wire", &sim.Wire, b, o)
	s.mac("mac", &sim.MAC, o)
	sim.Variation = model.Variation
	s.one("variations", 0, func(v *hclsyntax.Block) {
		if known {
			sim.Variation = d.variation(v, model)
		}
	})
	return sim
}

func (d *decoder) port(b *hclsyntax.Block, owner string) Port {
	p := Port{Origin: d.origin(b.TypeRange, "port of interface", owner)}
	s := d.section("port \""+b.Labels[0]+"\" of interface "+owner, b.Body)
	switch b.Labels[0] {
	case "netstack":
		p.Netstack = d.netstack(s, b, p.Origin)
	case "sink":
		p.Sink = &SinkPort{}
	default:
		d.problem(b.LabelRanges[0], "unknown port %q of interface %s%s", b.Labels[0], owner, didYouMean(b.Labels[0], []string{"netstack", "sink"}))
		return p
	}
	s.end(nil)
	return p
}

func (d *decoder) netstack(s *section, b *hclsyntax.Block, o Origin) *NetstackPort {
	n := &NetstackPort{}
	s.list("address", cty.String, "an address", func(v cty.Value, at hcl.Range) {
		p, err := netip.ParsePrefix(v.AsString())
		if err != nil || !hostAddress(p) {
			d.problem(at, "address is a host's, with the length of its prefix, such as \"10.0.0.1/24\", not %q", v.AsString())
			return
		}
		n.Addresses = append(n.Addresses, p)
	})
	if a := b.Body.Attributes["address"]; a == nil {
		d.problem(b.TypeRange, "%s has no address", s.what)
	} else {
		d.place(o.What, "address", a.Expr.Range())
	}
	var gateway string
	if at, ok := s.string("gateway", &gateway); ok {
		a, err := netip.ParseAddr(gateway)
		if err != nil {
			d.problem(at, "gateway is an address such as \"10.0.0.254\", not %q", gateway)
		}
		n.Gateway = a
		d.place(o.What, "gateway", at)
	}
	s.int("buffer", &n.Buffer, 4096, 1<<30)
	return n
}

// hostAddress tells whether p is an address that an interface can have.
func hostAddress(p netip.Prefix) bool {
	a := p.Addr()
	if a.Is4() && p.Bits() < 31 && p.Masked().Addr() == a {
		return false // the network's own
	}
	return !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() && !a.Is4In6()
}

func (d *decoder) stream(b *hclsyntax.Block) Stream {
	name := d.name(b)
	t := Stream{Name: name, Origin: d.origin(b.TypeRange, "stream", name)}
	s := d.section("stream \""+name+"\"", b.Body)
	s.required("from", &t.From, b, t.Origin)
	s.required("to", &t.To, b, t.Origin)
	s.end(nil)
	return t
}
