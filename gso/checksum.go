package gso

import (
	"encoding/binary"

	"nicd/internal/checksum"
)

// FillChecksum completes a partial checksum in software, for a device that cannot: the frame is the concatenation of
// the fragments; start is where the TCP or UDP header begins, and at is where, from start, the checksum field is (TCP
// 16, UDP 6; virtio-net's csum_start and csum_offset). The field holds the folded sum of the pseudo-header and is
// replaced by the complement of the sum from start to the end of the frame; for at 6, a result of 0 becomes 0xffff
// (RFC 768). The field must lie in one fragment. Bytes behind the IP packet must not be part of the fragments.
//
// It returns ErrChecksum, and changes nothing, if the field is not in the frame.
func FillChecksum(fragments [][]byte, start, at int) error {
	field := locate(fragments, start+at)
	if start < 0 || at < 0 || len(field) < 2 {
		return ErrChecksum
	}
	sum := ^SumFrom(fragments, start)
	if sum == 0 && at == 6 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(field, sum)
	return nil
}

// SumFrom returns the folded ones' complement sum of everything from byte start on, as a number (0 if there is
// nothing). A TCP or UDP checksum is right if the sum from its header on, added to that of the pseudo-header, is
// 0xffff.
func SumFrom(fragments [][]byte, start int) uint16 {
	var sum uint16
	done := 0
	for _, f := range fragments {
		if start >= len(f) {
			start -= len(f)
			continue
		}
		f = f[start:]
		start = 0
		sum = checksum.AddAt(sum, checksum.Sum(f), done)
		done += len(f)
	}
	return sum
}

// PartialChecksum writes the folded sum of the pseudo-header into the checksum field of the TCP or UDP header, which is
// what FillChecksum and devices expect to find there. head holds the headers; length is the length of the whole frame
// without padding. Only L3Offset and L4Offset of p are used.
func PartialChecksum(head []byte, p Params, length int) error {
	l4, protocol, err := network(head, int(p.L3Offset))
	if err != nil {
		return err
	}
	if l4 != int(p.L4Offset) || length < l4 {
		return ErrOffsets
	}
	if _, err := transport(head, l4, protocol); err != nil {
		return err
	}
	s := Segmenter{params: p, protocol: protocol, ipv6: head[p.L3Offset]>>4 == 6}
	at := 16
	if protocol == protocolUDP {
		at = 6
	}
	binary.BigEndian.PutUint16(head[l4+at:], s.pseudo(head, length-l4))
	return nil
}

// locate returns the rest of the fragment that holds byte offset of the frame, from that byte on; nil if none does.
func locate(fragments [][]byte, offset int) []byte {
	if offset < 0 {
		return nil
	}
	for _, f := range fragments {
		if offset < len(f) {
			return f[offset:]
		}
		offset -= len(f)
	}
	return nil
}
