package config

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"nicd/framework"
)

// check looks at what one block says of another, and fills in what depends on
// it. Every block is in order by itself.
func (d *decoder) check(c *Config) {
	if len(c.Interfaces) == 0 {
		d.problems = append(d.problems, Problem{File: d.filename, Text: "there is no interface in the config"})
		return
	}
	for _, r := range c.Drivers {
		if r.Mode == InProcess && d.vocabulary.Drivers != nil && !d.judges(r.Name) {
			d.problem(d.at(r.Origin, "mode"), "driver %q can't run in-process: it is not part of nicd%s", r.Name, didYouMean(r.Name, d.vocabulary.Drivers))
		}
	}
	d.checkDrivers(c)
	d.checkBuses(c)
	d.checkWires(c)
	d.checkMACs(c)
	d.checkAddresses(c)
	d.checkSockets(c)
	d.checkUnsafe(c)
	d.checkTAPs(c)
	d.checkBridges(c)
	d.checkLoops(c)
	for _, t := range c.Streams {
		d.checkStream(c, t)
	}
}

// checkDrivers finds each interface's driver and adds bundled ones that have no
// block.
func (d *decoder) checkDrivers(c *Config) {
	known := slices.Clone(d.vocabulary.Drivers)
	for _, r := range c.Drivers {
		known = append(known, r.Name)
	}
	for _, i := range c.Interfaces {
		if !slices.Contains(known, i.Driver) {
			hint := didYouMean(i.Driver, known)
			if nearest(i.Driver, known) == "" {
				hint += fmt.Sprintf("; one of your own takes a block driver %q { }", i.Driver)
			}
			d.problem(d.at(i.Origin, "driver"), "unknown driver %q of interface %s%s", i.Driver, i.Name, hint)
			continue
		}
		r, ok := c.Driver(i.Driver)
		if !ok {
			r = Driver{Name: i.Driver, Mode: Plugin}
			c.Drivers = append(c.Drivers, r)
		}
		if err := i.CheckTxHandoff(r.Mode); err != nil {
			d.problem(d.at(i.Origin, "tx_handoff"), "%v", err)
		}
	}
}

func (d *decoder) checkWires(c *Config) {
	var names []string
	for _, w := range c.Wires {
		names = append(names, w.Name)
	}
	check := func(wire, owner string, at hcl.Range) {
		if !slices.Contains(names, wire) {
			d.problem(at, "unknown wire %q of %s%s", wire, owner, didYouMean(wire, names))
		}
	}
	for _, i := range c.Interfaces {
		if s := i.Device.Sim; s != nil {
			check(s.Wire, "interface "+i.Name, d.at(i.Device.Origin, "wire"))
		}
	}
	for _, b := range c.Buses {
		for _, q := range b.Devices {
			if q.Network.Wire != "" {
				check(q.Network.Wire, q.Origin.What, d.networkAt(&b, &q, "wire"))
			}
		}
	}
}

// networkAt is where an attribute of a device's network stands: in its own block,
// or in its bus's.
func (d *decoder) networkAt(b *QEMUBus, q *QEMUDevice, attr string) hcl.Range {
	if r, ok := d.places[q.Origin.What+" "+attr]; ok {
		return r
	}
	return d.at(b.Origin, attr)
}

// permanentMAC is the address that an interface's model is given and where that
// is said, nil if the device has its own.
func (c *Config) permanentMAC(i Interface) (*framework.MAC, Origin) {
	if s := i.Device.Sim; s != nil {
		return &s.MAC, i.Device.Origin
	}
	if a := i.Device.QEMU; a != nil {
		if _, q := c.QEMUDevice(*a); q != nil {
			return &q.MAC, q.Origin
		}
	}
	return nil, Origin{}
}

// checkMACs gives each model an address and reports those that two interfaces
// share.
func (d *decoder) checkMACs(c *Config) {
	owner := map[framework.MAC]string{}
	claim := func(m framework.MAC, i Interface, o Origin) {
		if other, ok := owner[m]; ok && other != i.Name {
			d.problem(d.at(o, "mac"), "interface %s has the address %v of interface %s", i.Name, m, other)
		}
		owner[m] = i.Name
	}
	for _, i := range c.Interfaces {
		if i.MAC != (framework.MAC{}) {
			claim(i.MAC, i, i.Origin)
		}
		if m, o := c.permanentMAC(i); m != nil && *m != (framework.MAC{}) {
			claim(*m, i, o)
		}
	}
	// Locally administered, "nicd" and a number.
	next := framework.MAC{0x02, 'n', 'i', 'c', 0, 0}
	for _, i := range c.Interfaces {
		m, _ := c.permanentMAC(i)
		if m == nil || *m != (framework.MAC{}) {
			continue
		}
		for taken := true; taken; _, taken = owner[next] {
			if next[5]++; next[5] == 0 {
				next[4]++
			}
		}
		*m = next
		owner[next] = i.Name
	}
}

