package qemubench_test

import (
	"os"
	"os/exec"
	"testing"

	"nicd/bus/qemu"
	"nicd/drivers/e1000"
	"nicd/drivers/vmxnet3"
	"nicd/framework"
	"nicd/framework/drivertest"
	"nicd/framework/drivertest/qemubench"
)

// TestBundledDrivers puts the drivers that come with nicd on every model of QEMU's
// that they drive.
func TestBundledDrivers(t *testing.T) {
	if _, err := exec.LookPath(qemu.DefaultProgram); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	for _, d := range []framework.Driver{vmxnet3.New(), e1000.New()} {
		for _, model := range qemubench.Models(d) {
			t.Run(model, func(t *testing.T) {
				t.Parallel()
				b, err := qemubench.New(d, model, qemubench.Options{})
				if err != nil {
					t.Fatal(err)
				}
				b.Quick = true
				drivertest.Run(t, b)
			})
		}
	}
}
