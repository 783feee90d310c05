// Package e1000 drives Intel's gigabit controllers of the 8254x family (82540EM,
// 82545EM, 82544GC) and the 82574L, the parts that hypervisors emulate most.
//
// What lives here is the devices: which parts there are (chips.go), their
// registers, reset, EEPROM and PHY (hardware.go), descriptors (rx.go, tx.go),
// interrupts, filters, statistics and quirks. Everything else is the framework's.
//
// The sources are the 8254x Software Developer's Manual and the 82574 datasheet;
// what was learned in the field is in quirks.go and at the places that cope.
//
// The frame check sequence is always stripped by the device. So no driver code
// sees it, nor the emulation (QEMU 7.2.22, 10.1.3) that puts it into a
// descriptor of its own.
//
// One queue cannot be reset while others run, so there is no
// framework.QueueResetter: no part has a bit that disables a single queue (that
// came with the 82575, RXDCTL and TXDCTL bit 25), head registers are to be written
// only after a reset and before RCTL.EN and TCTL.EN are set (8254x manual 13.4.28
// and 13.4.39), the 82574L must not clear RCTL.EN, and its TARC.ENABLE keeps a
// transmit queue from starting frames without saying when its DMA has ended.
//
// The 82544GC can't hold interrupts back (ITR is not in it): moderation that is
// asked for has no effect there.
//
// Not used: pause frames of the driver's own, receive header split, interrupt
// delays (throttling does better), wake-on-LAN, management, and the EEPROM by
// hand, bit by bit.
package e1000

import (
	"context"
	"time"

	"nicd/bus"
	"nicd/framework"
)

const (
	driverName    = "e1000"
	driverVersion = "1"
)

// New returns the driver.
func New() framework.Driver { return driver{} }

type driver struct{}

func (driver) Describe() framework.Description {
	return framework.Description{Name: driverName, Version: driverVersion, IDs: ids(), Quirks: quirks()}
}

// device is an attached NIC. Its control methods are serialised by the framework;
// what the data path and interrupts look at is atomic or fixed at Start.
type device struct {
	hardware
	dma    framework.DMA
	quirks *framework.QuirkSet
	mac    framework.MAC // permanent
	run    *run          // of the last Start
	totals []uint64      // of statistics
}

// Attach resets the device and reads its EEPROM.
func (driver) Attach(ctx context.Context, dev bus.Device, env framework.Env) (framework.Device, error) {
	bar, err := dev.Region(bus.BAR0)
	if err != nil {
		return nil, err
	}
	d := &device{
		hardware: hardware{bus: dev, chip: &chips[env.ID], bar: bar},
		dma:      env.DMA, quirks: env.Quirks, totals: make([]uint64, len(statistics)),
	}
	if err := d.restart(ctx); err != nil {
		return nil, err
	}
	if d.mac, err = d.permanentMAC(); err != nil {
		return nil, err
	}
	return d, d.wakePHY()
}

// nvmReload is how long a part takes after a reset to load what its EEPROM says
// into registers, over what someone has written to them (FreeBSD e1000_82540.c).
const nvmReload = 5 * time.Millisecond

// restart brings the device into its power-on state, ready to be set up.
func (d *device) restart(ctx context.Context) error {
	if err := d.quiet(ctx); err != nil {
		return err
	}
	if d.chip.reloads {
		d.set(regCTRLEXT, ctrlExtReload)
	}
	time.Sleep(nvmReload)
	return nil
}

// quiet resets the device, the way it wants that, so that it does nothing more.
func (d *device) quiet(ctx context.Context) error {
	how := framework.ResetMethodQuirk.Get(d.quirks)
	if err := d.reset(how); err != nil || how != framework.ResetByBus {
		return err
	}
	if err := d.bus.Reset(ctx); err != nil {
		return err
	}
	return bus.EnableMaster(d.bus)
}

// Info describes the device.
func (d *device) Info() framework.Info {
	features := framework.AllFeatures &^ (framework.LRO | framework.USO)
	if !d.chip.express {
		features &^= framework.RSSHash | framework.TSO6
	}
	// The length register counts 128 bytes, which are 8 descriptors.
	rule := framework.RingRule{Min: 64, Max: 4096, Multiple: 8, Default: 512}
	return framework.Info{
		Model:            d.chip.name,
		Revision:         int(d.bus.Info().Revision),
		MAC:              d.mac,
		MaxRxQueues:      d.chip.queues,
		MaxTxQueues:      d.chip.queues,
		RxRing:           rule,
		TxRing:           rule,
		MinMTU:           46,
		MaxMTU:           9000,
		Features:         features,
		MaxTxFragments:   framework.MaxFragments,
		MaxTSOLen:        framework.MaxPacketLen,
		MaxTxFragmentLen: d.chip.longest,
		MaxRxFragments:   framework.MaxFragments,
		Interrupts:       framework.InterruptChoices(d.bus.Info(), d.chip.vectors),
		MaxUnicast:       numRAR - 1,
		MaxMulticast:     maxMulticast,
		Counters:         statistics.Infos(),
	}
}

// Detach leaves the device reset.
func (d *device) Detach() error { return d.quiet(context.Background()) }

// Admin: the one thing that an interrupt announces is a change of the link.
func (d *device) Admin() framework.Events { return framework.Events{LinkChanged: true} }
