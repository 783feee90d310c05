package lro

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"
	"time"

	"nicd/gso"
)

// roundRobin returns n packets of as many flows as told, one after another, in order within each flow.
func roundRobin(n, flows, size int) []Packet {
	var s []segment
	for i := range n {
		x := data(i/flows, size)
		x.sport = uint16(i % flows)
		s = append(s, x)
	}
	return packets(s...)
}

// TestRule65TableFull has more flows than the table has room for. Nothing is lost, nothing overtakes, and the counters
// say what happened.
func TestRule65TableFull(t *testing.T) {
	in := roundRobin(400, 20, 8)
	_, out, e := runBatch(t, Options{Flows: 8}, in)
	if s := e.Stats(); s.Ended[ReasonEvicted] == 0 {
		t.Error("nothing was evicted")
	}
	if len(out) < 20 {
		t.Errorf("%d outputs", len(out))
	}
	// With room for all, each flow comes out as one.
	if _, out, _ := runBatch(t, Options{}, roundRobin(400, 20, 8)); len(out) != 20 {
		t.Errorf("%d outputs with room for all flows", len(out))
	}
}

// TestEvictionTakesTheOldest fills the only set and lets one more flow in.
func TestEvictionTakesTheOldest(t *testing.T) {
	var s []segment
	for i := range 9 {
		x := data(0, 8)
		x.sport = uint16(i)
		s = append(s, x)
	}
	for i := range 9 {
		x := data(1, 8)
		x.sport = uint16(8 - i)
		s = append(s, x)
	}
	got, _, e := runBatch(t, Options{Flows: 8}, packets(s...))
	want := "[0] [1 16] [2 15] [3 14] [4 13] [5 12] [6 11] [7 10] [8 9] [17]"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if n := e.Stats().Ended[ReasonEvicted]; n != 2 {
		t.Errorf("%d evicted", n)
	}
}

// TestEvictionPrefersEndedFlows: a flow whose aggregate has ended makes way before one that is open.
func TestEvictionPrefersEndedFlows(t *testing.T) {
	var s []segment
	for i := range 8 {
		x := data(0, 8)
		x.sport = uint16(i)
		s = append(s, x)
	}
	push, other, more := data(1, 8), data(0, 8), data(1, 8)
	push.sport, push.flags = 5, push.flags|flagPSH
	other.sport, more.sport = 100, 0
	got, _, e := runBatch(t, Options{Flows: 8}, packets(append(s, push, other, more)...))
	if want := "[0 10] [1] [2] [3] [4] [5 8] [6] [7] [9]"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if n := e.Stats().Ended[ReasonEvicted]; n != 0 {
		t.Errorf("%d evicted", n)
	}
}

// TestRule66ManyFlows: 4096 flows in turn merge nothing within a batch.
func TestRule66ManyFlows(t *testing.T) {
	in := roundRobin(4096, 4096, 8)
	e := New(Options{})
	for i := 0; i < len(in); i += 64 {
		part := in[i : i+64]
		frames := snapshot(part)
		out := e.Batch(part, nil)
		if len(out) != 64 {
			t.Fatalf("%d outputs", len(out))
		}
		checkBatch(t, frames, part, out)
	}
}

func TestRule67EmptyBatches(t *testing.T) {
	e := New(Options{})
	if out := e.Batch(nil, nil); len(out) != 0 {
		t.Errorf("%d outputs of nothing", len(out))
	}
	in := sized(100)
	if out := e.Batch(in, nil); groups(t, in, out) != "[0]" {
		t.Errorf("got %s", groups(t, in, out))
	}
	// A batch does not remember the one before.
	in = packets(data(1, 100))
	if out := e.Batch(in, nil); groups(t, in, out) != "[0]" {
		t.Errorf("got %s", groups(t, in, out))
	}
	for range 2 {
		if out := e.Batch(nil, nil); len(out) != 0 {
			t.Errorf("%d outputs of nothing", len(out))
		}
	}
	checkStats(t, e)
}

