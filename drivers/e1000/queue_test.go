package e1000

import (
	"encoding/binary"
	"testing"

	"nicd/bus"
	"nicd/framework"
)

// These tests play the device by hand: they write descriptors back and look at
// those that the driver wrote. What needs a device that acts is in
// device_test.go.

// heapDMA is memory that the race detector sees.
type heapDMA struct {
	mem  *bus.Memory
	used int
	last framework.Block
}

const testBase = 0x10000

func (h *heapDMA) Alloc(size, align int) (framework.Block, error) {
	at := (h.used + align - 1) / align * align
	h.used = at + size
	h.last = framework.Block{Bytes: h.mem.Bytes()[at:h.used:h.used], Addr: testBase + uint64(at)}
	return h.last, nil
}

// fakeRegion keeps what is written, which is enough of a register file.
type fakeRegion struct {
	bus.Region
	regs   map[uint32]uint32
	writes map[uint32]int
}

func (r *fakeRegion) Size() int                { return 128 << 10 }
func (r *fakeRegion) Read32(off uint32) uint32 { return r.regs[off] }
func (r *fakeRegion) Write32(off, v uint32) {
	r.regs[off] = v
	r.writes[off]++
}

// bench is queues without a device, and the hand that plays it.
type bench struct {
	t      testing.TB
	bar    *fakeRegion
	cfg    framework.Config
	rx     *rxQueue
	tx     *txQueue
	rxMem  []byte
	txMem  []byte
	batch  *framework.Batch
	posted map[framework.Buffer]bool
	next   uint32 // receive descriptor that comes next
}

const (
	testRing    = 64
	testBuffer  = 2048
	testBuffers = 256
)

func newBench(t testing.TB, id uint16) *bench {
	t.Helper()
	chip := partOf(id)
	dma := &heapDMA{mem: bus.HeapMemory(1 << 20)}
	b := &bench{
		t:      t,
		bar:    &fakeRegion{regs: map[uint32]uint32{}, writes: map[uint32]int{}},
		batch:  framework.NewBatch(16, 2*framework.MaxFragments),
		posted: map[framework.Buffer]bool{},
	}
	res, err := framework.ResolveQuirks(framework.QuirkSources{
		Driver: driverName, Declarations: quirks(), Facts: framework.DeviceFacts{Device: id},
	})
	if err != nil {
		t.Fatal(err)
	}
	set := framework.NewQuirkSet()
	if err := res.Apply(set); err != nil {
		t.Fatal(err)
	}
	d := &device{hardware: hardware{chip: chip, bar: b.bar}, dma: dma, quirks: set}
	mem, _ := dma.Alloc(testBuffers*(testBuffer+64), 4096)
	r := &run{cfg: framework.Config{
		Settings: framework.Settings{MTU: 1500, Features: framework.RxChecksum | framework.RSSHash},
		RxQueues: chip.queues, TxQueues: chip.queues, RxDescriptors: testRing, TxDescriptors: testRing,
		Buffers: &framework.Buffers{Memory: mem.Bytes, Addr: mem.Addr, Stride: testBuffer + 64, Size: testBuffer, Count: testBuffers},
	}}
	b.cfg = r.cfg
	if b.rx, err = d.newRxQueue(r, 0, testBuffer); err != nil {
		t.Fatal(err)
	}
	b.rxMem = dma.last.Bytes
	if b.tx, err = d.newTxQueue(r, 0); err != nil {
		t.Fatal(err)
	}
	b.txMem = dma.last.Bytes
	return b
}

func (b *bench) post() {
	for i := range testBuffers {
		buf := framework.Buffer(i)
		if b.posted[buf] {
			continue
		}
		if b.rx.Post([]framework.Buffer{buf}) == 0 {
			return
		}
		b.posted[buf] = true
	}
}

// fill writes the next receive descriptor back. Status and errors are as the
// extended form has them.
func (b *bench) fill(status, length uint32) {
	d := b.rxMem[16*b.next:]
	b.next = (b.next + 1) % testRing
	if b.rx.extended {
		binary.LittleEndian.PutUint32(d, 1) // hash type
		binary.LittleEndian.PutUint32(d[4:], 0xABCD)
		binary.LittleEndian.PutUint32(d[12:], length|0x123<<16)
		bus.Word(d, 8).Store(status | rxDone)
		return
	}
	binary.LittleEndian.PutUint32(d[8:], length|0xFFFF<<16)
	bus.Word(d, 12).Store(status&0xFF | status>>24<<8 | 0x123<<16 | rxDone)
}

