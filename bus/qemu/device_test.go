package qemu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nicd/bus"
)

const patience = 30 * time.Second

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// needQEMU skips the test where there is no QEMU, unless there has to be one.
func needQEMU(t testing.TB) {
	t.Helper()
	if _, err := exec.LookPath(DefaultProgram); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

func newDevice(t testing.TB, model string, n Netdev) *Device {
	t.Helper()
	needQEMU(t)
	d, err := Start(testContext(t), Options{
		Name: "nic", Model: model, MAC: [6]byte{2, 0, 0, 0, 0, 1}, Netdev: n,
		Report: func(err error) { t.Error(err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	if err := bus.EnableMaster(d); err != nil {
		t.Fatal(err)
	}
	return d
}

func eachModel(t *testing.T, test func(t *testing.T, model string)) {
	for _, m := range Models() {
		t.Run(m, func(t *testing.T) { test(t, m) })
	}
}

func regionOf(t testing.TB, d *Device, index int) bus.Region {
	t.Helper()
	r, err := d.Region(index)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestIdentity(t *testing.T) {
	want := map[string]bus.Info{
		"vmxnet3": {Vendor: 0x15AD, Device: 0x07B0, Revision: 1, Vectors: [3]int{1, 1, 25}},
		"82540EM": {Vendor: 0x8086, Device: 0x100E, Revision: 3, Vectors: [3]int{1, 0, 0}},
		"82545EM": {Vendor: 0x8086, Device: 0x100F, Revision: 3, Vectors: [3]int{1, 0, 0}},
		"82544GC": {Vendor: 0x8086, Device: 0x100C, Revision: 3, Vectors: [3]int{1, 0, 0}},
		"82574L":  {Vendor: 0x8086, Device: 0x10D3, Vectors: [3]int{1, 1, 5}},
	}
	eachModel(t, func(t *testing.T, model string) {
		d := newDevice(t, model, nil)
		w := want[model]
		w.Address, w.CanReset, w.DMABase = "qemu:nic", true, DMABase
		if got := d.Info(); got != w {
			t.Errorf("info is %+v, want %+v", got, w)
		}
		if size := regionOf(t, d, bus.BAR0).Size(); size != 128<<10 && model != "vmxnet3" {
			t.Errorf("BAR0 has %d bytes", size)
		}
		if _, err := d.Region(bus.BAR5); !errors.Is(err, bus.ErrNoRegion) {
			t.Errorf("BAR5: %v", err)
		}
	})
}

func TestConfigSpace(t *testing.T) {
	d := newDevice(t, "82574L", nil)
	read := func(offset, size int) uint32 {
		t.Helper()
		v, err := d.ReadConfig(offset, size)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	write := func(offset, size int, v uint32) {
		t.Helper()
		if err := d.WriteConfig(offset, size, v); err != nil {
			t.Fatal(err)
		}
	}
	if read(0, 2) != 0x8086 || read(2, 2) != 0x10D3 || read(0, 4) != 0x10D38086 {
		t.Errorf("identity %#x", read(0, 4))
	}
	if v := read(0x100, 2); v != 1 { // the first extended capability: AER
		t.Errorf("extended configuration space: %#x", v)
	}
	if read(1, 2) != 0xFFFF || read(4096, 4) != bus.Gone {
		t.Error("accesses that are none have values")
	}
	write(0x10, 4, 0xFFFF_FFFF)
	if v := read(0x10, 4); v != 0xFFFE_0000 {
		t.Errorf("BAR0 has the mask %#x", v)
	}
	write(0x18, 4, 0xFFFF_FFFF)
	if v := read(0x18, 4); v != 0xFFFF_FFE1 {
		t.Errorf("BAR2 has the mask %#x", v)
	}
	write(4, 2, 0)
	if s := regionOf(t, d, bus.BAR0).Read32(8); s == bus.Gone || s&0x80000 == 0 {
		t.Errorf("registers do not answer: status %#x", s)
	}
}

// Registers of an 82574 that the tests use.
const (
	regSTATUS = 0x08
	regICR    = 0xC0
	regICS    = 0xC8
	regIMS    = 0xD0
	regIVAR   = 0xE4
	regVET    = 0x38
	causeLSC  = 1 << 2
	causeRxQ0 = 1 << 20
)

func TestRegistersInOrder(t *testing.T) {
	d := newDevice(t, "82574L", nil)
	r := regionOf(t, d, bus.BAR0)
	for i := range uint32(2000) {
		r.Write32(regVET, i)
		if i%100 == 99 {
			if got := r.Read32(regVET); got != i {
				t.Fatalf("read %d after %d was written", got, i)
			}
		}
	}
	if r.Read32(2) != bus.Gone || r.Read32(uint32(r.Size())) != bus.Gone {
		t.Error("registers outside have values")
	}
}

// TestRegistersByMany: many goroutines get their own answers.
func TestRegistersByMany(t *testing.T) {
	d := newDevice(t, "82574L", nil)
	r := regionOf(t, d, bus.BAR0)
	const mta = 0x5200
	done := make(chan error, 4)
	for g := range uint32(4) {
		go func() {
			for i := range uint32(300) {
				r.Write32(mta+4*g, g<<16|i)
				if got := r.Read32(mta + 4*g); got != g<<16|i {
					done <- fmt.Errorf("goroutine %d read %#x, wrote %#x", g, got, g<<16|i)
					return
				}
			}
			done <- nil
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func newEvents(t testing.TB, n int) (events []*bus.Event) {
	t.Helper()
	for range n {
		e, err := bus.NewEvent()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		events = append(events, e)
	}
	return events
}

func waitFor(t testing.TB, e *bus.Event) {
	t.Helper()
	if _, err := e.Wait(testContext(t)); err != nil {
		t.Fatal(err)
	}
}

func TestMSIX(t *testing.T) {
	d := newDevice(t, "82574L", nil)
	events := newEvents(t, 5)
	if err := d.SetInterrupts(bus.MSIX, events); err != nil {
		t.Fatal(err)
	}
	r := regionOf(t, d, bus.BAR0)
	for v := range uint32(5) {
		r.Write32(regIVAR, v|8) // receive queue 0
		r.Write32(regIMS, causeRxQ0)
		r.Write32(regICS, causeRxQ0)
		waitFor(t, events[v])
		r.Write32(regICR, causeRxQ0)
	}
	r.Read32(regICR)
	for v, e := range events {
		if n := e.Take(); n != 0 {
			t.Errorf("vector %d fired %d times more", v, n)
		}
	}
	table := regionOf(t, d, bus.BAR3)
	was := table.Read32(0)
	table.Write32(0, 0x1234)
	if got := table.Read32(0); got != was {
		t.Errorf("the table can be written: %#x", got)
	}
	if err := d.SetInterrupts(bus.MSIX, newEvents(t, 6)); !errors.Is(err, bus.ErrNoInterrupt) {
		t.Errorf("six vectors: %v", err)
	}
}

func TestMSI(t *testing.T) {
	d := newDevice(t, "82574L", nil)
	events := newEvents(t, 1)
	if err := d.SetInterrupts(bus.MSI, events); err != nil {
		t.Fatal(err)
	}
	r := regionOf(t, d, bus.BAR0)
	for range 3 {
		r.Write32(regIMS, causeLSC)
		r.Write32(regICS, causeLSC)
		waitFor(t, events[0])
		r.Read32(regICR)
	}
}

// TestINTx: a level interrupts once, and again if it is still there when it is
// unmasked.
func TestINTx(t *testing.T) {
	eachModel(t, func(t *testing.T, model string) {
		if model == "vmxnet3" {
			t.Skip("it interrupts only while it is active; see the driver's tests")
		}
		d := newDevice(t, model, nil)
		events := newEvents(t, 1)
		r := regionOf(t, d, bus.BAR0)
		r.Write32(regIMS, causeLSC)
		r.Write32(regICS, causeLSC)
		r.Read32(regSTATUS)
		if err := d.SetInterrupts(bus.INTx, events); err != nil {
			t.Fatal(err)
		}
		waitFor(t, events[0])
		if err := d.UnmaskInterrupt(0); err != nil {
			t.Fatal(err)
		}
		waitFor(t, events[0])
		r.Read32(regICR)
		if err := d.UnmaskInterrupt(0); err != nil {
			t.Fatal(err)
		}
		r.Read32(regSTATUS)
		if n := events[0].Take(); n != 0 {
			t.Errorf("%d interrupts of nothing", n)
		}
		r.Write32(regICS, causeLSC)
		waitFor(t, events[0])
	})
}

func newMemory(t testing.TB, size int) *bus.Memory {
	t.Helper()
	m, err := bus.NewMemory("test", size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// TestDMA sends a frame from mapped memory: a legacy descriptor of an 82540EM.
func TestDMA(t *testing.T) {
	ours, theirs := datagrams(t)
	d := newDevice(t, "82540EM", Datagram{File: theirs})
	m := newMemory(t, 3*4096)
	const iova = DMABase + 0x10000
	if err := d.MapDMA(m, iova); err != nil {
		t.Fatal(err)
	}
	frame := bytes.Repeat([]byte("nicd"), 20)
	copy(m.Bytes()[4096:], frame)
	send(t, d, m.Bytes(), iova, len(frame))
	got := make([]byte, 2000)
	n, err := unix.Read(ours, got)
	if err != nil || !bytes.Equal(got[:n], frame) {
		t.Fatalf("%v, sent %x", err, got[:max(n, 0)])
	}
	if m.Bytes()[12]&1 == 0 {
		t.Error("descriptor is not done")
	}
	if err := d.UnmapDMA(m); err != nil {
		t.Fatal(err)
	}
	m.Bytes()[12] = 0
	send(t, d, m.Bytes(), iova, len(frame))
	if m.Bytes()[12] != 0 {
		t.Error("memory is still accessed")
	}
}

// TestDatagramPaths is a network of two sockets in the file system.
func TestDatagramPaths(t *testing.T) {
	dir := t.TempDir()
	local, remote := filepath.Join(dir, "a,b"), filepath.Join(dir, "remote")
	peer, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: remote, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	d := newDevice(t, "82540EM", Datagram{Local: local, Remote: remote})
	m := newMemory(t, 3*4096)
	if err := d.MapDMA(m, DMABase); err != nil {
		t.Fatal(err)
	}
	frame := bytes.Repeat([]byte("nicd"), 30)
	copy(m.Bytes()[4096:], frame)
	send(t, d, m.Bytes(), DMABase, len(frame))
	if err := peer.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 2000)
	n, from, err := peer.ReadFromUnix(got)
	if err != nil || !bytes.Equal(got[:n], frame) || from.Name != local {
		t.Fatalf("%v from %v: %x", err, from, got[:n])
	}
}

// send sends the frame in the second page of mem.
func send(t testing.TB, d *Device, mem []byte, iova uint64, n int) {
	const (
		regTCTL, regTDBAL, regTDH = 0x400, 0x3800, 0x3810
		eopAndStatus              = 0x09 << 24
	)
	word := func(at int, v uint32) { bus.Word(mem, at).Store(v) }
	word(0, uint32(iova+4096))
	word(4, uint32((iova+4096)>>32))
	word(8, uint32(n)|eopAndStatus)
	word(12, 0)
	r := regionOf(t, d, bus.BAR0)
	r.Write32(regTCTL, 0)
	r.Write32(regTDBAL, uint32(iova))
	r.Write32(regTDBAL+4, uint32(iova>>32))
	r.Write32(regTDBAL+8, 128)
	r.Write32(regTDH, 0)
	r.Write32(regTDH+8, 0)
	r.Write32(regTCTL, 2)
	r.Write32(regTDH+8, 1)
	r.Read32(regSTATUS)
}

// datagrams is a connected pair of sockets.
func datagrams(t testing.TB) (ours int, theirs *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "wire")
	t.Cleanup(func() {
		unix.Close(fds[0])
		theirs.Close()
	})
	limit := unix.NsecToTimeval(patience.Nanoseconds())
	if err := unix.SetsockoptTimeval(fds[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		t.Fatal(err)
	}
	return fds[0], theirs
}

func TestMapErrors(t *testing.T) {
	d := newDevice(t, "82574L", nil)
	m := newMemory(t, 4096)
	for what, err := range map[string]error{
		"heap":         d.MapDMA(bus.HeapMemory(4096), DMABase),
		"low":          d.MapDMA(m, 1<<28),
		"half a page":  d.MapDMA(m, DMABase+2048),
		"part of page": d.MapDMA(newMemory(t, 5000), DMABase),
	} {
		if !errors.Is(err, bus.ErrUnsupported) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := d.UnmapDMA(m); err == nil {
		t.Error("unmapped what was not mapped")
	}
	// Nothing is left behind, be it that something could not be mapped.
	files := fmt.Sprintf("/proc/%d/fd", d.machine.process.cmd.Process.Pid)
	before := countFiles(t, files)
	for range maxMaps + 2 {
		if err := d.MapDMA(m, 1<<40); err == nil {
			t.Fatal("mapped beyond the machine")
		}
	}
	for range maxMaps + 2 {
		if err := d.MapDMA(m, DMABase); err != nil {
			t.Fatal(err)
		}
		if err := d.UnmapDMA(m); err != nil {
			t.Fatal(err)
		}
	}
	// QEMU closes some a little later.
	for deadline := time.Now().Add(patience); countFiles(t, files) > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("QEMU has %d files open, %d before", countFiles(t, files), before)
		}
	}
}

// TestReset: registers are as at power-on, which they are not after the device's
// own reset; what the bus set up still holds.
func TestReset(t *testing.T) {
	d := newDevice(t, "82574L", nil)
	m := newMemory(t, 8192)
	if err := d.MapDMA(m, DMABase); err != nil {
		t.Fatal(err)
	}
	events := newEvents(t, 5)
	if err := d.SetInterrupts(bus.MSIX, events); err != nil {
		t.Fatal(err)
	}
	r := regionOf(t, d, bus.BAR0)
	r.Write32(regVET, 0x1234)
	for range 3 {
		if err := d.Reset(testContext(t)); err != nil {
			t.Fatal(err)
		}
		if v := r.Read32(regVET); v == 0x1234 {
			t.Errorf("VET is still %#x", v)
		}
		if v, err := d.ReadConfig(4, 2); err != nil || v&7 != 7 {
			t.Errorf("command register is %#x, %v", v, err)
		}
		r.Write32(regIVAR, 3|8)
		r.Write32(regIMS, causeRxQ0)
		r.Write32(regICS, causeRxQ0)
		waitFor(t, events[3])
	}
	send(t, d, m.Bytes(), DMABase, 60)
	if m.Bytes()[12]&1 == 0 {
		t.Error("memory is not mapped any more")
	}
}

func TestLink(t *testing.T) {
	_, theirs := datagrams(t)
	d := newDevice(t, "82540EM", Datagram{File: theirs})
	const linkUp = 2
	r := regionOf(t, d, bus.BAR0)
	for _, up := range []bool{false, true, false} {
		if err := d.SetLink(testContext(t), up); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(patience); r.Read32(regSTATUS)&linkUp != 0 != up; {
			if time.Now().After(deadline) {
				t.Fatalf("link does not become %v", up)
			}
		}
	}
}

// TestDeath: who kills QEMU makes the device one that is gone.
func TestDeath(t *testing.T) {
	needQEMU(t)
	reported := make(chan error, 1)
	d, err := Start(testContext(t), Options{Name: "nic", Model: "82574L", Report: func(err error) { reported <- err }})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	m := newMemory(t, 4096)
	if err := d.MapDMA(m, DMABase); err != nil {
		t.Fatal(err)
	}
	r := regionOf(t, d, bus.BAR0)
	d.Kill()
	select {
	case err := <-reported:
		if !errors.Is(err, bus.ErrGone) || !strings.Contains(err.Error(), "qemu:nic") || !strings.Contains(err.Error(), "killed") {
			t.Errorf("reported %v", err)
		}
	case <-testContext(t).Done():
		t.Fatal("nothing reported")
	}
	if v := r.Read32(regSTATUS); v != bus.Gone {
		t.Errorf("register reads %#x", v)
	}
	r.Write32(regVET, 1)
	_, err = d.ReadConfig(0, 4)
	for what, err := range map[string]error{
		"ReadConfig":    err,
		"WriteConfig":   d.WriteConfig(4, 2, 7),
		"SetInterrupts": d.SetInterrupts(bus.MSIX, nil),
		"Unmask":        d.UnmaskInterrupt(0),
		"MapDMA":        d.MapDMA(m, DMABase),
		"UnmapDMA":      d.UnmapDMA(m),
		"Reset":         d.Reset(testContext(t)),
		"SetLink":       d.SetLink(testContext(t), true),
	} {
		if !errors.Is(err, bus.ErrGone) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestHung: a QEMU that does not answer is ended.
func TestHung(t *testing.T) {
	needQEMU(t)
	reported := make(chan error, 1)
	d, err := Start(testContext(t), Options{Name: "nic", Model: "82574L", Timeout: time.Second, Report: func(err error) { reported <- err }})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := unix.Kill(d.machine.process.cmd.Process.Pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if v := regionOf(t, d, bus.BAR0).Read32(regSTATUS); v != bus.Gone {
		t.Errorf("register reads %#x", v)
	}
	select {
	case err := <-reported:
		if !errors.Is(err, bus.ErrGone) || !strings.Contains(err.Error(), "no answer for 1s") {
			t.Errorf("reported %v", err)
		}
	case <-testContext(t).Done():
		t.Fatal("nothing reported")
	}
}

// childKey in the environment makes TestOrphan the process that is killed.
const childKey = "NICD_TEST_QEMU_CHILD"

// TestOrphan: QEMU ends with the process that started it, however that ended.
func TestOrphan(t *testing.T) {
	needQEMU(t)
	if os.Getenv(childKey) != "" {
		d, err := Start(testContext(t), Options{Name: "nic", Model: "82574L"})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("QEMU %d\n", d.machine.process.cmd.Process.Pid)
		<-testContext(t).Done()
		t.Fatal("not killed")
	}
	child := exec.Command(os.Args[0], "-test.run=^TestOrphan$")
	child.Env = append(os.Environ(), childKey+"=1")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscanf(out, "QEMU %d\n", &pid); err != nil {
		t.Fatal(err)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	for deadline := time.Now().Add(patience); alive(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("QEMU still runs")
		}
	}
}

// alive tells whether a process runs; one that nobody has waited for does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

func TestStartErrors(t *testing.T) {
	needQEMU(t)
	ctx := testContext(t)
	_, err := Start(ctx, Options{Name: "nic", Model: "82574l"})
	if err == nil || !strings.Contains(err.Error(), "82574L") {
		t.Errorf("unknown model: %v", err)
	}
	_, err = Start(ctx, Options{Name: "nic", Model: "82574L", Program: "/nonexistent/qemu"})
	if !errors.Is(err, ErrNoProgram) {
		t.Errorf("no program: %v", err)
	}
	_, err = Start(ctx, Options{Name: "nic", Model: "82574L", Netdev: Datagram{Local: "/nonexistent/a", Remote: "/nonexistent/b"}})
	if err == nil || !strings.Contains(err.Error(), "/nonexistent/a") {
		t.Errorf("network that can't be: %v", err)
	}
	_, err = Start(ctx, Options{Name: "nic", Model: "82574L", Program: "true"})
	if err == nil || !strings.Contains(err.Error(), "QEMU ended") {
		t.Errorf("program that is no QEMU: %v", err)
	}
}

// TestNoLeak: nothing of a closed device is left.
func TestNoLeak(t *testing.T) {
	needQEMU(t)
	round := func(model string) {
		t.Helper()
		d, err := Start(testContext(t), Options{Name: "nic", Model: model, Netdev: User{Restrict: true}})
		if err != nil {
			t.Fatal(err)
		}
		m, err := bus.NewMemory("test", 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.MapDMA(m, DMABase); err != nil {
			t.Error(err)
		}
		if err := d.SetInterrupts(bus.MSIX, nil); err != nil {
			t.Error(err)
		}
		d.Close()
		d.Close()
		m.Close()
		if err := unix.Kill(d.machine.process.cmd.Process.Pid, 0); err == nil {
			t.Error("QEMU still runs")
		}
	}
	round("vmxnet3")
	files, goroutines := countFiles(t, "/proc/self/fd"), runtime.NumGoroutine()
	for range 5 {
		round("vmxnet3")
		round("82574L")
	}
	if n := countFiles(t, "/proc/self/fd"); n > files {
		t.Errorf("%d files are open, %d before", n, files)
	}
	for deadline := time.Now().Add(patience); runtime.NumGoroutine() > goroutines; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), goroutines)
		}
	}
}

func countFiles(t testing.TB, dir string) int {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// BenchmarkRegion is what a register access costs.
func BenchmarkRegion(b *testing.B) {
	d := newDevice(b, "82574L", nil)
	r := regionOf(b, d, bus.BAR0)
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			r.Read32(regSTATUS)
		}
	})
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			r.Write32(regVET, uint32(i))
		}
		r.Read32(regSTATUS)
	})
}
