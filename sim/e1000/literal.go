package e1000

import (
	"encoding/binary"

	"nicd/sim"
)

// literal cuts TSO packets whose context does not say what their headers say, or
// that no IP packet can hold. The chip does not read headers: it changes bytes at
// the offsets that the context gives (8254x SDM 3.5), and so does this. It is the
// slow way, for packets that a correct driver does not send.
type literal struct {
	wanted bool // the packet has to be cut here
	ready  bool // and it is the first in the queue: packet and unit hold it
	packet packet
	unit   txUnit
	buf    []byte // one segment, behind room for a tag
	part   [1][]byte
	frame  [1]sim.Frame
}

// sendLiteral sends segments of the packet at the head.
func (t *transmitter) sendLiteral(q *txQueue) {
	l := &t.literal
	o := t.offloads(&l.packet)
	f := sim.Frame{Parts: t.parts[l.packet.parts:], Len: l.packet.length}
	mss, payload := int(o.context.mss), int(o.context.paylen)
	full := (payload + mss - 1) / mss
	total := full
	if t.emptyTail(&o.context) {
		total++
	}
	for n := 0; q.cut < total; n++ {
		if n == passFrames || !t.sendSegment(q, &f, &o, q.cut, q.cut >= full-1) {
			t.contexts = l.unit.contexts // the descriptors are read again
			t.done = t.done[:0]
			return
		}
		q.cut++
	}
	q.cut = 0
	q.head.Store(l.unit.end)
	t.stats.add(statTSCTC, 1)
}

// sendSegment makes and sends one segment.
func (t *transmitter) sendSegment(q *txQueue, f *sim.Frame, o *offloads, i int, last bool) bool {
	c := &o.context
	header, from := int(c.hdrlen), int(c.hdrlen)+i*int(c.mss)
	n := min(int(c.mss), f.Len-from)
	if need := sim.VLANTagLen + header + n; cap(t.literal.buf) < need {
		t.literal.buf = make([]byte, need)
	}
	buf := t.literal.buf[:sim.VLANTagLen+header+n]
	seg := buf[sim.VLANTagLen:]
	f.CopyTo(seg[:header], 0)
	f.CopyTo(seg[header:], from)
	c.edit(seg, i, n, last)
	t.literal.part[0] = seg
	out := sim.Frame{Parts: t.literal.part[:], Len: len(seg)}
	if o.ip {
		insertSum(&out, seg, c.ipcss, c.ipcso, c.ipcse, 0)
	}
	if o.l4 {
		insertSum(&out, seg, c.tucss, c.tucso, c.tucse, len(seg)-int(c.tucss))
	}
	if o.vlan {
		copy(buf[:12], seg)
		binary.BigEndian.PutUint16(buf[12:], t.vet)
		binary.BigEndian.PutUint16(buf[14:], o.tag)
		out.Parts[0], out.Len = buf, len(buf)
	}
	t.literal.frame[0] = out
	if t.put(q, t.literal.frame[:]) == 0 {
		return false
	}
	t.count(&out)
	return true
}

// edit changes what differs from segment to segment. Offsets behind the end
// change nothing.
func (c *txContext) edit(seg []byte, i, n int, last bool) {
	add16 := func(at, v int) {
		if at+2 <= len(seg) {
			binary.BigEndian.PutUint16(seg[at:], binary.BigEndian.Uint16(seg[at:])+uint16(v))
		}
	}
	ip, l4 := int(c.ipcss), int(c.tucss)
	if setIPLength(seg, ip, c.tucmd&tucmdIP != 0, len(seg)-ip) && c.tucmd&tucmdIP != 0 {
		add16(ip+4, i) // identification
	}
	const udpLength, tcpSequence, tcpFlags = 4, 4, 13
	if c.tucmd&tucmdTCP == 0 {
		if l4+udpLength+2 <= len(seg) {
			binary.BigEndian.PutUint16(seg[l4+udpLength:], uint16(len(seg)-l4))
		}
		return
	}
	if l4+tcpFlags >= len(seg) {
		return
	}
	seq := binary.BigEndian.Uint32(seg[l4+tcpSequence:]) + uint32(i*int(c.mss))
	binary.BigEndian.PutUint32(seg[l4+tcpSequence:], seq)
	if !last {
		seg[l4+tcpFlags] &^= sim.TCPFin | sim.TCPPsh
	}
}
