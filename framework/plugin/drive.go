package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/rs/zerolog"

	"nicd/bus"
	"nicd/bus/vfio"
	"nicd/bus/vfiouser"
	"nicd/framework"
	"nicd/framework/engine"
	"nicd/framework/link"
)

// defaultDMABase is the device address of an arena when the bus leaves the
// choice: off zero, so that an unset address is a fault and not a buffer, and
// below 4 GiB for devices with 32-bit addresses.
const defaultDMABase = 1 << 28

// DriveConfig is what an engine needs, wherever it runs.
type DriveConfig struct {
	Name string // of the interface
	Log  zerolog.Logger
	// Memory, Events and Generation are the link host's. They outlive the
	// Control: also when Detach fails with engine.ErrEnding, as does the device.
	Memory     *bus.Memory
	Events     link.Events
	Generation uint32
	Host       *link.Host        // if it is in this process; else nil
	Quirks     map[string]string // effective values; others have their default

	corrupt func() // called after the link was found corrupt
}

// Drive attaches driver d to dev and makes an engine for it over a link's lower
// end. This is what a plugin does on Attach, and what nicd does for a driver
// that runs in its own process. dev stays the caller's; after Detach, and on
// error, it is as it was.
func Drive(ctx context.Context, d framework.Driver, dev bus.Device, c DriveConfig) (engine.Control, error) {
	e, err := newDriven(ctx, d, dev, c)
	if err != nil {
		return nil, err
	}
	return e, nil
}

func newDriven(ctx context.Context, d framework.Driver, dev bus.Device, c DriveConfig) (*driven, error) {
	quirks := framework.NewQuirkSet()
	if err := quirks.SetAll(c.Quirks); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	base := dev.Info().DMABase
	if base == 0 {
		base = defaultDMABase
	}
	e := &driven{bus: dev, memory: c.Memory}
	lower, err := link.NewLower(link.LowerOptions{
		Memory: c.Memory, Events: c.Events, Generation: c.Generation, Base: base, Host: c.Host,
		Fault: func(err error) {
			c.Log.Error().Err(err).Msg("the link to nicd is corrupt: no more packets")
			if c.corrupt != nil {
				c.corrupt()
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	e.lower = lower
	if err := e.attach(ctx, d, base, quirks, c); err != nil {
		lower.Close()
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	return e, nil
}

// driven is an engine with what it stands on.
type driven struct {
	*engine.Engine
	lower  *link.Lower
	bus    bus.Device
	memory *bus.Memory
}

// owningDriven also ends its device.
type owningDriven struct{ *driven }

func (e owningDriven) Detach(ctx context.Context) error {
	err := e.driven.Detach(ctx)
	if errors.Is(err, engine.ErrEnding) {
		return err
	}
	return errors.Join(err, e.bus.Close())
}

func (e *driven) attach(ctx context.Context, d framework.Driver, base uint64, quirks *framework.QuirkSet, c DriveConfig) error {
	if err := e.bus.MapDMA(c.Memory, base); err != nil {
		return fmt.Errorf("arena: %w", err)
	}
	dev, err := framework.Attach(ctx, d, e.bus, framework.Env{Name: c.Name, Log: c.Log, Quirks: quirks, DMA: e.lower.DMA()})
	if err != nil {
		return errors.Join(err, e.bus.UnmapDMA(c.Memory))
	}
	o := e.options(quirks, c)
	attached := e.lower.DMA().Mark()
	o.Stopped = func() { e.lower.DMA().Rewind(attached) }
	e.Engine, err = engine.New(dev, e.lower, o)
	if err != nil {
		return errors.Join(err, dev.Detach(), e.bus.UnmapDMA(c.Memory))
	}
	return nil
}

func (e *driven) options(quirks *framework.QuirkSet, c DriveConfig) engine.Options {
	o := engine.Options{
		Name: c.Name, Log: c.Log, Quirks: quirks,
		Buffers: e.lower.Buffers(), RxAbove: true, Counters: e.lower.Counters(), Interrupts: e.bus,
	}
	for q := range e.lower.Layout().Queues {
		o.RxBuffers = append(o.RxBuffers, engine.BufferRange(e.lower.Layout().RxRange(q)))
		o.TxBuffers = append(o.TxBuffers, engine.BufferRange(e.lower.Layout().OwnRange(q)))
	}
	return o
}

func (e *driven) Start(ctx context.Context, p engine.Plan) error {
	if err := e.fits(p); err != nil {
		return err
	}
	return e.Engine.Start(ctx, p)
}

func (e *driven) Change(ctx context.Context, p engine.Plan) (framework.Effect, error) {
	if err := e.fits(p); err != nil {
		return framework.Live, err
	}
	return e.Engine.Change(ctx, p)
}

func (e *driven) Effect(ctx context.Context, p engine.Plan) (framework.Effect, error) {
	if err := e.fits(p); err != nil {
		return framework.Live, err
	}
	return e.Engine.Effect(ctx, p)
}

// fits checks that a plan asks for no more queues than the link has.
func (e *driven) fits(p engine.Plan) error {
	if n := e.lower.Layout().Queues; p.RxQueues > n || p.TxQueues > n {
		return fmt.Errorf("%w: %d receive and %d transmit queues, the link has %d", engine.ErrPlan, p.RxQueues, p.TxQueues, n)
	}
	return nil
}

// Detach ends the device, the engine and the engine's end of the link. An engine
// that has not ended keeps what it stands on.
func (e *driven) Detach(ctx context.Context) error {
	err := e.Engine.Detach(ctx)
	if errors.Is(err, engine.ErrEnding) {
		return err
	}
	e.lower.Close()
	if unmap := e.bus.UnmapDMA(e.memory); !errors.Is(unmap, bus.ErrGone) {
		err = errors.Join(err, unmap)
	}
	return err
}

// openDevice makes a device of the attachment's descriptors for one.
func (a *attachment) openDevice(ctx context.Context) (bus.Device, error) {
	if a.vfio != nil {
		return vfio.New(a.vfio)
	}
	return vfiouser.Open(ctx, a.device, vfiouser.DialOptions{Name: a.name, TrustServer: true})
}

// drive is how a plugin serves an attachment, which it takes over.
func drive(ctx context.Context, d framework.Driver, a *attachment) (engine.Control, bus.Info, error) {
	dev, err := a.openDevice(ctx)
	if err != nil {
		a.close()
		return nil, bus.Info{}, fmt.Errorf("%s: device: %w", a.name, err)
	}
	control, err := newDriven(ctx, d, dev, DriveConfig{
		Name: a.name, Log: pluginLogger(), Memory: a.arena, Events: a.events, Generation: a.generation, Quirks: a.quirks,
		// nicd may have noticed nothing. It does if the process ends.
		corrupt: func() { os.Exit(exitFailure) },
	})
	if err != nil {
		dev.Close()
		a.close()
		return nil, bus.Info{}, err
	}
	return owningDriven{control}, dev.Info(), nil
}
