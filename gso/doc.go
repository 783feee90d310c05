// Package gso segments frames in software: one TCP or UDP frame that is larger than a link allows becomes frames that
// fit. It is the inverse of package lro, and the fallback for a device that cannot segment (TSO, USO) or cannot compute
// checksums itself.
//
// What lives here: the arithmetic on headers, and the checksum of a chain of memory slices. What does not: buffers,
// queues, descriptors, the decision to segment, minimum frame sizes and padding (these belong to the device), and IP
// fragmentation.
//
// Payload is not copied: Segmenter.Next writes the headers of a segment into memory of the caller and names the pieces
// of the input that are its payload. Segmenter.NextFrame copies, for callers that want frames. Nothing allocates.
//
// # What a segment looks like
//
// The headers of segment i (from 0) are those of the input, with
//
//   - the IP length set, and the IPv4 header checksum;
//   - the IPv4 identification plus i, or the same (Params.FixedID): both are allowed for datagrams that may not be
//     fragmented (RFC 6864 section 4.1), and lro says which one it has seen;
//   - the TCP sequence number plus i times the segment size;
//   - FIN and PSH only in the last segment;
//   - CWR only in the first one (RFC 3168 section 6.1.2: it answers one congestion event), or copied
//     (Params.CopyCWR), as AccECN needs it;
//   - the UDP length set;
//   - the checksum, complete or partial.
//
// Everything else, VLAN tags and options included, is copied.
package gso
