package framework

import (
	"encoding/binary"
	"fmt"
)

// MAC is an Ethernet address.
type MAC [6]byte

func (m MAC) String() string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

// MACOf is an address as devices have it in two registers: the first four bytes in
// the low one, the other two in the lower half of the high one.
func MACOf(low, high uint32) (m MAC) {
	binary.LittleEndian.PutUint32(m[:], low)
	binary.LittleEndian.PutUint16(m[4:], uint16(high))
	return m
}

// Words are the two registers of MACOf.
func (m MAC) Words() (low, high uint32) {
	return binary.LittleEndian.Uint32(m[:]), uint32(binary.LittleEndian.Uint16(m[4:]))
}

// Buffer names one of an interface's packet buffers. It is a number, not an
// address: it means the same in every process that maps the arena, and nothing
// about where in a ring the buffer is.
type Buffer uint32

// NoBuffer names none.
const NoBuffer = ^Buffer(0)

// RxOffset is where a device writes the start of a frame in a buffer. Two bytes
// in, an Ethernet frame's IP header is 4-byte aligned.
const RxOffset = 2

// Buffers says where packet buffers lie. Its methods are safe for any goroutine;
// who may touch a buffer's bytes is a matter of who owns the buffer.
//
// Stride is the distance between two buffers. It is kept off multiples of 2048
// (Size+64 does), because otherwise all headers fall into the same few cache
// sets: measured 56 against 12 ns a packet with a working set of 64 MB.
type Buffers struct {
	Memory []byte // from buffer 0 on
	Addr   uint64 // device address of buffer 0
	Stride uint32
	Size   uint32 // bytes that a device may write from RxOffset on
	Count  uint32
}

// RxAddr is the device address at which to receive into b; there are Size bytes.
func (s *Buffers) RxAddr(b Buffer) uint64 {
	return s.Addr + uint64(b)*uint64(s.Stride) + RxOffset
}

// FragmentAddr is the device address of a fragment.
func (s *Buffers) FragmentAddr(f Fragment) uint64 {
	return s.Addr + uint64(f.Buffer)*uint64(s.Stride) + uint64(f.Offset)
}

// Bytes are a fragment's bytes. A fragment that is not inside its buffer is a
// bug of the caller and panics: what comes from another process is checked
// with Valid first.
func (s *Buffers) Bytes(f Fragment) []byte {
	if !s.Valid(f) {
		panic(fmt.Sprintf("framework: fragment %+v outside buffers of %d x %d", f, s.Count, s.Stride))
	}
	at := uint64(f.Buffer)*uint64(s.Stride) + uint64(f.Offset)
	return s.Memory[at : at+uint64(f.Len) : at+uint64(f.Len)]
}

// Valid tells whether a fragment lies inside its buffer.
func (s *Buffers) Valid(f Fragment) bool {
	return uint32(f.Buffer) < s.Count && f.Offset <= s.Stride && f.Len <= s.Stride-f.Offset
}

// Fragment is a run of bytes in a buffer.
type Fragment struct {
	Buffer Buffer
	Offset uint32 // from the buffer's start
	Len    uint32
}

// MaxFragments is the most fragments that a packet can have anywhere between
// driver and port. A 64 KiB frame in 2 KiB buffers needs 33; devices that chain
// smaller buffers are told by Info.MaxRxFragments.
const MaxFragments = 64

// MaxPacketLen is the longest frame: 64 KiB of IP and its link-layer headers.
const MaxPacketLen = 65535 + 14 + 8

// Packet is one frame, on its way up or down. Which fields mean something is
// said by Flags.
type Packet struct {
	First uint32 // its first fragment is Batch.Frags[First]
	Len   uint32 // sum of its fragments' lengths
	Flags PacketFlags
	Hash  uint32 // HashValid
	Frags uint16
	VLAN  uint16 // VLANTag: the 802.1Q TCI that is not in the frame

	// Segments and SegmentSize. Up: the device or the software engine merged
	// Segments TCP segments of SegmentSize payload bytes each (the last may be
	// shorter); SegmentSize 0 means that the device cannot tell. Down: with
	// Segment set, cut the payload every SegmentSize bytes.
	Segments, SegmentSize uint16

	// HeaderLen is the length of all headers, from Ethernet to TCP or UDP,
	// inclusive. Down: needed with Segment. Up: 0 if not known.
	HeaderLen uint16
	// ChecksumStart and ChecksumOffset: with ChecksumPartial, the ones'
	// complement sum of everything from ChecksumStart on belongs at
	// ChecksumStart+ChecksumOffset, where the pseudo-header's sum (with length;
	// for Segment too, the engine adapts it) already is. A driver finds it
	// without length in a packet with Segment, as TSO devices want it.
	ChecksumStart, ChecksumOffset uint16

	Error DropReason // up: why the framework has to drop it; 0 is a good packet
}

