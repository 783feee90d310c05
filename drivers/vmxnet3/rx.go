package vmxnet3

import (
	"fmt"

	"nicd/bus"
	"nicd/framework"
	"nicd/framework/ring"
)

// rxDesc gives a buffer to the device. It is the ring that writes it.
type rxDesc struct {
	_ uint64 // address
	_ uint32 // flags
	_ uint32
}

// Flags of a receive descriptor; 13:0 are the buffer's length.
const (
	rxHead = 0
	rxBody = 1 << 14 // not for the start of a packet
	rxGen  = 1 << 31
)

// rxComp says what the device did with one buffer.
type rxComp struct {
	where uint32 // descriptor, queue, place in the packet
	hash  uint32 // or, in the first completion of a merged packet, its segments
	data  uint32 // length, error, VLAN tag
	flags uint32 // checksum or MSS, verdicts, type, generation
}

// Bits of rxComp.where; 11:0 are the descriptor's index.
const (
	rcIndex      = 1<<12 - 1
	rcEOP        = 1 << 14
	rcSOP        = 1 << 15
	rcQueueShift = 16
	rcQueueMask  = 1<<10 - 1
	rcHashShift  = 26
	rcHashMask   = 1<<4 - 1
	rcNoChecksum = 1 << 30 // nothing was found out about checksums
)

// Bits of rxComp.hash in a completion of typeLRO; 7:0 are the segments merged.
const rcSegments = 1<<8 - 1

// Bits of rxComp.data; 13:0 are the length.
const (
	rcLen      = 1<<14 - 1
	rcError    = 1 << 14
	rcTagged   = 1 << 15
	rcTagShift = 16
)

// Bits of rxComp.flags; 15:0 are the checksum, in typeLRO the MSS.
const (
	rcLow       = 1<<16 - 1
	rcL4OK      = 1 << 16
	rcUDP       = 1 << 17
	rcTCP       = 1 << 18
	rcIPOK      = 1 << 19
	rcIPv6      = 1 << 20
	rcIPv4      = 1 << 21
	rcFragment  = 1 << 22 // an IP fragment: nothing is known of layer 4
	rcFCSOK     = 1 << 23
	rcTypeShift = 24
	rcTypeMask  = 1<<7 - 1
	rcGen       = 1 << 31

	// typeLRO is the first completion of a merged packet, from revision 2 on.
	typeLRO = 4
)

func (c *rxComp) index() uint32  { return c.where & rcIndex }
func (c *rxComp) queue() uint32  { return c.where >> rcQueueShift & rcQueueMask }
func (c *rxComp) sop() bool      { return c.where&rcSOP != 0 }
func (c *rxComp) eop() bool      { return c.where&rcEOP != 0 }
func (c *rxComp) length() uint32 { return c.data & rcLen }
func (c *rxComp) bad() bool      { return c.data&rcError != 0 }
func (c *rxComp) merged() bool {
	return c.sop() && c.flags>>rcTypeShift&rcTypeMask == typeLRO
}

// Where the generation bits are.
var (
	rxOwner     = ring.Owner{Offset: 8, Bit: rxGen}
	rxCompOwner = ring.Owner{Offset: 12, Bit: rcGen}
)

// rxQueue is a receive queue: ring 1 for the starts of packets, ring 2 for what
// does not fit the first buffer, and one completion ring.
type rxQueue struct {
	run           *run
	index, queues uint32
	rings         [2]ring.Posted[rxDesc]
	comp          *ring.Completion[rxComp]
	bells         bus.Region
	desc          *queueDesc
	size          uint32 // bytes that the device may write to a buffer
	alwaysBell    bool   // ring whether the device asks or not
	announced     bool   // the one bell after activation has rung
	longest       uint32 // longest frame that can't have been merged
	broken        bool
	packet        framework.Assembly
	first         rxComp // of packet
	firstSpeaks   bool   // metadata-on = first
}

