package vmxnet3

import (
	"encoding/binary"
	"testing"

	"nicd/bus"
	"nicd/framework"
)

// These tests play the device by hand: they write completions and look at
// descriptors. What needs a device that acts is in device_test.go.

// heapDMA is memory that the race detector sees.
type heapDMA struct {
	mem  *bus.Memory
	used int
}

const testBase = 0x10000

func (h *heapDMA) Alloc(size, align int) (framework.Block, error) {
	at := (h.used + align - 1) / align * align
	h.used = at + size
	return framework.Block{Bytes: h.mem.Bytes()[at:h.used:h.used], Addr: testBase + uint64(at)}, nil
}

// bytesAt is the memory at a device address.
func (h *heapDMA) bytesAt(addr uint64) []byte { return h.mem.Bytes()[addr-testBase:] }

// fakeRegion records writes.
type fakeRegion struct {
	bus.Region
	last   map[uint32]uint32
	writes map[uint32]int
}

func (r *fakeRegion) Size() int                { return 4096 }
func (r *fakeRegion) Read32(off uint32) uint32 { return 0 }
func (r *fakeRegion) Write32(off, v uint32) {
	r.last[off] = v
	r.writes[off]++
}

// bench is a built, not activated device and the hand that plays it.
type bench struct {
	t       testing.TB
	dma     *heapDMA
	bells   *fakeRegion
	run     *run
	rx      *rxQueue
	tx      *txQueue
	batch   *framework.Batch
	at      int // in the completion ring
	gen     uint32
	posted  map[framework.Buffer]bool
	next    [2]uint32 // descriptor of each ring that comes next
	buffers int
}

const (
	testRing   = 32
	testMTU    = 1500
	testBuffer = 2048
)

