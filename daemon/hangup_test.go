package daemon

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"nicd/config"
	"nicd/framework"
	"nicd/framework/engine"
)

// slowControl is an engine that does what it is told whether or not somebody still
// waits for it, as engines do.
type slowControl struct {
	*fakeControl
	during func(context.Context) // called in the middle of a Change
}

func (c *slowControl) Change(ctx context.Context, p engine.Plan) (framework.Effect, error) {
	effect, err := c.fakeControl.Change(ctx, p)
	if c.during != nil {
		c.during(ctx)
	}
	if ctx.Err() != nil {
		return effect, ctx.Err() // what a plugin's caller hears
	}
	return effect, err
}

func (c *slowControl) SetQuirks(ctx context.Context, values map[string]string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return c.fakeControl.SetQuirks(ctx, values)
}

// TestHangUp: whoever asked for a change and hangs up in the middle of it leaves an
// interface whose driver, port and books say the same.
func TestHangUp(t *testing.T) {
	i, fake, port := changeable(t, "a")
	ctx, cancel := context.WithCancel(t.Context())
	i.control = &slowControl{fake, func(context.Context) { cancel() }}
	d := &Daemon{interfaces: []*netInterface{i}}
	if _, err := d.Set(ctx, "a", []Assignment{{"mtu", "9000"}, {"lro-owner", "hybrid"}}, false); err != nil {
		t.Log(err)
	}
	agrees(t, i, fake, port)
	if i.inForce().plan.MTU != 9000 {
		t.Error("what was begun was not finished")
	}
}

// agrees checks that driver and port run by what is in force.
func agrees(t *testing.T, i *netInterface, control *fakeControl, port *fakePort) {
	t.Helper()
	o := i.inForce()
	if !reflect.DeepEqual(control.plan, o.plan) || !reflect.DeepEqual(control.quirks, o.values) {
		t.Errorf("the driver runs by MTU %d, in force is %d", control.plan.MTU, o.plan.MTU)
	}
	if last := port.told[len(port.told)-1]; last.MTU != o.plan.MTU {
		t.Errorf("the port runs by MTU %d, in force is %d", last.MTU, o.plan.MTU)
	}
}

// TestUnansweredChange: a driver that has made a change and does not say so in time
// is told to go back.
func TestUnansweredChange(t *testing.T) {
	i, fake, port := changeable(t, "a")
	d := &Daemon{interfaces: []*netInterface{i}}
	wished := i.wish
	synctest.Test(t, func(t *testing.T) {
		slow := &slowControl{fakeControl: fake}
		slow.during = func(ctx context.Context) { slow.during = nil; <-ctx.Done() }
		i.control = slow
		if _, err := d.Set(context.Background(), "a", []Assignment{{"mtu", "9000"}, {"lro-owner", "hybrid"}}, false); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
	agrees(t, i, fake, port)
	if i.inForce().plan.MTU != 1500 || !reflect.DeepEqual(i.wish, wished) {
		t.Error("the change is in force")
	}
}

// TestReloadUndoneAfterTimeOut: the first interface is back where it was also when it
// is time that the second did not have.
func TestReloadUndoneAfterTimeOut(t *testing.T) {
	a, first, port := changeable(t, "a")
	b, second, _ := changeable(t, "b")
	was := &config.Config{Interfaces: []config.Interface{a.config, b.config}, Drivers: []config.Driver{{Name: "vmxnet3"}}}
	next := &config.Config{Interfaces: []config.Interface{a.config, b.config}, Drivers: was.Drivers}
	next.Interfaces[0].MTU, next.Interfaces[1].MTU = 9000, 9000
	d := &Daemon{interfaces: []*netInterface{a, b}, config: was}
	d.options.Reload = func() (*config.Config, error) { return next, nil }
	a.control = &slowControl{fakeControl: first}
	b.control = &slowControl{second, func(ctx context.Context) { <-ctx.Done() }}
	synctest.Test(t, func(t *testing.T) {
		_, err := d.Reload(context.Background(), false)
		if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v", err)
		}
	})
	agrees(t, a, first, port)
	if a.inForce().plan.MTU != 1500 || d.config != was {
		t.Error("the first interface runs by the new config")
	}
}
