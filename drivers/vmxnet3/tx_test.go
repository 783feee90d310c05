package vmxnet3

import (
	"encoding/binary"
	"testing"

	"nicd/bus"
	"nicd/framework"
)

// desc is transmit descriptor i as the device sees it.
func (b *bench) desc(i int) (d txDesc) {
	ring := b.dma.bytesAt(b.run.txDescs()[0].rings[0])[16*i:]
	return txDesc{
		addr:  binary.LittleEndian.Uint64(ring),
		frame: binary.LittleEndian.Uint32(ring[8:]),
		flags: binary.LittleEndian.Uint32(ring[12:]),
	}
}

// put puts one packet, the fragments of which are in buffers 0, 1 and so on.
func (b *bench) put(p framework.Packet, lengths ...uint32) bool {
	batch := framework.NewBatch(1, framework.MaxFragments)
	for i, n := range lengths {
		batch.Frags = append(batch.Frags, framework.Fragment{Buffer: framework.Buffer(i), Offset: uint32(i), Len: n})
		p.Len += n
	}
	p.Frags = uint16(len(lengths))
	batch.Packets = append(batch.Packets, p)
	return b.tx.Put(batch, 0) == 1
}

// finish completes the packet that ends in descriptor index.
func (b *bench) finish(index uint32) {
	mem := b.dma.bytesAt(b.run.txDescs()[0].comp)[16*b.at:]
	binary.LittleEndian.PutUint32(mem, index)
	bus.Word(mem, 12).Store(b.gen)
	if b.at++; b.at == testRing {
		b.at, b.gen = 0, b.gen^rcGen
	}
}

func TestTransmitFormat(t *testing.T) {
	const gen = 1 << 14
	for name, c := range map[string]struct {
		packet  framework.Packet
		lengths []uint32
		want    []txDesc // but for addresses
	}{
		"plain":  {framework.Packet{}, []uint32{60}, []txDesc{{frame: 60 | gen, flags: 1 << 12}}},
		"report": {framework.Packet{Flags: framework.Completion}, []uint32{60}, []txDesc{{frame: 60 | gen, flags: 1<<12 | 1<<13}}},
		"fragments": {framework.Packet{Flags: framework.Completion}, []uint32{10, 20, 30},
			[]txDesc{{frame: 10 | gen}, {frame: 20 | gen}, {frame: 30 | gen, flags: 1<<12 | 1<<13}}},
		"tag": {framework.Packet{Flags: framework.VLANTag, VLAN: 0x6007}, []uint32{30, 30},
			[]txDesc{{frame: 30 | gen, flags: 1<<15 | 0x6007<<16}, {frame: 30 | gen, flags: 1 << 12}}},
		"checksum": {framework.Packet{Flags: framework.ChecksumPartial, ChecksumStart: 34, ChecksumOffset: 16}, []uint32{54, 30},
			[]txDesc{{frame: 54 | gen | 50<<18, flags: 34 | 2<<10}, {frame: 30 | gen, flags: 1 << 12}}},
		"segment": {framework.Packet{Flags: framework.ChecksumPartial | framework.Segment, ChecksumStart: 34, ChecksumOffset: 16,
			HeaderLen: 66, SegmentSize: 1448}, []uint32{66, 2000},
			[]txDesc{{frame: 66 | gen | 1448<<18, flags: 66 | 3<<10}, {frame: 2000 | gen, flags: 1 << 12}}},
	} {
		b := newBench(t, 0)
		if !b.put(c.packet, c.lengths...) {
			t.Fatalf("%s: not taken", name)
		}
		for i := range c.lengths {
			got, want := b.desc(i), c.want[i]
			want.addr = b.run.cfg.Buffers.FragmentAddr(framework.Fragment{Buffer: framework.Buffer(i), Offset: uint32(i)})
			if i == 0 {
				want.addr = b.run.txDescs()[0].rings[1] // it is short
			}
			if got != want {
				t.Errorf("%s: descriptor %d is %+v, want %+v", name, i, got, want)
			}
		}
		if next := b.desc(len(c.lengths)); next != (txDesc{}) {
			t.Errorf("%s: descriptor %d is %+v", name, len(c.lengths), next)
		}
		if len(b.bells.writes) != 0 {
			t.Errorf("%s: Put rang", name)
		}
	}
}

