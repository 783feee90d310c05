package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"nicd/framework"
)

// withinPage sets the quirk.
func withinPage(r *rig) {
	if err := r.opts.Quirks.Set(framework.TxWithinPageQuirk.Info().Name, "true"); err != nil {
		r.t.Fatal(err)
	}
}

// pages makes the device keep what crosses a page boundary in a descriptor, and
// headers that the device is to look at and that are not together.
func (r *rig) pages() (crossing func() []string) {
	var bad []string
	r.dev.fragments = func(p framework.Packet, frags []framework.Fragment) {
		for _, f := range frags {
			first := r.opts.Buffers.FragmentAddr(f)
			if first/4096 != (first+uint64(f.Len)-1)/4096 {
				bad = append(bad, fmt.Sprintf("%+v at %#x", f, first))
			}
		}
		if p.Flags&framework.Segment != 0 && frags[0].Len < uint32(p.HeaderLen) {
			bad = append(bad, fmt.Sprintf("headers of %d bytes in %+v", p.HeaderLen, frags))
		}
	}
	return func() []string {
		r.dev.mu.Lock()
		defer r.dev.mu.Unlock()
		return bad
	}
}

// TestWithinPage sends at every place in a page, and in every way that has the
// engine touch a packet, to a device that can't send from two pages.
func TestWithinPage(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for name, setup := range map[string]func(*rig){
		"able":       func(*rig) {},
		"unable":     without(framework.AllFeatures),
		"no tags":    without(framework.VLANInsert),
		"contiguous": func(r *rig) { r.opts.Quirks.Set("contiguous-headers", "true") },
		"short":      func(r *rig) { r.dev.info.MaxTxFragmentLen = 700 },
		"pads":       func(r *rig) { r.opts.Quirks.Set("min-frame", "128") },
		"few":        func(r *rig) { r.dev.info.MaxTxFragments = 4 },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1, func(r *rig) { withinPage(r); setup(r) })
			w, crossing := r.listen(), r.pages()
			r.start()
			for range 400 {
				frame := tcpFrame(10+random.IntN(1400), uint32(random.IntN(1e6)), 0x10)
				whole := framework.Packet{}
				switch random.IntN(3) {
				case 0:
					whole = partial(frame)
				case 1:
					frame = tcpFrame(3000+random.IntN(6000), 1, 0x10)
					whole = tso(frame, 1448)
				}
				if random.IntN(2) == 0 {
					whole.Flags |= framework.VLANTag
					whole.VLAN = 7
				}
				var pieces [][]byte
				for rest := frame; len(rest) > 0; {
					n := min(len(rest), 1+random.IntN(2000))
					pieces, rest = append(pieces, rest[:n]), rest[n:]
				}
				got, packets := r.sendOne(w, whole, uint32(random.IntN(100)), pieces...)
				if len(got) == 0 {
					t.Fatalf("a packet of %d bytes in %d fragments, flags %b, was not sent: %v", len(frame), len(pieces), whole.Flags, r.dump())
				}
				if len(got) == 1 && packets[0].Flags == whole.Flags && whole.Flags&framework.ChecksumPartial == 0 &&
					!bytes.Equal(got[0][:len(frame)], frame) {
					t.Fatalf("%x was sent as %x", frame, got[0])
				}
				for i, f := range got {
					if packets[i].Flags&(framework.ChecksumPartial|framework.VLANTag) == 0 && whole.Flags&framework.VLANTag == 0 &&
						whole.Flags&framework.ChecksumPartial != 0 && !tcpGood(f[:34+tcpTotal(f)]) {
						t.Fatalf("segment %d of %d has a wrong checksum", i, len(got))
					}
				}
			}
			for _, c := range crossing() {
				t.Error(c)
			}
			if r.txCount(0, TxSplits) == 0 {
				t.Error("nothing was split")
			}
			r.finish()
		})
	}
}

// tcpTotal is the length of an untagged frame's TCP segment.
func tcpTotal(f []byte) int { return int(f[16])<<8 | int(f[17]) - 20 }

// TestAcrossPages: without the quirk fragments stay as they are.
func TestAcrossPages(t *testing.T) {
	r := newRig(t, 1, nil)
	w, crossing := r.listen(), r.pages()
	r.start()
	for i := range 100 {
		if got, packets := r.sendOne(w, framework.Packet{}, 0, numbered(i, 1500)); len(got) != 1 || packets[0].Frags != 1 {
			t.Fatalf("%d packets: %+v", len(got), packets)
		}
	}
	if len(crossing()) == 0 {
		t.Error("no fragment was in two pages: the test shows nothing")
	}
	r.finish()
}
