package forward

import (
	"encoding/binary"
	"errors"

	"nicd/framework"
	"nicd/port/offload"
)

var errFull = errors.New("the bridge has as many ports as it can have")

// Ethernet, as far as a bridge looks at it.
const (
	etherLen    = 14
	groupBit    = uint64(1) << 40        // of an address: multicast or broadcast
	reserved    = uint64(0x0180c2) << 24 // IEEE 802.1Q-2018 table 8-1: never forwarded
	reservedLow = uint64(0x0f)
)

// ingress is one receive queue of a port: what it sends on waits in a batch for
// each port until the end of the batch that came in. It belongs to the caller of
// Deliver.
type ingress struct {
	port *Port
	out  []*egress // by port index
	back []framework.Buffer
}

func newIngress(p *Port) *ingress {
	return &ingress{port: p, back: make([]framework.Buffer, 0, 256)}
}

// forward passes a batch on.
func (q *ingress) forward(queue int, b *framework.Batch) {
	bridge := q.port.bridge
	memory, mtu := q.port.iface.Buffers(), q.port.iface.Settings().MTU
	q.prepare(queue, len(b.Packets), bridge.ports)
	now := bridge.second()
	for i := range b.Packets {
		p, frags := &b.Packets[i], b.Fragments(i)
		first := memory.Bytes(frags[0])
		if len(first) < etherLen {
			bridge.counters.filtered.Add(1)
			continue
		}
		to := binary.BigEndian.Uint64(first[0:]) >> 16
		from := binary.BigEndian.Uint64(first[6:]) >> 16
		if from&groupBit == 0 && from != 0 && q.port.up {
			bridge.table.learn(from, q.port.index, now)
		}
		if to&^reservedLow == reserved {
			bridge.counters.filtered.Add(1)
			continue
		}
		result := offload.Turn(p, first, mtu)
		if result == offload.Unverified {
			bridge.counters.unverified.Add(1) // its receiver would drop it
			continue
		}
		if to&groupBit == 0 {
			if port, ok := bridge.table.lookup(to, now); ok {
				q.send(port, p, frags, first, memory, result)
				continue
			}
		}
		q.flood(p, frags, first, memory, result)
	}
	for _, e := range q.out {
		e.finish()
	}
}

// prepare has an egress for each port, all with empty batches, for so many packets.
func (q *ingress) prepare(queue, packets int, ports []*Port) {
	for n := len(q.out); n < len(ports); n++ {
		q.out = append(q.out, &egress{counters: &q.port.bridge.counters})
	}
	for n, p := range ports {
		if p == nil {
			q.out[n].iface = nil
			continue
		}
		q.out[n].open(p, queue%p.iface.Queues(), packets)
	}
}

// send passes a packet to one port, unless that is where it came from.
func (q *ingress) send(port int, p *framework.Packet, frags []framework.Fragment, first []byte, memory *framework.Buffers, r offload.Result) {
	if port == q.port.index || port >= len(q.out) || q.out[port].iface == nil {
		q.port.bridge.counters.filtered.Add(1)
		return
	}
	q.out[port].add(p, frags, first, memory, r)
}

// flood passes a packet to all other ports whose link is up.
func (q *ingress) flood(p *framework.Packet, frags []framework.Fragment, first []byte, memory *framework.Buffers, r offload.Result) {
	q.port.bridge.counters.flooded.Add(1)
	for n, e := range q.out {
		if n != q.port.index && e.iface != nil && e.port.up {
			e.add(p, frags, first, memory, r)
		}
	}
}

// release gives a batch's buffers back.
func (q *ingress) release(queue int, b *framework.Batch) {
	for i := range b.Frags {
		q.back = append(q.back, b.Frags[i].Buffer)
		if len(q.back) == cap(q.back) {
			q.port.iface.Release(queue, q.back)
			q.back = q.back[:0]
		}
	}
	q.port.iface.Release(queue, q.back)
	q.back = q.back[:0]
}
