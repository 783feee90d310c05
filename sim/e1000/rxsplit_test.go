package e1000

import (
	"encoding/binary"
	"testing"

	"nicd/sim"
)

// splitDriver drives queue 0 with packet split descriptors: 16 of them, that is
// 32 units, with a buffer of 4 KiB for each part.
type splitDriver struct {
	*nic
	next, tail uint32 // in descriptors
}

const splitN = 16

func (s *splitDriver) desc(i uint32) []byte { return s.mem.Bytes()[rxRings+i*32:][:32] }

func (s *splitDriver) buf(i uint32, b int) uint32 {
	return rxBufs + (i*splitBuffers+uint32(b))*bufPitch
}

// startSplit sets the rings up with buffers of the sizes that psrctl says.
func startSplit(n *nic, psrctl uint32) *splitDriver {
	s := &splitDriver{nic: n}
	n.start(1 << 5) // LPE
	n.w(0x2170, psrctl)
	n.set(0x100, 1<<10) // DTYP
	n.w(0x2808, splitN*32)
	n.w(0x2810, 0)
	n.w(0x2818, 0)
	s.post(splitN - 1)
	return s
}

func (s *splitDriver) post(count int) {
	for range count {
		d := s.desc(s.tail)
		clear(d)
		for b := range splitBuffers {
			binary.LittleEndian.PutUint64(d[8*b:], uint64(iova+s.buf(s.tail, b)))
		}
		s.tail = (s.tail + 1) % splitN
	}
	s.w(0x2818, s.tail*2)
}

// splitPacket is a received packet: what each descriptor's buffers have.
type splitPacket struct {
	buffers [][splitBuffers]int
	data    []byte
	header  uint16
	vlan    uint16
}

func (s *splitDriver) recv() (p splitPacket) {
	s.t.Helper()
	for {
		d := s.desc(s.next)
		status := binary.LittleEndian.Uint32(d[8:])
		if status&1 == 0 {
			s.t.Fatal("nothing received")
		}
		lengths := [splitBuffers]int{int(binary.LittleEndian.Uint16(d[12:]))}
		for b := 1; b < splitBuffers; b++ {
			lengths[b] = int(binary.LittleEndian.Uint16(d[16+2*b:]))
		}
		for b, n := range lengths {
			p.data = append(p.data, s.mem.Bytes()[s.buf(s.next, b):][:n]...)
		}
		if len(p.buffers) == 0 {
			p.header = binary.LittleEndian.Uint16(d[16:])
		}
		p.buffers = append(p.buffers, lengths)
		p.vlan = binary.LittleEndian.Uint16(d[14:])
		s.next = (s.next + 1) % splitN
		if status&2 != 0 {
			return p
		}
	}
}

// What Linux's e1000e asks for at an MTU of 9000: 128 bytes of headers and three
// pages.
const threePages = 1 | 4<<8 | 4<<16 | 4<<24

func onSplit(t *testing.T, psrctl uint32, f func(t *testing.T, s *splitDriver, peer *sim.Tester)) {
	kinds(t, Options{Kind: I82574L}, func(t *testing.T, n *nic, peer *sim.Tester) {
		if n.ext {
			f(t, startSplit(n, psrctl), peer)
		}
	})
}

func TestPacketSplit(t *testing.T) {
	plain := append(make([]byte, 12), 0x88, 0xb5) // no IP
	for name, c := range map[string]struct {
		frame   func(n *nic) []byte
		header  int // 0: not split
		buffers [splitBuffers]int
	}{
		"TCP":              {func(n *nic) []byte { return tcpip(n.mac(), flow{}, make([]byte, 1000)) }, 54, [splitBuffers]int{54, 1000}},
		"TCP without data": {func(n *nic) []byte { return padTo60(tcpip(n.mac(), flow{}, nil)) }, 54, [splitBuffers]int{54, 6}},
		"TCP of 9000":      {func(n *nic) []byte { return tcpip(n.mac(), flow{}, make([]byte, 8960)) }, 54, [splitBuffers]int{54, 4096, 4096, 768}},
		"no IP": {func(n *nic) []byte {
			mac := n.mac()
			return append(append(mac[:], plain[6:]...), make([]byte, 500)...)
		}, 0, [splitBuffers]int{128, 386}},
	} {
		t.Run(name, func(t *testing.T) {
			onSplit(t, threePages, func(t *testing.T, s *splitDriver, peer *sim.Tester) {
				r := newRand(t)
				for i := range 3 * splitN { // round the ring
					frame := c.frame(s.nic)
					copy(frame[54:], randomBytes(r, len(frame)-54))
					send(t, peer, frame)
					p := s.recv()
					same(t, p.data, frame)
					want := uint16(0)
					if c.header > 0 {
						want = 1<<15 | uint16(c.header)
					}
					if len(p.buffers) != 1 || p.buffers[0] != c.buffers || p.header != want {
						t.Fatalf("buffers %v, header %#x", p.buffers, p.header)
					}
					if h := s.r(0x2810); h != uint32(i+1)%splitN*2 {
						t.Fatalf("RDH %d after %d packets", h, i+1)
					}
					s.post(1)
				}
			})
		})
	}
}

// A packet that is longer than a descriptor's buffers goes on in the next one's,
// but for its first buffer.
func TestPacketSplitOverDescriptors(t *testing.T) {
	onSplit(t, 1|1<<8|1<<16, func(t *testing.T, s *splitDriver, peer *sim.Tester) {
		frame := tcpip(s.mac(), flow{}, randomBytes(newRand(t), 5000))
		send(t, peer, frame)
		p := s.recv()
		same(t, p.data, frame)
		want := [][splitBuffers]int{{54, 1024, 1024}, {0, 1024, 1024}, {0, 904}}
		if len(p.buffers) != len(want) {
			t.Fatalf("buffers %v", p.buffers)
		}
		for i := range want {
			if p.buffers[i] != want[i] {
				t.Errorf("descriptor %d: %v, want %v", i, p.buffers[i], want[i])
			}
		}
	})
}

// A sender that finds no descriptors waits, and goes on when there are some: a
// descriptor is two units, and half of one is none.
func TestPacketSplitWaits(t *testing.T) {
	onSplit(t, threePages, func(t *testing.T, s *splitDriver, peer *sim.Tester) {
		frames := make([]sim.Frame, splitN+3)
		for i := range frames {
			frames[i] = sim.FrameOf(tcpip(s.mac(), flow{sport: uint16(i)}, make([]byte, 100)))
		}
		if n := peer.Port().Send(frames); n != splitN-1 {
			t.Fatalf("%d frames were taken for %d descriptors", n, splitN-1)
		}
		for range 4 {
			s.recv()
		}
		s.post(4)
		s.work()
		if n := peer.Port().Send(frames[splitN-1:]); n != 4 {
			t.Errorf("%d more frames were taken for 4 descriptors", n)
		}
	})
}

// Without buffers nothing is received, and nothing is written anywhere.
func TestPacketSplitWithoutBuffers(t *testing.T) {
	onSplit(t, 0, func(t *testing.T, s *splitDriver, peer *sim.Tester) {
		if n := peer.Port().Send([]sim.Frame{sim.FrameOf(tcpip(s.mac(), flow{}, make([]byte, 100)))}); n != 0 {
			t.Errorf("%d frames were taken", n)
		}
		if s.desc(0)[8]&1 != 0 {
			t.Error("a descriptor was written")
		}
	})
}
