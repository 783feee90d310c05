package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"

	"nicd/framework"
	"nicd/internal/checksum"
)

// nullRx is a receive queue on which a packet has always arrived in each posted
// buffer.
type nullRx struct {
	ring       [1024]framework.Buffer
	head, tail uint32
	len        uint32
	flags      framework.PacketFlags
	write      func(framework.Buffer)
}

func (r *nullRx) Poll(dst *framework.Batch) framework.Verdict {
	n := min(cap(dst.Packets), int(r.tail-r.head))
	dst.Packets, dst.Frags = dst.Packets[:n], dst.Frags[:n]
	for i := range n {
		b := r.ring[r.head%uint32(len(r.ring))]
		r.head++
		if r.write != nil {
			r.write(b)
		}
		dst.Frags[i] = framework.Fragment{Buffer: b, Offset: framework.RxOffset, Len: r.len}
		dst.Packets[i] = framework.Packet{First: uint32(i), Frags: 1, Len: r.len, Flags: r.flags}
	}
	return framework.Healthy
}

func (r *nullRx) Post(bufs []framework.Buffer) int {
	n := min(len(bufs), len(r.ring)-1-int(r.tail-r.head))
	for _, b := range bufs[:n] {
		r.ring[r.tail%uint32(len(r.ring))] = b
		r.tail++
	}
	return n
}

func (r *nullRx) Bell()         {}
func (r *nullRx) Pending() bool { return r.head != r.tail }

// nullTx is a transmit queue that sends at once.
type nullTx struct{ done int }

func (t *nullTx) Put(b *framework.Batch, from int) int {
	n := len(b.Packets) - from
	t.done += n
	return n
}

func (t *nullTx) Bell() {}

func (t *nullTx) Completed(max int) int {
	n := min(max, t.done)
	t.done -= n
	return n
}

func (t *nullTx) Pending() bool { return t.done > 0 }

// directUpper is an Upper in one goroutine: what is received is dropped, or sent
// back out, as testpmd's io mode does.
type directUpper struct {
	forward bool
	taken   framework.Batch
	next    int // of taken
	back    []framework.Buffer
}

func (u *directUpper) Deliver(q int, b *framework.Batch) int {
	if u.forward {
		if len(u.taken.Packets) != 0 {
			return 0
		}
		u.taken.Packets = append(u.taken.Packets, b.Packets...)
		u.taken.Frags = append(u.taken.Frags, b.Frags...)
		return len(b.Packets)
	}
	for i := range b.Frags {
		u.back = append(u.back, b.Frags[i].Buffer)
	}
	return len(b.Packets)
}

func (u *directUpper) Reclaim(q int, dst []framework.Buffer) int {
	n := copy(dst, u.back)
	u.back = u.back[:copy(u.back, u.back[n:])]
	return n
}

func (u *directUpper) Take(q int, b *framework.Batch) {
	n := min(cap(b.Packets), len(u.taken.Packets)-u.next)
	for i := u.next; i < u.next+n; i++ {
		p := u.taken.Packets[i]
		f := u.taken.Frags[p.First] // all have one
		p.First = uint32(len(b.Frags))
		b.Packets = append(b.Packets, p)
		b.Frags = append(b.Frags, f)
	}
	if u.next += n; u.next == len(u.taken.Packets) {
		u.taken.Reset()
		u.next = 0
	}
}

func (u *directUpper) Complete(q int, bufs []framework.Buffer) { u.back = append(u.back, bufs...) }
func (u *directUpper) ArmRx(int) bool                          { return false }
func (u *directUpper) ArmTx(int) bool                          { return false }
func (u *directUpper) SetWaker(int, func(), func())            {}

// bench runs the pipelines of one pair over null queues, without goroutines, so
// that what is measured is the engine's work on a packet.
func bench(b *testing.B, forward bool, owner framework.LROOwner, rx *nullRx) {
	benchOn(b, forward, owner, rx, newBuffers(2048), 0)
}

