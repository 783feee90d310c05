// Package vmxnet3 drives VMware's paravirtual NIC, as ESXi, Workstation and QEMU
// provide it, by revisions 1 to 4 of its interface.
//
// What lives here is the device: its registers (registers.go, command.go), the
// memory that it shares with its driver (shared.go), its descriptors (rx.go,
// assembly.go, tx.go), interrupts and events (interrupt.go), filters, counters
// and quirks. Everything else is the framework's.
//
// The layout of registers, shared memory and descriptors is that of VMware's
// public headers (vmxnet3_defs.h); where devices in the field differ from it,
// the place that copes says who found out.
//
// Not used: the transmit and receive data rings, which copy small packets for
// the sake of guests with slow page mapping, tunnel offloads, and all that comes
// with revisions from 5 on.
package vmxnet3

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/rs/zerolog"

	"nicd/bus"
	"nicd/framework"
)

const (
	driverName    = "vmxnet3"
	driverVersion = 1

	vendorVMware   = 0x15AD
	deviceVMXNET3  = 0x07B0
	defaultRing    = 512
	longestHeaders = 14 + 4 // in front of the MTU
)

// New returns the driver.
func New() framework.Driver { return driver{} }

type driver struct{}

func (driver) Describe() framework.Description {
	return framework.Description{
		Name:    driverName,
		Version: fmt.Sprint(driverVersion),
		IDs:     []framework.DeviceID{{Vendor: vendorVMware, Device: deviceVMXNET3, Name: "VMware VMXNET3"}},
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
	log      zerolog.Logger
	revision int
	mac      framework.MAC // permanent
	mode     string
	kind     uint32 // of interrupt, as the device wants it
	mask     maskMode
	run      *run // of the last Start: interrupts may look at it until Stop has returned
	running  bool
}

// run is what a device has from Start to Stop.
type run struct {
	cfg          framework.Config
	shared       *sharedMemory
	rx           []*rxQueue
	tx           []*txQueue
	vectors      []framework.Vector
	features     atomic.Uint32 // framework.Features in force
	merges       atomic.Bool   // LRO has been on: there may be merged packets
	statsAtStart [2 * numStats]uint64
}

// Attach resets the device and agrees with it on a revision.
func (driver) Attach(ctx context.Context, dev bus.Device, env framework.Env) (framework.Device, error) {
	if i := dev.Info(); i.Vendor != vendorVMware || i.Device != deviceVMXNET3 {
		return nil, fmt.Errorf("vmxnet3: %w: %04x:%04x", framework.ErrNotOurs, i.Vendor, i.Device)
	}
	regs, err := openRegisters(dev)
	if err != nil {
		return nil, err
	}
	if err := bus.EnableMaster(dev); err != nil {
		return nil, fmt.Errorf("vmxnet3: %w", err)
	}
	regs.halt()
	d := &device{bus: dev, regs: regs, dma: env.DMA, quirks: env.Quirks, log: env.Log}
	if d.revision, err = regs.negotiate(); err != nil {
		return nil, err
	}
	d.mac = regs.permanentMAC()
	d.kind, d.mask = regs.interruptConf()
	d.mode = d.currentMode()
	if regs.gone() { // then none of the answers above was one
		return nil, fmt.Errorf("vmxnet3: %w", bus.ErrGone)
	}
	d.log.Debug().Int("revision", d.revision).Stringer("mac", d.mac).Str("mode", d.mode).Msg("attached")
	return d, nil
}

// currentMode asks the device. (Linux goes by whether receive bells are wanted;
// but a device in emulation may want one as well, when it has run dry.)
func (d *device) currentMode() string {
	if d.regs.passthrough() {
		return modePassthrough
	}
	return ""
}

// offered is what the device does for packets.
const offered = framework.RxChecksum | framework.TxChecksum | framework.TSO4 | framework.TSO6 | framework.LRO |
	framework.VLANStrip | framework.VLANInsert | framework.VLANFilter | framework.RSSHash

// Info describes the device.
func (d *device) Info() framework.Info {
	rule := framework.RingRule{Min: ringMultiple, Max: maxRing, Multiple: ringMultiple, Default: defaultRing}
	features := offered
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
		Interrupts:         d.interrupts(),
		MaxMulticast:       maxMulticast,
		Counters:           counters,
	}
}

// interrupts are the kinds that the device wants and those that are less.
func (d *device) interrupts() []framework.InterruptChoice {
	most := [3]int{bus.INTx: 1, bus.MSI: 1, bus.MSIX: maxVectors}
	if d.kind == kindINTx || d.kind == kindMSI {
		most[bus.MSIX] = 0
	}
	if d.kind == kindINTx {
		most[bus.MSI] = 0
	}
	return framework.InterruptChoices(d.bus.Info(), most)
}

// Detach leaves the device halted.
func (d *device) Detach() error {
	d.regs.halt()
	return nil
}

// Link asks the device.
func (d *device) Link() (framework.Link, error) { return d.regs.link() }

// SetFilters replaces the receive filters.
func (d *device) SetFilters(f framework.Filters) error {
	d.run.cfg.Filters = f
	d.applyFilters(&f, d.run.cfg.Features)
	return nil
}
