package engine

import (
	"bytes"
	"testing"

	"nicd/framework"
)

// numbered returns a frame that says which one it is.
func numbered(i, size int) []byte {
	f := make([]byte, size)
	for j := range f {
		f[j] = byte(i + j)
	}
	copy(f, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5, byte(i >> 8), byte(i)})
	return f
}

// arrive waits until the queue has buffers and lets the frame arrive.
func (r *rig) arrive(q int, frame []byte, p framework.Packet, chunk int) {
	r.t.Helper()
	r.until("a posted buffer", func() bool { return r.dev.receive(q, frame, p, chunk) })
}

// restarted tells whether the device has been started n times and runs.
func (r *rig) restarted(n int) bool {
	r.dev.mu.Lock()
	defer r.dev.mu.Unlock()
	return r.dev.starts >= n && r.dev.running && len(r.dev.rx[0].posted) > 0
}

func TestReceiveInOrder(t *testing.T) {
	r := newRig(t, 2, nil).start()
	const n = 3000
	for i := range n {
		r.arrive(i%2, numbered(i, 60+i%1400), framework.Packet{}, 0)
	}
	for q := range 2 {
		r.until("all delivered", func() bool { return len(r.deliveries(q)) == n/2 })
		for i, d := range r.deliveries(q) {
			k := 2*i + q
			if !bytes.Equal(d.frame, numbered(k, 60+k%1400)) {
				t.Fatalf("queue %d: packet %d differs", q, i)
			}
		}
	}
	r.finish()
	if got := r.rxCount(0, RxDelivered); got != n/2 {
		t.Errorf("counted %d", got)
	}
	if r.rxCount(0, RxInterrupts) == 0 {
		t.Error("no interrupts counted")
	}
}

func TestBadFramesAreOnlyTheirOwnLoss(t *testing.T) {
	r := newRig(t, 1, nil).start()
	errs := []framework.DropReason{
		framework.DropCRC, framework.DropTruncated, framework.DropTooLong, framework.DropDevice,
	}
	const n = 2000
	good := 0
	for i := range n {
		p := framework.Packet{}
		if i%3 == 0 {
			p.Error = errs[i/3%len(errs)]
		} else {
			good++
		}
		r.arrive(0, numbered(i, 3000), p, 1000)
	}
	r.until("all good ones delivered", func() bool { return len(r.deliveries(0)) == good })
	for i, d := range r.deliveries(0) {
		k := i/2*3 + 1 + i%2
		if !bytes.Equal(d.frame, numbered(k, 3000)) {
			t.Fatalf("packet %d is not frame %d", i, k)
		}
	}
	r.finish()
	for k, reason := range errs {
		want := uint64(0)
		for i := 0; i < n; i += 3 {
			if i/3%len(errs) == k {
				want++
			}
		}
		if got := r.rxCount(0, RxDrop(reason)); got != want {
			t.Errorf("%s: %d, want %d", reason, got, want)
		}
	}
	if r.count(DeviceResets)+r.count(QueueResets) != 0 {
		t.Error("a bad frame reset something")
	}
}

func TestPortFull(t *testing.T) {
	r := newRig(t, 1, func(r *rig) { r.plan.LRO = framework.LROSoftware })
	r.up.accept = 3
	r.start()
	const n = 1000
	for i := range n {
		r.arrive(0, numbered(i, 200), framework.Packet{}, 0)
	}
	r.until("all polled", func() bool { return r.rxCount(0, RxPackets) == n })
	r.finish()
	got := uint64(len(r.deliveries(0)))
	if dropped := r.rxCount(0, RxDropPortFull); dropped != n-got || dropped == 0 {
		t.Errorf("%d delivered, %d dropped of %d", got, dropped, n)
	}
}

// TestStarvation: the upper side keeps every buffer. The ring must not run dry,
// what cannot be replaced is dropped and counted, and all goes on when buffers
// come back, without another interrupt having to come.
func TestStarvation(t *testing.T) {
	r := newRig(t, 1, nil)
	r.up.keep = true
	r.start()
	const n = 5000
	for i := range n {
		r.arrive(0, numbered(i, 200), framework.Packet{}, 0)
	}
	r.until("all polled", func() bool { return r.rxCount(0, RxPackets) == n })
	if r.rxCount(0, RxDropNoBuffer) == 0 || r.rxCount(0, RxAllocFailed) == 0 {
		t.Errorf("nothing was counted as short:\n%s", r.dump())
	}
	if posted := r.rxCount(0, RxBuffersPosted); posted < 63 {
		t.Errorf("the ring was left with %d buffers", posted)
	}
	got := len(r.deliveries(0))
	r.up.giveBack(0)
	r.until("the ring is full again", func() bool { return r.rxCount(0, RxBuffersPosted) == 255 })
	r.arrive(0, numbered(7, 200), framework.Packet{}, 0)
	r.until("delivery goes on", func() bool { return len(r.deliveries(0)) == got+1 })
	r.finish()
}

// TestTooFewBuffers: a queue with fewer buffers than its ring works, and says so.
func TestTooFewBuffers(t *testing.T) {
	r := newRig(t, 1, func(r *rig) { r.opts.RxBuffers[0].Count = 100 }).start()
	const n = 1000
	for i := range n {
		r.arrive(0, numbered(i, 200), framework.Packet{}, 0)
	}
	r.until("all delivered", func() bool { return len(r.deliveries(0)) == n })
	if r.count(ShortOfBuffers) != 1 {
		t.Error("short ring was not counted")
	}
	r.finish()
}

// TestDriverReturnsABufferTwice: the second packet is not delivered, and the queue
// is reset.
func TestDriverReturnsABufferTwice(t *testing.T) {
	r := newRig(t, 1, nil).start()
	r.dev.mu.Lock()
	r.dev.rx[0].twice = true
	r.dev.mu.Unlock()
	r.arrive(0, numbered(1, 100), framework.Packet{}, 0)
	r.until("reset", func() bool { return r.restarted(2) })
	r.arrive(0, numbered(2, 100), framework.Packet{}, 0)
	r.until("it goes on", func() bool { return len(r.deliveries(0)) == 2 })
	r.finish()
	if r.rxCount(0, RxDropDevice) != 1 {
		t.Errorf("dropped %d", r.rxCount(0, RxDropDevice))
	}
}

// TestBadReclaim: buffers that were not above, or are another queue's, are not
// taken.
func TestBadReclaim(t *testing.T) {
	r := newRig(t, 1, nil)
	r.up.back[0] = []framework.Buffer{3, 5, 1 << 30, framework.NoBuffer, rxPerQueue}
	r.start()
	if got := r.e.rx[0].pool.posted; got == 0 {
		t.Error("nothing posted")
	}
	r.finish()
	if got := r.rxCount(0, RxBadReclaim); got != 5 {
		t.Errorf("%d refused", got)
	}
}
