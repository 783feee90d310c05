package lro

import "bytes"

// take appends the packet in the view, which is the one with index i, to its flow's aggregate, or opens one with it.
func (e *Engine) take(in []Packet, i int32) {
	v, p := &e.view, &in[i]
	hash := e.table.hash(v)
	x, free := e.table.find(v, hash)
	if x == nil || x.out < 0 {
		e.begin(p, i, x, hash, free)
		return
	}
	a := &e.out[x.out]
	r := x.mismatch(v, a)
	if r == reasonNone && v.deep && !deepEqual(in[a.Head].Data, p.Data, v) {
		r = ReasonOptions
	}
	if r == reasonNone && a.Checksum == ChecksumUnknown && !e.verifyHead(in, a) {
		r = ReasonBadChecksum
	}
	if r != reasonNone {
		e.close(x, r)
		e.begin(p, i, x, hash, free)
		return
	}
	if p.Checksum == ChecksumUnknown && !e.verify(p, v.l3, v.l4, v.headerLen) {
		e.close(x, ReasonBadChecksum)
		e.alone(p, i, ReasonBadChecksum)
		return
	}
	e.join(in, i, x, a)
}

// mismatch returns why the view cannot follow the entry's last segment; reasonNone if it can.
func (x *entry) mismatch(v *view, a *Aggregate) Reason {
	d := (x.link[0] ^ v.link[0]) | (x.link[1] ^ v.link[1]) | (x.net ^ v.net) | (x.tcp ^ v.tcp) | (x.opt ^ v.opt) |
		(x.tail ^ v.tail) | uint64(x.mark^v.mark)
	if d != 0 {
		return x.difference(v)
	}
	if v.seq != x.next {
		return ReasonSequence
	}
	if v.payload > uint32(x.size) {
		return ReasonLarger
	}
	if a.Len+v.payload > x.limit {
		return ReasonSizeLimit
	}
	step := v.id - x.id
	if step > 1 || step == 0 && x.mode == IDIncrement || step == 1 && x.mode == IDFixed {
		return ReasonIPID
	}
	return reasonNone
}

// difference names the header field in which the shapes differ.
func (x *entry) difference(v *view) Reason {
	net, tcp := x.net^v.net, x.tcp^v.tcp
	switch {
	case x.link != v.link:
		return ReasonLink
	case x.mark != v.mark:
		return ReasonMark
	case net != 0 && v.flags&IPv6 != 0:
		return differenceIPv6(net)
	case net&0xff00 != 0:
		return ReasonTOS
	case net&0xff0000 != 0:
		return ReasonTTL
	case net != 0:
		return ReasonDF
	case tcp&0xff0f != 0:
		return ReasonFlags
	case tcp&0xffff0000 != 0:
		return ReasonWindow
	case tcp>>48 != 0:
		return ReasonUrgent
	case (x.tail^v.tail)>>32 != 0:
		return ReasonAck
	}
	return ReasonOptions
}

// differenceIPv6 names the field in which the first words of two IPv6 headers differ.
func differenceIPv6(net uint64) Reason {
	switch {
	case net&0xf00f != 0:
		return ReasonTOS
	case net>>56 != 0:
		return ReasonTTL
	}
	return ReasonFlowLabel
}

// deepEqual compares the parts of the headers that do not fit into an entry: VLAN tags after the second, and options
// after the twelfth byte.
func deepEqual(head, d []byte, v *view) bool {
	options := int(v.l4) + 20
	return bytes.Equal(head[12:v.l3], d[12:v.l3]) && bytes.Equal(head[options:v.headerLen], d[options:v.headerLen])
}

// join links packet i, which is in the view, behind the entry's last segment, and ends the aggregate if it must end.
func (e *Engine) join(in []Packet, i int32, x *entry, a *Aggregate) {
	v := &e.view
	in[a.Tail].Next = i
	a.Tail = i
	a.Len += v.payload
	a.Segments++
	a.ending = v.ending
	x.mode = IDFixed - IDMode(v.id-x.id)
	a.IDMode = x.mode & v.modes
	x.id = v.id
	x.next += v.payload
	if r := e.last(a, v.ending, v.payload, x.size); r != reasonNone {
		e.close(x, r)
	}
}

// last returns why nothing may follow a segment that has just joined; reasonNone if something may.
func (e *Engine) last(a *Aggregate, ending uint8, payload uint32, size uint16) Reason {
	switch {
	case ending&flagFIN != 0:
		return ReasonFIN
	case ending != 0:
		return ReasonPush
	case payload < uint32(size):
		return ReasonShort
	case a.Segments >= e.maxSegments:
		return ReasonSegmentLimit
	}
	return reasonNone
}

// begin opens an aggregate with packet i, which is in the view. x is the flow's entry if it has one; if not, free is the
// free way of its set.
func (e *Engine) begin(p *Packet, i int32, x *entry, hash uint64, free int) {
	v := &e.view
	if v.ending != 0 || e.maxSegments == 1 || group(v.flags, v.link[0], &v.addr) {
		e.alone(p, i, e.only(v))
		return
	}
	if x == nil {
		if free == ways {
			free = e.table.oldest(hash)
			e.close(&e.table.sets[hash&e.table.mask].entries[free], ReasonEvicted)
		}
		x = e.table.slot(hash, free)
		x.identity = v.identity
	}
	x.shape = v.shape
	x.mark = v.mark
	x.next = v.seq + v.payload
	x.limit = e.limit(v.l3, v.flags)
	x.out = int32(len(e.out))
	x.size = uint16(v.payload)
	x.id = v.id
	x.mode = IDNone
	e.open++
	e.out = append(e.out, Aggregate{
		Head: i, Tail: i, Len: p.Len, Segments: 1, SegmentSize: uint16(v.payload),
		L3Offset: v.l3, L4Offset: v.l4, HeaderLen: v.headerLen, Checksum: p.Checksum, Flags: v.flags,
	})
}

// only returns why nothing may follow the packet in the view, which could be part of an aggregate otherwise.
func (e *Engine) only(v *view) Reason {
	switch {
	case group(v.flags, v.link[0], &v.addr):
		return ReasonAddress
	case v.ending&flagFIN != 0:
		return ReasonFIN
	case v.ending != 0:
		return ReasonPush
	}
	return ReasonSegmentLimit
}

// limit returns how long a frame may become whose IP header begins at l3.
func (e *Engine) limit(l3 uint16, flags AggregateFlags) uint32 {
	if flags&IPv6 != 0 {
		return uint32(l3) + e.maxLen
	}
	return uint32(l3) + min(e.maxLen, maxIPv4Len)
}
