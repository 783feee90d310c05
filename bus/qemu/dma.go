package qemu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"nicd/bus"
)

// DMABase is the device address from which memory can be mapped: where the machine
// has room for memory modules. It is above 4 GiB, so 64-bit addresses are used.
const DMABase = 1 << 32

const (
	maxMemory = "32G" // with the machine's own
	maxMaps   = 16    // slots for modules
	pageSize  = 4096

	// The I/O ports by which an operating system ejects a module (QEMU's
	// docs/specs/acpi_mem_hotplug.rst).
	ejectSlot    = 0xA00
	ejectControl = 0xA14
	eject        = 1 << 3
)

// dmaWindow is how much of the machine's address space each device has for its
// memory: what is mapped for one is not in the way of another's.
const dmaWindow = 8 << 30

// modules are the machine's slots for memory.
type modules struct {
	mu    sync.Mutex // held while a module is plugged in or out
	slots [maxMaps]mapping
}

// mapping is memory in a slot; mem is nil in a free one.
type mapping struct {
	mem *bus.Memory
	of  *Device
}

// MapDMA implements bus.Device. The memory has to be a file's, from its start, in
// whole pages, and iova at least DMABase: else it is bus.ErrUnsupported.
func (d *Device) MapDMA(m *bus.Memory, iova uint64) error {
	if err := d.gone(); err != nil {
		return err
	}
	if err := mappable(m, iova); err != nil {
		return fmt.Errorf("%s: %w", d.info.Address, err)
	}
	all := &d.machine.modules
	all.mu.Lock()
	defer all.mu.Unlock()
	slot := slices.IndexFunc(all.slots[:], func(o mapping) bool { return o.mem == nil })
	if slot < 0 {
		return fmt.Errorf("%s: more than %d mappings: %w", d.info.Address, maxMaps, bus.ErrUnsupported)
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.machine.opt.Timeout)
	defer cancel()
	if err := d.machine.plug(ctx, m, iova, slot); err != nil {
		return fmt.Errorf("%s: map at %#x: %w", d.info.Address, iova, err)
	}
	all.slots[slot] = mapping{m, d}
	return nil
}

func mappable(m *bus.Memory, iova uint64) error {
	switch {
	case m.File() == nil || m.FileOffset() != 0:
		return fmt.Errorf("memory that is not a file from its start: %w", bus.ErrUnsupported)
	case (iova|uint64(m.Size()))%pageSize != 0 || iova < DMABase:
		return fmt.Errorf("%d bytes at %#x, whole pages from %#x on are possible: %w", m.Size(), iova, uint64(DMABase), bus.ErrUnsupported)
	}
	return nil
}

func backendID(slot int) string { return fmt.Sprintf("memory%d", slot) }
func moduleID(slot int) string  { return fmt.Sprintf("module%d", slot) }

type qmpArguments map[string]any

// plug makes m a module of the machine. QEMU opens the file anew, by the name of
// the descriptor that it got; that one is given back.
func (b *Bus) plug(ctx context.Context, m *bus.Memory, iova uint64, slot int) error {
	var fd struct {
		FD  int `json:"fd"`
		Set int `json:"fdset-id"`
	}
	if err := b.qmp.runWith(ctx, "add-fd", nil, m.File(), &fd); err != nil {
		return err
	}
	err := b.qmp.run(ctx, "object-add", qmpArguments{
		"qom-type": "memory-backend-file", "id": backendID(slot), "size": m.Size(),
		"mem-path": fmt.Sprintf("/proc/self/fd/%d", fd.FD), "share": true,
	}, nil)
	err = errors.Join(err, b.qmp.run(ctx, "remove-fd", qmpArguments{"fdset-id": fd.Set}, nil))
	if err != nil {
		return err
	}
	err = b.qmp.run(ctx, "device_add", qmpArguments{
		"driver": "pc-dimm", "id": moduleID(slot), "memdev": backendID(slot), "addr": iova, "slot": slot,
	}, nil)
	if err != nil {
		return errors.Join(err, b.qmp.run(ctx, "object-del", qmpArguments{"id": backendID(slot)}, nil))
	}
	return nil
}

// UnmapDMA implements bus.Device.
func (d *Device) UnmapDMA(m *bus.Memory) error {
	if err := d.gone(); err != nil {
		return err
	}
	all := &d.machine.modules
	all.mu.Lock()
	defer all.mu.Unlock()
	slot := slices.Index(all.slots[:], mapping{m, d})
	if slot < 0 {
		return fmt.Errorf("%s: memory that is not mapped", d.info.Address)
	}
	return d.unmap(slot)
}

// unmap, with the modules' lock held, gives the memory in a slot back.
func (d *Device) unmap(slot int) error {
	ctx, cancel := context.WithTimeout(context.Background(), d.machine.opt.Timeout)
	defer cancel()
	if err := d.machine.unplug(ctx, slot); err != nil {
		return fmt.Errorf("%s: unmap: %w", d.info.Address, err)
	}
	d.machine.modules.slots[slot] = mapping{}
	return nil
}

// unmapAll gives back all memory that is mapped for the device.
func (d *Device) unmapAll() (err error) {
	all := &d.machine.modules
	all.mu.Lock()
	defer all.mu.Unlock()
	for slot := range all.slots {
		if all.slots[slot].of == d {
			err = errors.Join(err, d.unmap(slot))
		}
	}
	return err
}

// unplug asks for the module back and answers for the operating system that there
// is not.
func (b *Bus) unplug(ctx context.Context, slot int) error {
	if err := b.qmp.run(ctx, "device_del", qmpArguments{"id": moduleID(slot)}, nil); err != nil {
		return err
	}
	b.qtest.outPort(ejectSlot, 4, uint32(slot))
	b.qtest.outPort(ejectControl, 1, eject)
	b.qtest.inPort(ejectSlot, 4) // it is out now
	return b.qmp.run(ctx, "object-del", qmpArguments{"id": backendID(slot)}, nil)
}
