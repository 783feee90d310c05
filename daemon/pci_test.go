package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"nicd/bus/vfio"
	"nicd/config"
	"nicd/drivers/vmxnet3"
)

// fakePCI is a made-up sysfs with one function.
func fakePCI(t *testing.T, address, vendor, device, driver, group string) vfio.Host {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "sys/bus/pci/devices", address)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"vendor": vendor, "device": device, "class": "0x020000"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"driver": driver, "iommu_group": group} {
		if target == "" {
			continue
		}
		if err := os.Symlink("../../../x/"+target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return vfio.Host{Sysfs: filepath.Join(root, "sys"), Dev: filepath.Join(root, "dev")}
}

// A device that can't be had gets one line that says which, why and what to do.
func TestPCIMistakes(t *testing.T) {
	const here, absent = "0000:03:00.0", "0000:04:00.0"
	for name, c := range map[string]struct {
		address, vendor, device, driver, group string
		says                                   []string
	}{
		"absent":            {absent, "0x15ad", "0x07b0", "vfio-pci", "7", []string{absent, "no such PCI device", "nicd devices"}},
		"another's":         {here, "0x8086", "0x100e", "vfio-pci", "7", []string{"driver vmxnet3 does not drive", "8086:100e", "15ad:07b0"}},
		"kernel's":          {here, "0x15ad", "0x07b0", "vmxnet3", "7", []string{here, `the kernel's "vmxnet3"`, "nicd bind " + here}},
		"nobody's":          {here, "0x15ad", "0x07b0", "", "7", []string{here, "no driver", "nicd bind " + here}},
		"without IOMMU":     {here, "0x15ad", "0x07b0", "vfio-pci", "", []string{here, "no IOMMU", "kernel's command line", "allow_unsafe_noiommu = true"}},
		"without /dev/vfio": {here, "0x15ad", "0x07b0", "vfio-pci", "7", []string{here, "no such file"}},
	} {
		t.Run(name, func(t *testing.T) {
			host := fakePCI(t, here, c.vendor, c.device, c.driver, c.group)
			i := newInterface(config.Interface{Name: "vmx0", Device: config.Device{
				VFIO:   &config.VFIODevice{Address: c.address},
				Origin: config.Origin{File: "nicd.hcl", Line: 3, What: "device of interface vmx0"},
			}}, config.Driver{Mode: config.Plugin}, zerolog.Nop())
			d := vmxnet3.New()
			i.driver = &driver{name: "vmxnet3", bundled: d}
			i.driver.description.Description = d.Describe()
			_, err := i.openPCI(host, i.config.Device.VFIO)
			if err == nil {
				t.Fatal("it was opened")
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is not one line", err)
			}
		})
	}
}
