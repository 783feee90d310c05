package bus

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func newDoorbells(t testing.TB, mem *Memory) *Doorbells {
	t.Helper()
	e, err := NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return NewDoorbells(mem, e)
}

func TestRingSignalsOnlyASleeper(t *testing.T) {
	d := newDoorbells(t, HeapMemory(DoorbellPageSize))
	d.Ring(3, 10)
	if n := d.Event().Take(); n != 0 {
		t.Errorf("an awake device was signalled %d times", n)
	}
	d.Arm()
	d.Ring(3, 11)
	d.Ring(3, 12)
	if n := d.Event().Take(); n != 1 || d.Value(3).Load() != 12 {
		t.Errorf("a sleeping device was signalled %d times and sees %d", n, d.Value(3).Load())
	}
	d.Arm()
	d.Disarm()
	d.Ring(3, 13)
	if n := d.Event().Take(); n != 0 {
		t.Errorf("a device that woke by itself was signalled %d times", n)
	}
}

// TestNoDriverKeepsADeviceAsleep: a driver has written over the word that says that the
// device sleeps, and takes what its event counts. Its own rings may go unheard; a wire's
// call does not.
func TestNoDriverKeepsADeviceAsleep(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, word := range []uint32{0, 1, 2, ^uint32(0)} {
		d := newDoorbells(t, HeapMemory(DoorbellPageSize))
		d.Rouse()
		if d.Sleep(over) == nil {
			t.Error("an awake device was roused")
		}
		for range 3 {
			d.Arm()
			Word(d.Memory().Bytes(), 0).Store(word)
			d.Rouse()
			d.Set(0, 7)
			if n := d.Event().Take(); n != 0 {
				t.Errorf("the driver could take %d wake-ups", n)
			}
			if d.Sleep(over) != nil {
				t.Errorf("a device goes on sleeping whose word is %#x", word)
			}
			if d.Sleep(over) == nil {
				t.Error("it is roused twice")
			}
		}
	}
}

func TestDoorbellsStayInTheirPage(t *testing.T) {
	d := newDoorbells(t, HeapMemory(DoorbellPageSize))
	d.Value(MaxDoorbells - 1).Store(1)
	defer func() {
		if recover() == nil {
			t.Error("there is a doorbell beyond the last")
		}
	}()
	d.Value(MaxDoorbells)
}

func TestDoorbellRange(t *testing.T) {
	r := DoorbellRange{Region: 1, Offset: 0x600, Stride: 8, First: 5, Count: 3}
	for _, c := range []struct {
		region int
		offset uint32
		bell   int
		ok     bool
	}{
		{1, 0x600, 5, true}, {1, 0x608, 6, true}, {1, 0x610, 7, true},
		{1, 0x618, 0, false}, {1, 0x604, 0, false}, {1, 0x5f8, 0, false}, {0, 0x600, 0, false},
	} {
		if bell, ok := r.Index(c.region, c.offset); ok != c.ok || ok && bell != c.bell {
			t.Errorf("Index(%d, %#x) = %d, %v", c.region, c.offset, bell, ok)
		}
	}
	single := DoorbellRange{Offset: 0x3818, First: 2, Count: 1}
	if bell, ok := single.Index(0, 0x3818); bell != 2 || !ok {
		t.Errorf("a register without stride: %d, %v", bell, ok)
	}
	if _, ok := single.Index(0, 0x381c); ok {
		t.Error("its neighbour is a doorbell, too")
	}
}

// Two drivers ring their doorbells and wait for the device to have seen each
// ring; the device sleeps whenever it finds nothing. A lost wake-up would hang.
// The payload is plain memory published by the ring, so that the race detector
// checks the order, too.
func TestNoRingIsLost(t *testing.T) {
	const drivers, rings = 2, 20000
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	d := newDoorbells(t, HeapMemory(DoorbellPageSize))
	var payload [drivers]uint32
	seen := make([]chan uint32, drivers)
	for i := range seen {
		seen[i] = make(chan uint32, 1)
		go func() {
			for v := uint32(1); v <= rings; v++ {
				payload[i] = v
				d.Ring(i, v)
				if got := <-seen[i]; got != v {
					t.Errorf("driver %d rang %d, the device saw %d", i, v, got)
					return
				}
			}
		}()
	}
	var last [drivers]uint32
	look := func() (found bool) {
		for i := range last {
			v := d.Value(i).Load()
			if v == last[i] {
				continue
			}
			last[i], found = v, true
			seen[i] <- payload[i]
		}
		return found
	}
	for last != [drivers]uint32{rings, rings} {
		if look() {
			continue
		}
		d.Arm()
		if look() {
			d.Disarm()
			continue
		}
		if err := d.Sleep(ctx); err != nil {
			t.Fatalf("after %v of %d rings: %v", last, rings, err)
		}
	}
}

func BenchmarkRingAwake(b *testing.B) {
	d := newDoorbells(b, HeapMemory(DoorbellPageSize))
	b.ReportAllocs()
	for i := range b.N {
		d.Ring(0, uint32(i))
	}
}

