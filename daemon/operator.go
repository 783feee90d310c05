package daemon

import (
	"context"
	"errors"
	"strconv"

	"nicd/config"
	"nicd/framework"
	"nicd/port/tap"
)

// This file has an interface follow what the operator does to the Linux interface
// above it with ip(8), which is to work as with a kernel driver.

// ipOrigin is whose word a setting is that was made with ip(8).
const ipOrigin = "ip link set"

// newTAP makes the Linux interface of a TAP port.
func (i *netInterface) newTAP(c *config.TAPPort) (framework.Port, error) {
	return tap.New(tap.Options{
		Name: c.Name, FDs: c.FDs,
		OnFault: func(err error) { i.watchers.Go(func() { i.fail(err.Error()) }) },
		OnWish:  i.fulfil,
		OnNeeds: func() {
			if i.is(running) {
				i.replan("what is above the Linux interface needs other frames")
			}
		},
	})
}

// errStopping: there is nobody left to refuse anything to.
var errStopping = errors.New("nicd stops")

// fulfil does what the operator set at the Linux interface. What can't be done is
// logged: there is no other way to answer ip(8), which has been told yes.
func (i *netInterface) fulfil(w tap.Wish) error {
	err := i.try(w)
	if err != nil && err != errStopping {
		i.log.Error().Err(err).Msg(ipOrigin + " is refused and put back")
	}
	return err
}

func (i *netInterface) try(w tap.Wish) error {
	i.changing.Lock()
	defer i.changing.Unlock()
	if i.is(stopped) {
		return errStopping
	}
	next := i.wish
	if w.MTU != 0 {
		if err := next.config.Set("mtu", strconv.Itoa(w.MTU), ipOrigin); err != nil {
			return err
		}
	}
	if w.MAC != (framework.MAC{}) {
		next.config.MAC = w.MAC
	}
	ctx, cancel := context.WithTimeout(context.Background(), changePatience)
	defer cancel()
	c, err := i.prepare(ctx, next)
	if err != nil {
		return err
	}
	return c.commit(ctx)
}
