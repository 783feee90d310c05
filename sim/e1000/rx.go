package e1000

import (
	"encoding/binary"
	"hash/crc32"

	"nicd/sim"
)

// Wants implements sim.End: the chips do not merge segments, and they leave good
// checksums in memory, which this model fills in while it copies.
func (m *Model) Wants() sim.Wants { return sim.Wants{Partial: true} }

// Receive implements sim.End.
func (m *Model) Receive(frames []sim.Frame, pause bool) int {
	r := &m.rx
	m.host.Rx.Lock()
	defer m.host.Rx.Unlock()
	if !r.enabled {
		return len(frames)
	}
	if r.deaf != 0 {
		return r.defers(frames, pause)
	}
	for i := range r.queues {
		r.queues[i].ring = nil
	}
	r.causes = 0
	n := 0
	for n < len(frames) && r.accept(&frames[n], pause) {
		n++
	}
	if r.causes != 0 {
		m.irq.raiseRx(r.causes)
	}
	return n
}

// defers is Receive while the device is deaf.
func (r *receiver) defers(frames []sim.Frame, pause bool) int {
	if !pause {
		r.stats.add(statMPC, uint64(len(frames)))
		return len(frames)
	}
	r.queues[0].shortTail.Store(r.model.host.Doorbell(bellRDT))
	r.short.Or(1)
	return 0
}

// rxFrame is what is found out about a frame on its way into memory.
type rxFrame struct {
	frame  *sim.Frame
	head   []byte // the headers
	copied bool   // head is in scratch, not the sender's
	parsed bool   // it is IP; receiver.parsed says what
	tagged bool
	tci    uint16
	queue  *rxQueue
	hash   uint32
	mrq    uint32
	status uint32 // as in an extended descriptor
	errors uint32
	sum    uint16
	length int // bytes to store
}

// accept takes a frame, into memory or to nowhere, and returns false if it has
// to wait for descriptors.
func (r *receiver) accept(f *sim.Frame, pause bool) bool {
	if f.Len < sim.EthernetHeaderLen {
		r.stats.add(statRUC, 1)
		return true
	}
	x := rxFrame{frame: f}
	x.head = f.Parts[0]
	if len(x.head) < min(f.Len, headerView) {
		x.head = r.scratch[:f.CopyTo(r.scratch[:], 0)]
		x.copied = true
	}
	pass, inexact := r.filter.match(x.head)
	if x.tagged = r.filter.tagged(x.head); x.tagged {
		x.tci = binary.BigEndian.Uint16(x.head[14:])
		pass = pass && r.filter.matchVLAN(x.tci)
	}
	if inexact {
		x.status |= rxPIF
	}
	if !pass || !r.fits(f.Len) || !r.sound(&x) {
		r.count(f.Len, x.head, false)
		return true
	}
	r.classify(&x)
	took, stored := r.store(&x, pause)
	if !took {
		r.seen-- // it comes again
		return false
	}
	if x.errors&rxErrCE != 0 {
		r.countBad()
	}
	r.count(f.Len, x.head, stored)
	return true
}

// fits tells whether a frame's length is one that is received.
func (r *receiver) fits(length int) bool {
	limit := maxStandard
	if r.longPackets {
		limit = maxLong
	}
	switch {
	case length < minFrame && r.model.opt.Variation.DiscardRunts:
		r.stats.add(statRUC, 1)
		return false
	case length+fcsLen > limit:
		r.stats.add(statROC, 1)
		return false
	}
	return true
}

// sound applies Variation.BadFrameEvery.
func (r *receiver) sound(x *rxFrame) bool {
	r.seen++
	every := r.model.opt.Variation.BadFrameEvery
	if every == 0 || r.seen%every != 0 {
		return true
	}
	x.errors |= rxErrCE
	if !r.storeBad {
		r.countBad()
	}
	return r.storeBad
}

func (r *receiver) countBad() {
	r.stats.add(statCRCERRS, 1)
	r.stats.add(statRXERRC, 1)
}

// classify parses the headers, chooses the queue and checks the checksums.
func (r *receiver) classify(x *rxFrame) {
	x.queue = &r.queues[0]
	x.parsed = sim.ParseHeaders(&r.parsed, x.head, x.frame.Len)
	if r.rss.on && x.parsed {
		hash, kind, queue := r.rss.classify(&r.parsed, x.head)
		x.queue = &r.queues[queue]
		x.hash = hash
		x.mrq = kind | uint32(queue)<<rxExtQueueShift
	}
	if x.parsed && r.noticeACK && isACK(&r.parsed, x.head) {
		x.status |= rxExtACK
	}
	r.check(x)
}

// isACK tells whether a frame is a TCP acknowledgement without data.
func isACK(p *sim.Headers, head []byte) bool {
	const flags = sim.TCPAck | sim.TCPSyn | sim.TCPFin | sim.TCPRst
	return p.Protocol == sim.ProtocolTCP && p.Payload != 0 && p.Payload == p.End && head[p.L4+13]&flags == sim.TCPAck
}

// gather lists in r.parts what is written to memory and returns its length.
func (r *receiver) gather(x *rxFrame) int {
	f := x.frame
	parts := append(r.parts[:0], x.head)
	skip := len(x.head)
	for _, p := range f.Parts {
		if skip >= len(p) {
			skip -= len(p)
			continue
		}
		parts = append(parts, p[skip:])
		skip = 0
	}
	length := f.Len
	if pad := minFrame - f.Len; pad > 0 {
		parts = append(parts, zeros[:pad])
		length = minFrame
	}
	if !r.stripFCS {
		crc := uint32(0)
		for _, p := range parts {
			crc = crc32.Update(crc, crc32.IEEETable, p)
		}
		binary.LittleEndian.PutUint32(r.fcs[:], crc)
		parts = append(parts, r.fcs[:])
		length += fcsLen
	}
	if r.strip && x.tagged {
		parts = append(parts, nil)
		copy(parts[2:], parts[1:])
		parts[0], parts[1] = x.head[:12], x.head[12+sim.VLANTagLen:]
		length -= sim.VLANTagLen
		x.status |= rxVP
	}
	r.parts = parts
	return length
}

var zeros [minFrame]byte

// count adds a frame to the statistics; good is one that reached memory.
func (r *receiver) count(length int, head []byte, good bool) {
	n := max(length, minFrame) + fcsLen
	s := &r.stats
	s.add(statTPR, 1)
	s.add(statTOR, uint64(n))
	if !good {
		return
	}
	s.add(statPRC64+sizeClass(n), 1)
	s.add(statGPRC, 1)
	s.add(statGORC, uint64(n))
	if head[0]&1 == 0 {
		return
	}
	if isBroadcast(head) {
		s.add(statBPRC, 1)
		return
	}
	s.add(statMPRC, 1)
}