func BenchmarkRingAsleep(b *testing.B) {
	d := newDoorbells(b, HeapMemory(DoorbellPageSize))
	b.ReportAllocs()
	for i := range b.N {
		d.Arm()
		d.Ring(0, uint32(i))
	}
}

// register is a write as CarryOut hands it out.
type register struct {
	region        int
	offset, value uint32
}

func carried(t *testing.T, d *Doorbells) (w []register) {
	t.Helper()
	if err := d.CarryOut(func(region int, offset, value uint32) {
		w = append(w, register{region, offset, value})
	}); err != nil {
		t.Fatal(err)
	}
	return w
}

func TestPostedWritesComeInOrder(t *testing.T) {
	mem := HeapMemory(DoorbellPageSize)
	driver, device := newDoorbells(t, mem), newDoorbells(t, mem)
	next := uint32(0)
	for round := range 3 * MaxPosted {
		n := round % (MaxPosted + 1)
		for i := range uint32(n) {
			if !driver.Post(int(next+i)%6, 4*(next+i), ^(next + i)) {
				t.Fatalf("round %d: no room for write %d of %d", round, i, n)
			}
		}
		if n > 0 && (driver.Idle() || !device.Pending()) {
			t.Fatalf("round %d: nothing seems to wait", round)
		}
		got := carried(t, device)
		if len(got) != n || !driver.Idle() || device.Pending() {
			t.Fatalf("round %d: %d of %d carried out", round, len(got), n)
		}
		for _, w := range got {
			if w != (register{int(next) % 6, 4 * next, ^next}) {
				t.Fatalf("write %d is %+v", next, w)
			}
			next++
		}
	}
}

func TestPostedQueueIsBounded(t *testing.T) {
	d := newDoorbells(t, HeapMemory(DoorbellPageSize))
	for i := range uint32(MaxPosted) {
		if !d.Post(0, 0, i) {
			t.Fatalf("no room for write %d", i)
		}
	}
	if d.Post(0, 0, MaxPosted) {
		t.Error("room beyond the last place")
	}
	if w := carried(t, d); len(w) != MaxPosted || w[MaxPosted-1].value != MaxPosted-1 {
		t.Errorf("carried out %+v", w)
	}
}

func TestPostWakesOnlyASleeper(t *testing.T) {
	d := newDoorbells(t, HeapMemory(DoorbellPageSize))
	d.Post(0, 0, 1)
	if n := d.Event().Take(); n != 0 {
		t.Errorf("an awake device was signalled %d times", n)
	}
	d.Arm()
	d.Post(0, 0, 2)
	d.Post(0, 0, 3)
	if n := d.Event().Take(); n != 1 {
		t.Errorf("a sleeping device was signalled %d times", n)
	}
}

// Several drivers' goroutines post, several of the device's carry out: each
// poster's writes come in its order, none twice, none lost.
func TestPostedWritesOfMany(t *testing.T) {
	const posters, writes = 3, 3000
	mem := HeapMemory(DoorbellPageSize)
	driver, device := newDoorbells(t, mem), newDoorbells(t, mem)
	var posting, carrying sync.WaitGroup
	for p := range posters {
		posting.Go(func() {
			for v := uint32(0); v < writes; {
				if driver.Post(p, 0, v) {
					v++
				} else {
					runtime.Gosched()
				}
			}
		})
	}
	var next [posters]uint32
	var bad atomic.Uint32
	done := make(chan struct{})
	for range 2 {
		carrying.Go(func() {
			for ended := false; !ended; {
				select {
				case <-done:
					ended = true // and once more
				default:
				}
				if device.CarryOut(func(region int, _, value uint32) {
					if value != next[region] {
						bad.Add(1)
					}
					next[region]++
				}) != nil {
					bad.Add(1)
				}
				runtime.Gosched()
			}
		})
	}
	posting.Wait()
	close(done)
	carrying.Wait()
	if bad.Load() != 0 || next != [posters]uint32{writes, writes, writes} || !driver.Idle() {
		t.Errorf("%d out of order or refused; carried out %v of %d each", bad.Load(), next, writes)
	}
}

func TestPostedCountOutOfRange(t *testing.T) {
	mem := HeapMemory(DoorbellPageSize)
	d := newDoorbells(t, mem)
	Word(mem.Bytes(), tailOffset).Store(MaxPosted + 1)
	if err := d.CarryOut(func(int, uint32, uint32) { t.Error("a write came of it") }); !errors.Is(err, ErrPosted) {
		t.Errorf("got %v", err)
	}
	tail := Word(mem.Bytes(), tailOffset)
	tail.Store(0)
	next := newDoorbells(t, mem)
	next.Post(2, 8, 1)
	if w := carried(t, d); len(w) != 1 || w[0] != (register{2, 8, 1}) {
		t.Errorf("after a count that was put right: %+v", w)
	}
	tail.Store(tail.Load() - 1) // less than has been carried out
	if err := d.CarryOut(func(int, uint32, uint32) { t.Error("a write came of it") }); !errors.Is(err, ErrPosted) {
		t.Errorf("a count that went back: %v", err)
	}
}
