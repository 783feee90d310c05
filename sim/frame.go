package sim

// Frame is an Ethernet frame, without frame check sequence, on its way over a
// wire. Its bytes are borrowed from the sender until Send returns: who wants to
// keep them copies them.
type Frame struct {
	// Parts are the frame's bytes, in order. None is empty.
	Parts [][]byte
	// Len is the sum of their lengths.
	Len   int
	Flags FrameFlags

	// SegmentSize: with Segment, the most payload bytes a segment may have; the
	// frame stands for ceil(payload / SegmentSize) frames on the wire.
	SegmentSize int
	// HeaderLen: with Segment, the length of all headers, Ethernet to TCP.
	HeaderLen int
	// ChecksumStart and ChecksumOffset: with Partial, the ones' complement sum
	// of all from ChecksumStart on, which includes the sender's seed, belongs
	// complemented at ChecksumStart+ChecksumOffset. The seed is the sum of the
	// pseudo-header, with Segment without the length.
	ChecksumStart, ChecksumOffset int
}

// FrameFlags say what is special about a frame.
type FrameFlags uint8

// Frame flags.
const (
	// Partial: the layer-4 checksum is not filled in.
	Partial FrameFlags = 1 << iota
	// Segment: a TCP frame to be cut (TSO). It is Partial too, and an IPv4
	// header's length, identification and checksum are valid for the first
	// segment or for the whole alike.
	Segment
	// Good: whoever filled the checksums in says that they are right.
	Good
)

// Segments is how many frames on a wire of Ethernet f stands for.
func (f *Frame) Segments() int {
	if f.Flags&Segment == 0 || f.SegmentSize <= 0 || f.Len <= f.HeaderLen {
		return 1
	}
	return (f.Len - f.HeaderLen + f.SegmentSize - 1) / f.SegmentSize
}

// CopyTo copies the frame's bytes from offset from on to dst, and returns how
// many it copied.
func (f *Frame) CopyTo(dst []byte, from int) int {
	n := 0
	for _, p := range f.Parts {
		if from >= len(p) {
			from -= len(p)
			continue
		}
		n += copy(dst[n:], p[from:])
		from = 0
		if n == len(dst) {
			break
		}
	}
	return n
}

// AppendParts appends n of the frame's bytes from offset from on to parts,
// without a copy.
func (f *Frame) AppendParts(parts [][]byte, from, n int) [][]byte {
	for _, p := range f.Parts {
		if n <= 0 {
			break
		}
		if from >= len(p) {
			from -= len(p)
			continue
		}
		p = p[from:min(len(p), from+n)]
		from = 0
		n -= len(p)
		parts = append(parts, p)
	}
	return parts
}
