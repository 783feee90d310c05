package vfio

import (
	"fmt"
	"math"
	"os"

	"nicd/bus"
	"nicd/bus/internal/vfiocap"
	"nicd/bus/mmio"
)

// region is a BAR: mapped where the kernel allows it, accessed through the
// device's file elsewhere (I/O ports, the pages of the MSI-X table). It
// implements bus.Region.
type region struct {
	device *Device
	window window
	areas  []mapped
}

// mapped is a mapped part of a region.
type mapped struct {
	vfiocap.Area
	mem  []byte
	regs *mmio.Region
}

// Region returns a BAR.
func (d *Device) Region(index int) (bus.Region, error) {
	if err := d.gone(); err != nil {
		return nil, err
	}
	if index < 0 || index >= len(d.regions) || d.regions[index] == nil {
		return nil, fmt.Errorf("vfio %s: region %d: %w", d.info.Address, index, bus.ErrNoRegion)
	}
	return d.regions[index], nil
}

func (r *region) Size() int { return r.window.size }

func (r *region) Read32(offset uint32) uint32 {
	if !r.has(offset, 4) {
		return bus.Gone
	}
	if a := r.area(offset); a != nil {
		return a.regs.Read32(offset - uint32(a.Offset))
	}
	v, err := r.window.read(int(offset), 4)
	if err != nil {
		return bus.Gone
	}
	return v
}

func (r *region) Write32(offset, value uint32) {
	if !r.has(offset, 4) {
		return
	}
	if a := r.area(offset); a != nil {
		a.regs.Write32(offset-uint32(a.Offset), value)
		return
	}
	_ = r.window.write(int(offset), 4, value) // posted: a device that is gone shows when it is read
}

func (r *region) Read(offset uint32, size int) uint32 {
	if !r.has(offset, size) {
		return bus.GoneOf(size)
	}
	if a := r.area(offset); a != nil {
		return a.regs.Read(offset-uint32(a.Offset), size)
	}
	v, err := r.window.read(int(offset), size)
	if err != nil {
		return bus.GoneOf(size)
	}
	return v
}

func (r *region) Write(offset uint32, size int, value uint32) {
	if !r.has(offset, size) {
		return
	}
	if a := r.area(offset); a != nil {
		a.regs.Write(offset-uint32(a.Offset), size, value)
		return
	}
	_ = r.window.write(int(offset), size, value)
}

func (r *region) has(offset uint32, size int) bool {
	return offset&uint32(size-1) == 0 && int64(offset)+int64(size) <= int64(r.window.size) && !r.device.closed.Load()
}

func (r *region) area(offset uint32) *mapped {
	for i := range r.areas {
		if a := &r.areas[i]; uint64(offset) >= a.Offset && uint64(offset)-a.Offset < a.Size {
			return a
		}
	}
	return nil
}

func (r *region) unmap() {
	for _, a := range r.areas {
		unmap(a.mem)
	}
	r.areas = nil
}

func (d *Device) attachRegions() error {
	for i := range bus.NumRegions {
		info, body, err := d.describe(i)
		if err != nil {
			return fmt.Errorf("region %d: %w", i, err)
		}
		if info.Size == 0 || info.Size > math.MaxInt || info.Offset > math.MaxInt64 {
			continue
		}
		w := window{d.handle.Device, int64(info.Offset), int(info.Size)}
		switch i {
		case bus.ConfigSpace:
			d.config = w
			continue
		case bus.ROM:
			continue // its size is a promise that reading need not keep; no driver here reads one
		}
		r := &region{device: d, window: w}
		d.regions[i] = r
		areas, err := vfiocap.Areas(body, info)
		if err != nil {
			return fmt.Errorf("region %d: %w", i, err)
		}
		if err := r.mapAreas(areas); err != nil {
			return fmt.Errorf("map region %d: %w", i, err)
		}
	}
	return nil
}

// describe asks for a region's description, with its capabilities if it has any.
func (d *Device) describe(index int) (vfiocap.Info, []byte, error) {
	size := uint32(vfiocap.InfoSize)
	for {
		b := vfiocap.Info{Argsz: size, Index: uint32(index)}.Append(nil)
		b = append(b, make([]byte, size-vfiocap.InfoSize)...)
		if _, err := ioctlBytes(d.handle.Device, reqDeviceGetRegion, b); err != nil {
			return vfiocap.Info{}, nil, err
		}
		info, err := vfiocap.Parse(b)
		if err != nil {
			return vfiocap.Info{}, nil, err
		}
		// The kernel says how much room it wants, and gives capabilities only then.
		if info.Argsz <= size || info.Argsz > vfiocap.MaxSize {
			return info, b, nil
		}
		size = info.Argsz
	}
}

func (r *region) mapAreas(areas []vfiocap.Area) error {
	page := uint64(os.Getpagesize())
	for _, a := range areas {
		if (a.Offset|a.Size|uint64(r.window.offset))%page != 0 {
			continue // smaller than a page: the file reaches it
		}
		b, err := mapFile(r.window.file, r.window.offset+int64(a.Offset), int(a.Size))
		if err != nil {
			return err
		}
		r.areas = append(r.areas, mapped{a, b, mmio.NewRegion(b)})
	}
	return nil
}
