package sim

import "nicd/bus"

// Region is one BAR of a Device.
type Region struct {
	device *Device
	index  int
	size   uint32
}

func (d *Device) makeRegions() {
	for i, bar := range d.id.BARs {
		if bar.Size != 0 {
			d.regions[i] = &Region{device: d, index: i, size: bar.Size}
		}
	}
}

// Size implements bus.Region.
func (r *Region) Size() int { return int(r.size) }

// Read implements bus.Region. What is narrower than 32 bits reaches a
// NarrowModel; other models have it cut out of the register that it is in.
func (r *Region) Read(offset uint32, size int) uint32 {
	d := r.device
	if size == 4 {
		return r.Read32(offset)
	}
	if offset&uint32(size-1) != 0 || !r.valid(offset&^3) {
		return bus.GoneOf(size)
	}
	if d.narrow == nil || d.ownsRegister(r.index, offset&^3) {
		return r.Read32(offset&^3) >> (8 * (offset & 3)) & bus.GoneOf(size)
	}
	return d.narrow.ReadNarrow(r.index, offset, size)
}

// Write implements bus.Region. What is narrower than 32 bits rings a doorbell that
// is there and reaches a NarrowModel; with other models it is lost.
func (r *Region) Write(offset uint32, size int, value uint32) {
	d := r.device
	if size == 4 {
		r.Write32(offset, value)
		return
	}
	if offset&uint32(size-1) != 0 || !r.valid(offset&^3) {
		return
	}
	if i, ok := d.doorbell(r.index, offset); ok {
		d.host.bells.Load().Set(i, value)
		return
	}
	if d.narrow != nil && !d.ownsRegister(r.index, offset&^3) {
		d.narrow.WriteNarrow(r.index, offset, size, value)
	}
}

// ownsRegister tells whether a register is the device's and not the model's.
func (d *Device) ownsRegister(region int, offset uint32) bool {
	_, bell := d.doorbell(region, offset)
	return bell || d.isMSIX(region, offset)
}

func (r *Region) valid(offset uint32) bool {
	return !r.device.gone.Load() && offset&3 == 0 && offset < r.size
}

// Read32 implements bus.Region. An offset outside reads all ones.
func (r *Region) Read32(offset uint32) uint32 {
	d := r.device
	if !r.valid(offset) {
		return bus.Gone
	}
	if i, ok := d.doorbell(r.index, offset); ok {
		return d.host.Doorbell(i)
	}
	if v, ok := d.readMSIX(r.index, offset); ok {
		return v
	}
	return d.model.ReadRegister(r.index, offset)
}

// Write32 implements bus.Region. A write outside is ignored.
func (r *Region) Write32(offset, value uint32) {
	d := r.device
	if !r.valid(offset) {
		return
	}
	if i, ok := d.doorbell(r.index, offset); ok {
		d.host.bells.Load().Set(i, value)
		return
	}
	if d.writeMSIX(r.index, offset, value) {
		return
	}
	d.model.WriteRegister(r.index, offset, value)
}

func (d *Device) doorbell(region int, offset uint32) (int, bool) {
	for i := range d.ranges {
		if bell, ok := d.ranges[i].Index(region, offset); ok {
			return bell, true
		}
	}
	return 0, false
}
