package vmxnet3

import (
	"context"
	"encoding/binary"
	"runtime"
	"testing"

	"nicd/bus"
	"nicd/sim"
)

// The driver of these tests: the least that brings a device up and moves frames,
// by the public rules (generation bits, bring-up order), with its own layout of
// memory. It works on a passive device, one step at a time.

const testIOVA = 0x40_0000

// setup is how a test wants its device. Zero fields get defaults.
type setup struct {
	reorders  bool // descriptors come in any order, and are not posted again
	opt       Options
	revision  int // to select; 0 is the highest
	features  uint32
	mtu       int
	txq, rxq  int
	ring      int // descriptors of each ring
	ring2     int // of the second receive ring; -1 is none
	bufSize   int
	bodyEvery int // ring 1: every so-manieth descriptor is a HEAD, the others are BODY; 0 is all HEAD
	maxRxSG   int
	rxData    int // size of a receive data ring entry
	kind      bus.InterruptKind
	noEvents  bool
	autoMask  bool
	leave     int // leave so many descriptors of the receive rings empty
	worker    bool
	clock     sim.Clock
	heap      bool
	rssConf   []byte
	edit      func(d *tdriver) // before ACTIVATE
}

type tdriver struct {
	t      testing.TB
	s      setup
	m      *Model
	dev    *sim.Device
	mem    *bus.Memory
	pt, vd bus.Region
	used   uint64
	shared uint64
	qdesc  uint64
	tx     []*ttx
	rx     []*trx
	events []*bus.Event
}

type ttx struct {
	d               *tdriver
	id              int
	ring, comp, buf uint64
	size            int
	next, clean     int
	gen, compGen    uint32
	compNext        int
	free            int
}

type trx struct {
	d        *tdriver
	id       int
	ring     [2]uint64
	size     [2]int
	next     [2]int // next to post
	gen      [2]uint32
	clean    [2]int // next to be returned
	posted   [2]int
	bufs     [2]uint64
	comp     uint64
	compSize int
	compNext int
	compGen  uint32
	data     uint64
}

// trxPacket is a packet as the driver reads it.
type trxPacket struct {
	bytes   []byte
	comps   [][4]uint32 // raw completions
	indices []int
	queue   uint32 // of the first
}

func (p *trxPacket) sop() [4]uint32 { return p.comps[0] }
func (p *trxPacket) eop() [4]uint32 { return p.comps[len(p.comps)-1] }

func newDriver(t testing.TB, wire *sim.Wire, s setup) *tdriver {
	t.Helper()
	d := prepare(t, wire, s)
	if d.command(cmdActivate) != 0 {
		t.Fatalf("activation failed: %v", d.m.ActivationError())
	}
	d.postAll()
	d.unmaskAll()
	return d
}

func defaults(s setup) setup {
	if s.mtu == 0 {
		s.mtu = 1500
	}
	if s.txq == 0 {
		s.txq = 1
	}
	if s.rxq == 0 {
		s.rxq = 1
	}
	if s.ring == 0 {
		s.ring = 64
	}
	if s.ring2 == 0 {
		s.ring2 = s.ring
	}
	if s.bufSize == 0 {
		s.bufSize = 2048
	}
	return s
}

