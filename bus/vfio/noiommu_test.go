package vfio

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"nicd/bus"
)

// A device without an IOMMU is opened by OpenUnsafe alone, which says what the
// kernel lacks for it.
func TestOpenUnsafe(t *testing.T) {
	tr, h := newTree(t)
	tr.device(nic, "0x15ad", "0x07b0", "0x020000", "vfio-pci", "")
	const mode = "sys/module/vfio/parameters/enable_unsafe_noiommu_mode"
	for _, c := range []struct{ mode, says string }{{"", "CONFIG_VFIO_NOIOMMU"}, {"N\n", "enable_unsafe_noiommu_mode=1"}, {"Y\n", "bind it again"}} {
		if c.mode != "" {
			tr.file(mode, c.mode)
		}
		if _, err := h.OpenUnsafe(nic); !errors.Is(err, ErrNoIOMMU) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("no group, mode %q: %v", c.mode, err)
		}
	}
	tr.device(other, "0x15ad", "0x07b0", "0x020000", "vfio-pci", "7")
	tr.file("sys/bus/pci/devices/"+other+"/vfio-dev/vfio3/dev", "")
	tr.file("dev/iommu", "") // iommufd is there; the device has no node for it
	tr.file("dev/vfio/vfio", "")
	tr.file("dev/vfio/noiommu-7", "")
	if _, err := h.Open(other); !errors.Is(err, ErrNoIOMMU) {
		t.Errorf("Open without an IOMMU: %v", err)
	}
	if _, err := h.OpenUnsafe(other); err == nil || errors.Is(err, ErrNoIOMMU) || !strings.Contains(err.Error(), "VFIO of version") {
		t.Errorf("a file as the container: %v", err)
	}
	tr.device(bridge, "0x15ad", "0x07b0", "0x020000", "vfio-pci", "8")
	if _, err := h.OpenUnsafe(bridge); err == nil || !strings.Contains(err.Error(), "VFIO of version") {
		t.Errorf("a group with an IOMMU: %v", err)
	}
}

// iommufd is taken only for a device that has a node of its own: where there is
// no IOMMU sysfs names one that is not there.
func TestIOMMUFDNeedsANode(t *testing.T) {
	tr, h := newTree(t)
	tr.device(nic, "0x15ad", "0x07b0", "0x020000", "vfio-pci", "7")
	tr.file("sys/bus/pci/devices/"+nic+"/vfio-dev/vfio3/dev", "")
	tr.file("dev/iommu", "")
	if _, err := h.Open(nic); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "vfio/vfio") {
		t.Errorf("without the device's node: %v", err)
	}
}

// Without an IOMMU memory is where it is, and taking it from the device takes all
// memory from it.
func TestPhysical(t *testing.T) {
	const base, size, configSize = 3 << 30, 2 << 20, 256
	f := newFile(t, configSize)
	d := &Device{config: window{f, 0, configSize}}
	d.iommu = d.iommuOf(&Handle{NoIOMMU: true, Group: f, DMABase: base, DMASize: size})
	for what, err := range map[string]error{
		"elsewhere": d.iommu.mapRange(0, base+4096, size), "in part": d.iommu.mapRange(0, base, size/2),
		"nothing set": physical{}.mapRange(0, 0, 0),
	} {
		if !errors.Is(err, ErrNotPhysical) {
			t.Errorf("mapped %s: %v", what, err)
		}
	}
	if err := d.iommu.mapRange(0, base, size); err != nil {
		t.Error(err)
	}
	if err := bus.EnableMaster(d); err != nil {
		t.Fatal(err)
	}
	if err := d.iommu.unmapRange(base, size); err != nil {
		t.Error(err)
	}
	if command, err := d.ReadConfig(configCommand, 2); err != nil || command&commandMaster != 0 {
		t.Errorf("the device still has mastering: command %#x, %v", command, err)
	}
}
