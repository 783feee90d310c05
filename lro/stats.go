package lro

// Reason says why an aggregate ended or why a packet passed alone.
type Reason uint8

// Reasons that end an aggregate with its last segment in it.
const (
	reasonNone Reason = iota
	// ReasonBatchEnd: the batch is over; nothing is held.
	ReasonBatchEnd
	// ReasonPush: the segment has PSH set.
	ReasonPush
	// ReasonFIN: the segment has FIN set.
	ReasonFIN
	// ReasonShort: the segment is shorter than the ones before it, so it is the last that can be told apart.
	ReasonShort
	// ReasonSegmentLimit: Options.MaxSegments is reached.
	ReasonSegmentLimit

	// Reasons that end an aggregate before a packet that does not fit; the packet opens the next one.

	// ReasonSizeLimit: the IP length would overflow 16 bits or Options.MaxLen.
	ReasonSizeLimit
	// ReasonLarger: the payload is larger than the segment size of the aggregate.
	ReasonLarger
	// ReasonSequence: the sequence number is not the next one (gap, overlap, retransmission, reordering).
	ReasonSequence
	// ReasonAck: the acknowledgement number changed.
	ReasonAck
	// ReasonWindow: the window changed.
	ReasonWindow
	// ReasonOptions: TCP options changed (timestamps, SACK, signatures).
	ReasonOptions
	// ReasonFlags: ECE, CWR, AE or a reserved bit of the TCP header changed.
	ReasonFlags
	// ReasonUrgent: the urgent pointer changed.
	ReasonUrgent
	// ReasonTOS: DSCP or ECN changed, for example a CE mark.
	ReasonTOS
	// ReasonTTL: TTL or hop limit changed.
	ReasonTTL
	// ReasonDF: the don't-fragment bit changed.
	ReasonDF
	// ReasonFlowLabel: the IPv6 flow label changed.
	ReasonFlowLabel
	// ReasonIPID: the IPv4 identification neither stood still nor counted up, or changed between the two.
	ReasonIPID
	// ReasonLink: a MAC address or a tag deep in a VLAN stack changed.
	ReasonLink
	// ReasonMark: Packet.Mark changed.
	ReasonMark
	// ReasonEvicted: the flow table had no room; the oldest aggregate of the set made way.
	ReasonEvicted
	// ReasonExpired: the aggregate reached its maximum age (Holder only).
	ReasonExpired

	// Reasons for a packet to pass alone, after ending its flow's aggregate.

	// ReasonHardware: the device has coalesced this packet already.
	ReasonHardware
	// ReasonOversize: nobody marked it, but it is larger than the MTU allows, so it cannot be one wire segment.
	ReasonOversize
	// ReasonNoPayload: an acknowledgement, a window update, a keep-alive without data.
	ReasonNoPayload
	// ReasonControl: SYN, RST or URG is set, or ACK is not.
	ReasonControl
	// ReasonFragment: an IP fragment.
	ReasonFragment
	// ReasonIPOptions: IPv4 options, an IPv6 extension header, or the reserved IPv4 flag.
	ReasonIPOptions
	// ReasonPadding: bytes follow the IP packet; they could not be given back.
	ReasonPadding
	// ReasonTruncated: the frame ends before the IP packet does, or the IP length is zero.
	ReasonTruncated
	// ReasonMalformed: a header length is impossible.
	ReasonMalformed
	// ReasonUnparsable: the headers do not lie in Packet.Data.
	ReasonUnparsable
	// ReasonBadChecksum: the IPv4 header checksum or the TCP checksum is wrong.
	ReasonBadChecksum
	// ReasonUnverified: nobody verified the TCP checksum and the engine may not or cannot.
	ReasonUnverified
	// ReasonOddChecksum: a checksum of 0xffff, which is right but which no segmenter writes (it writes 0).
	ReasonOddChecksum
	// ReasonAddress: a group or unspecified address; TCP has none (RFC 1122 section 4.2.3.10).
	ReasonAddress
	// ReasonNotTCP: any other protocol.
	ReasonNotTCP

	// NumReasons is the number of reasons; the first one is unused.
	NumReasons
)

var reasonNames = [NumReasons]string{
	"none", "batch_end", "push", "fin", "short", "segment_limit",
	"size_limit", "larger", "sequence", "ack", "window", "options", "flags", "urgent", "tos", "ttl", "df", "flow_label",
	"ip_id", "link", "mark", "evicted", "expired",
	"hardware", "oversize", "no_payload", "control", "fragment", "ip_options", "padding", "truncated", "malformed",
	"unparsable", "bad_checksum", "unverified", "odd_checksum", "address", "not_tcp",
}

// String returns the reason's name as it is used for counters, in lower case with underscores.
func (r Reason) String() string {
	if r >= NumReasons {
		return "invalid"
	}
	return reasonNames[r]
}

// Stats are counters since the engine was made. They only grow, and they add up after each batch:
//
//	Packets = Outputs + Merged
//	Outputs = sum of Ended + sum of Passed
//
// Packets that a Holder holds are in Packets already, and in Outputs and Merged when they are released.
type Stats struct {
	Batches uint64 // calls of Batch
	Packets uint64 // packets that came in
	Outputs uint64 // aggregates that went out, those with one member included
	Merged  uint64 // packets that became part of an aggregate that another packet opened

	// Ended counts aggregates (with one member or more) by what ended them.
	Ended [NumReasons]uint64
	// Passed counts packets that passed alone without ever being open for others.
	Passed [NumReasons]uint64

	// Verified counts TCP checksums that the engine computed.
	Verified uint64
	// MaxSegments is the largest number of packets merged into one aggregate so far.
	MaxSegments uint64
}