// PacketFlags say what is known of a packet and what is to be done with it.
type PacketFlags uint32

// Flags for both directions.
const (
	// VLANTag: VLAN holds a tag that is not in the frame (stripped on receive,
	// to be inserted on transmit).
	VLANTag PacketFlags = 1 << iota
	// HashValid: Hash is the RSS hash, or the sender's flow hash.
	HashValid
	// IPv4, IPv6, TCP, UDP: what the frame carries, if known.
	IPv4
	IPv6
	TCP
	UDP

	// ChecksumVerified (up): the layer-4 checksum (and IPv4's header checksum)
	// were found good, or the packet is coalesced and each of its segments'
	// checksums was. The bytes in the frame may be stale then.
	ChecksumVerified
	// ChecksumBad (up): a checksum was found wrong. The packet is delivered:
	// whether to believe it is the port's decision, as it is the kernel's.
	ChecksumBad
	// ChecksumPartial (down, and up from software LRO): the layer-4 checksum is
	// to be filled in, see ChecksumStart. Up from a driver, with ChecksumVerified:
	// the sender has left that to whoever gets the packet, as one on the same
	// machine does. The engine drops a packet in which there is no such place.
	ChecksumPartial

	// Coalesced (up): the frame is several TCP segments that the device merged.
	// It must never be merged again.
	Coalesced
	// SoftwareCoalesced (up): merged by the software engine; Segments and
	// SegmentSize are exact and gso gives the segments back.
	SoftwareCoalesced
	// IPIDFixed (coalesced IPv4): all segments had the same identification;
	// otherwise it counted up by one.
	IPIDFixed

	// Segment (down): cut into TCP segments (TSO) or UDP datagrams (USO) of
	// SegmentSize payload bytes; ChecksumOffset tells which. A driver finds all
	// headers in the first fragment; the engine sees to it.
	Segment
	// Completion (down, set by the engine): this packet must produce a
	// completion; the others may.
	Completion

	// CWRCopied (coalesced, and down with Segment): CWR stands on every segment,
	// as AccECN has it, not only on the first (RFC 3168).
	CWRCopied
)

// Batch is a number of packets with their fragments, in order. The slices are
// preallocated and reused; a batch never grows.
type Batch struct {
	Packets []Packet
	Frags   []Fragment
}

// NewBatch makes a batch with room for so many packets and fragments.
func NewBatch(packets, fragments int) *Batch {
	return &Batch{Packets: make([]Packet, 0, packets), Frags: make([]Fragment, 0, fragments)}
}

// Reset empties the batch.
func (b *Batch) Reset() {
	b.Packets = b.Packets[:0]
	b.Frags = b.Frags[:0]
}

// Room tells whether a packet of n fragments fits.
func (b *Batch) Room(n int) bool {
	return len(b.Packets) < cap(b.Packets) && len(b.Frags)+n <= cap(b.Frags)
}

// Fragments are the fragments of packet i.
func (b *Batch) Fragments(i int) []Fragment {
	p := &b.Packets[i]
	return b.Frags[p.First : p.First+uint32(p.Frags)]
}

// DropReason says why a packet was dropped. Every drop is counted under one.
type DropReason uint8

// Reasons to drop, receive first.
const (
	NoDrop          DropReason = iota
	DropCRC                    // bad frame check sequence or symbol error
	DropTruncated              // the device ran out of descriptors in the middle
	DropTooLong                // longer than the device or MaxFragments allow
	DropDevice                 // another error that the device reported
	DropPortFull               // the port took no more
	DropTxMalformed            // a transmit packet that makes no sense
	DropTxTooLong              // longer than the MTU, or a header too long, with no segmentation
	DropTxLinkDown             // sent while the link was down
	DropTxStopped              // in a queue when the interface stopped or was reset
	DropTxNoBuffer             // no buffer for a fallback (padding, pull-up, segmentation)
	NumDropReasons
)

func (r DropReason) String() string {
	if r >= NumDropReasons {
		return "unknown"
	}
	return dropNames[r]
}

var dropNames = [NumDropReasons]string{
	"none", "rx_crc", "rx_truncated", "rx_too_long", "rx_device_error", "rx_port_full",
	"tx_malformed", "tx_too_long", "tx_link_down", "tx_stopped", "tx_no_buffer",
}
