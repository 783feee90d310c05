package config

import (
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// This file is about devices of QEMU's: the bus that they are on, and how an
// interface names one.

const qemuKind = "qemu"

// bus decodes a bus block. Its devices' blocks say what is different from it.
func (d *decoder) bus(b *hclsyntax.Block, c *Config) {
	if b.Labels[0] != qemuKind {
		d.problem(b.LabelRanges[0], "unknown kind of bus %q%s", b.Labels[0], didYouMean(b.Labels[0], []string{qemuKind}))
		return
	}
	name := d.name(b)
	q := QEMUBus{Name: name, Network: Network{Netdev: NetdevUser}, Origin: d.origin(b.TypeRange, "bus", name)}
	s := d.section("bus \"qemu\" \""+name+"\"", b.Body)
	if _, ok := s.string("program", &q.Program); ok && strings.Contains(q.Program, "/") {
		q.Program = d.path(q.Program)
	}
	elsewhere := s.network(&q.Network, q.Origin)
	s.each("device", 1, func(b *hclsyntax.Block) { q.Devices = append(q.Devices, d.busDevice(b, &q)) })
	s.end(elsewhere)
	d.unique(b.Body)
	c.Buses = append(c.Buses, q)
}

// busDevice decodes a device's block. Its name is the model's, unless it says
// another model.
func (d *decoder) busDevice(b *hclsyntax.Block, bus *QEMUBus) QEMUDevice {
	name := d.name(b)
	q := QEMUDevice{Name: name, Model: name, Network: bus.Network, Origin: d.origin(b.TypeRange, "device", name+" of bus "+bus.Name)}
	s := d.section("device \""+name+"\" of bus "+bus.Name, b.Body)
	known := d.vocabulary.qemuModels()
	switch at, ok := s.string("model", &q.Model); {
	case slices.Contains(known, q.Model) || strings.HasPrefix(q.Model, otherQEMUModel) || name == "?":
	case ok:
		d.problem(at, "QEMU has no model %q%s", q.Model, didYouMean(q.Model, known))
	case b.Body.Attributes["model"] == nil:
		d.problem(b.LabelRanges[0], "device %q has no model, and its name is none of QEMU's%s", name, didYouMean(name, known))
	}
	s.mac("mac", &q.MAC, q.Origin)
	s.end(s.network(&q.Network, q.Origin))
	return q
}

// networkOf says which kind of network an attribute belongs to.
var networkOf = map[string]string{"wire": NetdevWire, "tap": NetdevTAP, "local": NetdevDgram, "remote": NetdevDgram}

// network decodes what a bus or a device is connected to. Another kind than n's
// has nothing of n. The answer is for end.
func (s *section) network(n *Network, o Origin) (elsewhere func(attr string) string) {
	kind := n.Netdev
	if s.choice("netdev", &kind, NetdevUser, NetdevTAP, NetdevDgram, NetdevWire); kind != n.Netdev {
		*n = Network{Netdev: kind}
	}
	text := func(name string, dst *string) {
		if at, ok := s.string(name, dst); ok {
			s.place(o.What, name, at)
		}
	}
	switch n.Netdev {
	case NetdevTAP:
		if text("tap", &n.TAP); n.TAP != "" && !linuxName(n.TAP) {
			s.problem(s.at(o, "tap"), linuxNameIs, "tap", maxLinuxName, n.TAP)
		}
	case NetdevWire:
		text("wire", &n.Wire)
	case NetdevDgram:
		text("local", &n.Local)
		text("remote", &n.Remote)
		n.Local, n.Remote = s.path(n.Local), s.path(n.Remote)
	}
	return func(attr string) string {
		if kind := networkOf[attr]; kind != "" {
			return attr + " is for netdev = \"" + kind + "\""
		}
		return ""
	}
}

// lacks is the attribute that a network needs and has not, "" if it has all.
func (n *Network) lacks() string {
	switch {
	case n.Netdev == NetdevTAP && n.TAP == "":
		return "tap"
	case n.Netdev == NetdevWire && n.Wire == "":
		return "wire"
	case n.Netdev == NetdevDgram && n.Local == "":
		return "local"
	case n.Netdev == NetdevDgram && n.Remote == "":
		return "remote"
	}
	return ""
}

// deviceAddress decodes the attribute that names a device on a bus.
func (s *section) deviceAddress(dst *Device, owner string) (found bool) {
	var text string
	at, ok := s.string("device", &text)
	a := s.body.Attributes["device"]
	if a == nil {
		return false
	}
	dst.Origin = s.origin(a.NameRange, "device of interface", owner)
	if !ok {
		return true
	}
	s.place(dst.Origin.What, "device", at)
	kind, rest, _ := strings.Cut(text, ":")
	bus, device, _ := strings.Cut(rest, "/")
	switch {
	case kind == qemuKind && bus != "" && device != "":
		dst.QEMU = &QEMUAddress{Bus: bus, Device: device}
	case slices.Contains([]string{"sim", "vfio", "vfio-user"}, kind):
		s.problem(at, "device of interface %s: a %s device has a block: write device %q { }", owner, kind, kind)
	default:
		s.problem(at, "device of interface %s is such as \"qemu:BUS/DEVICE\", or a block such as device \"sim\" { }, not %q", owner, text)
	}
	return true
}

// checkBuses finds the devices that interfaces name, and adds those that are a
// model and have no block.
func (d *decoder) checkBuses(c *Config) {
	owner, users := map[QEMUAddress]string{}, map[string]int{}
	for _, i := range c.Interfaces {
		a := i.Device.QEMU
		if a == nil {
			continue
		}
		at := d.at(i.Device.Origin, "device")
		bus, device := c.QEMUDevice(*a)
		if device == nil && bus != nil {
			device = d.addModel(bus, a.Device, i, at)
		}
		switch {
		case bus == nil:
			d.unknownBus(c, i, at)
			continue
		case device == nil:
			continue
		}
		if other, ok := owner[*a]; ok {
			d.problem(at, "interface %s has the device of interface %s; another of the same model takes a block in bus %s: device \"NAME\" { model = %q }", i.Name, other, bus.Name, device.Model)
			continue
		}
		owner[*a] = i.Name
		if users[bus.Name]++; users[bus.Name] == MaxQEMUDevices+1 {
			d.problem(at, "bus %s has at most %d devices, and that of interface %s is one more: put it on another bus", bus.Name, MaxQEMUDevices, i.Name)
		}
		if lacks := device.Network.lacks(); lacks != "" {
			d.problem(d.at(device.Origin, "netdev"), "%s has netdev %q and no %s", device.Origin.What, device.Network.Netdev, lacks)
		}
	}
}

// addModel adds a device without a block: one that is named as its model.
func (d *decoder) addModel(bus *QEMUBus, name string, i Interface, at hcl.Range) *QEMUDevice {
	models := d.vocabulary.qemuModels()
	if strings.HasPrefix(name, otherQEMUModel) {
		d.problem(at, "the model %s of interface %s takes a block in bus %s: device \"NAME\" { model = %q }", name, i.Name, bus.Name, name)
		return nil
	}
	if !slices.Contains(models, name) {
		known := slices.Clone(models)
		for _, q := range bus.Devices {
			known = append(known, q.Name)
		}
		d.problem(at, "bus %s has no device %q for interface %s, and it is no model of QEMU's%s", bus.Name, name, i.Name, didYouMean(name, known))
		return nil
	}
	o := i.Device.Origin
	o.What = "device " + name + " of bus " + bus.Name
	bus.Devices = append(bus.Devices, QEMUDevice{Name: name, Model: name, Network: bus.Network, Origin: o})
	return &bus.Devices[len(bus.Devices)-1]
}

func (d *decoder) unknownBus(c *Config, i Interface, at hcl.Range) {
	if len(c.Buses) == 0 {
		d.problem(at, "there is no bus %q for interface %s; write bus \"qemu\" %q { } beside it", i.Device.QEMU.Bus, i.Name, i.Device.QEMU.Bus)
		return
	}
	var names []string
	for _, b := range c.Buses {
		names = append(names, b.Name)
	}
	d.problem(at, "unknown bus %q of interface %s%s", i.Device.QEMU.Bus, i.Name, didYouMean(i.Device.QEMU.Bus, names))
}
