package forward

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"nicd/framework"
)

// place is where the reference last saw an address.
type place struct {
	port int
	seen time.Duration
}

// reference is what a bridge does, in the plainest words: a map, and a list of frames
// for each port.
type reference struct {
	age    time.Duration
	mtu    []int
	up     []bool
	where  map[[6]byte]place
	want   [][][]byte // frames, by port
	counts Stats
}

// receive is a frame that comes in at a port. tags is how many are in the frame.
func (m *reference) receive(port int, now time.Duration, frame []byte, tags int, sent []byte) {
	to, from := [6]byte(frame[:6]), [6]byte(frame[6:12])
	if from[0]&1 == 0 && from != ([6]byte{}) && m.up[port] {
		if p, ok := m.where[from]; ok && p.port != port {
			m.counts.Moved++
		}
		m.where[from] = place{port, now}
	}
	if bytes.HasPrefix(to[:], []byte{1, 0x80, 0xc2, 0, 0}) && to[5] < 16 {
		m.counts.Filtered++
		return
	}
	send := func(out int) {
		if len(frame) > m.mtu[out]+14+4*tags {
			m.counts.TooLong++
			return
		}
		m.counts.Forwarded++
		m.want[out] = append(m.want[out], sent)
	}
	p, ok := m.where[to]
	switch {
	case !ok || now-p.seen > m.age:
		m.counts.Flooded++
		for out := range m.up {
			if out != port && m.up[out] {
				send(out)
			}
		}
	case p.port == port:
		m.counts.Filtered++
	default:
		send(p.port)
	}
}

func (m *reference) setUp(port int, up bool) {
	if m.up[port] && !up {
		for a, p := range m.where {
			if p.port == port {
				delete(m.where, a)
			}
		}
	}
	m.up[port] = up
}

func (m *reference) addresses(now time.Duration) (n int) {
	for _, p := range m.where {
		if now-p.seen <= m.age {
			n++
		}
	}
	return n
}

// An arbitrary history of frames, links, moves and pauses comes out of a bridge as it
// comes out of the reference: every frame, in order, and every count.
func TestModel(t *testing.T) {
	r := newRand(t)
	for n := range 30 {
		h := newHistory(t, r)
		for range 200 {
			h.step()
			if t.Failed() {
				t.Fatalf("history %d", n)
			}
		}
	}
}

// history is a bridge, what it is compared with, and who uses both.
type history struct {
	t         *testing.T
	r         *rand.Rand
	now       time.Duration
	nics      []*nic
	bridge    *Bridge
	ports     []*Port
	reference reference
	addresses [][6]byte
}

func newHistory(t *testing.T, r *rand.Rand) *history {
	h := &history{t: t, r: r}
	h.reference = reference{age: time.Duration(2+r.IntN(20)) * time.Second, where: map[[6]byte]place{}}
	ports := 1 + r.IntN(5)
	for range ports {
		mtu := []int{1500, 1500, 600, 9000}[r.IntN(4)]
		h.nics = append(h.nics, newNIC(t, mtu, []int{256, 512, 2048}[r.IntN(3)], 600))
		h.reference.mtu, h.reference.up = append(h.reference.mtu, mtu), append(h.reference.up, true)
	}
	h.reference.want = make([][][]byte, ports)
	epoch := time.Unix(1_000_000, 0)
	h.bridge, h.ports = bridge(t, Options{Age: h.reference.age, Now: func() time.Time { return epoch.Add(h.now) }}, h.nics...)
	for range 2 + r.IntN(12) {
		a := [6]byte{2 << 1, byte(r.Uint32()), 0, 0, byte(r.Uint32()), byte(r.Uint32())}
		h.addresses = append(h.addresses, a)
	}
	return h
}

func (h *history) step() {
	port := h.r.IntN(len(h.ports))
	switch h.r.IntN(20) {
	case 0:
		up := h.r.IntN(2) == 0
		h.ports[port].LinkChanged(framework.Link{Up: up})
		h.reference.setUp(port, up)
	case 1, 2:
		h.now += time.Duration(h.r.IntN(8)) * time.Second
	default:
		h.receive(port)
	}
	h.compare()
}

// receive has a batch come in at a port, at any of its queues.
func (h *history) receive(port int) {
	var frames [][]byte
	var packets []framework.Packet
	for range 1 + h.r.IntN(4) {
		frame, tags := h.frame()
		p := framework.Packet{}
		sent := bytes.Clone(frame)
		if h.r.IntN(4) == 0 {
			p.Flags, p.VLAN = framework.VLANTag, uint16(h.r.UintN(1<<16))
			sent = withTag(sent, p.VLAN)
		}
		frames, packets = append(frames, frame), append(packets, p)
		h.reference.receive(port, h.now, frame, tags, sent)
	}
	h.nics[port].receive(h.ports[port], h.r.IntN(4), packets, frames...)
}

