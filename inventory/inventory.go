// Package inventory knows the machine's network controllers: which there are,
// which driver of nicd's would drive each, which of its quirks would hold, and
// whether the kernel is using one.
//
// What lives here is looking, and moving a controller between the kernel's
// drivers when nothing would be lost by it. How sysfs spells that is bus/vfio's.
package inventory

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"nicd/bus/vfio"
	"nicd/framework"
)

// Machine is where to look. The zero value is this machine.
type Machine struct {
	Host vfio.Host
	Proc string // "/proc"
	// Addresses are those of a network interface; nil asks the kernel.
	Addresses func(name string) ([]netip.Prefix, error)
}

// NIC is a network controller. The names of its JSON form do not change.
type NIC struct {
	Address      string   `json:"address"` // PCI address
	Vendor       uint16   `json:"vendor"`
	Device       uint16   `json:"device"`
	Name         string   `json:"name"`          // as nicd's driver calls it, "" if none drives it
	KernelDriver string   `json:"kernel_driver"` // "" if none
	IOMMUGroup   string   `json:"iommu_group"`   // "" without an IOMMU
	Interfaces   []string `json:"interfaces"`    // the kernel's
	Driver       string   `json:"driver"`        // nicd's, "" if none drives it
	Quirks       []Quirk  `json:"quirks"`        // that the driver declares for it
}

// Quirk is a driver's declaration that applies to a controller, if When does.
type Quirk struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	When  string `json:"when"` // "all devices", or what has to hold besides
}

// List finds all network controllers, by address.
func (m Machine) List(drivers []framework.Driver) ([]NIC, error) {
	functions, err := m.Host.List()
	if err != nil {
		return nil, err
	}
	nics := []NIC{}
	for _, f := range functions {
		nics = append(nics, describe(f, drivers))
	}
	return nics, nil
}

func describe(f vfio.PCIDevice, drivers []framework.Driver) NIC {
	n := NIC{
		Address: f.Address, Vendor: f.Vendor, Device: f.Device, KernelDriver: f.Driver, IOMMUGroup: f.IOMMUGroup,
		Interfaces: append([]string{}, f.Interfaces...), Quirks: []Quirk{},
	}
	for _, d := range drivers {
		description := d.Describe()
		for _, id := range description.IDs {
			if id.Vendor != f.Vendor || id.Device != f.Device {
				continue
			}
			n.Name, n.Driver = id.Name, description.Name
			n.Quirks = quirksFor(f.Device, description.Quirks)
			return n
		}
	}
	return n
}

// quirksFor are the declarations that are not for other devices.
func quirksFor(device uint16, declarations []framework.Declaration) []Quirk {
	quirks := []Quirk{}
	for _, d := range declarations {
		if d.When.Device == 0 || d.When.Device == device {
			quirks = append(quirks, Quirk{d.Quirk, d.Value, d.When.String()})
		}
	}
	return quirks
}

// ErrInUse: the kernel uses a controller's interface.
var ErrInUse = errors.New("in use")

// Bind gives a controller to vfio-pci. One whose interface is in use is refused
// (ErrInUse) unless force is set: its addresses, routes and connections would be
// gone.
func (m Machine) Bind(address string, force bool) error {
	f, err := m.Host.Find(address)
	if err != nil {
		return err
	}
	if !f.IsNIC() {
		return fmt.Errorf("%s: not a network controller (class %06x)", address, f.Class)
	}
	for _, name := range f.Interfaces {
		uses, err := m.uses(name)
		if err != nil {
			return fmt.Errorf("%s: %w", address, err)
		}
		if len(uses) > 0 && !force {
			return fmt.Errorf("%s: %s is %w: %s (--force takes it anyway)", address, name, ErrInUse, strings.Join(uses, ", "))
		}
	}
	return m.Host.Bind(address)
}

// Unbind gives a controller that vfio-pci has back to the driver that the kernel
// would choose.
func (m Machine) Unbind(address string) error {
	f, err := m.Host.Find(address)
	if err != nil {
		return err
	}
	if f.Driver != vfio.KernelDriver {
		return fmt.Errorf("%s: %w but to the kernel's %q", address, vfio.ErrNotBound, f.Driver)
	}
	return m.Host.Unbind(address)
}

// uses says what a network interface is used for.
func (m Machine) uses(name string) ([]string, error) {
	addresses := m.Addresses
	if addresses == nil {
		addresses = kernelAddresses
	}
	all, err := addresses(name)
	if err != nil {
		return nil, err
	}
	var uses []string
	for _, a := range all {
		if !a.Addr().IsLinkLocalUnicast() { // every interface that is up has one
			uses = append(uses, "it has the address "+a.String())
		}
	}
	routes, err := m.routes(name)
	if err != nil {
		return nil, err
	}
	uses = append(uses, routes...)
	sysfs := m.Host.Sysfs
	if sysfs == "" {
		sysfs = "/sys"
	}
	if master, err := os.Readlink(filepath.Join(sysfs, "class/net", name, "master")); err == nil {
		uses = append(uses, "it belongs to "+filepath.Base(master))
	}
	return uses, nil
}

func kernelAddresses(name string) ([]netip.Prefix, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	addrs, err := i.Addrs()
	if err != nil {
		return nil, err
	}
	var all []netip.Prefix
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			all = append(all, p)
		}
	}
	return all, nil
}

// routes tells of a route in the main tables over an interface, if there is one
// besides those that the kernel makes for every interface that is up.
func (m Machine) routes(name string) ([]string, error) {
	const device4, device6 = 0, 9 // columns
	four, err := m.table("net/route")
	if err != nil {
		return nil, err
	}
	six, err := m.table("net/ipv6_route")
	if err != nil {
		return nil, err
	}
	for _, f := range four {
		if len(f) > device4 && f[device4] == name {
			return []string{"a route leads over it"}, nil
		}
	}
	for _, f := range six {
		if len(f) > device6 && f[device6] == name && !ownRoute(f[0]) {
			return []string{"an IPv6 route leads over it"}, nil
		}
	}
	return nil, nil
}

// ownRoute tells whether a destination is one of the kernel's own: link-local
// (fe80::/10) or multicast (ff00::/8).
func ownRoute(to string) bool { return strings.HasPrefix(to, "fe8") || strings.HasPrefix(to, "ff") }

// table reads a file of fields; one that is not there (a kernel without IPv6) is
// empty.
func (m Machine) table(name string) ([][]string, error) {
	proc := m.Proc
	if proc == "" {
		proc = "/proc"
	}
	f, err := os.Open(filepath.Join(proc, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var rows [][]string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		rows = append(rows, strings.Fields(lines.Text()))
	}
	return rows, nil
}
