package guest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// These tests boot a kernel that has what Debian's have not: iommufd, and a mode
// for devices without an IOMMU. It has to be built, which takes minutes, so they
// run only where ownKernelVar is set ("make test-guest-kernel").
const ownKernelVar = "NICD_GUEST_KERNEL"

// ownKernel builds the kernel unless the cache has it. It has no modules.
func ownKernel(t *testing.T) *kernel {
	t.Helper()
	if os.Getenv(ownKernelVar) == "" {
		t.Skipf("%s is not set (make test-guest-kernel)", ownKernelVar)
	}
	needQEMU(t)
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	k := &kernel{filepath.Join(cache, "nicd", "guest", "own")}
	if out, err := exec.Command("sh", "kernel/build.sh", k.dir).CombinedOutput(); err != nil {
		t.Fatalf("kernel/build.sh: %v\n%s", err, out)
	}
	release, err := os.ReadFile(filepath.Join(k.dir, "release"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("Linux %s", strings.TrimSpace(string(release)))
	return k
}

// TestIOMMUFD is TestVFIO by way of iommufd: without the container's node there
// is no other way in.
func TestIOMMUFD(t *testing.T) {
	k := ownKernel(t)
	outside := newOutside(t)
	plan := vfioPlan(outside.port)
	plan.Steps = append([]Step{{Do: Remove, Path: "/dev/vfio/vfio"}}, plan.Steps...)
	o := carryOut(t, k, nil, plan, outside, useIOMMU, append(withIOMMU, machine...)...)
	checkFaults(t, o.console)
	checkHugePages(t, o.console)
}

// unconfined is toOutside for devices without an IOMMU.
var unconfined = strings.NewReplacer(
	outsideVMXNET3+`" }`, outsideVMXNET3+"\"\n    allow_unsafe_noiommu = true\n  }",
	outsideE1000E+`" }`, outsideE1000E+"\"\n    allow_unsafe_noiommu = true\n  }",
	`device "vfio" { `, "device \"vfio\" {\n    ",
).Replace(toOutside)

// loud is what nicd says of such a device wherever it can.
const loud = "WITHOUT IOMMU"

// TestNoIOMMU runs nicd on devices that nothing keeps from memory: it refuses to
// unless the config accepts that, and says so all the time if it does.
func TestNoIOMMU(t *testing.T) {
	k := ownKernel(t)
	outside := newOutside(t)
	plan := Plan{Steps: []Step{
		{Do: Run, Args: []string{"bind", outsideVMXNET3}, Fails: "did not take it"},
		{Do: Write, Path: "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode", Content: "Y"},
		{Do: Run, Args: []string{"bind", outsideVMXNET3}},
		{Do: Run, Args: []string{"bind", outsideE1000E}},
		{Do: Run, Args: []string{"run", "-c", "/to-outside.hcl"}, Fails: "allow_unsafe_noiommu = true"},

		{Do: Start, Args: []string{"run", "-c", "/unconfined.hcl", "--json"}},
		{Do: Address, Interface: "tap1", Prefix: "10.3.1.15/24"},
		{Do: Fetch, URL: "http://10.3.1.2:" + outside.port, Bytes: fetchBytes},
		{Do: Address, Interface: "tap2", Prefix: "10.3.2.15/24"},
		{Do: Fetch, URL: "http://10.3.2.2:" + outside.port, Bytes: fetchBytes},
		{Do: Run, Args: []string{"show", "vmx0"}},
		{Do: Run, Args: []string{"show", "em0"}},
		{Do: Stop},

		{Do: Write, Path: "/proc/sys/vm/nr_hugepages", Content: "20"},
		{Do: Run, Args: []string{"run", "-c", "/unconfined.hcl"}, Fails: "no contiguous physical memory"},
		{Do: Run, Args: []string{"unbind", outsideVMXNET3}},
		{Do: Address, Device: outsideVMXNET3, Prefix: "10.4.0.1/24"},
	}}
	o := carryOut(t, k, nil, plan, outside, "", machine...)
	checkHugePages(t, o.console)
	for _, e := range o.events {
		if e.Do == Run && plan.Steps[e.Step].Args[0] == "show" && !strings.Contains(e.Output, loud) {
			t.Errorf("nicd show does not say %q: %s", loud, e.Output)
		}
	}
	for _, address := range []string{outsideVMXNET3, outsideE1000E} {
		if !warned(o.console, address) {
			t.Errorf("no warning about %s in nicd's log", address)
		}
	}
}

// warned tells whether nicd's log has a warning about the device.
func warned(console, address string) bool {
	for line := range strings.Lines(console) {
		if strings.Contains(line, "WRN NO IOMMU") && strings.Contains(line, address) {
			return true
		}
	}
	return false
}
