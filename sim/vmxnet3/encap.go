package vmxnet3

import (
	"encoding/binary"

	"nicd/bus"
	"nicd/sim"
)

// owns tells whether descriptor i, at or after next and before next comes round
// again, is the device's.
func (q *txQueue) owns(i int) bool {
	gen := q.gen
	if i < q.next {
		gen ^= txGen
	}
	return bus.Word(q.view, i*descSize+txDescGenWord).Load()&txGen == gen
}

// collect turns the descriptors of up to limit packets into frames, and returns
// how many, and why the packet after them is broken, if it is. Nothing is used
// up yet.
func (t *transmitter) collect(q *txQueue, limit int) (n int, failure uint32) {
	t.parts = t.parts[:0]
	producer := int(t.m.host.Doorbell(bellTXPROD + q.id))
	if t.look != 0 {
		producer = -1 // a bell that was deferred leaves it anywhere
	}
	at, ahead := q.next, 0
	for n < limit && at != producer && q.owns(at) && len(t.parts)+maxTSOPacket+2 <= cap(t.parts) {
		descs, code := t.packet(q, at, ahead, producer, n)
		if code != 0 {
			return n, code
		}
		n++
		ahead += descs
		if at += descs; at >= q.size {
			at -= q.size
		}
		if ahead >= q.size {
			break
		}
	}
	return n, 0
}

// packet makes frame n of the chain of descriptors from at on, and returns how
// many it has, or why it is broken. ahead descriptors belong to packets before.
func (t *transmitter) packet(q *txQueue, at, ahead, producer, n int) (descs int, code uint32) {
	f, s := &t.frames[n], &t.sent[n]
	*f, *s = sim.Frame{}, txPacket{}
	begin := len(t.parts)
	var sop txDesc
	for i := at; ; {
		if descs > 0 && i == producer || ahead+descs >= q.size || !q.owns(i) {
			return 0, errNoEOP
		}
		addr, d := loadTxDesc(q.view, i)
		if descs == 0 {
			sop = d
		}
		descs++
		if code := t.check(d, sop, descs); code != 0 {
			return 0, code
		}
		b := t.m.host.Tx.Bytes(addr, d.length())
		if b == nil || t.m.opt.Variations.DropsAcrossPages && sim.AcrossPages(addr, d.length()) {
			s.drop = true // a refused access was reported; the packet is lost
		} else {
			t.parts = append(t.parts, b)
			f.Len += len(b)
		}
		if d.eop() {
			s.index, s.descs, s.comp = i, descs, d.wantsComp()
			s.tso = sop.offload() == omTSO
			f.Parts = t.parts[begin:]
			if s.drop || f.Len < minTxFrame {
				s.drop = true
				return descs, 0
			}
			return descs, t.offload(f, sop, d, n, begin)
		}
		if i++; i == q.size {
			i = 0
		}
	}
}

// check is what is wrong with a packet's descriptor d, if anything is.
func (t *transmitter) check(d, sop txDesc, descs int) uint32 {
	limit := maxTxPacket
	if sop.offload() == omTSO {
		limit = maxTSOPacket
	}
	switch {
	case descs > limit:
		return errBigPacket
	case d.w2&txDtype != 0 || sop.offload() == omEncap,
		sop.offload() == omTSO && t.m.opt.Variations.DisabledOffloads&disabledTSO != 0:
		return errDescUnsupported
	}
	return 0
}

// offload makes f what the descriptors ask for: the first one says how to sum
// and cut. The tag is in the last one; drivers write it there or to all.
func (t *transmitter) offload(f *sim.Frame, sop, eop txDesc, n, begin int) uint32 {
	if f.Len > maxPacket {
		return errBigPacket
	}
	switch sop.offload() {
	case omChecksum:
		start, at := sop.headerLen(), sop.mssOrOffset()
		if at < start || at+2 > f.Len || at > maxCsumOffset {
			return errTxDescInvalid
		}
		f.Flags = sim.Partial
		f.ChecksumStart, f.ChecksumOffset = start, at-start
	case omTSO:
		if code := segmentation(f, sop); code != 0 {
			return code
		}
	}
	if sop.insertsTag() || eop.insertsTag() {
		t.insertTag(f, sop, eop, n, begin)
	}
	return 0
}

// segmentation reads the headers of a TSO frame. They lie in the first
// descriptor; hlen includes the TCP header.
func segmentation(f *sim.Frame, sop txDesc) uint32 {
	hlen := sop.headerLen()
	var h sim.Headers
	first := f.Parts[0]
	if sop.mssOrOffset() == 0 || hlen > len(first) || f.Len <= hlen {
		return errTxDescInvalid
	}
	if !sim.ParseHeaders(&h, first[:hlen], f.Len) || h.Protocol != sim.ProtocolTCP || h.Payload == 0 || h.Payload != hlen {
		return errTxDescInvalid
	}
	f.Flags = sim.Partial | sim.Segment
	f.HeaderLen, f.SegmentSize = hlen, sop.mssOrOffset()
	f.ChecksumStart, f.ChecksumOffset = h.L4, h.ChecksumAt()-h.L4
	return 0
}

// insertTag puts an 802.1Q tag behind the addresses of frame n, whose parts start
// at begin.
func (t *transmitter) insertTag(f *sim.Frame, sop, eop txDesc, n, begin int) {
	const at = 12
	tci := sop.tci()
	if !sop.insertsTag() {
		tci = eop.tci()
	}
	tag := &t.tags[n]
	binary.BigEndian.PutUint16(tag[0:], sim.EtherTypeVLAN)
	binary.BigEndian.PutUint16(tag[2:], tci)
	var old [maxTSOPacket][]byte
	k := copy(old[:], t.parts[begin:])
	plain := sim.Frame{Parts: old[:k], Len: f.Len}
	t.parts = plain.AppendParts(t.parts[:begin], 0, at)
	t.parts = append(t.parts, tag[:])
	t.parts = plain.AppendParts(t.parts, at, f.Len-at)
	f.Parts = t.parts[begin:]
	f.Len += sim.VLANTagLen
	if f.Flags&sim.Partial != 0 {
		f.ChecksumStart += sim.VLANTagLen
	}
	if f.Flags&sim.Segment != 0 {
		f.HeaderLen += sim.VLANTagLen
	}
}