// TestBatchAppends: outputs are put behind what is there already.
func TestBatchAppends(t *testing.T) {
	in := sized(100, 100)
	out := New(Options{}).Batch(in, []Aggregate{{Head: 77}})
	if len(out) != 2 || out[0].Head != 77 || out[1].Segments != 2 {
		t.Errorf("%+v", out)
	}
}

// segmentAgain feeds an aggregate to gso and returns the frames.
func segmentAgain(t failer, in []Packet, a *Aggregate) [][]byte {
	t.Helper()
	if a.Flags&Merged == 0 {
		return [][]byte{in[a.Head].Data}
	}
	var s gso.Segmenter
	err := s.Reset(AppendFragments(nil, in, a), gso.Params{
		L3Offset: a.L3Offset, L4Offset: a.L4Offset, HeaderLen: a.HeaderLen, SegmentSize: a.SegmentSize,
		FixedID: a.IDMode == IDFixed, CopyCWR: a.Flags&CWRCopied != 0,
	})
	if err != nil {
		t.Fatal(err)
	}
	var frames [][]byte
	for {
		f := make([]byte, int(a.HeaderLen)+int(a.SegmentSize))
		n, ok := s.NextFrame(f)
		if !ok {
			return frames
		}
		frames = append(frames, f[:n])
	}
}

// TestRule69Forwarding: what comes out says enough for gso to give the original frames back.
func TestRule69Forwarding(t *testing.T) {
	for _, r := range rules() {
		frames := snapshot(r.in)
		out := New(r.options).Batch(r.in, nil)
		for i := range out {
			m := members(t, r.in, &out[i])
			got := segmentAgain(t, r.in, &out[i])
			if len(got) != len(m) {
				t.Fatalf("row %d: %d frames became %d", r.row, len(m), len(got))
			}
			for k := range got {
				if !bytes.Equal(got[k], frames[m[k]]) {
					t.Errorf("row %d: %s", r.row, difference(got[k], frames[m[k]]))
				}
			}
		}
	}
}

// TestRule72BuffersAreTheCallers: the engine keeps no reference to a buffer after Batch, changes none but the headers
// of heads, and reads none of a batch before.
func TestRule72BuffersAreTheCallers(t *testing.T) {
	e := New(Options{})
	in := sized(100, 100, 100)
	before := snapshot(in)
	out := e.Batch(in, nil)
	for i := 1; i < 3; i++ {
		if !bytes.Equal(in[i].Data, before[i]) {
			t.Errorf("packet %d was written to", i)
		}
	}
	if h := out[0].HeaderLen; !bytes.Equal(in[0].Data[h:], before[0][h:]) {
		t.Error("payload of the head was written to")
	}
	held := snapshot(in)
	next := packets(data(3, 100), data(4, 100))
	e.Batch(next, nil)
	for i := range in {
		if !bytes.Equal(in[i].Data, held[i]) {
			t.Errorf("packet %d was written to by the next batch", i)
		}
	}
	// Nothing in an engine can refer to a packet: the types that it is made of have no pointers but to tables of numbers.
	if field := pointerTo(reflect.TypeFor[Engine](), reflect.TypeFor[byte]()); field != "" {
		t.Errorf("%s can refer to packets", field)
	}
}

// pointerTo returns the name of a field of t, or of what it refers to, that can refer to an elem; "" if there is none.
func pointerTo(t, elem reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Chan, reflect.UnsafePointer, reflect.Interface, reflect.Func:
		if t.Kind() != reflect.Slice && t.Kind() != reflect.Pointer || t.Elem() == elem {
			return t.String()
		}
		return pointerTo(t.Elem(), elem)
	case reflect.Array:
		return pointerTo(t.Elem(), elem)
	case reflect.Struct:
		for i := range t.NumField() {
			if s := pointerTo(t.Field(i).Type, elem); s != "" {
				return t.Field(i).Name + " " + s
			}
		}
	}
	return ""
}

