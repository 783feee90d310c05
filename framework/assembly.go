package framework

// Assembly is the received packet that a queue is putting together from the
// descriptors over which its device has spread it. A packet whose end is not
// there yet stays in it, with the buffers that it has, from one Poll to the next.
// It belongs to its queue's owner.
//
// The use, for each descriptor, while Room: Begin if it is the packet's first,
// Add its buffer, set what is known in Packet, and at the packet's end Deliver.
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

// Begin starts a packet.
func (a *Assembly) Begin() { a.Packet, a.open, a.n = Packet{}, true, 0 }

// Add appends the first n bytes that were received into b. It refuses the buffer,
// and makes the packet a bad one, if the packet has all the fragments that a
// packet can have: a device that chains without end is not believed.
func (a *Assembly) Add(b Buffer, n uint32) bool {
	if a.n == MaxFragments {
		a.Fail(DropTooLong)
		return false
	}
	a.frags[a.n] = Fragment{Buffer: b, Offset: RxOffset, Len: n}
	a.n++
	a.Packet.Len += n
	return true
}

// Fail makes the packet a bad one. The first reason stands.
func (a *Assembly) Fail(why DropReason) {
	if a.Packet.Error == NoDrop {
		a.Packet.Error = why
	}
}

// Fragments are the packet's fragments so far.
func (a *Assembly) Fragments() []Fragment { return a.frags[:a.n] }

// Deliver ends the packet and appends it to dst, which has room. If nothing was
// added to it and nothing is wrong with it, there was no packet.
func (a *Assembly) Deliver(dst *Batch) {
	if a.n > 0 || a.Packet.Error != NoDrop {
		a.Packet.First, a.Packet.Frags = uint32(len(dst.Frags)), uint16(a.n)
		dst.Frags = append(dst.Frags, a.frags[:a.n]...)
		dst.Packets = append(dst.Packets, a.Packet)
	}
	a.open, a.n = false, 0
}
