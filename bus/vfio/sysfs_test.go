package vfio

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// tree is a made-up sysfs and /dev.
type tree struct {
	t    *testing.T
	root string
}

func newTree(t *testing.T) (tree, Host) {
	tr := tree{t, t.TempDir()}
	tr.file("sys/bus/pci/drivers_probe", "")
	return tr, Host{Sysfs: filepath.Join(tr.root, "sys"), Dev: filepath.Join(tr.root, "dev")}
}

func (tr tree) file(path, content string) {
	tr.t.Helper()
	full := filepath.Join(tr.root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		tr.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o644); err != nil {
		tr.t.Fatal(err)
	}
}

func (tr tree) read(path string) string {
	tr.t.Helper()
	b, err := os.ReadFile(filepath.Join(tr.root, path))
	if err != nil {
		tr.t.Fatal(err)
	}
	return string(b)
}

func (tr tree) link(path, target string) {
	tr.t.Helper()
	full := filepath.Join(tr.root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		tr.t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(tr.root, target), full); err != nil {
		tr.t.Fatal(err)
	}
}

// device adds a PCI function; driver and group may be "".
func (tr tree) device(address, vendor, device, class, driver, group string) {
	dir := "sys/bus/pci/devices/" + address + "/"
	tr.file(dir+"vendor", vendor+"\n")
	tr.file(dir+"device", device+"\n")
	tr.file(dir+"class", class+"\n")
	tr.file(dir+"driver_override", "")
	if driver != "" {
		tr.file("sys/bus/pci/drivers/"+driver+"/unbind", "")
		tr.link(dir+"driver", "sys/bus/pci/drivers/"+driver)
	}
	if group != "" {
		tr.file("sys/kernel/iommu_groups/"+group+"/devices/"+address, "")
		tr.link(dir+"iommu_group", "sys/kernel/iommu_groups/"+group)
	}
}

const nic, other, bridge = "0000:03:00.0", "0000:03:00.1", "0000:00:1c.0"

func TestListFindsNICs(t *testing.T) {
	tr, h := newTree(t)
	tr.device(nic, "0x15ad", "0x07b0", "0x020000", "vmxnet3", "7")
	tr.file("sys/bus/pci/devices/"+nic+"/net/ens192/address", "")
	tr.file("sys/bus/pci/devices/"+nic+"/subsystem_vendor", "0x8086\n")
	tr.file("sys/bus/pci/devices/"+nic+"/subsystem_device", "0x0001\n")
	tr.device(other, "0x8086", "0x10d3", "0x020000", "vfio-pci", "8")
	tr.file("sys/bus/pci/devices/"+other+"/vfio-dev/vfio3/dev", "")
	tr.device(bridge, "0x8086", "0x2918", "0x060100", "", "")
	got, err := h.List()
	want := []PCIDevice{
		{Address: nic, Vendor: 0x15ad, Device: 0x07b0, Subsystem: 0x8086_0001, Class: 0x020000, Driver: "vmxnet3", IOMMUGroup: "7", Interfaces: []string{"ens192"}},
		{Address: other, Vendor: 0x8086, Device: 0x10d3, Class: 0x020000, Driver: "vfio-pci", IOMMUGroup: "8", VFIODevice: "vfio3"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("List = %+v, %v", got, err)
	}
	if got, err := (Host{Sysfs: t.TempDir()}).List(); got != nil || err != nil {
		t.Errorf("a machine without PCI: %v, %v", got, err)
	}
}

func TestFindRefuses(t *testing.T) {
	tr, h := newTree(t)
	tr.device(nic, "0x15ad", "nonsense", "0x020000", "", "")
	if _, err := h.Find(nic); err == nil || !strings.Contains(err.Error(), "device") {
		t.Errorf("a file of nonsense: %v", err)
	}
	for _, address := range []string{"0000:04:00.0", "03:00.0", "", "../../../../etc", "0000:03:00.0/..", "0000:0G:00.0", "0000:03:00:0"} {
		if _, err := h.Find(address); !errors.Is(err, ErrNotFound) {
			t.Errorf("Find(%q) = %v", address, err)
		}
	}
}

func TestBindAndUnbind(t *testing.T) {
	tr, h := newTree(t)
	tr.device(nic, "0x15ad", "0x07b0", "0x020000", "vmxnet3", "7")
	if err := h.Bind(nic); err == nil || !strings.Contains(err.Error(), "modprobe") {
		t.Errorf("Bind without the driver = %v", err)
	}
	tr.file("sys/bus/pci/drivers/vfio-pci/unbind", "")
	if err := h.Bind(nic); err != nil {
		t.Fatal(err)
	}
	override := "sys/bus/pci/devices/" + nic + "/driver_override"
	if got := tr.read(override); got != "vfio-pci\n" {
		t.Errorf("driver_override is %q", got)
	}
	if got := tr.read("sys/bus/pci/drivers/vmxnet3/unbind"); got != nic {
		t.Errorf("unbound %q", got)
	}
	if got := tr.read("sys/bus/pci/drivers_probe"); got != nic {
		t.Errorf("probed %q", got)
	}
	tr.device(other, "0x15ad", "0x07b0", "0x020000", "vfio-pci", "7")
	if err := h.Bind(other); err != nil || tr.read("sys/bus/pci/drivers/vfio-pci/unbind") != "" {
		t.Errorf("Bind of what is bound: %v, unbound %q", err, tr.read("sys/bus/pci/drivers/vfio-pci/unbind"))
	}
	tr.file(override, "x")
	if err := h.Unbind(nic); err != nil || tr.read(override) != "\n" {
		t.Errorf("Unbind: %v, driver_override is %q", err, tr.read(override))
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	tr, h := newTree(t)
	tr.device(nic, "0x15ad", "0x07b0", "0x020000", "vfio-pci", "7")
	tr.device(other, "0x15ad", "0x07b0", "0x020000", "vmxnet3", "7")
	tr.device(bridge, "0x15ad", "0x07b0", "0x020000", "vfio-pci", "")
	if _, err := h.Open(other); err == nil || !strings.Contains(err.Error(), `"vmxnet3"`) {
		t.Errorf("a kernel driver's device: %v", err)
	}
	if _, err := h.Open(bridge); !errors.Is(err, ErrNoIOMMU) {
		t.Errorf("no group: %v", err)
	}
	if _, err := h.Open(nic); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), nic) {
		t.Errorf("no /dev/vfio: %v", err)
	}
	tr.file("dev/vfio/vfio", "") // not what it should be
	if _, err := h.Open(nic); err == nil || !strings.Contains(err.Error(), "VFIO of version") {
		t.Errorf("a file as the container: %v", err)
	}
	if got := h.blockers("7", nic); !reflect.DeepEqual(got, []string{other + " (vmxnet3)"}) {
		t.Errorf("blockers = %q", got)
	}
	// With a character device and iommufd, that way is taken.
	tr.file("sys/bus/pci/devices/"+nic+"/vfio-dev/vfio3/dev", "")
	tr.file("dev/vfio/devices/vfio3", "")
	tr.file("dev/iommu", "")
	if _, err := h.Open(nic); err == nil || !strings.Contains(err.Error(), "bind to iommufd") {
		t.Errorf("files as iommufd: %v", err)
	}
}
