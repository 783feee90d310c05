// Package framework is what the author of a NIC driver imports: what a driver
// is ([Driver], [Device], [RxQueue], [TxQueue]), how packets look between driver
// and framework ([Batch], [Packet], [Buffers]), how a device says that it
// differs from the ordinary one ([Quirk]) and what can be switched on and off
// ([Features]).
//
// A driver holds only what is true of one device: registers, descriptor formats
// and quirks. Everything that is the same for all devices — buffers, queueing,
// interrupts and the tasks they schedule, software LRO, offload fallbacks, the
// watchdog, counters — is the engine's (package engine), and a driver never
// imports it.
package framework

import (
	"context"
	"errors"
	"fmt"

	"github.com/rs/zerolog"

	"nicd/bus"
)

// Errors of drivers, wrapped with what happened.
var (
	// ErrNotOurs: Attach found a device that this driver does not drive.
	ErrNotOurs = errors.New("driver does not match this device")
	// ErrUnsupported: the device cannot do what was asked of it.
	ErrUnsupported = errors.New("not supported by this device")
	// ErrDevice: the device refused a command or answers nonsense.
	ErrDevice = errors.New("device error")
)

// Driver makes Devices. It holds no state of its own; one Driver may attach many
// devices, concurrently.
type Driver interface {
	// Describe says what the driver drives and which quirks it declares. The
	// answer never changes.
	Describe() Description

	// Attach finds out what dev is, which is one of Description.IDs and a bus
	// master, resets it and makes it ready for Start. It reads quirks from env. On
	// error it leaves nothing behind: no interrupt, no DMA, no memory. The driver
	// does not close dev. Only the function Attach calls this.
	Attach(ctx context.Context, dev bus.Device, env Env) (Device, error)
}

// Description is what a driver is.
type Description struct {
	Name    string // "vmxnet3"
	Version string
	IDs     []DeviceID
	// Quirks are the driver's declarations. One with a Match that holds wins over
	// those for all devices; among equals a later one wins over an earlier one.
	Quirks []Declaration
}

// DeviceID is a PCI identity that a driver drives.
type DeviceID struct {
	Vendor, Device uint16
	Name           string // "Intel 82574L"
}

// Env is what the framework gives a driver at Attach, for the device's lifetime.
type Env struct {
	Name   string // the interface, for messages
	ID     int    // which of Description.IDs the device is
	Log    zerolog.Logger
	Quirks *QuirkSet // effective values, re-evaluated by the framework when link or mode change
	DMA    DMA
}

// DMA hands out memory that the device can access: descriptor rings, shared
// areas. Called on the control path only.
type DMA interface {
	// Alloc returns size zeroed bytes, aligned, that stay valid until Detach has
	// returned or, if made between Start and Stop, until Stop has: what Start
	// allocates is taken back after Stop.
	Alloc(size, align int) (Block, error)
}

// Block is memory with a device address.
type Block struct {
	Bytes []byte
	Addr  uint64
}

// Device is an attached NIC: the control half of a driver. Those methods that return
// an error need not care whether the device is there: see Gone. The framework calls
// its methods one at a time, never from the data path, with three exceptions:
// Interrupt, Mask and Unmask may be called at any time between Start and the
// end of Stop, one at a time for each vector.
type Device interface {
	// Gone tells whether nobody answers: whether a register that can never hold all
	// ones does (bus.Gone). Then the framework does not believe what other calls
	// have read, and ends the device. It is called after most of them.
	Gone() bool

	// Info describes the device found. It is called after Attach and again after
	// the device said that its mode changed.
	Info() Info

	// Start makes the device run with cfg and returns its queues, empty: the
	// framework posts receive buffers next. Interrupts are masked. On error
	// nothing runs.
	Start(cfg Config) (Queues, error)

	// Stop halts the device. No DMA is in flight when it returns, every buffer
	// is the framework's again, and the queues are dead. It does no harm to a
	// stopped device, which can be started again.
	Stop(ctx context.Context) error

	// Detach undoes Attach. The device is stopped.
	Detach() error

	// Plan says what it takes to get from the settings in force to next. It
	// changes nothing; an error means that the device can't.
	Plan(next Settings) (Effect, error)

	// Apply makes next the settings in force. The framework has done what Plan
	// asked for: nothing for Live; for Quiesce each queue pair's tasks have halted
	// and gone on, one pair after the other, so that no packet which Put takes
	// from then on asks for a feature that next does not have. The queues are in
	// use meanwhile, in both cases, and packets put before may still be with the
	// device: where it would treat those by next, Plan asks for a Reset. Apply is
	// not called for Reset, which is a Stop and a Start. An error changes nothing.
	Apply(next Settings) error

	// Link reads the link's state from the device.
	Link() (Link, error)

	// SetFilters sets the whole wanted set, which fits what Info declared: the
	// framework has replaced what overflows by promiscuity.
	SetFilters(Filters) error

	// ReadCounters stores the hardware's counters to dst in the order that
	// Info.Counters declared, as totals: since when does not matter, if that is the
	// same from Start to Stop. (The framework takes the difference to what they are
	// at Start and adds that up over resets.)
	ReadCounters(dst []uint64) error

	// Interrupt acknowledges what vector signals and says what it was. No work
	// is done here. A zero Cause means that the interrupt was not the device's.
	Interrupt(vector int) Cause

	// Mask and Unmask keep a vector from firing and let it again. A cause that
	// arose while the vector was masked fires on Unmask.
	Mask(vector int)
	Unmask(vector int)

	// Admin handles what Cause.Admin announced (link changes, queue errors) and
	// is also called about once a second, from Start to Stop. It may sleep.
	Admin() Events
}

