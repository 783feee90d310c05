package e1000

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"nicd/bus"
	"nicd/sim"
)

// nic is a driver for tests, as small as can be: it knows registers and
// descriptors by number from the documents, and no more than a test needs.
type nic struct {
	t     testing.TB
	clock *sim.ManualClock
	m     *Model
	dev   *sim.Device
	bar   bus.Region
	mem   *bus.Memory
	ext   bool // extended receive descriptors
	rx    [2]ringState
	tx    [2]ringState
	n     uint32 // descriptors in a ring
}

type ringState struct{ next, tail uint32 }

const (
	iova     = 0x4000_0000
	memSize  = 3 << 20
	rxRings  = 0       // two rings of 64 KiB
	txRings  = 0x20000 // two rings of 64 KiB
	rxBufs   = 0x100000
	txBufs   = 0x200000
	bufPitch = 0x1000
	ringN    = 64
)

func newNIC(t testing.TB, wire *sim.Wire, clock *sim.ManualClock, o Options) *nic {
	t.Helper()
	return newNICBy(t, wire, clock, clock, o)
}

// newNICBy is newNIC for a model that tells the time by another clock.
func newNICBy(t testing.TB, wire *sim.Wire, clock *sim.ManualClock, by sim.Clock, o Options) *nic {
	t.Helper()
	n := &nic{t: t, clock: clock, m: New(o), n: ringN, ext: o.Kind == I82574L}
	dev, err := sim.NewDevice(n.m, sim.Options{Name: "em", Clock: by, HeapDoorbells: true, Passive: true})
	if err != nil {
		t.Fatal(err)
	}
	n.dev = dev
	t.Cleanup(func() { dev.Close() })
	n.mem = bus.HeapMemory(memSize)
	if err := dev.MapDMA(n.mem, iova); err != nil {
		t.Fatal(err)
	}
	if err := dev.WriteConfig(4, 2, 7); err != nil {
		t.Fatal(err)
	}
	n.bar, err = dev.Region(bus.BAR0)
	if err != nil {
		t.Fatal(err)
	}
	if wire != nil {
		wire.Connect(n.m)
	}
	return n
}

func (n *nic) r(off uint32) uint32    { return n.bar.Read32(off) }
func (n *nic) w(off, v uint32)        { n.bar.Write32(off, v) }
func (n *nic) set(off, bits uint32)   { n.w(off, n.r(off)|bits) }
func (n *nic) clear(off, bits uint32) { n.w(off, n.r(off)&^bits) }
func (n *nic) mac() [6]byte           { return n.m.opt.MAC }

// work runs the model until it has nothing to do.
func (n *nic) work() {
	for n.m.Work(64) {
	}
}

// start brings up link and rings, with bits added to RCTL.
func (n *nic) start(rctl uint32) {
	n.clock.Advance(DefaultAutonegotiation)
	n.work()
	if n.ext {
		n.set(0x5008, 1<<15)
	}
	for q := range uint32(n.m.opt.Kind.queues()) {
		n.setupRing(0x2800+q*0x100, rxRings+q*0x10000)
		n.setupRing(0x3800+q*0x100, txRings+q*0x10000)
		n.rx[q], n.tx[q] = ringState{}, ringState{}
	}
	n.w(0x100, 1<<1|1<<15|1<<26|rctl) // EN, BAM, SECRC
	n.w(0x400, 1<<1|1<<3)             // EN, PSP
	for q := range n.m.opt.Kind.queues() {
		n.post(q, int(n.n-1))
	}
}

func (n *nic) setupRing(reg, at uint32) {
	n.w(reg, iova+at)
	n.w(reg+4, 0)
	n.w(reg+8, n.n*16)
	n.w(reg+0x10, 0)
	n.w(reg+0x18, 0)
}

func (n *nic) rxDesc(q int, i uint32) []byte { return n.mem.Bytes()[rxRings+q*0x10000+int(i)*16:][:16] }
func (n *nic) txDesc(q int, i uint32) []byte { return n.mem.Bytes()[txRings+q*0x10000+int(i)*16:][:16] }
func (n *nic) rxBuf(q int, i uint32) uint32 {
	return rxBufs + uint32(q)*ringN*bufPitch + i*bufPitch
}

