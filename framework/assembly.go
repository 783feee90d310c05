package framework

// Assembly is the received packet that a queue is putting together from the
// descriptors over which its device has spread it. A packet whose end is not
// there yet stays in it, with the buffers that it has, from one Poll to the next.
// It belongs to its queue's owner.
//
// The use, for each descriptor, while Room: Append its buffer, set what is known
// in Packet, and at the packet's end Deliver.
type Assembly struct {
	// Packet is what is known of the packet so far. First, Len and Frags are the
	// assembly's.
	Packet Packet

	open  bool
	n     int
	frags [MaxFragments]Fragment
}

// Open tells whether a packet has begun and not been delivered.
func (a *Assembly) Open() bool { return a.open }

// Room tells whether dst has room for the packet with one fragment more.
func (a *Assembly) Room(dst *Batch) bool { return dst.Room(min(a.n+1, MaxFragments)) }

// begin starts a packet.
func (a *Assembly) begin() { a.Packet, a.open, a.n = Packet{}, true, 0 }

// add appends the first n bytes that were received into b. It refuses the buffer,
// and makes the packet a bad one, if the packet has all the fragments that a
// packet can have.
func (a *Assembly) add(b Buffer, n uint32) bool {
	if a.n == MaxFragments {
		a.Fail(DropTooLong)
		return false
	}
	a.frags[a.n] = Fragment{Buffer: b, Offset: RxOffset, Len: n}
	a.n++
	a.Packet.Len += n
	return true
}

// Append is for a descriptor with which the device says that it has written n bytes
// to b, a buffer of limit bytes. It begins a packet if none is open, takes no more
// than limit, which makes the packet a bad one, and tells whether b is the packet's
// now. If not, b stays the queue's, to be posted again: nothing is in it, or the
// packet has all the fragments that one can have, and is a bad one for it. A device
// that chains without end is not believed.
func (a *Assembly) Append(b Buffer, n, limit uint32) (kept bool) {
	if !a.open {
		a.begin()
	}
	if n > limit {
		n = limit
		a.Fail(DropDevice)
	}
	return n > 0 && a.add(b, n)
}

// Strip takes n bytes off the packet's start, whose buffer is all that has been
// appended so far: what the device writes in front of a frame. A packet that is not
// longer than that is a bad one.
func (a *Assembly) Strip(n uint32) {
	if a.n != 1 || a.frags[0].Len <= n {
		a.Fail(DropDevice)
		return
	}
	a.frags[0].Offset += n
	a.frags[0].Len -= n
	a.Packet.Len -= n
}

// Fail makes the packet a bad one. The first reason stands.
func (a *Assembly) Fail(why DropReason) {
	if a.Packet.Error == NoDrop {
		a.Packet.Error = why
	}
}

// Fragments are the packet's fragments so far.
func (a *Assembly) Fragments() []Fragment { return a.frags[:a.n] }

// Coalesce says that the device has merged TCP segments into the packet, which is
// whole: how many and of how many bytes of payload, as far as the device says so; 0
// is not known. What can be worked out from the headers is: the size from the
// number, the number from the size. If neither is known, a TCP packet longer than
// longest, which is the longest frame that comes off the wire, is as many segments
// as it takes at least, of no known size. What comes out as one segment is not
// merged, whatever the device calls it.
func (a *Assembly) Coalesce(buffers *Buffers, segments, size, longest uint32) {
	p := &a.Packet
	tooLong := p.Flags&TCP != 0 && p.Len > longest
	if a.n == 0 || !tooLong && (segments == 1 || segments|size == 0) {
		return
	}
	header := uint32(tcpHeaderLen(buffers.Bytes(a.frags[0])))
	if header >= p.Len {
		header = 0
	}
	payload := p.Len - header
	switch {
	case segments > 1 && size == 0 && header > 0:
		size = (payload + segments - 1) / segments
	case segments <= 1 && size > 0 && header > 0:
		segments = (payload + size - 1) / size
	case segments <= 1 && tooLong:
		segments, size = (p.Len+longest-1)/longest, 0
	}
	if segments <= 1 {
		return
	}
	p.Flags |= Coalesced
	p.Segments, p.SegmentSize, p.HeaderLen = uint16(segments), uint16(size), uint16(header)
}

// Deliver ends the packet and appends it to dst, which has room. If nothing was
// appended to it and nothing is wrong with it, there was no packet.
func (a *Assembly) Deliver(dst *Batch) {
	if a.n > 0 || a.Packet.Error != NoDrop {
		a.Packet.First, a.Packet.Frags = uint32(len(dst.Frags)), uint16(a.n)
		dst.Frags = append(dst.Frags, a.frags[:a.n]...)
		dst.Packets = append(dst.Packets, a.Packet)
	}
	a.open, a.n = false, 0
}
