package qemu

import (
	"fmt"
	"slices"
	"sync"

	"nicd/bus"
)

// interrupts says who hears of what the machine signals. Its lock is a leaf.
type interrupts struct {
	mu     sync.Mutex
	kind   bus.InterruptKind
	events []*bus.Event
	line   bool // the interrupt controller's input is asserted
	fired  bool // INTx, and not unmasked since
}

// set makes events those of kind; no other is signalled any more.
func (q *interrupts) set(kind bus.InterruptKind, events []*bus.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.kind, q.events, q.fired = kind, slices.Clone(events), false
	q.fireLine()
}

// message takes a message interrupt.
func (q *interrupts) message(vector int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.kind != bus.INTx && vector < len(q.events) {
		q.events[vector].Signal()
	}
}

// setLine takes a change of the device's input.
func (q *interrupts) setLine(raised bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.line = raised
	q.fireLine()
}

func (q *interrupts) unmask() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.fired = false
	q.fireLine()
}

func (q *interrupts) fireLine() {
	if !q.line || q.kind != bus.INTx || q.fired || len(q.events) == 0 {
		return
	}
	q.fired = true
	q.events[0].Signal()
}

// messages are the function's capabilities to interrupt by message: PCI Local Bus
// Specification 3.0, section 6.8.
type messages struct {
	msi, msix int // offset in configuration space, 0 if there is none
	table     *region
	offset    uint32 // of the MSI-X table in it
	vectors   int    // of MSI-X
}

const (
	msiControl     = 2 // message control, both kinds
	msiAddress     = 4
	msiAddressHigh = 8
	msiData        = 8  // with 32-bit addresses
	msiData64      = 12 // with 64-bit addresses
	msiEnable      = 1
	msiWide        = 1 << 7

	msixTable     = 4 // BAR and offset
	msixEnable    = 1 << 15
	msixCount     = 0x7FF // of message control: vectors but one
	msixEntry     = 16    // bytes: address, address high, data, control
	msixMasked    = 1     // of control
	msixBAR       = 7     // of msixTable
	bytesAddrHigh = 4
	bytesData     = 8
	bytesControl  = 12
)

// enable makes the first n vectors of kind write to doorbell, and no other kind
// interrupt.
func (d *Device) enableMessages(kind bus.InterruptKind, n int) {
	f, m := &d.nic, &d.messages
	doorbell := uint32(d.machine.doorbell.bars[0].addr + ivshmemDoorbell)
	if m.msi != 0 {
		f.write(m.msi+msiControl, 2, 0)
	}
	if m.msix != 0 {
		f.write(m.msix+msiControl, 2, 0)
	}
	switch {
	case n == 0 || kind == bus.INTx:
	case kind == bus.MSI:
		control := f.read(m.msi+msiControl, 2)
		data := m.msi + msiData
		f.write(m.msi+msiAddress, 4, doorbell)
		if control&msiWide != 0 {
			f.write(m.msi+msiAddressHigh, 4, 0)
			data = m.msi + msiData64
		}
		f.write(data, 2, doorbellData(d.firstVector))
		f.write(m.msi+msiControl, 2, msiEnable)
	default:
		for v := range m.vectors {
			m.writeEntry(v, doorbell, d.firstVector+v, v >= n)
		}
		f.write(m.msix+msiControl, 2, msixEnable)
	}
	f.read(configID, 4) // all that was written is in force now
}

// writeEntry writes an entry of the MSI-X table. Signal is which of ivshmem's
// vectors it is.
func (m *messages) writeEntry(vector int, doorbell uint32, signal int, masked bool) {
	at := m.table.bar.addr + uint64(m.offset) + msixEntry*uint64(vector)
	q := m.table.qtest
	control := uint32(0)
	if masked {
		control = msixMasked
	}
	q.write(at, 4, doorbell)
	q.write(at+bytesAddrHigh, 4, 0)
	q.write(at+bytesData, 4, doorbellData(signal))
	q.write(at+bytesControl, 4, control)
}

// SetInterrupts implements bus.Device. Interrupts that a driver let through before
// the call may still be signalled once after it.
func (d *Device) SetInterrupts(kind bus.InterruptKind, events []*bus.Event) error {
	if err := d.gone(); err != nil {
		return err
	}
	if kind > bus.MSIX || len(events) > d.info.Vectors[kind] {
		return fmt.Errorf("%s: %d vectors of %v: %w", d.info.Address, len(events), kind, bus.ErrNoInterrupt)
	}
	d.irq.set(kind, events)
	d.kind, d.vectors = kind, len(events)
	d.enableMessages(kind, len(events))
	return d.gone()
}

// UnmaskInterrupt implements bus.Device.
func (d *Device) UnmaskInterrupt(vector int) error {
	if vector == 0 {
		d.irq.unmask()
	}
	return d.gone()
}

// relay signals whoever is to hear of a vector, until the device is closed.
func (d *Device) relay(vector int, e *bus.Event) {
	for {
		if _, err := e.Next(); err != nil {
			return
		}
		d.irq.message(vector)
	}
}