func benchOn(b *testing.B, forward bool, owner framework.LROOwner, rx *nullRx, buffers *framework.Buffers, budget int) {
	up := &directUpper{forward: forward, back: make([]framework.Buffer, 0, 8192)}
	e, err := New(newFakeDevice(1), up, Options{
		Buffers:   buffers,
		RxBuffers: []BufferRange{{0, 1900}},
		TxBuffers: []BufferRange{{1900, 100}},
	})
	if err != nil {
		b.Fatal(err)
	}
	e.plan = Plan{
		Settings: framework.Settings{MTU: 1500, Features: framework.AllFeatures},
		RxQueues: 1, TxQueues: 1, RxDescriptors: 1024, TxDescriptors: 1024, LRO: owner, RxBudget: budget,
	}
	e.linkUp.Store(true)
	e.adopt(framework.Queues{Rx: []framework.RxQueue{rx}, Tx: []framework.TxQueue{&nullTx{}}})
	e.setRules(&e.plan)
	e.setMergers(&e.plan)
	t := newTask(0, e.rx[0], e.tx[0])
	b.ReportAllocs()
	for b.Loop() {
		t.round(0)
	}
	b.StopTimer()
	n := e.rx[0].count[RxPackets]
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/packet")
	b.ReportMetric(float64(n)/float64(b.N), "packets/op")
	if forward && e.tx[0].count[TxCompleted] < n-2*txBatch {
		b.Fatalf("%d received, %d sent", n, e.tx[0].count[TxCompleted])
	}
	if owner == framework.LROSoftware && e.rx[0].count[RxSoftwareSegments] < n*9/10 {
		b.Fatalf("%d received, %d merged", n, e.rx[0].count[RxSoftwareSegments])
	}
}

// BenchmarkBudget is what DefaultRxBudget was chosen by.
func BenchmarkBudget(b *testing.B) {
	for _, n := range []int{8, 16, 32, 64, 128, 256} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchOn(b, false, framework.LRONone, &nullRx{len: 60}, newBuffers(2048), n) })
	}
}

func BenchmarkReceive(b *testing.B) { bench(b, false, framework.LRONone, &nullRx{len: 60}) }
func BenchmarkForward(b *testing.B) { bench(b, true, framework.LRONone, &nullRx{len: 60}) }

func BenchmarkReceiveLRO(b *testing.B) {
	rx := &nullRx{len: 1514, flags: framework.ChecksumVerified}
	buffers := newBuffers(2048)
	next, template := uint32(0), make([]byte, 1514)
	rx.write = func(buf framework.Buffer) {
		// What a sender and a device would write: only the headers, so that the
		// benchmark does not measure copying.
		f := buffers.Bytes(framework.Fragment{Buffer: buf, Offset: framework.RxOffset, Len: 1514})
		if next == 0 {
			tcp(template, 1, 0, 0, 0x10)
		}
		id := uint16(next)
		copy(f[:54], template[:54])
		binary.BigEndian.PutUint16(f[18:], id)
		f[24], f[25] = 0, 0
		binary.BigEndian.PutUint16(f[24:], ^checksum.Sum(f[14:34]))
		binary.BigEndian.PutUint32(f[38:], next*1460)
		next++
	}
	benchOn(b, false, framework.LROSoftware, rx, buffers, 0)
}

// BenchmarkTasks compares one task for a pair of queues with two, at full speed
// over null queues: two pairs, everything forwarded.
func BenchmarkTasks(b *testing.B) {
	for _, separate := range []bool{false, true} {
		b.Run(fmt.Sprintf("separate=%v", separate), func(b *testing.B) { benchTasks(b, separate) })
	}
}

