package drivertest

import (
	"errors"

	"nicd/bus"
	"nicd/framework"
	"nicd/framework/drivertest/rig"
)

var attachChecks = []*check{
	{name: "attach.description", run: attachDescription,
		doc: "The driver has a name, a version and device ids, and its quirks are registered, referenced and resolve."},
	{name: "attach.info", run: attachInfo,
		doc: "What the driver says of the device makes sense: rings, queues, MTU, fragments, interrupts, counters."},
	{name: "attach.bus-error", run: attachBusError,
		doc: "Attach fails at every bus call that fails, leaves nothing behind, and succeeds afterwards."},
	{name: "attach.gone", run: attachGone,
		doc: "Attach fails, saying that the device is gone, whichever register read is the first to get no answer."},
	{name: "attach.no-memory", run: attachNoMemory,
		doc: "Attach fails at every allocation that fails, leaves nothing behind, and succeeds afterwards."},
	{name: "attach.repeat", run: attachRepeat,
		doc: "Attaching and detaching many times finds the same device each time and takes no more memory."},
	{name: "attach.two", needs: []Ability{TwoDevices}, run: attachTwo,
		doc: "Two devices of one driver share nothing."},
	{name: "attach.quiet", run: attachQuiet,
		doc: "A device that is attached but not started neither writes to memory nor interrupts."},
	{name: "detach.quiet", run: detachQuiet,
		doc: "After Detach the device neither writes to memory nor interrupts."},
}

func attachDescription(t *c) {
	d := t.bench.Driver.Describe()
	if d.Name == "" || d.Version == "" || len(d.IDs) == 0 {
		t.Errorf("name %q, version %q, %d device ids", d.Name, d.Version, len(d.IDs))
	}
	for _, id := range d.IDs {
		if id.Vendor == 0 || id.Name == "" {
			t.Errorf("device id %04x:%04x %q", id.Vendor, id.Device, id.Name)
		}
	}
	for _, q := range d.Quirks {
		info := framework.LookupQuirk(q.Quirk)
		switch {
		case info == nil:
			t.Errorf("quirk %s is not registered", q.Quirk)
		case info.Check(q.Value) != nil:
			t.Errorf("%v", info.Check(q.Value))
		case q.Reference == "":
			t.Errorf("quirk %s = %s has no reference", q.Quirk, q.Value)
		case q.When.Device != 0 && !drives(d, q.When.Device):
			t.Errorf("quirk %s is for device %04x, which the driver does not drive", q.Quirk, q.When.Device)
		}
	}
	again := t.bench.Driver.Describe()
	if again.Name != d.Name || len(again.IDs) != len(d.IDs) || len(again.Quirks) != len(d.Quirks) {
		t.Error("the second description is another one")
	}
}

func drives(d framework.Description, device uint16) bool {
	for _, id := range d.IDs {
		if id.Device == device {
			return true
		}
	}
	return false
}

func attachInfo(t *c) {
	n := t.net(on{Options: rig.Options{Stopped: true}})
	i := n.Info
	sane := func(ok bool, format string, args ...any) {
		if !ok {
			t.Errorf(format, args...)
		}
	}
	sane(i.Model != "", "no model")
	sane(i.MAC != framework.MAC{} && i.MAC[0]&1 == 0, "permanent address %v", i.MAC)
	sane(i.MaxRxQueues >= 1 && i.MaxTxQueues >= 1 && i.MaxRxQueues <= 64 && i.MaxTxQueues <= 64, "%d+%d queues", i.MaxRxQueues, i.MaxTxQueues)
	for name, r := range map[string]framework.RingRule{"receive": i.RxRing, "transmit": i.TxRing} {
		sane(r.Min >= 2 && r.Min <= r.Default && r.Default <= r.Max, "%s ring of %+v", name, r)
		sane(r.Allows(r.Min) && r.Allows(r.Max) && r.Allows(r.Default), "%s rings of %v: not so Min, Max or Default", name, r)
	}
	sane(i.MinMTU > 0 && i.MinMTU <= 1500 && i.MaxMTU >= 1500, "MTU from %d to %d", i.MinMTU, i.MaxMTU)
	sane(i.Features&^framework.AllFeatures == 0, "unknown features %b", i.Features)
	sane(i.MaxTxFragments >= 1 && i.MaxTxFragmentLen >= 256, "%d fragments of %d bytes", i.MaxTxFragments, i.MaxTxFragmentLen)
	sane(!i.Features.Has(framework.TSO4) && !i.Features.Has(framework.TSO6) || i.MaxTSOLen > i.MaxMTU, "TSO of %d bytes", i.MaxTSOLen)
	have := n.Bus.Info().Vectors
	for _, k := range i.Interrupts {
		sane(k.Vectors >= 1 && k.Vectors <= have[k.Kind], "%d vectors of %v, the device has %d", k.Vectors, k.Kind, have[k.Kind])
	}
	t.lint.found(&i)
}

