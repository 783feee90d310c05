package qemubench_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"nicd/bus/qemu"
	"nicd/drivers/e1000"
	"nicd/drivers/vmxnet3"
	"nicd/framework"
	"nicd/framework/drivertest"
	"nicd/framework/drivertest/qemubench"
)

// TestBundledDrivers puts the drivers that come with nicd on every model of QEMU's
// that they drive. QEMU's e1000s take their time, so not every check is made on
// each here; "nicd conformance e1000 --bus qemu" makes them all.
func TestBundledDrivers(t *testing.T) {
	if _, err := exec.LookPath(qemu.DefaultProgram); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	for _, b := range []struct {
		driver     framework.Driver
		model      string
		categories []string // all if none
	}{
		{driver: vmxnet3.New(), model: "vmxnet3"},
		{e1000.New(), "82574L", []string{"rss", "interrupt"}},
		{e1000.New(), "82540EM", []string{"transmit"}},
		{e1000.New(), "82545EM", []string{"vlan"}},
		{e1000.New(), "82544GC", []string{"filter"}},
	} {
		t.Run(b.model, func(t *testing.T) {
			bench, err := qemubench.New(b.driver, b.model, qemubench.Options{})
			if err != nil {
				t.Fatal(err)
			}
			bench.Quick = true
			bench.Select = func(name string) bool {
				category, _, _ := strings.Cut(name, ".")
				return b.categories == nil || slices.Contains(b.categories, category)
			}
			drivertest.Run(t, bench)
		})
	}
}

// TestModels: each driver finds its models, and each model its driver.
func TestModels(t *testing.T) {
	got := append(qemubench.Models(vmxnet3.New()), qemubench.Models(e1000.New())...)
	if !slices.Equal(got, qemu.Models()) {
		t.Errorf("models %v, QEMU's are %v", got, qemu.Models())
	}
}
