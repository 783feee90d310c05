// Package lro coalesces received TCP segments in software, without loss: what it merges, package gso (or any
// re-segmenter that follows the same RFCs) can split again into the original frames, byte for byte.
//
// What lives here: the engine that looks at one receive queue's packets, batch by batch, and links those that belong
// together. What does not: buffers (they stay the caller's), threads, clocks, logging, devices, and the policy of who
// coalesces. An Engine has one owner at a time and starts no goroutine.
//
// # How a batch is coalesced
//
// The caller describes each received frame with a Packet and hands over a slice of them. The engine walks the slice
// once, in arrival order. It never sorts: a sort by receive hash reorders a connection as soon as one of its packets
// carries another hash. Each packet either joins the open aggregate of its flow, or opens a new one, or passes alone;
// an Aggregate is appended to the output when its first packet is seen, so outputs are in the arrival order of their
// heads, and within a flow nothing ever overtakes anything. Packets are linked by index. Payload is neither read nor
// copied (except to verify a checksum that nobody has verified); only the headers of an aggregate's first frame are
// rewritten, at the end of the batch.
//
// # What merges
//
// TCP over IPv4 and IPv6, behind any stack of VLAN tags. A segment joins an aggregate only if every header byte is
// equal except the IP length, IPv4 identification, checksums, sequence number, FIN and PSH; if the sequence numbers are
// adjacent; if the identification stands still or counts up by one throughout; if all payloads are equal, except for a
// last one that is shorter; if FIN and PSH stand on the last segment only; if all checksums are right; and if the
// caller's metadata is equal. These conditions are what makes the reverse possible. In particular a change of the
// acknowledgement number, of the window, of any option (timestamps, SACK), of ECN, DSCP, TTL or flow label ends the
// aggregate, and a segment without payload always passes alone.
//
// A packet that hardware has coalesced already (Packet.Segments, Packet.SegmentSize, HardwareCoalesced), or that is
// larger than the MTU allows, ends its flow's aggregate, is delivered untouched, and is never merged with anything.
package lro
