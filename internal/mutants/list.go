package main

const (
	view   = "lro/view.go"
	merge  = "lro/merge.go"
	quick  = "lro/quick.go"
	tab    = "lro/table.go"
	engine = "lro/engine.go"
	finish = "lro/finish.go"
	packet = "lro/packet.go"
	hold   = "lro/hold.go"
	seg    = "gso/segment.go"
	params = "gso/params.go"
	sums   = "gso/checksum.go"
	sum    = "internal/checksum/checksum.go"
)

var mutants = []mutant{
	// What must be equal.
	{merge, "MAC addresses are compared", "(x.link[0] ^ v.link[0]) | (x.link[1] ^ v.link[1]) | ", ""},
	{merge, "source MAC is compared", "(x.link[1] ^ v.link[1]) | ", ""},
	{merge, "TOS, TTL, DF, flow label are compared", "(x.net ^ v.net) | ", ""},
	{merge, "window, flags, urgent pointer are compared", "(x.tcp ^ v.tcp) | ", ""},
	{merge, "the first options are compared", "(x.opt ^ v.opt) |\n\t\t", ""},
	{merge, "acknowledgement and further options are compared", "(x.tail ^ v.tail) | ", ""},
	{merge, "the mark is compared", " | uint64(x.mark^v.mark)", ""},
	{merge, "options after the twelfth byte are compared", "bytes.Equal(head[options:v.headerLen], d[options:v.headerLen])", "options > 0"},
	{merge, "the third VLAN tag is compared", "bytes.Equal(head[12:v.l3], d[12:v.l3]) && ", ""},
	{view, "TOS is part of the shape", "w0&0xffff00000000ffff | w1&0xffff<<16\n\tv.id", "w0&0xffff0000000000ff | w1&0xffff<<16\n\tv.id"},
	{view, "TTL is part of the shape", "w0&0xffff00000000ffff | w1&0xffff<<16\n\tv.id", "w0&0xffff00000000ffff\n\tv.id"},
	{view, "DF is part of the shape", "w0&0xffff00000000ffff | w1&0xffff<<16\n\tv.id", "w0&0xffff | w1&0xffff<<16\n\tv.id"},
	{view, "the flow label is part of the shape", "v.net = w0 &^ (0xffff << 32)", "v.net = w0 &^ (0xffff << 32) &^ 0xffff0f00"},
	{view, "the hop limit is part of the shape", "v.net = w0 &^ (0xffff << 32)", "v.net = w0 &^ (0xffff << 32) << 8 >> 8"},
	{view, "the window is part of the shape", "w &^ (0xffff<<32 | (flagFIN|flagPSH)<<8)", "w &^ (0xffffffff<<16 | (flagFIN|flagPSH)<<8)"},
	{view, "the urgent pointer is part of the shape", "w &^ (0xffff<<32 | (flagFIN|flagPSH)<<8)", "w &^ (0xffffffff<<32 | (flagFIN|flagPSH)<<8)"},
	{view, "AE and reserved bits are part of the shape", "w &^ (0xffff<<32 | (flagFIN|flagPSH)<<8)", "w &^ (0xffff<<32 | 0x0f | (flagFIN|flagPSH)<<8)"},
	{view, "ECE is part of the shape", "w &^ (0xffff<<32 | (flagFIN|flagPSH)<<8)", "w &^ (0xffff<<32 | (flagFIN|flagPSH|0x40)<<8)"},
	{view, "CWR is part of the shape", "w &^ (0xffff<<32 | (flagFIN|flagPSH)<<8)", "w &^ (0xffff<<32 | (flagFIN|flagPSH|flagCWR)<<8)"},
	{view, "options of 4 bytes are part of the shape", "v.opt = uint64(binary.LittleEndian.Uint32(o))", "_ = o"},
	{view, "option bytes 8 to 11 are part of the shape", "v.tail |= uint64(binary.LittleEndian.Uint32(o))", "_ = o"},

	// What makes a flow.
	{tab, "addresses tell flows apart", "(x.addr[0] ^ v.addr[0]) | (x.ports", "(x.ports"},
	{tab, "ports tell flows apart", " | (x.ports ^ v.ports)", ""},
	{tab, "VLAN tags tell flows apart", " | (x.tags ^ v.tags)", ""},
	{tab, "stripped tags tell flows apart", " | (x.meta ^ v.meta)", ""},
	{tab, "all of an IPv6 address tells flows apart", "d |= (x.addr[1] ^ v.addr[1]) | (x.addr[2] ^ v.addr[2]) | (x.addr[3] ^ v.addr[3])", "_ = d"},
	{view, "the port is part of the flow", " | uint64(p.Port)<<32\n\tif len(t) < 20", "\n\tif len(t) < 20"},
	{view, "the stripped tag is part of the flow", "v.meta |= 1<<8 | uint64(p.VLAN)<<16", "v.meta |= 1 << 8"},
	{view, "that a tag was stripped is part of the flow", "v.meta |= 1<<8 | uint64(p.VLAN)<<16", "v.meta |= uint64(p.VLAN) << 16"},

	// What must follow.
	{merge, "the sequence number is the next one", "if v.seq != x.next {", "if false {"},
	{merge, "the sequence number is not behind", "if v.seq != x.next {", "if int32(v.seq-x.next) > 0 {"},
	{merge, "no segment is larger than the first", "if v.payload > uint32(x.size) {", "if false {"},
	{merge, "the limit of the length", "if a.Len+v.payload > x.limit {", "if false {"},
	{merge, "the limit of the length is exact", "if a.Len+v.payload > x.limit {", "if a.Len+v.payload >= x.limit {"},
	{merge, "the identification counts or stands still", "if step > 1 ||", "if step > 2 ||"},
	{merge, "the identification goes on counting", "step == 0 && x.mode == IDIncrement", "false"},
	{merge, "the identification goes on standing still", "step == 1 && x.mode == IDFixed", "false"},
	{merge, "PSH ends an aggregate", "\tcase ending != 0:\n\t\treturn ReasonPush\n\tcase payload", "\tcase payload"},
	{merge, "FIN ends an aggregate", "\tcase ending&flagFIN != 0:\n\t\treturn ReasonFIN\n\tcase ending != 0:\n\t\treturn ReasonPush\n\tcase payload", "\tcase ending == flagPSH:\n\t\treturn ReasonPush\n\tcase payload"},
	{merge, "a short segment ends an aggregate", "case payload < uint32(size):", "case false:"},
	{merge, "the segment cap", "case a.Segments >= e.maxSegments:", "case false:"},
	{merge, "a first segment with PSH or FIN is alone", "if v.ending != 0 || e.maxSegments == 1", "if e.maxSegments == 1"},
	{merge, "a cap of one segment", "v.ending != 0 || e.maxSegments == 1 || v.groupAddress()", "v.ending != 0 || v.groupAddress()"},
	{merge, "group and unspecified addresses are alone", " || v.groupAddress() {\n", " {\n"},
	{merge, "unspecified IPv6 addresses are alone", "\n\t\t\tv.addr[0]|v.addr[1] == 0 || v.addr[2]|v.addr[3] == 0", "\n\t\t\tfalse"},
	{merge, "a mismatch ends the aggregate", "\tif r != reasonNone {\n\t\te.close(x, r)\n\t\treturn e.begin", "\tif r != reasonNone {\n\t\treturn e.begin"},

	// What passes alone.
	{packet, "the mark of the device", "p.Flags&HardwareCoalesced != 0 || ", ""},
	{packet, "the device's count of segments", " || p.Segments > 1", ""},
	{packet, "the device's segment size", " || p.SegmentSize != 0 && payload > uint32(p.SegmentSize)", ""},
	{view, "the MTU, IPv4", "case total > e.mtu:", "case false:"},
	{view, "the MTU, IPv6", "if uint32(ipv6Len+length) > e.mtu {", "if false {"},
	{view, "SYN, RST, URG, missing ACK", "case flags&(flagSYN|flagRST|flagURG|flagACK) != flagACK:", "case false:"},
	{view, "URG alone", "flags&(flagSYN|flagRST|flagURG|flagACK) != flagACK", "flags&(flagSYN|flagRST|flagACK) != flagACK"},
	{view, "no payload", "case v.payload == 0:", "case false:"},
	{view, "padding", "case length != frame:", "case false:"},
	{view, "truncation", "if length > frame || length <= 0 {", "if length <= 0 {"},
	{view, "data offset too small", "if header < 20 || header > frame {", "if header > frame {"},
	{view, "later fragments", "if fragment&0x1fff != 0 {", "if false {"},
	{view, "first fragments", "case fragment&0x2000 != 0:", "case false:"},
	{view, "IPv4 options", "case header != 20 || fragment&0x8000 != 0:", "case fragment&0x8000 != 0:"},
	{view, "the reserved IPv4 flag", "case header != 20 || fragment&0x8000 != 0:", "case header != 20:"},
	{view, "the IPv4 header checksum", "if (s+c)%65535 != 0 {", "if false {"},
	{view, "an IPv4 checksum of 0xffff", "if uint16(w1>>16) == 0xffff {", "if false {"},
	{view, "a TCP checksum of 0xffff", "if f[0] == 0xff && f[1] == 0xff {", "if f == nil {"},
	{view, "bad checksums", "case ChecksumBad:\n\t\treturn ReasonBadChecksum", "case ChecksumBad:"},
	{view, "unverified checksums", "if e.passUnverified || int(p.Len) > len(p.Data) {", "if false {"},
	{merge, "the head is verified", "a.Checksum == ChecksumUnknown && !e.verifyHead(in, a)", "false"},
	{merge, "the packet that joins is verified", "p.Checksum == ChecksumUnknown && !e.verify(p, v.l3, v.l4, v.headerLen)", "false"},
	{view, "IPv6 extension headers", "\tdefault:\n\t\t// An extension", "\tcase 0:\n\t\t// An extension"},

	// Order.
	{engine, "what passes alone ends its flow's aggregate", "\t\t\te.close(x, r)\n\t\t}\n\tcase scopePair:", "\t\t}\n\tcase scopePair:"},
	{engine, "what has no ports ends all aggregates between its addresses", "\t\te.closePair(r)\n", ""},
	{engine, "what cannot be parsed ends all aggregates", "\tcase scopeAll:\n\t\te.closeAll(r)\n", ""},
	{view, "coalesced frames that are not IP end all aggregates", "\t\tv.scope = scopeAll\n\t}\n\treturn ReasonHardware", "\t}\n\treturn ReasonHardware"},
	{engine, "nothing is held after a batch", "\te.closeAll(ReasonBatchEnd)\n\tfor i", "\tfor i"},
	{tab, "the oldest makes way", "if s.entries[i].out < s.entries[way].out {", "if s.entries[i].out > s.entries[way].out {"},
	{tab, "generations wrap", "if t.generation>>32 != 0 {", "if false {"},

	// The short way.
	{quick, "the mark of the device", " || p.Flags&HardwareCoalesced != 0", ""},
	{quick, "the device's count of segments", " || p.Segments > 1", ""},
	{quick, "the device's segment size", " || p.SegmentSize != 0", ""},
	{quick, "the MTU", " || total > e.mtu", ""},
	{quick, "padding and truncation", "if total+ethernetLen != p.Len || total > e.mtu {", "if total > e.mtu {"},
	{quick, "the protocol", " | (w1>>8&0xff ^ protocolTCP)", ""},
	{quick, "fragments", " | (w0 >> 48 &^ 0x40)", ""},
	{quick, "IPv4 options", " | (w0&0xff ^ 0x45)", ""},
	{quick, "the type of the frame", "(link1>>48 ^ 0x0008) | ", ""},
	{quick, "control flags", "(w4>>8&control ^ flagACK)", "0"},
	{quick, "the IPv4 header checksum", "(sum+carry)%65535 != 0 || ", ""},
	{quick, "an IPv4 checksum of 0xffff", "uint16(w1>>16) == 0xffff || ", ""},
	{quick, "a TCP checksum of 0xffff", " || uint16(w4>>32) == 0xffff", ""},
	{quick, "bad and unverified checksums", "(p.Checksum != ChecksumUnknown || e.passUnverified || int(p.Len) > len(d))", "false"},
	{quick, "the layout of options", "} else if w4&0xf0 != 0x50 {", "} else if false {"},
	{quick, "no payload", "if int32(payload) <= 0 {", "if int32(payload) < 0 {"},
	{quick, "addresses", "(x.addr[0] ^ addr) | ", ""},
	{quick, "ports", "(x.ports ^ ports) | ", ""},
	{quick, "stripped tags", "(x.meta ^ meta) | ", ""},
	{quick, "MAC addresses", " | (x.link[0] ^ link0) | (x.link[1] ^ link1)", ""},
	{quick, "TOS, TTL, DF", "(x.net ^ net) | ", ""},
	{quick, "window and flags", "(x.tcp ^ tcp) | ", ""},
	{quick, "the first options", "(x.opt ^ opt) | ", ""},
	{quick, "acknowledgement and further options", "(x.tail ^ tail) | ", ""},
	{quick, "the mark", "uint64(x.mark^p.Mark) | ", ""},
	{quick, "the sequence number", " | uint64(x.next^seq)", ""},
	{quick, "an aggregate that has ended", " || x.out < 0", ""},
	{quick, "the identification", " || step > 1", ""},
	{quick, "larger segments", " || payload > uint32(x.size)", ""},
	{quick, "the mode of the identification", " || x.mode != IDNone && x.mode != mode", ""},
	{quick, "the limit of the length", "if a.Len+payload > x.limit {", "if false {"},
	{quick, "verification", " && !e.verifyBoth(in, p, a)", " && false"},
	{quick, "verification of the head", "if !e.verify(&in[a.Head], a.L3Offset, a.L4Offset, a.HeaderLen) {", "if false {"},
	{quick, "PSH and FIN", "if ending != 0 || payload != uint32(x.size)", "if payload != uint32(x.size)"},
	{quick, "short segments", " || payload != uint32(x.size) || a.Segments", " || a.Segments"},
	{quick, "the segment cap", " || a.Segments >= e.maxSegments", ""},
	{quick, "a first segment with PSH or FIN", "if ending != 0 || e.maxSegments == 1", "if e.maxSegments == 1"},
	{quick, "group addresses", " ||\n\t\t\t\tgroup4(link0, addr)", ""},
	{quick, "CWR is marked", "if tcp&(flagCWR<<8) != 0 {", "if false {"},

	// What comes out.
	{finish, "PSH and FIN are put into the head", "tcp[13] |= a.ending", ""},
	{finish, "the IPv4 length", "binary.BigEndian.PutUint16(ip[2:], uint16(20+length))", ""},
	{finish, "the IPv4 header checksum", "binary.BigEndian.PutUint16(ip[10:], headerChecksum(ip))", ""},
	{finish, "the IPv6 length", "binary.BigEndian.PutUint16(ip[4:], uint16(length))", ""},
	{finish, "the partial checksum", "binary.BigEndian.PutUint16(tcp[16:], pseudo)", "_ = pseudo"},
	{finish, "IPv6 has a pseudo-header of its own", "if ip[0]>>4 == 6 {\n", "if false {\n"},
	{view, "CWR is marked", "v.flags |= CWRCopied", ""},
	{merge, "the identification mode is told", "a.IDMode = x.mode & v.modes", ""},
	{engine, "coalesced packets keep their count", "a.Segments = max(p.Segments, 1)", ""},
	{engine, "coalesced packets keep their segment size", "a.SegmentSize = p.SegmentSize", ""},

	// Across batches.
	{hold, "the maximum age", "if now-h.born[x.out] >= h.options.MaxAge {", "if false {"},
	{hold, "the maximum number of packets", "if held > h.options.MaxHeld {", "if false {"},
	{hold, "outputs that move take their entries along", "x.out = h.index[x.out]", "_ = h.index"},
	{hold, "the age moves along with the output", "h.all[kept], h.born[kept] = *a, h.born[i]", "h.all[kept] = *a"},

	// Segmenting.
	{seg, "the sequence number advances", "+offset)", ")\n\t_ = offset"},
	{seg, "the identification counts", "+uint16(s.index))", ")"},
	{seg, "the identification stands still", "if !s.params.FixedID {", "if true {"},
	{seg, "FIN and PSH in the last segment only", "if s.index != s.count-1 {", "if false {"},
	{seg, "CWR in the first segment only", "if s.index != 0 && !s.params.CopyCWR {", "if false {"},
	{seg, "CWR is copied", "s.index != 0 && !s.params.CopyCWR", "s.index != 0"},
	{seg, "the UDP length", "binary.BigEndian.PutUint16(t[4:], uint16(8+size))", ""},
	{seg, "a UDP checksum of 0 becomes 0xffff", "if sum == 0 && s.protocol == protocolUDP {", "if false {"},
	{seg, "pieces at odd offsets", "done += r.Len", ""},
	{seg, "the largest IP packet", "end-int(p.L3Offset)+int(p.SegmentSize) > maxPacket(ipv6)", "false"},
	{seg, "offsets agree with the headers", "if l4 != int(p.L4Offset) || end != int(p.HeaderLen) {", "if false {"},
	{seg, "TCP has a checksum", "p.Checksum == ChecksumNone && (protocol != protocolUDP || ipv6)", "false"},
	{params, "fragments are not segmented", " && ip[6]&0x3f == 0 && ip[7] == 0", ""},
	{sums, "pieces at odd offsets", "done += len(f)", ""},
	{sums, "the field lies in the frame", " || len(field) < 2", ""},
	{sum, "the end-around carry", "return uint16(s + s>>16)", "return uint16(s)"},
	{sum, "odd pieces are swapped", "piece = bits.ReverseBytes16(piece)", ""},
}
