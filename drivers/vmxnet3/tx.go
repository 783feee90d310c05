package vmxnet3

import (
	"nicd/framework"
	"nicd/framework/ring"
)

// txDesc is a fragment to send.
type txDesc struct {
	addr  uint64
	frame uint32 // length, generation, what the offload needs
	flags uint32
}

// Bits of txDesc.frame. 13:0 are the length, in which 0 is 16384; 31:18 are the
// MSS or the offset of the checksum.
const (
	txLen         = 1<<14 - 1
	txGen         = 1 << 14
	txDetailShift = 18
)

// Bits of txDesc.flags; 9:0 are the length of the headers that the offload goes
// by, 31:16 the VLAN tag.
const (
	txChecksum = 2 << 10
	txSegment  = 3 << 10
	txEOP      = 1 << 12
	txReport   = 1 << 13 // the packet wants a completion
	txTag      = 1 << 15
	txTagShift = 16
)

// txComp reports the last descriptor of a packet.
type txComp [4]uint32

var txFormat = ring.TransmitFormat{
	Align:           ringAlign,
	Desc:            ring.Owner{Offset: 8, Bit: txGen},
	Comp:            ring.Owner{Offset: 12, Bit: 1 << 31},
	CompletionIndex: ring.Field{Offset: 0, Mask: 1<<12 - 1},
}

// dataDescSize is the size of an entry of the data ring. Revision 1 knows no other.
const dataDescSize = 128

// txQueue is a transmit queue: a ring and its completion ring, and beside each
// descriptor an entry of the data ring.
type txQueue struct {
	ring.CommandTransmit[txDesc, txComp]
	buffers *framework.Buffers
	data    framework.Block
	bell    framework.Register
	desc    *queueDesc
	waiting uint32 // packets put and not announced, after segmentation
	told    uint32 // producer index at the last Bell
}

func (d *device) newTxQueue(r *run, index int) (q *txQueue, err error) {
	n, desc := r.cfg.TxDescriptors, &r.txDescs()[index]
	q = &txQueue{buffers: r.cfg.Buffers, bell: d.regs.bell(regTxProd, index), desc: desc}
	lost := func() { r.broken.Or(1 << index) } // Admin tells
	if q.CommandTransmit, err = ring.AllocCommandTransmit[txDesc, txComp](d.dma, n, txFormat, lost); err != nil {
		return nil, err
	}
	if q.data, err = d.dma.Alloc(n*dataDescSize, ringAlign); err != nil {
		return nil, err
	}
	desc.rings, desc.sizes = [2]uint64{q.Addr(), q.data.Addr}, [2]uint32{uint32(n), uint32(n)}
	desc.dataDescSize = dataDescSize
	desc.comp, desc.compSize = q.CompletionAddr(), uint32(n)
	desc.driverData = ^uint64(0)
	desc.vector = uint8(txVector(&r.cfg.Interrupts, index))
	return q, nil
}

// Put writes descriptors and publishes each packet as a whole: its first
// descriptor becomes the device's last.
func (q *txQueue) Put(b *framework.Batch, from int) int {
	for i := from; i < len(b.Packets); i++ {
		p, frags := &b.Packets[i], b.Fragments(i)
		if q.Space() < len(frags) {
			return i - from
		}
		q.put(p, frags)
	}
	return len(b.Packets) - from
}

func (q *txQueue) put(p *framework.Packet, frags []framework.Fragment) {
	detail, flags := q.offload(p, frags)
	report := p.Flags&framework.Completion != 0
	for i, f := range frags {
		if i == len(frags)-1 {
			flags |= txEOP
			if report {
				flags |= txReport
			}
		}
		d := q.Next()
		d.addr, d.flags = q.addr(f, i == 0), flags
		q.Add(f.Len&txLen | detail)
		detail, flags = 0, 0 // only the first descriptor says how
	}
	q.End(report)
}

// addr is from where the device is to fetch fragment f of the next descriptor. It has
// the data ring at hand, so the first fragment is copied there if it fits: a small
// packet, or the headers of one whose payload is elsewhere.
func (q *txQueue) addr(f framework.Fragment, first bool) uint64 {
	if !first || f.Len > dataDescSize {
		return q.buffers.FragmentAddr(f)
	}
	at := q.Tail() * dataDescSize
	copy(q.data.Bytes[at:at+dataDescSize], q.buffers.Bytes(f))
	return q.data.Addr + uint64(at)
}

// offload is what the packet's first descriptor has to say, and counts the
// frames that come of the packet.
func (q *txQueue) offload(p *framework.Packet, frags []framework.Fragment) (detail, flags uint32) {
	if p.Flags&framework.VLANTag != 0 {
		flags = txTag | uint32(p.VLAN)<<txTagShift
	}
	frames := uint32(1)
	switch {
	case p.Flags&framework.Segment != 0:
		header, mss := uint32(p.HeaderLen), uint32(p.SegmentSize)
		framework.ClearForSegment(q.buffers.Bytes(frags[0]), false)
		detail = mss << txDetailShift
		flags |= txSegment | header // TCP's included
		frames = (p.Len - header + mss - 1) / mss
	case p.Flags&framework.ChecksumPartial != 0:
		detail = uint32(p.ChecksumStart+p.ChecksumOffset) << txDetailShift
		flags |= txChecksum | uint32(p.ChecksumStart)
	}
	q.waiting += frames
	return detail, flags
}

// Bell rings once as many packets wait as the device wants to hear of at once;
// it looks after fewer by itself. A Bell with nothing new put rings in any case:
// someone has waited for too long.
func (q *txQueue) Bell() {
	tail := q.Tail()
	if tail != q.told && q.waiting < q.desc.threshold.Load() {
		q.told = tail
		q.desc.control.Store(q.waiting)
		return
	}
	q.told, q.waiting = tail, 0
	q.desc.control.Store(0)
	q.bell.Write(tail)
}