// TestFragmentsMerge: a packet whose payload lies in further fragments merges if its checksum is verified.
func TestFragmentsMerge(t *testing.T) {
	in := sized(1000, 1000, 300)
	for i := range in {
		in[i].Checksum = ChecksumVerified
		in[i].Data = in[i].Data[:66:66]
	}
	out := New(Options{}).Batch(in, nil)
	if g := groups(t, in, out); g != one {
		t.Fatalf("got %s", g)
	}
	if out[0].Len != 66+2300 || in[2].PayloadLen != 300 || in[2].PayloadOffset != 66 {
		t.Errorf("%+v, %+v", out[0], in[2])
	}
}

// TestHeadersNotInData: the headers end behind the first fragment, at any place.
func TestHeadersNotInData(t *testing.T) {
	for _, ipv6 := range []bool{false, true} {
		for cut := range 86 {
			in := packets(train(3, 100, func(i int, s *segment) { s.ipv6 = ipv6 })...)
			for i := range in {
				in[i].Checksum = ChecksumVerified
			}
			in[1].Data = in[1].Data[:cut:cut]
			want, headers := none, 66
			if ipv6 {
				headers = 86
			}
			if cut >= headers {
				want = one
			}
			if g := groups(t, in, New(Options{}).Batch(in, nil)); g != want {
				t.Errorf("IPv6 %v, %d bytes: %s", ipv6, cut, g)
			}
		}
	}
}

// TestLenIsTheFrame: bytes of Data behind Len are no part of the frame.
func TestLenIsTheFrame(t *testing.T) {
	in := sized(100, 100)
	for i := range in {
		in[i].Data = append(in[i].Data, 1, 2, 3)
	}
	out := New(Options{}).Batch(in, nil)
	if g := groups(t, in, out); g != "[0 1]" {
		t.Fatalf("got %s", g)
	}
	if whole := bytes.Join(AppendFragments(nil, in, &out[0]), nil); len(whole) != int(out[0].Len) || len(whole) != 266 {
		t.Errorf("%d bytes, Len %d", len(whole), out[0].Len)
	}
}

// TestTruncatedEverywhere cuts a frame at every length (property P11).
func TestTruncatedEverywhere(t *testing.T) {
	for _, s := range []segment{data(0, 40), data6(0, 40)} {
		for _, tags := range [][]uint32{nil, {0x81000001}, {0x88a80001, 0x81000001, 0x81000002}} {
			s.tags = tags
			f := s.build()
			for n := range len(f) {
				short := bytes.Clone(f[:n])
				for _, length := range []int{n, len(f)} {
					for _, flags := range []PacketFlags{0, HardwareCoalesced} {
						in := []Packet{{Data: short, Len: uint32(length), Flags: flags}}
						out := New(Options{Flows: 8}).Batch(in, nil)
						if len(out) != 1 || out[0].Flags&Merged != 0 {
							t.Fatalf("%d bytes: %+v", n, out)
						}
					}
				}
			}
		}
	}
}

// TestAllHeaderLengths runs all values of IHL and data offset (property P11).
func TestAllHeaderLengths(t *testing.T) {
	for ihl := range 16 {
		for doff := range 16 {
			for _, size := range []int{0, 1, 39, 60, 100} {
				in := packets(train(2, size, func(i int, s *segment) {
					s.edit = func(f []byte, l3, l4 int) {
						f[l3] = 0x40 | byte(ihl)
						f[l4+12] = byte(doff) << 4
					}
				})...)
				runBatch(t, Options{Flows: 8}, in)
			}
		}
	}
}

// TestWorstCaseIsBounded (property P12): a search looks at one set, however many flows there are, and ends all the same
// if all hashes are equal. Times are generous: what is looked for is a factor of hundreds.
func TestWorstCaseIsBounded(t *testing.T) {
	const n = 4096
	in := roundRobin(n, n, 8)
	many := New(Options{})
	same := New(Options{Flows: 8})
	time1 := fastest(func() { many.Batch(in, make([]Aggregate, 0, n)) })
	time2 := fastest(func() { same.Batch(in, make([]Aggregate, 0, n)) })
	t.Logf("%v per packet, %v in one set", time1/n, time2/n)
	if time2 > 50*time1 {
		t.Errorf("%v in one set, %v otherwise", time2, time1)
	}
}

