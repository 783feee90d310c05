package sim

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// TestHeadersThatChange: the bytes of a frame may be memory of another process, which
// changes them at any time. What was found in them holds: nothing reaches further than
// it did.
func TestHeadersThatChange(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	parsed := 0
	for range 20_000 {
		f := newTSO(rng, rng.IntN(2) == 0, rng.IntN(2) == 0, 1, 1)
		b := flat(&f)
		if rng.IntN(2) == 0 {
			b[23] = ProtocolUDP
		}
		b = b[:len(b)-rng.IntN(len(b)-EthernetHeaderLen)]
		b = b[:len(b):len(b)]
		if at := 16 + 4*rng.IntN(2); at+2 <= len(b) { // an IPv4 length that fits
			binary.BigEndian.PutUint16(b[at:], 0)
		}
		var h Headers
		if !ParseHeaders(&h, b, len(b)) {
			continue
		}
		parsed++
		for range 1 + rng.IntN(8) {
			b[rng.IntN(len(b))] = byte(rng.Uint32())
		}
		b[h.IP] |= 0xf // as many options as there can be
		now := FrameOf(b)
		now.Flags = FrameFlags(rng.Uint32()) & (Partial | Segment | Good)
		h.HeaderChecksumGood(b)
		h.ChecksumGood(&now, b)
		h.Pseudo(b, len(b))
		if !h.IPv6 {
			h.SetHeaderChecksum(b)
		}
		if h.VLAN {
			rest, _ := h.Untag(b)
			h.HeaderChecksumGood(rest)
			h.Pseudo(rest, len(rest))
		}
	}
	if parsed < 1000 {
		t.Errorf("%d frames had headers", parsed)
	}
}
