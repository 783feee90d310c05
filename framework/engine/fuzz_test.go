package engine

import (
	"encoding/binary"
	"sync/atomic"
	"testing"

	"nicd/bus"
	"nicd/framework"
)

// FuzzTransmit gives the transmit pipeline packets of any description. None may
// make it panic; what reaches the device keeps the device's limits; and every
// packet and every buffer is accounted for.
func FuzzTransmit(f *testing.F) {
	f.Add(uint8(0), uint8(0), uint8(0), []byte("\x00\x01\x00\x40"))
	frame := tcpFrame(3000, 1, 0x18)
	for _, features := range []uint8{0, 0xff} {
		f.Add(features, uint8(3), uint8(1), describe(tso(frame, 536), []int{1500, 1554}))
		f.Add(features, uint8(3), uint8(1), describe(uso(udpFrame(3000), 536), []int{1500, 1542}))
		f.Add(features, uint8(1), uint8(2), describe(partial(frame), []int{20, 31, 40}))
		f.Add(features, uint8(0), uint8(64|7<<2), describe(tso(frame, 536), []int{1500, 1554}))
	}
	f.Fuzz(func(t *testing.T, features, fragments, quirks uint8, data []byte) {
		fuzzTransmit(t, features, fragments, quirks, data)
	})
}

// describe encodes a packet as fuzzPackets decodes it.
func describe(p framework.Packet, frags []int) []byte {
	var b []byte
	b = append(b, byte(len(frags)))
	b = binary.BigEndian.AppendUint32(b, uint32(p.Flags))
	for _, v := range []uint16{p.VLAN, p.SegmentSize, p.HeaderLen, p.ChecksumStart, p.ChecksumOffset} {
		b = binary.BigEndian.AppendUint16(b, v)
	}
	for _, n := range frags {
		b = binary.BigEndian.AppendUint16(b, uint16(n))
		b = append(b, 2)
	}
	return b
}

// fuzzUpper hands out a batch once and checks what comes back.
type fuzzUpper struct {
	directUpper
	batch framework.Batch
	held  map[framework.Buffer]int
}

func (u *fuzzUpper) Take(q int, b *framework.Batch) {
	b.Packets = append(b.Packets, u.batch.Packets...)
	b.Frags = append(b.Frags, u.batch.Frags...)
	u.batch.Reset()
}

func (u *fuzzUpper) Complete(q int, bufs []framework.Buffer) {
	for _, b := range bufs {
		u.held[b]--
	}
}

// strictTx checks each packet against the device's limits.
type strictTx struct {
	t       *testing.T
	r       *txRules
	buffers *framework.Buffers
	nullTx
	room int
}

func (x *strictTx) Put(b *framework.Batch, from int) int {
	n := 0
	for i := from; i < len(b.Packets) && n < x.room; i++ {
		x.check(&b.Packets[i], b.Fragments(i))
		n++
	}
	x.done += n
	return n
}

func (x *strictTx) check(p *framework.Packet, frags []framework.Fragment) {
	limit, length := x.r.maxFrags, x.r.maxLen
	if p.Flags&framework.Segment != 0 {
		limit, length = x.r.maxTSOFrags, x.r.maxTSOLen
		if f := segmentedBy(p); f == 0 || !x.r.features.Has(f) {
			x.t.Error("segmentation asked of a device that cannot")
		}
	}
	if p.Flags&framework.ChecksumPartial != 0 && p.Flags&framework.Segment == 0 && !x.r.features.Has(framework.TxChecksum) {
		x.t.Error("checksum asked of a device that cannot")
	}
	if p.Flags&framework.VLANTag != 0 && !x.r.features.Has(framework.VLANInsert) {
		x.t.Error("tag asked of a device that cannot")
	}
	if x.r.contiguous && p.Flags&(framework.ChecksumPartial) != 0 && frags[0].Len < headerLen(p) {
		x.t.Errorf("headers of %d bytes, %d in the first fragment", headerLen(p), frags[0].Len)
	}
	sum := uint32(0)
	for _, f := range frags {
		if first := x.buffers.FragmentAddr(f); first>>x.r.pageShift != (first+uint64(f.Len)-1)>>x.r.pageShift {
			x.t.Errorf("fragment %+v at %#x is in two pages", f, first)
		}
		if f.Len == 0 || f.Len > x.r.maxFragLen || !x.buffers.Valid(f) {
			x.t.Errorf("fragment %+v, %d bytes are allowed", f, x.r.maxFragLen)
		}
		sum += f.Len
	}
	if len(frags) == 0 || len(frags) > limit || sum != p.Len || sum < x.r.minFrame || sum > length+tagLen {
		x.t.Errorf("%d fragments of %d; %d bytes, %d counted", len(frags), limit, p.Len, sum)
	}
}

