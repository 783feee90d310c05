package lro

import (
	"encoding/binary"
	"math/bits"
)

// quick takes packets from index i on as long as they are what almost all packets of a bulk transfer are: untagged IP
// and TCP, without options or with a timestamp in its usual layout, that follow their flow's aggregate or open one. It
// returns the index of the first packet that is anything else, which the long way (parse, take, pass) has to deal with.
//
// It exists for speed, and does nothing that the long way would not do to the same packet: a test runs both on all
// traces and compares. The speed comes from doing everything in one place: a packet's words go from the frame into
// registers and are compared there with the entry, without a view in memory; whatever differs is found by one
// comparison; and the branches go the same way for packet after packet.
func (e *Engine) quick(in []Packet, i int) int {
	const (
		longest4 = ethernetLen + 20 + 20 + 12
		longest6 = ethernetLen + ipv6Len + 20 + 12
		control  = flagSYN | flagRST | flagURG | flagACK
	)
	t := &e.table
	for ; i < len(in); i++ {
		p := &in[i]
		d := p.Data
		if len(d) < longest4 || p.Segments > 1 || p.SegmentSize != 0 {
			return i
		}
		meta := uint64(ethernetLen | 4<<32)
		if p.Flags != 0 {
			if p.Flags != VLANStripped {
				return i
			}
			meta |= 1<<8 | uint64(p.VLAN)<<16
		}
		if p.Checksum != ChecksumVerified &&
			(p.Checksum != ChecksumUnknown || e.passUnverified || int(p.Len) > len(d)) {
			return i
		}
		h := (*[longest4]byte)(d)
		link0 := binary.LittleEndian.Uint64(h[0:8])
		link1 := binary.LittleEndian.Uint64(h[6:14])
		w0 := binary.LittleEndian.Uint64(h[14:22])
		var (
			addr           [4]uint64
			ports, net     uint64
			tcp, opt, tail uint64 // from the data offset on; options; further options and acknowledgement
			seq            uint32
			id             uint16
			total          uint32
			headerLen      uint32 // with a timestamp
			flags          AggregateFlags
		)
		switch {
		case link1>>48 == 0x0008:
			w1 := binary.LittleEndian.Uint64(h[22:30]) // TTL to source
			w2 := binary.LittleEndian.Uint64(h[30:38]) // destination, ports
			w3 := binary.LittleEndian.Uint64(h[38:46]) // sequence, acknowledgement
			if (w0&0xff^0x45)|(w0>>48&^0x40)|(w1>>8&0xff^protocolTCP) != 0 {
				return i
			}
			sum, carry := bits.Add64(w0, w1, 0)
			sum, carry = bits.Add64(sum, w2&0xffffffff, carry)
			if (sum+carry)%65535 != 0 || uint16(w1>>16) == 0xffff {
				return i
			}
			addr[0] = w1>>32 | w2<<32
			ports = w2 >> 32
			net = w0&0xffff00000000ffff | w1&0xffff<<16
			id = bits.ReverseBytes16(uint16(w0 >> 32))
			total = uint32(bits.ReverseBytes16(uint16(w0 >> 16)))
			seq = bits.ReverseBytes32(uint32(w3))
			tail = w3>>32<<32 | uint64(binary.LittleEndian.Uint32(h[62:66]))
			tcp = binary.LittleEndian.Uint64(h[46:54])
			opt = binary.LittleEndian.Uint64(h[54:62])
			headerLen, flags = longest4, TCP
		case link1>>48 == 0xdd86 && len(d) >= longest6:
			h := (*[longest6]byte)(d)
			if w0&0xf0 != 0x60 || w0>>48&0xff != protocolTCP {
				return i
			}
			addr[0] = binary.LittleEndian.Uint64(h[22:30])
			addr[1] = binary.LittleEndian.Uint64(h[30:38])
			addr[2] = binary.LittleEndian.Uint64(h[38:46])
			addr[3] = binary.LittleEndian.Uint64(h[46:54])
			w3 := binary.LittleEndian.Uint64(h[54:62]) // ports, sequence
			ports = w3 & 0xffffffff
			net = w0 &^ (0xffff << 32)
			total = ipv6Len + uint32(bits.ReverseBytes16(uint16(w0>>32)))
			seq = bits.ReverseBytes32(uint32(w3 >> 32))
			tail = uint64(binary.LittleEndian.Uint32(h[62:66]))<<32 | uint64(binary.LittleEndian.Uint32(h[82:86]))
			tcp = binary.LittleEndian.Uint64(h[66:74])
			opt = binary.LittleEndian.Uint64(h[74:82])
			meta ^= 4<<32 ^ 6<<32
			headerLen, flags = longest6, TCP|IPv6
		default:
			return i
		}
		if tcp>>8&control != flagACK || uint16(tcp>>32) == 0xffff || total+ethernetLen != p.Len || total > e.mtu {
			return i
		}
		if tcp&0xf0 != 0x80 {
			if tcp&0xf0 != 0x50 {
				return i
			}
			headerLen -= 12
			opt, tail = 0, tail>>32<<32
		}
		payload := p.Len - headerLen
		if int32(payload) <= 0 {
			return i
		}
		ending := uint8(tcp>>8) & (flagFIN | flagPSH)
		tcp &^= 0xffff<<32 | (flagFIN|flagPSH)<<8
		ports |= uint64(p.Port) << 32

		high, low := bits.Mul64(addr[0]^t.seed[0], ports^meta<<24^t.seed[1])
		if flags&IPv6 != 0 {
			high, low = t.hashMore(high, low, addr[1], addr[2], addr[3])
		}
		hash := high ^ low
		s := &t.sets[hash&t.mask]
		want := t.stamp | hash>>32
		x, way, fresh := &s.entries[0], 0, false
		if s.tags[0] != want {
			if fresh = s.tags[0] < t.stamp; !fresh {
				way = s.seek(want, t.stamp)
				fresh = way == ways || s.tags[way] != want
				x = &s.entries[way&(ways-1)]
			}
		}
		if fresh || x.out < 0 && x.addr == addr && x.ports == ports && x.meta == meta {
			// The first packet of its flow, or the first one after what has ended.
			if ending != 0 || e.maxSegments == 1 || group(flags, link0, &addr) {
				return i
			}
			if way == ways {
				way = t.oldest(hash)
				x = &s.entries[way&(ways-1)]
				e.close(x, ReasonEvicted)
			}
			if s.tags[way&(ways-1)] < t.stamp {
				t.used = append(t.used, uint32(hash&t.mask)*ways+uint32(way))
			}
			s.tags[way&(ways-1)] = want
			x.addr = addr
			x.ports, x.tags, x.meta = ports, 0, meta
			x.link[0], x.link[1], x.net, x.tcp, x.opt, x.tail = link0, link1, net, tcp, opt, tail
			x.mark, x.next, x.limit, x.out = p.Mark, seq+payload, e.limit(ethernetLen, flags), int32(len(e.out))
			x.size, x.id, x.mode = uint16(payload), id, IDNone
			if tcp&(flagCWR<<8) != 0 {
				flags |= CWRCopied
			}
			e.open++
			e.out = append(e.out, Aggregate{
				Head: int32(i), Tail: int32(i), Len: p.Len, Segments: 1, SegmentSize: uint16(payload),
				L3Offset: ethernetLen, L4Offset: l4Offset(flags), HeaderLen: uint16(headerLen),
				Checksum: p.Checksum, Flags: flags,
			})
			p.Next, p.PayloadOffset, p.PayloadLen = -1, uint16(headerLen), payload
			continue
		}
		differs := (x.addr[0] ^ addr[0]) | (x.ports ^ ports) | (x.meta ^ meta) | (x.link[0] ^ link0) | (x.link[1] ^ link1) |
			(x.net ^ net) | (x.tcp ^ tcp) | (x.opt ^ opt) | (x.tail ^ tail) | uint64(x.mark^p.Mark) | uint64(x.next^seq)
		if flags&IPv6 != 0 {
			differs |= (x.addr[1] ^ addr[1]) | (x.addr[2] ^ addr[2]) | (x.addr[3] ^ addr[3])
		}
		step := id - x.id
		mode := IDFixed - IDMode(step)
		if differs != 0 || step > 1 || payload > uint32(x.size) {
			return i
		}
		a := &e.out[x.out]
		if a.Len+payload > x.limit || x.mode != mode && x.mode != IDNone {
			return i
		}
		p.Next, p.PayloadOffset, p.PayloadLen = -1, uint16(headerLen), payload
		// Both are verified or unknown: nothing else gets here.
		if p.Checksum&a.Checksum != ChecksumVerified && !e.verifyBoth(in, p, a) {
			return i
		}
		in[a.Tail].Next = int32(i)
		a.Tail = int32(i)
		a.Len += payload
		a.Segments++
		if x.mode == IDNone {
			x.mode = mode
			if flags&IPv6 == 0 {
				a.IDMode = mode
			}
		}
		x.id = id
		x.next += payload
		if ending != 0 || payload != uint32(x.size) || a.Segments >= e.maxSegments {
			a.ending = ending
			e.close(x, e.last(a, ending, payload, x.size))
		}
	}
	return i
}