// post gives the device count buffers.
func (n *nic) post(q, count int) {
	r := &n.rx[q]
	for range count {
		d := n.rxDesc(q, r.tail)
		clear(d)
		binary.LittleEndian.PutUint64(d, uint64(iova+n.rxBuf(q, r.tail)))
		r.tail = (r.tail + 1) % n.n
	}
	n.w(0x2818+uint32(q)*0x100, r.tail)
}

// got is a received packet.
type got struct {
	data   []byte
	status uint32 // low bits as in legacy
	errors uint32
	vlan   uint16
	sum    uint16
	hash   uint32
	mrq    uint32
	descs  int
}

// recv takes the next packet out of a receive ring, if there is one.
func (n *nic) recv(q int) (g got, ok bool) {
	r := &n.rx[q]
	start := *r
	for {
		d := n.rxDesc(q, r.next)
		status, length, eop := uint32(d[12]), binary.LittleEndian.Uint16(d[8:]), false
		if n.ext {
			status, length = binary.LittleEndian.Uint32(d[8:]), binary.LittleEndian.Uint16(d[12:])
		}
		if status&1 == 0 {
			*r = start
			return got{}, false
		}
		g.data = append(g.data, n.mem.Bytes()[n.rxBuf(q, r.next):][:length]...)
		g.descs++
		if eop = status&2 != 0; eop {
			g.status = status
			g.sum = binary.LittleEndian.Uint16(d[10:])
			g.errors, g.vlan = uint32(d[13]), binary.LittleEndian.Uint16(d[14:])
			if n.ext {
				g.errors = status >> 24
				g.mrq, g.hash = binary.LittleEndian.Uint32(d), binary.LittleEndian.Uint32(d[4:])
				g.sum = binary.LittleEndian.Uint16(d[6:])
			}
		}
		r.next = (r.next + 1) % n.n
		if eop {
			return g, true
		}
	}
}

func (n *nic) mustRecv(q int) got {
	n.t.Helper()
	g, ok := n.recv(q)
	if !ok {
		n.t.Fatal("nothing received")
	}
	return g
}

// put writes a transmit descriptor without telling the device.
func (n *nic) put(q int, addr uint64, lower, upper uint32) uint32 {
	r := &n.tx[q]
	i := r.tail
	d := n.txDesc(q, i)
	binary.LittleEndian.PutUint64(d, addr)
	binary.LittleEndian.PutUint32(d[8:], lower)
	binary.LittleEndian.PutUint32(d[12:], upper)
	r.tail = (r.tail + 1) % n.n
	return i
}

// stage copies data to transmit memory and returns its device address.
func (n *nic) stage(at uint32, data []byte) uint64 {
	copy(n.mem.Bytes()[txBufs+at:], data)
	return uint64(iova + txBufs + at)
}

func (n *nic) ring(q int) {
	n.w(0x3818+uint32(q)*0x100, n.tx[q].tail)
	n.work()
}

// sendLegacy sends a frame by a legacy descriptor with EOP, IFCS, RS and cmd.
func (n *nic) sendLegacy(frame []byte, cmd uint32) uint32 {
	i := n.put(0, n.stage(0, frame), uint32(len(frame))|(1|2|8|cmd)<<24, 0)
	n.ring(0)
	return i
}

// txDone tells whether a descriptor was written back.
func (n *nic) txDone(q int, i uint32) bool { return n.txDesc(q, i)[12]&1 != 0 }

// context writes a context descriptor.
func (n *nic) context(q int, c txContext) {
	addr := uint64(c.ipcss) | uint64(c.ipcso)<<8 | uint64(c.ipcse)<<16 |
		uint64(c.tucss)<<32 | uint64(c.tucso)<<40 | uint64(c.tucse)<<48
	n.put(q, addr, c.paylen|uint32(c.tucmd|txCmdDEXT)<<24, uint32(c.hdrlen)<<8|uint32(c.mss)<<16)
}

// Frames.

type flow struct {
	v6       bool
	udp      bool
	src, dst byte // last bytes of the addresses
	sport    uint16
	dport    uint16
	flags    byte
	seq      uint32
}

