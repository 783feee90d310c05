package vfiouser

import (
	"fmt"
	"math"
	"os"
	"slices"

	"nicd/bus"
	"nicd/bus/internal/vfiocap"
	"nicd/bus/mmio"
)

// region is a client's view of a region. It implements bus.Region.
type region struct {
	client *Client
	index  uint32
	size   uint64
	areas  []mappedArea
	// bells[offset/4] is one more than the doorbell that the register is, or 0.
	// It reaches to the last doorbell.
	bells []uint16
}

// mappedArea is a part of a region that this process has mapped.
type mappedArea struct {
	vfiocap.Area
	mem  *bus.Memory
	regs *mmio.Region
}

// Region returns a register region.
func (c *Client) Region(index int) (bus.Region, error) {
	if c.isLost.Load() {
		return nil, c.Err()
	}
	if index < 0 || index >= bus.ConfigSpace || c.regions[index] == nil {
		return nil, fmt.Errorf("%s: region %d: %w", c.info.Address, index, bus.ErrNoRegion)
	}
	return c.regions[index], nil
}

func (c *Client) regionSize(index int) int {
	if c.regions[index] == nil {
		return 0
	}
	return c.regions[index].Size()
}

func (r *region) Size() int { return int(r.size) }

// Read32 waits for the server, unless the register is mapped.
func (r *region) Read32(offset uint32) uint32 {
	if !r.has(offset, 4) {
		return bus.Gone
	}
	if a := r.area(offset); a != nil {
		return a.regs.Read32(offset - uint32(a.Offset))
	}
	v, err := r.client.readRegion(r.index, uint64(offset), 4)
	if err != nil {
		return bus.Gone
	}
	return v
}

// Write32 stores to a doorbell or to mapped registers if it can, and posts the
// write otherwise.
func (r *region) Write32(offset, value uint32) {
	if i := offset / 4; i < uint32(len(r.bells)) && r.bells[i] != 0 && offset&3 == 0 {
		if r.client.ring(int(r.bells[i])-1, value) {
			return
		}
	}
	if !r.has(offset, 4) {
		return
	}
	if a := r.area(offset); a != nil {
		a.regs.Write32(offset-uint32(a.Offset), value)
		return
	}
	r.client.write(r.index, offset, value)
}

// Read waits for the server, unless the register is mapped.
func (r *region) Read(offset uint32, size int) uint32 {
	if !r.has(offset, size) {
		return bus.GoneOf(size)
	}
	if a := r.area(offset); a != nil {
		return a.regs.Read(offset-uint32(a.Offset), size)
	}
	v, err := r.client.readRegion(r.index, uint64(offset), size)
	if err != nil {
		return bus.GoneOf(size)
	}
	return v
}

// Write stores to a doorbell or to mapped registers if it can. Otherwise it waits
// for the server: what can be posted is 32 bits.
func (r *region) Write(offset uint32, size int, value uint32) {
	i := offset / 4
	switch bell := offset&3 == 0 && i < uint32(len(r.bells)) && r.bells[i] != 0; {
	case size == 4 || bell && r.client.bells.Idle():
		r.Write32(offset, value)
		return
	case !r.has(offset, size):
		return
	}
	if a := r.area(offset); a != nil {
		a.regs.Write(offset-uint32(a.Offset), size, value)
		return
	}
	_ = r.client.writeRegion(r.index, uint64(offset), size, value)
}

func (r *region) has(offset uint32, size int) bool {
	return offset&uint32(size-1) == 0 && uint64(offset)+uint64(size) <= r.size
}

func (r *region) area(offset uint32) *mappedArea {
	for i := range r.areas {
		if a := &r.areas[i]; uint64(offset) >= a.Offset && uint64(offset)-a.Offset < a.Size {
			return a
		}
	}
	return nil
}

// ring stores to a doorbell unless a posted write is still on its way, which the
// store would overtake.
func (c *Client) ring(bell int, value uint32) bool {
	if !c.bells.Idle() {
		return false
	}
	c.bells.Ring(bell, value)
	return true
}

// A posted register write: header, access, 4 bytes.
const postSize = headerSize + regionAccessSize + 4

// write posts a write, in the doorbell page or else by a message, or waits for it
// to be carried out where that would be wrong or there is no room.
func (c *Client) write(region, offset, value uint32) {
	switch {
	case c.noPosts:
	case c.bells == nil:
		c.postWrite(region, offset, value)
		return
	case c.isLost.Load() || c.bells.Post(int(region), offset, value):
		return
	}
	_ = c.writeRegion(region, uint64(offset), 4, value)
}

// postWrite sends a write that the server does not answer.
func (c *Client) postWrite(region, offset, value uint32) {
	if c.isLost.Load() {
		return
	}
	c.send.Lock()
	defer c.send.Unlock()
	b := c.post[:]
	header{id: postID, cmd: cmdRegionWrite, size: postSize, flags: flagCommand | flagNoReply}.put(b)
	regionAccess{uint64(offset), region, 4}.append(b[:headerSize])
	host.PutUint32(b[headerSize+regionAccessSize:], value)
	_ = c.transmitLocked(b, nil)
}

