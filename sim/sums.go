package sim

// Sum adds data to an Internet checksum in progress (RFC 1071): s and the result
// are folded ones' complement sums of big-endian 16-bit words, not complemented.
// Data starts at an even offset of what is summed.
func Sum(s uint16, data []byte) uint16 { return sum(s, data) }

// SumParts adds n bytes of parts from offset from on to s, as Sum does.
func SumParts(s uint16, parts [][]byte, from, n int) uint16 { return sumParts(s, parts, from, n) }