func (d *decoder) checkAddresses(c *Config) {
	owner := map[netip.Addr]string{}
	for _, i := range c.Interfaces {
		n := i.Port.Netstack
		if n == nil {
			continue
		}
		reachable := !n.Gateway.IsValid()
		for _, p := range n.Addresses {
			if other, ok := owner[p.Addr()]; ok {
				d.problem(d.at(i.Port.Origin, "address"), "interface %s has the address %v of interface %s", i.Name, p.Addr(), other)
			}
			owner[p.Addr()] = i.Name
			reachable = reachable || p.Contains(n.Gateway) && p.Addr() != n.Gateway
			if p.Addr().Is6() && i.MTU < minIPv6MTU {
				d.problem(d.at(i.Port.Origin, "address"), "interface %s has an IPv6 address and MTU %d; IPv6 needs 1280 (RFC 8200 section 5)", i.Name, i.MTU)
			}
		}
		if !reachable {
			d.problem(d.at(i.Port.Origin, "gateway"), "gateway %v is in none of the networks of interface %s", n.Gateway, i.Name)
		}
	}
}

// checkSockets reports two interfaces with one device.
func (d *decoder) checkSockets(c *Config) {
	owner := map[string]string{}
	for _, i := range c.Interfaces {
		attr, device := "", ""
		switch {
		case i.Device.VFIOUser != nil:
			attr, device = "socket", i.Device.VFIOUser.Socket
		case i.Device.VFIO != nil:
			attr, device = "address", i.Device.VFIO.Address
		}
		if device == "" {
			continue
		}
		if other, ok := owner[device]; ok {
			d.problem(d.at(i.Device.Origin, attr), "interface %s has the device of interface %s", i.Name, other)
		}
		owner[device] = i.Name
	}
}

// checkTAPs reports Linux interfaces that two interfaces would be.
func (d *decoder) checkTAPs(c *Config) {
	owner, fdOwner := map[string]string{}, map[int]string{}
	for _, i := range c.Interfaces {
		if a := i.Device.QEMU; a != nil {
			b, q := c.QEMUDevice(*a)
			d.claimNetwork(b, q, i, owner)
		}
		t := i.Port.TAP
		if t == nil {
			continue
		}
		for _, fd := range t.FDs {
			if other, ok := fdOwner[fd]; ok {
				d.problem(d.at(i.Port.Origin, "fd"), "interface %s has descriptor %d of interface %s", i.Name, fd, other)
			}
			fdOwner[fd] = i.Name
		}
		if other, ok := owner[t.Name]; ok && len(t.FDs) == 0 {
			d.problem(d.at(i.Port.Origin, "name"), "interface %s has the Linux interface %s of interface %s", i.Name, t.Name, other)
		}
		owner[t.Name] = i.Name
	}
}

// claimNetwork reports what the network of an interface's device can't share. owner
// is by the name of the Linux interface, or by the path of the socket.
func (d *decoder) claimNetwork(b *QEMUBus, q *QEMUDevice, i Interface, owner map[string]string) {
	if q == nil {
		return // reported
	}
	claim := func(attr, what, name string) {
		if name == "" {
			return
		}
		if other, ok := owner[name]; ok && other != i.Name {
			d.problem(d.networkAt(b, q, attr), "interface %s has the %s %s of interface %s; say another in device %q { } of bus %s", i.Name, what, name, other, q.Name, b.Name)
		}
		owner[name] = i.Name
	}
	claim("tap", "Linux interface", q.Network.TAP)
	claim("local", "socket", q.Network.Local)
}

// checkBridges reports bridges that lead nowhere.
func (d *decoder) checkBridges(c *Config) {
	ports := map[string]int{}
	for _, i := range c.Interfaces {
		if f := i.Port.Forward; f != nil {
			ports[f.Bridge]++
		}
	}
	for _, i := range c.Interfaces {
		if f := i.Port.Forward; f != nil && f.Bridge != "" && ports[f.Bridge] == 1 {
			d.problem(d.at(i.Port.Origin, "bridge"), "bridge %q has one port only, of interface %s: a second interface needs port \"forward\" { bridge = %q }", f.Bridge, i.Name, f.Bridge)
		}
	}
}

func (d *decoder) checkStream(c *Config, t Stream) {
	from, to := d.streamEnd(c, t, "from", t.From), d.streamEnd(c, t, "to", t.To)
	if from == nil || to == nil {
		return
	}
	if t.From == t.To {
		d.problem(d.at(t.Origin, "to"), "stream %q goes from %s to itself", t.Name, t.From)
		return
	}
	for _, a := range from.Addresses {
		for _, b := range to.Addresses {
			if a.Masked() == b.Masked() {
				return
			}
		}
	}
	if !from.Gateway.IsValid() {
		d.problem(d.at(t.Origin, "to"), "stream %q: %s and %s have no network in common", t.Name, t.From, t.To)
	}
}

// streamEnd is one end of a stream, nil after a problem.
func (d *decoder) streamEnd(c *Config, t Stream, attr, name string) *NetstackPort {
	i, ok := c.Interface(name)
	if !ok {
		var names []string
		for _, i := range c.Interfaces {
			names = append(names, i.Name)
		}
		d.problem(d.at(t.Origin, attr), "unknown interface %q of stream %s%s", name, t.Name, didYouMean(name, names))
		return nil
	}
	if i.Port.Netstack == nil {
		d.problem(d.at(t.Origin, attr), "stream %q needs a netstack port at interface %s", t.Name, name)
	}
	return i.Port.Netstack
}
