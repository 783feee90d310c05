package e1000

import (
	"encoding/binary"

	"nicd/sim"
)

// offloads are what a packet's descriptors ask for.
type offloads struct {
	context txContext
	tso     bool
	ip, l4  bool // insert the checksum at IPCSO, at TUCSO
	vlan    bool
	tag     uint16
}

// offloads reads them from where each counts: POPTS and TSE in the first data
// descriptor, the rest in the one with EOP (8254x SDM 3.3.7).
func (t *transmitter) offloads(p *packet) offloads {
	o := offloads{
		vlan: t.insertVLAN && p.last.command()&txCmdVLE != 0,
		tag:  p.last.special(),
	}
	if p.first.extended() {
		o.tso = p.tso()
		o.context = *t.context(o.tso)
		o.ip, o.l4 = p.first.popts()&poptsIXSM != 0, p.first.popts()&poptsTXSM != 0
		return o
	}
	if p.last.command()&txCmdIC != 0 && !t.model.opt.Variation.NoLegacyChecksum {
		o.l4 = true
		o.context = txContext{tucss: p.last.css(), tucso: p.last.cso()}
	}
	return o
}

// frame makes the frame of a packet and appends it. It returns false if the queue
// hung, or if the packet has to be cut here, by the letter of its context.
func (t *transmitter) frame(q *txQueue, p *packet, u *txUnit) bool {
	o := t.offloads(p)
	u.tso = o.tso
	if !o.tso && p.last.command()&txCmdIFCS == 0 && !t.trimFCS(p) || p.length < sim.EthernetHeaderLen {
		q.hang()
		return false
	}
	f := sim.Frame{Parts: t.parts[p.parts:], Len: p.length}
	if o.tso {
		return t.segmented(q, &f, &o)
	}
	return t.single(q, &f, &o)
}

// trimFCS takes off the frame check sequence that software supplied. A wrong one
// makes a frame that no receiver would accept.
func (t *transmitter) trimFCS(p *packet) bool {
	if p.length <= fcsLen || !fcsGood(t.parts[p.parts:]) {
		return false
	}
	p.length -= fcsLen
	for left := fcsLen; left > 0; {
		last := len(t.parts) - 1
		n := min(left, len(t.parts[last]))
		left -= n
		if t.parts[last] = t.parts[last][:len(t.parts[last])-n]; len(t.parts[last]) == 0 {
			t.parts = t.parts[:last]
		}
	}
	return true
}

// single completes and appends a frame that is not cut.
func (t *transmitter) single(q *txQueue, f *sim.Frame, o *offloads) bool {
	literal := o.l4 && !t.leavePartial(f, o)
	need := 0
	if o.ip {
		need = int(o.context.ipcso) + 2
	}
	if literal {
		need = max(need, int(o.context.tucso)+2)
	}
	if o.vlan {
		need = max(need, sim.EthernetHeaderLen)
	}
	if need > f.Len {
		q.hang() // a checksum behind the packet's end
		return false
	}
	if need > 0 {
		slot := &t.headers[len(t.frames)]
		head := slot[sim.VLANTagLen:][:need]
		f.CopyTo(head, 0)
		if o.ip {
			insertSum(f, head, o.context.ipcss, o.context.ipcso, o.context.ipcse, 0)
		}
		if literal {
			insertSum(f, head, o.context.tucss, o.context.tucso, o.context.tucse, 0)
			avoidZero(head, &o.context)
		}
		t.replaceHead(f, slot, need, o)
	}
	t.padded(f)
	t.frames = append(t.frames, *f)
	return true
}

// padded makes a short frame as long as TCTL.PSP asks for.
func (t *transmitter) padded(f *sim.Frame) {
	if !t.pad || f.Len >= minFrame {
		return
	}
	start := len(t.parts)
	t.parts = append(append(t.parts, f.Parts...), zeros[:minFrame-f.Len])
	f.Parts, f.Len = t.parts[start:], minFrame
}

// leavePartial leaves the layer-4 checksum to the receiver, if the offsets and
// the seed are such that it will come out right. What is wrong is summed here
// and goes out as wrong as the chip would make it.
func (t *transmitter) leavePartial(f *sim.Frame, o *offloads) bool {
	c := &o.context
	if f.Len < minFrame || !t.carries(o) {
		return false
	}
	head := f.Parts[0]
	if len(head) < min(f.Len, headerView) {
		var ok bool
		if head, ok = t.flat(f, headerView); !ok {
			return false
		}
	}
	h := &t.parsed
	if !sim.ParseHeaders(h, head, f.Len) || h.VLAN && o.vlan || h.L4 != int(c.tucss) ||
		h.ChecksumAt() != int(c.tucso) || c.tucse != 0 && int(c.tucse) != f.Len-1 {
		return false
	}
	f.Flags |= sim.Partial
	f.ChecksumStart, f.ChecksumOffset = int(c.tucss), int(c.tucso)-int(c.tucss)
	if h.ChecksumGood(f, head) {
		return true
	}
	f.Flags &^= sim.Partial
	return false
}

// carries tells whether others can read a frame that needs reading: one whose tag
// is of a type of its own they cannot.
func (t *transmitter) carries(o *offloads) bool { return !o.vlan || t.vet == sim.EtherTypeVLAN }

// flat copies the first n bytes of a frame, or all if it is shorter.
func (t *transmitter) flat(f *sim.Frame, n int) ([]byte, bool) {
	n = min(n, f.Len)
	head := t.view[:n]
	return head, f.CopyTo(head, 0) == n
}