// tcpip makes a frame with good checksums.
func tcpip(to [6]byte, f flow, payload []byte) []byte {
	b := append([]byte{}, to[:]...)
	b = append(b, 2, 0, 0, 0, 0, f.src)
	l4len := 20
	proto := byte(6)
	if f.udp {
		l4len, proto = 8, 17
	}
	total := l4len + len(payload)
	var pseudo []byte
	if f.v6 {
		b = append(b, 0x86, 0xDD, 0x60, 0, 0, 0, byte(total>>8), byte(total), proto, 64)
		b = append(b, 0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, f.src)
		b = append(b, 0xFE, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, f.dst)
		pseudo = append(pseudo, b[22:54]...)
	} else {
		ip := []byte{0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, 64, proto, 0, 0, 10, 0, 0, f.src, 10, 0, 0, f.dst}
		binary.BigEndian.PutUint16(ip[2:], uint16(20+total))
		binary.BigEndian.PutUint16(ip[10:], ^naiveSum(ip))
		b = append(append(b, 8, 0), ip...)
		pseudo = append(pseudo, ip[12:20]...)
	}
	l4 := len(b)
	if f.udp {
		b = binary.BigEndian.AppendUint16(b, f.sport)
		b = binary.BigEndian.AppendUint16(b, f.dport)
		b = binary.BigEndian.AppendUint16(b, uint16(total))
		b = append(b, 0, 0)
	} else {
		b = binary.BigEndian.AppendUint16(b, f.sport)
		b = binary.BigEndian.AppendUint16(b, f.dport)
		b = binary.BigEndian.AppendUint32(b, f.seq)
		b = append(b, 0, 0, 0, 1, 0x50, f.flags, 0x10, 0, 0, 0, 0, 0)
	}
	b = append(b, payload...)
	pseudo = append(pseudo, 0, proto, byte(total>>8), byte(total))
	at := checksumAt(b, f.udp, l4)
	binary.BigEndian.PutUint16(b[at:], ^naiveSum(append(pseudo, b[l4:]...)))
	return b
}

func checksumAt(b []byte, udp bool, l4 int) int {
	if udp {
		return l4 + 6
	}
	return l4 + 16
}

// naiveSum is RFC 1071 by the letter.
func naiveSum(b []byte) uint16 {
	s := uint32(0)
	for i, v := range b {
		if i&1 == 0 {
			s += uint32(v) << 8
		} else {
			s += uint32(v)
		}
	}
	for s > 0xFFFF {
		s = s>>16 + s&0xFFFF
	}
	return uint16(s)
}

// pseudo is the sum of a frame's pseudo-header with a length of n.
func pseudo(b []byte, v6, udp bool, n int) uint16 {
	proto := byte(6)
	if udp {
		proto = 17
	}
	at, end := 26, 34
	if v6 {
		at, end = 22, 54
	}
	return naiveSum(append(append([]byte{}, b[at:end]...), 0, proto, byte(n>>8), byte(n)))
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func newRand(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// kinds runs a test on both chips, at the end of a wire with a tester.
func kinds(t *testing.T, o Options, f func(t *testing.T, n *nic, peer *sim.Tester)) {
	run(t, Kinds(), o, f)
}

// throttled is kinds without the chip that can't hold interrupts back.
func throttled(t *testing.T, o Options, f func(t *testing.T, n *nic, peer *sim.Tester)) {
	run(t, []Kind{I82540EM, I82545EM, I82574L}, o, f)
}

func run(t *testing.T, kinds []Kind, o Options, f func(t *testing.T, n *nic, peer *sim.Tester)) {
	for _, k := range kinds {
		t.Run(k.String(), func(t *testing.T) {
			o := o
			o.Kind = k
			clock := &sim.ManualClock{}
			wire := sim.NewWire(sim.WireOptions{Clock: clock})
			t.Cleanup(wire.Close)
			n := newNIC(t, wire, clock, o)
			f(t, n, sim.NewTester(wire, sim.Wants{}))
		})
	}
}

// send puts frames on the wire and fails if they are not taken.
func send(t testing.TB, peer *sim.Tester, frames ...[]byte) {
	t.Helper()
	for _, b := range frames {
		if peer.Port().Send([]sim.Frame{sim.FrameOf(b)}) != 1 {
			t.Fatal("frame not taken")
		}
	}
}

func next(t testing.TB, peer *sim.Tester) []byte {
	t.Helper()
	g, ok := peer.TryNext()
	if !ok {
		t.Fatal("no frame on the wire")
	}
	return g.Bytes
}

func same(t testing.TB, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Fatalf("got %d bytes, want %d\n got %x\nwant %x", len(got), len(want), got[:min(len(got), 80)], want[:min(len(want), 80)])
	}
}
