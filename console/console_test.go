package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"nicd/proto/adminpb"
)

// TestJSONHasEveryField: names are the schema's, zero values are there, 64-bit
// numbers are numbers, what JSON has no number for is null, lists are lists.
func TestJSONHasEveryField(t *testing.T) {
	var b bytes.Buffer
	m := &adminpb.InterfaceReport{
		Interface: &adminpb.Interface{Name: "a \"quoted\" name", RxBytes: 1<<63 + 1, Addresses: []string{"10.0.0.1/24"}},
		RxGbps:    math.NaN(),
	}
	if err := JSON(&b, m); err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	d := json.NewDecoder(&b)
	d.UseNumber()
	if err := d.Decode(&got); err != nil {
		t.Fatal(err)
	}
	fields := m.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if _, ok := got[string(fields.Get(i).Name())]; !ok {
			t.Errorf("no field %s", fields.Get(i).Name())
		}
	}
	i := got["interface"].(map[string]any)
	if i["name"] != `a "quoted" name` || i["rx_bytes"] != json.Number("9223372036854775809") || i["tx_bytes"] != json.Number("0") {
		t.Errorf("interface: %v", i)
	}
	if got["rx_gbps"] != nil || i["link"] != nil || i["state"] != "" || !slices.Equal(i["addresses"].([]any), []any{"10.0.0.1/24"}) {
		t.Errorf("got %v", got)
	}
}

func status(uptime float64, bytes uint64) *adminpb.StatusReply {
	return &adminpb.StatusReply{
		Version: &adminpb.Version{Version: "1"}, UptimeSeconds: uptime,
		Interfaces: []*adminpb.Interface{{
			Name: "vmx0", State: "running", Link: &adminpb.Link{Up: true, Mbps: 10000, FullDuplex: true},
			RxBytes: bytes, RxDeliveredPackets: bytes / 1000, RxWireSegments: bytes / 100,
		}},
		Streams: []*adminpb.Stream{{Name: "s", State: "failed", StateReason: "no luck", Bytes: bytes}},
	}
}

func TestRates(t *testing.T) {
	interfaces, streams := Rates(status(1, 1000), status(3, 1000+2e9), 2)
	if len(interfaces) != 1 || len(streams) != 1 {
		t.Fatalf("%v %v", interfaces, streams)
	}
	if r := interfaces[0]; r.RxGbps != 8 || r.SegmentsPerDelivered != 10 || r.TxGbps != 0 {
		t.Errorf("got %v", r)
	}
	if streams[0].Gbps != 8 {
		t.Errorf("got %v", streams[0])
	}
	if i, s := Rates(status(1, 0), status(1, 0), 0); i != nil || s != nil {
		t.Error("rates of no time")
	}
	if i, _ := Rates(&adminpb.StatusReply{}, status(1, 0), 1); i != nil {
		t.Error("rates of an interface that was not there")
	}
}

// TestReportWithoutStreams: nothing is said of processor time for each of no
// gigabytes.
func TestReportWithoutStreams(t *testing.T) {
	for perGigabyte, want := range map[float64]string{
		0: "2.00 CPU seconds; 3.0 MB resident at most\n", 4: "2.00 CPU seconds, 4.00 per gigabyte received; 3.0 MB resident at most\n",
	} {
		var b bytes.Buffer
		Report(&b, &adminpb.Report{CpuSeconds: 2, CpuSecondsPerGigabyte: perGigabyte, PeakResidentBytes: 3e6}, 0)
		if !strings.HasSuffix(b.String(), want) {
			t.Errorf("got %q, want %q", b.String(), want)
		}
	}
}

