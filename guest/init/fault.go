package main

import (
	"context"
	"time"

	"nicd/bus"
	"nicd/bus/vfio"
)

// Registers and bits of the 82574L's transmitter (datasheet section 10.2.6).
const (
	regTCTL, regTDBAL, regTDBAH = 0x400, 0x3800, 0x3804
	regTDLEN, regTDH, regTDT    = 0x3808, 0x3810, 0x3818

	tctlEnable   = 1 << 1
	ringBytes    = 128
	unmappedIOVA = 0x10000
)

// provokeFault gives the device a ring at an address that is not mapped and
// makes it look there.
func provokeFault(address string) error {
	handle, err := vfio.Host{}.Open(address)
	if err != nil {
		return err
	}
	d, err := vfio.New(handle)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Reset(context.Background()); err != nil {
		return err
	}
	if err := bus.EnableMaster(d); err != nil {
		return err
	}
	r, err := d.Region(bus.BAR0)
	if err != nil {
		return err
	}
	for _, w := range []struct{ at, value uint32 }{
		{regTDBAL, unmappedIOVA}, {regTDBAH, 0}, {regTDLEN, ringBytes}, {regTDH, 0}, {regTDT, 0}, {regTCTL, tctlEnable}, {regTDT, 1},
	} {
		r.Write32(w.at, w.value)
	}
	r.Read32(regTDH)                   // the writes have arrived
	time.Sleep(500 * time.Millisecond) // the kernel reports the fault from an interrupt, to the console
	return nil
}