func (b *bench) poll() []framework.Packet {
	b.t.Helper()
	b.batch.Reset()
	if v := b.rx.Poll(b.batch); v != framework.Healthy {
		b.t.Fatalf("verdict %d", v)
	}
	for i := range b.batch.Packets {
		for _, f := range b.batch.Fragments(i) {
			if !b.posted[f.Buffer] {
				b.t.Fatalf("buffer %d handed out, which the device did not have", f.Buffer)
			}
			delete(b.posted, f.Buffer)
			b.cfg.Buffers.Bytes(f)
		}
	}
	return b.batch.Packets
}

// both runs a test on the two forms of descriptors.
func both(t *testing.T, test func(t *testing.T, b *bench)) {
	for name, id := range map[string]uint16{"legacy": 0x100E, "extended": 0x10D3} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, id)
			b.post()
			test(t, b)
		})
	}
}

func TestVerdicts(t *testing.T) {
	both(t, func(t *testing.T, b *bench) {
		for name, c := range map[string]struct {
			status uint32
			want   framework.PacketFlags
		}{
			"TCP":        {rxIP | rxL4, framework.IPv4 | framework.ChecksumVerified},
			"UDP":        {rxIP | rxL4 | rxUDP, framework.IPv4 | framework.UDP | framework.ChecksumVerified},
			"ignore":     {rxIgnore | rxIP | rxL4 | rxErrorL4, 0},
			"bad TCP":    {rxIP | rxL4 | rxErrorL4, framework.IPv4 | framework.ChecksumBad},
			"bad IP":     {rxIP | rxL4 | rxErrorIP, framework.IPv4 | framework.ChecksumBad},
			"IP only":    {rxIP, framework.IPv4},
			"nothing":    {0, 0},
			"not looked": {rxErrorL4 | rxErrorIP, 0},
			"not IPv4":   {rxL4, framework.ChecksumVerified},
		} {
			b.fill(c.status|rxEOP, 100)
			ps := b.poll()
			if len(ps) != 1 {
				t.Fatalf("%s: %d packets", name, len(ps))
			}
			want := c.want
			if b.rx.extended {
				want |= framework.HashValid
			}
			if ps[0].Flags != want || ps[0].Error != framework.NoDrop {
				t.Errorf("%s: flags %b, want %b, error %v", name, ps[0].Flags, want, ps[0].Error)
			}
			b.post()
		}
	})
}

func TestReceiveErrors(t *testing.T) {
	both(t, func(t *testing.T, b *bench) {
		for status, want := range map[uint32]framework.DropReason{
			1 << 24: framework.DropCRC, 1 << 25: framework.DropCRC, 1 << 26: framework.DropCRC, 1 << 28: framework.DropCRC,
			rxErrorData: framework.DropDevice,
		} {
			b.fill(rxEOP|status, 60)
			b.fill(rxEOP, 61)
			ps := b.poll()
			if len(ps) != 2 || ps[0].Error != want || ps[1].Error != framework.NoDrop {
				t.Errorf("status %#x: %+v", status, ps)
			}
			b.post()
		}
		b.fill(rxEOP, 0xFFFF)
		if ps := b.poll(); len(ps) != 1 || ps[0].Error != framework.DropDevice || ps[0].Len > testBuffer {
			t.Errorf("a length beyond the buffer: %+v", ps)
		}
	})
}

