package lro

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
)

// rule is one row of the table of adversarial cases: what comes in, and which packets come out together. Every row is
// also checked for everything that checkBatch knows, and against the reference model where the model applies.
type rule struct {
	row     int
	name    string
	in      []Packet
	want    string
	options Options
	reason  Reason // if set, this reason must have been counted
	check   func(t *testing.T, in []Packet, out []Aggregate)
	noModel bool // the model knows the default options' MTU only
}

// three returns three segments in order, the second of which is changed by edit.
func three(edit func(s *segment)) []Packet {
	return packets(train(3, 1448, func(i int, s *segment) {
		if i == 1 {
			edit(s)
		}
	})...)
}

// three6 is three over IPv6.
func three6(edit func(s *segment)) []Packet {
	return packets(train(3, 1428, func(i int, s *segment) {
		s.ipv6, s.label = true, 0x12345
		if i == 1 {
			edit(s)
		}
	})...)
}

// from returns three segments in order, of which the second and later ones are changed by edit.
func from(edit func(i int, s *segment)) []Packet {
	return packets(train(3, 1448, func(i int, s *segment) {
		if i > 0 {
			edit(i, s)
		}
	})...)
}

// all returns three segments in order, all changed by edit.
func all(edit func(i int, s *segment)) []Packet { return packets(train(3, 1448, edit)...) }

// all6 is all over IPv6.
func all6(edit func(i int, s *segment)) []Packet {
	return packets(train(3, 1428, func(i int, s *segment) {
		s.ipv6, s.label = true, 0x12345
		edit(i, s)
	})...)
}

// sized returns segments of the sizes given, in order.
func sized(sizes ...int) []Packet {
	var s []segment
	seq := uint32(1000)
	for i, n := range sizes {
		x := data(i, n)
		x.seq = seq
		seq += uint32(n)
		s = append(s, x)
	}
	return packets(s...)
}

// ordered returns the packets in another order.
func ordered(in []Packet, order ...int) []Packet {
	out := make([]Packet, len(order))
	for i, j := range order {
		out[i] = in[j]
		out[i].Data = bytes.Clone(in[j].Data)
	}
	return out
}

// each changes all packets.
func each(in []Packet, edit func(i int, p *Packet)) []Packet {
	for i := range in {
		edit(i, &in[i])
	}
	return in
}

// second changes the packet with index 1.
func second(in []Packet, edit func(p *Packet)) []Packet {
	edit(&in[1])
	return in
}

// put16 returns an edit that writes v at an offset from the IP header (ip true) or from the TCP header.
func put16(ip bool, at int, v uint16) func(f []byte, l3, l4 int) {
	return func(f []byte, l3, l4 int) {
		if ip {
			l4 = l3
		}
		binary.BigEndian.PutUint16(f[l4+at:], v)
	}
}

// zeroSum makes the TCP checksum of the segment 0 and writes field into it.
func zeroSum(s *segment, field uint16) {
	s.payload[0], s.payload[1] = 0, 0
	s.edit = func(f []byte, l3, l4 int) {
		at := l4 + 20 + len(s.options)
		copy(f[at:], f[l4+16:l4+18])
		binary.BigEndian.PutUint16(f[l4+16:], field)
	}
}

// zeroHeaderSum gives the three segments a source address for which the IPv4 header checksum of the second one is 0, and
// writes field there.
func zeroHeaderSum(field uint16) func(i int, s *segment) {
	middle := data(1, 1448).build()
	source := onesSum(uint32(binary.BigEndian.Uint16(middle[14+10:])), middle[14+14:14+16])
	return func(i int, s *segment) {
		s.edit = func(f []byte, l3, l4 int) {
			binary.BigEndian.PutUint16(f[l3+14:], uint16(source))
			fix(f, l3, l4, 6)
			if i != 1 {
				return
			}
			if f[l3+10] != 0 || f[l3+11] != 0 {
				panic("the checksum is not 0")
			}
			binary.BigEndian.PutUint16(f[l3+10:], field)
		}
	}
}

// verified says that the TCP checksum is right.
func verified(i int, p *Packet) { p.Checksum = ChecksumVerified }

func repeat(n int) string {
	v := make([]int, n)
	for i := range v {
		v[i] = i
	}
	return fmt.Sprint(v)
}

func span(from, to int) string {
	var v []int
	for i := from; i < to; i++ {
		v = append(v, i)
	}
	return fmt.Sprint(v)
}

const (
	one    = "[0 1 2]"
	none   = "[0] [1] [2]"
	split1 = "[0] [1 2]"
	split2 = "[0 1] [2]"
	first  = "[0 2] [1]"
)

func sack() []byte {
	return []byte{1, 1, 5, 10, 0, 0, 0, 9, 0, 0, 0, 20}
}

func hardware(segments, size uint16, flags PacketFlags) func(p *Packet) {
	return func(p *Packet) { p.Segments, p.SegmentSize, p.Flags = segments, size, p.Flags|flags }
}

func bypassed(index int, segments, size uint16) func(t *testing.T, in []Packet, out []Aggregate) {
	return func(t *testing.T, in []Packet, out []Aggregate) {
		for i := range out {
			if a := &out[i]; int(a.Head) == index {
				if a.Flags&Bypassed == 0 || a.Segments != segments || a.SegmentSize != size {
					t.Errorf("%+v", a)
				}
			}
		}
	}
}

