package config

import (
	"net"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"nicd/framework"
)

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
	s.duration("moderation", &i.Moderation, maxModeration)
	s.int("rx_budget", &i.RxBudget, 1, maxBudget)
	s.duration("spin", &i.Spin, time.Second)
	handoff := string(Abdicate)
	if at, ok := s.choice("tx_handoff", &handoff, string(Abdicate), string(Inline)); ok {
		s.place(i.Origin.What, "tx_handoff", at)
	}
	i.TxHandoff = TxHandoff(handoff)
	s.bool("promiscuous", &i.Promiscuous)
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
	addressed := s.deviceAddress(&i.Device, name)
	switch block := s.one("device", 1, func(v *hclsyntax.Block) { i.Device = d.device(v, name) }); {
	case block && addressed:
		d.problem(b.Body.Attributes["device"].NameRange, "interface %q has two devices, this and a block", name)
	case !block && !addressed:
		d.problem(b.TypeRange, "interface %q has no device; write device \"sim\" { } in it", name)
	}
	if !s.one("port", 1, func(p *hclsyntax.Block) { i.Port = d.port(p, name) }) {
		d.problem(b.TypeRange, "interface %q has no port; write port \"netstack\" { } in it", name)
	}
	s.end(inFeatures)
	return i
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

// inFeatures says the same of a feature's name.
func inFeatures(name string) string {
	if _, ok := framework.ParseFeature(name); ok {
		return name + " is a feature: it goes in features { }"
	}
	return inQuirks(name)
}
