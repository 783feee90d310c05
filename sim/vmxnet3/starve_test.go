package vmxnet3

import (
	"testing"
	"time"

	"nicd/sim"
)

// TestFramesThatCanNeverFit: a frame for which a full ring is too small does not
// hold its sender up. What fits of a TSO frame is delivered, the tail is lost.
func TestFramesThatCanNeverFit(t *testing.T) {
	w, peer := newTestWire(t)
	d := newDriver(t, w, setup{features: lroFeatures, ring: 32, ring2: 32, bufSize: 1024, mtu: 9000})
	f := tcpFrame(60_000)
	for range 3 {
		inject(t, peer, f.tsoFrame(1460))
		p, ok := d.rx[0].poll()
		if !ok {
			t.Fatal("nothing was delivered")
		}
		part := f
		part.payload = f.payload[:len(p.bytes)-54]
		if len(part.payload)%1460 != 0 || len(part.payload) < 20_000 {
			t.Fatalf("%d bytes of payload", len(part.payload))
		}
		sameButTCPSum(t, p.bytes, part)
		if int(p.sop()[1]&0xff) != len(part.payload)/1460 {
			t.Errorf("count %d", p.sop()[1]&0xff)
		}
		expectNone(t, d.rx[0])
	}
	d.command(cmdGetStats)
	if got := d.get64(d.rxDesc(0) + 88 + 64); got != 3*uint64(42-(32*1024-54)/1460) {
		t.Errorf("outOfBuf %d", got)
	}
	// The same for frames that cannot be cut, and for segments in a batch.
	d = newDriver(t, w, setup{features: lroFeatures, ring: 32, ring2: 32, bufSize: 128, mtu: 9000})
	inject(t, peer, tcpFrame(8000).frame(), tcpFrame(100).frame())
	expect(t, d.rx[0], tcpFrame(100).bytes())
	var fs []sim.Frame
	for _, b := range tcpFrame(9000).segments(1000) {
		fs = append(fs, sim.FrameOf(b))
	}
	inject(t, peer, fs...)
	n := 0
	for {
		p, ok := d.rx[0].poll()
		if !ok {
			break
		}
		n += len(p.bytes) - 54
	}
	if n < 3000 || n%1000 != 0 {
		t.Errorf("%d bytes of payload of 9 segments", n)
	}
}

// TestADeadDriverDoesNotPauseForEver: a driver that posts nothing makes its peer
// wait for so long, and no longer.
func TestADeadDriverDoesNotPauseForEver(t *testing.T) {
	clock := &sim.ManualClock{}
	clock.Advance(time.Minute)
	w := sim.NewWire(sim.WireOptions{})
	t.Cleanup(w.Close)
	peer := sim.NewTester(w, sim.Wants{})
	d := newDriver(t, w, setup{ring: 32, leave: 31, clock: clock})
	send := func() int { return peer.Port().Send([]sim.Frame{tcpFrame(1).frame(), tcpFrame(2).frame()}) }
	if send() != 0 {
		t.Fatal("taken without buffers")
	}
	clock.Advance(pauseLimit - time.Millisecond)
	d.step()
	if send() != 0 {
		t.Fatal("dropped too early")
	}
	clock.Advance(time.Millisecond)
	d.step()
	if send() != 2 {
		t.Fatal("the sender still waits")
	}
	d.command(cmdGetStats)
	if got := d.get64(d.rxDesc(0) + 88 + 64); got != 2 {
		t.Errorf("outOfBuf %d", got)
	}
	// It comes back: what it posted is used, and then it is waited for again.
	d.rx[0].post(0)
	if n := send(); n != 1 {
		t.Fatalf("%d taken", n)
	}
	if n := send(); n != 0 {
		t.Errorf("%d taken: no pause after the driver came back", n)
	}
}

// TestDataPathDoesNotAllocate: neither direction, in any of its ways.
func TestDataPathDoesNotAllocate(t *testing.T) {
	for name, features := range map[string]uint32{"plain": bitRxCsum, "lro": lroFeatures} {
		for _, size := range []int{64, 1514, 40_000} {
			s := setup{features: features, ring: 512}
			d, e := newPair(t, s, s)
			f := tcpFrame(size - 54)
			f.dst = e.m.opt.MAC
			x, r := newBenchTx(d, f, size > 1514), newBenchRx(e)
			send := func() {
				x.put()
				x.bell()
				for d.m.Work(64) {
				}
				r.poll()
				e.m.Work(64)
			}
			for range 600 { // all of both rings, and what grows at first
				send()
			}
			if n := testing.AllocsPerRun(200, send); n != 0 {
				t.Errorf("%s, %d bytes: %v allocations a frame", name, size, n)
			}
		}
	}
}
