package config

// checkLoops reports the port that closes a loop of bridges and virtual wires. Nothing
// takes a frame out of one: a broadcast goes round as fast as the machine can, for ever.
func (d *decoder) checkLoops(c *Config) {
	parts := joined{}
	for _, i := range c.Interfaces {
		f, wire := i.Port.Forward, c.wireOf(i)
		if f == nil || wire == "" {
			continue
		}
		if !parts.join("bridge "+f.Bridge, "wire "+wire) {
			d.problem(d.at(i.Port.Origin, "bridge"), "interface %s closes a loop: bridge %q and wire %q are joined already, and there is no spanning tree", i.Name, f.Bridge, wire)
		}
	}
}

// wireOf is the virtual wire that an interface's device is at, "" if it is at none.
func (c *Config) wireOf(i Interface) string {
	if s := i.Device.Sim; s != nil {
		return s.Wire
	}
	if a := i.Device.QEMU; a != nil {
		if _, q := c.QEMUDevice(*a); q != nil {
			return q.Network.Wire
		}
	}
	return ""
}

// joined has, for each thing that is joined to others, another one of them; following
// that leads to one that stands for all.
type joined map[string]string

func (j joined) root(name string) string {
	for j[name] != "" {
		name = j[name]
	}
	return name
}

// join joins two things; false says that they were.
func (j joined) join(a, b string) bool {
	if a, b = j.root(a), j.root(b); a == b {
		return false
	}
	j[a] = b
	return true
}