func benchTasks(b *testing.B, separate bool) {
	const pairs = 2
	dev := &nullDevice{fakeDevice: newFakeDevice(pairs)}
	up := &lockedUpper{}
	o := Options{Buffers: newBuffers(pairs * 2048), SeparateTasks: separate}
	p := Plan{
		Settings: framework.Settings{MTU: 1500}, RxQueues: pairs, TxQueues: pairs,
		RxDescriptors: 1024, TxDescriptors: 1024, LRO: framework.LRONone,
	}
	for q := range pairs {
		o.RxBuffers = append(o.RxBuffers, BufferRange{framework.Buffer(q * 2048), 2048})
		up.pairs[q].direct = directUpper{forward: true}
	}
	e, err := New(dev, up, o)
	if err != nil {
		b.Fatal(err)
	}
	if err := e.Start(context.Background(), p); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	done := func() uint64 {
		s := e.Counters()
		return s.Tx[0][TxCompleted] + s.Tx[1][TxCompleted]
	}
	for base := done(); done()-base < 64*uint64(b.N); {
		time.Sleep(50 * time.Microsecond)
	}
	b.StopTimer()
	s := e.Counters()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(64*b.N), "ns/packet")
	b.ReportMetric(float64(s.Rx[0][RxDropPortFull]+s.Rx[1][RxDropPortFull])/float64(s.Rx[0][RxPackets]+s.Rx[1][RxPackets]), "dropped")
	_ = e.Detach(context.Background())
}

// nullDevice is a device of null queues.
type nullDevice struct{ *fakeDevice }

func (d *nullDevice) Start(cfg framework.Config) (framework.Queues, error) {
	var q framework.Queues
	for range cfg.RxQueues {
		q.Rx = append(q.Rx, &nullRx{len: 60})
		q.Tx = append(q.Tx, &nullTx{})
	}
	return q, nil
}

// lockedUpper forwards within a pair, whichever tasks serve it.
type lockedUpper struct {
	pairs [2]struct {
		mu     sync.Mutex
		direct directUpper
		wakeTx func()
		_      [64]byte
	}
}

func (u *lockedUpper) Deliver(q int, b *framework.Batch) int {
	p := &u.pairs[q]
	p.mu.Lock()
	n := 0
	if len(p.direct.taken.Packets) == 0 {
		n = p.direct.Deliver(q, b)
	}
	p.mu.Unlock()
	p.wakeTx()
	return n
}

func (u *lockedUpper) Reclaim(q int, dst []framework.Buffer) int {
	p := &u.pairs[q]
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.direct.Reclaim(q, dst)
}

func (u *lockedUpper) Take(q int, b *framework.Batch) {
	p := &u.pairs[q]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.direct.Take(q, b)
}

func (u *lockedUpper) Complete(q int, bufs []framework.Buffer) {
	p := &u.pairs[q]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.direct.Complete(q, bufs)
}

func (u *lockedUpper) ArmRx(int) bool { return false }

func (u *lockedUpper) ArmTx(q int) bool {
	p := &u.pairs[q]
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.direct.taken.Packets) > 0
}

func (u *lockedUpper) SetWaker(q int, rx, tx func()) { u.pairs[q].wakeTx = tx }

// tcp writes a TCP segment's headers over IPv4 to f, which has room for the
// payload too.
func tcp(f []byte, flow uint16, id uint16, seq uint32, flags byte) {
	copy(f, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2})
	ip, t := f[14:34], f[34:]
	binary.BigEndian.PutUint16(ip[2:], uint16(len(f)-14))
	binary.BigEndian.PutUint16(ip[4:], id)
	ip[10], ip[11] = 0, 0
	binary.BigEndian.PutUint16(ip[10:], ^checksum.Sum(ip))
	clear(t[:20])
	binary.BigEndian.PutUint16(t, 1000+flow)
	binary.BigEndian.PutUint16(t[2:], 80)
	binary.BigEndian.PutUint32(t[4:], seq)
	t[12], t[13] = 0x50, flags
	binary.BigEndian.PutUint16(t[14:], 0xffff)
	sum := checksum.Add(checksum.Pseudo4(ip[12:20], 6, len(t)), checksum.Sum(t))
	binary.BigEndian.PutUint16(t[16:], ^sum)
}
