package vfio

// This file holds the package's ioctls and its unsafe code. VFIO (linux/vfio.h)
// and iommufd (linux/iommufd.h) are ioctls on structs whose addresses the kernel
// gets, and x/sys/unix has no wrappers for them.

import (
	"os"
	"runtime"
	"structs"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Request numbers: _IO(';', n), which is the type and the number and nothing else.
const (
	vfioType = ';' << 8
	vfioBase = vfioType + 100

	reqGetAPIVersion     = vfioBase + 0
	reqCheckExtension    = vfioBase + 1
	reqSetIOMMU          = vfioBase + 2
	reqGroupGetStatus    = vfioBase + 3
	reqGroupSetContainer = vfioBase + 4
	reqGroupGetDeviceFD  = vfioBase + 6
	reqDeviceGetInfo     = vfioBase + 7
	reqDeviceGetRegion   = vfioBase + 8
	reqDeviceGetIRQ      = vfioBase + 9
	reqDeviceSetIRQs     = vfioBase + 10
	reqDeviceReset       = vfioBase + 11
	reqMapDMA            = vfioBase + 13
	reqUnmapDMA          = vfioBase + 14
	reqDeviceBindIOMMUFD = vfioBase + 18
	reqDeviceAttachPT    = vfioBase + 19

	reqIOASAlloc = vfioType + 0x81
	reqIOASMap   = vfioType + 0x85
	reqIOASUnmap = vfioType + 0x86
)

const (
	apiVersion  = 0
	groupViable = 1 << 0

	// Extensions, and models of an IOMMU.
	type1v2      = 3
	noIOMMUModel = 8
)

// groupStatus is struct vfio_group_status.
type groupStatus struct {
	_     structs.HostLayout
	argsz uint32
	flags uint32
}

// deviceInfo is struct vfio_device_info up to where all kernels have it.
type deviceInfo struct {
	_       structs.HostLayout
	argsz   uint32
	flags   uint32
	regions uint32
	irqs    uint32
}

const deviceCanReset = 1 << 0

// irqInfo is struct vfio_irq_info.
type irqInfo struct {
	_     structs.HostLayout
	argsz uint32
	flags uint32
	index uint32
	count uint32
}

const irqEventFD = 1 << 0

// irqSet is struct vfio_irq_set; for irqDataEventFD the eventfds follow it.
type irqSet struct {
	_     structs.HostLayout
	argsz uint32
	flags uint32
	index uint32
	start uint32
	count uint32
}

const (
	irqDataNone    = 1 << 0
	irqDataEventFD = 1 << 2
	irqUnmask      = 1 << 4
	irqTrigger     = 1 << 5
)

// dmaMap is struct vfio_iommu_type1_dma_map.
type dmaMap struct {
	_     structs.HostLayout
	argsz uint32
	flags uint32
	vaddr uint64
	iova  uint64
	size  uint64
}

const (
	dmaRead  = 1 << 0
	dmaWrite = 1 << 1
)

// dmaUnmap is struct vfio_iommu_type1_dma_unmap. The kernel writes to size how
// much it unmapped.
type dmaUnmap struct {
	_     structs.HostLayout
	argsz uint32
	flags uint32
	iova  uint64
	size  uint64
}

// bindIOMMUFD is struct vfio_device_bind_iommufd.
type bindIOMMUFD struct {
	_       structs.HostLayout
	argsz   uint32
	flags   uint32
	iommufd int32
	device  uint32 // the kernel's answer
}

// attachPT is struct vfio_device_attach_iommufd_pt.
type attachPT struct {
	_     structs.HostLayout
	argsz uint32
	flags uint32
	pt    uint32
}

// ioasAlloc is struct iommu_ioas_alloc.
type ioasAlloc struct {
	_     structs.HostLayout
	size  uint32
	flags uint32
	ioas  uint32 // the kernel's answer
}

// ioasMap is struct iommu_ioas_map.
type ioasMap struct {
	_      structs.HostLayout
	size   uint32
	flags  uint32
	ioas   uint32
	_      uint32
	vaddr  uint64
	length uint64
	iova   uint64
}

const (
	ioasFixedIOVA = 1 << 0
	ioasWriteable = 1 << 1
	ioasReadable  = 1 << 2
)

// ioasUnmap is struct iommu_ioas_unmap. The kernel writes to length how much it
// unmapped.
type ioasUnmap struct {
	_      structs.HostLayout
	size   uint32
	ioas   uint32
	iova   uint64
	length uint64
}

// ioctl calls req on f with arg.
func ioctl(f *os.File, req, arg uintptr) (int, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var result uintptr
	var errno unix.Errno
	if err := raw.Control(func(fd uintptr) {
		result, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, req, arg)
	}); err != nil {
		return 0, err
	}
	if errno != 0 {
		return 0, errno
	}
	return int(result), nil
}

// ioctlOn calls req on f with arg's address. The kernel reads and writes *arg.
func ioctlOn[T any](f *os.File, req uintptr, arg *T) (int, error) {
	var pin runtime.Pinner
	pin.Pin(arg)
	defer pin.Unpin()
	return ioctl(f, req, uintptr(unsafe.Pointer(arg)))
}

// ioctlBytes is ioctlOn for a struct with data behind it. b is not empty.
func ioctlBytes(f *os.File, req uintptr, b []byte) (int, error) {
	return ioctlOn(f, req, &b[0])
}

// sizeOf is what a struct's argsz says.
func sizeOf[T any](T) uint32 {
	var v T
	return uint32(unsafe.Sizeof(v))
}

// addressOf is where memory lies in this process; the memory is not the Go
// heap's and does not move.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) }

// mapFile maps part of a device's file.
func mapFile(f *os.File, offset int64, size int) (b []byte, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	if cerr := raw.Control(func(fd uintptr) {
		b, err = unix.Mmap(int(fd), offset, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}); cerr != nil {
		return nil, cerr
	}
	return b, err
}

func unmap(b []byte) { _ = unix.Munmap(b) }
