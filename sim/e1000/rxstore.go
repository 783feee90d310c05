package e1000

import (
	"encoding/binary"

	"nicd/sim"
)

// store writes a frame to memory. took is false if it has to wait; stored is
// false if it was dropped for want of descriptors.
func (r *receiver) store(x *rxFrame, pause bool) (took, stored bool) {
	q, m := x.queue, r.model
	x.length = r.gather(x)
	if !q.begin(m) {
		r.miss(q)
		return true, false
	}
	for again := false; !r.find(x); again = true {
		if (uint32(len(r.slots))+1)*r.units >= q.size {
			r.miss(q) // the ring can never hold it
			return true, false
		}
		if !pause || r.expired(q) || m.opt.Variation.DropsWhenShort && q.ready() > 0 {
			r.miss(q)
			return true, false
		}
		// Once: a driver that moves the tail all the time would keep it looking.
		if again || !q.refresh(m) {
			r.wait(q)
			return false, false
		}
	}
	before := q.ready()
	r.fill(x)
	r.arrived(x, before)
	return true, true
}

// miss counts a frame that found no room.
func (r *receiver) miss(q *rxQueue) {
	r.stats.add(statMPC, 1)
	r.stats.add(statRNBC, 1)
	r.causes |= causeRXO
}

// wait makes the sender wait for descriptors.
func (r *receiver) wait(q *rxQueue) {
	bit := uint32(1) << q.index
	q.shortTail.Store(q.bell)
	first := r.short.Or(bit)&bit == 0
	// The driver stores the tail and then looks whether the device sleeps; the
	// device says that it waits and then looks at the tail. One sees the other.
	if r.model.host.Doorbell(bellRDT+q.index) != q.bell {
		r.model.host.Wake()
	}
	if q.since == 0 {
		q.since = max(r.model.host.Now(), 1)
		r.model.schedule(q.since + pauseLimit)
	}
	if first {
		r.stats.add(statRNBC, 1)
		r.stats.add(statXOFFTXC, 1)
	}
}

// find chooses descriptors for a frame. A descriptor without a buffer is
// passed over (null descriptor padding, 8254x SDM 3.2.6).
func (r *receiver) find(x *rxFrame) bool {
	q, length := x.queue, x.length
	if r.units == splitUnits {
		return r.findSplit(x, length)
	}
	r.slots = r.slots[:0]
	split := 0
	if !r.stripFCS && r.model.opt.Variation.SplitFCS {
		split, length = fcsLen, length-fcsLen
	}
	i := q.head
	for length > 0 {
		if i == q.tail {
			return false
		}
		s := rxSlot{index: i, addr: binary.LittleEndian.Uint64(q.ring[i*descriptorSize:])}
		if s.addr != 0 {
			s.n = min(length, r.bufferSize)
			length -= s.n
		}
		r.slots = append(r.slots, s)
		if i++; i == q.size {
			i = 0
		}
		if length == 0 {
			length, split = split, 0
		}
	}
	return true
}

// fill copies the frame to the chosen descriptors' buffers and writes the
// descriptors back. Memory that it may not write makes a frame with RXE.
func (r *receiver) fill(x *rxFrame) {
	q, bad := x.queue, false
	from := cursor{parts: r.parts}
	for k := range r.slots {
		s := &r.slots[k]
		if s.n > 0 {
			dst := r.model.host.Rx.Bytes(s.addr, s.n)
			bad = bad || dst == nil
			from.next(dst, s.n)
		}
		if r.units == splitUnits {
			bad = !r.fillSplit(q, s, &from) || bad
		}
		if k < len(r.slots)-1 {
			r.writeBackPart(q, s)
			continue
		}
		errors := x.errors
		if bad {
			errors |= rxErrRXE
		}
		r.writeBackLast(x, s, errors)
	}
	q.since = 0
	q.head = r.slots[len(r.slots)-1].index + r.units
	if q.head >= q.size {
		q.head = 0
	}
}

// cursor walks over parts.
type cursor struct {
	parts [][]byte
	off   int
}

// next copies n bytes to dst, or passes over them if dst is nil.
func (c *cursor) next(dst []byte, n int) {
	for n > 0 {
		p := c.parts[0][c.off:]
		k := min(len(p), n)
		if dst != nil {
			copy(dst, p[:k])
			dst = dst[k:]
		}
		n -= k
		if c.off += k; c.off == len(c.parts[0]) {
			c.parts, c.off = c.parts[1:], 0
		}
	}
}

// writeBackPart returns a descriptor that is not its frame's last.
func (r *receiver) writeBackPart(q *rxQueue, s *rxSlot) {
	d := q.ring[s.index*descriptorSize:]
	if r.extended {
		binary.LittleEndian.PutUint64(d, 0)
		binary.LittleEndian.PutUint32(d[rxExtLength:], uint32(s.n))
		descriptorWord(q.ring, s.index, rxExtStatus).Store(rxDD)
		return
	}
	if s.n > 0 {
		binary.LittleEndian.PutUint32(d[rxLegacyLength:], uint32(s.n))
	}
	descriptorWord(q.ring, s.index, rxLegacyStatus).Store(rxDD)
}

// writeBackLast returns a frame's last descriptor, with all that is known.
func (r *receiver) writeBackLast(x *rxFrame, s *rxSlot, errors uint32) {
	q := x.queue
	d := q.ring[s.index*descriptorSize:]
	length, vlan := r.lie(uint32(s.n)), uint32(0)
	if x.status&rxVP != 0 {
		vlan = uint32(x.tci)
	}
	if !r.extended {
		binary.LittleEndian.PutUint32(d[rxLegacyLength:], length|uint32(x.sum)<<16)
		status := x.status&0xFF | rxDD | rxEOP
		descriptorWord(q.ring, s.index, rxLegacyStatus).Store(status | errors<<8 | vlan<<16)
		return
	}
	status := x.status | rxDD | rxEOP
	second := x.hash
	if !r.reportHash {
		second = uint32(x.sum) << 16
		if x.parsed && !r.parsed.IPv6 {
			status |= rxExtIPIDV
			second |= uint32(binary.BigEndian.Uint16(x.head[r.parsed.IP+4:]))
		}
	}
	binary.LittleEndian.PutUint32(d[rxExtMRQ:], x.mrq)
	binary.LittleEndian.PutUint32(d[rxExtHash:], second)
	binary.LittleEndian.PutUint32(d[rxExtLength:], length|vlan<<16)
	descriptorWord(q.ring, s.index, rxExtStatus).Store(status | errors<<rxExtErrorShift)
}

// lie applies Variation.BadLengthEvery.
func (r *receiver) lie(length uint32) uint32 {
	every := r.model.opt.Variation.BadLengthEvery
	if every == 0 || r.seen%every != 0 {
		return length
	}
	if r.seen/every&1 == 0 {
		return 0
	}
	return 0xFFFF
}

// arrived adds up the causes of a frame in memory; before is how many
// descriptors there were.
func (r *receiver) arrived(x *rxFrame, before uint32) {
	q := x.queue
	r.causes |= causeRXT0 | causeRXQ0<<q.index
	if x.frame.Len <= r.smallPacket {
		r.causes |= causeSRPD
	}
	if x.status&rxExtACK != 0 {
		r.causes |= causeACK
	}
	if min := q.size >> r.minThreshold; before > min && q.ready() <= min {
		r.causes |= causeRXDMT0
	}
}

var _ sim.End = (*Model)(nil)
var _ sim.Model = (*Model)(nil)
