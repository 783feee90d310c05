package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
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
	r.until("unmasked", func() bool { // or it may poll all there is, and need no interrupt
		r.dev.mu.Lock()
		defer r.dev.mu.Unlock()
		return !r.dev.masked[r.plan.Interrupts.RxVector[0]]
	})
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

// TestStarvation: the upper side keeps every buffer. All that was received is
// delivered, the ring runs dry, which is counted apart from the pool's having run
// dry before, and when buffers come back receive goes on: no interrupt comes
// meanwhile, and the rig's clock stands still.
func TestStarvation(t *testing.T) {
	r := newRig(t, 1, nil)
	r.up.keep = true
	r.start()
	for i := range rxPerQueue {
		r.arrive(0, numbered(i, 200), framework.Packet{}, 0)
	}
	r.until("all delivered", func() bool { return len(r.deliveries(0)) == rxPerQueue })
	r.until("asleep", func() bool { return r.e.tasks[0].state.Load() == idle })
	if r.dev.receive(0, numbered(7, 200), framework.Packet{}, 0) {
		t.Fatal("a buffer that nobody has")
	}
	if posted, dry := r.rxCount(0, RxBuffersPosted), r.rxCount(0, RxRingDry); posted != 0 || dry != 1 {
		t.Errorf("the device has %d buffers, and had none %d times", posted, dry)
	}
	if pool := r.rxCount(0, RxAllocFailed); pool <= 1 {
		t.Errorf("%d refills found too few buffers: the pool was dry before the ring", pool)
	}
	r.up.giveBack(0)
	r.until("the ring is full again", func() bool { return r.rxCount(0, RxBuffersPosted) == 255 })
	r.arrive(0, numbered(7, 200), framework.Packet{}, 0)
	r.until("delivery goes on", func() bool { return len(r.deliveries(0)) == rxPerQueue+1 })
	r.finish()
	if n := r.rxDrops(0); n != 0 {
		t.Errorf("%d packets were dropped", n)
	}
}

// rxDrops is how many received packets of a queue were dropped, for any reason.
func (r *rig) rxDrops(q int) (n uint64) {
	for c := RxDropCRC; c <= RxDropPortFull; c++ {
		n += r.rxCount(q, c)
	}
	return n
}

// giveBackSome returns up to n of the buffers that keep has kept, oldest first.
func (u *fakeUpper) giveBackSome(q, n int) {
	u.mu.Lock()
	n = min(n, len(u.kept[q]))
	u.back[q] = append(u.back[q], u.kept[q][:n]...)
	u.kept[q] = u.kept[q][n:]
	wake := u.wakeRx[q]
	u.mu.Unlock()
	wake()
}

// TestStalledPortBehindFlowControl: a port that holds everything, now and then, and
// gives it back in any amount, loses nothing of what a wire with flow control
// holds back, whatever the ring's size and however many buffers a packet takes.
func TestStalledPortBehindFlowControl(t *testing.T) {
	for _, ring := range []int{8, 9, 64, 601, 1024} {
		for _, owner := range []framework.LROOwner{framework.LRONone, framework.LROSoftware} {
			seed := rand.Uint64()
			t.Run(fmt.Sprintf("ring of %d, LRO %v, seed %d", ring, owner, seed), func(t *testing.T) {
				stall(t, ring, owner, rand.New(rand.NewPCG(seed, 0)))
			})
		}
	}
}

func stall(t *testing.T, ring int, owner framework.LROOwner, rnd *rand.Rand) {
	r := newRig(t, 1, func(r *rig) {
		r.plan.RxDescriptors, r.plan.LRO = ring, owner
		r.opts.RxBuffers[0].Count = min(rxPerQueue, 2*uint32(ring))
	})
	r.up.keep = true
	r.start()
	const n, chunk = 3000, 500
	for i := range n {
		size := 60 + rnd.IntN(6*chunk) // up to seven buffers: all but one that the smallest ring has
		for !r.dev.receive(0, numbered(i, size), framework.Packet{}, chunk) {
			r.up.giveBackSome(0, 1+rnd.IntN(20)) // the wire waits for these
			runtime.Gosched()
		}
	}
	r.until("all delivered", func() bool { return r.rxCount(0, RxAccepted) == n })
	for i, d := range r.deliveries(0) {
		if !bytes.Equal(d.frame, numbered(i, len(d.frame))) {
			t.Fatalf("packet %d is another", i)
		}
	}
	r.finish()
	if lost := r.rxDrops(0); lost != 0 || r.rxCount(0, RxAllocFailed) == 0 {
		t.Errorf("%d packets were lost, or there was no want of buffers:\n%s", lost, r.dump())
	}
}

