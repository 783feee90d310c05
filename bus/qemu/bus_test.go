package qemu

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"nicd/bus"
)

// newBus starts a QEMU with a device of each model, which has the model's name.
func newBus(t *testing.T, report func(error), models ...string) (*Bus, []*Device) {
	t.Helper()
	needQEMU(t)
	o := BusOptions{Name: "lab", Report: report}
	for i, m := range models {
		o.Devices = append(o.Devices, DeviceOptions{Name: m, Model: m, MAC: [6]byte{2, 0, 0, 0, 0, byte(i)}, Netdev: User{Restrict: true}})
	}
	b, err := StartBus(testContext(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	var devices []*Device
	for _, m := range models {
		d := b.Device(m)
		if err := bus.EnableMaster(d); err != nil {
			t.Fatal(err)
		}
		devices = append(devices, d)
	}
	return b, devices
}

func noReport(t *testing.T) func(error) {
	return func(err error) { t.Error(err) }
}

var fourModels = []string{"82574L", "82540EM", "82545EM", "82544GC"}

// Each device of a bus is what it was asked to be, and has a name, registers,
// memory and interrupts of its own.
func TestBusDevices(t *testing.T) {
	b, devices := newBus(t, noReport(t), "vmxnet3", "82574L", "82540EM", "82545EM")
	ids := []uint16{0x07B0, 0x10D3, 0x100E, 0x100F}
	bases := map[uint64]bool{}
	for i, d := range devices {
		info := d.Info()
		if info.Device != ids[i] || info.Address != "qemu:lab/"+d.opt.Name {
			t.Errorf("device %d is %+v", i, info)
		}
		bases[info.DMABase] = true
	}
	if len(bases) != len(devices) {
		t.Errorf("memory of all devices would be at %v", bases)
	}
	if b.Device("nobody") != nil {
		t.Error("there is a device that is not there")
	}
}

// A device's interrupts reach whoever it was told, and nobody else, by each kind.
// (QEMU 7.2 may abort when a used 82574L changes from one kind to another.)
func TestBusInterrupts(t *testing.T) {
	for _, kind := range []bus.InterruptKind{bus.INTx, bus.MSI, bus.MSIX} {
		t.Run(kind.String(), func(t *testing.T) { tryInterrupts(t, kind) })
	}
}

func tryInterrupts(t *testing.T, kind bus.InterruptKind) {
	_, devices := newBus(t, noReport(t), fourModels...)
	var events []*bus.Event
	devices = slices.DeleteFunc(devices, func(d *Device) bool { return d.info.Vectors[kind] == 0 })
	for _, d := range devices {
		e := newEvents(t, 1)
		if err := d.SetInterrupts(kind, e); err != nil {
			t.Fatal(err)
		}
		events = append(events, e[0])
	}
	for i, d := range devices {
		r := regionOf(t, d, bus.BAR0)
		cause := uint32(causeLSC)
		if kind == bus.MSIX {
			cause = causeRxQ0
			r.Write32(regIVAR, 8) // receive queue 0 on vector 0
		}
		r.Write32(regIMS, cause)
		r.Write32(regICS, cause)
		waitFor(t, events[i])
		r.Write32(regICR, cause)
		r.Read32(regICR)
		if err := d.UnmaskInterrupt(0); err != nil {
			t.Fatal(err)
		}
		r.Read32(regSTATUS)
		for j, e := range events {
			if n := e.Take(); n != 0 {
				t.Errorf("%v of %s came %d times more, to %s", kind, d.opt.Name, n, devices[j].opt.Name)
			}
		}
	}
}

// Vectors of the second device with MSI-X are not those of the first.
func TestBusVectors(t *testing.T) {
	needQEMU(t)
	b, err := StartBus(testContext(t), BusOptions{Name: "lab", Report: noReport(t), Devices: []DeviceOptions{
		{Name: "a", Model: "82574L"}, {Name: "b", Model: "82574L"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	var all [2][]*bus.Event
	for i, name := range []string{"a", "b"} {
		d := b.Device(name)
		all[i] = newEvents(t, 5)
		if err := errors.Join(bus.EnableMaster(d), d.SetInterrupts(bus.MSIX, all[i])); err != nil {
			t.Fatal(err)
		}
	}
	for i, name := range []string{"a", "b"} {
		r := regionOf(t, b.Device(name), bus.BAR0)
		for v := range uint32(5) {
			r.Write32(regIVAR, v|8)
			r.Write32(regIMS, causeRxQ0)
			r.Write32(regICS, causeRxQ0)
			waitFor(t, all[i][v])
			r.Write32(regICR, causeRxQ0)
		}
		r.Read32(regICR)
		for v, e := range slices.Concat(all[0], all[1]) {
			if n := e.Take(); n != 0 {
				t.Errorf("vector %d of both fired %d times more", v, n)
			}
		}
	}
}

// A reset is that of one device, and so is a close; the others go on.
func TestBusResetOfOne(t *testing.T) {
	_, devices := newBus(t, noReport(t), fourModels...)
	const mta = 0x5200
	for i, d := range devices {
		regionOf(t, d, bus.BAR0).Write32(mta, uint32(0x1000+i))
	}
	if err := devices[1].Reset(testContext(t)); err != nil {
		t.Fatal(err)
	}
	for i, d := range devices {
		got := regionOf(t, d, bus.BAR0).Read32(mta)
		if reset := i == 1; reset != (got == 0) || !reset && got != uint32(0x1000+i) {
			t.Errorf("%s has %#x after %s was reset", d.opt.Name, got, devices[1].opt.Name)
		}
	}
	m := newMemory(t, 4096)
	if err := devices[1].MapDMA(m, devices[1].Info().DMABase); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := devices[1].Close(); err != nil {
			t.Error(err)
		}
	}
	if err := devices[1].Reset(testContext(t)); !errors.Is(err, bus.ErrGone) {
		t.Errorf("reset of a closed device: %v", err)
	}
	if err := devices[2].MapDMA(m, devices[1].Info().DMABase); err != nil {
		t.Errorf("a closed device keeps its memory: %v", err)
	}
	if got := regionOf(t, devices[2], bus.BAR0).Read32(mta); got != 0x1002 {
		t.Errorf("%#x after the close of another", got)
	}
}

// Memory of two devices is where each expects it, at the same time.
func TestBusDMA(t *testing.T) {
	needQEMU(t)
	o := BusOptions{Name: "lab", Report: noReport(t)}
	names := []string{"a", "b"}
	var ends []int
	for i, name := range names {
		ours, theirs := datagrams(t)
		ends = append(ends, ours)
		o.Devices = append(o.Devices, DeviceOptions{Name: name, Model: "82540EM", MAC: [6]byte{2, 0, 0, 0, 0, byte(i)}, Netdev: Datagram{File: theirs}})
	}
	b, err := StartBus(testContext(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	for i, name := range names {
		d := b.Device(name)
		m := newMemory(t, 3*4096)
		base := d.Info().DMABase
		if err := errors.Join(bus.EnableMaster(d), d.MapDMA(m, base)); err != nil {
			t.Fatal(err)
		}
		frame := bytes.Repeat([]byte(name), 80)
		copy(m.Bytes()[4096:], frame)
		send(t, d, m.Bytes(), base, len(frame))
		got := make([]byte, 2000)
		n, err := unix.Read(ends[i], got)
		if err != nil || !bytes.Equal(got[:n], frame) {
			t.Errorf("%s: %v, sent %q", name, err, got[:max(n, 0)])
		}
	}
}

// The end of QEMU is the end of all its devices, and reported once.
func TestBusDeath(t *testing.T) {
	reports := make(chan error, 2)
	b, devices := newBus(t, func(err error) { reports <- err }, "vmxnet3", "82574L")
	b.Kill()
	for _, d := range devices {
		if err := d.SetInterrupts(bus.INTx, nil); !errors.Is(err, bus.ErrGone) || !strings.Contains(err.Error(), d.info.Address) {
			t.Errorf("%v", err)
		}
		if v := regionOf(t, d, bus.BAR0).Read32(8); v != bus.Gone {
			t.Errorf("%s: %#x", d.opt.Name, v)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := <-reports; !errors.Is(err, bus.ErrGone) || !strings.HasPrefix(err.Error(), "qemu:lab: ") {
		t.Errorf("reported %v", err)
	}
	b.Close()
	if len(reports) != 0 {
		t.Errorf("and reported %v", <-reports)
	}
}

func TestBusErrors(t *testing.T) {
	good := DeviceOptions{Name: "a", Model: "vmxnet3"}
	for _, c := range []struct {
		devices []DeviceOptions
		says    string
	}{
		{nil, "qemu:lab: 0 devices: a bus has 1 to 4"},
		{slices.Repeat([]DeviceOptions{good}, 5), "qemu:lab: 5 devices: a bus has 1 to 4"},
		{[]DeviceOptions{good, {Name: "b", Model: "rtl8139"}}, "rtl8139"},
	} {
		if _, err := StartBus(t.Context(), BusOptions{Name: "lab", Devices: c.devices}); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v, want %s", err, c.says)
		}
	}
}
