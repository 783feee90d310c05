package qemu

import (
	"context"
	"errors"
	"fmt"
	"slices"

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

// mapping is memory in a slot; mem is nil in a free one.
type mapping struct {
	mem *bus.Memory
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
	slot := slices.IndexFunc(d.maps[:], func(o mapping) bool { return o.mem == nil })
	if slot < 0 {
		return fmt.Errorf("%s: more than %d mappings: %w", d.info.Address, maxMaps, bus.ErrUnsupported)
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.opt.Timeout)
	defer cancel()
	if err := d.plug(ctx, m, iova, slot); err != nil {
		return fmt.Errorf("%s: map at %#x: %w", d.info.Address, iova, err)
	}
	d.maps[slot].mem = m
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
func (d *Device) plug(ctx context.Context, m *bus.Memory, iova uint64, slot int) error {
	var fd struct {
		FD  int `json:"fd"`
		Set int `json:"fdset-id"`
	}
	if err := d.qmp.runWith(ctx, "add-fd", nil, m.File(), &fd); err != nil {
		return err
	}
	err := d.qmp.run(ctx, "object-add", qmpArguments{
		"qom-type": "memory-backend-file", "id": backendID(slot), "size": m.Size(),
		"mem-path": fmt.Sprintf("/proc/self/fd/%d", fd.FD), "share": true,
	}, nil)
	err = errors.Join(err, d.qmp.run(ctx, "remove-fd", qmpArguments{"fdset-id": fd.Set}, nil))
	if err != nil {
		return err
	}
	err = d.qmp.run(ctx, "device_add", qmpArguments{
		"driver": "pc-dimm", "id": moduleID(slot), "memdev": backendID(slot), "addr": iova, "slot": slot,
	}, nil)
	if err != nil {
		return errors.Join(err, d.qmp.run(ctx, "object-del", qmpArguments{"id": backendID(slot)}, nil))
	}
	return nil
}

// UnmapDMA implements bus.Device.
func (d *Device) UnmapDMA(m *bus.Memory) error {
	if err := d.gone(); err != nil {
		return err
	}
	slot := slices.IndexFunc(d.maps[:], func(o mapping) bool { return o.mem == m })
	if slot < 0 {
		return fmt.Errorf("%s: memory that is not mapped", d.info.Address)
	}
	ctx, cancel := context.WithTimeout(context.Background(), d.opt.Timeout)
	defer cancel()
	if err := d.unplug(ctx, slot); err != nil {
		return fmt.Errorf("%s: unmap: %w", d.info.Address, err)
	}
	d.maps[slot].mem = nil
	return nil
}

// unplug asks for the module back and answers for the operating system that there
// is not.
func (d *Device) unplug(ctx context.Context, slot int) error {
	if err := d.qmp.run(ctx, "device_del", qmpArguments{"id": moduleID(slot)}, nil); err != nil {
		return err
	}
	d.qtest.outPort(ejectSlot, 4, uint32(slot))
	d.qtest.outPort(ejectControl, 1, eject)
	d.qtest.inPort(ejectSlot, 4) // it is out now
	return d.qmp.run(ctx, "object-del", qmpArguments{"id": backendID(slot)}, nil)
}
