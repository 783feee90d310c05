package vfio

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Handle is an opened device: descriptors, and what to know about them. They
// work in any process that has them, with no privilege.
type Handle struct {
	Address string // PCI address
	// IOAS is the device's address space in IOMMU; only iommufd numbers them.
	IOAS uint32
	// Device is the device itself.
	Device *os.File
	// IOMMU maps memory: a container, or /dev/iommu.
	IOMMU *os.File
	// Group keeps the device's group this user's. It is nil with iommufd.
	Group *os.File

	// NoIOMMU says that nothing keeps the device from memory ([Host.OpenUnsafe]).
	// DMABase and DMASize are then where in physical memory the one piece lies
	// that can be mapped; whoever opened the device sets them.
	NoIOMMU          bool
	DMABase, DMASize uint64
}

// Close closes the descriptors. The device is the kernel's again when all copies
// of them are closed.
func (h *Handle) Close() error {
	var all []error
	for _, f := range []*os.File{h.Device, h.Group, h.IOMMU} {
		if f != nil {
			all = append(all, f.Close())
		}
	}
	return errors.Join(all...)
}

// ErrNotBound: the function belongs to another kernel driver than vfio-pci.
var ErrNotBound = errors.New("not bound to " + KernelDriver)

// ErrNoIOMMU: nothing keeps the device within the memory that was mapped for it.
var ErrNoIOMMU = errors.New("no IOMMU")

// Open opens the function at address, which is bound to vfio-pci and behind an
// IOMMU.
func (h Host) Open(address string) (*Handle, error) { return h.open(address, false) }

func (h Host) open(address string, unsafe bool) (*Handle, error) {
	d, err := h.Find(address)
	if err != nil {
		return nil, err
	}
	if d.Driver != KernelDriver {
		if d.Driver == "" {
			return nil, fmt.Errorf("%s: %w but to no driver", address, ErrNotBound)
		}
		return nil, fmt.Errorf("%s: %w but to the kernel's %q", address, ErrNotBound, d.Driver)
	}
	unconfined := h.lacksIOMMU(d)
	if unconfined && !unsafe {
		return nil, fmt.Errorf("%s: %w: turn it on in firmware and on the kernel's command line", address, ErrNoIOMMU)
	}
	opened := Handle{Address: address}
	switch {
	case unconfined:
		err = opened.openUnconfined(h, d)
	case h.hasIOMMUFD(d):
		err = opened.openDevice(h, d)
	default:
		err = opened.openGroup(h, d)
	}
	if err != nil {
		opened.Close()
		return nil, fmt.Errorf("%s: %w", address, err)
	}
	return &opened, nil
}

// hasIOMMUFD tells whether the kernel gives the device a file of its own and
// has iommufd.
func (h Host) hasIOMMUFD(d PCIDevice) bool {
	if d.VFIODevice == "" {
		return false
	}
	for _, node := range []string{h.dev("vfio", "devices", d.VFIODevice), h.dev("iommu")} {
		if _, err := os.Stat(node); err != nil {
			return false
		}
	}
	return true
}

// openDevice is the iommufd flow (Documentation/driver-api/vfio.rst, "VFIO device
// cdev"): bind the device to an iommufd, which makes it usable, and attach it to
// a new address space.
func (o *Handle) openDevice(h Host, d PCIDevice) (err error) {
	if o.Device, err = openNode(h.dev("vfio", "devices", d.VFIODevice)); err != nil {
		return err
	}
	if o.IOMMU, err = openNode(h.dev("iommu")); err != nil {
		return err
	}
	bind := bindIOMMUFD{iommufd: int32(o.IOMMU.Fd())}
	bind.argsz = sizeOf(bind)
	if _, err := ioctlOn(o.Device, reqDeviceBindIOMMUFD, &bind); err != nil {
		return fmt.Errorf("bind to iommufd: %w", err)
	}
	var space ioasAlloc
	space.size = sizeOf(space)
	if _, err := ioctlOn(o.IOMMU, reqIOASAlloc, &space); err != nil {
		return fmt.Errorf("make an I/O address space: %w", err)
	}
	o.IOAS = space.ioas
	attach := attachPT{pt: space.ioas}
	attach.argsz = sizeOf(attach)
	if _, err := ioctlOn(o.Device, reqDeviceAttachPT, &attach); err != nil {
		return fmt.Errorf("attach to the I/O address space: %w", err)
	}
	return nil
}

