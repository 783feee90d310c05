package vmxnet3

import (
	"fmt"

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
	rcInner      = 3 << 12 // either bit: flags are about a packet in a tunnel's
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
	ring.CommandReceive[rxDesc, rxComp]
	run         *run
	longest     uint32 // longest frame that can't have been merged
	first       rxComp // of the packet
	firstSpeaks bool   // metadata-on = first
}

func (d *device) newRxQueue(r *run, index int) (q *rxQueue, err error) {
	cfg, desc := &r.cfg, &r.rxDescs()[index]
	if cfg.Buffers.Size < minHeadBuffer {
		return nil, fmt.Errorf("%w: buffers of %d bytes, at least %d", framework.ErrUnsupported, cfg.Buffers.Size, minHeadBuffer)
	}
	q = &rxQueue{
		run:         r,
		longest:     uint32(cfg.MTU) + longestHeaders,
		firstSpeaks: framework.MetadataOnQuirk.Get(d.quirks) == framework.FirstCompletion,
	}
	id, size := uint32(index), min(cfg.Buffers.Size, maxRxBufferLen)
	format := ring.ReceiveFormat{
		Align: ringAlign, Desc: rxOwner, Comp: rxCompOwner,
		Size:  size,
		Order: ring.OrderOf(d.quirks),
		Rings: []ring.ReceiveRing{
			{ID: id, Word: size | rxHead, Bell: d.regs.bell(regRxProd, index)},
			{ID: id + uint32(cfg.RxQueues), Word: size | rxBody, Bell: d.regs.bell(regRxProd2, index)},
		},
	}
	if framework.RxBellQuirk.Get(d.quirks) == framework.RxBellOnRequest {
		format.BellAsked = func() bool { return desc.control.Load()&0xFF != 0 }
	}
	if q.CommandReceive, err = ring.AllocCommandReceive[rxDesc, rxComp](d.dma, cfg.RxDescriptors, cfg.Buffers, format); err != nil {
		return nil, err
	}
	n := uint32(cfg.RxDescriptors)
	desc.rings, desc.sizes = [2]uint64{q.Addr(0), q.Addr(1)}, [2]uint32{n, n}
	desc.comp, desc.compSize = q.CompletionAddr(), uint32(q.Completions())
	desc.driverData = ^uint64(0)
	desc.vector = uint8(cfg.Interrupts.Rx(index))
	return q, nil
}

// Poll takes completions as they come. A packet that the device has not ended
// yet waits in the queue, with the buffers that it has so far.
func (q *rxQueue) Poll(dst *framework.Batch) framework.Verdict {
	for {
		c, ok := q.Next(dst)
		if ok && c.sop() && q.Open() {
			// The packet before has no end: it is delivered as a bad one. Then
			// this completion comes again.
			q.Fail(framework.DropDevice)
			q.Deliver(dst)
			continue
		}
		begins := !q.Open()
		if !ok || !q.Fill(c.queue(), c.index(), c.length()) {
			return q.End()
		}
		if begins {
			q.begin(&c)
		}
		if c.eop() {
			q.finish(&c)
			q.Deliver(dst)
		}
	}
}

// begin keeps a packet's first completion.
func (q *rxQueue) begin(c *rxComp) {
	q.first = *c
	if !c.sop() && c.length() > 0 {
		q.Fail(framework.DropDevice) // the rest of something that was lost
	}
}
