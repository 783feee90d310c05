package config

import (
	"regexp"
	"strings"

	"github.com/hashicorp/hcl/v2/hclsyntax"
)

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
	case "vfio":
		dev.VFIO = &VFIODevice{}
		if at, ok := s.required("address", &dev.VFIO.Address, b, dev.Origin); ok {
			address, ok := pciAddress(dev.VFIO.Address)
			if !ok {
				d.problem(at, "address is a PCI address such as \"0000:03:00.0\", not %q", dev.VFIO.Address)
			}
			dev.VFIO.Address = address
		}
		s.bool("allow_unsafe_noiommu", &dev.VFIO.AllowUnsafeNoIOMMU)
	case "qemu":
		d.problem(b.LabelRanges[0], "device of interface %s: a device of QEMU's is on a bus: write bus \"qemu\" \"NAME\" { } beside the interface, and device = \"qemu:NAME/MODEL\" in it", owner)
		return dev
	default:
		d.problem(b.LabelRanges[0], "unknown bus %q of %s%s", b.Labels[0], dev.Origin.What, didYouMean(b.Labels[0], []string{"sim", "vfio", "vfio-user"}))
		return dev
	}
	s.end(nil)
	return dev
}

var pciAddressForm = regexp.MustCompile(`^([0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-1][0-9a-f]\.[0-7]$`)

// pciAddress is an address as the kernel spells it: the domain may be left out,
// and letters may be capital ones.
func pciAddress(text string) (string, bool) {
	text = strings.ToLower(text)
	if !pciAddressForm.MatchString(text) {
		return "", false
	}
	if strings.Count(text, ":") == 1 {
		text = "0000:" + text
	}
	return text, true
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
