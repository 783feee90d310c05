package lro

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// mutations change one thing each of a segment that would otherwise follow the one before. Some keep the packet
// mergeable, most do not.
var mutations = []func(s *segment, v uint32){
	func(s *segment, v uint32) { s.tos ^= byte(1 << (v % 8)) },
	func(s *segment, v uint32) { s.ttl ^= byte(1 << (v % 8)) },
	func(s *segment, v uint32) { s.id += uint16(v) },
	func(s *segment, v uint32) { s.id-- },
	func(s *segment, v uint32) { s.id = uint16(v) },
	func(s *segment, v uint32) { s.fragment ^= 0x4000 },
	func(s *segment, v uint32) { s.fragment ^= 0x8000 },
	func(s *segment, v uint32) { s.fragment ^= 0x2000 },
	func(s *segment, v uint32) { s.fragment ^= uint16(1 << (v % 13)) },
	func(s *segment, v uint32) { s.label ^= 1 << (v % 20) },
	func(s *segment, v uint32) { s.seq++ },
	func(s *segment, v uint32) { s.seq-- },
	func(s *segment, v uint32) { s.seq ^= 1 << (v % 32) },
	func(s *segment, v uint32) { s.ack ^= 1 << (v % 32) },
	func(s *segment, v uint32) { s.window ^= 1 << (v % 16) },
	func(s *segment, v uint32) { s.urgent ^= 1 << (v % 16) },
	func(s *segment, v uint32) { s.flags |= flagPSH },
	func(s *segment, v uint32) { s.flags |= flagFIN },
	func(s *segment, v uint32) { s.flags ^= byte(1 << (v % 8)) },
	func(s *segment, v uint32) { s.reserved ^= byte(1 << (v % 4)) },
	func(s *segment, v uint32) { s.options = timestamp(v, 2) },
	func(s *segment, v uint32) { s.options = nil },
	func(s *segment, v uint32) { s.options = make([]byte, v%11*4) },
	func(s *segment, v uint32) {
		if len(s.options) > 0 {
			s.options = bytes.Clone(s.options)
			s.options[int(v)%len(s.options)] ^= 4
		}
	},
	func(s *segment, v uint32) { s.payload = nil },
	func(s *segment, v uint32) { s.payload = s.payload[:int(v)%(len(s.payload)+1)] },
	func(s *segment, v uint32) { s.payload = append(bytes.Clone(s.payload), make([]byte, v%9)...) },
	func(s *segment, v uint32) { s.pad = 1 + int(v%6) },
	func(s *segment, v uint32) { s.srcMAC ^= 1 },
	func(s *segment, v uint32) { s.dstMAC ^= byte(1 << (v % 8)) },
	func(s *segment, v uint32) { s.src ^= 1 },
	func(s *segment, v uint32) { s.sport ^= 1 << (v % 16) },
	func(s *segment, v uint32) { s.dport ^= 1 },
	func(s *segment, v uint32) { s.protocol = []byte{17, 47, 1, 50}[v%4] },
	func(s *segment, v uint32) { s.tags = []uint32{0x81000001 + v%2<<12}[:v%2] },
	func(s *segment, v uint32) { s.tags = []uint32{0x88a80001, 0x81000001, 0x81000003}[:1+v%3] },
	func(s *segment, v uint32) { s.ipOptions = make([]byte, 4+v%2*4) },
	func(s *segment, v uint32) { s.extension, s.extensionType = make([]byte, 8), []byte{0, 44, 60, 43}[v%4] },
	func(s *segment, v uint32) { zeroSumAny(s, 0) },
	func(s *segment, v uint32) { zeroSumAny(s, 0xffff) },
	func(s *segment, v uint32) { s.edit = put16(true, int(v%20)&^1, uint16(v>>8)) },
	func(s *segment, v uint32) {
		s.edit = func(f []byte, l3, l4 int) { f[int(v)%len(f)] ^= 1 << (v >> 20 & 7) }
	},
	func(s *segment, v uint32) {
		s.edit = func(f []byte, l3, l4 int) { f[min(l4+int(v%20), len(f)-1)] ^= 1 << (v >> 20 & 7) }
	},
}

// zeroSumAny is zeroSum if there is room for it.
func zeroSumAny(s *segment, field uint16) {
	if s.protocol == 6 && len(s.payload) >= 2 {
		s.payload = bytes.Clone(s.payload)
		zeroSum(s, field)
	}
}

// trace is one drawn input.
type trace struct {
	in      []Packet
	options Options
}

