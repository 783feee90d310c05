package pcap

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"

	"nicd/framework"
)

func newRand(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// randomFrame is a frame with few different addresses and ports, so that filters
// hit.
func randomFrame(r *rand.Rand) []byte {
	f := []byte{2, 0, 0, 0, 0, byte(r.IntN(3)), 2, 0, 0, 0, 0, byte(r.IntN(3))}
	port := func() []byte { return []byte{0, byte(80 + r.IntN(3))} }
	transport := append(append(port(), port()...), make([]byte, 16+r.IntN(60))...)
	transport[12] = 5 << 4
	protocol := []byte{protocolTCP, protocolUDP, protocolICMP, protocolICMPv6, 89}[r.IntN(5)]
	switch r.IntN(4) {
	case 0:
		f = append(f, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1)
		f = append(f, 2, 0, 0, 0, 0, 1, 10, 0, 0, byte(r.IntN(3)), 2, 0, 0, 0, 0, 2, 10, 0, byte(r.IntN(2)), byte(r.IntN(3)))
		return append(f, make([]byte, 18)...)
	case 1:
		ip := make([]byte, 40)
		ip[0], ip[6], ip[7] = 0x60, protocol, 64
		binary.BigEndian.PutUint16(ip[4:], uint16(len(transport)))
		ip[8], ip[23], ip[24], ip[39] = 0xfd, byte(r.IntN(3)), 0xfd, byte(r.IntN(3))
		return append(append(append(f, 0x86, 0xdd), ip...), transport...)
	case 2:
		return append(append(f, 0x88, 0xb5), transport...)
	}
	ip := make([]byte, 20+4*r.IntN(2))
	ip[0], ip[8], ip[9] = 0x40|byte(len(ip)/4), 64, protocol
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)+len(transport)))
	if r.IntN(5) == 0 {
		ip[7] = 9 // a later fragment
	}
	copy(ip[12:], []byte{10, 0, 0, byte(r.IntN(3)), 10, 0, byte(r.IntN(2)), byte(r.IntN(3))})
	return append(append(append(f, 8, 0), ip...), transport...)
}

var expressions = []string{
	"ip", "ip6", "arp", "tcp", "udp", "icmp", "icmp6", "not ip", "host 10.0.0.1", "src host 10.0.0.2", "dst host 10.0.1.1",
	"host fd00::1", "src host fd00::2", "net 10.0.1.0/24", "src net 10.0.0.0/24", "net fd00::/16", "port 80", "src port 81", "dst port 82",
	"tcp port 80", "udp src port 81", "tcp dst port 82", "ether host 02:00:00:00:00:01", "ether src host 02:00:00:00:00:01",
	"less 70", "greater 80", "tcp or udp and port 80", "(tcp or udp) and port 80", "not (ip6 or arp) and not tcp",
	"tcp and src host 10.0.0.1 and dst port 80 or arp", "! tcp && ! udp || port 81", "not not ip",
}

// Filters mean what tcpdump takes them to mean.
func TestFilterAgreesWithTcpdump(t *testing.T) {
	tool := tcpdump(t)
	r := newRand(t)
	var frames [][]byte
	var file bytes.Buffer
	w, err := NewWriter(&file, "x", "", 0, []Point{RxWire})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		f := randomFrame(r)
		frames = append(frames, f)
		if err := w.Write(&Record{Time: int64(i), Point: RxWire, Len: len(f), Data: f}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	for _, e := range expressions {
		filter, err := ParseFilter(e)
		if err != nil {
			t.Error(err)
			continue
		}
		cmd := exec.CommandContext(t.Context(), tool, "-nn", "-r", "-", "-w", "-", e)
		cmd.Stdin = bytes.NewReader(file.Bytes())
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s: %v: %s", e, err, errs.String())
		}
		hits := 0
		for _, f := range frames {
			if filter.Match(f, len(f)) {
				hits++
			}
		}
		if theirs := countPackets(t, out); hits != theirs {
			t.Errorf("%s: %d packets, tcpdump has %d", e, hits, theirs)
		}
		if hits == 0 || hits == len(frames) {
			t.Errorf("%s: matches %d of %d, which says nothing", e, hits, len(frames))
		}
	}
}

func countPackets(t *testing.T, file []byte) (n int) {
	t.Helper()
	in, err := pcapgo.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, _, err := in.ReadPacketData(); err == io.EOF {
			return n
		} else if err != nil {
			t.Fatal(err)
		}
		n++
	}
}

func TestFilterMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"tpc":                                    `"tpc" is not known`,
		"port":                                   "a number is missing",
		"port 65536":                             `"65536" is not a number`,
		"host nowhere":                           `"nowhere" is not an IP address`,
		"host fe80::1%eth0":                      `"fe80::1%eth0" is not an IP address`,
		"net 10.0.0.1/8":                         `"10.0.0.1/8" is not a network`,
		"tcp and":                                "something is missing at the end",
		"(tcp":                                   "a parenthesis is not closed",
		"tcp udp":                                `"udp" is not expected there`,
		"ether port 3":                           `after ether comes host`,
		"src tcp":                                "after src comes host, net or port",
		strings.Repeat("(", 200):                 "nested deeper",
		strings.Repeat("tcp or ", 10000) + "tcp": "it has 70003 bytes, of at most 4096",
	} {
		if _, err := ParseFilter(text); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}

func FuzzFilter(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, e := range expressions {
		f.Add(e, randomFrame(r))
	}
	f.Fuzz(func(t *testing.T, text string, frame []byte) {
		Summary(frame)
		if filter, err := ParseFilter(text); err == nil {
			filter.Match(frame, len(frame))
		}
	})
}

// below is an interface that takes some of what is sent.
type below struct {
	framework.Interface
	memory framework.Buffers
	takes  int
}

func (b *below) Buffers() *framework.Buffers        { return &b.memory }
func (b *below) Send(_ int, x *framework.Batch) int { return min(b.takes, len(x.Packets)) }

type swallow struct{ framework.Port }

func (swallow) Deliver(int, *framework.Batch) {}

func newBelow() *below {
	return &below{memory: framework.Buffers{Memory: make([]byte, 64*2112), Stride: 2112, Size: 2048, Count: 64}, takes: 1 << 30}
}

// batch puts frames into buffers, each in two fragments.
func (b *below) batch(frames ...[]byte) *framework.Batch {
	out := framework.NewBatch(len(frames), 2*len(frames))
	for i, f := range frames {
		p := framework.Packet{First: uint32(len(out.Frags)), Frags: 2, Len: uint32(len(f))}
		for j, part := range [][]byte{f[:20], f[20:]} {
			frag := framework.Fragment{Buffer: framework.Buffer(2*i + j), Offset: 2, Len: uint32(len(part))}
			copy(b.memory.Bytes(frag), part)
			out.Frags = append(out.Frags, frag)
		}
		out.Packets = append(out.Packets, p)
	}
	return out
}

func next(t *testing.T, c *Capture) []Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, _, err := c.Next(ctx, 100)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Each point sees its packets, as they are, with what is special about them, and
// only those that were taken.
func TestPoints(t *testing.T) {
	r := newRand(t)
	b := newBelow()
	h := NewHub("x", RxDelivered, TxPort)
	port, iface := h.Port(swallow{}, b), h.Interface(b)
	c, err := h.Start(Options{Points: []Point{RxDelivered, TxPort, RxDelivered}})
	if err != nil {
		t.Fatal(err)
	}
	one, two := randomFrame(r), randomFrame(r)
	in := b.batch(one, two)
	in.Packets[0].Flags |= framework.VLANTag
	in.Packets[0].VLAN = 0x2005
	in.Packets[1].Flags |= framework.Coalesced
	in.Packets[1].Segments, in.Packets[1].SegmentSize = 3, 1448
	port.Deliver(7, in)
	got := next(t, c)
	if len(got) != 2 || got[0].Point != RxDelivered || got[0].Queue != 7 {
		t.Fatalf("%+v", got)
	}
	tagged := append(append(bytes.Clone(one[:12]), 0x81, 0, 0x20, 5), one[12:]...)
	if !bytes.Equal(got[0].Data, tagged) || got[0].Len != len(tagged) {
		t.Errorf("\n%x\n%x", got[0].Data, tagged)
	}
	if !bytes.Equal(got[1].Data, two) || got[1].Comment != "coalesced: 3 segments of at most 1448 bytes" {
		t.Errorf("%q %x", got[1].Comment, got[1].Data)
	}
	b.takes = 1
	if n := iface.Send(0, b.batch(one, two)); n != 1 {
		t.Fatal(n)
	}
	if got = next(t, c); len(got) != 1 || !bytes.Equal(got[0].Data, one) || got[0].Point != TxPort {
		t.Errorf("%+v", got)
	}
	c.Stop()
	port.Deliver(0, in)
	if h.Watched(RxDelivered) || h.Watched(TxPort) || len(c.waiting) != 0 {
		t.Error("it goes on after Stop")
	}
	if _, err := h.Start(Options{Points: []Point{RxWire}}); err == nil || !strings.Contains(err.Error(), "rx-wire") {
		t.Errorf("a point that can't be seen: %v", err)
	}
}

