package framework

import (
	"math/rand/v2"
	"testing"
)

// cutterOf is a cutter for descriptors of 1000 bytes on a device with these quirks.
func cutterOf(t *testing.T, sentinel bool, longest int) Cutter {
	t.Helper()
	d := []Declaration{TxSentinelQuirk.Is(sentinel, Match{}, "test"), MaxDescriptorBytesQuirk.Is(longest, Match{}, "test")}
	res, err := ResolveQuirks(QuirkSources{Driver: "test", Declarations: d})
	if err != nil {
		t.Fatal(err)
	}
	set := NewQuirkSet()
	if err := res.Apply(set); err != nil {
		t.Fatal(err)
	}
	return NewCutter(set, 1000)
}

func TestCutterLimit(t *testing.T) {
	for limit, want := range map[int]uint32{0: 1000, 300: 300, 4000: 1000} {
		if c := cutterOf(t, false, limit); c.Longest != want {
			t.Errorf("with a limit of %d: %d bytes", limit, c.Longest)
		}
	}
}

// TestCut: the pieces are the packet, in order, none too long, the last one marked.
func TestCut(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		c := cutterOf(t, r.IntN(2) == 0, 0)
		longest := uint32(1 + r.IntN(50))
		p := Packet{}
		if r.IntN(2) == 0 {
			p.Flags = Segment
		}
		var frags []Fragment
		for i := range 1 + r.IntN(5) {
			f := Fragment{Buffer: Buffer(i), Offset: uint32(r.IntN(100)), Len: uint32(r.IntN(200))}
			if i == 0 {
				f.Len++
			}
			frags = append(frags, f)
			p.Len += f.Len
		}
		cut := c.Cut(&p, frags, longest)
		most, pieces, end := cut.Pieces(), 0, uint32(0)
		at := 0
		off := uint32(0)
		for cut.Next() {
			for off == frags[at].Len {
				at, off = at+1, 0
			}
			f := frags[at]
			if g := cut.Piece; g.Buffer != f.Buffer || g.Offset != f.Offset+off || g.Len == 0 || g.Len > longest || off+g.Len > f.Len {
				t.Fatalf("piece %+v of fragment %+v, %d bytes into it", g, f, off)
			}
			off += cut.Piece.Len
			end += cut.Piece.Len
			pieces++
			if cut.Last != (end == p.Len) {
				t.Fatalf("last %v after %d of %d bytes", cut.Last, end, p.Len)
			}
		}
		if end != p.Len || pieces > most {
			t.Fatalf("%d of %d bytes in %d pieces of at most %d", end, p.Len, pieces, most)
		}
	}
}

// TestSentinel: the end of a TSO packet, and a packet of one piece right after it,
// have their last bytes in a piece of their own.
func TestSentinel(t *testing.T) {
	c := cutterOf(t, true, 0)
	last := func(flags PacketFlags, lengths ...uint32) uint32 {
		p := Packet{Flags: flags}
		var frags []Fragment
		for _, n := range lengths {
			frags = append(frags, Fragment{Len: n})
			p.Len += n
		}
		cut := c.Cut(&p, frags, 100)
		for cut.Next() {
		}
		return cut.Piece.Len
	}
	sent := func(flags PacketFlags) { c.Sent(&Packet{Flags: flags}) }
	for _, s := range []struct {
		what      string
		after     PacketFlags
		flags     PacketFlags
		lengths   []uint32
		lastPiece uint32
	}{
		{"an ordinary packet", 0, 0, []uint32{90}, 90},
		{"a TSO packet", 0, Segment, []uint32{60, 250}, 4},
		{"a TSO packet with a short end", 0, Segment, []uint32{60, 100, 8}, 8},
		{"one piece after TSO", Segment, 0, []uint32{90}, 4},
		{"two pieces after TSO", Segment, 0, []uint32{50, 40}, 40},
	} {
		sent(s.after)
		for range 2 { // a packet that did not fit is cut again
			if n := last(s.flags, s.lengths...); n != s.lastPiece {
				t.Errorf("%s ends with %d bytes, want %d", s.what, n, s.lastPiece)
			}
		}
	}
}