// frame makes a frame between any two addresses, known or not, with as many tags in it.
func (h *history) frame() (frame []byte, tags int) {
	to, from := h.address(), h.address()
	frame = append(frame, to[:]...)
	frame = append(frame, from[:]...)
	for range h.r.IntN(3) * h.r.IntN(2) {
		ether := []uint16{0x8100, 0x88a8}[h.r.IntN(2)]
		frame = binary.BigEndian.AppendUint16(frame, ether)
		frame = binary.BigEndian.AppendUint16(frame, uint16(h.r.Uint32()))
		tags++
	}
	frame = append(frame, 0x88, 0xb5)
	body := make([]byte, 46+h.r.IntN(1700))
	for i := range body {
		body[i] = byte(h.r.Uint32())
	}
	return append(frame, body...), tags
}

func (h *history) address() [6]byte {
	switch h.r.IntN(12) {
	case 0:
		return [6]byte{255, 255, 255, 255, 255, 255}
	case 1:
		return [6]byte{1, 0, 0x5e, 0, 0, byte(h.r.Uint32())}
	case 2:
		return [6]byte{1, 0x80, 0xc2, 0, 0, byte(h.r.UintN(32))} // 00 to 0f are reserved
	case 3:
		return [6]byte{}
	}
	return h.addresses[h.r.IntN(len(h.addresses))]
}

// compare checks all that has come out, and that no buffer is held.
func (h *history) compare() {
	h.t.Helper()
	for n, nic := range h.nics {
		got, want := nic.take(), h.reference.want[n]
		h.reference.want[n] = nil
		nic.census()
		if len(got) != len(want) {
			h.t.Errorf("port %d of %d: %d frames, want %d", n, len(h.ports), len(got), len(want))
			continue
		}
		for i := range got {
			if !bytes.Equal(got[i], want[i]) {
				h.t.Errorf("port %d of %d, frame %d of %d:\n%x\nwant\n%x", n, len(h.ports), i, len(got), got[i], want[i])
			}
		}
	}
	want := h.reference.counts
	want.Addresses = h.reference.addresses(h.now)
	if got := h.bridge.Stats(); got != want {
		h.t.Errorf("%+v, want %+v", got, want)
	}
}

func withTag(frame []byte, tci uint16) []byte {
	tagged := append([]byte{}, frame[:12]...)
	tagged = binary.BigEndian.AppendUint16(tagged, 0x8100)
	tagged = binary.BigEndian.AppendUint16(tagged, tci)
	return append(tagged, frame[12:]...)
}

// Queues that learn the same addresses at once, while others give way, leave one entry
// of each: another would show the wrong port when the first is forgotten.
func TestOneEntryOfAnAddress(t *testing.T) {
	r := newRand(t)
	const queues = 3
	for round := range 5000 { // a second or so: one in a thousand shows it
		table := newTable(ways, 300) // all in one bucket
		var learners sync.WaitGroup
		var begun atomic.Int32
		for q := range queues {
			random := rand.New(rand.NewPCG(r.Uint64(), 0))
			learners.Go(func() {
				begun.Add(1)
				for n := 0; begun.Load() < queues && n < 1000; n++ {
				}
				for now := range uint32(60) {
					table.learn(1+random.Uint64N(ways+2), q, now/4)
				}
			})
		}
		learners.Wait()
		places := map[uint64]int{}
		for i := range table.buckets[0].entry {
			if e := table.buckets[0].entry[i].Load(); e != 0 {
				places[e>>16]++
			}
		}
		for address, n := range places {
			if n > 1 {
				t.Fatalf("round %d: address %d has %d entries", round, address, n)
			}
		}
	}
}

// Frames that are still on their way when a link goes down do not bring back what was
// forgotten with it.
func TestNothingIsLearntBehindADeadLink(t *testing.T) {
	a, b, c := newNIC(t, 1500, 2048, 400), newNIC(t, 1500, 2048, 400), newNIC(t, 1500, 2048, 400)
	_, ports := bridge(t, Options{}, a, b, c)
	a.keep = false // of what b is told by all
	var sender sync.WaitGroup
	for range 200 {
		sent := make(chan struct{})
		sender.Go(func() {
			for n := range 20 {
				a.receive(ports[0], 0, nil, frame(2, 1))
				if n == 3 {
					close(sent)
				}
			}
		})
		<-sent
		ports[0].LinkChanged(framework.Link{})
		sender.Wait()
		c.take()
		b.receive(ports[1], 0, nil, frame(1, 2))
		if got := len(c.take()); got != 1 {
			t.Fatalf("%d copies: the address is believed to be behind a dead link", got)
		}
		ports[0].LinkChanged(framework.Link{Up: true})
	}
}
