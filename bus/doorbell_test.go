package bus

import (
	"context"
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
