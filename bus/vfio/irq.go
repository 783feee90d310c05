package vfio

import (
	"encoding/binary"
	"fmt"

	"nicd/bus"
)

// countVectors is how many vectors of a kind there are that can signal eventfds.
func (d *Device) countVectors(kind uint32) (int, error) {
	i := irqInfo{index: kind}
	i.argsz = sizeOf(i)
	if _, err := ioctlOn(d.handle.Device, reqDeviceGetIRQ, &i); err != nil {
		return 0, fmt.Errorf("interrupt %d: %w", kind, err)
	}
	if i.flags&irqEventFD == 0 {
		return 0, nil
	}
	return int(i.count), nil
}

// SetInterrupts passes the events to the kernel, which signals them.
func (d *Device) SetInterrupts(kind bus.InterruptKind, events []*bus.Event) error {
	if err := d.gone(); err != nil {
		return err
	}
	if int(kind) >= len(d.info.Vectors) || len(events) > d.info.Vectors[kind] {
		return fmt.Errorf("vfio %s: %d vectors of %v: %w", d.info.Address, len(events), kind, bus.ErrNoInterrupt)
	}
	// The kernel has one kind on at a time, and does not resize MSI and MSI-X.
	if d.vectors > 0 {
		if err := d.setIRQs(irqSet{flags: irqDataNone | irqTrigger, index: uint32(d.kind)}, nil); err != nil {
			return d.wrap(fmt.Sprintf("%v off", d.kind), err)
		}
		d.vectors = 0
	}
	if len(events) == 0 {
		return nil
	}
	set := irqSet{flags: irqDataEventFD | irqTrigger, index: uint32(kind), count: uint32(len(events))}
	if err := d.setIRQs(set, events); err != nil {
		return d.wrap(fmt.Sprintf("%d vectors of %v", len(events), kind), err)
	}
	d.kind, d.vectors = kind, len(events)
	return nil
}

// UnmaskInterrupt re-enables INTx, which the kernel masked when it fired.
func (d *Device) UnmaskInterrupt(vector int) error {
	if err := d.gone(); err != nil {
		return err
	}
	if d.kind != bus.INTx || d.vectors == 0 {
		return nil
	}
	if vector != 0 {
		return fmt.Errorf("vfio %s: vector %d of INTx: %w", d.info.Address, vector, bus.ErrNoInterrupt)
	}
	if err := d.setIRQs(irqSet{flags: irqDataNone | irqUnmask, index: uint32(bus.INTx), count: 1}, nil); err != nil {
		return d.wrap("unmask INTx", err)
	}
	return nil
}

// setIRQs calls the kernel with a set and the events' descriptors behind it.
func (d *Device) setIRQs(s irqSet, events []*bus.Event) error {
	_, err := ioctlBytes(d.handle.Device, reqDeviceSetIRQs, s.append(nil, events))
	return err
}

// append appends the struct and the descriptors to b.
func (s irqSet) append(b []byte, events []*bus.Event) []byte {
	s.argsz = sizeOf(s) + uint32(4*len(events))
	for _, v := range []uint32{s.argsz, s.flags, s.index, s.start, s.count} {
		b = binary.NativeEndian.AppendUint32(b, v)
	}
	for _, e := range events {
		b = binary.NativeEndian.AppendUint32(b, uint32(e.File().Fd()))
	}
	return b
}
