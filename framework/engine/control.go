package engine

import (
	"context"

	"nicd/framework"
)

// Control is what nicd does with an interface's engine, wherever it runs: in
// this process ([Engine]) or in a driver plugin's (the client in package
// plugin). Calls are serialised by nicd. Every call ends when ctx does.
type Control interface {
	// Info describes the attached device.
	Info(ctx context.Context) (framework.Info, error)
	// Start makes the device and the queues' tasks run.
	Start(ctx context.Context, p Plan) error
	// Stop halts both. Every packet in a queue is dropped and counted, and every
	// buffer is back where it came from.
	Stop(ctx context.Context) error
	// Change makes p the plan in force, the least disruptive way that the driver
	// knows, and tells which that was. On error the old plan stays in force.
	Change(ctx context.Context, p Plan) (framework.Effect, error)
	// Effect says what Change would take to get to p, or why it would refuse p
	// at once. It changes nothing.
	Effect(ctx context.Context, p Plan) (framework.Effect, error)
	// SetQuirks changes quirks' effective values.
	SetQuirks(ctx context.Context, values map[string]string) error
	SetFilters(ctx context.Context, f framework.Filters) error
	// HardwareCounters are totals since Attach, in Info.Counters' order.
	HardwareCounters(ctx context.Context) ([]uint64, error)
	// Detach ends all. The Control is dead afterwards. If the engine is in this
	// process, ErrEnding says that it uses what it was given all the same.
	Detach(ctx context.Context) error
	// Events delivers what happens by itself until Detach, or until the engine's
	// process dies; then it is closed.
	Events() <-chan Event
}

// Event is something that an engine reports by itself.
type Event struct {
	Kind   EventKind
	Link   framework.Link // LinkEvent
	Queue  int            // QueueReset
	Reason string         // for resets and faults
}

// EventKind is the kind of an Event.
type EventKind uint8

// Event kinds.
const (
	LinkEvent   EventKind = iota // the link's state, also once after Start
	ModeEvent                    // the device's mode changed: read Info, set quirks
	QueueReset                   // the watchdog or the device reset a queue
	DeviceReset                  // the device was reset; it runs again
	DeviceLost                   // the device is gone or does not recover; the engine has stopped
)