// drawTrace makes up a few connections, sends mostly well-behaved segments of them in turn, and now and then changes
// something, for one packet or for good.
func drawTrace(t *rapid.T) trace {
	flows := make([]segment, rapid.IntRange(1, 4).Draw(t, "flows"))
	size := rapid.SampledFrom([]int{1, 2, 7, 24, 100}).Draw(t, "size")
	fixed := make([]bool, len(flows))
	for i := range flows {
		f := data(0, size)
		f.sport += uint16(i)
		f.seq = rapid.SampledFrom([]uint32{0, 1000, 0xffffffd0, 0x7ffffff0}).Draw(t, "seq")
		f.id = rapid.SampledFrom([]uint16{0, 100, 0xfffe}).Draw(t, "id")
		f.ipv6 = rapid.Bool().Draw(t, "ipv6")
		f.tags = rapid.SampledFrom([][]uint32{nil, nil, {0x81000001}, {0x88a80001, 0x81000001}}).Draw(t, "tags")
		fixed[i] = rapid.Bool().Draw(t, "fixed")
		if rapid.IntRange(0, 3).Draw(t, "cwr") == 0 {
			f.flags |= flagCWR
		}
		flows[i] = f
	}
	var tr trace
	tr.options.MaxSegments = rapid.SampledFrom([]int{0, 0, 0, 1, 2, 3, 5}).Draw(t, "maxSegments")
	tr.options.MaxLen = rapid.SampledFrom([]int{0, 0, 0, 100, 150, 600}).Draw(t, "maxLen")
	trusted := rapid.Bool().Draw(t, "trusted")
	for range rapid.IntRange(0, 30).Draw(t, "packets") {
		i := rapid.IntRange(0, len(flows)-1).Draw(t, "flow")
		f := &flows[i]
		s := *f
		if rapid.IntRange(0, 99).Draw(t, "mutate") < 35 {
			rapid.SampledFrom(mutations).Draw(t, "mutation")(&s, rapid.Uint32().Draw(t, "value"))
			if rapid.IntRange(0, 3).Draw(t, "persist") == 0 && s.edit == nil && s.pad == 0 {
				s.payload = resize(s.payload, size)
				*f = s
			}
		}
		p := s.packet()
		drawMetadata(t, &p, trusted)
		tr.in = append(tr.in, p)
		f.seq = s.seq + uint32(len(s.payload))
		if !fixed[i] {
			f.id = s.id + 1
		}
	}
	return tr
}

func resize(p []byte, size int) []byte {
	p = append(bytes.Clone(p), make([]byte, size)...)
	return p[:size]
}

// drawMetadata fills in what a device says.
func drawMetadata(t *rapid.T, p *Packet, trusted bool) {
	p.Hash = rapid.Uint32Range(0, 3).Draw(t, "hash")
	if trusted && modelParse(&Packet{Checksum: ChecksumUnknown}, p.Data).eligible {
		p.Checksum = ChecksumVerified
	}
	switch rapid.IntRange(0, 59).Draw(t, "metadata") {
	case 0:
		p.Flags |= HardwareCoalesced
	case 1:
		p.Segments = uint16(rapid.IntRange(0, 4).Draw(t, "segments"))
	case 2:
		p.Checksum = ChecksumBad
	case 3:
		p.Checksum = ChecksumPartial
	case 4:
		p.Mark = 1
	case 5:
		p.Port = 1
	case 6:
		p.Flags, p.VLAN = VLANStripped, uint16(rapid.IntRange(0, 1).Draw(t, "vlan"))
	case 7:
		n := rapid.IntRange(0, len(p.Data)).Draw(t, "truncated")
		p.Data, p.Len = p.Data[:n], uint32(n)
	}
}

// TestRoundTrip is properties P1 to P6 and P13 on drawn traces, each also through gso.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := drawTrace(t)
		frames := snapshot(tr.in)
		_, out, _ := runBatch(t, tr.options, tr.in)
		for i := range out {
			m := members(t, tr.in, &out[i])
			got := segmentAgain(t, tr.in, &out[i])
			for k := range got {
				if !bytes.Equal(got[k], frames[m[k]]) {
					t.Fatalf("gso: frame %d: %s", m[k], difference(got[k], frames[m[k]]))
				}
			}
		}
	})
}

// TestModel is property P10: the engine and the reference model agree on every drawn trace.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := drawTrace(t)
		frames := snapshot(tr.in)
		want := modelBatch(tr.in, frames, tr.options)
		got, _, _ := runBatch(t, tr.options, tr.in)
		text := ""
		for i, g := range want {
			if i > 0 {
				text += " "
			}
			text += fmt.Sprint(g)
		}
		if got != text {
			t.Fatalf("got      %s\nthe model %s", got, text)
		}
	})
}