// openGroup is the group flow (Documentation/driver-api/vfio.rst, "VFIO usage
// example"): a container, the group in it, the IOMMU's model, the device.
func (o *Handle) openGroup(h Host, d PCIDevice) (err error) {
	if o.IOMMU, err = openNode(h.dev("vfio", "vfio")); err != nil {
		return err
	}
	if err := checkContainer(o.IOMMU, type1v2); err != nil {
		return err
	}
	if o.Group, err = openNode(h.dev("vfio", d.IOMMUGroup)); err != nil {
		return err
	}
	return o.enterContainer(h, d, type1v2)
}

// enterContainer puts the group into the container, which gets its IOMMU's model,
// and takes the device from it.
func (o *Handle) enterContainer(h Host, d PCIDevice, model uintptr) error {
	if err := h.checkGroup(o.Group, d); err != nil {
		return err
	}
	container := int32(o.IOMMU.Fd())
	if _, err := ioctlOn(o.Group, reqGroupSetContainer, &container); err != nil {
		return fmt.Errorf("put group %s into a container: %w", d.IOMMUGroup, err)
	}
	if _, err := ioctl(o.IOMMU, reqSetIOMMU, model); err != nil {
		if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("set the IOMMU's model: %w (no interrupt remapping?)", err)
		}
		return fmt.Errorf("set the IOMMU's model: %w", err)
	}
	fd, err := ioctlBytes(o.Group, reqGroupGetDeviceFD, append([]byte(d.Address), 0))
	if err != nil {
		return fmt.Errorf("get the device from group %s: %w", d.IOMMUGroup, err)
	}
	unix.CloseOnExec(fd)
	o.Device = os.NewFile(uintptr(fd), "vfio:"+d.Address)
	return nil
}

func checkContainer(f *os.File, model uintptr) error {
	version, err := ioctl(f, reqGetAPIVersion, 0)
	if err != nil || version != apiVersion {
		return fmt.Errorf("%s: VFIO of version %d, %v", f.Name(), version, err)
	}
	if has, err := ioctl(f, reqCheckExtension, model); err != nil || has == 0 {
		if model == noIOMMUModel {
			return fmt.Errorf("%s: the kernel has no no-IOMMU mode (CONFIG_VFIO_NOIOMMU)", f.Name())
		}
		return fmt.Errorf("%s: no type-1 IOMMU of version 2: %w", f.Name(), ErrNoIOMMU)
	}
	return nil
}

// checkGroup tells whether the group is usable, and if not who is in the way.
func (h Host) checkGroup(f *os.File, d PCIDevice) error {
	var s groupStatus
	s.argsz = sizeOf(s)
	if _, err := ioctlOn(f, reqGroupGetStatus, &s); err != nil {
		return fmt.Errorf("group %s: %w", d.IOMMUGroup, err)
	}
	if s.flags&groupViable != 0 {
		return nil
	}
	return fmt.Errorf("group %s is not usable: not bound to %s: %s",
		d.IOMMUGroup, KernelDriver, strings.Join(h.blockers(d.IOMMUGroup, d.Address), ", "))
}

// openNode opens a device node and says what to do when that fails.
func openNode(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	switch {
	case err == nil:
		return f, nil
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w (needs read and write permission on it)", err)
	case errors.Is(err, unix.EBUSY):
		return nil, fmt.Errorf("%w (used by another process, or another device of its group is)", err)
	}
	return nil, err
}
