package lro

import (
	"fmt"
	"testing"
	"time"
)

const (
	benchBatch  = 64
	benchStride = 2048 + 64 // not a multiple of a page's half: headers spread over the cache's sets
	benchOffset = 2         // IPv4 addresses on a multiple of four
)

// benchTrace returns packets of 1448 bytes of payload, in memory laid out like a receive ring: flows in turn, each with
// as many packets in a row as told, in order.
func benchTrace(n, flows, row int, c Checksum, ipv6 bool) []Packet {
	arena := make([]byte, n*benchStride)
	next := make([]int, flows)
	in := make([]Packet, n)
	for i := range in {
		flow := i / row % flows
		s := data(next[flow], 1448)
		s.ipv6 = ipv6
		next[flow]++
		s.sport = uint16(flow)
		f := s.build()
		if ipv6 {
			s.payload = s.payload[:1428]
		}
		d := arena[i*benchStride+benchOffset:][:len(f):len(f)]
		copy(d, f)
		in[i] = Packet{Data: d, Len: uint32(len(d)), Checksum: c}
	}
	return in
}

// benchRun times Batch alone: what it rewrites is put back between the passes, outside of the time.
func benchRun(b *testing.B, o Options, in []Packet) {
	e := New(o)
	out := make([]Aggregate, 0, benchBatch)
	saved := make([][80]byte, len(in))
	for i := range in {
		copy(saved[i][:], in[i].Data)
	}
	b.ReportAllocs()
	b.ResetTimer()
	var total, best time.Duration
	for range b.N {
		for i := range in {
			copy(in[i].Data, saved[i][:])
		}
		start := time.Now()
		for i := 0; i < len(in); i += benchBatch {
			out = e.Batch(in[i:i+benchBatch], out[:0])
		}
		t := time.Since(start)
		total += t
		if best == 0 || t < best {
			best = t
		}
	}
	b.ReportMetric(float64(total.Nanoseconds())/float64(b.N*len(in)), "ns/packet")
	b.ReportMetric(float64(best.Nanoseconds())/float64(len(in)), "best-ns/packet")
	b.ReportMetric(0, "ns/op")
}

func BenchmarkBatch(b *testing.B) {
	for _, heat := range []struct {
		name string
		n    int
	}{{"hot", 1024}, {"cold", 32768}} {
		for _, c := range []struct {
			name string
			c    Checksum
		}{{"trusted", ChecksumVerified}, {"verified", ChecksumUnknown}} {
			for _, flows := range []int{1, 16, 256, 4096} {
				for _, row := range []int{1, 8} {
					b.Run(fmt.Sprintf("%s/%s/flows=%d/row=%d", heat.name, c.name, flows, row), func(b *testing.B) {
						benchRun(b, Options{}, benchTrace(heat.n, flows, row, c.c, false))
					})
				}
			}
		}
	}
}

func BenchmarkBatchIPv6(b *testing.B) {
	for _, flows := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("flows=%d", flows), func(b *testing.B) {
			benchRun(b, Options{MTU: 1600}, benchTrace(1024, flows, 1, ChecksumVerified, true))
		})
	}
}

// BenchmarkWorst: every packet is of another flow, and all of them fall into one set.
func BenchmarkWorst(b *testing.B) {
	benchRun(b, Options{Flows: 8}, benchTrace(1024, 1024, 1, ChecksumVerified, false))
}

// BenchmarkTraffic is what real queues see besides bulk data, 16 connections each.
func BenchmarkTraffic(b *testing.B) {
	for _, v := range []struct {
		name string
		edit func(i int, p *Packet, s *segment)
	}{
		{"timestamps advance on every packet", func(i int, p *Packet, s *segment) { s.options = timestamp(uint32(i), 1) }},
		{"PSH on every fourth packet", func(i int, p *Packet, s *segment) {
			if i/16%4 == 3 {
				s.flags |= flagPSH
			}
		}},
		{"every second packet coalesced by hardware", func(i int, p *Packet, s *segment) {
			if i%2 == 0 {
				p.Segments = 2
			}
		}},
		{"one in a hundred packets missing", func(i int, p *Packet, s *segment) {
			if i%100 == 99 {
				s.seq++
			}
		}},
		{"every fourth packet UDP", func(i int, p *Packet, s *segment) {
			if i%4 == 3 {
				s.protocol = 17
			}
		}},
		{"VLAN tags", func(i int, p *Packet, s *segment) { s.tags = []uint32{0x81000005} }},
		{"pure acknowledgements", func(i int, p *Packet, s *segment) { s.payload = nil }},
	} {
		b.Run(v.name, func(b *testing.B) {
			in := benchTrace(1024, 16, 1, ChecksumVerified, false)
			for i := range in {
				s := data(i/16, 1448)
				s.sport = uint16(i % 16)
				v.edit(i, &in[i], &s)
				f := s.build()
				in[i].Data = in[i].Data[:cap(in[i].Data)]
				if len(f) > len(in[i].Data) {
					in[i].Data = make([]byte, len(f))
				}
				in[i].Data = in[i].Data[:copy(in[i].Data, f)]
				in[i].Len = uint32(len(f))
			}
			benchRun(b, Options{}, in)
		})
	}
}
