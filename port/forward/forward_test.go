package forward

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"nicd/framework"
	"nicd/gso"
	"nicd/internal/checksum"
)

func newRand(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// nic is an interface that segments what it is sent, as an engine does, and keeps
// the frames.
type nic struct {
	t      testing.TB
	mu     sync.Mutex
	memory framework.Buffers
	mtu    int
	free   []framework.Buffer
	count  int
	frames [][]byte
	full   bool
	keep   bool
}

func newNIC(t testing.TB, mtu, size, count int) *nic {
	n := &nic{t: t, mtu: mtu, count: count, keep: true}
	stride := size + 64
	n.memory = framework.Buffers{Memory: make([]byte, stride*count), Stride: uint32(stride), Size: uint32(size), Count: uint32(count)}
	for b := range framework.Buffer(count) {
		n.free = append(n.free, b)
	}
	return n
}

func (n *nic) Name() string                 { return "nic" }
func (n *nic) Settings() framework.Settings { return framework.Settings{MTU: n.mtu} }
func (n *nic) Queues() int                  { return 1 }
func (n *nic) Buffers() *framework.Buffers  { return &n.memory }

func (n *nic) Alloc(_ int, dst []framework.Buffer) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	got := min(len(dst), len(n.free))
	copy(dst, n.free[len(n.free)-got:])
	n.free = n.free[:len(n.free)-got]
	return got
}

func (n *nic) Release(_ int, bufs []framework.Buffer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.free = append(n.free, bufs...)
	if len(n.free) > n.count {
		n.t.Error("a buffer was given back twice")
	}
}

