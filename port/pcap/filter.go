package pcap

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// Filter says which packets are captured. It is a part of the language of
// pcap-filter(7), with the same meaning:
//
//	ip  ip6  arp  tcp  udp  icmp  icmp6        what a packet is
//	vlan [ID]                                  that it has a tag
//	[src|dst] host ADDRESS                     IPv4 (also in ARP) or IPv6
//	[src|dst] net PREFIX                       such as 10.0.0.0/8
//	[tcp|udp] [src|dst] port NUMBER
//	ether [src|dst] host ADDRESS
//	less LENGTH, greater LENGTH                at most, at least
//	not, and, or, ( )                          also !, &&, ||; and and or are equals
//
// What differs: tags are looked through, so that "vlan" does not move what
// follows it, every keyword has to be written ("port 80 or port 443"), and a frame
// that ends within a header has none of what stands there, where libpcap rejects it
// even if it is asked for frames without.
type Filter struct {
	match test
}

// test judges a packet.
type test func(h *headers) bool

// Match tells whether a packet passes. frame is its beginning, which has to hold
// the headers; length is all of it. It allocates nothing.
func (f *Filter) Match(frame []byte, length int) bool {
	var h headers
	h.parse(frame)
	h.length = length
	return f.match(&h)
}

// maxFilter is the longest filter, in bytes: what is tested of each packet, and an option
// of a pcapng file, which has at most 64 KiB.
const maxFilter = 4096

// ParseFilter understands a filter. An error names the word that it is about.
func ParseFilter(text string) (*Filter, error) {
	if len(text) > maxFilter {
		return nil, fmt.Errorf("filter %.40q...: it has %d bytes, of at most %d", text, len(text), maxFilter)
	}
	p := &filterParser{words: filterWords(text)}
	match := p.either()
	if p.err == nil && len(p.words) > 0 {
		p.fail("%q is not expected there: \"and\" or \"or\" is", p.words[0])
	}
	if p.err != nil {
		return nil, fmt.Errorf("filter %q: %w", text, p.err)
	}
	return &Filter{match}, nil
}

// filterWords are the words and signs of a filter.
func filterWords(text string) []string {
	for _, sign := range []string{"(", ")", "!", "&&", "||"} {
		text = strings.ReplaceAll(text, sign, " "+sign+" ")
	}
	return strings.Fields(text)
}

type filterParser struct {
	words []string
	depth int
	err   error
}

// maxFilterDepth bounds what a filter may nest.
const maxFilterDepth = 100

func (p *filterParser) fail(format string, args ...any) test {
	if p.err == nil {
		p.err = fmt.Errorf(format, args...)
	}
	return func(*headers) bool { return false }
}

// next is the next word, "" at the end.
func (p *filterParser) next() string {
	if len(p.words) == 0 {
		return ""
	}
	w := p.words[0]
	p.words = p.words[1:]
	return w
}

// take takes the next word if it is one of those, and returns it.
func (p *filterParser) take(words ...string) string {
	for _, w := range words {
		if len(p.words) > 0 && p.words[0] == w {
			return p.next()
		}
	}
	return ""
}

// either is factors with and and or between them, which have equal precedence and
// go from left to right.
func (p *filterParser) either() test {
	a := p.factor()
	for p.err == nil {
		first := a
		switch {
		case p.take("or", "||") != "":
			second := p.factor()
			a = func(h *headers) bool { return first(h) || second(h) }
		case p.take("and", "&&") != "":
			second := p.factor()
			a = func(h *headers) bool { return first(h) && second(h) }
		default:
			return a
		}
	}
	return a
}

func (p *filterParser) factor() test {
	if p.depth++; p.depth > maxFilterDepth {
		return p.fail("it is nested deeper than %d", maxFilterDepth)
	}
	defer func() { p.depth-- }()
	switch {
	case p.take("not", "!") != "":
		a := p.factor()
		return func(h *headers) bool { return !a(h) }
	case p.take("(") != "":
		a := p.either()
		if p.err == nil && p.take(")") == "" {
			return p.fail("a parenthesis is not closed")
		}
		return a
	}
	return p.primitive()
}

