package daemon

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"nicd/config"
	"nicd/framework"
)

// servedModel serves a device model over vfio-user and says where.
func servedModel(t *testing.T, model string) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- ServeDevices(ctx, ServeOptions{
			Devices: []ServedDevice{{Model: model, Socket: socket}}, Log: zerolog.Nop(), Ready: func() { close(ready) },
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-ready:
	case <-time.After(10 * time.Second):
		t.Fatal("the device is not served")
	}
	return socket
}

func remoteText(mode, driver, socket string) string {
	return fmt.Sprintf(`
driver %[2]q { mode = %[1]q }
interface "nic" {
  driver = %[2]q
  device "vfio-user" { socket = %[3]q }
  port "sink" {}
}
`, mode, driver, socket)
}

// Quirks that go by the device's id apply to a device that another process
// serves, wherever its driver runs: it says itself what it is.
func TestRemoteIdentity(t *testing.T) {
	for _, mode := range []string{"plugin", "in-process"} {
		t.Run(mode, func(t *testing.T) {
			d, _ := startPlugins(t, remoteText(mode, "e1000", servedModel(t, "82540EM")))
			i := d.find("nic")
			v, _ := i.inForce().quirks.Lookup("reset-method")
			if v.Level != framework.FromMatch || i.inForce().values["reset-method"] != v.Value {
				t.Errorf("reset-method is %s by %s, the driver was told %s", v.Value, v.Because, i.inForce().values["reset-method"])
			}
			if i.deviceID != 0x100E {
				t.Errorf("the device is %#x", i.deviceID)
			}
		})
	}
}

// A device of another driver is one line that says where it is asked for, what it
// is and what the driver drives.
func TestRemoteOfAnotherDriver(t *testing.T) {
	for _, mode := range []string{"plugin", "in-process"} {
		t.Run(mode, func(t *testing.T) {
			c, err := config.Parse("test.hcl", []byte(remoteText(mode, "e1000", servedModel(t, "vmxnet3"))), Vocabulary([]string{"e1000"}))
			if err != nil {
				t.Fatal(err)
			}
			d, err := Start(t.Context(), Options{Config: c, Bundled: testDrivers, Socket: filepath.Join(t.TempDir(), "s"), Log: zerolog.Nop()})
			if err == nil {
				d.Stop()
				t.Fatal("it runs")
			}
			for _, want := range []string{"test.hcl:", "15ad:07b0", "it drives 8086:", "82574L"} {
				if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			t.Log(err)
		})
	}
}
