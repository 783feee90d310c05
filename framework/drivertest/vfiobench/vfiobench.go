// Package vfiobench has benches of package drivertest for real devices: PCI
// functions of this machine that are bound to vfio-pci.
//
// The wire of such a device is not the kit's: nobody is there to send frames and to
// see those that are sent, so that what needs that is not applicable. It would take
// a far end in the kit's hands, such as a second port that is wired to the device.
package vfiobench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"nicd/bus"
	"nicd/bus/vfio"
	"nicd/framework"
	"nicd/framework/drivertest"
	"nicd/framework/drivertest/rig"
)

// Options are a bench's settings. The zero value is this machine.
type Options struct {
	Host vfio.Host
}

// New is a bench with a driver on the PCI function at an address, which is bound to
// vfio-pci and which nobody else uses. An error says what to do about it.
func New(d framework.Driver, address string, o Options) (drivertest.Bench, error) {
	function, err := o.Host.Find(address)
	if errors.Is(err, vfio.ErrNotFound) {
		return drivertest.Bench{}, fmt.Errorf("%w (nicd devices lists those that are there)", err)
	}
	if err != nil {
		return drivertest.Bench{}, err
	}
	if !drives(d, function.Vendor, function.Device) {
		return drivertest.Bench{}, fmt.Errorf("driver %s does not drive %s (%04x:%04x)", d.Describe().Name, address, function.Vendor, function.Device)
	}
	handle, err := o.Host.Open(address)
	if errors.Is(err, vfio.ErrNotBound) {
		return drivertest.Bench{}, fmt.Errorf("%w (nicd bind %s gives it to vfio-pci)", err, address)
	}
	if err != nil {
		return drivertest.Bench{}, err
	}
	handle.Close() // each check opens it anew
	return bench(d, address, func() (bus.Device, error) {
		handle, err := o.Host.Open(address)
		if err != nil {
			return nil, err
		}
		return vfio.New(handle)
	}), nil
}

func drives(d framework.Driver, vendor, device uint16) bool {
	return slices.ContainsFunc(d.Describe().IDs, func(id framework.DeviceID) bool { return id.Vendor == vendor && id.Device == device })
}

// What the bench lacks, and why.
const (
	noFarEnd = "nobody sends and sees frames: the wire is not the kit's (a second port, wired to the device, could be the far end)"
	noHand   = "nobody is there to pull the device or its cable"
	healthy  = "a real device can't be told to misbehave"
	isolated = "one device is on the bench"
)

func lacks() map[drivertest.Ability]string {
	return map[drivertest.Ability]string{
		drivertest.FarEnd: noFarEnd, drivertest.FlowControl: noFarEnd, drivertest.Drops: noFarEnd, drivertest.WireFaults: noFarEnd,
		drivertest.MergedFrames: noFarEnd, drivertest.SizedLRO: noFarEnd, drivertest.LengthOnlyLRO: noFarEnd, drivertest.VerifiesV6: noFarEnd,
		drivertest.LinkControl: noHand, drivertest.Unplug: noHand,
		drivertest.Hang: healthy, drivertest.ModeChange: healthy, drivertest.BadFrames: healthy, drivertest.BadLengths: healthy,
		drivertest.SkippedSlots: healthy, drivertest.EmptyBuffers: healthy,
		drivertest.TwoDevices: isolated,
	}
}

// bench is a driver on what open opens, a device in whatever state.
func bench(d framework.Driver, address string, open func() (bus.Device, error)) drivertest.Bench {
	return drivertest.Bench{
		Name: d.Describe().Name + " on vfio " + address, Driver: d, Lacks: lacks(), Memory: rig.SharedMemory,
		Open: func(drivertest.Setup) (*rig.Station, error) {
			dev, err := open()
			if err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(context.Background(), rig.Deadline)
			defer cancel()
			if err := dev.Reset(ctx); err != nil {
				return nil, errors.Join(err, dev.Close())
			}
			return &rig.Station{Bus: dev}, nil
		},
	}
}
