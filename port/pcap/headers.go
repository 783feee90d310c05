package pcap

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// Headers as far as filters and summaries look at them.
const (
	etherIPv4 = 0x0800
	etherARP  = 0x0806
	etherIPv6 = 0x86dd
	etherQinQ = 0x88a8
	etherPre  = 0x9100 // what switches wrote there before 802.1ad

	protocolICMP     = 1
	protocolTCP      = 6
	protocolUDP      = 17
	protocolFragment = 44 // IPv6's fragment header
	protocolICMPv6   = 58
	protocolSCTP     = 132 // has ports where TCP and UDP have them (RFC 9260 section 3.1)
)

// headers is what is known of a packet. Fields that it does not have are zero.
type headers struct {
	frame               []byte
	length              int
	tagged              bool
	vlan                uint16
	etherType           uint16
	protocol            uint8 // of IP, or of what it is a fragment of
	source, destination netip.Addr
	ports               bool
	from, to            uint16
}

func (h *headers) parse(frame []byte) {
	h.frame = frame
	at := 14
	for {
		if len(frame) < at {
			return
		}
		h.etherType = binary.BigEndian.Uint16(frame[at-2:])
		if h.etherType != etherTag && h.etherType != etherQinQ && h.etherType != etherPre {
			break
		}
		if len(frame) >= at+2 && !h.tagged {
			h.tagged, h.vlan = true, binary.BigEndian.Uint16(frame[at:])&0xfff
		}
		at += tagLen
	}
	switch rest := frame[at:]; h.etherType {
	case etherIPv4:
		h.parseIPv4(rest)
	case etherIPv6:
		h.parseIPv6(rest)
	case etherARP:
		if len(rest) >= 28 && binary.BigEndian.Uint16(rest[2:]) == etherIPv4 { // RFC 826
			h.source, h.destination = netip.AddrFrom4([4]byte(rest[14:])), netip.AddrFrom4([4]byte(rest[24:]))
		}
	}
}

func (h *headers) parseIPv4(ip []byte) {
	if len(ip) < 20 {
		return
	}
	h.protocol = ip[9]
	h.source, h.destination = netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:]))
	if binary.BigEndian.Uint16(ip[6:])&0x1fff != 0 {
		return // a later fragment has no ports
	}
	h.parsePorts(ip, int(ip[0]&15)*4)
}

const ipv6Len = 40 // RFC 8200 section 3

func (h *headers) parseIPv6(ip []byte) {
	if len(ip) < ipv6Len {
		return
	}
	h.protocol = ip[6]
	h.source, h.destination = netip.AddrFrom16([16]byte(ip[8:])), netip.AddrFrom16([16]byte(ip[24:]))
	if h.protocol == protocolFragment && len(ip) > ipv6Len {
		h.protocol = ip[ipv6Len] // libpcap looks for the ports of no fragment
		return
	}
	h.parsePorts(ip, ipv6Len)
}

func (h *headers) parsePorts(ip []byte, at int) {
	if h.protocol != protocolTCP && h.protocol != protocolUDP && h.protocol != protocolSCTP || len(ip) < at+4 {
		return
	}
	h.ports = true
	h.from, h.to = binary.BigEndian.Uint16(ip[at:]), binary.BigEndian.Uint16(ip[at+2:])
}

// Summary is what a frame is, in a few words: "tcp 10.0.0.1:5001 > 10.0.0.2:80".
func Summary(frame []byte) string {
	var h headers
	h.parse(frame)
	text := ""
	if h.tagged {
		text = fmt.Sprintf("vlan %d ", h.vlan)
	}
	kind := map[uint8]string{protocolICMP: "icmp", protocolTCP: "tcp", protocolUDP: "udp", protocolICMPv6: "icmp6", protocolSCTP: "sctp"}[h.protocol]
	if kind == "" {
		kind = fmt.Sprintf("ip protocol %d", h.protocol)
	}
	switch {
	case h.ports:
		return fmt.Sprintf("%s%s %v > %v", text, kind, netip.AddrPortFrom(h.source, h.from), netip.AddrPortFrom(h.destination, h.to))
	case h.etherType == etherARP && h.source.IsValid():
		return fmt.Sprintf("%sarp %v > %v", text, h.source, h.destination)
	case h.source.IsValid():
		return fmt.Sprintf("%s%s %v > %v", text, kind, h.source, h.destination)
	case len(frame) < 14:
		return "short frame"
	}
	return fmt.Sprintf("%sethertype %#04x %x > %x", text, h.etherType, frame[6:12], frame[:6])
}
