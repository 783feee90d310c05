package console

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"

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
		Report(&b, &adminpb.Report{CpuSeconds: 2, CpuSecondsPerGigabyte: perGigabyte, PeakResidentBytes: 3e6})
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
		l := NewLive(&b, terminal)
		l.Update(status(1, 0))
		l.Update(status(2, 1e9))
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
		l.Update(status(3, 2e9))
		if erased := strings.HasPrefix(b.String(), "\x1b["); erased != terminal {
			t.Errorf("terminal %v, erased %v: %q", terminal, erased, b.String())
		}
		if n := strings.Count(b.String(), "\x1b[J"); terminal && n != 1 {
			t.Errorf("the table was erased %d times around a log line", n)
		}
	}
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
	Stats(&few, s, false)
	Stats(&all, s, true)
	if strings.Contains(few.String(), "rx_polls") || !strings.Contains(all.String(), "rx_polls") {
		t.Errorf("few:\n%sall:\n%s", few.String(), all.String())
	}
	for _, want := range []string{"EM0 RX 0", "rx_drop_crc !", "do not add up: 7 is not 8"} {
		if !strings.Contains(few.String(), want) {
			t.Errorf("no %q in:\n%s", want, few.String())
		}
	}
}
