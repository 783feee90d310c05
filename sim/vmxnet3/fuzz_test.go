package vmxnet3

import (
	"encoding/binary"
	"testing"

	"nicd/bus"
	"nicd/sim"
)

// FuzzDevice lets a driver gone mad loose on the device: it writes anything to
// DriverShared, the queue descriptors and the rings, to registers and doorbells,
// while frames come in. Nothing may panic or hang, and nothing may be written
// outside of the memory that is mapped: that is what the slices see to.
func FuzzDevice(f *testing.F) {
	f.Add([]byte{4, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{0, 0, 40, 1, 2, 3, 4, 5, 6, 2, 3, 4, 5, 6, 7, 5, 0, 3, 6, 1, 1, 1})
	f.Add([]byte{5, 1, 0, 0, 5, 2, 0, 0, 5, 0, 0, 0, 3, 90, 3, 200, 4, 2, 1, 7, 0, 0, 0, 4})
	w, peer := newTestWire(f)
	v := Variations{ZeroLengthEvery: 3, ZeroLengthBodyEvery: 2, SkipEvery: 5, OutOfOrderEvery: 4, InnerFlags: InnerFlagsBit13}
	d := newDriver(f, w, setup{features: 0xf, mtu: 9000, rxq: 2, txq: 2, ring: 32, rxData: 128,
		opt: Options{Variations: v}, rssConf: rssConf(0xf, 8, func(i int) uint8 { return uint8(i & 1) })})
	clean := append([]byte(nil), d.mem.Bytes()...)
	top := int(d.used) // rings and shared areas are scattered below
	frames := fuzzFrames()
	f.Fuzz(func(t *testing.T, in []byte) {
		copy(d.mem.Bytes(), clean)
		must(t, d.dev.Reset(t.Context()))
		d.vd.Write32(regVRRS, 1<<(len(in)%4))
		d.vd.Write32(regDSAL, uint32(d.shared))
		d.vd.Write32(regDSAH, 0)
		d.command(cmdActivate)
		m := mad{d: d, peer: peer, frames: frames, top: top, in: in}
		for m.step() {
		}
		for range 64 {
			if !d.m.Work(64) {
				break
			}
		}
		peer.Drain()
	})
}

type mad struct {
	d      *tdriver
	peer   *sim.Tester
	frames []sim.Frame
	top    int
	in     []byte
}

func (m *mad) byte() uint32 {
	if len(m.in) == 0 {
		return 0
	}
	b := m.in[0]
	m.in = m.in[1:]
	return uint32(b)
}

func (m *mad) word() uint32 { return m.byte() | m.byte()<<8 | m.byte()<<16 | m.byte()<<24 }

// step does one thing that the input says.
func (m *mad) step() bool {
	if len(m.in) == 0 {
		return false
	}
	d := m.d
	switch m.byte() % 8 {
	case 0: // anywhere in the shared areas and first rings
		at := int(m.byte()|m.byte()<<8) &^ 3
		binary.LittleEndian.PutUint32(d.mem.Bytes()[at%m.top&^3:], m.word())
	case 1: // a receive descriptor
		r := d.rx[m.byte()%2]
		at := r.ring[m.byte()%2] + uint64(m.byte()%32)*16 + uint64(m.byte()%4)*4
		bus.Word(d.mem.Bytes(), int(at-testIOVA)).Store(m.word())
	case 2: // a transmit descriptor
		at := d.tx[m.byte()%2].ring + uint64(m.byte()%32)*16 + uint64(m.byte()%4)*4
		bus.Word(d.mem.Bytes(), int(at-testIOVA)).Store(m.word())
	case 3:
		i := int(m.byte()) % len(m.frames)
		m.peer.Port().Send(m.frames[i : i+1+int(m.byte())%(len(m.frames)-i)])
		m.peer.Port().Abandon()
	case 4:
		d.m.Work(int(m.byte()))
	case 5:
		d.command([]uint32{0xcafe0000, 0xf00d0000}[m.byte()%2] + m.byte()%20)
	case 6:
		d.pt.Write32([]uint32{0x600, 0x608, 0x800, 0xa00, 0, 8}[m.byte()%6], m.byte())
	case 7:
		d.vd.Write32(m.byte()%0x50&^7, m.word())
	}
	return true
}

func fuzzFrames() []sim.Frame {
	var out []sim.Frame
	seg := func(i int) sim.Frame {
		f := tcpFrame(700)
		f.seq += uint32(700 * i)
		f.id += uint16(i)
		return f.frame()
	}
	tagged := tcpFrame(40)
	tagged.vlan = 0
	out = append(out, tcpFrame(0).frame(), tagged.frame(), seg(0), seg(1), seg(2), tcpFrame(8000).frame(), vxlan(tcpFrame(50), false).frame())
	out = append(out, tcpFrame(30_000).tsoFrame(1460), tcpFrame(3).tsoFrame(1))
	return append(out, sim.FrameOf(make([]byte, 14)), sim.FrameOf(make([]byte, 3)), seg(3))
}

// FuzzFrames sends frames with any content to the device, with all offloads on.
func FuzzFrames(f *testing.F) {
	f.Add(tcpFrame(100).bytes(), uint16(0), uint16(0), uint16(0))
	f.Add(tcpFrame(3000).bytes(), uint16(1000), uint16(54), uint16(34))
	v6 := tcpFrame(300)
	v6.v6, v6.vlan = true, 5
	f.Add(v6.bytes(), uint16(100), uint16(78), uint16(58))
	f.Add(vxlan(tcpFrame(300), false).bytes(), uint16(0), uint16(0), uint16(0))
	w, peer := newTestWire(f)
	d := newDriver(f, w, setup{features: 0xf, mtu: 9000, rssConf: rssConf(0xf, 1, func(int) uint8 { return 0 }),
		opt:  Options{Variations: Variations{InnerFlags: InnerFlagsBit12}},
		edit: func(d *tdriver) { d.put32(d.shared+120, 0x1f) }})
	f.Fuzz(func(t *testing.T, b []byte, mss, hlen, start uint16) {
		if len(b) == 0 || len(b) > 65000 {
			return
		}
		s := sim.FrameOf(b)
		if mss > 0 {
			s.Flags = sim.Segment | sim.Partial
			s.SegmentSize, s.HeaderLen, s.ChecksumStart, s.ChecksumOffset = int(mss), int(hlen), int(start), 16
		}
		peer.Port().Send([]sim.Frame{s, s})
		for {
			if _, ok := d.rx[0].poll(); !ok {
				break
			}
		}
	})
}
