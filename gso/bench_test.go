package gso

import "testing"

// BenchmarkSegments segments a frame of 64 KB into 45 segments.
func BenchmarkSegments(b *testing.B) {
	frame := tcpFrame(65000, 0x18)
	p, err := Parse(frame)
	if err != nil {
		b.Fatal(err)
	}
	p.SegmentSize = 1448
	parts := [][]byte{frame[:2000], frame[2000:40000], frame[40000:]}
	header := make([]byte, p.HeaderLen)
	refs := make([]Ref, 0, len(parts))
	buffer := make([]byte, 1514)
	for _, mode := range []struct {
		name string
		mode ChecksumMode
	}{{"full", ChecksumFull}, {"partial", ChecksumPartial}} {
		p.Checksum = mode.mode
		b.Run("references/"+mode.name, func(b *testing.B) {
			b.ReportAllocs()
			var s Segmenter
			for b.Loop() {
				s.Reset(parts, p)
				for ok := true; ok; {
					refs, ok = s.Next(header, refs[:0])
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*s.Segments()), "ns/segment")
		})
		b.Run("copies/"+mode.name, func(b *testing.B) {
			b.ReportAllocs()
			var s Segmenter
			for b.Loop() {
				s.Reset(parts, p)
				for ok := true; ok; {
					_, ok = s.NextFrame(buffer)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*s.Segments()), "ns/segment")
		})
	}
}
