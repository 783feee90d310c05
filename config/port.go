package config

import (
	"encoding/binary"
	"net/netip"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

func (d *decoder) port(b *hclsyntax.Block, owner string) Port {
	p := Port{Origin: d.origin(b.TypeRange, "port of interface", owner)}
	s := d.section("port \""+b.Labels[0]+"\" of interface "+owner, b.Body)
	switch b.Labels[0] {
	case "netstack":
		p.Netstack = d.netstack(s, b, p.Origin)
	case "sink":
		p.Sink = &SinkPort{}
	case "tap":
		p.TAP = d.tap(s, owner, p.Origin)
	case "forward":
		p.Forward = &ForwardPort{}
		s.required("bridge", &p.Forward.Bridge, b, p.Origin)
	default:
		d.problem(b.LabelRanges[0], "unknown port %q of interface %s%s", b.Labels[0], owner, didYouMean(b.Labels[0], []string{"netstack", "sink", "tap", "forward"}))
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

// maxFD is far above what any process may have open.
const maxFD = 1 << 20

func (d *decoder) tap(s *section, owner string, o Origin) *TAPPort {
	t := &TAPPort{Name: owner}
	at, ok := s.string("name", &t.Name)
	if ok {
		d.place(o.What, "name", at)
	}
	if ok && !linuxName(t.Name) {
		d.problem(at, linuxNameIs, "name", maxLinuxName, t.Name)
	}
	s.list("fd", cty.Number, "a descriptor's number", func(v cty.Value, at hcl.Range) {
		n, _ := v.AsBigFloat().Int64()
		if n < 3 || n > maxFD || number(v) != number(cty.NumberIntVal(n)) {
			d.problem(at, "fd has numbers from 3 to %d, not %s", maxFD, number(v))
			return
		}
		t.FDs = append(t.FDs, int(n))
		d.place(o.What, "fd", at)
	})
	return t
}

// maxLinuxName is IFNAMSIZ without the zero at the end.
const maxLinuxName = 15

// linuxNameIs is a problem's text: attribute, maxLinuxName, what it is.
const linuxNameIs = "%s is a Linux interface's, of 1 to %d characters and without /, : or blanks, not %q"

// linuxName tells whether a Linux interface can have the name.
func linuxName(s string) bool {
	return s != "" && len(s) <= maxLinuxName && !strings.ContainsAny(s, "/:% \t\n") && s != "." && s != ".."
}

// hostAddress tells whether p is an address that an interface can have.
func hostAddress(p netip.Prefix) bool {
	a := p.Addr()
	if a.Is4() && p.Bits() < 31 {
		host := binary.BigEndian.Uint32(a.AsSlice()) << p.Bits()
		if host == 0 || host>>p.Bits() == ^uint32(0)>>p.Bits() {
			return false // the network's own and its broadcast address (RFC 1122 3.2.1.3)
		}
	}
	return !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() && !a.Is4In6()
}
