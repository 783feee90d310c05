package vfio

import (
	"context"
	"encoding/binary"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nicd/bus"
)

// These tests take NICs away from the kernel, so they run only on those that
// the environment names, by address or all of them: in a virtual machine with an
// emulated IOMMU (QEMU's intel-iommu), for example.
const hardwareVar = "NICD_VFIO_TEST_NICS"

// PCI ids of the NICs that the tests know how to make do something.
const (
	idVMXNET3 = 0x15ad<<16 | 0x07b0
	id82540EM = 0x8086<<16 | 0x100e
	id82574L  = 0x8086<<16 | 0x10d3
)

func hardware(t *testing.T) []PCIDevice {
	t.Helper()
	wanted := os.Getenv(hardwareVar)
	if wanted == "" {
		t.Skipf("%s names no NIC to test with", hardwareVar)
	}
	all, err := Host{}.List()
	if err != nil {
		t.Fatal(err)
	}
	var nics []PCIDevice
	for _, d := range all {
		if wanted == "all" || strings.Contains(wanted, d.Address) {
			nics = append(nics, d)
		}
	}
	if len(nics) == 0 {
		t.Fatalf("no NIC is one of %q", wanted)
	}
	return nics
}

func TestHardware(t *testing.T) {
	for _, nic := range hardware(t) {
		t.Run(nic.Address, func(t *testing.T) {
			var h Host
			if err := h.Bind(nic.Address); err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := h.Unbind(nic.Address); err != nil {
					t.Error(err)
				}
			}()
			for range 20 { // what Close leaves open makes the next Open fail
				testNIC(t, h, nic)
			}
		})
	}
}

func testNIC(t *testing.T, h Host, nic PCIDevice) {
	handle, err := h.Open(nic.Address)
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(passed(t, handle))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if i := d.Info(); i.Vendor != nic.Vendor || i.Device != nic.Device {
		t.Errorf("Info = %+v, sysfs says %+v", i, nic)
	}
	if err := d.Reset(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := bus.EnableMaster(d); err != nil {
		t.Fatal(err)
	}
	arena, err := bus.NewMemory("arena", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	if err := d.MapDMA(arena, arenaAddr); err != nil {
		t.Fatal(err)
	}
	if err := d.MapDMA(arena, 0); err == nil {
		t.Error("mapped twice")
	}
	switch uint32(nic.Vendor)<<16 | uint32(nic.Device) {
	case idVMXNET3:
		testVMXNET3(t, d)
	case id82540EM, id82574L:
		testE1000(t, d, arena)
	}
	if err := d.UnmapDMA(arena); err != nil {
		t.Error(err)
	}
}

const arenaAddr = 0x100000

// passed is h with other descriptors of the same files, as another process has.
func passed(t *testing.T, h *Handle) *Handle {
	t.Helper()
	again := *h
	for _, f := range []**os.File{&again.Device, &again.IOMMU, &again.Group} {
		if *f == nil {
			continue
		}
		fd, err := unix.FcntlInt((*f).Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		*f = os.NewFile(uintptr(fd), (*f).Name())
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	return &again
}

func testVMXNET3(t *testing.T, d *Device) {
	const vrrs, macLow = 0x00, 0x28
	r, err := d.Region(bus.BAR1)
	if err != nil {
		t.Fatal(err)
	}
	if v := r.Read32(vrrs); v&1 == 0 || v == bus.Gone {
		t.Errorf("revisions %#x", v)
	}
	if v := r.Read32(macLow); v == 0 || v == bus.Gone {
		t.Errorf("MAC %#x", v)
	}
}

// Registers and bits of the 8254x and 82574 software developer's manuals.
const (
	regICR, regICS, regIMS, regIVAR = 0xc0, 0xc8, 0xd0, 0xe4

	regTCTL, regTDBAL, regTDBAH = 0x400, 0x3800, 0x3804
	regTDLEN, regTDH, regTDT    = 0x3808, 0x3810, 0x3818

	causeLink = 1 << 2
	causeRxQ0 = 1 << 20 // 82574: MSI-X
	ivarRxQ0  = 1 << 3  // vector 0, valid

	tctlEnable    = 1 << 1
	txCommand     = 1<<24 | 1<<25 | 1<<27 // end of packet, FCS, report status
	txDone        = 1 << 0
	txDescription = 16
)

func testE1000(t *testing.T, d *Device, arena *bus.Memory) {
	r, err := d.Region(bus.BAR0)
	if err != nil {
		t.Fatal(err)
	}
	events := []*bus.Event{}
	for range max(d.Info().Vectors[bus.MSIX], 1) {
		e, err := bus.NewEvent()
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		events = append(events, e)
	}
	if d.Info().Vectors[bus.MSIX] > 0 {
		testVector(t, d, r, bus.MSIX, events, causeRxQ0)
	}
	testVector(t, d, r, bus.INTx, events[:1], causeLink)
	testTransmit(t, r, arena)
}

// testVector makes the device interrupt by its interrupt-cause-set register,
// twice, so that unmasking is tested, too.
func testVector(t *testing.T, d *Device, r bus.Region, kind bus.InterruptKind, events []*bus.Event, cause uint32) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := d.SetInterrupts(kind, events); err != nil {
		t.Fatal(err)
	}
	r.Write32(regIVAR, ivarRxQ0)
	r.Write32(regIMS, cause)
	for n := range 2 {
		r.Write32(regICS, cause)
		if _, err := events[0].Wait(ctx); err != nil {
			t.Fatalf("%v, interrupt %d: %v", kind, n, err)
		}
		r.Write32(regICR, r.Read32(regICR)) // reading clears it for INTx only
		if err := d.UnmaskInterrupt(0); err != nil {
			t.Fatal(err)
		}
	}
	// QEMU's e1000e aborts when MSI-X is turned off less than its throttling
	// interval (128 microseconds) after an interrupt; a reset ends the interval.
	if err := d.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	if err := d.SetInterrupts(kind, nil); err != nil {
		t.Fatal(err)
	}
	if err := bus.EnableMaster(d); err != nil {
		t.Fatal(err)
	}
}

// testTransmit has the device read a descriptor and a frame and write the
// descriptor's status, through the IOMMU.
func testTransmit(t *testing.T, r bus.Region, arena *bus.Memory) {
	const frame, ring = 0x2000, 0x1000
	b := arena.Bytes()
	clear(b[ring : ring+txDescription])
	binary.LittleEndian.PutUint64(b[ring:], arenaAddr+frame)
	binary.LittleEndian.PutUint32(b[ring+8:], txCommand|64)
	r.Write32(regTDBAL, arenaAddr+ring)
	r.Write32(regTDBAH, 0)
	r.Write32(regTDLEN, 8*txDescription)
	r.Write32(regTDH, 0)
	r.Write32(regTDT, 0)
	r.Write32(regTCTL, tctlEnable)
	r.Write32(regTDT, 1)
	status := bus.Word(b, ring+12)
	for end := time.Now().Add(10 * time.Second); status.Load()&txDone == 0; {
		if time.Now().After(end) {
			t.Fatalf("the descriptor's status stays %#x, head %d", status.Load(), r.Read32(regTDH))
		}
	}
}