// newBench sets quirks, given as name and value in turn, besides those that the
// driver declares.
func newBench(t testing.TB, features framework.Features, set ...string) *bench {
	t.Helper()
	const buffers = 256
	b := &bench{
		t: t, gen: rcGen, buffers: buffers,
		dma:    &heapDMA{mem: bus.HeapMemory(1 << 20)},
		bells:  &fakeRegion{last: map[uint32]uint32{}, writes: map[uint32]int{}},
		batch:  framework.NewBatch(16, 2*framework.MaxFragments),
		posted: map[framework.Buffer]bool{},
	}
	mem, _ := b.dma.Alloc(buffers*(testBuffer+64), 4096)
	d := &device{regs: registers{pt: b.bells, vd: b.bells}, dma: b.dma, quirks: framework.NewQuirkSet(), revision: 2}
	for set := append([]string{"rx-bell", "on-request", "skips-rx-slots", "true"}, set...); len(set) > 0; set = set[2:] {
		if err := d.quirks.Set(set[0], set[1]); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	b.run, err = d.build(framework.Config{
		Settings: framework.Settings{MTU: testMTU, Features: features},
		RxQueues: 1, TxQueues: 1, RxDescriptors: testRing, TxDescriptors: testRing,
		Buffers:    &framework.Buffers{Memory: mem.Bytes, Addr: mem.Addr, Stride: testBuffer + 64, Size: testBuffer, Count: buffers},
		Interrupts: framework.VectorPlan{Kind: bus.MSIX, Vectors: 1, RxVector: []int{0}, TxVector: []int{0}},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.rx, b.tx = b.run.queues.Rx[0].(*rxQueue), b.run.queues.Tx[0].(*txQueue)
	return b
}

// post posts buffers until the queue is full.
func (b *bench) post() {
	for i := range b.buffers {
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

// complete writes a completion of descriptor index of ring r, which is 0 or 1.
func (b *bench) complete(r int, index uint32, c rxComp) {
	ring := b.run.rxDescs()[0].comp
	mem := b.dma.bytesAt(ring)[16*b.at:]
	binary.LittleEndian.PutUint32(mem, c.where|index|uint32(r)<<rcQueueShift)
	binary.LittleEndian.PutUint32(mem[4:], c.hash)
	binary.LittleEndian.PutUint32(mem[8:], c.data)
	bus.Word(mem, 12).Store(c.flags&^rcGen | b.gen)
	if b.at++; b.at == 2*testRing {
		b.at, b.gen = 0, b.gen^rcGen
	}
}

// fill completes the next descriptor of a ring.
func (b *bench) fill(r int, c rxComp) {
	b.complete(r, b.next[r], c)
	b.next[r] = (b.next[r] + 1) % testRing
}

// skip passes over the next descriptor of a ring.
func (b *bench) skip(r int) { b.next[r] = (b.next[r] + 1) % testRing }

// poll returns the packets of one Poll; each buffer has to have been posted.
func (b *bench) poll() []framework.Packet {
	b.t.Helper()
	b.batch.Reset()
	if v := b.rx.Poll(b.batch); v != framework.Healthy {
		b.t.Fatalf("verdict %d", v)
	}
	b.account()
	return b.batch.Packets
}

func (b *bench) account() {
	b.t.Helper()
	for i := range b.batch.Packets {
		for _, f := range b.batch.Fragments(i) {
			if !b.posted[f.Buffer] {
				b.t.Fatalf("buffer %d handed out, which the device did not have", f.Buffer)
			}
			delete(b.posted, f.Buffer)
			b.run.cfg.Buffers.Bytes(f)
		}
	}
}

// one polls and wants one packet.
func (b *bench) one() framework.Packet {
	b.t.Helper()
	ps := b.poll()
	if len(ps) != 1 {
		b.t.Fatalf("%d packets", len(ps))
	}
	return ps[0]
}

// buffersOf are the buffers of the descriptors from index to the tail, that is,
// of those that the device owns.
func (b *bench) buffersOf(r int, from, n uint32) (bufs []framework.Buffer) {
	ring := b.dma.bytesAt(b.run.rxDescs()[0].rings[r])
	for i := range n {
		at := (from + i) % testRing
		addr := binary.LittleEndian.Uint64(ring[16*at:]) - framework.RxOffset - b.run.cfg.Buffers.Addr
		bufs = append(bufs, framework.Buffer(addr/uint64(b.run.cfg.Buffers.Stride)))
	}
	return bufs
}

// Parts of completions.
const (
	whole  = rcSOP | rcEOP
	tcp4OK = rcIPv4 | rcTCP | rcIPOK | rcL4OK | rcFCSOK
	lro    = typeLRO << rcTypeShift
	noSum  = rcNoChecksum
)

const lroFeatures = framework.RxChecksum | framework.LRO

func TestReceiveFormat(t *testing.T) {
	b := newBench(t, framework.RxChecksum)
	b.post()
	ring := b.dma.bytesAt(b.run.rxDescs()[0].rings[0])
	body := b.dma.bytesAt(b.run.rxDescs()[0].rings[1])
	for i := range testRing - 1 {
		head, tail := binary.LittleEndian.Uint32(ring[16*i+8:]), binary.LittleEndian.Uint32(body[16*i+8:])
		if head != testBuffer|1<<31 || tail != testBuffer|1<<14|1<<31 {
			t.Fatalf("descriptor %d: %#x in ring 1, %#x in ring 2", i, head, tail)
		}
	}
	if last := binary.LittleEndian.Uint32(ring[16*(testRing-1)+8:]); last != 0 {
		t.Errorf("the slot that stays empty holds %#x", last)
	}
	if n := len(b.posted); n != 2*(testRing-1) {
		t.Errorf("%d buffers posted", n)
	}
}

func TestVerdicts(t *testing.T) {
	const l4 = framework.IPv4 | framework.TCP
	for name, c := range map[string]struct {
		comp rxComp
		want framework.PacketFlags
	}{
		"good TCP":           {rxComp{flags: tcp4OK}, l4 | framework.ChecksumVerified},
		"good UDP6":          {rxComp{flags: rcIPv6 | rcUDP | rcL4OK}, framework.IPv6 | framework.UDP | framework.ChecksumVerified},
		"nothing known":      {rxComp{where: rcNoChecksum, flags: tcp4OK}, 0},
		"bad TCP":            {rxComp{flags: rcIPv4 | rcTCP | rcIPOK}, l4 | framework.ChecksumBad},
		"bad IP":             {rxComp{flags: rcIPv4 | rcTCP | rcL4OK}, framework.IPv4 | framework.ChecksumBad},
		"IP fragment":        {rxComp{flags: rcIPv4 | rcTCP | rcIPOK | rcL4OK | rcFragment}, framework.IPv4},
		"partial sum":        {rxComp{flags: rcIPv4 | rcTCP | rcIPOK | 0x1234}, l4},
		"not IP":             {rxComp{flags: rcFCSOK}, 0},
		"IPv4, no L4":        {rxComp{flags: rcIPv4 | rcIPOK}, framework.IPv4},
		"good TCP6, ipc off": {rxComp{flags: rcIPv6 | rcTCP | rcL4OK}, framework.IPv6 | framework.TCP | framework.ChecksumVerified},
	} {
		b := newBench(t, framework.RxChecksum)
		b.post()
		c.comp.where |= whole
		c.comp.data = 100
		b.fill(0, c.comp)
		if got := b.one().Flags; got != c.want {
			t.Errorf("%s: flags %b, want %b", name, got, c.want)
		}
	}
	b := newBench(t, 0)
	b.post()
	b.fill(0, rxComp{where: whole, data: 100, flags: tcp4OK})
	if got := b.one().Flags; got != 0 {
		t.Errorf("verdict %b with rx-csum off", got)
	}
}

// TestMetadataIsOnTheLast: what the first completion claims does not count.
func TestMetadataIsOnTheLast(t *testing.T) {
	b := newBench(t, framework.RxChecksum|framework.VLANStrip)
	b.post()
	b.fill(0, rxComp{where: rcSOP | noSum | 1<<rcHashShift, hash: 1, data: 2048 | rcTagged | 1<<16})
	b.fill(1, rxComp{where: 0, data: 2048})
	b.fill(1, rxComp{where: rcEOP | 2<<rcHashShift, hash: 99, data: 10 | rcTagged | 7<<16, flags: tcp4OK})
	p := b.one()
	if p.Len != 4106 || p.Frags != 3 || p.Hash != 99 || p.VLAN != 7 {
		t.Errorf("packet %+v", p)
	}
	if p.Flags != framework.IPv4|framework.TCP|framework.ChecksumVerified|framework.HashValid|framework.VLANTag {
		t.Errorf("flags %b", p.Flags)
	}
}

// TestMetadataOnTheFirst is the quirk's other value, which no known device has: the
// verdict of a merged packet is then lost, as it was with FreeBSD (D23949).
func TestMetadataOnTheFirst(t *testing.T) {
	b := newBench(t, framework.RxChecksum|framework.VLANStrip, "metadata-on", "first")
	b.post()
	b.fill(0, rxComp{where: rcSOP | 1<<rcHashShift, hash: 1, data: 2048 | rcTagged | 5<<16, flags: tcp4OK})
	b.fill(1, rxComp{where: rcEOP | noSum | 2<<rcHashShift, hash: 99, data: 10 | rcTagged | 7<<16})
	if p := b.one(); p.Len != 2058 || p.Hash != 1 || p.VLAN != 5 || p.Flags&framework.ChecksumVerified == 0 {
		t.Errorf("packet %+v", p)
	}
	b.fill(0, rxComp{where: rcSOP | noSum, data: 2048})
	b.fill(1, rxComp{where: rcEOP, data: 10, flags: tcp4OK})
	if p := b.one(); p.Flags&framework.ChecksumVerified != 0 {
		t.Errorf("the last completion's verdict counts: %+v", p)
	}
}

// headers writes TCP over IPv4 headers into the buffer of the next descriptor.
func (b *bench) headers() {
	buf := b.buffersOf(0, b.next[0], 1)[0]
	h := b.run.cfg.Buffers.Bytes(framework.Fragment{Buffer: buf, Offset: framework.RxOffset, Len: 54})
	clear(h)
	h[12], h[14], h[14+9], h[34+12] = 8, 0x45, 6, 5<<4
}

func TestMergedPackets(t *testing.T) {
	const header, mss = 54, 1448
	for name, c := range map[string]struct {
		segments, mss uint32 // in the first completion
		typed         bool
		payload       uint32
		coalesced     bool
		wantSegs      uint16
		wantMSS       uint16
	}{
		"revision 2":                {10, mss, true, 10 * mss, true, 10, mss},
		"short last segment":        {10, mss, true, 9*mss + 7, true, 10, mss},
		"one segment is none":       {1, mss, true, mss, false, 0, 0},
		"no MSS":                    {4, 0, true, 3*mss + 448, true, 4, (3*mss + 448 + 3) / 4},
		"no count":                  {0, mss, true, 3*mss + 1, true, 4, mss},
		"no count, one segment":     {0, mss, true, mss, false, 0, 0},
		"neither, too long":         {0, 0, true, 3 * mss, true, 3, 0},
		"neither, not too long":     {0, 0, true, mss, false, 0, 0},
		"revision 1":                {0, 0, false, 4 * mss, true, 4, 0},
		"revision 1, not merged":    {0, 0, false, mss, false, 0, 0},
		"small segments, merged":    {2, 100, true, 200, true, 2, 100},
		"one segment, but too long": {1, 0, true, 3 * mss, true, 3, 0},
	} {
		b := newBench(t, lroFeatures)
		b.post()
		b.headers()
		first := rxComp{where: rcSOP, flags: rcTCP | rcIPv4}
		if c.typed {
			first.hash = c.segments | 3<<8 | 5<<16
			first.flags |= lro | c.mss
		}
		left := c.payload + header
		if left <= testBuffer {
			first.where |= rcEOP
			first.flags |= tcp4OK
			first.where |= 2 << rcHashShift
		}
		first.data = min(left, testBuffer)
		b.fill(0, first)
		for left -= first.data; left > 0; left -= min(left, testBuffer) {
			c := rxComp{data: min(left, testBuffer)}
			if left <= testBuffer {
				c.where, c.flags = rcEOP, tcp4OK
			}
			b.fill(1, c)
		}
		p := b.one()
		if got := p.Flags&framework.Coalesced != 0; got != c.coalesced || p.Segments != c.wantSegs || p.SegmentSize != c.wantMSS {
			t.Errorf("%s: coalesced %v, %d segments of %d", name, got, p.Segments, p.SegmentSize)
		}
		if p.Flags&framework.ChecksumVerified == 0 {
			t.Errorf("%s: not verified", name)
		}
		if c.typed && p.Flags&framework.HashValid != 0 {
			t.Errorf("%s: segment count taken for a hash", name)
		}
		if p.Len != c.payload+header {
			t.Errorf("%s: %d bytes", name, p.Len)
		}
	}
}

// TestMergedSingleUnverified: the MSS in the low half is no checksum, so nothing
// can be said against the packet.
func TestMergedSingleUnverified(t *testing.T) {
	b := newBench(t, lroFeatures)
	b.post()
	b.headers()
	b.fill(0, rxComp{where: whole, hash: 2, data: 254, flags: lro | 100 | rcTCP | rcIPv4 | rcIPOK})
	if f := b.one().Flags; f&(framework.ChecksumBad|framework.ChecksumVerified) != 0 {
		t.Errorf("flags %b", f)
	}
}

// TestMergedAfterTheChange: a merged packet that was received before LRO and rx-csum
// were turned off is a merged one afterwards. Its checksum is stale, so the device's
// verdict goes with it.
func TestMergedAfterTheChange(t *testing.T) {
	for name, flags := range map[string]uint32{"revision 2": lro | 1448, "revision 1": 0} {
		b := newBench(t, lroFeatures)
		b.post()
		b.run.features.Store(0)
		b.headers()
		first := rxComp{where: rcSOP, data: testBuffer, flags: rcTCP | rcIPv4 | flags}
		if flags != 0 {
			first.hash = 2
		}
		b.fill(0, first)
		b.fill(1, rxComp{where: rcEOP, data: 54 + 2*1448 - testBuffer, flags: tcp4OK})
		const want = framework.Coalesced | framework.ChecksumVerified | framework.TCP | framework.IPv4
		if got := b.one().Flags; got&want != want {
			t.Errorf("%s: flags %b", name, got)
		}
		b.fill(0, rxComp{where: whole, data: 60, flags: rcTCP | rcIPv4 | rcFCSOK})
		if got := b.one().Flags; got != 0 {
			t.Errorf("%s: flags %b of a packet that was not merged", name, got)
		}
	}
}

// TestLongWithoutLRO: a long packet is only a merged one if the device was told
// to merge, now or before.
func TestLongWithoutLRO(t *testing.T) {
	b := newBench(t, framework.RxChecksum)
	b.post()
	for _, merges := range []bool{false, true} {
		b.run.merges.Store(merges)
		b.headers()
		b.fill(0, rxComp{where: rcSOP, data: testBuffer})
		b.fill(1, rxComp{where: rcEOP, data: 1000, flags: tcp4OK})
		if got := b.one().Flags&framework.Coalesced != 0; got != merges {
			t.Errorf("coalesced %v, want %v", got, merges)
		}
	}
}

func TestSkippedSlotsArePostedAgain(t *testing.T) {
	b := newBench(t, 0)
	b.post()
	before := b.buffersOf(0, 0, 3)
	b.skip(0)
	b.skip(0)
	b.fill(0, rxComp{where: whole, data: 60})
	p := b.one()
	if got := b.batch.Fragments(0)[0].Buffer; got != before[2] || p.Len != 60 {
		t.Errorf("buffer %d, want %d", got, before[2])
	}
	again := b.buffersOf(0, testRing-1, 2)
	if again[0] != before[0] || again[1] != before[1] {
		t.Errorf("posted again %v, want %v", again, before[:2])
	}
	if n := b.rx.Outstanding(0); n != testRing-2 {
		t.Errorf("%d outstanding", n)
	}
}

// TestSkippingIsDeclared: a device that is said to use all descriptors and passes
// one over has lost count.
func TestSkippingIsDeclared(t *testing.T) {
	b := newBench(t, 0, "skips-rx-slots", "false")
	b.post()
	b.fill(0, rxComp{where: whole, data: 60})
	b.one()
	b.skip(0)
	b.fill(0, rxComp{where: whole, data: 60})
	b.batch.Reset()
	if v := b.rx.Poll(b.batch); v != framework.QueueFault || len(b.batch.Packets) != 0 {
		t.Errorf("verdict %d, %d packets", v, len(b.batch.Packets))
	}
}

func TestEmptyBuffers(t *testing.T) {
	b := newBench(t, 0)
	b.post()
	b.fill(0, rxComp{where: whole})
	if ps := b.poll(); len(ps) != 0 {
		t.Errorf("a skipped buffer became packet %+v", ps[0])
	}
	b.fill(0, rxComp{where: rcSOP, data: 100})
	b.fill(1, rxComp{})
	b.fill(1, rxComp{data: 50})
	b.fill(1, rxComp{where: rcEOP})
	if p := b.one(); p.Len != 150 || p.Frags != 2 {
		t.Errorf("packet %+v", p)
	}
	if got := [2]int{b.rx.Outstanding(0), b.rx.Outstanding(1)}; got != [2]int{testRing - 2, testRing - 2} {
		t.Errorf("outstanding %v: an empty buffer was not posted again", got)
	}
}

func TestErrors(t *testing.T) {
	b := newBench(t, lroFeatures)
	b.post()
	for _, c := range []struct {
		comps []rxComp
		want  framework.DropReason
	}{
		{[]rxComp{{where: whole, data: 60 | rcError}}, framework.DropCRC},
		{[]rxComp{{where: whole, data: 60 | rcError, flags: rcFCSOK}}, framework.DropDevice},
		{[]rxComp{{where: whole, data: rcError}}, framework.DropCRC},
		{[]rxComp{{where: whole, data: testBuffer + 1}}, framework.DropDevice},
		{[]rxComp{{where: rcEOP, data: 60}}, framework.DropDevice},
		{[]rxComp{{where: rcSOP, data: 60 | rcError}, {where: rcEOP, data: 60}}, framework.NoDrop},
		{[]rxComp{{where: whole, data: 60}}, framework.NoDrop},
	} {
		for _, comp := range c.comps {
			b.fill(0, comp)
		}
		if p := b.one(); p.Error != c.want {
			t.Errorf("%+v: error %v, want %v", c.comps, p.Error, c.want)
		}
		b.post()
	}
}

func TestPacketWithoutEnd(t *testing.T) {
	b := newBench(t, 0)
	b.post()
	b.fill(0, rxComp{where: rcSOP, data: 100})
	if len(b.poll()) != 0 || b.rx.Pending() {
		t.Fatal("half a packet is not a packet")
	}
	b.fill(0, rxComp{where: whole, data: 61})
	ps := b.poll()
	if len(ps) != 2 || ps[0].Error != framework.DropDevice || ps[0].Len != 100 || ps[1].Error != framework.NoDrop || ps[1].Len != 61 {
		t.Errorf("packets %+v", ps)
	}
}

func TestEndlessChain(t *testing.T) {
	b := newBench(t, 0)
	b.post()
	b.fill(0, rxComp{where: rcSOP, data: 100})
	for range framework.MaxFragments + 5 {
		b.fill(1, rxComp{data: 100})
		if len(b.poll()) != 0 {
			t.Fatal("a packet without an end")
		}
		b.post()
	}
	b.fill(1, rxComp{where: rcEOP, data: 1})
	if p := b.one(); p.Error != framework.DropTooLong || p.Frags != framework.MaxFragments {
		t.Errorf("packet %+v", p)
	}
	b.post()
	if n := len(b.posted); n != 2*(testRing-1) {
		t.Errorf("%d buffers with the device", n)
	}
}

// TestNonsense: a device that names what it does not have stops the queue, and
// gets nothing for it. What came before is delivered.
func TestNonsense(t *testing.T) {
	for name, c := range map[string]struct {
		ring  int
		index uint32
	}{
		"no such queue":   {2, 1},
		"empty slot":      {0, testRing - 1},
		"outside":         {0, 4000},
		"the same again":  {0, 0},
		"far queue":       {500, 0},
		"outside, ring 2": {1, testRing},
	} {
		b := newBench(t, 0)
		b.post()
		b.fill(0, rxComp{where: whole, data: 60})
		b.complete(c.ring, c.index, rxComp{where: whole, data: 60})
		b.batch.Reset()
		if v := b.rx.Poll(b.batch); v != framework.QueueFault || len(b.batch.Packets) != 1 {
			t.Errorf("%s: verdict %d with %d packets", name, v, len(b.batch.Packets))
		}
		b.account()
		if b.rx.Pending() || b.rx.Poll(b.batch) != framework.QueueFault {
			t.Errorf("%s: the queue goes on", name)
		}
	}
}

func TestReceiveBells(t *testing.T) {
	b := newBench(t, 0)
	b.post()
	b.rx.Bell()
	if b.bells.last[regRxProd] != testRing-1 || b.bells.last[regRxProd2] != testRing-1 {
		t.Errorf("bells after activation: %v", b.bells.last)
	}
	b.fill(0, rxComp{where: whole, data: 60})
	b.one()
	b.post()
	b.rx.Bell()
	b.fill(0, rxComp{where: whole})
	b.poll()
	if n := b.bells.writes[regRxProd]; n != 1 {
		t.Errorf("%d bells, which nobody wanted", n-1)
	}
	b.run.rxDescs()[0].control.Store(1)
	b.rx.Bell()
	if n := b.bells.writes[regRxProd]; n != 2 {
		t.Error("no bell when the device asks")
	}
	b.fill(0, rxComp{where: whole})
	b.poll()
	if n := b.bells.writes[regRxProd]; n != 3 {
		t.Error("no bell for a buffer that the driver posted by itself")
	}
}

func TestBatchFillsUp(t *testing.T) {
	b := newBench(t, 0)
	b.batch = framework.NewBatch(3, 4)
	b.post()
	for range 3 {
		b.fill(0, rxComp{where: rcSOP, data: 2000})
		b.fill(1, rxComp{where: rcEOP, data: 100})
	}
	total := 0
	for range 2 {
		n := len(b.poll())
		if n > 2 {
			t.Fatalf("%d packets of two fragments in four", n)
		}
		total += n
	}
	if total != 3 || b.rx.Pending() {
		t.Errorf("%d packets", total)
	}
}

// TestPollAllocatesNothing, over ring wraps.
func TestPollAllocatesNothing(t *testing.T) {
	b := newBench(t, lroFeatures)
	b.post()
	bufs := make([]framework.Buffer, 1)
	if n := testing.AllocsPerRun(500, func() {
		b.fill(0, rxComp{where: whole, data: 60, flags: tcp4OK})
		b.batch.Reset()
		b.rx.Poll(b.batch)
		bufs[0] = b.batch.Frags[0].Buffer
		b.rx.Post(bufs)
		b.rx.Bell()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzCompletions: whatever a device writes, no buffer is handed out that it does
// not have, none twice, and nothing panics.
func FuzzCompletions(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0xC0, 60, 0, 0, 0, 0, 1, 0, 0xC0, 60, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, script []byte) {
		b := newBench(t, lroFeatures)
		b.post()
		for len(script) >= 9 {
			s := script[:9]
			script = script[9:]
			c := rxComp{
				where: uint32(s[3])<<8 | uint32(s[2])<<16,
				hash:  uint32(s[6]),
				data:  uint32(s[4]) | uint32(s[5])<<8,
				flags: uint32(s[7])<<24 | uint32(s[8])<<16 | uint32(s[6]),
			}
			if s[0]&1 == 0 { // a proper descriptor, skipping some
				r := int(s[0] >> 1 & 1)
				for range s[1] % 4 {
					b.skip(r)
				}
				c.where &^= rcQueueMask << rcQueueShift
				b.fill(r, c)
			} else {
				b.complete(int(s[0]>>1&1), uint32(s[1]), c)
			}
			b.batch.Reset()
			v := b.rx.Poll(b.batch)
			b.account()
			if v != framework.Healthy {
				return
			}
			b.post()
			// A device that runs past the descriptors it was given is caught,
			// one that stays in them keeps the accounts right.
			held := len(b.rx.Fragments())
			if n := b.rx.Outstanding(0) + b.rx.Outstanding(1); n+held != len(b.posted) {
				t.Fatalf("%d descriptors outstanding and %d buffers held, %d buffers gone", n, held, len(b.posted))
			}
		}
	})
}