// worksAfter attaches, starts, and sends a frame each way.
func (t *c) worksAfter(n *rig.Net) {
	if n.Device == nil {
		if err := n.Attach(); err != nil {
			t.Fatalf("attach afterwards: %v", err)
		}
	}
	n.Start()
	n.WaitLink(true)
	n.RoundTrip()
}

func attachBusError(t *c) {
	p := &probe{}
	n := t.net(on{Options: rig.Options{Detached: true, Wrap: p.wrap}})
	t.must(n.Attach())
	calls := p.calls.Load()
	t.must(n.Detach())
	t.Logf("%d bus calls", calls)
	for i := int64(1); i <= calls; i++ {
		p.arm(i, 0)
		err := n.Attach()
		switch {
		case err == nil && p.failed.Load():
			t.Errorf("bus call %d of %d fails, and Attach does not", i, calls)
		case err != nil && !errors.Is(err, errInjected):
			t.Errorf("bus call %d of %d fails, and Attach says something else: %v", i, calls, err)
		}
		if err == nil {
			t.must(n.Detach())
		}
		if err := p.leftBehind(); err != nil {
			t.Errorf("after an error in bus call %d: %v", i, err)
		}
	}
	p.arm(0, 0)
	t.quiet(n)
	t.worksAfter(n)
}

func attachGone(t *c) {
	p := &probe{}
	n := t.net(on{Options: rig.Options{Detached: true, Wrap: p.wrap}})
	t.must(n.Attach())
	reads := p.reads.Load()
	t.must(n.Detach())
	t.Logf("%d register reads", reads)
	for i := int64(1); i <= reads; i++ {
		p.arm(0, i)
		err := n.Attach()
		switch {
		case err == nil && p.gone.Load():
			t.Errorf("nobody answers from read %d of %d on, and Attach does not fail", i, reads)
		case err != nil && !errors.Is(err, bus.ErrGone):
			t.Errorf("nobody answers from read %d of %d on, and Attach says something else: %v", i, reads, err)
		}
		if err == nil {
			t.must(n.Detach())
		}
		if err := p.leftBehind(); err != nil {
			t.Errorf("gone at read %d: %v", i, err)
		}
	}
	p.arm(0, 0)
	t.worksAfter(n)
}

func attachNoMemory(t *c) {
	p := &probe{}
	n := t.net(on{Options: rig.Options{Detached: true, Wrap: p.wrap}})
	t.must(n.Attach())
	allocs := n.Allocs
	t.must(n.Detach())
	if allocs == 0 {
		t.notApplicable("the driver allocates nothing at Attach")
	}
	for i := 1; i <= allocs; i++ {
		n.Allocs, n.FailAlloc = 0, i
		if err := n.Attach(); !errors.Is(err, rig.ErrNoMemory) {
			t.Errorf("allocation %d of %d fails, and Attach says %v", i, allocs, err)
			if err == nil {
				t.must(n.Detach())
			}
		}
		if err := p.leftBehind(); err != nil {
			t.Errorf("after allocation %d failed: %v", i, err)
		}
	}
	n.FailAlloc = 0
	t.quiet(n)
	t.worksAfter(n)
}

func attachRepeat(t *c) {
	n := t.net(on{Options: rig.Options{Stopped: true}})
	first := n.Info
	for i := range t.turns(100) {
		t.must(n.Detach())
		t.must(n.Attach())
		if n.Info.MAC != first.MAC || n.Info.Model != first.Model || n.Info.Revision != first.Revision {
			t.Fatalf("attach %d finds %s revision %d, %v; the first found %s revision %d, %v", i+2,
				n.Info.Model, n.Info.Revision, n.Info.MAC, first.Model, first.Revision, first.MAC)
		}
	}
	t.worksAfter(n)
}

func attachTwo(t *c) {
	a, b := t.net(on{}), t.net(on{})
	for range 20 {
		a.RoundTrip()
		b.RoundTrip()
	}
	a.Stop()
	b.RoundTrip()
	a.Start()
	a.WaitLink(true)
	a.SetFilters(framework.Filters{Promiscuous: true})
	other := rig.Frame{To: framework.MAC{2, 9, 9, 9, 9, 9}, Payload: 80}.Build()
	a.Inject(other)
	b.Inject(other, in(1, 90))
	t.same(a.Receive(1)[0], other)
	t.same(b.Receive(1)[0], in(1, 90))
}

func attachQuiet(t *c) {
	n := t.net(on{Options: rig.Options{Stopped: true}})
	t.quiet(n)
	t.worksAfter(n)
}

func detachQuiet(t *c) {
	n := t.net(on{})
	n.RoundTrip()
	n.Stop()
	t.must(n.Detach())
	t.quiet(n)
	drain(n)
	t.worksAfter(n)
}
