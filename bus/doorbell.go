package bus

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
)

// Doorbells is a page that a driver stores register writes to and a device in
// software looks at. A store costs a store. Only when the device sleeps does the
// driver also signal an event, the same pattern as virtio's event index: the
// device arms, looks once more, and sleeps.
//
// Registers whose last value is all that matters, producer indices mostly, are a
// word each, a doorbell: two quick stores to one are seen as one. Writes to all
// other registers go through a short queue, in order ([Doorbells.Post]). A
// doorbell must not overtake a write in the queue, so while there is one it is
// posted as well; see [Doorbells.Idle].
//
// Layout, 4096 bytes in host byte order: word 0 is 1 while the device sleeps;
// word 1 counts the posted writes that the device has carried out; from byte 64
// on, word i is doorbell i; the word at 2048 counts the writes posted, and from
// 2112 on lie 64 places for them: region, offset, value and a word of nothing.
type Doorbells struct {
	mem   *Memory
	event *Event
	armed *atomic.Uint32
	done  *atomic.Uint32
	tail  *atomic.Uint32

	// The driver's. The page's own words are for the other side: each side counts
	// by itself what it has done.
	posting sync.Mutex
	posted  atomic.Uint32

	// The device's.
	carrying sync.Mutex
	carried  atomic.Uint32
	asleep   atomic.Bool // Arm was called, and the device has not been woken
}

const (
	// DoorbellPageSize is the size of the memory behind a Doorbells.
	DoorbellPageSize = 4096
	// DoorbellOffset is where doorbell 0 lies in the page.
	DoorbellOffset = 64
	// MaxDoorbells is how many fit.
	MaxDoorbells = (tailOffset - DoorbellOffset) / 4
	// MaxPosted is how many posted writes can wait.
	MaxPosted = 64

	doneOffset  = 4
	tailOffset  = 2048
	queueOffset = 2112
	postSize    = 16
)

// ErrPosted means that a page's count of posted writes makes no sense.
var ErrPosted = errors.New("count of posted writes out of range")

// NewDoorbells views mem, of at least DoorbellPageSize bytes, as doorbells whose
// sleeping device is woken by event. Both stay the caller's.
func NewDoorbells(mem *Memory, event *Event) *Doorbells {
	return &Doorbells{
		mem:   mem,
		event: event,
		armed: Word(mem.Bytes(), 0),
		done:  Word(mem.Bytes(), doneOffset),
		tail:  Word(mem.Bytes(), tailOffset),
	}
}

// Memory and Event are what another process needs to ring.
func (d *Doorbells) Memory() *Memory { return d.mem }

// Event is signalled when a doorbell rings while the device sleeps.
func (d *Doorbells) Event() *Event { return d.event }

// Ring stores value to doorbell i and wakes the device if it sleeps.
//
// The store and the look at whether the device sleeps are both sequentially
// consistent, as are Arm and the device's last look: one of the two sides
// always sees the other's.
func (d *Doorbells) Ring(i int, value uint32) {
	d.Value(i).Store(value)
	d.Wake()
	runtime.KeepAlive(d.mem) // not unmapped meanwhile, should it be abandoned
}

// Post queues a write of a register and wakes the device if it sleeps. When the
// queue is full it does nothing and returns false. Many goroutines may call it.
func (d *Doorbells) Post(region int, offset, value uint32) bool {
	d.posting.Lock()
	defer d.posting.Unlock()
	n := d.posted.Load()
	if n-d.done.Load() >= MaxPosted {
		return false
	}
	at := d.place(n)
	binary.NativeEndian.PutUint32(at, uint32(region))
	binary.NativeEndian.PutUint32(at[4:], offset)
	binary.NativeEndian.PutUint32(at[8:], value)
	d.posted.Store(n + 1)
	d.tail.Store(n + 1)
	d.Wake()
	runtime.KeepAlive(d.mem)
	return true
}

// place is where posted write n lies.
func (d *Doorbells) place(n uint32) []byte {
	return d.mem.Bytes()[queueOffset+n%MaxPosted*postSize:][:postSize]
}

// Idle tells whether all that was posted here has been carried out. Until then a
// Ring would overtake it. A write that another goroutine has posted counts too,
// which costs time and nothing else.
func (d *Doorbells) Idle() bool { return d.done.Load() == d.posted.Load() }

