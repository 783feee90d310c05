package vfio

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"nicd/bus"
)

// iommu maps memory of this process for a device: a type-1 container or an
// address space of iommufd.
type iommu interface {
	mapRange(vaddr, iova, size uint64) error
	unmapRange(iova, size uint64) error
}

func (d *Device) iommuOf(h *Handle) iommu {
	switch {
	case h.NoIOMMU:
		return physical{base: h.DMABase, size: h.DMASize, device: d}
	case h.Group == nil:
		return ioas{h.IOMMU, h.IOAS}
	}
	return container{h.IOMMU}
}

// MapDMA lets the device access the memory, which the kernel pins. Memory on the
// Go heap may be moved or given back and is refused. Without an IOMMU the memory
// is what [Host.NewContiguous] made, at Info's DMABase.
func (d *Device) MapDMA(m *bus.Memory, iova uint64) error {
	if err := d.gone(); err != nil {
		return err
	}
	if m.File() == nil {
		return fmt.Errorf("vfio %s: map memory that has no file: %w", d.info.Address, bus.ErrUnsupported)
	}
	if _, mapped := d.dma[m]; mapped {
		return fmt.Errorf("vfio %s: memory is mapped already", d.info.Address)
	}
	if err := d.iommu.mapRange(addressOf(m.Bytes()), iova, uint64(m.Size())); err != nil {
		what := fmt.Sprintf("map %#x+%#x", iova, m.Size())
		if errors.Is(err, unix.ENOMEM) {
			what += " (RLIMIT_MEMLOCK is too low?)"
		}
		return d.wrap(what, err)
	}
	d.dma[m] = iova
	return nil
}

// UnmapDMA takes the memory from the device. The IOMMU refuses accesses to it
// when it returns; without one the device loses bus mastering, and so all memory.
func (d *Device) UnmapDMA(m *bus.Memory) error {
	if err := d.gone(); err != nil {
		return err
	}
	iova, mapped := d.dma[m]
	if !mapped {
		return fmt.Errorf("vfio %s: unmap memory that is not mapped", d.info.Address)
	}
	if err := d.iommu.unmapRange(iova, uint64(m.Size())); err != nil {
		return d.wrap(fmt.Sprintf("unmap %#x+%#x", iova, m.Size()), err)
	}
	delete(d.dma, m)
	return nil
}

// errPartial: the kernel unmapped less than was mapped.
var errPartial = errors.New("unmapped in part")

// container is the group flow's.
type container struct{ file *os.File }

func (c container) mapRange(vaddr, iova, size uint64) error {
	m := dmaMap{flags: dmaRead | dmaWrite, vaddr: vaddr, iova: iova, size: size}
	m.argsz = sizeOf(m)
	_, err := ioctlOn(c.file, reqMapDMA, &m)
	return err
}

func (c container) unmapRange(iova, size uint64) error {
	u := dmaUnmap{iova: iova, size: size}
	u.argsz = sizeOf(u)
	_, err := ioctlOn(c.file, reqUnmapDMA, &u)
	if err == nil && u.size != size {
		err = errPartial
	}
	return err
}

// ioas is an address space of iommufd.
type ioas struct {
	file *os.File
	id   uint32
}

func (s ioas) mapRange(vaddr, iova, size uint64) error {
	m := ioasMap{flags: ioasFixedIOVA | ioasWriteable | ioasReadable, ioas: s.id, vaddr: vaddr, length: size, iova: iova}
	m.size = sizeOf(m)
	_, err := ioctlOn(s.file, reqIOASMap, &m)
	return err
}

func (s ioas) unmapRange(iova, size uint64) error {
	u := ioasUnmap{ioas: s.id, iova: iova, length: size}
	u.size = sizeOf(u)
	_, err := ioctlOn(s.file, reqIOASUnmap, &u)
	if err == nil && u.length != size {
		err = errPartial
	}
	return err
}