// readRegion reads 1, 2 or 4 bytes.
func (c *Client) readRegion(region uint32, offset uint64, size int) (uint32, error) {
	a := regionAccess{offset, region, uint32(size)}
	l, err := c.begin(cmdRegionRead, regionAccessSize+size)
	if err != nil {
		return bus.Gone, err
	}
	l.msg = a.append(l.msg)
	if l, err = c.finish(l, nil); err != nil {
		return bus.Gone, err
	}
	defer c.release(l)
	if err := checkAccessReply(l.reply, a, size); err != nil {
		c.fail(err)
		return bus.Gone, c.reason
	}
	return getWidth(l.reply[regionAccessSize:]), nil
}

// writeRegion writes 1, 2 or 4 bytes and waits until it is done.
func (c *Client) writeRegion(region uint32, offset uint64, size int, value uint32) error {
	a := regionAccess{offset, region, uint32(size)}
	l, err := c.begin(cmdRegionWrite, regionAccessSize)
	if err != nil {
		return err
	}
	l.msg = append(a.append(l.msg), make([]byte, size)...)
	putWidth(l.msg[len(l.msg)-size:], value)
	if l, err = c.finish(l, nil); err != nil {
		return err
	}
	defer c.release(l)
	if err := checkAccessReply(l.reply, a, 0); err != nil {
		c.fail(err)
		return c.reason
	}
	return nil
}

// checkAccessReply tells whether a reply repeats the access and has n bytes of
// data.
func checkAccessReply(b []byte, want regionAccess, n int) error {
	got, err := parseRegionAccess(b)
	if err != nil {
		return err
	}
	if got != want || len(b) != regionAccessSize+n {
		return violation("access %+v answered by %+v with %d bytes", want, got, len(b)-regionAccessSize)
	}
	return nil
}

// attachRegion learns a region's size and maps what can be mapped of it.
func (c *Client) attachRegion(index int) error {
	d, err := c.regionInfo(index, vfiocap.InfoSize)
	if err != nil {
		return err
	}
	d.fds.close()
	if d.Size == 0 {
		return nil
	}
	const maxRegion = 1 << 32 // a Region's offsets are 32 bits
	if d.Size > maxRegion {
		return violation("region %d of %#x bytes", index, d.Size)
	}
	r := &region{client: c, index: uint32(index), size: d.Size}
	c.regions[index] = r
	if d.Flags&vfiocap.Mmap == 0 || index >= bus.ConfigSpace {
		return nil
	}
	// The descriptor and the capabilities come only with a request that has room
	// for all.
	if d, err = c.regionInfo(index, d.Argsz); err != nil {
		return err
	}
	defer d.fds.close()
	if d.Size != r.size || len(d.fds) == 0 {
		return violation("region %d is not what it was", index)
	}
	areas, err := vfiocap.Areas(d.body, d.Info)
	if err != nil {
		return violation("region %d: %v", index, err)
	}
	return c.mapAreas(r, d.Offset, areas, d.fds[0])
}

// regionDescription is a reply that belongs to whoever asked for it.
type regionDescription struct {
	vfiocap.Info
	body []byte
	fds  descriptors
}

// regionInfo asks for a region's description of at most size bytes.
func (c *Client) regionInfo(index int, size uint32) (regionDescription, error) {
	if size < vfiocap.InfoSize || size > vfiocap.MaxSize {
		return regionDescription{}, violation("region %d described in %d bytes", index, size)
	}
	l, err := c.call(cmdGetRegionInfo, vfiocap.Info{Argsz: size, Index: uint32(index)}.Append, nil, int(size))
	if err != nil {
		return regionDescription{}, err
	}
	defer c.release(l)
	info, err := vfiocap.Parse(l.reply)
	if err != nil {
		return regionDescription{}, violation("%v", err)
	}
	if info.Index != uint32(index) {
		return regionDescription{}, violation("region %d described as %d", index, info.Index)
	}
	return regionDescription{info, slices.Clone(l.reply), l.takeFDs()}, nil
}

// mapAreas maps areas of r, which begins at base in the file fd.
func (c *Client) mapAreas(r *region, base uint64, areas []vfiocap.Area, fd int) error {
	page := uint64(os.Getpagesize())
	for _, a := range areas {
		start := base + a.Offset
		if (a.Offset|a.Size|base)%page != 0 || start < base || start > math.MaxInt64 {
			continue // can't be mapped here; messages reach it
		}
		file, err := dup(fd, "region")
		if err != nil {
			return err
		}
		mem, err := bus.OpenMemoryAt(file, int64(start), int(a.Size)) // refuses what the file lacks
		if err != nil {
			return fmt.Errorf("region %d: %w", r.index, err)
		}
		c.pages = append(c.pages, mem)
		r.areas = append(r.areas, mappedArea{a, mem, mmio.NewRegion(mem.Bytes())})
		c.noPosts = true
	}
	return nil
}
