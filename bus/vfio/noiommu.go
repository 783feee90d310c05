package vfio

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"nicd/bus"
)

// Without an IOMMU there is nobody to translate a device's addresses or to refuse
// them: they are physical, and a device writes wherever its driver, or a driver
// that went wrong, tells it to. The kernel lets user space have such a device only
// if it was built with CONFIG_VFIO_NOIOMMU and its vfio module was told so; it is
// tainted from then on (Documentation/driver-api/vfio.rst; linux/vfio.h,
// VFIO_NOIOMMU_IOMMU).

// noIOMMUNode begins the name of such a group's node in /dev/vfio.
const noIOMMUNode = "noiommu-"

// OpenUnsafe is Open for who accepts that nothing keeps the device from all of
// the machine's memory. Where there is an IOMMU it is Open. Where there is none
// the handle says so (NoIOMMU), and its DMABase and DMASize are to be set to
// those of memory from [Host.NewContiguous] before the handle is used. It needs
// CAP_SYS_RAWIO; what it opens can be used without.
func (h Host) OpenUnsafe(address string) (*Handle, error) { return h.open(address, true) }

// lacksIOMMU tells whether the function's group, if it has one, is one without
// an IOMMU.
func (h Host) lacksIOMMU(d PCIDevice) bool {
	if d.IOMMUGroup == "" {
		return true
	}
	_, err := os.Stat(h.dev("vfio", noIOMMUNode+d.IOMMUGroup))
	return err == nil
}

// openUnconfined is openGroup for a group without an IOMMU.
func (o *Handle) openUnconfined(h Host, d PCIDevice) (err error) {
	if d.IOMMUGroup == "" {
		return fmt.Errorf("%w, and %s", ErrNoIOMMU, h.whyNoGroup())
	}
	o.NoIOMMU = true
	if o.IOMMU, err = openNode(h.dev("vfio", "vfio")); err != nil {
		return err
	}
	if err := checkContainer(o.IOMMU, noIOMMUModel); err != nil {
		return err
	}
	if o.Group, err = openNode(h.dev("vfio", noIOMMUNode+d.IOMMUGroup)); err != nil {
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w (without an IOMMU that takes CAP_SYS_RAWIO)", err)
		}
		return err
	}
	return o.enterContainer(h, d, noIOMMUModel)
}

// whyNoGroup says what the kernel would have to be told to give a device without
// an IOMMU to user space.
func (h Host) whyNoGroup() string {
	mode, err := os.ReadFile(h.sys("module", "vfio", "parameters", "enable_unsafe_noiommu_mode"))
	switch {
	case err != nil:
		return "the kernel has no no-IOMMU mode (CONFIG_VFIO_NOIOMMU), or no vfio module loaded"
	case strings.TrimSpace(string(mode)) == "Y":
		return "the function was bound before the kernel's no-IOMMU mode was on: unbind it and bind it again"
	}
	return "the kernel's no-IOMMU mode is off (modprobe vfio enable_unsafe_noiommu_mode=1)"
}

// ErrNotPhysical: without an IOMMU memory is at its physical address, and nowhere
// else.
var ErrNotPhysical = errors.New("not at its physical address")

// physical is what stands in for an IOMMU where there is none: the device's
// addresses are the memory's own, so there is one piece that can be mapped, and
// one place for it.
type physical struct {
	base, size uint64
	device     *Device
}

func (p physical) mapRange(_, iova, size uint64) error {
	if p.size == 0 || iova != p.base || size != p.size {
		return fmt.Errorf("%w, which is %#x+%#x", ErrNotPhysical, p.base, p.size)
	}
	return nil
}

// unmapRange can't take the memory from the device; it takes all memory from it,
// by the bit without which it accesses none.
func (p physical) unmapRange(uint64, uint64) error {
	if err := p.device.endMastering(); !errors.Is(err, unix.ENODEV) && !errors.Is(err, bus.ErrGone) {
		return err
	}
	return nil
}
