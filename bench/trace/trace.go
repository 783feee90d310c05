// Package trace makes the packets that all engines of the benchmark are given, and writes them down for engines that
// are not written in Go.
//
// A trace is bulk data of some TCP connections over IPv4: full-sized segments with timestamps, in order, DF set, the
// identification counting, checksums right. It depends on its Spec alone.
package trace

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"

	"nicd/gso"
)

const (
	// HeaderLen is Ethernet, IPv4, TCP and the timestamp option; Payload is what follows.
	HeaderLen = 14 + 20 + 20 + 12
	Payload   = 1448
	// Batch is how many packets an engine gets at a time.
	Batch = 64
)

// Spec names one trace.
type Spec struct {
	Flows int // connections
	Row   int // packets of one connection in a row
	N     int // packets
}

// Hot and Cold are the numbers of packets: 1.5 MB, whose headers stay in the first-level or second-level cache, and
// 64 MB of buffers.
const (
	Hot  = 1024
	Cold = 32768
)

// Specs returns all traces, hot ones first.
func Specs() []Spec {
	var s []Spec
	for _, n := range []int{Hot, Cold} {
		for _, flows := range []int{1, 16, 256, 4096} {
			for _, row := range []int{1, 8} {
				s = append(s, Spec{flows, row, n})
			}
		}
	}
	return s
}

// String returns a name without spaces.
func (s Spec) String() string {
	heat := "hot"
	if s.N == Cold {
		heat = "cold"
	}
	return fmt.Sprintf("%s-f%d-r%d", heat, s.Flows, s.Row)
}

// pattern is the payload of every segment.
func pattern() []byte {
	p := make([]byte, Payload)
	for i := range p {
		p[i] = byte(i * 7)
	}
	return p
}

// Frames returns the trace, one slice for each frame.
func (s Spec) Frames() [][]byte {
	payload := pattern()
	next := make([]int, s.Flows)
	frames := make([][]byte, s.N)
	for i := range frames {
		flow := i / s.Row % s.Flows
		frames[i] = frame(flow, next[flow], payload)
		next[flow]++
	}
	return frames
}

// frame builds segment n of a flow; gso writes lengths and checksums.
func frame(flow, n int, payload []byte) []byte {
	f := []byte{
		0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x08, 0x00,
		0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 1, 1,
		0, 0, 0, 80, 0, 0, 0, 0, 0, 0, 0, 1, 0x80, 0x10, 1, 0, 0, 0, 0, 0,
		1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 1,
	}
	binary.BigEndian.PutUint16(f[18:], uint16(n))
	binary.BigEndian.PutUint16(f[34:], uint16(10000+flow))
	binary.BigEndian.PutUint32(f[38:], uint32(n*Payload))
	p, err := gso.Parse(f)
	if err != nil {
		panic(err)
	}
	p.SegmentSize = Payload
	var g gso.Segmenter
	if err := g.Reset([][]byte{f, payload}, p); err != nil {
		panic(err)
	}
	out := make([]byte, HeaderLen+Payload)
	g.NextFrame(out)
	return out
}

// Write writes the trace: the number of packets, the header length and the payload length as 32-bit little-endian
// numbers, the payload, which is the same for all, and the headers of each packet.
func (s Spec) Write(w io.Writer) error {
	b := bufio.NewWriter(w)
	for _, v := range []uint32{uint32(s.N), HeaderLen, Payload} {
		if err := binary.Write(b, binary.LittleEndian, v); err != nil {
			return err
		}
	}
	b.Write(pattern())
	for _, f := range s.Frames() {
		b.Write(f[:HeaderLen])
	}
	return b.Flush()
}