// teasingUpper gives one buffer back each time when the task is about to sleep.
type teasingUpper struct{ *fakeUpper }

func (u teasingUpper) ArmRx(q int) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.back[q]) == 0 && len(u.kept[q]) > 0 {
		u.back[q] = append(u.back[q], u.kept[q][0])
		u.kept[q] = u.kept[q][1:]
	}
	return len(u.back[q]) > 0
}

// TestBuffersThatTrickle: a task that is called back for one buffer at a time goes
// on for as long as any come. A device that waits for enough of them for one packet
// raises no interrupt, so a task that gave up would sleep for ever.
func TestBuffersThatTrickle(t *testing.T) {
	const pieces = 3 * maxVain
	r := newRig(t, 1, nil)
	r.up.keep = true
	r.e.rx[0].upper = teasingUpper{r.up}
	r.start()
	r.arrive(0, numbered(1, 100*pieces), framework.Packet{}, 100)
	r.until("delivered", func() bool { return len(r.deliveries(0)) == 1 })
	for i := range 3 * rxPerQueue / pieces {
		r.arrive(0, numbered(i, 100*pieces), framework.Packet{}, 100)
	}
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

// TestImpossibleLengths: a frame that is shorter or longer than any is a bad frame,
// like others that a device makes: nothing above would take it, and nothing is reset
// for it.
func TestImpossibleLengths(t *testing.T) {
	r := newRig(t, 1, nil).start()
	for i, size := range []int{1, 13, 14, framework.MaxPacketLen, framework.MaxPacketLen + 1} {
		frame := make([]byte, max(size, 16))
		copy(frame, numbered(i, len(frame)))
		r.arrive(0, frame[:size], framework.Packet{}, 2000)
	}
	r.until("all received", func() bool { return r.rxCount(0, RxPackets) == 5 })
	r.finish()
	if short, long := r.rxCount(0, RxDropDevice), r.rxCount(0, RxDropTooLong); short != 2 || long != 1 || len(r.deliveries(0)) != 2 {
		t.Errorf("dropped %d and %d, delivered %d", short, long, len(r.deliveries(0)))
	}
	if r.count(DeviceResets)+r.count(QueueResets)+r.rxCount(0, RxQueueFaults) != 0 {
		t.Error("a bad frame reset something")
	}
}

// TestChecksumOutsideThePacket: where a checksum is to be filled in is a device's word.
// A place that is not in the packet makes it a bad frame; a port would write there, and
// nicd end the plugin.
func TestChecksumOutsideThePacket(t *testing.T) {
	r := newRig(t, 1, nil).start()
	places := []struct {
		start, offset uint16
		inside        bool
	}{{34, 16, true}, {46, 16, true}, {46, 17, false}, {64, 0, false}, {0, 65535, false}, {65535, 65535, false}}
	want := 0
	for i, at := range places {
		r.arrive(0, numbered(i, 64), framework.Packet{
			Flags:         framework.ChecksumPartial | framework.ChecksumVerified,
			ChecksumStart: at.start, ChecksumOffset: at.offset,
		}, 2000)
		if at.inside {
			want++
		}
	}
	r.until("all received", func() bool { return r.rxCount(0, RxPackets) == uint64(len(places)) })
	r.finish()
	got := r.deliveries(0)
	for _, d := range got {
		if p := d.packet; p.Flags&framework.ChecksumPartial == 0 || int(p.ChecksumStart)+int(p.ChecksumOffset)+2 > int(p.Len) {
			t.Errorf("delivered %+v", p)
		}
	}
	if dropped := r.rxCount(0, RxDropDevice); len(got) != want || dropped != uint64(len(places)-want) {
		t.Errorf("delivered %d, dropped %d", len(got), dropped)
	}
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