func fastest(f func()) time.Duration {
	best := time.Hour
	for range 9 {
		start := time.Now()
		f()
		best = min(best, time.Since(start))
	}
	return best
}

// TestFragmentFlood: packets that end all flows between two addresses cost no more than the flows that are open.
func TestFragmentFlood(t *testing.T) {
	var s []segment
	for i := range 200 {
		x := data(0, 8)
		x.sport = uint16(i)
		s = append(s, x)
	}
	for range 2000 {
		x := data(0, 8)
		x.fragment = 5
		s = append(s, x)
	}
	in := packets(s...)
	_, out, _ := runBatch(t, Options{}, in)
	if len(out) != len(in) {
		t.Errorf("%d outputs", len(out))
	}
}

// TestGenerationWraps: entries of a generation long ago do not come back.
func TestGenerationWraps(t *testing.T) {
	e := New(Options{})
	e.Batch(sized(100), nil)
	e.table.stamp = 0xffffffff << 32
	e.Batch(sized(100), nil)
	if e.table.stamp != 1<<32 {
		t.Fatalf("generation %#x", e.table.stamp)
	}
	in := packets(data(1, 100))
	if g := groups(t, in, e.Batch(in, nil)); g != "[0]" {
		t.Errorf("got %s", g)
	}
}

// TestSetMTU: the limit changes between batches.
func TestSetMTU(t *testing.T) {
	e := New(Options{})
	in := sized(8948, 8948)
	if g := groups(t, in, e.Batch(in, nil)); g != "[0] [1]" {
		t.Errorf("MTU 1500: %s", g)
	}
	e.SetMTU(9000)
	in = sized(8948, 8948)
	if g := groups(t, in, e.Batch(in, nil)); g != "[0 1]" {
		t.Errorf("MTU 9000: %s", g)
	}
	e.SetMTU(0)
	in = sized(8948, 8948)
	if g := groups(t, in, e.Batch(in, nil)); g != "[0] [1]" {
		t.Errorf("default MTU: %s", g)
	}
}

// TestOptionsOutOfRange: they are brought into range.
func TestOptionsOutOfRange(t *testing.T) {
	for _, o := range []Options{
		{MTU: -1, MaxSegments: -1, MaxLen: -1, Flows: -1},
		{MTU: 1 << 40, MaxSegments: 1 << 40, MaxLen: 1 << 40, Flows: 1 << 40},
		{Flows: 1},
	} {
		if g, _, _ := runBatch(t, o, sized(100, 100)); g != "[0 1]" {
			t.Errorf("%+v: %s", o, g)
		}
	}
}

func TestReasonNames(t *testing.T) {
	seen := map[string]bool{}
	for r := reasonNone; r < NumReasons; r++ {
		if s := r.String(); s == "" || seen[s] {
			t.Errorf("reason %d is named %q", r, s)
		} else {
			seen[s] = true
		}
	}
	if fmt.Sprint(NumReasons) != "invalid" {
		t.Error("a reason out of range has a name")
	}
}

// TestBulkTakesTheShortWay: no combination of options sends bulk segments the long way, which nobody would notice but
// for the time.
func TestBulkTakesTheShortWay(t *testing.T) {
	for _, o := range []Options{{}, {MaxLen: 65495}, {MTU: 9000, MaxSegments: 17}, {Flows: 8}} {
		for _, c := range []Checksum{ChecksumUnknown, ChecksumVerified} {
			for _, ipv6 := range []bool{false, true} {
				for _, options := range [][]byte{nil, timestamp(1, 2)} {
					in := packets(train(60, 1000, func(i int, s *segment) {
						s.ipv6, s.options = ipv6, options
						s.sport += uint16(i % 12)
						s.seq, s.id = uint32(i/12*1000), uint16(i/12)
					})...)
					for i := range in {
						in[i].Checksum, in[i].Flags, in[i].VLAN = c, VLANStripped, 5
					}
					if n := New(o).quick(in, 0); n != len(in) {
						t.Errorf("%+v, checksum %d, IPv6 %v, %d bytes of options: packet %d goes the long way", o, c, ipv6, len(options), n)
					}
				}
			}
		}
	}
}
