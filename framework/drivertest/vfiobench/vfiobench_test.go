package vfiobench

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"nicd/bus"
	"nicd/bus/vfio"
	"nicd/drivers/e1000"
	"nicd/drivers/vmxnet3"
	"nicd/framework"
	"nicd/framework/drivertest"
	"nicd/framework/drivertest/rig"
	"nicd/sim"
	models "nicd/sim/e1000"
	vmxnet3model "nicd/sim/vmxnet3"
)

// TestBench puts device models in a real device's place: what the bench makes of a
// device holds for them, too.
func TestBench(t *testing.T) {
	for _, c := range []struct {
		driver framework.Driver
		model  func() sim.Model
	}{
		{e1000.New(), func() sim.Model { return models.New(models.Options{Kind: models.I82574L, MAC: rig.MAC}) }},
		{vmxnet3.New(), func() sim.Model { return vmxnet3model.New(vmxnet3model.Options{MAC: rig.MAC}) }},
	} {
		opened, closed := 0, 0
		b := bench(c.driver, "0000:03:00.0", func() (bus.Device, error) {
			if opened != closed {
				return nil, syscall.EBUSY // as the kernel says: one user at a time
			}
			opened++
			model := c.model()
			dev, err := sim.NewDevice(model, sim.Options{Name: "model", HeapDoorbells: true, OnFault: func(f sim.Fault) { t.Error(f) }})
			if err != nil {
				return nil, err
			}
			wire := sim.NewWire(sim.WireOptions{})
			sim.NewTester(wire, sim.Wants{})
			wire.Connect(model)
			return closing{dev, func() { closed++; wire.Close() }}, nil
		})
		b.Quick = true
		r := drivertest.Check(t.Context(), b)
		for _, k := range r.Checks {
			if k.Status == drivertest.Failed || k.Seconds > 20 {
				t.Errorf("%s %s after %.1f s: %v", k.Name, k.Status, k.Seconds, k.Problems)
			}
			if k.Status == drivertest.NotApplicable && k.Reason == "" {
				t.Errorf("%s: no reason", k.Name)
			}
		}
		if !r.Ok() || r.Passed < 5 || opened < r.Passed || closed != opened {
			t.Errorf("%d passed, %d not applicable; opened %d times, closed %d times", r.Passed, r.NotApplicable, opened, closed)
		}
		t.Logf("%s: %d passed, %d not applicable", b.Name, r.Passed, r.NotApplicable)
	}
}

type closing struct {
	bus.Device
	done func()
}

func (c closing) Close() error {
	c.done()
	return c.Device.Close()
}

// TestRefused: a function that can't be put on the bench is a line that says why
// and what to do.
func TestRefused(t *testing.T) {
	root := t.TempDir()
	host := vfio.Host{Sysfs: filepath.Join(root, "sys"), Dev: filepath.Join(root, "dev")}
	dir := filepath.Join(host.Sysfs, "bus/pci/devices/0000:03:00.0")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"vendor": "0x8086\n", "device": "0x10d3\n", "class": "0x020000\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		driver  framework.Driver
		address string
		is      error
		says    string
	}{
		{e1000.New(), "eth0", vfio.ErrNotFound, "an address is like 0000:03:00.0"},
		{e1000.New(), "0000:04:00.0", vfio.ErrNotFound, "nicd devices lists"},
		{vmxnet3.New(), "0000:03:00.0", nil, "driver vmxnet3 does not drive 0000:03:00.0 (8086:10d3)"},
		{e1000.New(), "0000:03:00.0", vfio.ErrNotBound, "nicd bind 0000:03:00.0"},
	} {
		_, err := New(t.Context(), c.driver, c.address, Options{Host: host})
		if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", c.address, err, c.says)
		}
	}
}