func TestChains(t *testing.T) {
	both(t, func(t *testing.T, b *bench) {
		b.fill(rxTagged|rxErrorFrame, testBuffer) // not the last: means nothing
		b.fill(0, testBuffer)
		if len(b.poll()) != 0 || b.rx.Pending() {
			t.Fatal("part of a packet is no packet")
		}
		b.fill(0, 0)
		b.fill(rxEOP|rxTagged, 4)
		ps := b.poll()
		if len(ps) != 1 || ps[0].Len != 2*testBuffer+4 || ps[0].Frags != 3 || ps[0].VLAN != 0x123 || ps[0].Error != framework.NoDrop {
			t.Fatalf("packets %+v", ps)
		}
		if ps[0].Flags&framework.VLANTag == 0 || ps[0].Flags&framework.HashValid != 0 != b.rx.extended {
			t.Errorf("flags %b", ps[0].Flags)
		}
		if n := b.rx.Outstanding(); n != testRing-1-3 {
			t.Errorf("%d outstanding: the empty buffer is not back", n)
		}
		b.fill(rxEOP, 0)
		if ps := b.poll(); len(ps) != 0 {
			t.Errorf("an empty buffer became %+v", ps)
		}
		for range framework.MaxFragments + 5 {
			b.fill(0, 10)
			b.poll()
			b.post()
		}
		b.fill(rxEOP, 10)
		if ps := b.poll(); len(ps) != 1 || ps[0].Error != framework.DropTooLong {
			t.Errorf("endless chain: %+v", ps)
		}
	})
}

func TestReceiveBell(t *testing.T) {
	b := newBench(t, 0x10D3)
	b.post()
	b.rx.Bell()
	b.rx.Bell()
	if n, tail := b.bar.writes[regRDT], b.bar.regs[regRDT]; n != 2 || tail != testRing-1 { // one by writeRing
		t.Errorf("%d writes, tail %d", n, tail)
	}
	b.fill(rxEOP, 0)
	b.poll()
	if tail := b.bar.regs[regRDT]; tail != 0 {
		t.Errorf("tail %d after a buffer was posted again", tail)
	}
}

// desc is transmit descriptor i.
func (b *bench) desc(i int) txDesc {
	d := b.txMem[16*i:]
	return txDesc{binary.LittleEndian.Uint64(d), binary.LittleEndian.Uint32(d[8:]), binary.LittleEndian.Uint32(d[12:])}
}

// put puts one packet, the fragments of which are in buffers 0, 1 and so on.
func (b *bench) put(p framework.Packet, lengths ...uint32) bool {
	batch := framework.NewBatch(1, framework.MaxFragments)
	for i, n := range lengths {
		batch.Frags = append(batch.Frags, framework.Fragment{Buffer: framework.Buffer(i), Len: n})
		p.Len += n
	}
	p.Frags = uint16(len(lengths))
	batch.Packets = append(batch.Packets, p)
	return b.tx.Put(batch, 0) == 1
}

// written wants descriptors, but for addresses of data, from index from on.
func (b *bench) written(from int, want ...txDesc) {
	b.t.Helper()
	for i, w := range want {
		got := b.desc(from + i)
		if w.addr == 0 {
			got.addr = 0
		}
		if got != w {
			b.t.Errorf("descriptor %d is %#x, want %#x", from+i, got, w)
		}
	}
	if tail := testRing - 1 - b.tx.Space(); tail != from+len(want) {
		b.t.Errorf("tail %d, want %d", tail, from+len(want))
	}
}

// Words of data descriptors.
const (
	data = 1<<20 | 1<<25 | 1<<29 // data, FCS, extended
	eop  = 1 << 24
	rs   = 1 << 27
)

var (
	checksum = framework.Packet{Flags: framework.ChecksumPartial, ChecksumStart: 34, ChecksumOffset: 16, HeaderLen: 54}
	segment  = framework.Packet{Flags: framework.ChecksumPartial | framework.Segment | framework.Completion | framework.IPv4,
		ChecksumStart: 34, ChecksumOffset: 16, HeaderLen: 54, SegmentSize: 500}
	checksumContext = txDesc{addr: 34<<32 | 50<<40 | 14 | 24<<8 | 33<<16, command: 1 << 29}
)