func (n *nic) Send(q int, b *framework.Batch) int {
	if n.full {
		return 0
	}
	for i := range b.Packets {
		if n.keep {
			n.send(&b.Packets[i], b.Fragments(i))
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range b.Frags {
		n.free = append(n.free, b.Frags[i].Buffer)
	}
	return len(b.Packets)
}

func (n *nic) send(p *framework.Packet, frags []framework.Fragment) {
	var frame []byte
	for _, f := range frags {
		frame = append(frame, n.memory.Bytes(f)...)
	}
	if p.Flags&framework.VLANTag != 0 {
		frame = withTag(frame, p.VLAN)
	}
	if p.Flags&framework.Segment == 0 {
		if p.Flags&framework.ChecksumPartial != 0 {
			if err := gso.FillChecksum([][]byte{frame}, int(p.ChecksumStart), int(p.ChecksumOffset)); err != nil {
				n.t.Error(err)
			}
		}
		n.frames = append(n.frames, frame)
		return
	}
	h, err := gso.Parse(frame)
	if err != nil || h.HeaderLen != p.HeaderLen {
		n.t.Errorf("%+v: %v", p, err)
		return
	}
	h.SegmentSize = p.SegmentSize
	var s gso.Segmenter
	if err := s.Reset([][]byte{frame}, h); err != nil {
		n.t.Error(err)
	}
	for range s.Segments() {
		out := make([]byte, h.HeaderLen)
		refs, _ := s.Next(out, nil)
		for _, r := range refs {
			out = append(out, frame[r.Offset:r.Offset+r.Len]...)
		}
		n.frames = append(n.frames, out)
	}
}

func (n *nic) census() {
	n.t.Helper()
	if len(n.free) != n.count {
		n.t.Errorf("%d of %d buffers are free", len(n.free), n.count)
	}
}

// receive delivers frames to a port as one batch.
func (n *nic) receive(p *Port, queue int, packets []framework.Packet, frames ...[]byte) {
	b := framework.NewBatch(len(frames), len(frames)*framework.MaxFragments)
	for i, frame := range frames {
		pkt := framework.Packet{First: uint32(len(b.Frags)), Len: uint32(len(frame))}
		if packets != nil {
			pkt.Flags, pkt.VLAN, pkt.Segments, pkt.SegmentSize = packets[i].Flags, packets[i].VLAN, packets[i].Segments, packets[i].SegmentSize
		}
		for len(frame) > 0 {
			var one [1]framework.Buffer
			if n.Alloc(0, one[:]) != 1 {
				n.t.Fatal("out of buffers")
			}
			f := framework.Fragment{Buffer: one[0], Offset: framework.RxOffset, Len: min(n.memory.Size, uint32(len(frame)))}
			copy(n.memory.Bytes(f), frame)
			frame = frame[f.Len:]
			b.Frags = append(b.Frags, f)
			pkt.Frags++
		}
		b.Packets = append(b.Packets, pkt)
	}
	p.Deliver(queue, b)
}

func (n *nic) take() [][]byte {
	f := n.frames
	n.frames = nil
	return f
}

type clock struct{ now time.Time }

// bridge is a bridge of as many ports, with links up.
func bridge(t testing.TB, o Options, nics ...*nic) (*Bridge, []*Port) {
	b := NewBridge(o)
	var ports []*Port
	for _, n := range nics {
		p := b.NewPort()
		if err := p.Attach(n); err != nil {
			t.Fatal(err)
		}
		p.LinkChanged(framework.Link{Up: true})
		ports = append(ports, p)
	}
	t.Cleanup(func() {
		for i, p := range ports {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			nics[i].census()
		}
	})
	return b, ports
}

func frame(to, from byte) []byte {
	return append([]byte{2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x88, 0xb5}, make([]byte, 46)...)
}

func TestLearning(t *testing.T) {
	c := &clock{time.Now()}
	nics := []*nic{newNIC(t, 1500, 2048, 400), newNIC(t, 1500, 2048, 400), newNIC(t, 1500, 2048, 400)}
	b, ports := bridge(t, Options{Age: 10 * time.Second, Now: func() time.Time { return c.now }}, nics...)
	got := func(what string, want ...int) {
		t.Helper()
		for i, n := range nics {
			if f := n.take(); len(f) != want[i] {
				t.Errorf("%s: port %d sent %d frames, want %d", what, i, len(f), want[i])
			}
		}
	}
	nics[0].receive(ports[0], 0, nil, frame(2, 1))
	got("unknown address", 0, 1, 1)
	nics[1].receive(ports[1], 0, nil, frame(1, 2))
	got("known address", 1, 0, 0)
	nics[0].receive(ports[0], 5, nil, frame(2, 1), frame(2, 1))
	got("now the other is known too", 0, 2, 0)
	nics[1].receive(ports[1], 0, nil, frame(2, 9))
	got("to where it came from", 0, 0, 0)
	broadcast := frame(0, 1)
	copy(broadcast, []byte{255, 255, 255, 255, 255, 255})
	nics[0].receive(ports[0], 0, nil, broadcast)
	got("broadcast", 0, 1, 1)
	stp := frame(0, 1)
	copy(stp, []byte{1, 0x80, 0xc2, 0, 0, 0})
	nics[0].receive(ports[0], 0, nil, stp)
	got("reserved address", 0, 0, 0)
	nics[2].receive(ports[2], 0, nil, frame(2, 1))
	got("moved", 0, 1, 0)
	nics[1].receive(ports[1], 0, nil, frame(1, 2))
	got("to where it moved", 0, 0, 1)
	c.now = c.now.Add(11 * time.Second)
	nics[0].receive(ports[0], 0, nil, frame(2, 7))
	got("forgotten", 0, 1, 1)
	nics[1].receive(ports[1], 0, nil, frame(7, 2))
	got("learned again", 1, 0, 0)
	ports[0].LinkChanged(framework.Link{})
	nics[1].receive(ports[1], 0, nil, frame(7, 2))
	got("behind a dead link", 0, 0, 1)
	s := b.Stats()
	if s.Moved != 1 || s.TooLong+s.Full != 0 || s.Filtered != 2 {
		t.Errorf("%+v", s)
	}
}

// The table never grows, keeps the newest, and never says what it was not told.
func TestTableIsBounded(t *testing.T) {
	r := newRand(t)
	tab := newTable(64, 100)
	where := map[uint64]int{}
	for now := range uint32(5000) {
		address, port := r.Uint64N(1<<48), r.IntN(16)
		tab.learn(address, port, now)
		where[address] = port
		if p, ok := tab.lookup(address, now); !ok || p != port {
			t.Fatalf("the newest is not there: %d %v", p, ok)
		}
		other := r.Uint64N(1 << 48)
		if p, ok := tab.lookup(other, now); ok && where[other] != p {
			t.Fatal("it was never told that")
		}
	}
	if n := tab.size(5000); n > 64 || n < 32 {
		t.Errorf("%d entries", n)
	}
	if tab.evicted.Load() == 0 {
		t.Error("nothing gave way")
	}
}

// tcp makes n TCP segments with right checksums and the don't-fragment bit.
func tcp(r *rand.Rand, ipv6 bool, n, size int) [][]byte {
	var frames [][]byte
	for i := range n {
		body := make([]byte, 20+size)
		for j := 20; j < len(body); j++ {
			body[j] = byte(r.Uint32())
		}
		binary.BigEndian.PutUint32(body[4:], uint32(i*size))
		body[12], body[13] = 5<<4, 0x10
		f := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1}
		var pseudo uint16
		if ipv6 {
			ip := append([]byte{0x60, 0, 0, 0, byte(len(body) >> 8), byte(len(body)), 6, 64}, bytes.Repeat([]byte{0xfd}, 32)...)
			f = append(append(f, 0x86, 0xdd), ip...)
			pseudo = checksum.Pseudo6(ip[8:], 6, len(body))
		} else {
			total := 20 + len(body)
			ip := []byte{0x45, 0, byte(total >> 8), byte(total), 0, byte(i), 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}
			binary.BigEndian.PutUint16(ip[10:], ^checksum.Sum(ip))
			f = append(append(f, 8, 0), ip...)
			pseudo = checksum.Pseudo4(ip[12:], 6, len(body))
		}
		binary.BigEndian.PutUint16(body[16:], ^checksum.Add(pseudo, checksum.Sum(body)))
		frames = append(frames, append(f, body...))
	}
	return frames
}

func merge(frames [][]byte) []byte {
	h, _ := gso.Parse(frames[0])
	whole := bytes.Clone(frames[0])
	for _, f := range frames[1:] {
		whole = append(whole, f[h.HeaderLen:]...)
	}
	return whole
}

// What came in coalesced goes out as the frames that it was made of, between
// buffers of different sizes, and no frame is longer than the egress MTU.
func TestCoalescedIsNotNoticed(t *testing.T) {
	r := newRand(t)
	for _, ipv6 := range []bool{false, true} {
		in, out := newNIC(t, 9000, 1024, 400), newNIC(t, 1500, 2048, 400)
		b, ports := bridge(t, Options{}, in, out)
		for range 100 {
			most := 1500 - 40
			if ipv6 {
				most -= 20
			}
			want := tcp(r, ipv6, 2+r.IntN(30), most-r.IntN(100))
			whole := merge(want)
			h, _ := gso.Parse(whole)
			p := framework.Packet{Flags: framework.Coalesced | framework.ChecksumVerified, SegmentSize: uint16(len(want[0]) - int(h.HeaderLen)), Segments: uint16(len(want))}
			in.receive(ports[0], 0, []framework.Packet{p}, whole)
			got := out.take()
			if len(got) != len(want) {
				t.Fatalf("%d frames, want %d; %+v", len(got), len(want), b.Stats())
			}
			for i := range got {
				if !bytes.Equal(got[i], want[i]) || len(got[i]) > 1514 {
					t.Fatalf("frame %d of %d is another", i, len(want))
				}
			}
		}
	}
}

// A size that the device did not tell is guessed so that it fits: not dropped. That
// goes for a packet, too, that is shorter than a segment could be where it came from.
func TestUnknownSize(t *testing.T) {
	r := newRand(t)
	for _, segments := range []int{3, 10} {
		in, out := newNIC(t, 9000, 1024, 400), newNIC(t, 1500, 2048, 400)
		b, ports := bridge(t, Options{}, in, out)
		whole := merge(tcp(r, false, segments, 1460))
		p := framework.Packet{Flags: framework.Coalesced | framework.ChecksumVerified}
		in.receive(ports[0], 0, []framework.Packet{p}, bytes.Clone(whole))
		var stream []byte
		for _, f := range out.take() {
			if len(f) > 1514 {
				t.Errorf("%d segments: a frame of %d bytes", segments, len(f))
			}
			stream = append(stream, f[54:]...)
		}
		if !bytes.Equal(stream, whole[54:]) {
			t.Errorf("%d segments: %d bytes of %d; %+v", segments, len(stream), len(whole)-54, b.Stats())
		}
	}
}

// What was coalesced and not verified is not sent on with a checksum that is right.
func TestUnverifiedIsDropped(t *testing.T) {
	r := newRand(t)
	in, out := newNIC(t, 9000, 1024, 400), newNIC(t, 9000, 2048, 400)
	b, ports := bridge(t, Options{}, in, out)
	for _, verdict := range []framework.PacketFlags{0, framework.ChecksumBad} {
		p := framework.Packet{Flags: framework.Coalesced | verdict, SegmentSize: 1000, Segments: 3}
		in.receive(ports[0], 0, []framework.Packet{p}, merge(tcp(r, false, 3, 1000)))
	}
	if got, s := out.take(), b.Stats(); len(got) != 0 || s.Unverified != 2 || s.Forwarded != 0 {
		t.Errorf("%d frames; %+v", len(got), s)
	}
}

// What does not fit as it was sent is dropped and counted; so is what finds the
// queue full, or no buffer.
func TestDrops(t *testing.T) {
	in, out := newNIC(t, 9000, 2048, 400), newNIC(t, 1500, 2048, 8)
	b, ports := bridge(t, Options{}, in, out)
	in.receive(ports[0], 0, nil, append(frame(2, 1), make([]byte, 1500)...))
	if s := b.Stats(); s.TooLong != 1 || len(out.take()) != 0 {
		t.Errorf("too long: %+v", s)
	}
	tagged := append(frame(2, 1)[:12], 0x81, 0, 0, 5, 0x88, 0xb5)
	in.receive(ports[0], 0, nil, append(tagged, make([]byte, 1500)...))
	if s := b.Stats(); s.TooLong != 1 || len(out.take()) != 1 {
		t.Errorf("a tag is not the MTU's: %+v", s)
	}
	out.full = true
	in.receive(ports[0], 0, nil, frame(2, 1))
	if s := b.Stats(); s.Full != 1 {
		t.Errorf("full: %+v", s)
	}
	out.full = false
	var many [][]byte
	for range 10 {
		many = append(many, frame(2, 1))
	}
	in.receive(ports[0], 0, nil, many...)
	if s := b.Stats(); s.Full != 3 || len(out.take()) != 8 {
		t.Errorf("no buffers: %+v", s)
	}
}

// Ports come and go while others deliver.
func TestComeAndGo(t *testing.T) {
	r := newRand(t)
	in, out := newNIC(t, 1500, 2048, 4000), newNIC(t, 1500, 2048, 400)
	in.keep, out.keep = false, false
	b, ports := bridge(t, Options{}, in)
	stop := make(chan struct{})
	var senders sync.WaitGroup
	for q := range 2 {
		senders.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					in.receive(ports[0], q, nil, frame(2, 1), frame(3, 1))
				}
			}
		})
	}
	for range 200 {
		p := b.NewPort()
		if err := p.Attach(out); err != nil {
			t.Fatal(err)
		}
		p.LinkChanged(framework.Link{Up: true})
		for range r.IntN(20) {
			out.receive(p, 0, nil, frame(1, 2))
		}
		p.Close()
		out.mu.Lock()
		free := len(out.free)
		out.mu.Unlock()
		if free != out.count {
			t.Fatalf("%d of %d buffers after Close", free, out.count)
		}
	}
	close(stop)
	senders.Wait()
	if b.Stats().Forwarded == 0 {
		t.Error("nothing was forwarded")
	}
}

func BenchmarkForward(b *testing.B) {
	for _, size := range []int{64, 1500} {
		b.Run(strconv.Itoa(size), func(b *testing.B) { benchmark(b, size) })
	}
}

func benchmark(b *testing.B, size int) {
	in, out := newNIC(b, 1500, 2048, 400), newNIC(b, 1500, 2048, 400)
	in.keep, out.keep = false, false
	_, ports := bridge(b, Options{}, in, out)
	const batch = 32
	batches := framework.NewBatch(batch, batch)
	bufs := make([]framework.Buffer, batch)
	f := append(frame(2, 1), make([]byte, size)...)[:size]
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += batch {
		in.Alloc(0, bufs)
		batches.Reset()
		for i, buf := range bufs {
			frag := framework.Fragment{Buffer: buf, Offset: 2, Len: uint32(size)}
			copy(in.memory.Bytes(frag), f[:14])
			batches.Frags = append(batches.Frags, frag)
			batches.Packets = append(batches.Packets, framework.Packet{First: uint32(i), Frags: 1, Len: uint32(size)})
		}
		ports[0].Deliver(0, batches)
	}
}
