package inventory

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nicd/bus/vfio"
	"nicd/drivers/e1000"
	"nicd/drivers/vmxnet3"
	"nicd/framework"
)

var drivers = []framework.Driver{vmxnet3.New(), e1000.New()}

// made is a made-up machine.
type made struct {
	t         *testing.T
	root      string
	addresses map[string][]netip.Prefix
}

func newMade(t *testing.T) (*made, Machine) {
	m := &made{t, t.TempDir(), map[string][]netip.Prefix{}}
	m.file("sys/bus/pci/drivers_probe", "")
	m.file("sys/bus/pci/drivers/vfio-pci/unbind", "")
	return m, Machine{
		Host:      vfio.Host{Sysfs: filepath.Join(m.root, "sys"), Dev: filepath.Join(m.root, "dev")},
		Proc:      filepath.Join(m.root, "proc"),
		Addresses: func(name string) ([]netip.Prefix, error) { return m.addresses[name], nil },
	}
}

func (m *made) file(path, content string) {
	m.t.Helper()
	full := filepath.Join(m.root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(content), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *made) read(path string) string {
	m.t.Helper()
	b, err := os.ReadFile(filepath.Join(m.root, path))
	if err != nil {
		m.t.Fatal(err)
	}
	return string(b)
}

func (m *made) link(path, target string) {
	m.t.Helper()
	full := filepath.Join(m.root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(m.root, target), full); err != nil {
		m.t.Fatal(err)
	}
}

func (m *made) nic(address, vendor, device, driver, group, netdev string) {
	dir := "sys/bus/pci/devices/" + address + "/"
	m.file(dir+"vendor", vendor)
	m.file(dir+"device", device)
	m.file(dir+"class", "0x020000")
	m.file(dir+"driver_override", "")
	if driver != "" {
		m.file("sys/bus/pci/drivers/"+driver+"/unbind", "")
		m.link(dir+"driver", "sys/bus/pci/drivers/"+driver)
	}
	if group != "" {
		m.link(dir+"iommu_group", "sys/kernel/iommu_groups/"+group)
	}
	if netdev != "" {
		m.file(dir+"net/"+netdev+"/address", "")
	}
}

const first, second, third = "0000:03:00.0", "0000:04:00.0", "0000:05:00.0"

func TestList(t *testing.T) {
	m, machine := newMade(t)
	m.nic(first, "0x15ad", "0x07b0", "vmxnet3", "7", "ens192")
	m.nic(second, "0x8086", "0x10d3", "vfio-pci", "", "")
	m.nic(third, "0x1af4", "0x1041", "", "", "")
	nics, err := machine.List(drivers)
	if err != nil || len(nics) != 3 {
		t.Fatalf("%+v, %v", nics, err)
	}
	v, e, other := nics[0], nics[1], nics[2]
	if v.Driver != "vmxnet3" || v.KernelDriver != "vmxnet3" || v.IOMMUGroup != "7" || v.Name == "" || len(v.Interfaces) != 1 || v.Interfaces[0] != "ens192" {
		t.Errorf("%+v", v)
	}
	owner := map[string]string{}
	for _, q := range v.Quirks {
		if q.Name == "lro-owner" {
			owner[q.When] = q.Value
		}
	}
	if owner["all devices"] != "hardware-only" || owner["mode passthrough"] != "software" {
		t.Errorf("lro-owner of a vmxnet3: %v", owner)
	}
	if e.Driver != "e1000" || e.KernelDriver != "vfio-pci" || e.IOMMUGroup != "" || len(e.Quirks) == 0 {
		t.Errorf("%+v", e)
	}
	for _, q := range e.Quirks {
		if strings.HasPrefix(q.When, "device ") && !strings.HasPrefix(q.When, "device 10d3") {
			t.Errorf("an 82574L has the quirk %+v", q)
		}
	}
	if other.Driver != "" || other.Name != "" || other.Quirks == nil || len(other.Quirks) != 0 {
		t.Errorf("%+v", other)
	}
}

// routes as the kernel prints them.
const (
	route4     = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\nens192\t0002000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
	linkLocal6 = "fe800000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001   ens192\n"
	multicast6 = "ff000000000000000000000000000000 08 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000003 00000000 00000001   ens192\n"
	global6    = "20010db8000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001   ens192\n"
	elsewhere6 = "20010db8000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001   ens224\n"
)

func TestBindRefusesWhatIsInUse(t *testing.T) {
	global, local := netip.MustParsePrefix("10.0.2.15/24"), netip.MustParsePrefix("fe80::1/64")
	for name, c := range map[string]struct {
		addresses      []netip.Prefix
		route4, route6 string
		master         string
		says           string // "" if it is not in use
	}{
		"idle":                {},
		"up":                  {addresses: []netip.Prefix{local}, route6: linkLocal6 + multicast6},
		"another's routes":    {route6: elsewhere6},
		"address":             {addresses: []netip.Prefix{local, global}, says: "the address 10.0.2.15/24"},
		"IPv4 route":          {route4: route4, says: "a route leads over it"},
		"IPv6 route":          {route6: linkLocal6 + global6, says: "an IPv6 route leads over it"},
		"member of something": {master: "br0", says: "it belongs to br0"},
	} {
		t.Run(name, func(t *testing.T) {
			m, machine := newMade(t)
			m.nic(first, "0x15ad", "0x07b0", "vmxnet3", "7", "ens192")
			m.addresses["ens192"] = c.addresses
			m.file("proc/net/route", c.route4)
			if c.route6 != "" { // else a kernel without IPv6
				m.file("proc/net/ipv6_route", c.route6)
			}
			if c.master != "" {
				m.link("sys/class/net/ens192/master", "sys/class/net/"+c.master)
			}
			err := machine.Bind(first, false)
			unbound := m.read("sys/bus/pci/drivers/vmxnet3/unbind")
			if c.says == "" {
				if err != nil || unbound != first {
					t.Errorf("Bind = %v, unbound %q", err, unbound)
				}
				return
			}
			if !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "--force") || unbound != "" {
				t.Errorf("Bind = %v, unbound %q", err, unbound)
			}
			if err := machine.Bind(first, true); err != nil || m.read("sys/bus/pci/drivers/vmxnet3/unbind") != first {
				t.Errorf("by force: %v", err)
			}
			if got := m.read("sys/bus/pci/devices/" + first + "/driver_override"); got != "vfio-pci\n" {
				t.Errorf("driver_override is %q", got)
			}
		})
	}
}

func TestBindAndUnbindMistakes(t *testing.T) {
	m, machine := newMade(t)
	m.nic(first, "0x15ad", "0x07b0", "vmxnet3", "7", "")
	m.nic(second, "0x8086", "0x10d3", "vfio-pci", "8", "")
	m.file("sys/bus/pci/devices/"+second+"/class", "0x030000")
	if err := machine.Bind(third, false); !errors.Is(err, vfio.ErrNotFound) {
		t.Errorf("nothing there: %v", err)
	}
	if err := machine.Bind(second, true); err == nil || !strings.Contains(err.Error(), "not a network controller") {
		t.Errorf("a display: %v", err)
	}
	if err := machine.Unbind(first); !errors.Is(err, vfio.ErrNotBound) {
		t.Errorf("Unbind of the kernel's: %v", err)
	}
	if err := machine.Unbind(second); err != nil || m.read("sys/bus/pci/drivers/vfio-pci/unbind") != second {
		t.Errorf("Unbind = %v", err)
	}
}