// TestDataRing: the first fragment goes to the device by way of the data ring, if it
// fits, in the entry beside its descriptor; nothing else does.
func TestDataRing(t *testing.T) {
	b := newBench(t, 0)
	ring := b.run.txDescs()[0].rings[1]
	fragment := func(i int, n uint32) []byte {
		return b.run.cfg.Buffers.Bytes(framework.Fragment{Buffer: framework.Buffer(i), Offset: uint32(i), Len: n})
	}
	for lap := range 5 * testRing {
		at := b.tx.Tail()
		for i := range 3 {
			fragment(i, 1)[0] = byte(lap + i)
		}
		lengths := [][]uint32{{dataDescSize}, {dataDescSize + 1}, {60, 60}, {1, 60, 200}, {200, 60}}[lap%5]
		b.put(framework.Packet{Flags: framework.Completion}, lengths...)
		descs := uint32(len(lengths))
		entry := ring + uint64(at)*dataDescSize
		inRing := b.desc(int(at)).addr == entry
		if inRing != (lengths[0] <= dataDescSize) {
			t.Fatalf("packet %d of %v: the first fragment in the data ring: %v", lap, lengths, inRing)
		}
		if inRing && b.dma.bytesAt(entry)[0] != byte(lap) {
			t.Fatalf("packet %d of %v: the data ring holds another", lap, lengths)
		}
		for i := uint32(1); i < descs; i++ {
			if addr := b.desc(int((at + i) % testRing)).addr; addr >= ring && addr < ring+testRing*dataDescSize {
				t.Fatalf("packet %d of %v: fragment %d in the data ring", lap, lengths, i)
			}
		}
		b.finish((at + descs - 1) % testRing)
		if b.tx.Completed(1) != 1 {
			t.Fatal("not completed")
		}
	}
	if desc := &b.run.txDescs()[0]; desc.sizes[1] != testRing || desc.dataDescSize != dataDescSize {
		t.Errorf("data ring of %d entries of %d bytes", desc.sizes[1], desc.dataDescSize)
	}
}

// TestLongestDescriptor: 16384 bytes are a length of 0.
func TestLongestDescriptor(t *testing.T) {
	b := newBench(t, 0)
	b.put(framework.Packet{}, maxTxBufferLen)
	if d := b.desc(0); d.frame != 1<<14 {
		t.Errorf("frame word %#x", d.frame)
	}
}

func TestSegmentClearsIPChecksum(t *testing.T) {
	b := newBench(t, 0)
	h := b.run.cfg.Buffers.Bytes(framework.Fragment{Buffer: 0, Len: 54})
	h[12], h[14], h[24], h[25], h[16], h[50] = 8, 0x45, 1, 2, 5, 9
	b.put(framework.Packet{Flags: framework.Segment | framework.ChecksumPartial, HeaderLen: 54, SegmentSize: 100, ChecksumStart: 34, ChecksumOffset: 16}, 54, 1000)
	if h[24] != 0 || h[25] != 0 || h[16] != 5 || h[50] != 9 {
		t.Errorf("headers %x", h)
	}
}

// TestReports: packets that asked for no completion are finished with the next
// one that did; one that was completed unasked is not, until then.
func TestReports(t *testing.T) {
	b := newBench(t, 0)
	b.put(framework.Packet{}, 60)
	b.put(framework.Packet{}, 60, 60)
	b.finish(0)
	if n := b.tx.Completed(10); n != 0 || b.tx.Pending() {
		t.Errorf("%d packets of a group that is not finished", n)
	}
	b.put(framework.Packet{Flags: framework.Completion}, 60)
	b.put(framework.Packet{}, 60)
	b.finish(2)
	b.finish(3)
	if !b.tx.Pending() {
		t.Error("nothing pending")
	}
	if n := b.tx.Completed(2); n != 2 || !b.tx.Pending() {
		t.Errorf("%d packets, want 2", n)
	}
	if n := b.tx.Completed(10); n != 1 || b.tx.Pending() {
		t.Errorf("%d packets, want 1", n)
	}
	if n := b.tx.Outstanding(); n != 1 {
		t.Errorf("%d descriptors outstanding", n)
	}
}