// verifyBoth reports whether the checksums of the head and of the packet that is to join are right, where they are
// unknown. The headers of both are as long. If one is wrong, the long way has to find out again, and which.
func (e *Engine) verifyBoth(in []Packet, p *Packet, a *Aggregate) bool {
	if a.Checksum == ChecksumUnknown {
		if !e.verify(&in[a.Head], a.L3Offset, a.L4Offset, a.HeaderLen) {
			return false
		}
		a.Checksum = ChecksumVerified
	}
	return p.Checksum == ChecksumVerified || e.verify(p, a.L3Offset, a.L4Offset, a.HeaderLen)
}

// l4Offset returns where the TCP header begins without VLAN tags and options.
func l4Offset(flags AggregateFlags) uint16 {
	if flags&IPv6 != 0 {
		return ethernetLen + ipv6Len
	}
	return ethernetLen + 20
}

// group reports whether a packet has an address that no TCP connection has: a group, or the unspecified one.
func group(flags AggregateFlags, link uint64, addr *[4]uint64) bool {
	if flags&IPv6 != 0 {
		return link&1 != 0 || addr[0]&0xff == 0xff || addr[2]&0xff == 0xff || addr[0]|addr[1] == 0 || addr[2]|addr[3] == 0
	}
	source, destination := uint32(addr[0]), uint32(addr[0]>>32)
	return link&1 != 0 || source == 0 || destination == 0 || source&0xff >= 224 || destination&0xff >= 224
}
