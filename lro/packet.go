package lro

// Packet describes one received frame. The fields above the line are the caller's, those below it are written by
// Engine.Batch. It is 64 bytes or less: one cache line for each packet.
//
// The memory behind Data belongs to the caller, who must keep it, for every member of an aggregate, until the consumer
// of the aggregate is done. The engine keeps no reference to it after Batch returns.
type Packet struct {
	// Data is the first fragment of the frame, from the first byte of the destination MAC address. All headers that are
	// to be parsed must lie in it. It does not include the frame check sequence.
	Data []byte
	// Len is the length of the whole frame in bytes. If it is larger than len(Data), the rest is in fragments that the
	// caller keeps; such a packet can still merge, if its checksum is ChecksumVerified.
	Len uint32
	// Hash is the receive hash as the device reported it. It travels with the packet. The engine computes its own hash
	// over the addresses and ports, so that a hash that is missing, wrong or different within one connection can change
	// neither the order nor the result.
	Hash uint32
	// Handle is the caller's: a buffer number, a descriptor. The engine never looks at it.
	Handle uint64
	// Mark is any value that the consumer can see and that must be equal in an aggregate: a firewall mark, a VRF.
	Mark uint32
	// Port names where the packet came in, if packets of several ports share one engine. Packets of different ports are
	// of different flows.
	Port uint16
	// VLAN is the tag control information that the device stripped from the frame; it counts if VLANStripped is set.
	VLAN uint16
	// Segments is the number of wire segments that the device says it merged into this packet; 0 and 1 mean none.
	Segments uint16
	// SegmentSize is the TCP payload size of those segments in bytes; 0 means unknown.
	SegmentSize uint16
	// Checksum says what is known about the TCP checksum.
	Checksum Checksum
	// Flags are the packet's properties.
	Flags PacketFlags

	// ---- results ----

	// PayloadOffset is where the TCP payload begins in the frame, 0 if the packet was not parsed as TCP. Members of an
	// aggregate after the head contribute their payload only.
	PayloadOffset uint16
	// PayloadLen is the number of payload bytes, without Ethernet padding.
	PayloadLen uint32
	// Next is the index, in the slice given to Batch, of the next member of the aggregate; -1 ends it.
	Next int32
}

// PacketFlags are properties of a received packet.
type PacketFlags uint8

const (
	// VLANStripped says that the device took a VLAN tag out of the frame and put it into Packet.VLAN.
	VLANStripped PacketFlags = 1 << iota
	// HardwareCoalesced says that the device made this packet out of several, however many it says there were.
	HardwareCoalesced
)

// Checksum is what is known about a TCP checksum.
type Checksum uint8

const (
	// ChecksumUnknown: nobody looked. The engine verifies it before the packet becomes part of an aggregate.
	ChecksumUnknown Checksum = iota
	// ChecksumVerified: the checksum in the frame is right; the caller vouches for it. The IPv4 header checksum is not
	// meant: the engine verifies that itself, always.
	ChecksumVerified
	// ChecksumBad: the checksum in the frame is wrong. The packet passes alone.
	ChecksumBad
	// ChecksumPartial: the field holds the folded, not complemented sum of the pseudo-header only, and whoever sends
	// the packet on has to complete it from the TCP header to the end (virtio-net: NEEDS_CSUM). Merged aggregates come
	// out like this. A packet that comes in like this passes alone.
	ChecksumPartial
)

// Aggregate is one output: the chain of packets from Head along Packet.Next.
//
// With one member, the frame is the packet as it came in, untouched. With more, it is the first HeaderLen bytes of the
// head's frame (rewritten in place: IP length, IPv4 header checksum, FIN and PSH, partial TCP checksum) followed by the
// payload of each member.
type Aggregate struct {
	// Head and Tail are indexes of the first and the last member in the slice given to Batch.
	Head, Tail int32
	// Len is the length of the frame in bytes, Ethernet header included: up to 65535 plus the link header over IPv4,
	// and 40 bytes more over IPv6. For a packet that passed alone it is Packet.Len, padding included.
	Len uint32
	// Segments is the number of wire segments: the members of a merged aggregate; Packet.Segments (at least 1) of a
	// packet that passed alone.
	Segments uint16
	// SegmentSize is the TCP payload in bytes of every segment but the last, which is 1 to SegmentSize bytes. 0 means
	// that it is unknown, or that there is no payload: a frame with more than one segment and SegmentSize 0 must not be
	// forwarded to a link that it does not fit.
	SegmentSize uint16
	// L3Offset and L4Offset are where the IP and the TCP header begin in the head's frame, HeaderLen is where the
	// payload begins. All are 0 if the packet could not be parsed as TCP.
	L3Offset, L4Offset, HeaderLen uint16
	// Checksum is the state of the TCP checksum field: ChecksumPartial after a merge, otherwise what the caller said or
	// what the engine found out.
	Checksum Checksum
	// IDMode says how the IPv4 identification goes on after the first segment.
	IDMode IDMode
	// Flags are the aggregate's properties.
	Flags AggregateFlags

	ending uint8 // FIN and PSH of the last segment, to be written into the head
}

// IDMode says how the IPv4 identification changes from segment to segment. Both occur: RFC 6864 lets a sender of
// atomic datagrams (DF set) put anything there, and senders either count or stand still.
type IDMode uint8

const (
	// IDNone: one segment, or not IPv4.
	IDNone IDMode = iota
	// IDIncrement: plus one for every segment, modulo 65536.
	IDIncrement
	// IDFixed: the same in every segment.
	IDFixed
)

// AggregateFlags are properties of an aggregate.
type AggregateFlags uint8

const (
	// TCP says that the headers were parsed as TCP over IPv4 or IPv6 and the offsets are valid.
	TCP AggregateFlags = 1 << iota
	// IPv6 says that the network protocol is IPv6.
	IPv6
	// Merged says that the engine made this out of two or more packets.
	Merged
	// Bypassed says that the packet was coalesced before it came here, or was larger than the MTU allows, and was
	// therefore not touched.
	Bypassed
	// CWRCopied says that CWR is set on every segment (AccECN), not only on the first one as RFC 3168 has it; whoever
	// segments must copy it.
	CWRCopied
)

// coalesced reports whether the device has said in any way that it merged this packet.
func (p *Packet) coalesced(payload uint32) bool {
	return p.Flags&HardwareCoalesced != 0 || p.Segments > 1 || p.SegmentSize != 0 && payload > uint32(p.SegmentSize)
}
