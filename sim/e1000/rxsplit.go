package e1000

import (
	"encoding/binary"

	"nicd/sim"
)

// Packet split receive descriptors (82574 datasheet 7.1.5.3 and 10.2.5.14): 32
// bytes, with four buffers. Headers of IP packets go to the first buffer and what
// follows to the others; any other packet fills them in turn. Rings count units
// of 16 bytes all the same, so each of these descriptors is two.
const (
	splitBuffers = 4
	splitUnits   = 2

	// Words behind those of an extended descriptor.
	rxSplitHeader = 16 // header length 9:0, HDRSP, then the length in buffer 1
	rxSplitRest   = 20 // lengths in buffers 2 and 3

	rxHDRSP       = 1 << 15
	rxHeaderBits  = 0x3FF
	lengthShifted = 16
)

// splitSizes are the sizes of the four buffers that PSRCTL gives.
func splitSizes(psrctl uint32) [splitBuffers]int {
	return [splitBuffers]int{
		int(psrctl&0x7F) << 7, // in units of 128 bytes, the others in KiB
		int(psrctl>>8&0x3F) << 10,
		int(psrctl>>16&0x3F) << 10,
		int(psrctl>>24&0x3F) << 10,
	}
}

// splitSlot is what a descriptor's buffers 1 to 3 get, and its header word.
type splitSlot struct {
	addr   [splitBuffers - 1]uint64
	n      [splitBuffers - 1]int
	header uint32
}

// headerLength is how much of a frame, as it is stored, is headers, 0 if it is
// not to be split.
func (r *receiver) headerLength(x *rxFrame) int {
	if !x.parsed || r.parsed.L4 == 0 {
		return 0
	}
	n := r.parsed.Payload
	if n == 0 {
		n = r.parsed.L4 // what it is, is not known
	}
	if r.strip && x.tagged {
		n -= sim.VLANTagLen
	}
	return n
}

// findSplit is find for packet split descriptors.
func (r *receiver) findSplit(x *rxFrame, length int) bool {
	q := x.queue
	r.slots = r.slots[:0]
	header := r.headerLength(x)
	if header > r.split[0] {
		header = 0
	}
	i := q.head
	for length > 0 {
		if i == q.tail || i+1 == q.tail || i+1 == q.size {
			return false
		}
		s := rxSlot{index: i}
		d := q.ring[i*descriptorSize:]
		s.addr = binary.LittleEndian.Uint64(d)
		switch {
		case len(r.slots) > 0: // the first buffer is for a packet's beginning
		case header > 0:
			s.n = header
			s.split.header = rxHDRSP | uint32(header)&rxHeaderBits
		default:
			s.n = min(length, r.split[0])
		}
		length -= s.n
		for b := range s.split.n {
			s.split.addr[b] = binary.LittleEndian.Uint64(d[8*(b+1):])
			s.split.n[b] = min(length, r.split[b+1])
			length -= s.split.n[b]
		}
		if s.n == 0 && s.split.n == [splitBuffers - 1]int{} {
			return false // descriptors without buffers hold nothing, ever
		}
		r.slots = append(r.slots, s)
		if i += splitUnits; i == q.size {
			i = 0
		}
	}
	return true
}

// fillSplit copies a frame's next bytes to a descriptor's buffers 1 to 3 and
// writes their lengths. It returns false for memory that it may not write.
func (r *receiver) fillSplit(q *rxQueue, s *rxSlot, from *cursor) bool {
	good := true
	for b, n := range s.split.n {
		if n == 0 {
			continue
		}
		dst := r.model.host.Rx.Bytes(s.split.addr[b], n)
		good = good && dst != nil
		from.next(dst, n)
	}
	d, n := q.ring[s.index*descriptorSize:], &s.split.n
	binary.LittleEndian.PutUint32(d[rxSplitHeader:], s.split.header|uint32(n[0])<<lengthShifted)
	binary.LittleEndian.PutUint32(d[rxSplitRest:], uint32(n[1])|uint32(n[2])<<lengthShifted)
	return good
}
