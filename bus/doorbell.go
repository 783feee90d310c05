package bus

import (
	"context"
	"runtime"
	"sync/atomic"
)

// Doorbells is a page of registers that a driver stores to and a device in
// software looks at: producer indices, mostly. A store costs a store. Only when
// the device sleeps does the driver also signal an event, the same pattern as
// virtio's event index: the device arms, looks once more, and sleeps.
//
// Such a page holds the last value of each register and nothing else, so only
// registers whose last value is all that matters may live in it: two quick
// stores to one register are seen as one.
//
// Layout, 4096 bytes in host byte order: word 0 is 1 while the device sleeps;
// word 1 counts the posted register writes that a remote device has carried
// out (see package vfiouser); from byte 64 on, word i is doorbell i.
type Doorbells struct {
	mem   *Memory
	event *Event
	armed *atomic.Uint32
	done  *atomic.Uint32
}

const (
	// DoorbellPageSize is the size of the memory behind a Doorbells.
	DoorbellPageSize = 4096
	// DoorbellOffset is where doorbell 0 lies in the page.
	DoorbellOffset = 64
	// MaxDoorbells is how many fit.
	MaxDoorbells = (DoorbellPageSize - DoorbellOffset) / 4
)

// NewDoorbells views mem, of at least DoorbellPageSize bytes, as doorbells whose
// sleeping device is woken by event. Both stay the caller's.
func NewDoorbells(mem *Memory, event *Event) *Doorbells {
	return &Doorbells{
		mem:   mem,
		event: event,
		armed: Word(mem.Bytes(), 0),
		done:  Word(mem.Bytes(), 4),
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

// Wake wakes the device if it sleeps.
func (d *Doorbells) Wake() {
	if d.armed.Load() != 0 && d.armed.CompareAndSwap(1, 0) {
		d.event.Signal()
	}
}

// Value is the word of doorbell i.
func (d *Doorbells) Value(i int) *atomic.Uint32 {
	return Word(d.mem.Bytes(), DoorbellOffset+4*i)
}

// Posted counts the posted writes a remote device has carried out.
func (d *Doorbells) Posted() *atomic.Uint32 { return d.done }

// Arm says that the device is about to sleep. The device must look at all its
// doorbells once more afterwards, and only then Sleep.
func (d *Doorbells) Arm() { d.armed.Store(1) }

// Disarm says that the device is awake.
func (d *Doorbells) Disarm() { d.armed.Store(0) }

// Sleep waits until a doorbell rings, someone calls Wake, or ctx ends.
func (d *Doorbells) Sleep(ctx context.Context) error {
	_, err := d.event.Wait(ctx)
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

// DoorbellDevice is a device some of whose registers live in a doorbell page. A
// server can hand the page to its client, so that ringing crosses no socket.
type DoorbellDevice interface {
	Device
	Doorbells() (*Doorbells, []DoorbellRange)
}
