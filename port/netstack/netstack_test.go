package netstack_test

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"nicd/framework"
	"nicd/internal/teststream"
	"nicd/port/netstack"
)

// wire is an interface whose frames go straight to another port, packet by
// packet, with the checksum vouched for: what a lossless link with checksum
// offload and LRO of whole frames looks like from a port.
type wire struct {
	mac      framework.MAC
	settings framework.Settings
	memory   framework.Buffers
	peer     framework.Port
	peerSide *wire
	work     chan received

	mu     sync.Mutex
	free   []framework.Buffer // for transmit
	rxFree []framework.Buffer
	starve bool
	queues int // 0 is 1
	used   [8]atomic.Uint64
	// longest is the longest frame that comes of what was sent.
	longest atomic.Uint64
	port    framework.Port
	vouch   bool // for checksums
}

type received struct {
	packet framework.Packet
	frags  []framework.Fragment
}

const testBuffers = 512

func newWire(last byte) *wire {
	w := &wire{
		mac:    framework.MAC{2, 0, 0, 0, 0, last},
		work:   make(chan received, testBuffers),
		memory: framework.Buffers{Memory: make([]byte, 2*testBuffers*2112), Stride: 2112, Size: 2048, Count: 2 * testBuffers},
	}
	w.settings = framework.Settings{MTU: 1500, MAC: w.mac, Features: framework.AllFeatures}
	for b := range framework.Buffer(testBuffers) {
		w.free = append(w.free, b)
		w.rxFree = append(w.rxFree, testBuffers+b)
	}
	return w
}

func (w *wire) Name() string                 { return "test" }
func (w *wire) Settings() framework.Settings { return w.settings }
func (w *wire) Queues() int                  { return max(w.queues, 1) }
func (w *wire) Buffers() *framework.Buffers  { return &w.memory }

func (w *wire) Alloc(_ int, dst []framework.Buffer) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := copy(dst, w.free)
	w.free = w.free[n:]
	w.starve = w.starve || n < len(dst)
	return n
}

func (w *wire) Release(_ int, bufs []framework.Buffer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range bufs {
		if b < testBuffers {
			w.free = append(w.free, b)
		} else {
			w.rxFree = append(w.rxFree, b)
		}
	}
}

func (w *wire) Send(queue int, b *framework.Batch) int {
	w.used[queue].Add(uint64(len(b.Packets)))
	for i := range b.Packets {
		p := &b.Packets[i]
		frame := uint64(p.Len)
		if p.Flags&framework.Segment != 0 {
			frame = uint64(p.HeaderLen) + uint64(p.SegmentSize)
		}
		w.longest.Store(max(w.longest.Load(), frame))
		frags := append([]framework.Fragment(nil), b.Fragments(i)...)
		select {
		case w.work <- received{b.Packets[i], frags}:
		default:
			w.mu.Lock()
			w.starve = true
			w.mu.Unlock()
			return i
		}
	}
	return len(b.Packets)
}

// run copies sent packets into the peer's receive buffers and delivers them.
func (w *wire) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-w.work:
			w.carry(r)
		}
	}
}

func (w *wire) carry(r received) {
	to := w.peerSide
	to.mu.Lock()
	enough := len(to.rxFree) >= len(r.frags)
	batch := framework.NewBatch(1, framework.MaxFragments)
	if enough {
		r.packet.First = 0
		r.packet.Flags = 0
		if w.vouch {
			r.packet.Flags = framework.ChecksumVerified
		}
		batch.Packets = append(batch.Packets, r.packet)
		for _, f := range r.frags {
			in := framework.Fragment{Buffer: to.rxFree[0], Offset: f.Offset, Len: f.Len}
			to.rxFree = to.rxFree[1:]
			copy(to.memory.Bytes(in), w.memory.Bytes(f))
			batch.Frags = append(batch.Frags, in)
		}
	}
	to.mu.Unlock()
	if enough {
		w.peer.Deliver(0, batch)
	}
	var back []framework.Buffer
	for _, f := range r.frags {
		back = append(back, f.Buffer)
	}
	w.Release(0, back)
	w.mu.Lock()
	starved := w.starve
	w.starve = false
	w.mu.Unlock()
	if starved {
		w.port.TxReady(0)
	}
}

func pair(t *testing.T, vouch bool) (a, b *netstack.Port) {
	t.Helper()
	return connect(t, newWire(1), newWire(2), vouch)
}

