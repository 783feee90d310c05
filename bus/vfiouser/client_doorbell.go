package vfiouser

import (
	"errors"
	"math"

	"nicd/bus"
)

// attachDoorbells maps the server's doorbell page, if it has one, and notes
// which registers lie in it. Registers that do not fit the picture are written
// by message: slower, and right.
func (c *Client) attachDoorbells() error {
	for _, r := range c.regions[:bus.ConfigSpace] {
		if r == nil {
			continue
		}
		if err := c.attachBells(r); err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) attachBells(r *region) error {
	const limit = ioFDsSize + maxIOFDs*shadowFDSize
	l, err := c.call(cmdGetRegionIOFDs, ioFDs{argsz: limit, index: r.index}.append, nil, limit)
	if err != nil {
		var refused *RequestError
		if errors.As(err, &refused) {
			return nil
		}
		return err
	}
	defer c.release(l)
	head, err := parseIOFDs(l.reply)
	if err != nil {
		return err
	}
	entries, err := parseShadowFDs(l.reply, head)
	if err != nil || len(entries) == 0 {
		return err
	}
	if c.bells != nil {
		return nil // one page a device; a second one would need its own count
	}
	page, err := c.openBells(entries[0], l.fds)
	if err != nil || page == nil {
		return err
	}
	for _, e := range entries {
		r.addBell(e, entries[0], page.FileOffset())
	}
	return nil
}

// openBells maps the page that first lies in, unless its file could be cut short.
func (c *Client) openBells(first shadowFD, fds descriptors) (*bus.Memory, error) {
	mfd, efd := first.memoryFD, first.eventFD
	if mfd >= uint32(len(fds)) || efd >= uint32(len(fds)) || mfd == efd {
		return nil, violation("doorbell descriptors %d and %d of %d", mfd, efd, len(fds))
	}
	if first.memoryOffset > math.MaxInt64 {
		return nil, violation("doorbell at %#x of its file", first.memoryOffset)
	}
	event, err := fds.takeEvent(int(efd))
	if err != nil {
		return nil, err
	}
	file := fds.takeFile(int(mfd), "doorbells")
	if !bus.Sealed(file) {
		file.Close()
		event.Close()
		return nil, nil
	}
	base := int64(first.memoryOffset) &^ (bus.DoorbellPageSize - 1)
	page, err := bus.OpenMemoryAt(file, base, bus.DoorbellPageSize)
	if err != nil {
		event.Close()
		return nil, err
	}
	c.pages = append(c.pages, page)
	c.bells = bus.NewDoorbells(page, event)
	return page, nil
}

// maxBellOffset bounds the table of doorbell registers.
const maxBellOffset = 1 << 16

// addBell notes that a register is a doorbell, if it is one of the page at base
// that first belongs to.
func (r *region) addBell(e, first shadowFD, base int64) {
	start := uint64(base) + bus.DoorbellOffset
	switch {
	case e.kind != kindShadowIOEventFD, e.memoryFD != first.memoryFD, e.eventFD != first.eventFD:
		return
	case e.size != 4 || e.offset >= maxBellOffset || !r.has(uint32(e.offset), 4):
		return
	case e.memoryOffset < start, (e.memoryOffset-start)%4 != 0, (e.memoryOffset-start)/4 >= bus.MaxDoorbells:
		return
	}
	i := int(e.offset / 4)
	if need := i + 1 - len(r.bells); need > 0 {
		r.bells = append(r.bells, make([]uint16, need)...)
	}
	r.bells[i] = uint16((e.memoryOffset-start)/4) + 1
}
