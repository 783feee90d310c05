// Package sink holds the simplest port: it swallows all that it is given.
package sink

import "nicd/framework"

// Port swallows packets. The zero value is ready.
type Port struct{ iface framework.Interface }

var _ framework.Port = (*Port)(nil)

// Attach implements framework.Port.
func (p *Port) Attach(i framework.Interface) error {
	p.iface = i
	return nil
}

// Deliver implements framework.Port.
func (p *Port) Deliver(queue int, b *framework.Batch) {
	var buffers [128]framework.Buffer
	for frags := b.Frags; len(frags) > 0; {
		n := min(len(frags), len(buffers))
		for i, f := range frags[:n] {
			buffers[i] = f.Buffer
		}
		p.iface.Release(queue, buffers[:n])
		frags = frags[n:]
	}
}

// TxReady implements framework.Port.
func (p *Port) TxReady(int) {}

// LinkChanged implements framework.Port.
func (p *Port) LinkChanged(framework.Link) {}

// Needs implements framework.Port: a sink takes everything.
func (p *Port) Needs() framework.PortNeeds {
	return framework.PortNeeds{Name: "sink", Accepts: framework.AllFeatures}
}

// Close implements framework.Port.
func (p *Port) Close() error { return nil }