func TestTransmitNonsense(t *testing.T) {
	b := newBench(t, 0)
	b.put(framework.Packet{Flags: framework.Completion}, 60)
	for _, i := range []uint32{1, testRing - 1, testRing, txFormat.CompletionIndex.Mask} {
		b.finish(i)
	}
	if n := b.tx.Completed(10); n != 0 || b.run.broken.Load() != 1 {
		t.Errorf("%d packets finished, broken %b", n, b.run.broken.Load())
	}
	b.finish(0)
	if n := b.tx.Completed(10); n != 1 {
		t.Errorf("%d packets finished", n)
	}
}

func TestPutTakesWholePackets(t *testing.T) {
	b := newBench(t, 0)
	for i := range (testRing - 1) / 3 {
		if !b.put(framework.Packet{}, 1, 1, 1) {
			t.Fatalf("packet %d refused", i)
		}
	}
	if b.put(framework.Packet{}, 1, 1) || !b.put(framework.Packet{Flags: framework.Completion}, 1) || b.put(framework.Packet{}, 1) {
		t.Error("one slot stays empty, and no packet is put by half")
	}
	b.finish(testRing - 2)
	if n := b.tx.Completed(100); n != (testRing-1)/3+1 || b.tx.Outstanding() != 0 {
		t.Errorf("%d packets, %d outstanding", n, b.tx.Outstanding())
	}
	b.put(framework.Packet{}, 1, 1)
	if d := b.desc(testRing - 1); d.frame != 1|1<<14 {
		t.Errorf("last descriptor %+v", d)
	}
	if d := b.desc(0); d.frame != 1 {
		t.Errorf("descriptor after the wrap %+v, its generation is 0", d)
	}
}

func TestPutAllocatesNothing(t *testing.T) {
	b := newBench(t, 0)
	batch := framework.NewBatch(1, 2)
	batch.Frags = append(batch.Frags, framework.Fragment{Len: 60}, framework.Fragment{Buffer: 1, Len: 60})
	batch.Packets = append(batch.Packets, framework.Packet{Len: 120, Frags: 2, Flags: framework.Completion})
	if n := testing.AllocsPerRun(500, func() {
		b.tx.Put(batch, 0)
		b.tx.Bell()
		b.finish((b.tx.Tail() + testRing - 1) % testRing)
		b.tx.Completed(10)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestModerationLevel(t *testing.T) {
	last := uint8(0)
	for us := 1; us < 5000; us++ {
		l := moderationLevel(us)
		if l < last || l < 1 || l > 7 {
			t.Fatalf("level %d for %d us after %d", l, us, last)
		}
		last = l
	}
	if last != 7 || moderationLevel(0) != moderationAdapt {
		t.Errorf("levels up to %d, %d for none", last, moderationLevel(0))
	}
}

func BenchmarkPut(b *testing.B) {
	n := newBench(b, 0)
	batch := framework.NewBatch(16, 16)
	for i := range 16 {
		batch.Frags = append(batch.Frags, framework.Fragment{Buffer: framework.Buffer(i), Len: 60})
		batch.Packets = append(batch.Packets, framework.Packet{First: uint32(i), Len: 60, Frags: 1})
	}
	batch.Packets[15].Flags = framework.Completion
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		n.tx.Put(batch, 0)
		n.finish((n.tx.Tail() + testRing - 1) % testRing)
		n.tx.Completed(64)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/16, "ns/packet")
}

func BenchmarkPoll(b *testing.B) {
	n := newBench(b, lroFeatures)
	n.post()
	ring := n.run.rxDescs()[0].comp
	mem := n.dma.bytesAt(ring)
	bufs := make([]framework.Buffer, 16)
	b.ReportAllocs()
	for b.Loop() {
		for range 16 {
			w := mem[16*n.at:]
			binary.LittleEndian.PutUint32(w, whole|n.next[0])
			binary.LittleEndian.PutUint32(w[8:], 60)
			binary.LittleEndian.PutUint32(w[12:], tcp4OK|n.gen)
			n.next[0] = (n.next[0] + 1) % testRing
			if n.at++; n.at == 2*testRing {
				n.at, n.gen = 0, n.gen^rcGen
			}
		}
		n.batch.Reset()
		n.rx.Poll(n.batch)
		for i, f := range n.batch.Frags {
			bufs[i] = f.Buffer
		}
		n.rx.Post(bufs[:len(n.batch.Frags)])
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/16, "ns/packet")
}