func TestTransmitFormat(t *testing.T) {
	b := newBench(t, 0x10D3)
	b.put(framework.Packet{}, 60)
	b.put(framework.Packet{Flags: framework.Completion | framework.VLANTag, VLAN: 7}, 100, 0, 50)
	b.written(0,
		txDesc{command: data | eop | 60},
		txDesc{command: data | 1<<30 | 100, more: 7 << 16},
		txDesc{command: data | 1<<30 | eop | rs | 50, more: 7 << 16})
	b.put(checksum, 54, 10)
	b.put(checksum, 54, 10)
	pair := []txDesc{checksumContext, {command: data | 54, more: 1 << 9}, {command: data | eop | 10, more: 1 << 9}}
	b.written(3, append(pair, pair...)...) // the 82574 needs the context each time
	if b.bar.writes[regTDT] != 1 {
		t.Error("Put rang")
	}
	b.tx.Bell()
	if b.bar.regs[regTDT] != 9 {
		t.Errorf("tail register %d", b.bar.regs[regTDT])
	}
}

// TestContextIsKept on the parts that keep it.
func TestContextIsKept(t *testing.T) {
	b := newBench(t, 0x100E)
	udp := checksum
	udp.ChecksumOffset = 6
	other := txDesc{addr: 34<<32 | 40<<40 | 14 | 24<<8 | 33<<16, command: 1 << 29}
	frame := txDesc{command: data | eop | 60, more: 1 << 9}
	b.put(checksum, 60)
	b.put(checksum, 60)
	b.put(framework.Packet{}, 60)
	b.put(checksum, 60)
	b.put(udp, 60)
	b.put(checksum, 60)
	b.written(0, checksumContext, frame, frame, txDesc{command: data | eop | 60}, frame, other, frame, checksumContext, frame)
}

func TestSegmentFormat(t *testing.T) {
	for id, sentinel := range map[uint16]bool{0x10D3: false, 0x100E: true} {
		b := newBench(t, id)
		h := b.cfg.Buffers.Bytes(framework.Fragment{Len: 54})
		h[12], h[14], h[16], h[24], h[50] = 8, 0x45, 9, 9, 9
		b.put(segment, 54, 1500)
		context := txDesc{
			addr:    34<<32 | 50<<40 | 14 | 24<<8 | 33<<16,
			command: 1<<29 | 1<<26 | 1<<25 | 1<<24 | 1500,
			more:    54<<8 | 500<<16,
		}
		const tso, sums = data | 1<<26, 3 << 8
		want := []txDesc{context, {command: tso | 54, more: sums}, {command: tso | eop | rs | 1500, more: sums}}
		if sentinel {
			want = append(want[:2], txDesc{command: tso | 1496, more: sums}, txDesc{command: tso | eop | rs | 4, more: sums})
		}
		b.written(0, want...)
		if h[16] != 0 || h[24] != 0 || h[50] != 9 {
			t.Errorf("headers %x", h)
		}
		// A packet of one descriptor after a TSO packet, and one after that.
		at := len(want)
		b.put(framework.Packet{}, 60)
		b.put(framework.Packet{}, 60)
		want = []txDesc{{command: data | eop | 60}, {command: data | eop | 60}}
		if sentinel {
			want = []txDesc{{command: data | 56}, {command: data | eop | 4}, {command: data | eop | 60}}
		}
		b.written(at, want...)
	}
}

// TestSegmentOfNonsense: headers without end are sent as what the packet is said to be;
// no more than the packet comes of it.
func TestSegmentOfNonsense(t *testing.T) {
	for _, id := range []uint16{0x10D3, 0x100E} {
		b := newBench(t, id)
		h := b.cfg.Buffers.Bytes(framework.Fragment{Len: 54})
		for i := 12; i < 54; i += 2 {
			binary.BigEndian.PutUint16(h[i:], 0x8100)
		}
		if !b.put(segment, 54, 1500) {
			t.Fatal("refused")
		}
		if got, want := b.desc(0).addr, uint64(34<<32|50<<40|34|44<<8|33<<16); got != want {
			t.Errorf("context %#x, want %#x", got, want)
		}
	}
}

