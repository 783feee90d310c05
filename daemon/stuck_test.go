package daemon

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"nicd/bus"
	"nicd/config"
	"nicd/drivers/e1000"
	"nicd/drivers/vmxnet3"
	"nicd/framework"
	"nicd/framework/drivertest"
)

// TestStuckDriver: nicd can be stopped although a driver in its own process does
// not return, and takes nothing away from under its tasks, which run on.
func TestStuckDriver(t *testing.T) {
	text := inProcess + nicText("a", "vmxnet3", vmxnet3Model(3), "", stackText("10.7.0.1/24"))
	t.Run("before", func(t *testing.T) {
		t.Parallel() // with the next: nicd waits for seconds
		d, log, driver := startStuck(t, text)
		driver.Stick()
		<-driver.Entered()
		stopStuck(t, d, log, driver.Leave)
	})
	t.Run("while stopping", func(t *testing.T) {
		t.Parallel()
		d, log, driver := startStuck(t, text)
		driver.Stick() // the next to come is Admin or Stop
		stopStuck(t, d, log, driver.Leave)
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
		driver.Stick()
		<-driver.Entered()
		stopStuck(t, d, log, driver.Leave)
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
func startStuck(t *testing.T, text string) (*Daemon, *logBook, drivertest.Stuck) {
	t.Helper()
	c, err := config.Parse("test.hcl", []byte(text), Vocabulary([]string{"vmxnet3", "e1000"}))
	if err != nil {
		t.Fatal(err)
	}
	driver := drivertest.NewStuck(vmxnet3.New())
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
	d.Stop() // returns before the driver does
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