// TestLive: on a terminal the table is drawn over itself and log lines go above
// it; elsewhere there is nothing but text.
func TestLive(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		var b bytes.Buffer
		l := newLive(&b, terminal, 200)
		update(t, l, status(1, 0), status(2, 1e9))
		first := b.String()
		if !strings.Contains(first, "10 Gbit/s") || !strings.Contains(first, "8.00") || !strings.Contains(first, "no luck") {
			t.Errorf("got:\n%s", first)
		}
		if strings.Contains(first, "\x1b[") != terminal {
			t.Errorf("terminal %v, and there are colours or not:\n%q", terminal, first)
		}
		b.Reset()
		if _, err := l.Write([]byte("a log line\n")); err != nil {
			t.Fatal(err)
		}
		update(t, l, status(3, 2e9))
		if erased := strings.HasPrefix(b.String(), "\x1b["); erased != terminal {
			t.Errorf("terminal %v, erased %v: %q", terminal, erased, b.String())
		}
		if n := strings.Count(b.String(), "\x1b[J"); terminal && n != 1 {
			t.Errorf("the table was erased %d times around a log line", n)
		}
	}
}

func newLive(w io.Writer, terminal bool, columns int) *Live {
	if !terminal {
		return NewLive(w, nil)
	}
	return NewLive(w, func() int { return columns })
}