// TestSplits: no descriptor carries more than the part can take; for TSO, on the
// parallel parts, than four segments.
func TestSplits(t *testing.T) {
	b := newBench(t, 0x10D3)
	b.put(framework.Packet{}, 10, 9000)
	b.written(0, txDesc{command: data | 10}, txDesc{command: data | 8192}, txDesc{command: data | eop | 808})
	b = newBench(t, 0x100E)
	h := b.cfg.Buffers.Bytes(framework.Fragment{Len: 54})
	h[12], h[14] = 8, 0x45
	tso := segment
	tso.SegmentSize = 100
	b.put(tso, 54, 850)
	for i, n := range []uint32{54, 400, 400, 46, 4} {
		if got := b.desc(1+i).command & 0xFFFFF; got != n {
			t.Errorf("descriptor %d of %d bytes, want %d", i, got, n)
		}
	}
}

func TestReports(t *testing.T) {
	b := newBench(t, 0x100E)
	done := func(i int) { bus.Word(b.txMem, 16*i+12).Store(txDone) }
	b.put(framework.Packet{}, 60)
	b.put(framework.Packet{Flags: framework.Completion}, 60, 60)
	b.put(framework.Packet{}, 60)
	if b.tx.Pending() || b.tx.Completed(10) != 0 {
		t.Error("finished before anything was done")
	}
	done(0)
	if b.tx.Pending() {
		t.Error("a descriptor that was not to report")
	}
	done(2)
	if !b.tx.Pending() {
		t.Error("nothing pending")
	}
	if n := b.tx.Completed(1); n != 1 || !b.tx.Pending() {
		t.Errorf("%d packets, want 1", n)
	}
	if n := b.tx.Completed(10); n != 1 || b.tx.Pending() {
		t.Errorf("%d packets, want 1", n)
	}
	if n := testRing - 1 - b.tx.Space(); n != 1 {
		t.Errorf("%d outstanding", n)
	}
}

func TestPutTakesWholePackets(t *testing.T) {
	b := newBench(t, 0x10D3)
	for b.put(checksum, 54, 10, 10) {
	}
	if n := testRing - 1 - b.tx.Space(); n != (testRing-1)/4*4 {
		t.Errorf("%d descriptors", n)
	}
	if !b.put(framework.Packet{}, 60) {
		t.Error("a packet that fits was refused")
	}
}

func TestNothingIsAllocated(t *testing.T) {
	b := newBench(t, 0x10D3)
	b.post()
	batch := framework.NewBatch(1, 2)
	batch.Frags = append(batch.Frags, framework.Fragment{Len: 60}, framework.Fragment{Buffer: 1, Len: 60})
	batch.Packets = append(batch.Packets, framework.Packet{Len: 120, Frags: 2, Flags: framework.Completion})
	bufs := make([]framework.Buffer, 1)
	if n := testing.AllocsPerRun(500, func() {
		b.tx.Put(batch, 0)
		b.tx.Bell()
		bus.Word(b.txMem, int(16*((b.bar.regs[regTDT]+testRing-1)%testRing)+12)).Store(txDone)
		b.tx.Completed(10)
		b.fill(rxEOP|rxIP|rxL4, 60)
		b.batch.Reset()
		b.rx.Poll(b.batch)
		bufs[0] = b.batch.Frags[0].Buffer
		b.rx.Post(bufs)
		b.rx.Bell()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzDescriptors: whatever a device writes, no buffer is handed out that it does
// not have, none twice, and nothing panics.
func FuzzDescriptors(f *testing.F) {
	f.Add(true, []byte{1, 0, 60, 0, 2, 0, 0, 8})
	f.Add(false, []byte{3, 0xFF, 60, 0, 3, 0, 0, 8})
	f.Fuzz(func(t *testing.T, extended bool, script []byte) {
		id := uint16(0x100E)
		if extended {
			id = 0x10D3
		}
		b := newBench(t, id)
		b.post()
		for len(script) >= 4 {
			s := script[:4]
			script = script[4:]
			if s[0] == 0xFF { // something anywhere
				bus.Word(b.rxMem, int(s[1])*4%len(b.rxMem)).Store(uint32(s[2]) | uint32(s[3])<<24)
			} else {
				b.fill(uint32(s[0])|uint32(s[1])<<24, uint32(s[2])|uint32(s[3])<<8)
			}
			b.poll()
			b.post()
			if n := b.rx.Outstanding() + len(b.rx.Fragments()); n != len(b.posted) {
				t.Fatalf("%d descriptors and held buffers, %d buffers gone", n, len(b.posted))
			}
		}
	})
}
