package daemon

import (
	"context"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"

	"nicd/bus"
	"nicd/config"
	"nicd/drivers/e1000"
	"nicd/drivers/vmxnet3"
	"nicd/framework"
)

// stuckDriver is a vmxnet3's whose device, from stick on, does not return from
// Admin before leave is closed.
type stuckDriver struct {
	framework.Driver
	stick          *atomic.Bool
	entered, leave chan struct{}
}

func (d stuckDriver) Attach(ctx context.Context, dev bus.Device, env framework.Env) (framework.Device, error) {
	device, err := d.Driver.Attach(ctx, dev, env)
	return stuckDevice{device, d}, err
}

type stuckDevice struct {
	framework.Device
	driver stuckDriver
}

func (d stuckDevice) Admin() framework.Events {
	if d.driver.stick.Swap(false) {
		close(d.driver.entered)
		<-d.driver.leave
	}
	return d.Device.Admin()
}

// TestStuckDriver: nicd can be stopped although a driver in its own process does
// not return, and takes nothing away from under its tasks, which run on.
func TestStuckDriver(t *testing.T) {
	text := inProcess + nicText("a", "vmxnet3", vmxnet3Model(3), "", stackText("10.7.0.1/24"))
	c, err := config.Parse("test.hcl", []byte(text), config.Vocabulary{Drivers: []string{"vmxnet3", "e1000"}})
	if err != nil {
		t.Fatal(err)
	}
	driver := stuckDriver{vmxnet3.New(), &atomic.Bool{}, make(chan struct{}), make(chan struct{})}
	log := &logBook{}
	d, err := Start(t.Context(), Options{
		Config: c, Bundled: []framework.Driver{driver, e1000.New()},
		Socket: filepath.Join(t.TempDir(), "s"), Log: zerolog.New(log),
	})
	if err != nil {
		t.Fatal(err)
	}
	i := d.interfaces[0]
	driver.stick.Store(true)
	<-driver.entered
	d.Stop() // within twice stopPatience
	if !strings.Contains(log.String(), "the driver does not return") {
		t.Errorf("it does not say that the driver is stuck:\n%s", log)
	}
	if v := i.violation(); v != "" { // reads the arena: a fault if it were gone
		t.Error(v)
	}
	close(driver.leave)
	if err := i.control.Detach(t.Context()); err != nil {
		t.Error(err)
	}
	i.stuck = false
	i.close()
}