// segmented completes and appends a TSO frame, to be carried whole.
func (t *transmitter) segmented(q *txQueue, f *sim.Frame, o *offloads) bool {
	c := &o.context
	if int(c.hdrlen)+int(c.paylen) != f.Len || c.paylen == 0 || c.mss == 0 || int(c.hdrlen) < sim.EthernetHeaderLen {
		q.hang()
		return false
	}
	slot := &t.headers[len(t.frames)]
	head := slot[sim.VLANTagLen:][:c.hdrlen]
	f.CopyTo(head, 0)
	if !t.plainTSO(f, head, o) || t.emptyTail(c) {
		f.Flags = 0
		t.literal.wanted = true
		return false
	}
	t.replaceHead(f, slot, int(c.hdrlen), o)
	t.frames = append(t.frames, *f)
	return true
}

// emptyTail tells whether a segment without payload follows those of a packet.
func (t *transmitter) emptyTail(c *txContext) bool {
	return t.model.opt.Variation.EmptyTSOTail && c.paylen%uint32(c.mss) == 0
}

// plainTSO tells whether a context means what the headers say, so that anyone who
// cuts the frame cuts it as the chip does; it completes head and f then.
func (t *transmitter) plainTSO(f *sim.Frame, head []byte, o *offloads) bool {
	c, h := &o.context, &t.parsed
	ip, v4 := int(c.ipcss), c.tucmd&tucmdIP != 0
	if c.tucmd&tucmdTCP == 0 || !o.l4 || c.tucse != 0 || !t.carries(o) || !setIPLength(head, ip, v4, f.Len-ip) {
		return false
	}
	if !sim.ParseHeaders(h, head, f.Len) || h.IP != ip || h.IPv6 == v4 || h.Protocol != sim.ProtocolTCP ||
		h.L4 != int(c.tucss) || h.Payload != int(c.hdrlen) || h.ChecksumAt() != int(c.tucso) || h.VLAN && o.vlan {
		return false
	}
	if v4 {
		sumAt := ip + 10
		if !o.ip || int(c.ipcso) != sumAt || int(c.ipcse) != h.L4-1 || head[sumAt] != 0 || head[sumAt+1] != 0 {
			return false
		}
		h.SetHeaderChecksum(head)
	} else if o.ip {
		return false
	}
	f.Flags = sim.Segment | sim.Partial
	f.SegmentSize, f.HeaderLen = int(c.mss), int(c.hdrlen)
	f.ChecksumStart, f.ChecksumOffset = h.L4, h.ChecksumAt()-h.L4
	return h.ChecksumGood(f, head)
}

// setIPLength writes the length of an IP packet of n bytes whose header is at ip.
func setIPLength(head []byte, ip int, v4 bool, n int) bool {
	const lengthV4, lengthV6, headerV6 = 2, 4, 40
	at := ip + lengthV4
	if !v4 {
		at, n = ip+lengthV6, n-headerV6
	}
	if at+2 > len(head) || n < 0 || n > 0xFFFF {
		return false
	}
	binary.BigEndian.PutUint16(head[at:], uint16(n))
	return true
}

// replaceHead makes the n bytes in slot, behind the room for a tag, the start of
// the frame, with the tag in it if one is to be inserted.
func (t *transmitter) replaceHead(f *sim.Frame, slot *txHeader, n int, o *offloads) {
	head := slot[sim.VLANTagLen:][:n]
	if o.vlan {
		head = slot[:sim.VLANTagLen+n]
		copy(head[:12], head[sim.VLANTagLen:])
		binary.BigEndian.PutUint16(head[12:], t.vet)
		binary.BigEndian.PutUint16(head[14:], o.tag)
		f.Len += sim.VLANTagLen
		if f.Flags&sim.Partial != 0 {
			f.ChecksumStart += sim.VLANTagLen
		}
		if f.Flags&sim.Segment != 0 {
			f.HeaderLen += sim.VLANTagLen
		}
	}
	start := len(t.parts)
	t.parts = append(t.parts, head)
	for _, p := range f.Parts {
		if n >= len(p) {
			n -= len(p)
			continue
		}
		t.parts = append(t.parts, p[n:])
		n = 0
	}
	f.Parts = t.parts[start:]
}

// insertSum writes to head, at offset so, the Internet checksum of the frame from
// ss to se inclusive (0 is its end), to which extra is added. What is at so
// already is part of the sum: a seed, or zero.
func insertSum(f *sim.Frame, head []byte, ss, so uint8, se uint16, extra int) {
	end := f.Len
	if se != 0 {
		end = min(end, int(se)+1)
	}
	if int(ss) >= end || int(so)+2 > len(head) {
		return
	}
	s := sim.SumParts(0, f.Parts, int(ss), end-int(ss))
	if extra != 0 {
		s = addSums(s, uint16(extra))
	}
	binary.BigEndian.PutUint16(head[so:], ^s)
}

// avoidZero replaces a UDP checksum of zero, which would mean that there is none.
func avoidZero(head []byte, c *txContext) {
	const udpChecksum = 6
	if int(c.tucso) == int(c.tucss)+udpChecksum && head[c.tucso] == 0 && head[c.tucso+1] == 0 {
		head[c.tucso], head[c.tucso+1] = 0xFF, 0xFF
	}
}
