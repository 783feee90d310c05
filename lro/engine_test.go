package lro

import (
	"bytes"
	"testing"
	"unsafe"
)

func TestPacketIsOneCacheLine(t *testing.T) {
	if n := unsafe.Sizeof(Packet{}); n > 64 {
		t.Errorf("Packet has %d bytes", n)
	}
	if n := unsafe.Sizeof(entry{}); n > 128 {
		t.Errorf("entry has %d bytes", n)
	}
}

func TestMergedFrame(t *testing.T) {
	for _, ipv6 := range []bool{false, true} {
		in := packets(train(3, 1000, func(i int, s *segment) {
			s.ipv6 = ipv6
			if i == 2 {
				s.payload = s.payload[:10]
				s.flags |= flagPSH
			}
		})...)
		out := New(Options{}).Batch(in, nil)
		if g := groups(t, in, out); g != "[0 1 2]" {
			t.Fatalf("got %s", g)
		}
		a := out[0]
		whole := data(0, 1000)
		whole.ipv6, whole.flags = ipv6, whole.flags|flagPSH
		for i := range 3 {
			part := data(i, 1000).payload
			if i == 2 {
				part = part[:10]
			}
			if i > 0 {
				whole.payload = append(whole.payload, part...)
			}
		}
		want := whole.build()
		got := bytes.Join(AppendFragments(nil, in, &a), nil)
		copy(want[a.L4Offset+16:], got[a.L4Offset+16:a.L4Offset+18])
		if !bytes.Equal(got, want) {
			t.Errorf("ipv6 %v:\ngot  %x\nwant %x", ipv6, got[:80], want[:80])
		}
		mode := IDIncrement
		if ipv6 {
			mode = IDNone
		}
		if a.Segments != 3 || a.SegmentSize != 1000 || int(a.Len) != len(want) || a.IDMode != mode ||
			a.Checksum != ChecksumPartial || a.Flags&Merged == 0 {
			t.Errorf("ipv6 %v: %+v", ipv6, a)
		}
	}
}

func TestBatchDoesNotAllocate(t *testing.T) {
	in := packets(train(64, 100, nil)...)
	e := New(Options{})
	out := make([]Aggregate, 0, 64)
	if n := testing.AllocsPerRun(100, func() { out = e.Batch(in, out[:0]) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestStatsAddUp checks the equations that the documentation of Stats promises.
func TestStatsAddUp(t *testing.T) {
	e := New(Options{MaxSegments: 3})
	for n := range 20 {
		in := packets(train(n, 100, func(i int, s *segment) {
			s.sport = uint16(i % 3)
			s.seq = uint32(i / 3 * 100)
			if i%7 == 6 {
				s.flags |= flagSYN
			}
		})...)
		e.Batch(in, nil)
	}
	checkStats(t, e)
}

func checkStats(t failer, e *Engine) {
	t.Helper()
	s := e.Stats()
	var outputs uint64
	for r := range s.Ended {
		outputs += s.Ended[r] + s.Passed[r]
	}
	if s.Packets != s.Outputs+s.Merged || s.Outputs != outputs {
		t.Errorf("%d packets, %d outputs, %d merged, %d reasons", s.Packets, s.Outputs, s.Merged, outputs)
	}
}
