package vfiouser

import (
	"context"
	"testing"

	"golang.org/x/sys/unix"

	"nicd/bus"
)

// quiesced returns when the server has carried out all that was posted.
func quiesced(c *Client, r bus.Region) { r.Read32(0) }

func TestRingIsAStore(t *testing.T) {
	d := newFakeDevice(t)
	c, _ := connect(t, d, ServeOptions{})
	r := bar(t, c, 0)
	for i := range uint32(bellCount) {
		r.Write32(bellOffset+i*bellStride, 100+i)
		if got := d.page().Value(bellFirst + int(i)).Load(); got != 100+i {
			t.Errorf("doorbell %d is %d", i, got)
		}
	}
	r.Write32(bellOffset+4, 1)                    // between two doorbells
	r.Write32(bellOffset+bellCount*bellStride, 2) // after the last
	quiesced(c, r)
	w := d.bars[0].takeWrites()
	if len(w) != 2 || w[0].offset != bellOffset+4 || w[1].offset != bellOffset+bellCount*bellStride {
		t.Errorf("posted were %+v", w)
	}
	if got := r.Read32(bellOffset); got != 100 {
		t.Errorf("a doorbell reads %d", got)
	}
}

func TestRingWakesASleepingDeviceOnce(t *testing.T) {
	d := newFakeDevice(t)
	c, _ := connect(t, d, ServeOptions{})
	r := bar(t, c, 0)
	r.Write32(bellOffset, 1)
	if n := d.page().Event().Take(); n != 0 {
		t.Errorf("an awake device was signalled %d times", n)
	}
	d.page().Arm()
	r.Write32(bellOffset, 2)
	r.Write32(bellOffset, 3)
	if n := d.page().Event().Take(); n != 1 {
		t.Errorf("a sleeping device was signalled %d times", n)
	}
}

// A ring must not overtake a posted write that is still on its way; after that
// one has arrived, rings are stores again.
func TestRingWaitsForPostedWrites(t *testing.T) {
	d := newFakeDevice(t)
	d.bars[0].gate = make(chan struct{})
	c, _ := connect(t, d, ServeOptions{})
	r := bar(t, c, 0)
	r.Write32(gateOffset, 1)
	r.Write32(bellOffset, 7)
	if got := d.page().Value(bellFirst).Load(); got != 0 {
		t.Fatalf("the ring overtook a posted write: the doorbell is %d", got)
	}
	close(d.bars[0].gate)
	quiesced(c, r)
	w := d.bars[0].takeWrites()
	if len(w) != 2 || w[0].bells[0] != 0 || w[1].offset != bellOffset {
		t.Fatalf("the device saw %+v", w)
	}
	if got := d.page().Value(bellFirst).Load(); got != 7 {
		t.Errorf("the doorbell is %d", got)
	}
	r.Write32(bellOffset, 8)
	if got := d.page().Value(bellFirst).Load(); got != 8 {
		t.Errorf("the doorbell is %d after the queue ran dry", got)
	}
}

// The same at speed: write k always finds the doorbell below k. Both ways to
// ring have to have been taken for the test to mean anything.
func TestRingNeverOvertakes(t *testing.T) {
	const rounds = 5000
	d := newFakeDevice(t)
	c, _ := connect(t, d, ServeOptions{})
	r := bar(t, c, 0)
	for k := uint32(1); k <= rounds; k++ {
		r.Write32(0x10, k)
		if k%16 == 0 {
			quiesced(c, r) // or the page is hardly ever used
		}
		r.Write32(bellOffset, k)
	}
	quiesced(c, r)
	posted, next := 0, uint32(1)
	for _, w := range d.bars[0].takeWrites() {
		if w.offset == bellOffset {
			posted++
			continue
		}
		if w.value != next {
			t.Fatalf("write %d arrived in %d's place", w.value, next)
		}
		if w.bells[0] >= next {
			t.Fatalf("ring %d overtook write %d", w.bells[0], next)
		}
		next++
	}
	if next != rounds+1 || posted == 0 || posted > rounds-rounds/16 {
		t.Errorf("%d writes and %d rings were posted", next-1, posted)
	}
}

// A second client starts with the count of posted writes at zero, as the first.
func TestNextClientRingsByPage(t *testing.T) {
	d := newFakeDevice(t)
	for range 2 {
		c, end := connect(t, d, ServeOptions{})
		r := bar(t, c, 0)
		r.Write32(0x10, 1)
		quiesced(c, r)
		d.bars[0].takeWrites()
		r.Write32(bellOffset, 5)
		quiesced(c, r)
		if w := d.bars[0].takeWrites(); len(w) != 0 {
			t.Errorf("the ring was posted: %+v", w)
		}
		c.Close()
		end()
	}
}

