package qemu

import (
	"strings"
	"testing"
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
