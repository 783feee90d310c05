package lro

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// The reference model: what the rules say, as plainly as possible and without any of the engine's ideas. A packet is
// parsed into named fields; two packets are compared field by field; every group is looked at for every packet.

// flowKey is an order domain: nothing may overtake within it.
type flowKey struct {
	kind     string // "tcp", or why there is no flow
	tags     string // the VLAN stack, with the stripped tag
	port     uint16
	src, dst string
	sp, dp   uint16
}

type modelPacket struct {
	key      flowKey
	eligible bool
	blocks   string // "none", "flow", "pair", "all": what the packet must not overtake
	tcpLen   int
	payload  []byte
	seq      uint32
	id       uint16
	flags    byte
	equal    string // everything that has to be equal
}

// modelParse parses a frame that lies in Data completely.
func modelParse(p *Packet, frame []byte) (m modelPacket) {
	m.blocks = "all"
	m.key.kind = "unknown"
	if len(frame) < 14 {
		return m
	}
	l3 := 14
	for tags := 0; ; tags++ {
		et := binary.BigEndian.Uint16(frame[l3-2:])
		if et != 0x8100 && et != 0x88a8 && et != 0x9100 {
			break
		}
		l3 += 4
		if len(frame) < l3 || tags == 8 {
			return m
		}
	}
	m.key.tags = fmt.Sprintf("%d %x", l3, frame[12:min(l3, 20)]) // deeper tags end an aggregate, they do not make a flow
	if p.Flags&VLANStripped != 0 {
		m.key.tags += fmt.Sprintf(" stripped %x", p.VLAN)
	}
	m.key.port = p.Port
	ip := frame[l3:]
	hardware := p.Flags&HardwareCoalesced != 0 || p.Segments > 1
	var header, total int
	mac := string(frame[:12])
	if l3 > 22 {
		mac += string(frame[20:l3])
	}
	switch binary.BigEndian.Uint16(frame[l3-2:]) {
	case 0x0800:
		if len(ip) < 20 {
			return m
		}
		m.key.src, m.key.dst, m.blocks = string(ip[12:16]), string(ip[16:20]), "pair"
		header, total = int(ip[0]&15)*4, int(ip[2])<<8|int(ip[3])
		if ip[0]>>4 != 4 {
			return m
		}
		if ip[9] != 6 {
			m.blocks, m.key.kind = "none", "other"
			return m
		}
		if header < 20 || len(ip) < header+4 || binary.BigEndian.Uint16(ip[6:])&0x1fff != 0 {
			return m
		}
		m.id = binary.BigEndian.Uint16(ip[4:])
		m.equal = fmt.Sprintf("%x tos %x ttl %x frag %x", mac, ip[1], ip[8], ip[6:8])
		m.eligible = header == 20 && ip[6]&^0x40 == 0 && onesSum(0, ip[:20]) == 0xffff && (ip[10] != 0xff || ip[11] != 0xff) &&
			unicast(ip[12:16]) && unicast(ip[16:20])
	case 0x86dd:
		if len(ip) < 40 {
			return m
		}
		m.key.src, m.key.dst, m.blocks = string(ip[8:24]), string(ip[24:40]), "pair"
		header, total = 40, 40+(int(ip[4])<<8|int(ip[5]))
		if ip[0]>>4 != 6 {
			return m
		}
		if ip[6] == 17 || ip[6] == 58 || ip[6] == 59 {
			m.blocks, m.key.kind = "none", "other"
			return m
		}
		if ip[6] != 6 || len(ip) < 44 {
			return m
		}
		m.equal = fmt.Sprintf("%x class and label %x hops %x", mac, ip[:4], ip[7])
		m.eligible = unicast(ip[8:24]) && unicast(ip[24:40]) && total > 40
	default:
		m.blocks, m.key.kind = "none", "not ip"
		if hardware {
			m.blocks = "all"
		}
		return m
	}
	tcp := ip[header:]
	m.blocks, m.key.kind = "flow", "tcp"
	m.key.sp, m.key.dp = binary.BigEndian.Uint16(tcp), binary.BigEndian.Uint16(tcp[2:])
	mtu := 1500
	if len(tcp) < 20 || total != len(ip) || total > mtu || hardware || p.SegmentSize != 0 || frame[0]&1 != 0 {
		m.eligible = false
		return m
	}
	options := int(tcp[12]>>4) * 4
	if options < 20 || options >= len(tcp) {
		m.eligible = false
		return m
	}
	m.tcpLen = options
	m.payload, m.seq, m.flags = tcp[options:], binary.BigEndian.Uint32(tcp[4:]), tcp[13]
	m.equal += fmt.Sprintf(" ack %x first %x flags %x window %x urgent %x options %x mark %x", tcp[8:12], tcp[12],
		tcp[13]&0xf6, tcp[14:16], tcp[18:20], tcp[20:options], p.Mark)
	if tcp[13]&(2|4|32) != 0 || tcp[13]&16 == 0 || tcp[16] == 0xff && tcp[17] == 0xff {
		m.eligible = false
	}
	if p.Checksum != ChecksumVerified && (p.Checksum != ChecksumUnknown || !tcpChecksumRight(ip, header)) {
		m.eligible = false
	}
	return m
}

