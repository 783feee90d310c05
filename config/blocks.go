package config

import (
	"encoding/hex"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Ranges. What a device can take is checked when it is attached.
const (
	minMTU, maxMTU = 68, 65535 // RFC 791: every module forwards 68 bytes
	maxQueues      = 64        // framework.Cause has a bit for each
	maxDescriptors = 32768
	minBufferSize  = 1088  // so that framework.MaxPacketLen fits framework.MaxFragments of them
	maxBufferSize  = 16128 // with its headroom below 16 KiB
	maxBuffers     = 1 << 22
	maxCPU         = 8191
	maxPause       = 10 * time.Second
	maxModeration  = 100 * time.Millisecond
	maxBudget      = 4096
	minIPv6MTU     = 1280 // RFC 8200 section 5
)

func (d *decoder) origin(at hcl.Range, what, name string) Origin {
	return Origin{File: d.filename, Line: at.Start.Line, What: strings.TrimSpace(what + " " + name)}
}

func (d *decoder) config(body *hclsyntax.Body) *Config {
	c := &Config{Daemon: Daemon{LogLevel: "info"}}
	s := d.section("the config", body)
	s.one("daemon", 0, func(b *hclsyntax.Block) { d.daemon(b, &c.Daemon) })
	s.each("wire", 1, func(b *hclsyntax.Block) { c.Wires = append(c.Wires, d.wire(b)) })
	s.each("bus", 2, func(b *hclsyntax.Block) { d.bus(b, c) })
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
		last := len(b.Labels) - 1
		if last < 0 {
			continue
		}
		key := [2]string{b.Type, b.Labels[last]} // of a bus, too: its kind is no part of its name
		if line, ok := first[key]; ok {
			d.problem(b.LabelRanges[last], "a second %s %q; the first is on line %d", b.Type, b.Labels[last], line)
			continue
		}
		first[key] = b.TypeRange.Start.Line
	}
}

// name is a block's last label, which has to do as a file name and an interface name.
func (d *decoder) name(b *hclsyntax.Block) string {
	last := len(b.Labels) - 1
	n := b.Labels[last]
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	if n == "" || len(n) > 15 || strings.Trim(n, letters+"._-") != "" || !strings.Contains(letters, n[:1]) {
		d.problem(b.LabelRanges[last], "name %q of %s: a name is 1 to 15 letters, digits, '.', '_' and '-', and begins with a letter or digit", n, b.Type)
		return "?" // whatever it is, it does not get into other messages
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
	s.bool("unsafe", &dst.Unsafe)
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

func (d *decoder) stream(b *hclsyntax.Block) Stream {
	name := d.name(b)
	t := Stream{Name: name, Origin: d.origin(b.TypeRange, "stream", name)}
	s := d.section("stream \""+name+"\"", b.Body)
	s.required("from", &t.From, b, t.Origin)
	s.required("to", &t.To, b, t.Origin)
	s.end(nil)
	return t
}