// A reader that does not read loses packets, and is told how many; nobody waits.
func TestSlowReader(t *testing.T) {
	b := newBelow()
	h := NewHub("x", RxDelivered)
	port := h.Port(swallow{}, b)
	c, err := h.Start(Options{Points: []Point{RxDelivered}, SnapLen: 30})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	in := b.batch(make([]byte, 60), make([]byte, 70))
	const batches = maxWaiting
	for range batches {
		port.Deliver(0, in)
	}
	total, lost := 0, uint64(0)
	for total < maxWaiting {
		var records []Record
		records, lost, err = c.Next(t.Context(), 1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(records[0].Data) != 30 || records[0].Len != 60 {
			t.Fatalf("%+v", records[0])
		}
		total += len(records)
	}
	if total != maxWaiting || lost != 2*batches-maxWaiting {
		t.Errorf("%d read, %d lost of %d", total, lost, 2*batches)
	}
}

// Captures come and go while packets pass.
func TestComeAndGo(t *testing.T) {
	b := newBelow()
	h := NewHub("x", RxDelivered)
	port := h.Port(swallow{}, b)
	stop := make(chan struct{})
	var passing sync.WaitGroup
	passing.Go(func() {
		in := b.batch(make([]byte, 60))
		for {
			select {
			case <-stop:
				return
			default:
				port.Deliver(0, in)
			}
		}
	})
	for range 100 {
		c, err := h.Start(Options{Points: []Point{RxDelivered}})
		if err != nil {
			t.Fatal(err)
		}
		next(t, c)
		c.Stop()
	}
	close(stop)
	passing.Wait()
}

func TestWriter(t *testing.T) {
	var file bytes.Buffer
	points := []Point{RxDelivered, TxWire}
	w, err := NewWriter(&file, "vmx0", "tcp", 96, points)
	if err != nil {
		t.Fatal(err)
	}
	want := []Record{
		{Time: 1700000000123456789, Point: TxWire, Queue: 3, Len: 100, Data: make([]byte, 96), Comment: "to be cut"},
		{Time: 1700000000123456790, Point: RxDelivered, Queue: 1, Len: 60, Data: make([]byte, 60)},
	}
	for i := range want {
		if err := w.Write(&want[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	in, err := pcapgo.NewNgReader(&file, pcapgo.NgReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		data, info, options, err := in.ReadPacketDataWithOptions()
		if err != nil {
			t.Fatal(err)
		}
		face, err := in.Interface(info.InterfaceIndex)
		if err != nil || face.Name != "vmx0" || face.Description != want[i].Point.String() {
			t.Errorf("interface %+v, %v", face, err)
		}
		direction := pcapgo.NgEpbFlagDirectionOutbound
		if want[i].Point.Incoming() {
			direction = pcapgo.NgEpbFlagDirectionInbound
		}
		if info.Timestamp.UnixNano() != want[i].Time || info.Length != want[i].Len || len(data) != len(want[i].Data) ||
			options.Flags.Direction != direction || *options.Queue != uint32(want[i].Queue) || strings.Join(options.Comments, "") != want[i].Comment {
			t.Errorf("%+v %+v", info, options)
		}
	}
}

// While nobody captures, and afterwards again, packets pass without an allocation.
func TestOffAllocatesNothing(t *testing.T) {
	b := newBelow()
	h := NewHub("x", RxDelivered, TxPort)
	port, iface := h.Port(swallow{}, b), h.Interface(b)
	batch := b.batch(make([]byte, 60), make([]byte, 70))
	check := func(when string) {
		t.Helper()
		if n := testing.AllocsPerRun(100, func() { port.Deliver(0, batch); iface.Send(0, batch) }); n != 0 {
			t.Errorf("%s: %v allocations", when, n)
		}
	}
	check("before")
	c, err := h.Start(Options{Points: []Point{RxDelivered, TxPort}})
	if err != nil {
		t.Fatal(err)
	}
	c.Stop()
	check("afterwards")
}

func BenchmarkOff(b *testing.B) {
	under := newBelow()
	h := NewHub("x", RxDelivered)
	port := h.Port(swallow{}, under)
	in := under.batch(make([]byte, 60))
	b.ReportAllocs()
	for b.Loop() {
		port.Deliver(0, in)
	}
}