func (d *device) newRxQueue(r *run, index int) (q *rxQueue, err error) {
	cfg, desc := &r.cfg, &r.rxDescs()[index]
	if cfg.Buffers.Size < minHeadBuffer {
		return nil, fmt.Errorf("%w: buffers of %d bytes, at least %d", framework.ErrUnsupported, cfg.Buffers.Size, minHeadBuffer)
	}
	q = &rxQueue{
		run:         r,
		index:       uint32(index),
		queues:      uint32(cfg.RxQueues),
		bells:       d.regs.pt,
		desc:        desc,
		size:        min(cfg.Buffers.Size, maxRxBufferLen),
		alwaysBell:  framework.RxBellQuirk.Get(d.quirks) == framework.RxBellAlways,
		longest:     uint32(cfg.MTU) + longestHeaders,
		firstSpeaks: framework.MetadataOnQuirk.Get(d.quirks) == framework.FirstCompletion,
	}
	for i, kind := range [...]uint32{rxHead, rxBody} {
		r, err := ring.AllocCommand[rxDesc](d.dma, cfg.RxDescriptors, ringAlign, rxOwner)
		if err != nil {
			return nil, err
		}
		q.rings[i] = ring.NewPosted(r, cfg.Buffers, q.size|kind, framework.SkipsRxSlotsQuirk.Get(d.quirks))
		desc.rings[i], desc.sizes[i] = r.Addr(), uint32(cfg.RxDescriptors)
	}
	n := 2 * cfg.RxDescriptors
	if q.comp, err = ring.AllocCompletion[rxComp](d.dma, n, ringAlign, rxCompOwner); err != nil {
		return nil, err
	}
	desc.comp, desc.compSize = q.comp.Addr(), uint32(n)
	desc.driverData = ^uint64(0)
	desc.vector = uint8(cfg.Interrupts.Rx(index))
	return q, nil
}

// Post gives each buffer to the ring that lacks more, to ring 1 if both lack the
// same. With fewer buffers than the rings hold, a ring that came first would have
// them all: without ring 1 no packet starts, and without ring 2 none ends that is
// longer than a buffer, ever.
func (q *rxQueue) Post(bufs []framework.Buffer) int {
	first, second := &q.rings[0], &q.rings[1]
	for n, b := range bufs {
		r := first
		if second.Space() > first.Space() {
			r = second
		}
		if r.Space() == 0 {
			return n
		}
		r.Give(b)
	}
	return len(bufs)
}

// Bell writes the producer indices if the device has asked for that, and once
// after activation: otherwise it finds buffers by their generation bits, and the
// write would be a VM exit for nothing.
func (q *rxQueue) Bell() {
	if q.announced && !q.alwaysBell && q.desc.control.Load()&0xFF == 0 {
		return
	}
	q.announced = true
	q.bells.Write32(regRxProd+regStride*q.index, q.rings[0].Tail())
	q.bells.Write32(regRxProd2+regStride*q.index, q.rings[1].Tail())
}

// Pending tells whether there is a completion.
func (q *rxQueue) Pending() bool { return q.comp.Ready() && !q.broken }

// Poll takes completions as they come. A packet that the device has not ended
// yet waits in the queue, with the buffers that it has so far.
func (q *rxQueue) Poll(dst *framework.Batch) framework.Verdict {
	if q.broken {
		return framework.QueueFault
	}
	recycled := false
	for cur := q.comp.Cursor(); q.packet.Room(dst); q.comp.Seek(cur) {
		c, ok := q.comp.Peek(&cur)
		if !ok {
			break
		}
		if c.sop() && q.packet.Open() {
			// The packet before has no end. It is delivered as a bad one, and
			// this completion is looked at again.
			q.packet.Fail(framework.DropDevice)
			q.packet.Deliver(dst)
			cur = q.comp.Cursor()
			continue
		}
		kept, ok := q.consume(&c)
		if !ok {
			q.broken = true
			return framework.QueueFault
		}
		recycled = recycled || !kept
		if c.eop() {
			q.finish(&c)
			q.packet.Deliver(dst)
		}
	}
	if recycled {
		q.Bell()
	}
	return framework.Healthy
}

// consume takes the buffer of one completion into the packet being put together.
// A buffer with nothing in it goes back to its ring, wherever in a packet it
// is. It is not ok if the device names a buffer that it does not have.
func (q *rxQueue) consume(c *rxComp) (kept, ok bool) {
	var r *ring.Posted[rxDesc]
	switch c.queue() {
	case q.index:
		r = &q.rings[0]
	case q.index + q.queues:
		r = &q.rings[1]
	default:
		return false, false
	}
	b, ok := r.Take(c.index())
	if !ok {
		return false, false
	}
	if !q.packet.Open() {
		q.packet.Begin()
		q.first = *c
		if !c.sop() && c.length() > 0 {
			q.packet.Fail(framework.DropDevice) // the rest of something that was lost
		}
	}
	if kept = q.packet.Append(b, c.length(), q.size); !kept {
		r.Give(b)
	}
	return kept, true
}