// prepare does everything before ACTIVATE.
func prepare(t testing.TB, wire *sim.Wire, s setup) *tdriver {
	t.Helper()
	s = defaults(s)
	d := &tdriver{t: t, s: s, m: New(s.opt)}
	dev, err := sim.NewDevice(d.m, sim.Options{
		Name: "t", Passive: !s.worker, Clock: s.clock, HeapDoorbells: true,
		OnFault: func(f sim.Fault) {
			if t, ok := t.(*testing.T); ok {
				t.Log(f)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	d.dev = dev
	size := 1 << 20
	size += s.rxq * (s.ring + max(s.ring2, 0)) * (s.bufSize + 2048 + 64)
	size += s.txq * s.ring * (70000)
	if s.heap {
		d.mem = bus.HeapMemory(size)
	} else if d.mem, err = bus.NewMemory("test", size); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		dev.Close()
		d.mem.Close()
	})
	must(t, dev.MapDMA(d.mem, testIOVA))
	must(t, dev.WriteConfig(4, 2, 6))
	d.pt, d.vd = region(t, dev, 0), region(t, dev, 1)
	wire.Connect(d.m)
	d.setInterrupts()
	d.selectRevision()
	d.layout()
	if s.edit != nil {
		s.edit(d)
	}
	d.vd.Write32(regDSAL, uint32(d.shared))
	d.vd.Write32(regDSAH, uint32(d.shared>>32))
	return d
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func region(t testing.TB, dev *sim.Device, i int) bus.Region {
	t.Helper()
	r, err := dev.Region(i)
	must(t, err)
	return r
}

func (d *tdriver) setInterrupts() {
	n := 1
	if d.s.kind == bus.MSIX {
		n = maxVectors
	}
	for range n {
		e, err := bus.NewEvent()
		must(d.t, err)
		d.t.Cleanup(func() { e.Close() })
		d.events = append(d.events, e)
	}
	if !d.s.noEvents {
		must(d.t, d.dev.SetInterrupts(d.s.kind, d.events))
	}
}

func (d *tdriver) selectRevision() {
	r := d.s.revision
	if r == 0 {
		for bits := d.vd.Read32(regVRRS); bits != 0; bits >>= 1 {
			r++
		}
	}
	d.vd.Write32(regVRRS, 1<<(r-1))
	d.vd.Write32(regUVRS, 1)
}

func (d *tdriver) alloc(size, align int) uint64 {
	d.used = (d.used + uint64(align) - 1) &^ uint64(align-1)
	at := d.used
	d.used += uint64(size)
	if d.used > uint64(d.mem.Size()) {
		d.t.Fatalf("test memory of %d is too small", d.mem.Size())
	}
	return testIOVA + at
}

func (d *tdriver) at(addr uint64, n int) []byte {
	o := addr - testIOVA
	return d.mem.Bytes()[o : o+uint64(n)]
}

func (d *tdriver) put8(a uint64, v uint8)   { d.at(a, 1)[0] = v }
func (d *tdriver) put16(a uint64, v uint16) { binary.LittleEndian.PutUint16(d.at(a, 2), v) }
func (d *tdriver) put32(a uint64, v uint32) { binary.LittleEndian.PutUint32(d.at(a, 4), v) }
func (d *tdriver) put64(a uint64, v uint64) { binary.LittleEndian.PutUint64(d.at(a, 8), v) }
func (d *tdriver) get32(a uint64) uint32    { return binary.LittleEndian.Uint32(d.at(a, 4)) }
func (d *tdriver) get64(a uint64) uint64    { return binary.LittleEndian.Uint64(d.at(a, 8)) }

func (d *tdriver) txDesc(q int) uint64 { return d.qdesc + uint64(q)*256 }
func (d *tdriver) rxDesc(q int) uint64 { return d.qdesc + uint64(d.s.txq+q)*256 }

func (d *tdriver) layout() {
	s := d.s
	d.shared = d.alloc(720, 64)
	d.qdesc = d.alloc(256*(s.txq+s.rxq), 128)
	sh := d.shared
	d.put32(sh+0, 0xbabefee1)
	d.put32(sh+16, 1)
	d.put32(sh+20, 1)
	d.put64(sh+24, uint64(s.features))
	d.put64(sh+40, d.qdesc)
	d.put32(sh+52, uint32(256*(s.txq+s.rxq)))
	d.put32(sh+56, uint32(s.mtu))
	d.put16(sh+60, uint16(s.maxRxSG))
	d.put8(sh+62, uint8(s.txq))
	d.put8(sh+63, uint8(s.rxq))
	if s.autoMask {
		d.put8(sh+80, 1)
	}
	d.put8(sh+81, uint8(s.txq+s.rxq+1))
	d.put8(sh+82, uint8(s.txq+s.rxq))
	d.put32(sh+120, modeUnicast|modeBroadcast)
	d.put32(sh+136, 1) // untagged
	if s.rssConf != nil {
		at := d.alloc(len(s.rssConf), 8)
		copy(d.at(at, len(s.rssConf)), s.rssConf)
		d.put32(sh+648, 1)
		d.put32(sh+652, uint32(len(s.rssConf)))
		d.put64(sh+656, at)
	}
	for q := range s.txq {
		d.layoutTx(q)
	}
	for q := range s.rxq {
		d.layoutRx(q)
	}
}

func (d *tdriver) layoutTx(q int) {
	n := d.s.ring
	x := &ttx{d: d, id: q, size: n, gen: 1, compGen: 1, free: n - 1}
	x.ring, x.comp = d.alloc(n*16, 512), d.alloc(n*16, 512)
	x.buf = d.alloc(66000*4, 64)
	a := d.txDesc(q)
	d.put64(a+16, x.ring)
	d.put64(a+32, x.comp)
	d.put32(a+56, uint32(n))
	d.put32(a+64, uint32(n))
	d.put8(a+72, uint8(q))
	d.tx = append(d.tx, x)
}

func (d *tdriver) layoutRx(q int) {
	s := d.s
	r := &trx{d: d, id: q, gen: [2]uint32{1, 1}, compGen: 1, size: [2]int{s.ring, max(s.ring2, 0)}}
	a := d.rxDesc(q)
	for k, n := range r.size {
		if n > 0 {
			r.ring[k] = d.alloc(n*16, 512)
			r.bufs[k] = d.alloc(n*(s.bufSize+64), 64)
			d.put64(a+16+8*uint64(k), r.ring[k])
			d.put32(a+56+4*uint64(k), uint32(n))
		}
	}
	r.compSize = r.size[0] + r.size[1]
	r.comp = d.alloc(r.compSize*16, 512)
	d.put64(a+32, r.comp)
	d.put32(a+64, uint32(r.compSize))
	d.put8(a+72, uint8(s.txq+q))
	if s.rxData > 0 {
		r.data = d.alloc(s.ring*s.rxData, 512)
		d.put64(a+48, r.data)
		d.put16(a+74, uint16(s.rxData))
	}
	d.rx = append(d.rx, r)
}

func (d *tdriver) command(c uint32) uint32 {
	d.vd.Write32(regCMD, c)
	return d.vd.Read32(regCMD)
}

func (d *tdriver) postAll() {
	for _, r := range d.rx {
		for k := range r.ring {
			for r.posted[k] < r.size[k]-1-d.s.leave {
				r.post(k)
			}
		}
		d.pt.Write32(0x800+8*uint32(r.id), uint32(r.next[0]))
		d.pt.Write32(0xa00+8*uint32(r.id), uint32(r.next[1]))
	}
}

func (d *tdriver) unmaskAll() {
	for v := range maxVectors {
		d.pt.Write32(8*uint32(v), 0)
	}
}

// step lets the device work until it has nothing more to do.
func (d *tdriver) step() {
	for d.m.Work(64) {
	}
}

// body tells whether descriptor i of ring k is for the body of packets.
func (d *tdriver) body(k, i int) bool {
	return k == 1 || d.s.bodyEvery > 0 && i%d.s.bodyEvery != 0
}

// post gives the device the next descriptor of ring k.
func (r *trx) post(k int) {
	d, i := r.d, r.next[k]
	a := r.ring[k] + uint64(i)*16
	d.put64(a, r.bufs[k]+uint64(i)*uint64(d.s.bufSize+64))
	w := uint32(d.s.bufSize) | r.gen[k]<<31
	if d.body(k, i) {
		w |= 1 << 14
	}
	bus.Word(d.mem.Bytes(), int(a-testIOVA)+8).Store(w)
	r.posted[k]++
	if r.next[k]++; r.next[k] == r.size[k] {
		r.next[k] = 0
		r.gen[k] ^= 1
	}
}

// poll takes one packet, if there is one, and posts its descriptors again. A
// zero-length packet of one descriptor is passed over.
func (r *trx) poll() (*trxPacket, bool) {
	d := r.d
	p := &trxPacket{}
	for {
		at := int(r.comp-testIOVA) + r.compNext*16
		w3 := bus.Word(d.mem.Bytes(), at+12).Load()
		if w3>>31 != r.compGen {
			if len(p.comps) == 0 {
				return nil, false
			}
			if !d.s.worker {
				d.t.Fatalf("half a packet: %x", p.comps)
			}
			runtime.Gosched() // the device is writing the rest
			continue
		}
		b := d.mem.Bytes()[at:]
		c := [4]uint32{binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:]), binary.LittleEndian.Uint32(b[8:]), w3}
		if r.compNext++; r.compNext == r.compSize {
			r.compNext = 0
			r.compGen ^= 1
		}
		r.take(p, c)
		if c[0]&(1<<14) == 0 {
			continue
		}
		if len(p.comps) == 1 && c[2]&0x3fff == 0 {
			p = &trxPacket{}
			continue
		}
		return p, true
	}
}

func (r *trx) take(p *trxPacket, c [4]uint32) {
	d := r.d
	if (c[0]&(1<<15) != 0) != (len(p.comps) == 0) {
		d.t.Errorf("SOP out of place in %x after %d", c, len(p.comps))
	}
	idx, id, n := int(c[0]&0xfff), int(c[0]>>16&0x3ff), int(c[2]&0x3fff)
	kind, q := id/d.s.rxq, id%d.s.rxq
	if kind > 2 || q != r.id {
		d.t.Fatalf("rqID %d on queue %d", id, r.id)
	}
	if len(p.comps) == 0 {
		p.queue = uint32(id)
	}
	p.comps = append(p.comps, c)
	p.indices = append(p.indices, idx)
	k := kind % 2
	if kind == 2 {
		a := r.data + uint64(idx*d.s.rxData)
		p.bytes = append(p.bytes, d.at(a, n)...)
	} else {
		a := r.bufs[k] + uint64(idx)*uint64(d.s.bufSize+64)
		p.bytes = append(p.bytes, d.at(a, n)...)
	}
	if d.s.reorders {
		r.posted[k]--
		return
	}
	// Everything up to idx has come back, skipped ones included.
	for {
		i := r.clean[k]
		r.clean[k] = (i + 1) % r.size[k]
		r.posted[k]--
		if !d.s.noRepost() {
			r.post(k)
		}
		if i == idx {
			break
		}
		if r.posted[k] <= 0 {
			d.t.Fatalf("completion of descriptor %d of ring %d, which was not posted", idx, k)
		}
	}
}

func (s *setup) noRepost() bool { return s.leave > 0 }

// txReq is a packet to send.
type txReq struct {
	parts   [][]byte // each is one descriptor
	om      uint32
	hlen    int
	mss     int
	tag     uint16
	tagged  bool
	noCQ    bool
	noEOP   bool
	badAddr bool
	dtype   bool
}

// put writes a packet's descriptors, the first one's generation last, without a
// doorbell.
func (x *ttx) put(r txReq) {
	d := x.d
	if len(r.parts) > x.free {
		d.t.Fatal("transmit ring is full")
	}
	x.free -= len(r.parts)
	first := x.next
	at := x.buf + uint64(first%4)*66000
	for i, b := range r.parts {
		copy(d.at(at, len(b)), b)
		a := x.ring + uint64(x.next)*16
		d.put64(a, at)
		if r.badAddr {
			d.put64(a, 0x10)
		}
		at += uint64(len(b))
		w3 := uint32(r.hlen) | r.om<<10
		if i == len(r.parts)-1 && !r.noEOP {
			w3 |= 1 << 12
			if !r.noCQ {
				w3 |= 1 << 13
			}
		}
		if r.tagged {
			w3 |= 1<<15 | uint32(r.tag)<<16
		}
		d.put32(a+12, w3)
		gen := x.gen
		if i == 0 {
			gen ^= 1
		}
		w2 := uint32(len(b)&0x3fff) | gen<<14 | uint32(r.mss)<<18
		if r.dtype {
			w2 |= 1 << 16
		}
		bus.Word(d.mem.Bytes(), int(a-testIOVA)+8).Store(w2)
		if x.next++; x.next == x.size {
			x.next = 0
			x.gen ^= 1
		}
	}
	w := bus.Word(d.mem.Bytes(), int(x.ring-testIOVA)+first*16+8)
	w.Store(w.Load() ^ 1<<14)
}

func (x *ttx) bell() { x.d.pt.Write32(0x600+8*uint32(x.id), uint32(x.next)) }

// send puts, rings, and lets the device work.
func (x *ttx) send(r txReq) {
	x.put(r)
	x.bell()
	x.d.step()
}

// completed returns the indices of new completions.
func (x *ttx) completed() (idx []int) {
	for {
		at := int(x.comp-testIOVA) + x.compNext*16
		w3 := bus.Word(x.d.mem.Bytes(), at+12).Load()
		if w3>>31 != x.compGen {
			return idx
		}
		i := int(binary.LittleEndian.Uint32(x.d.mem.Bytes()[at:]) & 0xfff)
		idx = append(idx, i)
		for {
			c := x.clean
			x.clean = (c + 1) % x.size
			x.free++
			if c == i {
				break
			}
		}
		if x.compNext++; x.compNext == x.size {
			x.compNext = 0
			x.compGen ^= 1
		}
	}
}

// fired tells how often vector v was signalled since it was asked last.
func (d *tdriver) fired(v int) int {
	d.events[v].Signal()
	n, err := d.events[v].Wait(context.Background())
	must(d.t, err)
	return int(n) - 1
}
