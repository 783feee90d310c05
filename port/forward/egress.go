package forward

import (
	"nicd/framework"
	"nicd/port/offload"
)

// Sizes of an egress batch. It is sent when it is full, and at the end of the
// batch that came in.
const (
	egressPackets   = 64
	egressFragments = 256
	// buffersAtHand is how many empty buffers are taken at once, at most.
	buffersAtHand = 64
	// headroom lets the egress engine put a VLAN tag in front, and keeps IP
	// headers aligned.
	headroom = 16 + framework.RxOffset
)

// egress is what one receive queue sends to one port.
type egress struct {
	counters *counters
	port     *Port
	iface    framework.Interface // nil: no such port now
	memory   *framework.Buffers
	queue    int
	mtu      uint32
	batch    *framework.Batch
	expected int                // packets, at most
	buffers  []framework.Buffer // at hand, empty; none between two batches that come in
}

// open makes p the port that is sent to: so many packets at most.
func (e *egress) open(p *Port, queue, packets int) {
	e.mtu, e.expected = uint32(p.iface.Settings().MTU), packets
	if e.iface == p.iface && e.queue == queue {
		return
	}
	e.port, e.iface, e.memory, e.queue = p, p.iface, p.iface.Buffers(), queue
	if e.batch == nil {
		e.batch = framework.NewBatch(egressPackets, egressFragments)
		e.buffers = make([]framework.Buffer, 0, max(buffersAtHand, framework.MaxFragments))
	}
}

// add copies a packet into the batch, or drops it and counts why. result says
// what offload.Turn did to it.
func (e *egress) add(p *framework.Packet, frags []framework.Fragment, first []byte, memory *framework.Buffers, result offload.Result) {
	out := *p
	if !e.fits(&out, first, result) {
		e.counters.tooLong.Add(1)
		return
	}
	size := min(e.memory.Size, e.memory.Stride-headroom)
	n := int((out.Len + size - 1) / size)
	if n > framework.MaxFragments {
		e.counters.tooLong.Add(1)
		return
	}
	if !e.batch.Room(n) {
		e.flush()
	}
	if !e.have(n) {
		e.counters.full.Add(1)
		return
	}
	out.First, out.Frags = uint32(len(e.batch.Frags)), uint16(n)
	e.copy(frags, memory, size, out.Len)
	e.batch.Packets = append(e.batch.Packets, out)
}

// fits tells whether a packet, or each of its segments, is within the egress MTU.
// A segment size that was a guess is lowered to what fits.
func (e *egress) fits(p *framework.Packet, first []byte, result offload.Result) bool {
	longest := p.Len
	if p.Flags&framework.Segment != 0 {
		longest = uint32(p.HeaderLen) + uint32(p.SegmentSize)
	}
	if longest <= etherLen+e.mtu {
		return true
	}
	l3, _ := framework.NetworkHeader(first) // tags in the frame are not the MTU's
	most := uint32(l3) + e.mtu
	if longest > most && result == offload.Estimated && most > uint32(p.HeaderLen) {
		p.Flags |= framework.Segment // it may have been taken for a single segment
		p.SegmentSize = uint16(most - uint32(p.HeaderLen))
		return true
	}
	return longest <= most
}

func (e *egress) have(n int) bool {
	if len(e.buffers) >= n {
		return true
	}
	have := len(e.buffers)
	got := e.iface.Alloc(e.queue, e.buffers[have:max(min(e.expected, buffersAtHand), n)])
	e.buffers = e.buffers[:have+got]
	return len(e.buffers) >= n
}

// copy copies length bytes into buffers at hand and appends those to the batch.
func (e *egress) copy(frags []framework.Fragment, memory *framework.Buffers, size, length uint32) {
	var from []byte
	for length > 0 {
		f := framework.Fragment{Buffer: e.buffers[len(e.buffers)-1], Offset: headroom, Len: min(size, length)}
		e.buffers = e.buffers[:len(e.buffers)-1]
		length -= f.Len
		e.batch.Frags = append(e.batch.Frags, f)
		for to := e.memory.Bytes(f); len(to) > 0; {
			if len(from) == 0 {
				from, frags = memory.Bytes(frags[0]), frags[1:]
			}
			n := copy(to, from)
			to, from = to[n:], from[n:]
		}
	}
}

// flush sends the batch. What the interface does not take is dropped; its buffers
// stay at hand as far as there is room for them.
func (e *egress) flush() {
	if len(e.batch.Packets) == 0 {
		return
	}
	total := len(e.batch.Packets)
	sent := e.iface.Send(e.queue, e.batch)
	e.counters.forwarded.Add(uint64(sent))
	e.counters.full.Add(uint64(total - sent))
	for i := sent; i < total; i++ {
		for _, f := range e.batch.Fragments(i) {
			if len(e.buffers) == cap(e.buffers) {
				e.giveBack()
			}
			e.buffers = append(e.buffers, f.Buffer)
		}
	}
	e.batch.Reset()
}

// finish sends what is left and returns the buffers at hand to the interface: others
// may have none, and when this queue has something to send again nobody knows.
func (e *egress) finish() {
	if e.iface == nil {
		return
	}
	e.flush()
	e.giveBack()
}

func (e *egress) giveBack() {
	e.iface.Release(e.queue, e.buffers)
	e.buffers = e.buffers[:0]
}