// CarryOut calls write for each register write that was posted before the call,
// in order, and perhaps for some that are posted meanwhile. It returns when all of them are done, by whichever goroutine, with
// ErrPosted if the page's count is out of range. The device calls it whenever it
// looks at its doorbells, and so does whoever does something else for the driver
// that must not overtake its writes. write must not call CarryOut.
func (d *Doorbells) CarryOut(write func(region int, offset, value uint32)) error {
	if !d.Pending() {
		return nil
	}
	d.carrying.Lock()
	defer d.carrying.Unlock()
	n, tail := d.carried.Load(), d.tail.Load()
	if tail-n > MaxPosted { // or less than 0
		return ErrPosted
	}
	for ; n != tail; n++ {
		at := d.place(n)
		region := binary.NativeEndian.Uint32(at)
		write(int(region), binary.NativeEndian.Uint32(at[4:]), binary.NativeEndian.Uint32(at[8:]))
		d.carried.Store(n + 1)
		d.done.Store(n + 1)
	}
	return nil
}

// Pending tells whether writes wait to be carried out.
func (d *Doorbells) Pending() bool { return d.tail.Load() != d.carried.Load() }

// Rouse is Wake for the device's side, a timer of its own or a wire: it neither believes
// the page, which the driver writes to as well, nor uses the event's count, which the
// driver can take. A driver that does keeps its device from hearing it, and from nothing
// else.
func (d *Doorbells) Rouse() {
	if d.asleep.Load() && d.asleep.CompareAndSwap(true, false) {
		d.event.Rouse()
	}
}

// Set is Ring for the device's side.
func (d *Doorbells) Set(i int, value uint32) {
	d.Value(i).Store(value)
	d.Rouse()
}

// Wake wakes the device if it sleeps, for the driver.
func (d *Doorbells) Wake() {
	if d.armed.Load() != 0 && d.armed.CompareAndSwap(1, 0) {
		d.event.Signal()
	}
}

// Value is the word of doorbell i.
func (d *Doorbells) Value(i int) *atomic.Uint32 {
	return Word(d.mem.Bytes()[DoorbellOffset:tailOffset], 4*i)
}

// Arm says that the device is about to sleep. The device must look at all its
// doorbells and for posted writes once more afterwards, and only then Sleep.
func (d *Doorbells) Arm() {
	d.asleep.Store(true)
	d.armed.Store(1)
}

// Disarm says that the device is awake.
func (d *Doorbells) Disarm() {
	d.asleep.Store(false)
	d.armed.Store(0)
}

// Sleep waits until a doorbell rings, someone calls Wake or Rouse, or ctx ends.
func (d *Doorbells) Sleep(ctx context.Context) error {
	_, err := d.event.Wait(ctx)
	if err == nil {
		d.asleep.Store(false)
	}
	return err
}

// DoorbellRange says which registers of a region are doorbells: count of them,
// stride bytes apart from offset on, doorbell first for the first.
type DoorbellRange struct {
	Region         int
	Offset, Stride uint32
	First, Count   int
}

// Index returns the doorbell of a register, if it is one of the range.
func (r DoorbellRange) Index(region int, offset uint32) (int, bool) {
	if region != r.Region || offset < r.Offset {
		return 0, false
	}
	d := offset - r.Offset
	if r.Stride == 0 {
		return r.First, d == 0 && r.Count > 0
	}
	if d%r.Stride != 0 || d/r.Stride >= uint32(r.Count) {
		return 0, false
	}
	return r.First + int(d/r.Stride), true
}

// DoorbellDevice is a device some of whose registers live in a doorbell page, and
// that carries out the writes posted there. A server can hand the page to its
// client, so that no register write crosses a socket.
type DoorbellDevice interface {
	Device
	Doorbells() (*Doorbells, []DoorbellRange)
	// RenewDoorbells puts a page of zeros and an event of its own in the place of the
	// last ones, before a reset, for another driver: who still has those reaches the
	// device no more. After an error there is a page that can't be handed out. No other
	// method is called meanwhile, and nobody may use the last Doorbells any more.
	RenewDoorbells() error
}
