// Package vmxnet3 drives VMware's paravirtual NIC, as ESXi, Workstation and QEMU
// provide it, by revisions 1 to 4 of its interface.
//
// What lives here is the device, and nothing else. To be read in this order:
//
//	registers.go  the two regions of registers, and the device's limits
//	command.go    the commands
//	shared.go     the memory that driver and device share
//	driver.go     what the device is and offers, attach and detach
//	start.go      start, stop and changes of settings
//	tx.go         transmit: descriptors, the data ring, bells
//	rx.go         receive: two rings and their completions
//	verdict.go    what its completions say of a packet
//	interrupt.go  interrupts, events and errors
//	filter.go, counters.go, quirks.go
//
// The layout of registers, shared memory and descriptors is that of VMware's
// public headers (vmxnet3_defs.h); where devices in the field differ from it,
// the place that copes says who found out.
//
// Not used: tunnel offloads, all that comes with revisions from 5 on, and the
// receive data ring of revision 3. That one spares a guest the mapping of a buffer
// for a small packet. Here buffers are mapped for as long as the interface lives,
// and a packet goes up in one in any case, so that the ring would only add a copy.
//
// Not there: a way to reset one queue. The device is quiesced and reset as a whole,
// so that this driver is no framework.QueueResetter.
package vmxnet3

import (
	"context"
	"fmt"

	"nicd/bus"
	"nicd/framework"
)

const (
	driverName    = "vmxnet3"
	driverVersion = 1

	defaultRing    = 512
	longestHeaders = 14 + 4 // in front of the MTU
	minMbps        = 10000  // of a device that counts in Gbit/s what is less
)

var ids = []framework.DeviceID{{Vendor: 0x15AD, Device: 0x07B0, Name: "VMware VMXNET3"}}

// New returns the driver.
func New() framework.Driver { return driver{} }

type driver struct{}

func (driver) Describe() framework.Description {
	return framework.Description{
		Name:    driverName,
		Version: fmt.Sprint(driverVersion),
		IDs:     ids,
		Quirks:  quirks,
	}
}

// device is an attached NIC. Its control methods are serialised by the framework;
// what the data path and interrupts look at is atomic or fixed at Start.
type device struct {
	bus      bus.Device
	regs     registers
	dma      framework.DMA
	quirks   *framework.QuirkSet
	revision int
	mac      framework.MAC // permanent
	mode     string
	disabled framework.Features
	kind     uint32 // of interrupt, as the device wants it
	mask     maskMode
	run      *run // of the last Start
}

// Attach resets the device and agrees with it on a revision.
func (driver) Attach(_ context.Context, dev bus.Device, env framework.Env) (framework.Device, error) {
	regs, err := openRegisters(dev)
	if err != nil {
		return nil, err
	}
	regs.halt()
	d := &device{bus: dev, regs: regs, dma: env.DMA, quirks: env.Quirks}
	if d.revision, err = regs.negotiate(); err != nil {
		return nil, err
	}
	d.mac = regs.permanentMAC()
	d.kind, d.mask = regs.interruptConf()
	d.mode = regs.mode()
	d.disabled = regs.disabled()
	return d, nil
}

// Gone looks at the revisions that the device speaks: none speaks all.
func (d *device) Gone() bool { return d.regs.vd.Read32(regVRRS) == bus.Gone }

// offered is what the device does for packets.
const offered = framework.RxChecksum | framework.TxChecksum | framework.TSO4 | framework.TSO6 | framework.LRO |
	framework.VLANStrip | framework.VLANInsert | framework.VLANFilter | framework.RSSHash

// Info describes the device.
func (d *device) Info() framework.Info {
	rule := framework.RingRule{Min: ringMultiple, Max: maxRing, Multiple: ringMultiple, Default: defaultRing}
	features := offered &^ d.disabled
	if d.mode == modePassthrough {
		features &^= framework.LRO
	}
	return framework.Info{
		Model:       "VMXNET3",
		Revision:    d.revision,
		Mode:        d.mode,
		MAC:         d.mac,
		MaxRxQueues: maxQueues,
		MaxTxQueues: maxQueues,
		RxRing:      rule,
		TxRing:      rule,
		RxRings:     2,
		MinMTU:      minMTU,
		MaxMTU:      maxMTU,
		Features:    features,
		// Revision 1 can't tell.
		CoalescedSizeKnown: d.revision >= 2,
		MaxTxFragments:     maxTxFragments,
		MaxTSOFragments:    maxTSOFragments,
		MaxTSOLen:          framework.MaxPacketLen,
		MaxTxFragmentLen:   maxTxBufferLen,
		MaxRxFragments:     framework.MaxFragments,
		Interrupts:         framework.InterruptChoices(d.bus.Info(), interruptKinds[d.kind]),
		MaxMulticast:       maxMulticast,
		Counters:           counters,
	}
}

// interruptKinds are how many vectors of each kind of interrupt the driver can use
// when the device wants this one: of better kinds, none.
var interruptKinds = [...][3]int{
	kindAuto: {bus.INTx: 1, bus.MSI: 1, bus.MSIX: maxVectors},
	kindINTx: {bus.INTx: 1},
	kindMSI:  {bus.INTx: 1, bus.MSI: 1},
	kindMSIX: {bus.INTx: 1, bus.MSI: 1, bus.MSIX: maxVectors},
}

// Detach leaves the device halted.
func (d *device) Detach() error {
	d.regs.halt()
	return nil
}

// Link asks the device.
func (d *device) Link() (framework.Link, error) {
	l := d.regs.command(cmdLink)
	mbps := int(l >> linkSpeedShift)
	if mbps < minMbps && LinkInGbpsQuirk.Get(d.quirks) {
		mbps *= 1000
	}
	return framework.Link{Up: l&linkUp != 0, Mbps: mbps, FullDuplex: true}, nil
}
