package vfiouser

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"nicd/bus"
)

// errMapped: memory can be mapped for a device once.
var errMapped = errors.New("memory is mapped already")

// MapDMA passes the memory's descriptor to the server. Memory without one, on
// the Go heap, can't be shared.
func (c *Client) MapDMA(m *bus.Memory, iova uint64) error {
	if m.File() == nil {
		return fmt.Errorf("%s: map memory that has no file: %w", c.info.Address, bus.ErrUnsupported)
	}
	if _, mapped := c.dma[m]; mapped {
		return fmt.Errorf("%s: %w", c.info.Address, errMapped)
	}
	q := dmaMap{
		flags:  dmaRead | dmaWrite,
		offset: uint64(m.FileOffset()),
		addr:   iova,
		size:   uint64(m.Size()),
	}
	// The reader may be asked for the memory before the reply arrives.
	c.setMapped(m, iova, true)
	if err := c.do(cmdDMAMap, q.append, []int{int(m.File().Fd())}, 0); err != nil {
		c.setMapped(m, iova, false)
		return fmt.Errorf("%s: map %#x+%#x: %w", c.info.Address, iova, m.Size(), err)
	}
	return nil
}

func (c *Client) setMapped(m *bus.Memory, iova uint64, mapped bool) {
	c.dmaMu.Lock()
	defer c.dmaMu.Unlock()
	if mapped {
		c.dma[m] = iova
	} else {
		delete(c.dma, m)
	}
}

// UnmapDMA takes the memory from the device. When the device is gone the server
// process may still have it mapped.
func (c *Client) UnmapDMA(m *bus.Memory) error {
	iova, mapped := c.dma[m]
	if !mapped {
		return fmt.Errorf("%s: unmap memory that is not mapped", c.info.Address)
	}
	q := dmaUnmap{addr: iova, size: uint64(m.Size())}
	if err := c.do(cmdDMAUnmap, q.append, nil, dmaUnmapSize); err != nil {
		return fmt.Errorf("%s: unmap %#x: %w", c.info.Address, iova, err)
	}
	c.setMapped(m, iova, false)
	return nil
}

func (c *Client) unmapAll() {
	for m := range c.dma {
		_ = c.UnmapDMA(m)
	}
}

// accessDMA carries out DMA_READ and DMA_WRITE and appends the reply's body to
// out.
func (c *Client) accessDMA(cmd command, body, out []byte) ([]byte, error) {
	if cmd != cmdDMARead && cmd != cmdDMAWrite {
		return out, unix.EOPNOTSUPP
	}
	a, err := parseDMAAccess(body)
	if err != nil {
		return out, err
	}
	if a.count > maxTransfer || cmd == cmdDMAWrite && a.count != uint64(len(body)-dmaAccessSize) {
		return out, unix.EINVAL
	}
	c.dmaMu.Lock()
	defer c.dmaMu.Unlock()
	mem := c.mapped(a)
	if mem == nil {
		return out, unix.EFAULT
	}
	out = a.append(out)
	if cmd == cmdDMARead {
		return append(out, mem...), nil
	}
	copy(mem, body[dmaAccessSize:])
	return out, nil
}

// mapped is the memory at the device addresses of a, nil if not all is mapped.
func (c *Client) mapped(a dmaAccess) []byte {
	for m, iova := range c.dma {
		size := uint64(m.Size())
		if a.addr < iova || a.addr-iova > size || a.count > size-(a.addr-iova) {
			continue
		}
		return m.Bytes()[a.addr-iova:][:a.count]
	}
	return nil
}
