// Package forward is a port that passes frames on to other interfaces: those
// whose ports belong to one Bridge are one Ethernet segment, with a table of
// which address is where.
//
// What lives here: learning, flooding, copying from one interface's buffers to
// another's, and the promise that what was coalesced on the way in is not
// noticed on the way out (a coalesced packet is sent to be segmented, into the
// frames that arrived). What does not: segmenting itself (the egress device or
// its engine), and spanning tree: a loop of bridges has to be avoided by whoever
// wires them. VLANs share one table.
package forward

import (
	"sync"
	"time"

	"nicd/framework"
)

// Options of a Bridge. The zero value works.
type Options struct {
	Entries int           // places for addresses; 4096
	Age     time.Duration // after which a silent address is forgotten, in seconds; 300 s (IEEE 802.1Q-2018 table 8-6)
	// Now tells the time; nil is time.Now.
	Now func() time.Time
}

// maxPorts is what a table's entry can tell apart.
const maxPorts = 1 << 12

// Bridge joins ports. Its methods are for any goroutine.
type Bridge struct {
	table *table
	now   func() time.Time
	began time.Time

	// mu is held shared by each Deliver, so that no interface goes away while a
	// batch is copied to it, and alone to add and remove ports and to change their
	// links: what was behind one is forgotten when nobody learns it again.
	mu    sync.RWMutex
	ports []*Port // by index; nil is free

	counters counters
}

// NewBridge makes a bridge without ports.
func NewBridge(o Options) *Bridge {
	if o.Entries == 0 {
		o.Entries = 4096
	}
	if o.Age == 0 {
		o.Age = 300 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Bridge{table: newTable(o.Entries, uint32(o.Age/time.Second)), now: o.Now, began: o.Now()}
}

// second is the time in whole seconds, for ages.
func (b *Bridge) second() uint32 { return uint32(b.now().Sub(b.began) / time.Second) }

// NewPort makes another port. It belongs to the bridge from Attach to Close.
func (b *Bridge) NewPort() *Port { return &Port{bridge: b, index: -1} }

// maxQueues is the most receive queues that an interface has.
const maxQueues = 64

// Port is a framework.Port.
type Port struct {
	bridge *Bridge
	index  int
	iface  framework.Interface
	up     bool // the link; under bridge.mu
	// queues are made by the first Deliver of each queue, which has one caller
	// at a time.
	queues [maxQueues]*ingress
}

var (
	_ framework.Port         = (*Port)(nil)
	_ framework.CountingPort = (*Port)(nil)
)

// Attach implements framework.Port.
func (p *Port) Attach(i framework.Interface) error {
	b := p.bridge
	b.mu.Lock()
	defer b.mu.Unlock()
	p.iface = i
	for n, other := range b.ports {
		if other == nil {
			p.index, b.ports[n] = n, p
			return nil
		}
	}
	if len(b.ports) == maxPorts {
		return errFull
	}
	p.index = len(b.ports)
	b.ports = append(b.ports, p)
	return nil
}

// Deliver implements framework.Port. Packets are copied to where they go, so
// their buffers go straight back.
func (p *Port) Deliver(queue int, batch *framework.Batch) {
	b := p.bridge
	b.mu.RLock()
	q := p.queues[queue%maxQueues]
	if q == nil {
		q = newIngress(p)
		p.queues[queue%maxQueues] = q
	}
	q.forward(queue, batch)
	b.mu.RUnlock()
	q.release(queue, batch)
}

// TxReady implements framework.Port. Frames that find a queue full are dropped,
// as bridges do; nobody waits.
func (p *Port) TxReady(int) {}

// LinkChanged implements framework.Port: what was behind a link that went down
// may be elsewhere. Frames that come in behind the news teach nothing.
func (p *Port) LinkChanged(l framework.Link) {
	p.bridge.mu.Lock()
	defer p.bridge.mu.Unlock()
	if p.up && !l.Up && p.index >= 0 {
		p.bridge.table.forget(p.index)
	}
	p.up = l.Up
}

// Needs implements framework.Port. The frames of all stations have to come in,
// and what was coalesced has to come apart again; nobody coalesces UDP.
func (p *Port) Needs() framework.PortNeeds {
	return framework.PortNeeds{
		Name: "forward", Accepts: framework.AllFeatures &^ (framework.VLANFilter | framework.USO),
		ExactSegments: true, Promiscuous: true, AllMulticast: true,
	}
}

// Close takes the port out of the bridge. Nothing uses its interface afterwards.
func (p *Port) Close() error {
	b := p.bridge
	b.mu.Lock()
	defer b.mu.Unlock()
	if p.index < 0 {
		return nil
	}
	b.table.forget(p.index)
	clear(p.queues[:])
	b.ports[p.index], p.index = nil, -1
	return nil
}