func fuzzTransmit(t *testing.T, features, fragments, quirks uint8, data []byte) {
	const own, count = 40, 200
	info := framework.Info{
		MaxTxFragments:   int(fragments & 15),
		MaxTxFragmentLen: []int{0, 256, 300, 2000}[fragments>>4&3],
		MaxTSOLen:        []int{0, 9000}[fragments>>6&1],
	}
	set := framework.NewQuirkSet()
	if quirks&1 != 0 {
		_ = set.Set("contiguous-headers", "true")
	}
	if quirks&2 != 0 {
		_ = set.Set("min-frame", "60")
	}
	if quirks&64 != 0 {
		_ = set.Set("tx-within-page", "true")
	}
	plan := Plan{TxDescriptors: 8 << (quirks >> 2 & 7)}
	plan.MTU = []int{1500, 9000}[quirks>>5&1]
	for i, f := range []framework.Features{framework.TxChecksum, framework.TSO4, framework.TSO6, framework.VLANInsert, framework.USO} {
		if features&(1<<i) != 0 {
			plan.Features |= f
		}
	}
	u := &fuzzUpper{held: map[framework.Buffer]int{}}
	buffers := &framework.Buffers{Memory: bus.HeapMemory(count * 2112).Bytes(), Stride: 2112, Size: 2048, Count: count}
	counters := make([]byte, CountersSize(0, 1))
	page, err := openPage(counters, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	q := newTxQueue(0, u, buffers, BufferRange{0, own}, page.tx[0])
	q.now = func() int64 { return 1 }
	q.linkUp = &atomic.Bool{}
	q.linkUp.Store(true)
	q.rules.Store(newTxRules(&info, &plan, set))
	dev := &strictTx{t: t, r: q.rules.Load(), buffers: buffers, room: 1 + int(features>>4)}
	q.start(dev, plan.TxDescriptors)

	u.fuzzPackets(data, own, count)
	for range 10000 {
		if !q.round() && !q.blocked() && q.fifo.len() == 0 {
			break
		}
	}
	if q.blocked() || q.fifo.len() != 0 {
		t.Errorf("stuck: %d taken, %d in flight", q.count[TxTaken], q.inFlight())
	}
	q.stop()
	s, _ := ReadCounters(counters, 0, 1)
	if err := Check(s); err != nil {
		t.Error(err)
	}
	for b, n := range u.held {
		if n != 0 {
			t.Errorf("buffer %d: %d references left", b, n)
		}
	}
	if len(q.own.free) != own {
		t.Errorf("%d of %d own buffers are back", len(q.own.free), own)
	}
}

// fuzzPackets makes packets of data, each fragment in a buffer of its own.
func (u *fuzzUpper) fuzzPackets(data []byte, first, count framework.Buffer) {
	next := first
	take := func(n int) uint32 {
		v := uint32(0)
		for range n {
			v <<= 8
			if len(data) > 0 {
				v |= uint32(data[0])
				data = data[1:]
			}
		}
		return v
	}
	for len(data) > 0 && len(u.batch.Packets) < txBatch {
		p := framework.Packet{First: uint32(len(u.batch.Frags))}
		n := take(1) % 40
		p.Flags = framework.PacketFlags(take(4))
		p.VLAN, p.SegmentSize, p.HeaderLen = uint16(take(2)), uint16(take(2)), uint16(take(2))
		p.ChecksumStart, p.ChecksumOffset = uint16(take(2)), uint16(take(2))
		for range n {
			if next == count {
				break
			}
			f := framework.Fragment{Buffer: next, Len: take(2) % 2112, Offset: take(1)}
			u.held[next]++
			next++
			u.batch.Frags = append(u.batch.Frags, f)
			p.Len += f.Len
			p.Frags++
		}
		u.batch.Packets = append(u.batch.Packets, p)
	}
}