func update(t *testing.T, l *Live, list ...*adminpb.StatusReply) {
	t.Helper()
	for _, s := range list {
		if err := l.Update(s); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLiveOnScreens: whatever a terminal's width, each table takes the place of the
// one before, lines that the terminal breaks included, and what matters most is on
// it.
func TestLiveOnScreens(t *testing.T) {
	at := func(seconds float64) *adminpb.StatusReply {
		s := status(seconds, uint64(seconds*1e9))
		i := s.Interfaces[0]
		i.Driver, i.LroOwner, i.Pid, i.Link.Paused = "vmxnet3", "hardware-only", 1234567, true
		i.StateReason = strings.Repeat("a long reason, ", 10)
		return s
	}
	for _, columns := range []int{20, 40, 80, 100, 132, 300} {
		screen := &terminal{columns: columns}
		l := NewLive(screen, func() int { return columns })
		update(t, l, at(1), at(2), at(3), at(4))
		text := strings.Join(screen.lines, "\n")
		tables, heads := 0, 0
		for _, line := range screen.lines {
			if strings.HasPrefix(line, "up ") {
				tables++
			}
			if strings.HasPrefix(line, "INTERFACE") && strings.Contains(line, "RX Gbit/s") && strings.HasSuffix(line, "DROPS") {
				heads++
			}
		}
		if tables != 1 || columns >= 80 && heads != 1 {
			t.Errorf("%d columns: %d tables, %d whole heads:\n%s", columns, tables, heads, text)
		}
		if columns == 300 && !strings.Contains(text, "1234567") {
			t.Errorf("there is room for all, and not all is there:\n%s", text)
		}
	}
}

// terminal is a screen without end that breaks lines.
type terminal struct {
	columns int
	lines   []string
}

func (s *terminal) Write(p []byte) (int, error) {
	text := strings.NewReplacer("\x1b[1m", "", "\x1b[0m", "").Replace(string(p))
	if up, rest, ok := strings.Cut(text, "A\x1b[J"); ok {
		n, err := strconv.Atoi(strings.TrimPrefix(up, "\x1b["))
		if err != nil || n > len(s.lines) {
			return 0, fmt.Errorf("cursor up by %q of %d lines", up, len(s.lines))
		}
		s.lines, text = s.lines[:len(s.lines)-n], rest
	}
	for line := range strings.Lines(text) {
		runes := []rune(strings.TrimSuffix(line, "\n"))
		for len(runes) > s.columns {
			s.lines, runes = append(s.lines, string(runes[:s.columns])), runes[s.columns:]
		}
		s.lines = append(s.lines, string(runes))
	}
	return len(p), nil
}

func TestText(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 999: "999 B", 1000: "1.0 KB", 1234567: "1.2 MB", 5e12: "5.0 TB"} {
		if got := bytesText(n); got != want {
			t.Errorf("%d bytes: %q, want %q", n, got, want)
		}
	}
	for _, test := range []struct {
		link *adminpb.Link
		want string
	}{
		{nil, "down"},
		{&adminpb.Link{Mbps: 1000}, "down"},
		{&adminpb.Link{Up: true, Mbps: 2500, FullDuplex: true}, "2500 Mbit/s"},
		{&adminpb.Link{Up: true, Mbps: 100, Paused: true}, "100 Mbit/s half paused"},
	} {
		if got := linkText(test.link); got != test.want {
			t.Errorf("%v: %q, want %q", test.link, got, test.want)
		}
	}
}

// TestStatsLeavesOutZeros: a person wants to see what happened; all shows the
// rest, and what is a sign of trouble is marked.
func TestStatsLeavesOutZeros(t *testing.T) {
	s := &adminpb.StatsReply{Interface: "em0", Queues: []*adminpb.QueueStats{{Kind: "rx", Counters: []*adminpb.Counter{
		{Name: "rx_packets", Value: 7}, {Name: "rx_polls"}, {Name: "rx_drop_crc", Value: 1, Bad: true},
	}}}, Violation: "7 is not 8"}
	var few, all bytes.Buffer
	NewCounterRates(false).Print(&few, s, time.Now())
	NewCounterRates(true).Print(&all, s, time.Now())
	if strings.Contains(few.String(), "rx_polls") || !strings.Contains(all.String(), "rx_polls") {
		t.Errorf("few:\n%sall:\n%s", few.String(), all.String())
	}
	for _, want := range []string{"EM0 RX 0", "rx_drop_crc !", "do not add up: 7 is not 8"} {
		if !strings.Contains(few.String(), want) {
			t.Errorf("no %q in:\n%s", want, few.String())
		}
	}
}

// TestStatsRates: from the second time on there is what was counted meanwhile, of
// counters and not of levels, each by its own section.
func TestStatsRates(t *testing.T) {
	at := func(packets, wire uint64) *adminpb.StatsReply {
		return &adminpb.StatsReply{Interface: "em0",
			Queues: []*adminpb.QueueStats{
				{Kind: "rx", Counters: []*adminpb.Counter{{Name: "rx_packets", Value: packets, Unit: "packets"}, {Name: "rx_buffers_free", Value: packets, Unit: "level"}}},
				{Kind: "rx", Index: 1, Counters: []*adminpb.Counter{{Name: "rx_packets", Value: 9, Unit: "packets"}}},
			},
			Wire: []*adminpb.Counter{{Name: "wire_rx_lost", Value: wire, Unit: "segments"}},
		}
	}
	var first, second bytes.Buffer
	rates, start := NewCounterRates(false), time.Now()
	rates.Print(&first, at(100, 0), start)
	rates.Print(&second, at(300, 4), start.Add(2*time.Second))
	if strings.Contains(first.String(), "A SECOND") {
		t.Errorf("rates of no time:\n%s", first.String())
	}
	var got [][]string
	for _, line := range strings.Split(second.String(), "\n") {
		if fields := strings.Fields(line); strings.Contains(line, "_") {
			got = append(got, fields)
		}
	}
	want := [][]string{{"rx_packets", "300", "100", "packets"}, {"rx_buffers_free", "300", "-", "level"}, {"rx_packets", "9", "0", "packets"}, {"wire_rx_lost", "4", "2", "segments"}}
	if !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %v", got)
	}
}

func TestDiagnosis(t *testing.T) {
	var b bytes.Buffer
	d := &adminpb.Diagnosis{Interface: "em0", Seconds: 1, Rates: &adminpb.InterfaceReport{RxGbps: 1.5, RxPps: 20000}}
	Diagnosis(&b, d)
	if !strings.Contains(b.String(), "1.50 Gbit/s received, 20.0k packets") || !strings.Contains(b.String(), "nothing was seen") {
		t.Errorf("got %q", b.String())
	}
	b.Reset()
	d.Findings = []*adminpb.Finding{{Where: "rx 0", What: "it is slow", Remedy: "be quick"}, {Where: "lro", What: "off"}}
	Diagnosis(&b, d)
	if !strings.HasSuffix(b.String(), "  1. rx 0: it is slow\n     -> be quick\n  2. lro: off\n") {
		t.Errorf("got %q", b.String())
	}
}
