package vfio

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Host is where the kernel shows PCI devices and VFIO. The zero value is this
// machine's; tests and containers set the two roots.
type Host struct {
	Sysfs string // "/sys"
	Dev   string // "/dev"
}

func (h Host) sys(parts ...string) string {
	root := h.Sysfs
	if root == "" {
		root = "/sys"
	}
	return filepath.Join(append([]string{root}, parts...)...)
}

func (h Host) dev(parts ...string) string {
	root := h.Dev
	if root == "" {
		root = "/dev"
	}
	return filepath.Join(append([]string{root}, parts...)...)
}

func (h Host) pci(address string, parts ...string) string {
	return h.sys(append([]string{"bus", "pci", "devices", address}, parts...)...)
}

// PCIDevice is a PCI function as sysfs describes it.
type PCIDevice struct {
	Address        string // "0000:03:00.0"
	Vendor, Device uint16
	Subsystem      uint32 // vendor in the upper half, id in the lower; 0 if the kernel does not say
	Class          uint32 // base class, subclass and interface: 0x020000 for Ethernet
	Driver         string // kernel driver, "" if none
	IOMMUGroup     string // "" without an IOMMU
	VFIODevice     string // name of the character device in /dev/vfio/devices, "" if there is none
	Interfaces     []string
}

// The base class of network controllers, and where it is in Class.
const (
	classNetwork = 0x02
	classShift   = 16
)

// IsNIC tells whether the function is a network controller.
func (d PCIDevice) IsNIC() bool { return d.Class>>classShift == classNetwork }

// ErrNotFound: there is no PCI function of that address.
var ErrNotFound = errors.New("no such PCI device")

// List returns the machine's network controllers, by address.
func (h Host) List() ([]PCIDevice, error) {
	entries, err := os.ReadDir(h.sys("bus", "pci", "devices"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // a machine without PCI
	}
	if err != nil {
		return nil, err
	}
	var nics []PCIDevice
	for _, e := range entries {
		d, err := h.Find(e.Name())
		if errors.Is(err, ErrNotFound) {
			continue // unplugged meanwhile
		}
		if err != nil {
			return nil, err
		}
		if d.IsNIC() {
			nics = append(nics, d)
		}
	}
	return nics, nil
}

// Find describes the function at address.
func (h Host) Find(address string) (PCIDevice, error) {
	if !validAddress(address) {
		return PCIDevice{}, fmt.Errorf("%q: %w: an address is like 0000:03:00.0", address, ErrNotFound)
	}
	d := PCIDevice{Address: address}
	for _, f := range []struct {
		name string
		set  func(uint64)
	}{
		{"vendor", func(v uint64) { d.Vendor = uint16(v) }},
		{"device", func(v uint64) { d.Device = uint16(v) }},
		{"class", func(v uint64) { d.Class = uint32(v) }},
	} {
		v, err := readHex(h.pci(address, f.name))
		if errors.Is(err, fs.ErrNotExist) {
			return PCIDevice{}, fmt.Errorf("%s: %w", address, ErrNotFound)
		}
		if err != nil {
			return PCIDevice{}, err
		}
		f.set(v)
	}
	d.Subsystem = h.subsystem(address)
	d.Driver = linkName(h.pci(address, "driver"))
	d.IOMMUGroup = linkName(h.pci(address, "iommu_group"))
	d.Interfaces = names(h.pci(address, "net"))
	if nodes := names(h.pci(address, "vfio-dev")); len(nodes) > 0 {
		d.VFIODevice = nodes[0]
	}
	return d, nil
}

func (h Host) subsystem(address string) uint32 {
	vendor, err := readHex(h.pci(address, "subsystem_vendor"))
	if err != nil {
		return 0
	}
	id, err := readHex(h.pci(address, "subsystem_device"))
	if err != nil {
		return 0
	}
	return uint32(vendor)<<16 | uint32(id)
}

// validAddress tells whether s is domain:bus:device.function, and so is safe as
// part of a path.
func validAddress(s string) bool {
	domain, rest, ok := strings.Cut(s, ":")
	bus, rest, ok2 := strings.Cut(rest, ":")
	device, function, ok3 := strings.Cut(rest, ".")
	return ok && ok2 && ok3 && isHex(domain, 4, 8) && isHex(bus, 2, 2) && isHex(device, 2, 2) && isHex(function, 1, 1)
}

func isHex(s string, minLen, maxLen int) bool {
	return len(s) >= minLen && len(s) <= maxLen && strings.Trim(s, "0123456789abcdef") == ""
}

func readHex(path string) (uint64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseUint(strings.TrimSpace(string(b)), 0, 32)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	return v, nil
}

// linkName is the last element of what a symbolic link points to.
func linkName(path string) string {
	target, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

func names(dir string) []string {
	entries, _ := os.ReadDir(dir)
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// groupMembers are the addresses of all functions in an IOMMU group.
func (h Host) groupMembers(group string) []string {
	return names(h.sys("kernel", "iommu_groups", group, "devices"))
}

// KernelDriver is the name of the kernel's driver that gives PCI devices to user space.
const KernelDriver = "vfio-pci"

// Bind makes vfio-pci the driver of the function at address. The interface that
// its present driver has made is gone afterwards: whether it is in use is for
// the caller to look at before (Interfaces has its name).
func (h Host) Bind(address string) error {
	if _, err := os.Stat(h.sys("bus", "pci", "drivers", KernelDriver)); err != nil {
		return fmt.Errorf("%s: the kernel's %s driver is not loaded (modprobe %s)", address, KernelDriver, KernelDriver)
	}
	if err := h.move(address, KernelDriver); err != nil {
		return err
	}
	// The kernel keeps to itself that a driver did not want the device.
	if linkName(h.pci(address, "driver")) == "" {
		return fmt.Errorf("%s: the kernel's %s did not take it, and its log says why (no IOMMU?)", address, KernelDriver)
	}
	return nil
}

// Unbind gives the function at address back to the driver that the kernel would
// choose.
func (h Host) Unbind(address string) error { return h.move(address, "") }

// move makes the kernel choose a driver for the function: the named one and no
// other, or whichever matches if override is "".
func (h Host) move(address, override string) error {
	d, err := h.Find(address)
	if err != nil {
		return err
	}
	if override != "" && d.Driver == override {
		return nil
	}
	// A line feed is how sysfs spells that there is no override.
	if err := write(h.pci(address, "driver_override"), override+"\n"); err != nil {
		return err
	}
	if d.Driver != "" {
		if err := write(h.pci(address, "driver", "unbind"), address); err != nil {
			return err
		}
	}
	return write(h.sys("bus", "pci", "drivers_probe"), address)
}

// write writes to a sysfs file, which exists.
func write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// blockers are the other functions of an IOMMU group whose drivers keep user
// space from having any of it, as "address (driver)".
func (h Host) blockers(group, address string) []string {
	var all []string
	for _, member := range h.groupMembers(group) {
		if member == address {
			continue
		}
		// Bridges do no harm: pcieport is one of the drivers that VFIO admits.
		driver := linkName(h.pci(member, "driver"))
		if !slices.Contains([]string{"", KernelDriver, "pci-stub", "pcieport"}, driver) {
			all = append(all, fmt.Sprintf("%s (%s)", member, driver))
		}
	}
	return all
}
