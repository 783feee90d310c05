// Package vfiobench has benches of package drivertest for real devices: PCI
// functions of this machine that are bound to vfio-pci.
//
// The wire of such a device is not the kit's. Its far end can be a [Peer], a Linux
// interface of this machine that the device's frames get to. It sends and sees
// frames and has a link of its own; it does not know what becomes of a frame, and
// can't have the device misbehave. Without a peer nobody sends frames and sees those
// that are sent, so that what needs that is not applicable.
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
	// Peer, if not nil, is the far end. It stays the caller's, who closes it after
	// the last check.
	Peer *Peer
}

// New is a bench with a driver on the PCI function at an address, which is bound to
// vfio-pci and which nobody else uses. With a peer the driver is run once, to see
// whether that is the device's far end. An error says what to do about it.
func New(ctx context.Context, d framework.Driver, address string, o Options) (drivertest.Bench, error) {
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
	b := bench(d, address, func() (bus.Device, error) {
		handle, err := o.Host.Open(address)
		if err != nil {
			return nil, err
		}
		return vfio.New(handle)
	})
	b.Memory = o.memory
	if o.Peer == nil {
		return b, nil
	}
	return b, o.Peer.face(ctx, &b, function.Device)
}

// memory is one piece of physical memory if there is one. QEMU's models drop what
// they are to send from two pages that only a vIOMMU puts side by side.
func (o Options) memory(size int) (*bus.Memory, error) {
	if m, _, err := o.Host.NewContiguous("conformance", size); err == nil {
		return m, nil
	}
	return rig.SharedMemory(size)
}

func drives(d framework.Driver, vendor, device uint16) bool {
	return slices.ContainsFunc(d.Describe().IDs, func(id framework.DeviceID) bool { return id.Vendor == vendor && id.Device == device })
}

// What a bench without a far end lacks, and why.
const (
	noFarEnd = "nobody sends and sees frames: the wire is not the kit's (a Linux interface that is wired to the device can be the far end)"
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

// What a bench with a peer lacks instead of a far end, and why.
const (
	pauses    = "whether frames wait for a device without buffers is between it and what it is wired to: the far end is not told"
	drops     = "whether frames are lost for want of a buffer is between the device and what it is wired to: the far end is not told"
	singles   = "the far end sends single segments: what a device makes of them is its own affair"
	linkStays = "the device's link stays up when %s is taken down: there is something between them"
	not8254x  = "the 8254x verify no checksums over IPv6"
)

// verifiesV6 are the ids of devices that verify checksums over IPv6: the vmxnet3 and
// the 82574L.
var verifiesV6 = []uint16{0x07B0, 0x10D3}

// face puts the peer at the far end of a bench with a device of some id, and sees
// whether it is that.
func (p *Peer) face(ctx context.Context, b *drivertest.Bench, id uint16) error {
	delete(b.Lacks, drivertest.FarEnd)
	delete(b.Lacks, drivertest.WireFaults)
	b.Lacks[drivertest.FlowControl], b.Lacks[drivertest.Drops] = pauses, drops
	for _, a := range []drivertest.Ability{drivertest.MergedFrames, drivertest.SizedLRO, drivertest.LengthOnlyLRO} {
		b.Lacks[a] = singles
	}
	if delete(b.Lacks, drivertest.VerifiesV6); !slices.Contains(verifiesV6, id) {
		b.Lacks[drivertest.VerifiesV6] = not8254x
	}
	open, linked := b.Open, true
	b.Open = func(s drivertest.Setup) (*rig.Station, error) {
		st, err := open(s)
		if err != nil {
			return nil, err
		}
		if err := p.join(st); err != nil {
			return nil, errors.Join(err, st.Bus.Close())
		}
		if linked {
			st.SetLink = p.setLink
		}
		return st, nil
	}
	b.Name += ", far end " + p.Name()
	var err error
	if linked, err = drivertest.TryFarEnd(ctx, *b); err != nil {
		return fmt.Errorf("%s and %s: %w", b.Name, p.Name(), err)
	}
	if delete(b.Lacks, drivertest.LinkControl); !linked {
		b.Lacks[drivertest.LinkControl] = fmt.Sprintf(linkStays, p.Name())
	}
	return nil
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