func connect(t *testing.T, wa, wb *wire, vouch bool) (a, b *netstack.Port) {
	t.Helper()
	wa.peerSide, wb.peerSide = wb, wa
	wa.vouch, wb.vouch = vouch, vouch
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	ports := make([]*netstack.Port, 2)
	for i, w := range []*wire{wa, wb} {
		p, err := netstack.New(netstack.Options{Addresses: []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 9, 0, byte(i + 1)}), 24),
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 15: byte(i + 1)}), 64),
		}})
		if err != nil {
			t.Fatal(err)
		}
		ports[i], w.port = p, p
		if err := p.Attach(w); err != nil {
			t.Fatal(err)
		}
	}
	wa.peer, wb.peer = ports[1], ports[0]
	for _, w := range []*wire{wa, wb} {
		running.Go(func() { w.run(ctx) })
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
		ports[0].Close()
		ports[1].Close()
	})
	return ports[0], ports[1]
}

// TestStream moves more data than all buffers and queues together hold, over
// both families: the sender has to be stopped and started again on the way.
func TestStream(t *testing.T) {
	for _, at := range []string{"10.9.0.2:5001", "[fd00::2]:5001"} {
		t.Run(at, func(t *testing.T) { stream(t, netip.MustParseAddrPort(at)) })
	}
}

func stream(t *testing.T, at netip.AddrPort) {
	client, server := pair(t, true)
	listener, err := server.Listen(at)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	teststream.Move(t, listener, func() (net.Conn, error) { return client.Dial(t.Context(), at) }, 8<<20)
	if s := client.Stats(); s.SegmentsSent == 0 || s.BacklogDropped != 0 {
		t.Errorf("stats %+v: want segments and no drops", s)
	}
}

func TestNeedsAnAddress(t *testing.T) {
	if _, err := netstack.New(netstack.Options{}); err == nil {
		t.Error("a port without an address was made")
	}
}

// TestUnverified: the wire carries checksums that the sender left to the device
// and that no device has filled in. Packets that nobody vouches for must be
// found out, so no connection comes about.
func TestUnverified(t *testing.T) {
	client, server := pair(t, false)
	at := netip.MustParseAddrPort("10.9.0.2:5001")
	listener, err := server.Listen(at)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	accepted := make(chan struct{})
	go func() {
		if _, err := listener.Accept(); err == nil {
			close(accepted)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, err := client.Dial(ctx, at)
	if err != nil {
		return // not even the handshake got through
	}
	defer c.Close()
	_, _ = c.Write(make([]byte, 10))
	for server.Stats().BadChecksums == 0 {
		select {
		case <-accepted:
			t.Fatal("a packet with a wrong checksum was taken for good")
		case <-ctx.Done():
			t.Fatal("no bad checksum was counted")
		case <-time.After(time.Millisecond):
		}
	}
}

// TestSettingsChange: a connection that was opened with a large MTU and many
// queues goes on when both become smaller, and larger again. No frame is ever
// longer than the MTU in force.
func TestSettingsChange(t *testing.T) {
	wa, wb := newWire(1), newWire(2)
	wa.settings.MTU, wb.settings.MTU = 9000, 9000
	wa.queues = 4
	client, server := connect(t, wa, wb, true)
	for _, family := range []string{"10.9.0.2:5001", "[fd00::2]:5001"} {
		at := netip.MustParseAddrPort(family)
		listener, err := server.Listen(at)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		go func() {
			c, err := listener.Accept()
			if err == nil {
				_, _ = io.Copy(c, c)
			}
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		c, err := client.Dial(ctx, at)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(30 * time.Second))
		echo := func(mtu, queues int) {
			t.Helper()
			wa.settings.MTU, wa.queues = mtu, queues
			if err := client.SettingsChanged(); err != nil {
				t.Fatal(err)
			}
			wa.longest.Store(0)
			for q := range wa.used {
				wa.used[q].Store(0)
			}
			data := make([]byte, 1<<20)
			go func() { _, _ = c.Write(data) }()
			if _, err := io.ReadFull(c, data); err != nil {
				t.Fatalf("mtu %d, %d queues: %v", mtu, queues, err)
			}
			if got, want := int(wa.longest.Load()), mtu+14; got > want || got < mtu-60 {
				t.Errorf("mtu %d: the longest frame has %d bytes", mtu, got)
			}
			for q := range wa.used {
				if n := wa.used[q].Load(); n > 0 && q >= queues {
					t.Errorf("%d queues: %d packets were sent to queue %d", queues, n, q)
				}
			}
		}
		echo(9000, 4)
		echo(1500, 1)
		echo(1280, 2)
		echo(9000, 6)
		c.Close()
	}
}
