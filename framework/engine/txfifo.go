package engine

import "nicd/framework"

// txFIFO remembers what the device has been given and not finished, oldest first:
// for each packet when it was put, how many buffers come back with it, and
// whether it is the last that was made of a packet from above.
type txFIFO struct {
	packets      []txEntry // ring; the length is a power of two
	bufs         []framework.Buffer
	head, tail   uint32 // of packets
	bhead, btail uint32 // of bufs
}

type txEntry struct {
	at    int64
	bufs  uint16
	whole bool // completes a packet from above
}

// newTxFIFO makes a FIFO for a ring of so many descriptors. A packet has at least
// one descriptor, but may give back more buffers than it has. A whole stage fits
// into an empty FIFO.
func newTxFIFO(descriptors int, s *txStage) txFIFO {
	return txFIFO{
		packets: make([]txEntry, powerOfTwo(descriptors+cap(s.out.Packets))),
		bufs:    make([]framework.Buffer, powerOfTwo(2*descriptors+cap(s.out.Frags)+cap(s.bufs))),
	}
}

func powerOfTwo(n int) int {
	p := 1
	for p < n {
		p *= 2
	}
	return p
}

func (f *txFIFO) len() int { return int(f.tail - f.head) }

// room tells how many packets and buffers fit.
func (f *txFIFO) room() (packets, bufs int) {
	return len(f.packets) - f.len(), len(f.bufs) - int(f.btail-f.bhead)
}

// oldest is when the oldest packet was put, 0 if there is none.
func (f *txFIFO) oldest() int64 {
	if f.head == f.tail {
		return 0
	}
	return f.packets[f.head&uint32(len(f.packets)-1)].at
}

// push appends a packet with its buffers.
func (f *txFIFO) push(at int64, bufs []framework.Buffer, whole bool) {
	f.packets[f.tail&uint32(len(f.packets)-1)] = txEntry{at, uint16(len(bufs)), whole}
	f.tail++
	for _, b := range bufs {
		f.bufs[f.btail&uint32(len(f.bufs)-1)] = b
		f.btail++
	}
}

// pushPlain appends a packet whose buffers are those of its fragments. Fragments
// that follow each other in one buffer are one buffer.
func (f *txFIFO) pushPlain(at int64, frags []framework.Fragment) {
	n, last := uint16(0), framework.NoBuffer
	for i := range frags {
		if b := frags[i].Buffer; b != last {
			f.bufs[f.btail&uint32(len(f.bufs)-1)] = b
			f.btail++
			n++
			last = b
		}
	}
	f.packets[f.tail&uint32(len(f.packets)-1)] = txEntry{at, n, true}
	f.tail++
}

// pop removes the oldest packet; popBuffer follows for each of its buffers.
func (f *txFIFO) pop() txEntry {
	e := f.packets[f.head&uint32(len(f.packets)-1)]
	f.head++
	return e
}

// popBuffer removes the oldest buffer.
func (f *txFIFO) popBuffer() framework.Buffer {
	b := f.bufs[f.bhead&uint32(len(f.bufs)-1)]
	f.bhead++
	return b
}
