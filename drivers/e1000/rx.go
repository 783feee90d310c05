package e1000

import (
	"nicd/bus"
	"nicd/framework"
	"nicd/framework/ring"
)

// rxDesc is a receive descriptor. It is given with the buffer's address and zeros
// and comes back in one of two forms:
//
//	word  legacy                          extended (82574)
//	0     address                         queue, hash type
//	1     address                         hash
//	2     length, sum                     status and errors
//	3     status, errors, VLAN tag        length, VLAN tag
type rxDesc struct {
	addr   uint64
	w2, w3 uint32
}

// Status and errors as the extended form has them; DD is bit 0 in both forms.
const (
	rxDone      = 1 << 0
	rxEOP       = 1 << 1
	rxIgnore    = 1 << 2 // nothing was found out about checksums
	rxTagged    = 1 << 3
	rxUDP       = 1 << 4
	rxL4        = 1 << 5 // the TCP or UDP checksum was looked at
	rxIP        = 1 << 6 // the IPv4 checksum was looked at
	rxErrorL4   = 1 << 29
	rxErrorIP   = 1 << 30
	rxErrorData = 1 << 31
	// Bad frame check sequence, symbol, sequence, carrier extension.
	rxErrorFrame = 1<<24 | 1<<25 | 1<<26 | 1<<28

	rxHashType = 15 // of word 0, extended
)

// The word that has DD.
var (
	legacyOwner   = ring.Owner{Offset: 12, Bit: rxDone}
	extendedOwner = ring.Owner{Offset: 8, Bit: rxDone}
)

// rxResult is a descriptor that came back, whatever its form.
type rxResult struct {
	status, length uint32
	vlan           uint16
	hash           uint32
	hashed         bool
}

func (d *rxDesc) legacy() rxResult {
	return rxResult{
		status: d.w3&0xFF | d.w3>>8&0xFF<<24,
		length: d.w2 & 0xFFFF,
		vlan:   uint16(d.w3 >> 16),
	}
}

func (d *rxDesc) extended() rxResult {
	return rxResult{
		status: d.w2,
		length: d.w3 & 0xFFFF,
		vlan:   uint16(d.w3 >> 16),
		hash:   uint32(d.addr >> 32),
		hashed: d.addr&rxHashType != 0,
	}
}

// rxQueue is a receive queue.
type rxQueue struct {
	ring     *ring.Done[rxDesc]
	slots    *ring.Slots[framework.Buffer]
	buffers  *framework.Buffers
	bar      bus.Region
	tail     uint32 // the tail register
	told     uint32 // its value
	size     uint32 // of a buffer, as the device was told
	extended bool
	hashes   bool // word 1 is a hash, not a sum
	packet   framework.Assembly
}

// give posts b; there is space.
func (q *rxQueue) give(b framework.Buffer) {
	q.slots.Put(q.ring.Tail(), b)
	*q.ring.Next() = rxDesc{addr: q.buffers.RxAddr(b)}
	q.ring.Add()
}

// Post fills the ring.
func (q *rxQueue) Post(bufs []framework.Buffer) int {
	n := 0
	for ; n < len(bufs) && q.ring.Space() > 0; n++ {
		q.give(bufs[n])
	}
	return n
}

// Bell moves the tail, if there is anything new before it.
func (q *rxQueue) Bell() {
	if t := q.ring.Tail(); t != q.told {
		q.told = t
		q.bar.Write32(q.tail, t)
	}
}

// Pending tells whether a descriptor has come back.
func (q *rxQueue) Pending() bool { return q.ring.Ready() }

// Poll takes descriptors as they come. A packet that has not ended yet waits in
// the queue, with the buffers that it has so far.
func (q *rxQueue) Poll(dst *framework.Batch) framework.Verdict {
	recycled := false
	for q.packet.Room(dst) {
		i, d, ok := q.ring.Take()
		if !ok {
			break
		}
		var r rxResult
		if q.extended {
			r = d.extended()
		} else {
			r = d.legacy()
		}
		b, _ := q.slots.Take(i)
		if !q.consume(b, &r) {
			q.give(b)
			recycled = true
		}
		if r.status&rxEOP != 0 {
			q.finish(&r)
			q.packet.Deliver(dst)
		}
	}
	if recycled {
		q.Bell()
	}
	return framework.Healthy
}

// consume takes a buffer into the packet being put together, unless there is
// nothing in it.
func (q *rxQueue) consume(b framework.Buffer, r *rxResult) (kept bool) {
	p := &q.packet
	if !p.Open() {
		p.Begin()
	}
	n := r.length
	if n > q.size {
		n = q.size
		p.Fail(framework.DropDevice)
	}
	return n > 0 && p.Add(b, n)
}

// finish gives the packet what its last descriptor says of it.
func (q *rxQueue) finish(r *rxResult) {
	p := &q.packet.Packet
	switch {
	case r.status&rxErrorFrame != 0:
		q.packet.Fail(framework.DropCRC)
		return
	case r.status&rxErrorData != 0:
		q.packet.Fail(framework.DropDevice)
		return
	}
	p.Flags |= verdict(r.status)
	if r.status&rxTagged != 0 {
		p.VLAN = r.vlan
		p.Flags |= framework.VLANTag
	}
	if q.hashes && r.hashed {
		p.Hash = r.hash
		p.Flags |= framework.HashValid
	}
}

// verdict is what the device found out about checksums. RXCSUM says what it
// looks at, so there is nothing to find while rx-csum is off.
func verdict(status uint32) (f framework.PacketFlags) {
	if status&rxIgnore != 0 {
		return 0
	}
	if status&rxIP != 0 {
		f |= framework.IPv4
	}
	if status&rxUDP != 0 {
		f |= framework.UDP
	}
	switch {
	case status&rxIP != 0 && status&rxErrorIP != 0,
		status&(rxL4|rxUDP) != 0 && status&rxErrorL4 != 0:
		f |= framework.ChecksumBad
	case status&(rxL4|rxUDP) != 0:
		f |= framework.ChecksumVerified
	}
	return f
}
