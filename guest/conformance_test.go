package guest

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"nicd/framework/drivertest/qemubench"
)

// The NICs of the conformance test: two that nicd has through VFIO, and for each a
// QEMU 82540EM with the kernel's e1000 driver, at the other end of a hub. The
// kernel names those two in the order of their addresses.
const (
	kitVMXNET3, kitE1000E             = "0000:00:04.0", "0000:00:05.0"
	kitVMXNET3FarEnd, kitE1000EFarEnd = "eth0", "eth1"
)

var kitMachine = []string{
	"-machine", "q35",
	"-netdev", "hubport,id=h1a,hubid=1", "-device", "vmxnet3,netdev=h1a,addr=4,mac=02:00:00:00:00:04",
	"-netdev", "hubport,id=h2a,hubid=2", "-device", "e1000e,netdev=h2a,addr=5,mac=02:00:00:00:00:05",
	"-netdev", "hubport,id=h1b,hubid=1", "-device", "e1000,netdev=h1b,addr=6,mac=02:00:00:00:00:06",
	"-netdev", "hubport,id=h2b,hubid=2", "-device", "e1000,netdev=h2b,addr=7,mac=02:00:00:00:00:07",
}

// kitVar asks for the conformance kit ("make test-guest-conformance"), "quick" for
// fewer turns of checks that take many.
const kitVar = "NICD_GUEST_CONFORMANCE"

// How long the kit may take for both drivers, and how many checks have to pass at
// the least.
const (
	kitPatience = 25 * time.Minute
	leastPassed = 95
)

// TestConformance runs the conformance kit through VFIO, in a guest with an IOMMU,
// on QEMU's vmxnet3 and 82574L with the kernel's e1000 as the far end. What these
// models are known not to do is excused, and nothing else.
func TestConformance(t *testing.T) {
	how := os.Getenv(kitVar)
	if how == "" {
		t.Skipf("%s is not set (make test-guest-conformance)", kitVar)
	}
	k := needQEMU(t)
	modules, err := k.modules("vfio_pci", "vfio_iommu_type1", "e1000")
	if err != nil {
		t.Fatal(err)
	}
	var more []string
	if how == "quick" {
		more = []string{"--quick"}
	}
	plan := Plan{Steps: []Step{
		{Do: Run, Args: []string{"bind", kitVMXNET3}},
		{Do: Run, Args: []string{"bind", kitE1000E}},
		kit("vmxnet3", "vmxnet3", kitVMXNET3, kitVMXNET3FarEnd, more),
		kit("e1000", "82574L", kitE1000E, kitE1000EFarEnd, more),
	}}
	ctx, cancel := context.WithTimeout(t.Context(), kitPatience)
	defer cancel()
	o := boot(ctx, t, t.TempDir(), k, archive(t, t.TempDir(), modules, plan, nil), "quiet "+hugePages+" "+useIOMMU, append(withIOMMU, kitMachine...)...)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("console:\n%s\nQEMU: %s", o.console, o.qemu)
		}
	})
	if o.err != nil {
		t.Errorf("QEMU: %v", o.err)
	}
	for _, e := range o.events {
		t.Logf("%2d %-8s %5.1f s", e.Step, e.Do, e.Seconds)
		if e.Error != "" {
			t.Errorf("step %d, %s: %s", e.Step, e.Do, e.Error)
		}
		if e.Step < len(plan.Steps) && plan.Steps[e.Step].Args[0] == "conformance" {
			checkKit(t, e)
		}
	}
	if n := len(o.events); n == 0 || o.events[n-1].Step != len(plan.Steps) {
		t.Errorf("the guest ended after %d of %d steps", len(o.events), len(plan.Steps))
	}
	for _, f := range fault.FindAllString(o.console, -1) {
		t.Errorf("fault: %s", f)
	}
}

// kit is the step that runs the kit with a driver on a NIC that is one of QEMU's
// models.
func kit(driver, model, address, farEnd string, more []string) Step {
	args := append([]string{"conformance", driver, "--bus", "vfio:" + address, "--peer", farEnd, "--json"}, more...)
	excuses := qemubench.Excuses(model)
	for _, check := range slices.Sorted(maps.Keys(excuses)) {
		args = append(args, "--excuse", check+"="+excuses[check])
	}
	return Step{Do: Run, Args: args}
}

// checkKit looks at what the kit reported.
func checkKit(t *testing.T, e Event) {
	t.Helper()
	var all struct {
		Reports []struct {
			Bench, Model   string
			Passed, Failed int
			NotApplicable  int `json:"not_applicable"`
			Seconds        float64
			Checks         []struct {
				Name, Status, Reason string
				Seconds              float64
				Problems, Log        []string
			}
		}
	}
	if err := json.Unmarshal([]byte(e.Output), &all); err != nil || len(all.Reports) != 1 {
		t.Errorf("step %d: %v: %s", e.Step, err, e.Output)
		return
	}
	r := all.Reports[0]
	t.Logf("   %s, %s: %d passed, %d failed, %d not applicable, %.0f s", r.Bench, r.Model, r.Passed, r.Failed, r.NotApplicable, r.Seconds)
	for _, k := range r.Checks {
		switch {
		case k.Status == "failed":
			t.Errorf("%s failed after %.1f s: %s\n%s", k.Name, k.Seconds, strings.Join(k.Problems, "; "), strings.Join(k.Log, "\n"))
		case k.Status == "not applicable" && (k.Reason == "" || strings.Contains(k.Reason, "the wire is not the kit's")):
			t.Errorf("%s is not applicable: %q", k.Name, k.Reason)
		}
	}
	if r.Passed < leastPassed {
		t.Errorf("step %d: %d checks passed", e.Step, r.Passed)
	}
}
