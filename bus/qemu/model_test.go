package qemu

import (
	"strings"
	"testing"

	"nicd/bus"
)

func TestOtherModels(t *testing.T) {
	m, err := modelOf("pci:virtio-net-pci")
	if err != nil || m.device != "virtio-net-pci" || m.vectors == 0 {
		t.Errorf("%+v, %v", m, err)
	}
	for _, name := range []string{"virtio-net-pci", "pci:", "pci:e1000,mac=1", "pci:a b", ""} {
		if m, err := modelOf(name); err == nil || !strings.Contains(err.Error(), "vmxnet3") || !strings.Contains(err.Error(), "pci:NAME") {
			t.Errorf("%q is %+v, %v", name, m, err)
		}
	}
	if m, err := modelOf("82540EM"); err != nil || m.device != "e1000" {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestNarrowRegisters: virtio-net's registers are of 8, 16 and 32 bits (virtio 1.2,
// 4.1.4.3), and a device that is gone reads all ones in as many.
func TestNarrowRegisters(t *testing.T) {
	const common, bar, offset, queueSelect, queueSize, status = 1, 4, 8, 0x16, 0x18, 0x14
	needQEMU(t)
	d, err := Start(testContext(t), Options{Name: "nic", Model: "pci:virtio-net-pci-non-transitional", Netdev: User{}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if i := d.Info(); i.Vendor != 0x1AF4 || i.Device != 0x1041 || i.Vectors[bus.MSIX] < 3 {
		t.Errorf("device is %+v", i)
	}
	var r bus.Region
	var at uint32
	caps, err := bus.Capabilities(d, 0x09)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range caps {
		if kind, _ := d.ReadConfig(c+3, 1); kind == common {
			which, _ := d.ReadConfig(c+bar, 1)
			at, _ = d.ReadConfig(c+offset, 4)
			r = regionOf(t, d, int(which))
		}
	}
	if r == nil {
		t.Fatalf("no registers in capabilities at %v", caps)
	}
	r.Write(at+queueSelect, 2, 1)
	r.Write(at+status, 1, 1)
	if q, n, s := r.Read(at+queueSelect, 2), r.Read(at+queueSize, 2), r.Read(at+status, 1); q != 1 || n != 256 || s != 1 {
		t.Errorf("queue %d of %d, status %d; want queue 1 of 256, status 1", q, n, s)
	}
	d.Kill()
	for size := 1; size <= 4; size *= 2 {
		if v := r.Read(at+status&^3, size); v != bus.GoneOf(size) {
			t.Errorf("%d bytes of a device that is gone are %#x", size, v)
		}
	}
}