// TestQuickIsTheLongWay runs each drawn trace with and without the short way: outputs, packets, frames and counters are
// the same.
func TestQuickIsTheLongWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := drawTrace(t)
		var text [2]string
		for i := range text {
			in := slices.Clone(tr.in)
			for j := range in {
				in[j].Data = bytes.Clone(in[j].Data)
			}
			e := New(tr.options)
			e.longWay = i == 1
			out := e.Batch(in, nil)
			s := e.Stats()
			s.Verified = 0 // the short way may compute one again
			text[i] = fmt.Sprintf("%+v\n%+v\n%+v\n%x", out, s, in, snapshot(in))
		}
		if text[0] != text[1] {
			t.Fatalf("the short way:\n%s\nthe long way:\n%s", text[0], text[1])
		}
	})
}

// TestBatching is property P7: how a trace is cut into batches changes the grouping and nothing else.
func TestBatching(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := drawTrace(t)
		frames := snapshot(tr.in)
		e := New(tr.options)
		at := 0
		for at < len(tr.in) {
			n := rapid.IntRange(1, len(tr.in)-at).Draw(t, "batch")
			part := tr.in[at : at+n]
			out := e.Batch(part, nil)
			checkBatch(t, frames[at:at+n], part, out)
			at += n
		}
		checkStats(t, e)
	})
}

// TestNoMergeAgain is property P8: outputs that are fed in again, marked, come out unchanged.
func TestNoMergeAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tr := drawTrace(t)
		e := New(tr.options)
		out := e.Batch(tr.in, nil)
		var again []Packet
		for i := range out {
			d := bytes.Join(AppendFragments(nil, tr.in, &out[i]), nil)
			again = append(again, Packet{
				Data: d, Len: uint32(len(d)), Segments: out[i].Segments, SegmentSize: out[i].SegmentSize,
				Flags: HardwareCoalesced, Checksum: out[i].Checksum,
			})
		}
		frames := snapshot(again)
		second := e.Batch(again, nil)
		if len(second) != len(again) {
			t.Fatalf("%d became %d", len(again), len(second))
		}
		for i := range again {
			if !bytes.Equal(again[i].Data, frames[i]) || second[i].Flags&Bypassed == 0 ||
				second[i].Segments != max(again[i].Segments, 1) || second[i].SegmentSize != again[i].SegmentSize ||
				int(second[i].Len) != len(frames[i]) {
				t.Fatalf("output %d changed: %+v", i, second[i])
			}
		}
	})
}

// TestCorruption is property P9: whatever single bit of a packet flips, the packet is never part of an aggregate,
// unless the bit makes it another right packet (which takes the checksum's help, so one bit cannot: the test proves it
// for all bits of a packet, first, middle and last of three).
func TestCorruption(t *testing.T) {
	for _, ipv6 := range []bool{false, true} {
		for victim := range 3 {
			length := len(packets(train(1, 16, func(i int, s *segment) { s.ipv6 = ipv6 })...)[0].Data)
			for bit := 14 * 8; bit < length*8; bit++ {
				in := packets(train(3, 16, func(i int, s *segment) { s.ipv6 = ipv6 })...)
				in[victim].Data[bit/8] ^= 1 << (bit % 8)
				if ipv6 && unprotected(bit/8-14) {
					continue
				}
				_, out, _ := runBatch(t, Options{Flows: 8}, in)
				for i := range out {
					m := members(t, in, &out[i])
					if len(m) > 1 && slices.Contains(m, victim) {
						t.Fatalf("IPv6 %v: bit %d of packet %d: %v", ipv6, bit, victim, m)
					}
				}
			}
		}
	}
}

// unprotected reports whether byte i of an IPv6 header is one that no checksum covers. A change there makes another
// right packet, and the rules for its field apply.
func unprotected(i int) bool { return i < 4 || i == 7 }

// TestQueues is property P14: engines share nothing, so each queue may have its own.
func TestQueues(t *testing.T) {
	var wait sync.WaitGroup
	for q := range 4 {
		wait.Go(func() {
			e := New(Options{})
			for n := range 44 {
				in := roundRobin(20+n, 1+q, 30)
				if out := e.Batch(in, nil); len(out) != 1+q {
					t.Errorf("queue %d: %d outputs", q, len(out))
				}
			}
		})
	}
	wait.Wait()
}
