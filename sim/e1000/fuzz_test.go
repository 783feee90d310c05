package e1000

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"nicd/bus"
	"nicd/sim"
)

// fuzzRegisters are those that matter; others are reached by arbitrary offsets.
var fuzzRegisters = []uint32{
	regCTRL, regRCTL, regTCTL, regRDBAL, regRDBAH, regRDLEN, regRDH, regRDT, regTDBAL, regTDBAH, regTDLEN, regTDH, regTDT,
	regRDBAL + 0x100, regRDLEN + 0x100, regRDT + 0x100, regTDBAL + 0x100, regTDLEN + 0x100, regTDT + 0x100,
	regRXCSUM, regRFCTL, regMRQC, regRETA, regRSSRK, regRDTR, regRADV, regTIDV, regTADV, regITR, regEITR, regICS, regIMS,
	regIMC, regICR, regEIAC, regIAM, regIVAR, regCTRLEXT, regMDIC, regEERD, regEECD, regTXDCTL, regTARC, regRSRPD, regVET,
	regMTA, regRAL, regRAL + 4, regVFTA,
}

// FuzzDevice does to a model what no driver should: arbitrary register writes,
// descriptors and frames, in any order. It must not panic, and must work after a
// reset.
func FuzzDevice(f *testing.F) {
	f.Add([]byte{0})
	f.Add([]byte{1, 0, 2, 0xFF, 0xFF, 0xFF, 0xFF, 3, 1, 2, 3, 4, 5, 6, 7, 8, 4, 5, 100, 6})
	f.Add([]byte{1, 2, 12, 5, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0x25, 0, 0, 0, 0, 6, 6})
	f.Fuzz(func(t *testing.T, in []byte) {
		clock := &sim.ManualClock{}
		wire := sim.NewWire(sim.WireOptions{Clock: clock})
		defer wire.Close()
		o := Options{}
		if len(in) > 0 {
			o.Kind = []Kind{I82540EM, I82574L, I82544GC, I82545EM}[in[0]&3]
		}
		n := newNIC(t, wire, clock, o)
		peer := sim.NewTester(wire, sim.Wants{})
		peer.Limit = 100
		n.start(1 << 5)
		z := fuzzer{n: n, peer: peer, in: in}
		for len(z.in) > 0 && z.steps < 300 {
			z.step()
		}
		if err := n.dev.Reset(context.Background()); err != nil {
			t.Fatal(err)
		}
		for {
			if _, ok := peer.TryNext(); !ok {
				break
			}
		}
		z.workSome()
		clear(n.mem.Bytes()[:rxBufs])
		n.start(0)
		frame := tcpip(n.mac(), flow{}, make([]byte, 100))
		send(t, peer, frame)
		same(t, n.mustRecv(0).data, frame)
		n.sendLegacy(frame, 0)
		same(t, next(t, peer), frame)
	})
}

type fuzzer struct {
	n     *nic
	peer  *sim.Tester
	in    []byte
	steps int
}

func (z *fuzzer) take(n int) []byte {
	b := make([]byte, n)
	z.in = z.in[copy(b, z.in):]
	return b
}

func (z *fuzzer) byte() byte { return z.take(1)[0] }

func (z *fuzzer) word() uint32 { return binary.LittleEndian.Uint32(z.take(4)) }

func (z *fuzzer) workSome() {
	for range 50 {
		if !z.n.m.Work(8) {
			return
		}
	}
}

func (z *fuzzer) step() {
	z.steps++
	n := z.n
	switch z.byte() % 8 {
	case 0: // any register
		n.w(z.word()%registerSpace&^3, z.word())
	case 1: // one that matters, a small value
		n.w(fuzzRegisters[int(z.byte())%len(fuzzRegisters)], uint32(z.byte())<<(z.byte()%32))
	case 2: // one that matters, any value
		n.w(fuzzRegisters[int(z.byte())%len(fuzzRegisters)], z.word())
	case 3: // a transmit descriptor whose memory may be right
		addr := uint64(iova + txBufs + uint32(z.byte())<<4)
		if z.byte()&7 == 0 {
			addr = uint64(z.word()) << 20
		}
		n.put(int(z.byte()&1), addr, z.word(), z.word())
	case 4: // garbage in the rings
		copy(n.mem.Bytes()[z.word()%txRings*2:], z.take(16))
	case 5: // a frame
		b := tcpip(n.mac(), flow{v6: z.byte()&1 != 0, udp: z.byte()&1 != 0}, z.take(int(z.byte())))
		b[int(z.byte())%len(b)] ^= z.byte()
		z.peer.Port().Send([]sim.Frame{sim.FrameOf(b)})
	case 6: // the bell
		q := uint32(z.byte() & 1)
		n.w(regTDT+q*queueStride, n.tx[q].tail)
		z.workSome()
	case 7: // time
		n.clock.Advance(time.Duration(z.byte()) * time.Millisecond)
		for range 8 {
			z.peer.TryNext()
		}
		n.r(fuzzRegisters[int(z.byte())%len(fuzzRegisters)])
		z.workSome()
	}
}

// FuzzIOWindow reaches registers the other way.
func FuzzIOWindow(f *testing.F) {
	f.Add(uint32(0x3818), uint32(7))
	f.Add(^uint32(0), uint32(1))
	f.Fuzz(func(t *testing.T, address, value uint32) {
		n := newNIC(t, nil, &sim.ManualClock{}, Options{})
		io, err := n.dev.Region(bus.BAR1)
		if err != nil {
			t.Fatal(err)
		}
		io.Write32(ioADDR, address)
		io.Write32(ioDATA, value)
		io.Read32(ioDATA)
		n.work()
	})
}