// QueueResetter is implemented by Devices that can reset one queue pair while
// the others run. For other Devices the engine resets the device instead.
//
// It takes hardware that stops the DMA of one queue and says when that has ended.
// Not every device has such a thing: a vmxnet3 is quiesced or reset as a whole
// (commands QUIESCE_DEV and RESET_DEV are the only ones of vmxnet3_defs.h). A
// driver that would only write its rings anew, under a device that may be looking
// at them, does not implement this.
type QueueResetter interface {
	// ResetQueue brings receive and transmit queue q, as far as the device has
	// them, into the state that Start leaves them in. The framework has stopped
	// the queue's tasks. When it returns, no DMA of the queue is in flight and
	// all its buffers are the framework's; the queues returned (nil where there
	// is none) replace the old ones. After an error the framework resets the
	// device.
	ResetQueue(q int) (RxQueue, TxQueue, error)
}

// Queues are a started device's queues.
type Queues struct {
	Rx []RxQueue
	Tx []TxQueue
}

// NewQueues makes the queues that cfg wants, of a driver's own types, receive queues
// first. The first error ends it and says which queue it was.
func NewQueues[R RxQueue, T TxQueue](cfg *Config, rx func(queue int) (R, error), tx func(queue int) (T, error)) (q Queues, err error) {
	for i := range cfg.RxQueues {
		r, err := rx(i)
		if err != nil {
			return Queues{}, fmt.Errorf("receive queue %d: %w", i, err)
		}
		q.Rx = append(q.Rx, r)
	}
	for i := range cfg.TxQueues {
		t, err := tx(i)
		if err != nil {
			return Queues{}, fmt.Errorf("transmit queue %d: %w", i, err)
		}
		q.Tx = append(q.Tx, t)
	}
	return q, nil
}

// RxQueue is the receive half of a queue pair. One goroutine owns it at a time;
// nothing in it locks or allocates.
type RxQueue interface {
	// Poll takes what the device has finished, in one pass over its descriptors:
	// whole packets are appended to dst, with their buffers, until dst is full
	// or no whole packet is left. A packet too long for the fragments that
	// dst has left stays for the next call. Bad packets are appended too, with
	// Packet.Error set, so that the framework can count them and have their
	// buffers. Buffers that the device skipped are put back by the driver.
	Poll(dst *Batch) Verdict

	// Post gives buffers to the device, as many as fit, and returns how many.
	// At most size-1 descriptors of a ring are ever outstanding. It does not
	// ring the bell.
	Post(bufs []Buffer) int

	// Bell tells the device about posted buffers, if it wants to be told.
	Bell()

	// Pending tells whether Poll would find a packet. It changes nothing.
	Pending() bool
}

// TxQueue is the transmit half of a queue pair. One goroutine owns it at a time;
// nothing in it locks or allocates.
type TxQueue interface {
	// Put writes descriptors for the packets of b from index from on, until the
	// ring is full, and returns how many packets it took. No packet is
	// published by half, and the bell is not rung. The framework has seen to it
	// that each packet keeps the limits that Info declared, and that no fragment
	// is empty.
	Put(b *Batch, from int) int

	// Bell tells the device about everything put since the last Bell.
	Bell()

	// Completed returns how many packets, oldest first, the device has finished
	// since the last call, at most max. Their buffers are the framework's.
	Completed(max int) int

	// Pending tells whether Completed would return more than zero. It changes
	// nothing.
	Pending() bool
}

// Verdict is what a Poll says of the queue; it is never about one packet.
type Verdict uint8

// Verdicts.
const (
	Healthy     Verdict = iota
	QueueFault          // this queue has to be reset
	DeviceFault         // the device has to be reset
	DeviceGone          // nobody answers
)

// Cause is what an interrupt was about: bit q for queue q.
type Cause struct {
	Rx, Tx uint64
	Admin  bool // Admin has something to do
}

// None tells whether the interrupt was not the device's.
func (c Cause) None() bool { return c == Cause{} }

// Events is what Admin found.
type Events struct {
	LinkChanged bool   // Link may say something else; the framework compares
	ModeChanged bool   // read Info; quirks are evaluated again
	QueueFault  uint64 // bit q: queue pair q has stopped
	DeviceFault bool   // the device has to be reset
	Gone        bool   // nobody answers; the framework sets it, see Device.Gone
	Reason      string // for the log and the reset counter, when there was a fault
}

// Effect is what a change of settings takes.
type Effect uint8

// Effects, from cheap to dear.
const (
	Live    Effect = iota // nothing stops
	Quiesce               // each queue pair in turn stops for a moment; the device runs on
	Reset                 // the device stops and starts again; the link may bounce
)

func (e Effect) String() string {
	return [...]string{"live", "quiesce", "reset"}[e]
}
