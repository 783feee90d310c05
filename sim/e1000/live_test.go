package e1000

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"
	"time"

	"nicd/bus"
	"nicd/sim"
)

// endpoint is a nic whose device has its worker, driven by one goroutine.
type endpoint struct {
	*nic
	events []*bus.Event
	peer   [6]byte
	sent   int
	rcvd   int
	used   uint32 // oldest transmit descriptor not yet done
	free   int
}

func newEndpoint(t *testing.T, wire *sim.Wire, mac, peer [6]byte) *endpoint {
	e := &endpoint{nic: &nic{t: t, m: New(Options{Kind: I82574L, MAC: mac, Autonegotiation: time.Millisecond}), n: ringN, ext: true}, peer: peer}
	dev, err := sim.NewDevice(e.m, sim.Options{Name: "em", HeapDoorbells: true, Spin: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	e.dev, e.mem = dev, bus.HeapMemory(memSize)
	if err := dev.MapDMA(e.mem, iova); err != nil {
		t.Fatal(err)
	}
	if err := dev.WriteConfig(4, 2, 7); err != nil {
		t.Fatal(err)
	}
	e.bar, _ = dev.Region(bus.BAR0)
	e.nic.events(bus.MSIX, 5)
	e.events = e.nic.events(bus.MSIX, 5)
	wire.Connect(e.m)
	return e
}

// bring waits for the link by its interrupt and starts the rings.
func (e *endpoint) bring(ctx context.Context) {
	e.w(0xE4, 0x8|0x8<<4|0x8<<8|0x8<<12|0xC<<16)
	e.w(0xD0, 1<<2|1<<24)
	for e.r(8)&2 == 0 {
		if _, err := e.events[4].Wait(ctx); err != nil {
			e.t.Error(err)
			return
		}
		e.r(0xC0)
	}
	e.set(0x5008, 1<<15|1<<12)
	e.setupRing(0x2800, rxRings)
	e.setupRing(0x3800, txRings)
	e.w(0xDC, 0x1F<<20)
	e.w(0x100, 1<<1|1<<15|1<<26)
	e.w(0x400, 1<<1|1<<3)
	e.post(0, ringN-1)
	e.free = ringN - 1
	e.w(0xD0, 1<<20|1<<22)
}

func (e *endpoint) frame(i int) []byte {
	payload := make([]byte, 4+i%1300)
	binary.LittleEndian.PutUint32(payload, uint32(i))
	return tcpip(e.peer, flow{sport: uint16(i)}, payload)
}

// run sends and receives total frames, and sleeps on its interrupt when it can do
// neither.
func (e *endpoint) run(ctx context.Context, total int, from *endpoint) {
	for e.sent < total || e.rcvd < total || e.free < ringN-1 {
		did := e.fill(total)
		did = e.reap() || did
		did = e.drain(from) || did
		if did {
			continue
		}
		if _, err := e.events[0].Wait(ctx); err != nil {
			e.t.Errorf("%v after %d sent, %d received, TDH %d, RDH %d, ICR %#x", err, e.sent, e.rcvd, e.r(0x3810), e.r(0x2810), e.r(0xC0))
			return
		}
	}
}

func (e *endpoint) fill(total int) bool {
	n := 0
	for ; n < 8 && e.free > 0 && e.sent < total; n++ {
		b := e.frame(e.sent)
		i := e.tx[0].tail
		e.put(0, e.stage(i*bufPitch, b), uint32(len(b))|eopCmd, 0)
		e.sent++
		e.free--
	}
	if n > 0 {
		e.w(0x3818, e.tx[0].tail)
	}
	return n > 0
}

func (e *endpoint) reap() bool {
	did := false
	for e.free < ringN-1 && bus.Word(e.mem.Bytes(), txRings+int(e.used)*16+12).Load()&1 != 0 {
		e.used = (e.used + 1) % ringN
		e.free++
		did = true
	}
	return did
}

func (e *endpoint) drain(from *endpoint) bool {
	did := false
	for bus.Word(e.mem.Bytes(), rxRings+int(e.rx[0].next)*16+8).Load()&1 != 0 {
		g := e.mustRecv(0)
		if want := from.frame(e.rcvd); !bytes.Equal(g.data, padTo60(want)) {
			e.t.Errorf("frame %d differs", e.rcvd)
		}
		e.rcvd++
		e.post(0, 1)
		did = true
	}
	return did
}

// TestTwoDevicesLive: with workers, interrupts and flow control every frame
// arrives once, in order, both ways at the same time, while registers are read
// and written.
func TestTwoDevicesLive(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	wire := sim.NewWire(sim.WireOptions{})
	defer wire.Close()
	macA, macB := [6]byte{2, 0, 0, 0, 0, 1}, [6]byte{2, 0, 0, 0, 0, 2}
	a, b := newEndpoint(t, wire, macA, macB), newEndpoint(t, wire, macB, macA)
	const total = 3000
	a.bring(ctx)
	b.bring(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.run(ctx, total, a)
	}()
	stop, stopped := context.WithCancel(ctx)
	poked := make(chan struct{})
	go func() {
		defer close(poked)
		for stop.Err() == nil { // control accesses at the same time
			a.r(8)
			b.r(0x4074)
			a.w(0x5600, 1)
			b.w(0x382C, 0)
		}
	}()
	a.run(ctx, total, b)
	<-done
	stopped()
	<-poked
	if a.dev.Faults()+b.dev.Faults() != 0 {
		t.Error("faults")
	}
}

// TestResetUnderTraffic: resets and link changes at any time leave a device that
// works.
func TestResetUnderTraffic(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	wire := sim.NewWire(sim.WireOptions{})
	defer wire.Close()
	macA, macB := [6]byte{2, 0, 0, 0, 0, 1}, [6]byte{2, 0, 0, 0, 0, 2}
	a, b := newEndpoint(t, wire, macA, macB), newEndpoint(t, wire, macB, macA)
	for round := range 20 {
		for _, e := range []*endpoint{a, b} {
			e.w(0, e.r(0)|1<<26)
			clear(e.mem.Bytes()[:rxBufs])
			e.rx[0], e.tx[0], e.used = ringState{}, ringState{}, 0
			e.bring(ctx)
		}
		for range 5 {
			for i := range 10 {
				b := a.frame(i)
				a.put(0, a.stage(a.tx[0].tail*bufPitch, b), uint32(len(b))|eopCmd, 0)
			}
			a.w(0x3818, a.tx[0].tail)
			if round%3 == 0 {
				wire.SetLink(false)
				wire.SetLink(true)
			}
		}
	}
}

// TestWireOutlivesDevice: the doorbell page of a closed device is unmapped, and
// the wire still calls its model.
func TestWireOutlivesDevice(t *testing.T) {
	wire := sim.NewWire(sim.WireOptions{})
	m := New(Options{Kind: I82574L, Autonegotiation: time.Nanosecond})
	dev, err := sim.NewDevice(m, sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	wire.Connect(m)
	peer := sim.NewTester(wire, sim.Wants{})
	if err := dev.Close(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		send(t, peer, tcpip([6]byte{2}, flow{}, make([]byte, 100)))
		peer.Port().Room()
		wire.SetLink(false)
		wire.SetLink(true)
	}
	wire.Close()
}