// kinds are the words for what a packet is.
var kinds = map[string]test{
	"ip":    func(h *headers) bool { return h.etherType == etherIPv4 },
	"ip6":   func(h *headers) bool { return h.etherType == etherIPv6 },
	"arp":   func(h *headers) bool { return h.etherType == etherARP },
	"tcp":   func(h *headers) bool { return h.protocol == protocolTCP },
	"udp":   func(h *headers) bool { return h.protocol == protocolUDP },
	"icmp":  func(h *headers) bool { return h.etherType == etherIPv4 && h.protocol == protocolICMP },
	"icmp6": func(h *headers) bool { return h.etherType == etherIPv6 && h.protocol == protocolICMPv6 },
}

func (p *filterParser) primitive() test {
	word := p.next()
	switch word {
	case "":
		return p.fail("something is missing at the end")
	case "vlan":
		return p.vlan()
	case "less", "greater":
		n := p.number(1 << 20)
		if word == "less" {
			return func(h *headers) bool { return h.length <= n }
		}
		return func(h *headers) bool { return h.length >= n }
	case "ether":
		return p.ether(p.take("src", "dst"))
	case "src", "dst":
		return p.addressed(word, p.next())
	case "host", "net", "port":
		return p.addressed("", word)
	}
	kind, ok := kinds[word]
	if !ok {
		return p.fail("%q is not known; the words are ip, ip6, arp, tcp, udp, icmp, icmp6, vlan, host, net, port, src, dst, ether, less, greater, not, and, or", word)
	}
	if word == "tcp" || word == "udp" {
		direction := p.take("src", "dst")
		if direction != "" || len(p.words) > 0 && p.words[0] == "port" {
			port := p.addressed(direction, p.next())
			return func(h *headers) bool { return kind(h) && port(h) }
		}
	}
	return kind
}

func (p *filterParser) vlan() test {
	if len(p.words) == 0 || p.words[0][0] < '0' || p.words[0][0] > '9' {
		return func(h *headers) bool { return h.tagged }
	}
	id := p.number(4095)
	return func(h *headers) bool { return h.tagged && int(h.vlan) == id }
}

func (p *filterParser) number(most int) int {
	w := p.next()
	if w == "" {
		p.fail("a number is missing at the end")
	}
	n, err := strconv.Atoi(w)
	if err != nil || n < 0 || n > most {
		p.fail("%q is not a number from 0 to %d", w, most)
	}
	return n
}

func (p *filterParser) ether(direction string) test {
	if word := p.next(); word != "host" {
		return p.fail("after ether comes host, not %q", word)
	}
	w := p.next()
	a, err := net.ParseMAC(w)
	if err != nil || len(a) != 6 {
		return p.fail("%q is not an Ethernet address", w)
	}
	want := [6]byte(a)
	return func(h *headers) bool {
		return len(h.frame) >= 12 && (direction != "src" && [6]byte(h.frame[:6]) == want || direction != "dst" && [6]byte(h.frame[6:12]) == want)
	}
}

// addressed is host, net or port, with a direction or without.
func (p *filterParser) addressed(direction, what string) test {
	from, to := direction != "dst", direction != "src"
	switch what {
	case "port":
		n := uint16(p.number(65535))
		return func(h *headers) bool { return h.ports && (from && h.from == n || to && h.to == n) }
	case "host":
		w := p.next()
		a, err := netip.ParseAddr(w)
		if err != nil || a.Zone() != "" {
			return p.fail("%q is not an IP address (names are not looked up)", w)
		}
		return func(h *headers) bool { return from && h.source == a || to && h.destination == a }
	case "net":
		w := p.next()
		n, err := netip.ParsePrefix(w)
		if err != nil || n.Masked() != n {
			return p.fail("%q is not a network such as 10.0.0.0/8", w)
		}
		return func(h *headers) bool { return from && n.Contains(h.source) || to && n.Contains(h.destination) }
	}
	return p.fail("after %s comes host, net or port, not %q", direction, what)
}
