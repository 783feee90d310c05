package vmxnet3

import (
	"encoding/binary"

	"nicd/sim"
)

// RSS configuration: offsets of Vmxnet3_RSSConf (Linux vmxnet3_defs.h), hash
// types, and the fields of SET_RSS_FIELDS.
const (
	rssHashType   = 0
	rssHashFunc   = 2
	rssKeySize    = 4
	rssTableSize  = 6
	rssKey        = 8
	rssTable      = 48
	rssMaxKey     = 40
	rssMaxTable   = 128
	rssToeplitz   = 1
	hashIPv4      = 1
	hashTCPIPv4   = 2
	hashIPv6      = 4
	hashTCPIPv6   = 8
	fieldTCPIPv4  = 1
	fieldTCPIPv6  = 2
	fieldUDPIPv4  = 4
	fieldUDPIPv6  = 8
	fieldsDefault = fieldTCPIPv4 | fieldTCPIPv6
	fieldsOffered = fieldsDefault | fieldUDPIPv4 | fieldUDPIPv6 // not ESP
)

// maxHashInput is two IPv6 addresses and two ports.
const maxHashInput = 36

// toeplitz computes Microsoft's RSS hash: the sum without carry of the key's
// 32-bit windows at the positions of the input's bits. The windows of the 16
// values of each half byte of input are added up beforehand.
type toeplitz [2 * maxHashInput][16]uint32

func newToeplitz(key *[rssMaxKey]byte) *toeplitz {
	t := new(toeplitz)
	for nibble := range t {
		for value := range 16 {
			for bit := range 4 {
				if value>>(3-bit)&1 != 0 {
					t[nibble][value] ^= keyWindow(key, 4*nibble+bit)
				}
			}
		}
	}
	return t
}

// keyWindow is the 32 bits of key from bit number at on.
func keyWindow(key *[rssMaxKey]byte, at int) uint32 {
	var wide [8]byte
	copy(wide[:], key[at/8:])
	return uint32(binary.BigEndian.Uint64(wide[:]) << (at % 8) >> 32)
}

func (t *toeplitz) hash(data []byte) (h uint32) {
	for i, b := range data[:min(len(data), maxHashInput)] {
		h ^= t[2*i][b>>4] ^ t[2*i+1][b&15]
	}
	return h
}

// rss is the receive side scaling in force.
type rss struct {
	on     bool
	types  uint16
	fields uint32 // of revision 4
	hash   *toeplitz
	table  []uint8
}

// parseRSS checks a copy of the configuration.
func parseRSS(b *[rssConfSize]byte, queues int) (r rss, err error) {
	le := binary.LittleEndian
	keyLen, tableLen := int(le.Uint16(b[rssKeySize:])), int(le.Uint16(b[rssTableSize:]))
	switch {
	case le.Uint16(b[rssHashFunc:]) != rssToeplitz:
		return r, badConfig("RSS hash function %d", le.Uint16(b[rssHashFunc:]))
	case keyLen == 0 || keyLen > rssMaxKey:
		return r, badConfig("RSS key of %d bytes", keyLen)
	case tableLen == 0 || tableLen > rssMaxTable:
		return r, badConfig("RSS table of %d entries", tableLen)
	}
	r = rss{on: true, types: le.Uint16(b[rssHashType:]), table: append([]uint8(nil), b[rssTable:rssTable+tableLen]...)}
	for _, q := range r.table {
		if int(q) >= queues {
			return r, badConfig("RSS table names queue %d of %d", q, queues)
		}
	}
	var key [rssMaxKey]byte
	copy(key[:keyLen], b[rssKey:])
	r.hash = newToeplitz(&key)
	return r, nil
}

// classify computes the hash of a packet, its type, and the queue. hdr holds its
// headers.
func (r *rss) classify(h *sim.Headers, hdr []byte) (queue int, hash uint32, kind uint32) {
	if !r.on || h.IP == 0 {
		return 0, 0, rssNone
	}
	kind = r.kind(h)
	if kind == rssNone {
		return 0, 0, rssNone
	}
	var in [maxHashInput]byte
	n := copy(in[:], hdr[h.IP+12:h.IP+20])
	if h.IPv6 {
		n = copy(in[:], hdr[h.IP+8:h.IP+40])
	}
	if kind != rssIPv4 && kind != rssIPv6 {
		n += copy(in[n:], hdr[h.L4:h.L4+4])
	}
	hash = r.hash.hash(in[:n])
	return int(r.table[hash%uint32(len(r.table))]), hash, kind
}

// kind is which fields of a packet are hashed.
func (r *rss) kind(h *sim.Headers) uint32 {
	type choice struct {
		types                   uint16
		l4Types                 uint16
		tcpField, udpField      uint32
		plain, withTCP, withUDP uint32
	}
	c := choice{hashIPv4, hashTCPIPv4, fieldTCPIPv4, fieldUDPIPv4, rssIPv4, rssTCPIPv4, rssUDPIPv4}
	if h.IPv6 {
		c = choice{hashIPv6, hashTCPIPv6, fieldTCPIPv6, fieldUDPIPv6, rssIPv6, rssTCPIPv6, rssUDPIPv6}
	}
	switch {
	case h.Payload != 0 && h.Protocol == sim.ProtocolTCP && r.types&c.l4Types != 0 && r.fields&c.tcpField != 0:
		return c.withTCP
	case h.Payload != 0 && h.Protocol == sim.ProtocolUDP && r.fields&c.udpField != 0:
		return c.withUDP
	case r.types&c.types != 0:
		return c.plain
	}
	return rssNone
}
