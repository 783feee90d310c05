package drivertest

import (
	"context"
	"sync/atomic"

	"nicd/bus"
	"nicd/framework"
)

// Stuck is a driver that can be made not to return: for tests of what runs above a
// driver, which has to bear that. Apart from that it is the driver it was made of.
type Stuck struct {
	framework.Driver
	stick          *atomic.Bool
	entered, leave chan struct{}
}

// NewStuck makes one of a driver. Stick and Leave are for one time each.
func NewStuck(d framework.Driver) Stuck {
	return Stuck{d, &atomic.Bool{}, make(chan struct{}), make(chan struct{})}
}

// Stick has the next call of Admin or Stop, of any of the driver's devices, whichever
// comes first, not return before Leave.
func (s Stuck) Stick() { s.stick.Store(true) }

// Entered is closed when that call has begun.
func (s Stuck) Entered() <-chan struct{} { return s.entered }

// Leave lets it return.
func (s Stuck) Leave() { close(s.leave) }

// Attach implements framework.Driver.
func (s Stuck) Attach(ctx context.Context, dev bus.Device, env framework.Env) (framework.Device, error) {
	d, err := s.Driver.Attach(ctx, dev, env)
	if err != nil {
		return nil, err
	}
	return stuckDevice{d, s}, nil
}

type stuckDevice struct {
	framework.Device
	driver Stuck
}

func (d stuckDevice) wait() {
	if d.driver.stick.Swap(false) {
		close(d.driver.entered)
		<-d.driver.leave
	}
}

func (d stuckDevice) Admin() framework.Events {
	d.wait()
	return d.Device.Admin()
}

func (d stuckDevice) Stop(ctx context.Context) error {
	d.wait()
	return d.Device.Stop(ctx)
}
