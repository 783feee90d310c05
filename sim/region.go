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
		d.host.bells.Ring(i, value)
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
