package daemon

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"nicd/bus"
	"nicd/config"
	"nicd/drivers/e1000"
	"nicd/drivers/vmxnet3"
	"nicd/framework"
)

// stuckDriver is a vmxnet3's whose device, from stick on, does not return from
// Admin or Stop, whichever comes first, before leave is closed.
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

// TestStuckDriver: nicd can be stopped although a driver in its own process does
// not return, and takes nothing away from under its tasks, which run on.
func TestStuckDriver(t *testing.T) {
	text := inProcess + nicText("a", "vmxnet3", vmxnet3Model(3), "", stackText("10.7.0.1/24"))
	t.Run("before", func(t *testing.T) {
		d, log, driver := startStuck(t, text)
		driver.stick.Store(true)
		<-driver.entered
		stopStuck(t, d, log, func() { close(driver.leave) })
	})
	t.Run("while stopping", func(t *testing.T) {
		d, log, driver := startStuck(t, text)
		driver.stick.Store(true) // the next to come is Admin or Stop
		stopStuck(t, d, log, func() { close(driver.leave) })
	})
}

// TestStuckDriverOfQEMUs: the QEMU that a stuck driver's device is in ends with nicd,
// as a device does that is unplugged. What the driver finds when it goes on is a
// device that is gone, and the memory that both had.
func TestStuckDriverOfQEMUs(t *testing.T) {
	needQEMU(t)
	text := inProcess + qemuText("a", "vmxnet3", "vmxnet3", "", `netdev = "user"`, stackText("10.0.2.15/24"))
	t.Run("by itself", func(t *testing.T) {
		d, log, driver := startStuck(t, text)
		driver.stick.Store(true)
		<-driver.entered
		stopStuck(t, d, log, func() { close(driver.leave) })
		if left := qemus(t); len(left) != 0 {
			t.Errorf("QEMUs are left: %v", left)
		}
	})
	// A QEMU that answers nothing holds whoever reads a register, until it ends.
	t.Run("in a register", func(t *testing.T) {
		d, log, _ := startStuck(t, text)
		pids := qemus(t)
		if len(pids) != 1 {
			t.Fatalf("%d QEMUs", len(pids))
		}
		if err := syscall.Kill(pids[0], syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		stopStuck(t, d, log, func() {})
	})
}

// startStuck starts nicd with one interface, whose driver can be made to stick.
func startStuck(t *testing.T, text string) (*Daemon, *logBook, stuckDriver) {
	t.Helper()
	c, err := config.Parse("test.hcl", []byte(text), Vocabulary([]string{"vmxnet3", "e1000"}))
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
	return d, log, driver
}

// stopStuck stops nicd under a driver that does not return before it is let go, and
// then has the driver end by what was left to it.
func stopStuck(t *testing.T, d *Daemon, log *logBook, letGo func()) {
	t.Helper()
	i := d.interfaces[0]
	began := time.Now()
	d.Stop()
	if took := time.Since(began); took > 3*stopPatience {
		t.Errorf("stopping took %v", took)
	}
	if !strings.Contains(log.String(), "the driver does not return") {
		t.Errorf("it does not say that the driver is stuck:\n%s", log)
	}
	for _, b := range i.memory.Bytes() { // a fault if it were gone
		if b != 0 {
			break
		}
	}
	letGo()
	if err := i.control.Detach(t.Context()); err != nil && !errors.Is(err, bus.ErrGone) {
		t.Error(err)
	}
	if v := i.violation(); v != "" {
		t.Error(v)
	}
	i.stuck = false
	i.close()
}