// A client that has gone lives on and writes to the page that it had, and takes from and
// signals the event: none of that reaches the next one's device.
func TestAFormerClientReachesNothing(t *testing.T) {
	d := newFakeDevice(t)
	former, end := connect(t, d, ServeOptions{})
	bar(t, former, 0).Write32(bellOffset, 5)
	// Its end of both, as if they were in another process.
	page, event := former.bells.Memory(), former.bells.Event()
	fd, err := dup(int(page.File().Fd()), "kept")
	if err != nil {
		t.Fatal(err)
	}
	kept, err := bus.OpenMemory(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	keptFD, err := dup(int(event.File().Fd()), "kept")
	if err != nil {
		t.Fatal(err)
	}
	defer keptFD.Close()
	former.Close()
	end()
	log := d.takeLog()
	if n := len(log); n < 2 || log[n-2] != "renew" || log[n-1] != "reset" {
		t.Errorf("a client's end was %q", log)
	}
	c, _ := connect(t, d, ServeOptions{})
	r := bar(t, c, 0)
	r.Write32(bellOffset, 6)
	for i := range len(kept.Bytes()) / 4 {
		bus.Word(kept.Bytes(), 4*i).Store(0xffffffff)
	}
	if got := r.Read32(bellOffset); got != 6 { // it ends the connection if the count is odd
		t.Errorf("the doorbell is %#x", got)
	}
	if _, err := unix.Write(int(keptFD.Fd()), []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	if n := d.page().Event().Take(); n != 0 {
		t.Errorf("the device was woken %d times", n)
	}
}

// The device sleeps whenever it sees nothing new, the client waits for each ring
// to be seen: a lost wake-up would hang.
func TestNoRingIsLostAcrossTheSocket(t *testing.T) {
	const rings = 5000
	d := newFakeDevice(t)
	d.bars[0].quiet = true
	c, _ := connect(t, d, ServeOptions{})
	r := bar(t, c, 0)
	ctx, cancel := context.WithCancel(soon(t))
	defer cancel()
	bells, seen := d.page(), make(chan uint32, 1)
	go func() {
		defer close(seen)
		for last := uint32(0); last != rings; {
			bells.Arm()
			if bells.CarryOut(d.writePosted) != nil {
				return
			}
			if v := bells.Value(bellFirst).Load(); v != last {
				bells.Disarm()
				last = v
				seen <- v
				continue
			}
			if bells.Sleep(ctx) != nil {
				return
			}
		}
	}()
	for v := uint32(1); v <= rings; v++ {
		if v%7 == 0 {
			r.Write32(0x10, v) // some rings are posted
		}
		r.Write32(bellOffset, v)
		if got, ok := <-seen; !ok || got != v {
			t.Fatalf("rang %d, the device saw %d", v, got)
		}
	}
}

// More writes than the queue has places for, with a device that carries none out by
// itself: they arrive all the same, in order, through the server.
func TestFullQueueOfPostedWrites(t *testing.T) {
	const writes = 10*bus.MaxPosted + 7
	d := newFakeDevice(t)
	c, _ := connect(t, d, ServeOptions{})
	r := bar(t, c, 0)
	for v := range uint32(writes) {
		r.Write32(0x10, v)
	}
	quiesced(c, r)
	w := d.bars[0].takeWrites()
	if len(w) != writes {
		t.Fatalf("%d writes of %d arrived", len(w), writes)
	}
	for i := range w {
		if w[i].value != uint32(i) {
			t.Fatalf("write %d is %+v", i, w[i])
		}
	}
}

// Where a posted write goes is the client's word only.
func TestPostedWriteToNowhere(t *testing.T) {
	d := newFakeDevice(t)
	c, _ := connect(t, d, ServeOptions{})
	for _, region := range []int{1, 2, bus.ConfigSpace, 1 << 31, 0xffffffff} {
		if !c.bells.Post(region, 0x20, 9) {
			t.Fatal("queue full")
		}
	}
	quiesced(c, bar(t, c, 0))
	if w := d.bars[1].takeWrites(); len(w) != 1 || w[0].value != 9 {
		t.Errorf("BAR 1 saw %+v", w)
	}
}

// A count that is out of range ends the connection; the device goes on.
func TestPostedNonsenseEndsTheConnection(t *testing.T) {
	d := newFakeDevice(t)
	c, _ := connect(t, d, ServeOptions{})
	r := bar(t, c, 0)
	bus.Word(c.bells.Memory().Bytes(), 2048).Store(bus.MaxPosted + 1)
	if v := r.Read32(0); v != bus.Gone {
		t.Errorf("read %#x", v)
	}
	if w := d.bars[0].takeWrites(); len(w) != 0 {
		t.Errorf("the device saw %+v", w)
	}
}

func TestWritesDoNotAllocate(t *testing.T) {
	d := newFakeDevice(t)
	for _, r := range d.bars {
		r.quiet = true
	}
	c, _ := connect(t, d, ServeOptions{})
	r := bar(t, c, 0)
	if n := testing.AllocsPerRun(200, func() { r.Write32(bellOffset, 1) }); n != 0 {
		t.Errorf("a ring allocates %v times", n)
	}
	if n := testing.AllocsPerRun(bus.MaxPosted/2, func() { r.Write32(0x10, 1) }); n != 0 {
		t.Errorf("a write posted in the page allocates %v times", n)
	}
	// The server in this process allocates as it receives; the client alone is
	// measured by a server that does not read.
	silent, file, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	uc, err := fileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	defer uc.Close()
	lone := &region{client: &Client{conn: newConn(uc), timeout: defaultTimeout}, size: 4096}
	if n := testing.AllocsPerRun(200, func() { lone.Write32(8, 1) }); n != 0 {
		t.Errorf("a write posted by message allocates %v times", n)
	}
}

func BenchmarkRing(b *testing.B) {
	d := newFakeDevice(b)
	c, _ := connect(b, d, ServeOptions{})
	r := bar(b, c, 0)
	b.ReportAllocs()
	for i := range b.N {
		r.Write32(bellOffset, uint32(i))
	}
}

func BenchmarkPostedWrite(b *testing.B) {
	d := newFakeDevice(b)
	d.bars[0].quiet = true
	c, _ := connect(b, d, ServeOptions{})
	r := bar(b, c, 0)
	b.ReportAllocs()
	for i := range b.N {
		r.Write32(0x10, uint32(i))
	}
	quiesced(c, r)
}

func BenchmarkRegisterRead(b *testing.B) {
	d := newFakeDevice(b)
	d.bars[0].quiet = true
	c, _ := connect(b, d, ServeOptions{})
	r := bar(b, c, 0)
	b.ReportAllocs()
	for range b.N {
		r.Read32(0x10)
	}
}
