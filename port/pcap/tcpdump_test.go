package pcap

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// tcpdump is the tool, by the path that it has here. In CI it may not be missing.
func tcpdump(t *testing.T) string {
	t.Helper()
	tool, err := exec.LookPath("tcpdump")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return tool
}

// Random filters take of random frames those that libpcap's take. Tags and frames that
// end within a header are left out: there it means something else.
func TestFilterIsLibpcaps(t *testing.T) {
	tool := tcpdump(t)
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var frames [][]byte
	for range 400 {
		frames = append(frames, anyFrame(r))
	}
	var file bytes.Buffer
	w, err := NewWriter(&file, "x", "", 0, []Point{RxWire})
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range frames {
		if err := w.Write(&Record{Time: int64(i) * 1e9, Point: RxWire, Len: len(f), Data: f}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		text := anyFilter(r, 3)
		f, err := ParseFilter(text)
		if err != nil {
			t.Fatal(err)
		}
		want := libpcapTakes(t, tool, file.Bytes(), text, len(frames))
		for i, frame := range frames {
			if got := f.Match(frame, len(frame)); got != want[i] {
				t.Errorf("%q: %v, libpcap %v: %x (%s)", text, got, want[i], frame, Summary(frame))
				break
			}
		}
	}
}

// libpcapTakes is which of the packets, whose time is their number, pass a filter.
func libpcapTakes(t *testing.T, tool string, file []byte, filter string, n int) []bool {
	t.Helper()
	cmd := exec.Command(tool, "-nn", "-tt", "-q", "-r", "-", filter)
	cmd.Stdin = bytes.NewReader(file)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	takes := make([]bool, n)
	if err != nil {
		if strings.Contains(errs.String(), "expression rejects all packets") {
			return takes
		}
		t.Fatalf("%q: %v: %s", filter, err, errs.String())
	}
	for line := range strings.Lines(string(out)) {
		var second int
		if _, err := fmt.Sscanf(line, "%d.", &second); err == nil && line[0] != ' ' && line[0] != '\t' {
			takes[second] = true
		}
	}
	return takes
}

// The values that frames have and filters ask for are few, so that they meet.
var (
	hosts4 = []string{"10.0.0.1", "10.0.1.2", "192.168.0.3"}
	hosts6 = []string{"fd00::1", "fd00:1::2", "::ffff:10.0.0.1"}
	ports  = []uint16{53, 80, 443}
	macs   = []string{"02:00:00:00:00:01", "02:00:00:00:00:02", "ff:ff:ff:ff:ff:ff"}
)

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func anyFrame(r *rand.Rand) []byte {
	mac := func() []byte { return []byte{2, 0, 0, 0, 0, byte(1 + r.IntN(2))} }
	f := append(mac(), mac()...)
	kind := pick[uint16](r, etherIPv4, etherIPv4, etherIPv6, etherIPv6, etherARP, 0x88b5)
	f = binary.BigEndian.AppendUint16(f, kind)
	switch kind {
	case etherIPv4:
		f = append(f, anyIPv4(r)...)
	case etherIPv6:
		f = append(f, anyIPv6(r)...)
	case etherARP:
		a := []byte{0, 1, 8, 0, 6, 4, 0, byte(1 + r.IntN(2))}
		a = append(append(a, mac()...), netip.MustParseAddr(pick(r, hosts4...)).AsSlice()...)
		f = append(f, append(append(a, mac()...), netip.MustParseAddr(pick(r, hosts4...)).AsSlice()...)...)
	}
	return append(f, make([]byte, r.IntN(80))...)
}

func anyIPv4(r *rand.Rand) []byte {
	words := pick(r, 5, 5, 6, 15)
	ip := make([]byte, words*4)
	ip[0], ip[8], ip[9] = byte(0x40|words), 64, pick[byte](r, 1, 6, 6, 17, 17, 58, 132, 2)
	binary.BigEndian.PutUint16(ip[6:], pick[uint16](r, 0, 0, 0x4000, 0x2000, 0x2010, 0x0010))
	copy(ip[12:], netip.MustParseAddr(pick(r, hosts4...)).AsSlice())
	copy(ip[16:], netip.MustParseAddr(pick(r, hosts4...)).AsSlice())
	ip = append(ip, anyPorts(r)...)
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	return ip
}

func anyIPv6(r *rand.Rand) []byte {
	ip := make([]byte, 40)
	ip[0], ip[6], ip[7] = 0x60, pick[byte](r, 6, 6, 17, 17, 58, 132, 44, 60, 0, 1), 64
	copy(ip[8:], netip.MustParseAddr(pick(r, hosts6...)).AsSlice())
	copy(ip[24:], netip.MustParseAddr(pick(r, hosts6...)).AsSlice())
	switch ip[6] {
	case 44, 60, 0:
		ip = append(ip, pick[byte](r, 6, 17, 58), 0, 0, pick[byte](r, 0, 1, 8), 0, 0, 0, 0)
	}
	ip = append(ip, anyPorts(r)...)
	binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-40))
	return ip
}

func anyPorts(r *rand.Rand) []byte {
	p := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, pick(r, ports...)), pick(r, ports...))
	return append(p, make([]byte, 16)...)
}

func anyFilter(r *rand.Rand, depth int) string {
	if depth > 0 {
		switch r.IntN(5) {
		case 0:
			return pick(r, "not ", "! ", "!") + anyFilter(r, depth-1)
		case 1:
			return "(" + anyFilter(r, depth-1) + ")"
		case 2, 3:
			return anyFilter(r, depth-1) + pick(r, " and ", " or ", " && ", " || ") + anyFilter(r, depth-1)
		}
	}
	direction := pick(r, "", "src ", "dst ")
	switch r.IntN(6) {
	case 0:
		return pick(r, "ip", "ip6", "arp", "tcp", "udp", "icmp", "icmp6")
	case 1:
		return direction + "host " + pick(r, append(hosts4, hosts6...)...)
	case 2:
		return direction + "net " + pick(r, "10.0.0.0/16", "10.0.0.0/8", "0.0.0.0/0", "fd00::/32", "fd00::/12", "::/0", "10.0.0.1/32")
	case 3:
		return pick(r, "", "tcp ", "udp ") + direction + fmt.Sprintf("port %d", pick(r, ports...))
	case 4:
		return "ether " + direction + "host " + pick(r, macs...)
	}
	return pick(r, "less ", "greater ") + fmt.Sprint(r.IntN(150))
}

// A tag is one by any of the types that tags have had.
func TestVLANFilter(t *testing.T) {
	for _, kind := range []uint16{etherTag, etherQinQ, etherPre} {
		r := newRand(t)
		inner := anyIPv4(r)
		inner[9] = protocolUDP
		f := binary.BigEndian.AppendUint16(make([]byte, 12), kind)
		f = append(append(f, 0xe0, 5, 8, 0), inner...)
		for text, want := range map[string]bool{"vlan": true, "vlan 5": true, "vlan 6": false, "udp": true, "ip and vlan": true} {
			filter, err := ParseFilter(text)
			if err != nil || filter.Match(f, len(f)) != want {
				t.Errorf("%#x, %s: %v, %v", kind, text, !want, err)
			}
		}
	}
}