func rules() []rule {
	jumbo := Options{MTU: 9000}
	return []rule{
		{row: 1, name: "in order", in: sized(1448, 1448, 1448), want: one, reason: ReasonBatchEnd},
		{row: 1, name: "in order until the size cap", in: packets(train(60, 1448, nil)...),
			want: span(0, 45) + " " + span(45, 60), reason: ReasonSizeLimit},
		{row: 1, name: "IPv6", in: three6(func(*segment) {}), want: one},
		{row: 2, name: "last shorter", in: sized(1448, 1448, 1), want: one, reason: ReasonShort},
		{row: 3, name: "after a short one", in: sized(1448, 500, 1448, 1448), want: "[0 1] [2 3]", reason: ReasonShort},
		{row: 3, name: "after a short one, as short", in: sized(1000, 500, 500, 500), want: "[0 1] [2 3]"},
		{row: 4, name: "larger than the first", in: sized(1000, 1400, 1400), want: split1, reason: ReasonLarger},
		{row: 4, name: "larger by one", in: sized(1000, 1000, 1001), want: split2, reason: ReasonLarger},
		{row: 5, name: "pure ACK between", in: sized(1448, 0, 1448), want: none, reason: ReasonNoPayload},
		{row: 6, name: "window update after data", in: packets(train(2, 1448, func(i int, s *segment) {
			if i == 1 {
				s.payload, s.window = nil, 900
			}
		})...), want: "[0] [1]", reason: ReasonNoPayload},
		{row: 7, name: "three duplicate ACKs", in: sized(0, 0, 0), want: none},
		{row: 8, name: "advancing ACKs", in: packets(train(3, 0, func(i int, s *segment) {
			s.ack += uint32(i * 1448)
		})...), want: none},
		{row: 9, name: "acknowledgement advances", in: from(func(i int, s *segment) { s.ack++ }), want: split1, reason: ReasonAck},
		{row: 9, name: "acknowledgement advances in its highest byte", in: from(func(i int, s *segment) { s.ack += 1 << 24 }),
			want: split1, reason: ReasonAck},
		{row: 10, name: "window changes", in: from(func(i int, s *segment) { s.window++ }), want: split1, reason: ReasonWindow},
		{row: 10, name: "window changes in its high byte", in: from(func(i int, s *segment) { s.window += 256 }),
			want: split1, reason: ReasonWindow},
		{row: 11, name: "PSH in the middle", in: three(func(s *segment) { s.flags |= flagPSH }), want: split2, reason: ReasonPush,
			check: func(t *testing.T, in []Packet, out []Aggregate) {
				if in[0].Data[out[0].L4Offset+13] != flagACK|flagPSH {
					t.Error("PSH is lost")
				}
			}},
		{row: 12, name: "PSH on the first", in: all(func(i int, s *segment) {
			if i == 0 {
				s.flags |= flagPSH
			}
		}), want: split1, reason: ReasonPush},
		{row: 13, name: "FIN with data", in: all(func(i int, s *segment) {
			if i == 2 {
				s.flags |= flagFIN
			}
		}), want: one, reason: ReasonFIN},
		{row: 13, name: "FIN in the middle", in: three(func(s *segment) { s.flags |= flagFIN }), want: split2, reason: ReasonFIN},
		{row: 13, name: "FIN on the first", in: all(func(i int, s *segment) {
			if i == 0 {
				s.flags |= flagFIN
			}
		}), want: split1, reason: ReasonFIN},
		{row: 14, name: "FIN without data", in: three(func(s *segment) { s.flags |= flagFIN; s.payload = nil }), want: none},
		{row: 14, name: "RST", in: three(func(s *segment) { s.flags |= flagRST }), want: none, reason: ReasonControl},
		{row: 14, name: "RST without data", in: three(func(s *segment) { s.flags |= flagRST; s.payload = nil }), want: none},
		{row: 14, name: "SYN", in: three(func(s *segment) { s.flags |= flagSYN; s.payload = nil }), want: none},
		{row: 14, name: "SYN with data", in: three(func(s *segment) { s.flags |= flagSYN }), want: none, reason: ReasonControl},
		{row: 14, name: "SYN with data on all", in: all(func(i int, s *segment) { s.flags |= flagSYN }), want: none},
		{row: 14, name: "no ACK on all", in: all(func(i int, s *segment) { s.flags = 0 }), want: none, reason: ReasonControl},
		{row: 14, name: "RST on all", in: all(func(i int, s *segment) { s.flags |= flagRST }), want: none, reason: ReasonControl},
		{row: 15, name: "URG", in: three(func(s *segment) { s.flags |= flagURG }), want: none, reason: ReasonControl},
		{row: 15, name: "URG on all", in: all(func(i int, s *segment) { s.flags |= flagURG }), want: none},
		{row: 16, name: "urgent pointer without URG", in: three(func(s *segment) { s.urgent = 9 }), want: none, reason: ReasonUrgent},
		{row: 16, name: "urgent pointer without URG, high byte", in: three(func(s *segment) { s.urgent = 0x100 }), want: none},
		{row: 17, name: "ECE differs", in: three(func(s *segment) { s.flags |= 0x40 }), want: none, reason: ReasonFlags},
		{row: 17, name: "ECE on all", in: all(func(i int, s *segment) { s.flags |= 0x40 }), want: one},
		{row: 18, name: "CWR on the first only", in: all(func(i int, s *segment) {
			if i == 0 {
				s.flags |= flagCWR
			}
		}), want: split1, reason: ReasonFlags},
		{row: 19, name: "CWR, ECE and AE on all", in: all(func(i int, s *segment) { s.flags |= 0xc0; s.reserved = 1 }), want: one,
			check: func(t *testing.T, in []Packet, out []Aggregate) {
				if out[0].Flags&CWRCopied == 0 {
					t.Error("not marked")
				}
			}},
		{row: 20, name: "AE differs", in: three(func(s *segment) { s.reserved = 1 }), want: none, reason: ReasonFlags},
		{row: 21, name: "reserved bits on all", in: all(func(i int, s *segment) { s.reserved = 0xe }), want: one},
		{row: 21, name: "reserved bits differ", in: three(func(s *segment) { s.reserved = 8 }), want: none, reason: ReasonFlags},
		{row: 22, name: "CE mark", in: all(func(i int, s *segment) {
			s.tos = 2
			if i == 1 {
				s.tos = 3
			}
		}), want: none, reason: ReasonTOS},
		{row: 22, name: "CE mark, IPv6", in: three6(func(s *segment) { s.tos = 3 }), want: none, reason: ReasonTOS},
		{row: 23, name: "DSCP differs", in: three(func(s *segment) { s.tos = 0x28 }), want: none, reason: ReasonTOS},
		{row: 23, name: "DSCP differs, IPv6", in: three6(func(s *segment) { s.tos = 0x80 }), want: none, reason: ReasonTOS},
		{row: 24, name: "TTL differs", in: three(func(s *segment) { s.ttl-- }), want: none, reason: ReasonTTL},
		{row: 24, name: "hop limit differs", in: three6(func(s *segment) { s.ttl-- }), want: none, reason: ReasonTTL},
		{row: 25, name: "flow label differs", in: three6(func(s *segment) { s.label++ }), want: none, reason: ReasonFlowLabel},
		{row: 25, name: "flow label differs in its highest bits", in: three6(func(s *segment) { s.label ^= 0x80000 }), want: none,
			reason: ReasonFlowLabel},
		{row: 26, name: "identification fixed", in: all(func(i int, s *segment) { s.id = 77 }), want: one, check: mode(IDFixed)},
		{row: 26, name: "identification fixed, fragmentation allowed", in: all(func(i int, s *segment) {
			s.id, s.fragment = 77, 0
		}), want: one, check: mode(IDFixed)},
		{row: 27, name: "identification counts", in: all(func(int, *segment) {}), want: one, check: mode(IDIncrement)},
		{row: 27, name: "identification counts, fragmentation allowed", in: all(func(i int, s *segment) { s.fragment = 0 }),
			want: one, check: mode(IDIncrement)},
		{row: 28, name: "identification wraps", in: all(func(i int, s *segment) { s.id = uint16(0xffff + i) }), want: one},
		{row: 29, name: "identification jumps", in: from(func(i int, s *segment) { s.id += 9 }), want: split1, reason: ReasonIPID},
		{row: 29, name: "identification counts down", in: all(func(i int, s *segment) { s.id = uint16(100 - i) }), want: none,
			reason: ReasonIPID},
		{row: 29, name: "identification counts by two", in: all(func(i int, s *segment) { s.id = uint16(100 + 2*i) }), want: none},
		{row: 30, name: "fixed, then counting", in: all(func(i int, s *segment) { s.id = []uint16{5, 5, 6}[i] }), want: split2,
			reason: ReasonIPID},
		{row: 30, name: "counting, then fixed", in: all(func(i int, s *segment) { s.id = []uint16{5, 6, 6}[i] }), want: split2,
			reason: ReasonIPID},
		{row: 31, name: "DF differs", in: three(func(s *segment) { s.fragment = 0 }), want: none, reason: ReasonDF},
		{row: 31, name: "reserved IP flag", in: three(func(s *segment) { s.fragment |= 0x8000 }), want: none, reason: ReasonIPOptions},
		{row: 31, name: "reserved IP flag on all", in: all(func(i int, s *segment) { s.fragment = 0x8000 }), want: none},
		{row: 32, name: "first fragment", in: three(func(s *segment) { s.fragment = 0x2000 }), want: none, reason: ReasonFragment},
		{row: 32, name: "first fragment of another flow", in: three(func(s *segment) { s.fragment, s.sport = 0x2000, 9 }), want: "[0] [1] [2]"},
		{row: 32, name: "later fragment, ports unknown", in: three(func(s *segment) { s.fragment, s.sport = 0x00b9, 9 }), want: none,
			reason: ReasonFragment},
		{row: 32, name: "later fragment of another address pair", in: append(three(func(s *segment) { s.fragment, s.src = 0x00b9, 9 }),
			data(3, 1448).packet()), want: "[0] [1] [2 3]"},
		{row: 32, name: "later fragment between", in: interleaved(func(s *segment) { s.fragment, s.sport = 0x00b9, 9 }), want: none,
			reason: ReasonFragment},
		{row: 32, name: "later fragment between two others", in: interleaved(func(s *segment) { s.fragment, s.src = 0x00b9, 9 }), want: first},
		{row: 32, name: "first fragment between", in: interleaved(func(s *segment) { s.fragment = 0x2000 }), want: none},
		{row: 32, name: "first fragment of another flow between", in: interleaved(func(s *segment) { s.fragment, s.sport = 0x2000, 9 }), want: first},
		{row: 32, name: "IPv6 fragment header between", in: []Packet{data6(0, 1000).packet(), func() Packet {
			s := data6(1, 1000)
			s.extension, s.extensionType, s.sport = make([]byte, 8), 44, 9
			return s.packet()
		}(), data6(1, 1000).packet()}, want: none, reason: ReasonFragment},
		{row: 33, name: "IPv4 options between", in: interleaved(func(s *segment) { s.ipOptions, s.payload = []byte{1, 1, 1, 0}, s.payload[4:] }),
			want: none},
		{row: 33, name: "IPv4 options of another flow between", in: interleaved(func(s *segment) {
			s.ipOptions, s.payload, s.sport = []byte{1, 1, 1, 0}, s.payload[4:], 9
		}), want: first},
		{row: 34, name: "IPv6 extension header between", in: []Packet{data6(0, 1000).packet(), func() Packet {
			s := data6(1, 1000)
			s.extension, s.extensionType, s.sport = []byte{0, 0, 1, 4, 0, 0, 0, 0}, 60, 9
			return s.packet()
		}(), data6(1, 1000).packet()}, want: none, reason: ReasonIPOptions},
		{row: 32, name: "UDP fragment", in: interleaved(func(s *segment) { s.protocol, s.fragment = 17, 0x2000 }), want: first},
		{row: 32, name: "IPv6 fragment header", in: three6(func(s *segment) {
			s.extension, s.extensionType = make([]byte, 8), 44
		}), want: none, reason: ReasonFragment},
		{row: 33, name: "IPv4 options", in: three(func(s *segment) { s.ipOptions = []byte{1, 1, 1, 0}; s.payload = s.payload[4:] }),
			want: none, reason: ReasonIPOptions},
		{row: 33, name: "IPv4 options on all", in: packets(train(3, 1400, func(i int, s *segment) { s.ipOptions = []byte{1, 1, 1, 0} })...),
			want: none, reason: ReasonIPOptions},
		{row: 33, name: "no-operation options that look like a TCP header", in: each(all(func(i int, s *segment) {
			s.edit = func(f []byte, l3, l4 int) {
				f[l3] = 0x46
				f[l3+10], f[l3+11] = 0, 0
				binary.BigEndian.PutUint16(f[l3+10:], ^uint16(onesSum(0, f[l3:l3+20])))
			}
		}), verified), want: none},
		{row: 33, name: "IHL too small", in: three(func(s *segment) {
			s.edit = func(f []byte, l3, l4 int) { f[l3] = 0x44 }
		}), want: none, reason: ReasonMalformed},
		{row: 33, name: "IHL too large", in: second(three(func(s *segment) {}), func(p *Packet) {
			p.Data = p.Data[:14+20+8]
			p.Data[14] = 0x4f
			p.Len = uint32(len(p.Data))
		}), want: none, reason: ReasonMalformed},
		{row: 33, name: "version 5", in: three(func(s *segment) {
			s.edit = func(f []byte, l3, l4 int) { f[l3] = 0x55 }
		}), want: none, reason: ReasonMalformed},
		{row: 33, name: "version 5, IPv6", in: three6(func(s *segment) {
			s.edit = func(f []byte, l3, l4 int) { f[l3] = 0x50 }
		}), want: none, reason: ReasonMalformed},
		{row: 34, name: "IPv6 extension headers", in: three6(func(s *segment) {
			s.extension, s.extensionType, s.payload = []byte{0, 0, 1, 4, 0, 0, 0, 0}, 60, s.payload[8:]
		}), want: none, reason: ReasonIPOptions},
		{row: 34, name: "IPv6 extension headers on all", in: packets(train(3, 1000, func(i int, s *segment) {
			s.ipv6, s.extension, s.extensionType = true, []byte{0, 0, 1, 4, 0, 0, 0, 0}, 0
		})...), want: none},
		{row: 35, name: "timestamps equal", in: all(func(i int, s *segment) { s.options = timestamp(77, 88) }), want: one},
		{row: 35, name: "no options", in: all(func(i int, s *segment) { s.options = nil }), want: one},
		{row: 35, name: "4, 8, 16 and 40 bytes of options, equal", in: packets(optionTrains(nil)...), want: "[0 1] [2 3] [4 5] [6 7]"},
		{row: 36, name: "timestamp advances", in: from(func(i int, s *segment) { s.options = timestamp(2, 2) }), want: split1,
			reason: ReasonOptions},
		{row: 37, name: "timestamp goes back", in: three(func(s *segment) { s.options = timestamp(0, 2) }), want: none, reason: ReasonOptions},
		{row: 37, name: "timestamp echo changes", in: from(func(i int, s *segment) { s.options = timestamp(1, 3) }), want: split1,
			reason: ReasonOptions},
		{row: 38, name: "options in another order", in: three(func(s *segment) {
			s.options = []byte{8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1}
		}), want: none, reason: ReasonOptions},
		{row: 38, name: "other padding", in: three(func(s *segment) {
			s.options = []byte{8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0}
		}), want: none},
		{row: 38, name: "other length", in: three(func(s *segment) { s.options = s.options[:8] }), want: none, reason: ReasonOptions},
		{row: 38, name: "last byte of 4, 8, 16 and 40 bytes differs", in: packets(optionTrains(func(o []byte) { o[len(o)-1] ^= 1 })...),
			want: "[0] [1] [2] [3] [4] [5] [6] [7]", reason: ReasonOptions},
		{row: 39, name: "SACK block", in: three(func(s *segment) { s.options = sack() }), want: none, reason: ReasonOptions},
		{row: 39, name: "SACK block behind timestamps", in: packets(train(3, 1400, func(i int, s *segment) {
			s.options = append(timestamp(1, 2), sack()...)
			if i == 1 {
				s.options[23]++
			}
		})...), want: none, reason: ReasonOptions},
		{row: 40, name: "data offset too small", in: three(func(s *segment) {
			s.edit, s.fix = func(f []byte, l3, l4 int) { f[l4+12] = 0x40 }, true
		}), want: none, reason: ReasonMalformed},
		{row: 40, name: "data offset behind the end", in: packets(train(3, 8, func(i int, s *segment) {
			if i == 1 {
				s.edit, s.fix = func(f []byte, l3, l4 int) { f[l4+12] = 0xf0 }, true
			}
		})...), want: none, reason: ReasonMalformed},
		{row: 41, name: "gap", in: from(func(i int, s *segment) { s.seq++ }), want: split1, reason: ReasonSequence},
		{row: 41, name: "overlap", in: from(func(i int, s *segment) { s.seq-- }), want: split1, reason: ReasonSequence},
		{row: 41, name: "exact duplicate", in: ordered(sized(1448, 1448), 0, 0, 1), want: "[0] [1 2]", reason: ReasonSequence},
		{row: 41, name: "old retransmission", in: ordered(sized(1448, 1448, 1448, 1448), 0, 1, 0, 2, 3), want: "[0 1] [2] [3 4]"},
		{row: 42, name: "sequence wraps", in: all(func(i int, s *segment) { s.seq = uint32(0xfffffff0 + i*1448) }), want: one},
		{row: 43, name: "reordered", in: ordered(sized(1448, 1448, 1448), 0, 2, 1), want: none, reason: ReasonSequence},
		{row: 44, name: "65535 bytes", in: train65535(0, false), want: repeat(66), options: Options{MaxSegments: 255}},
		{row: 44, name: "65536 bytes", in: train65535(1, false), want: repeat(65) + " [65]", options: Options{MaxSegments: 255},
			reason: ReasonSizeLimit},
		{row: 44, name: "65535 bytes of IPv6 payload", in: train65535(0, true), want: repeat(66), options: Options{MaxSegments: 255}},
		{row: 44, name: "65536 bytes of IPv6 payload", in: train65535(1, true), want: repeat(65) + " [65]",
			options: Options{MaxSegments: 255}, reason: ReasonSizeLimit},
		{row: 44, name: "the caller's limit", in: sized(100, 100, 100), want: split2, options: Options{MaxLen: 52 + 299}},
		{row: 44, name: "the caller's limit, exactly", in: sized(100, 100, 100), want: one, options: Options{MaxLen: 52 + 300}},
		{row: 45, name: "one-byte payloads", in: packets(train(100, 1, nil)...), want: repeat(64) + " " + span(64, 100),
			reason: ReasonSegmentLimit},
		{row: 46, name: "segment cap", in: packets(train(600, 8, nil)...), want: repeat(255) + " " + span(255, 510) + " " + span(510, 600),
			options: Options{MaxSegments: 255}, reason: ReasonSegmentLimit},
		{row: 46, name: "segment cap of one", in: sized(8, 8), want: "[0] [1]", options: Options{MaxSegments: 1},
			reason: ReasonSegmentLimit},
		{row: 47, name: "Ethernet padding", in: packets(train(3, 4, func(i int, s *segment) { s.options, s.pad = nil, 2 })...), want: none,
			reason: ReasonPadding, check: func(t *testing.T, in []Packet, out []Aggregate) {
				if in[0].PayloadLen != 4 || out[0].Len != 60 {
					t.Errorf("payload %d, frame %d", in[0].PayloadLen, out[0].Len)
				}
			}},
		{row: 47, name: "Ethernet padding on the last", in: packets(train(3, 4, func(i int, s *segment) {
			if i == 2 {
				s.pad = 1
			}
		})...), want: split2, reason: ReasonPadding},
		{row: 47, name: "padding of a large frame, verified", in: each(packets(train(3, 1400, func(i int, s *segment) { s.pad = 2 * (i % 2) })...),
			verified), want: none, reason: ReasonPadding},
		{row: 48, name: "truncated, verified", in: each(second(three(func(s *segment) {}), func(p *Packet) {
			p.Data = p.Data[:len(p.Data)-1]
			p.Len--
		}), verified), want: none, reason: ReasonTruncated},
		{row: 48, name: "truncated", in: second(three(func(s *segment) {}), func(p *Packet) {
			p.Data = p.Data[:len(p.Data)-1]
			p.Len--
		}), want: none, reason: ReasonTruncated},
		{row: 49, name: "IP length of another packet", in: three(func(s *segment) { s.edit = put16(true, 2, 8000) }), want: none,
			reason: ReasonTruncated},
		{row: 50, name: "bad IPv4 header checksum", in: three(func(s *segment) { s.edit = put16(true, 10, 0x1234) }), want: none,
			reason: ReasonBadChecksum},
		{row: 50, name: "bad IPv4 header checksum, TCP verified", in: each(three(func(s *segment) { s.edit = put16(true, 10, 0x1234) }),
			func(i int, p *Packet) { p.Checksum = ChecksumVerified }), want: none, reason: ReasonBadChecksum},
		{row: 50, name: "hardware says bad", in: second(three(func(s *segment) {}), func(p *Packet) { p.Checksum = ChecksumBad }),
			want: none, reason: ReasonBadChecksum},
		{row: 51, name: "bad TCP checksum in the middle", in: three(func(s *segment) { s.edit = put16(false, 16, 0x1234) }), want: none,
			reason: ReasonBadChecksum},
		{row: 51, name: "bad TCP checksum on the first", in: all(func(i int, s *segment) {
			if i == 0 {
				s.edit = put16(false, 16, 0x1234)
			}
		}), want: split1, reason: ReasonBadChecksum, check: func(t *testing.T, in []Packet, out []Aggregate) {
			if out[0].Checksum != ChecksumBad {
				t.Errorf("%+v", out[0])
			}
		}},
		{row: 51, name: "bad TCP checksum, IPv6", in: three6(func(s *segment) { s.edit = put16(false, 16, 0x1234) }), want: none,
			reason: ReasonBadChecksum},
		{row: 52, name: "not checked, verified here", in: sized(1448, 1448, 1448), want: one},
		{row: 52, name: "not checked, not to be verified", in: sized(1448, 1448, 1448), want: none,
			options: Options{PassUnverified: true}, reason: ReasonUnverified, noModel: true},
		{row: 52, name: "not checked, in fragments", in: each(sized(1448, 1448, 1448), func(i int, p *Packet) { p.Len += 8 }),
			want: none, noModel: true},
		{row: 52, name: "partial", in: each(sized(1448, 1448), func(i int, p *Packet) { p.Checksum = ChecksumPartial }),
			want: "[0] [1]", reason: ReasonUnverified},
		{row: 53, name: "checksum field 0x0000", in: three(func(s *segment) { zeroSum(s, 0) }), want: one},
		{row: 53, name: "checksum field 0xffff", in: three(func(s *segment) { zeroSum(s, 0xffff) }), want: none, reason: ReasonOddChecksum},
		{row: 53, name: "IPv4 checksum field 0x0000", in: all(zeroHeaderSum(0)), want: one},
		{row: 53, name: "IPv4 checksum field 0xffff", in: all(zeroHeaderSum(0xffff)), want: none, reason: ReasonOddChecksum},
		{row: 54, name: "VLAN differs", in: interleaved(func(s *segment) { s.tags = []uint32{0x81000002} }, 0x81000001), want: first},
		{row: 54, name: "priority differs", in: interleaved(func(s *segment) { s.tags = []uint32{0x81002001} }, 0x81000001), want: first},
		{row: 54, name: "tagged and untagged", in: interleaved(func(s *segment) { s.tags = []uint32{0x81000001} }), want: first},
		{row: 54, name: "tag protocol differs", in: interleaved(func(s *segment) { s.tags = []uint32{0x88a80001} }, 0x81000001), want: first},
		{row: 54, name: "QinQ, outer differs", in: interleaved(func(s *segment) { s.tags = []uint32{0x88a80002, 0x81000001} }, 0x88a80001, 0x81000001),
			want: first},
		{row: 54, name: "QinQ, inner differs", in: interleaved(func(s *segment) { s.tags = []uint32{0x88a80001, 0x81000002} }, 0x88a80001, 0x81000001),
			want: first},
		{row: 54, name: "three tags, equal", in: all(func(i int, s *segment) { s.tags = []uint32{0x88a80001, 0x81000001, 0x91000003} }), want: one},
		{row: 54, name: "eight tags, equal", in: all(func(i int, s *segment) {
			for range 8 {
				s.tags = append(s.tags, 0x81000001)
			}
		}), want: one},
		{row: 54, name: "nine tags", in: all(func(i int, s *segment) {
			for range 9 {
				s.tags = append(s.tags, 0x81000001)
			}
		}), want: none, reason: ReasonUnparsable},
		{row: 54, name: "three tags, last differs", in: interleaved(func(s *segment) { s.tags = []uint32{0x88a80001, 0x81000001, 0x91000002} },
			0x88a80001, 0x81000001, 0x91000003), want: none},
		{row: 54, name: "stripped tag differs", in: each(interleaved(func(s *segment) {}), func(i int, p *Packet) {
			p.Flags, p.VLAN = VLANStripped, uint16(7+i%2)
		}), want: "[0 2] [1]"},
		{row: 54, name: "stripped tag differs, IPv6", in: each(interleaved(func(s *segment) {}), func(i int, p *Packet) {
			*p = data6([]int{0, 1, 1}[i], 1400).packet()
			p.Flags, p.VLAN = VLANStripped, uint16(7+i%2)
		}), want: "[0 2] [1]"},
		{row: 54, name: "stripped tag 0 and none, IPv6", in: each(interleaved(func(s *segment) {}), func(i int, p *Packet) {
			*p = data6([]int{0, 1, 1}[i], 1400).packet()
			p.Flags = PacketFlags(i%2) * VLANStripped
		}), want: "[0 2] [1]"},
		{row: 54, name: "tag stripped and in line", in: second(interleaved(func(s *segment) { s.tags = []uint32{0x81000001} }), func(p *Packet) {
			p.VLAN = 1
		}), want: first},
		{row: 54, name: "stripped tag and none", in: second(interleaved(func(s *segment) {}), func(p *Packet) {
			p.Flags = VLANStripped
		}), want: first},
		{row: 54, name: "VLAN equal", in: all(func(i int, s *segment) { s.tags = []uint32{0x81002001} }), want: one},
		{row: 55, name: "source MAC differs", in: three(func(s *segment) { s.srcMAC = 9 }), want: none, reason: ReasonLink},
		{row: 55, name: "destination MAC differs", in: three(func(s *segment) { s.dstMAC = 6 }), want: none, reason: ReasonLink},
		{row: 56, name: "another protocol that looks like TCP", in: each(all(func(i int, s *segment) {
			s.edit, s.fix = setByte(true, 9, 132), true
		}), verified), want: none, reason: ReasonNotTCP},
		{row: 56, name: "another protocol that looks like TCP, IPv6", in: each(all6(func(i int, s *segment) {
			s.edit, s.fix = setByte(true, 6, 132), true
		}), verified), want: none, reason: ReasonIPOptions},
		{row: 56, name: "another type of frame that looks like IPv6", in: each(all6(func(i int, s *segment) {
			s.edit = func(f []byte, l3, l4 int) { f[12] = 0x87 }
		}), verified), want: none, reason: ReasonNotTCP},
		{row: 33, name: "version 5 on all, IPv6", in: each(all6(func(i int, s *segment) {
			s.edit = func(f []byte, l3, l4 int) { f[l3] ^= 0x30 }
		}), verified), want: none, reason: ReasonMalformed},
		{row: 56, name: "another type of frame that looks like IPv4", in: each(all(func(i int, s *segment) {
			s.edit = func(f []byte, l3, l4 int) { f[12] = 9 }
		}), verified), want: none, reason: ReasonNotTCP},
		{row: 56, name: "VXLAN", in: interleaved(func(s *segment) { s.protocol, s.dport = 17, 4789 }), want: first, reason: ReasonNotTCP},
		{row: 56, name: "GRE", in: interleaved(func(s *segment) { s.protocol = 47 }), want: first, reason: ReasonNotTCP},
		{row: 56, name: "IP in IP", in: interleaved(func(s *segment) { s.protocol = 4 }), want: first, reason: ReasonNotTCP},
		{row: 57, name: "same connection on two ports", in: each(interleaved(func(s *segment) {}), func(i int, p *Packet) {
			p.Port = uint16(i % 2)
		}), want: first},
		{row: 58, name: "reversed direction", in: interleaved(func(s *segment) {
			s.src, s.dst, s.sport, s.dport = s.dst, s.src, s.dport, s.sport
		}), want: first},
		{row: 59, name: "hash equal, tuple different", in: each(interleaved(func(s *segment) { s.sport++ }), func(i int, p *Packet) {
			p.Hash = 7
		}), want: first},
		{row: 59, name: "only the source address differs, IPv6", in: each(interleaved(func(s *segment) {}), func(i int, p *Packet) {
			s := data6([]int{0, 1, 1}[i], 1400)
			s.src += byte(i % 2)
			*p = s.packet()
		}), want: first},
		{row: 59, name: "only the destination address differs, IPv6", in: each(interleaved(func(s *segment) {}), func(i int, p *Packet) {
			s := data6([]int{0, 1, 1}[i], 1400)
			s.dst += byte(i % 2)
			*p = s.packet()
		}), want: first},
		{row: 59, name: "only the destination port differs", in: interleaved(func(s *segment) { s.dport++ }), want: first},
		{row: 59, name: "only the source address differs", in: interleaved(func(s *segment) { s.src++ }), want: first},
		{row: 59, name: "only the destination address differs", in: interleaved(func(s *segment) { s.dst++ }), want: first},
		{row: 59, name: "one of two flows ends", in: packets(train(4, 100, func(i int, s *segment) {
			*s = data(i/2, 100)
			s.sport += uint16(i % 2)
			if i == 2 {
				s.flags |= flagPSH
			}
		})...), want: "[0 2] [1 3]"},
		{row: 60, name: "same tuple, other hash", in: each(sized(1448, 1448, 1448), func(i int, p *Packet) {
			p.Hash = uint32(i * 0x12345)
		}), want: one},
		{row: 61, name: "coalesced first", in: each(sized(1448, 1448, 1448), func(i int, p *Packet) {
			if i == 0 {
				hardware(4, 362, HardwareCoalesced)(p)
			}
		}), want: split1, check: bypassed(0, 4, 362), reason: ReasonHardware},
		{row: 61, name: "coalesced in the middle", in: second(sized(1448, 1448, 1448), hardware(4, 362, HardwareCoalesced)),
			want: none, check: bypassed(1, 4, 362), reason: ReasonHardware},
		{row: 61, name: "coalesced last", in: each(sized(1448, 1448, 1448), func(i int, p *Packet) {
			if i == 2 {
				hardware(4, 362, HardwareCoalesced)(p)
			}
		}), want: split2, check: bypassed(2, 4, 362)},
		{row: 61, name: "coalesced, 30000 bytes, twice", in: each(sized(30000, 30000), func(i int, p *Packet) {
			hardware(21, 1448, HardwareCoalesced)(p)
		}), want: "[0] [1]", check: bypassed(0, 21, 1448)},
		{row: 61, name: "coalesced, of another flow", in: second(interleaved(func(s *segment) { s.sport++ }),
			hardware(2, 724, HardwareCoalesced)), want: first},
		{row: 62, name: "coalesced with one segment", in: second(sized(1448, 1448, 1448), hardware(1, 0, HardwareCoalesced)),
			want: none, check: bypassed(1, 1, 0)},
		{row: 62, name: "two segments without the mark", in: second(sized(1448, 1448, 1448), hardware(2, 0, 0)), want: none,
			check: bypassed(1, 2, 0), reason: ReasonHardware},
		{row: 62, name: "segment size without a count", in: second(sized(1448, 1448, 1448), hardware(0, 724, 0)), want: none,
			check: bypassed(1, 1, 724), reason: ReasonHardware},
		{row: 63, name: "coalesced and not IP, in between", in: second(interleaved(func(s *segment) {}), func(p *Packet) {
			hardware(2, 0, HardwareCoalesced)(p)
			p.Data[12] = 0x88
		}), want: none, reason: ReasonHardware},
		{row: 63, name: "coalesced and too short to parse, in between", in: second(interleaved(func(s *segment) {}), func(p *Packet) {
			hardware(2, 0, HardwareCoalesced)(p)
			p.Data, p.Len = p.Data[:30], 30
		}), want: none, reason: ReasonHardware},
		{row: 63, name: "coalesced UDP, in between", in: second(interleaved(func(s *segment) { s.protocol = 17 }),
			hardware(2, 0, HardwareCoalesced)), want: first, reason: ReasonHardware},
		{row: 63, name: "coalesced and too short to parse", in: second(sized(1448, 1448, 1448), func(p *Packet) {
			hardware(2, 0, HardwareCoalesced)(p)
			p.Data, p.Len = p.Data[:13], 13
		}), want: none, check: bypassed(1, 2, 0), reason: ReasonHardware},
		{row: 63, name: "coalesced and not IP", in: second(sized(1448, 1448, 1448), func(p *Packet) {
			hardware(2, 0, HardwareCoalesced)(p)
			p.Data[12] = 0x88
		}), want: none, reason: ReasonHardware},
		{row: 63, name: "not coalesced and not IP", in: second(interleaved(func(s *segment) {}), func(p *Packet) { p.Data[12] = 0x88 }),
			want: first, reason: ReasonNotTCP},
		{row: 64, name: "jumbo frames", in: packets(train(7, 8948, nil)...), want: repeat(7), options: jumbo, noModel: true},
		{row: 64, name: "too large for the MTU", in: packets(train(3, 1449, nil)...), want: none, reason: ReasonOversize,
			check: bypassed(1, 1, 0)},
		{row: 64, name: "too large for the MTU, IPv6", in: packets(train(2, 1429, func(i int, s *segment) { s.ipv6 = true })...),
			want: "[0] [1]", reason: ReasonOversize},
		{row: 64, name: "too large for a jumbo MTU", in: packets(train(2, 8949, nil)...), want: "[0] [1]", options: jumbo, noModel: true},
		{row: 68, name: "mark differs", in: second(sized(1448, 1448, 1448), func(p *Packet) { p.Mark = 5 }), want: none, reason: ReasonMark},
		{row: 70, name: "broadcast MAC", in: all(func(i int, s *segment) { s.dstMAC = 0xff }), want: none, reason: ReasonAddress},
		{row: 70, name: "multicast address", in: all(func(i int, s *segment) { s.edit, s.fix = setByte(true, 16, 224), true }), want: none,
			reason: ReasonAddress},
		{row: 70, name: "multicast source", in: all(func(i int, s *segment) { s.edit, s.fix = setByte(true, 12, 239), true }), want: none},
		{row: 70, name: "source 0.0.0.0", in: all(func(i int, s *segment) { s.edit, s.fix = zero(12, 4), true }), want: none,
			reason: ReasonAddress},
		{row: 70, name: "destination 0.0.0.0", in: all(func(i int, s *segment) { s.edit, s.fix = zero(16, 4), true }), want: none},
		{row: 70, name: "source ::", in: packets(train(2, 100, func(i int, s *segment) {
			s.ipv6, s.edit, s.fix = true, zero(8, 16), true
		})...), want: "[0] [1]", reason: ReasonAddress},
		{row: 70, name: "destination ::", in: packets(train(2, 100, func(i int, s *segment) {
			s.ipv6, s.edit, s.fix = true, zero(24, 16), true
		})...), want: "[0] [1]", reason: ReasonAddress},
		{row: 70, name: "IPv6 multicast", in: packets(train(2, 100, func(i int, s *segment) {
			s.ipv6, s.edit, s.fix = true, setByte(true, 24, 0xff), true
		})...), want: "[0] [1]", reason: ReasonAddress},
		{row: 70, name: "IPv6 multicast source", in: packets(train(2, 100, func(i int, s *segment) {
			s.ipv6, s.edit, s.fix = true, setByte(true, 8, 0xff), true
		})...), want: "[0] [1]", reason: ReasonAddress},
		{row: 71, name: "UDP", in: all(func(i int, s *segment) { s.protocol = 17 }), want: none, reason: ReasonNotTCP},
		{row: 71, name: "UDP without checksum", in: all(func(i int, s *segment) { s.protocol, s.edit = 17, put16(false, 6, 0) }), want: none},
		{row: 71, name: "UDP, wrong length", in: all(func(i int, s *segment) { s.protocol, s.edit = 17, put16(false, 4, 9) }), want: none},
		{row: 73, name: "MD5 signatures", in: packets(train(3, 1400, func(i int, s *segment) {
			s.options = append([]byte{1, 1, 19, 18}, make([]byte, 16)...)
			s.options[19] = byte(i)
		})...), want: none, reason: ReasonOptions},
		{row: 73, name: "TCP-AO", in: packets(train(3, 1400, func(i int, s *segment) {
			s.options = append(timestamp(1, 2), 29, 16, 0, 0, byte(i), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
		})...), want: none, reason: ReasonOptions},
		{row: 74, name: "IPv6 payload length 0", in: three6(func(s *segment) { s.edit = put16(true, 4, 0) }), want: none,
			reason: ReasonTruncated},
		{row: 74, name: "IPv4 total length 0", in: three(func(s *segment) { s.edit = put16(true, 2, 0) }), want: none,
			reason: ReasonTruncated},
	}
}

// mode returns a check of the identification mode of the first output.
func mode(m IDMode) func(t *testing.T, in []Packet, out []Aggregate) {
	return func(t *testing.T, in []Packet, out []Aggregate) {
		if out[0].IDMode != m {
			t.Errorf("mode %d", out[0].IDMode)
		}
	}
}

// interleaved returns two segments of a train and between them one that is changed by edit and belongs elsewhere. tags
// are the VLAN tags of the two.
func interleaved(edit func(s *segment), tags ...uint32) []Packet {
	a, b, c := data(0, 1448), data(1, 1448), data(1, 1448)
	a.tags, b.tags, c.tags = tags, tags, tags
	edit(&b)
	return packets(a, b, c)
}

// optionTrains returns pairs of segments of four connections, with 4, 8, 16 and 40 bytes of options; the second of each
// pair is changed by edit.
func optionTrains(edit func(o []byte)) []segment {
	var s []segment
	for i, n := range []int{4, 8, 16, 40} {
		pair := train(2, 1400, func(int, *segment) {})
		for k := range pair {
			pair[k].sport = uint16(i)
			pair[k].options = make([]byte, n)
			for j := range pair[k].options {
				pair[k].options[j] = byte(j + 1)
			}
			if k == 1 && edit != nil {
				edit(pair[k].options)
			}
		}
		s = append(s, pair...)
	}
	return s
}

// train65535 returns segments whose sum is one IP packet of 65535 bytes (IPv6: payload of 65535 bytes) plus more.
func train65535(more int, ipv6 bool) []Packet {
	headers := 52
	if ipv6 {
		headers = 32
	}
	s := train(66, 1000, func(i int, s *segment) {
		s.ipv6 = ipv6
		if i == 65 {
			s.payload = s.payload[:65535-headers-65000+more]
		}
	})
	return packets(s...)
}

func setByte(ip bool, at int, v byte) func(f []byte, l3, l4 int) {
	return func(f []byte, l3, l4 int) { f[l3+at] = v }
}

func zero(at, n int) func(f []byte, l3, l4 int) {
	return func(f []byte, l3, l4 int) { clear(f[l3+at:][:n]) }
}

func TestRules(t *testing.T) {
	for _, r := range rules() {
		t.Run(fmt.Sprintf("%02d %s", r.row, r.name), func(t *testing.T) {
			frames := snapshot(r.in)
			got, out, e := runBatch(t, r.options, r.in)
			if got != r.want {
				t.Errorf("got  %s\nwant %s", got, r.want)
			}
			if s := e.Stats(); r.reason != 0 && s.Ended[r.reason]+s.Passed[r.reason] == 0 {
				t.Errorf("no %v in %v, %v", r.reason, s.Ended, s.Passed)
			}
			if r.check != nil {
				r.check(t, r.in, out)
			}
			if r.noModel {
				return
			}
			model := ""
			for i, g := range modelBatch(r.in, frames, r.options) {
				if i > 0 {
					model += " "
				}
				model += fmt.Sprint(g)
			}
			if model != r.want {
				t.Errorf("the model says %s", model)
			}
		})
	}
}

// TestRulesWithCollisions runs all rows again with seeds that make the hashes of flows with equal addresses, and then of
// flows with equal ports, the same: only the comparison of the flow itself can tell them apart.
func TestRulesWithCollisions(t *testing.T) {
	for _, choose := range []func(v *view) [2]uint64{
		func(v *view) [2]uint64 { return [2]uint64{v.addr[0], 0} },
		func(v *view) [2]uint64 { return [2]uint64{1, v.ports ^ v.tags ^ v.meta<<24} },
	} {
		for _, r := range rules() {
			for _, longWay := range []bool{false, true} {
				in := slices.Clone(r.in)
				for i := range in {
					in[i].Data = bytes.Clone(in[i].Data)
				}
				e := New(r.options)
				e.longWay = longWay
				e.view.parse(&in[0], e)
				e.table.seed = choose(&e.view)
				if got := groups(t, in, e.Batch(in, nil)); got != r.want {
					t.Errorf("row %d, %s: got %s, want %s", r.row, r.name, got, r.want)
				}
			}
		}
	}
}

// TestRulesAreComplete counts the rows; those that are no matter of one batch have tests of their own.
func TestRulesAreComplete(t *testing.T) {
	rows := map[int]bool{
		65: true, // TestRule65TableFull
		66: true, // TestRule66ManyFlows
		67: true, // TestRule67EmptyBatches
		69: true, // TestRule69Forwarding
		72: true, // TestRule72BuffersAreTheCallers
	}
	for _, r := range rules() {
		rows[r.row] = true
	}
	for i := 1; i <= 74; i++ {
		if !rows[i] {
			t.Errorf("row %d has no test", i)
		}
	}
}