func unicast(a []byte) bool {
	if len(a) == 4 {
		return a[0] < 224 && !bytes.Equal(a, make([]byte, 4))
	}
	return a[0] != 0xff && !bytes.Equal(a, make([]byte, 16))
}

func tcpChecksumRight(ip []byte, header int) bool {
	addresses := ip[12:20]
	if header == 40 {
		addresses = ip[8:40]
	}
	length := len(ip) - header
	return onesSum(onesSum(6+uint32(length), addresses), ip[header:]) == 0xffff
}

// modelBatch returns the groups that the rules ask for.
func modelBatch(in []Packet, frames [][]byte, o Options) [][]int {
	maxSegments, maxLen := 64, 65535
	if o.MaxSegments != 0 {
		maxSegments = o.MaxSegments
	}
	if o.MaxLen != 0 {
		maxLen = o.MaxLen
	}
	type group struct {
		members []int
		open    bool
	}
	var all []*group
	parsed := make([]modelPacket, len(in))
	for i := range in {
		m := modelParse(&in[i], frames[i])
		parsed[i] = m
		joined := false
		for _, g := range all {
			if !g.open || !related(parsed[g.members[0]].key, m) {
				continue
			}
			if m.eligible && fits(parsed, g.members, m, maxLen) {
				g.members = append(g.members, i)
				joined = true
				g.open = m.flags&(1|8) == 0 && len(m.payload) == len(parsed[g.members[0]].payload) &&
					len(g.members) < maxSegments
			} else {
				g.open = false
			}
		}
		if !joined {
			all = append(all, &group{[]int{i}, m.eligible && m.flags&(1|8) == 0 && maxSegments > 1})
		}
	}
	var result [][]int
	for _, g := range all {
		result = append(result, g.members)
	}
	return result
}

// related reports whether packet m must not overtake a packet of flow k.
func related(k flowKey, m modelPacket) bool {
	switch m.blocks {
	case "all":
		return true
	case "pair":
		return k.src == m.key.src && k.dst == m.key.dst
	case "flow":
		return k == m.key
	}
	return false
}

// fits reports whether m may stand behind the members.
func fits(parsed []modelPacket, members []int, m modelPacket, maxLen int) bool {
	first := parsed[members[0]]
	total := 0
	for _, j := range members {
		if parsed[j].equal != m.equal {
			return false
		}
		total += len(parsed[j].payload)
	}
	headers := 20
	limit := 65535
	if len(m.key.src) == 16 {
		headers, limit = 40, 65575
	}
	if maxLen != 65535 {
		limit = min(limit, maxLen)
	}
	headers += m.tcpLen
	if len(m.payload) > len(first.payload) || headers+total+len(m.payload) > limit {
		return false
	}
	if m.seq != first.seq+uint32(total) {
		return false
	}
	ids := []uint16{}
	for _, j := range members {
		ids = append(ids, parsed[j].id)
	}
	return constant(append(ids, m.id), 0) || constant(append(ids, m.id), 1)
}

// constant reports whether each value is the one before plus step.
func constant(v []uint16, step uint16) bool {
	for i := 1; i < len(v); i++ {
		if v[i]-v[i-1] != step {
			return false
		}
	}
	return true
}
