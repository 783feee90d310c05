package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nicd/bus"
)

// plain is a model with one register and one doorbell that counts rings.
type plain struct {
	host *Host
	port *Port
	reg  uint32
	bell uint32
	rung chan uint32
}

func (m *plain) Identity() Identity {
	return Identity{
		Vendor: 0x1234, Device: 0x5678, SubVendor: 1, SubDevice: 2, Revision: 3, Class: ClassEthernet,
		BARs:    [6]BAR{{Size: 4096}, {Size: 64, IO: true}, {Size: 8192}},
		MSI:     MSICapability{Offset: 0x84, Vectors: 1},
		MSIX:    MSIXCapability{Offset: 0x9c, Vectors: 25, TableBAR: 2, PBABAR: 2, PBAOffset: 0x1000},
		Express: 0x48,
	}
}
func (m *plain) Connect(h *Host)                      { m.host = h }
func (m *plain) ReadRegister(int, uint32) uint32      { return m.reg }
func (m *plain) WriteRegister(_ int, _, value uint32) { m.reg = value }
func (m *plain) Reset()                               { m.reg = 0 }
func (m *plain) Plug(p *Port)                         { m.port = p }
func (m *plain) Wants() Wants                         { return Wants{} }
func (m *plain) Receive(f []Frame, _ bool) int        { return len(f) }
func (m *plain) Resume()                              {}
func (m *plain) SetLink(bool)                         {}
func (m *plain) Doorbells() []bus.DoorbellRange {
	return []bus.DoorbellRange{{Region: 0, Offset: 0x600, Stride: 8, First: 0, Count: 8}}
}
func (m *plain) Work(int) bool {
	if v := m.host.Doorbell(2); v != m.bell {
		m.bell = v
		m.rung <- v
		return true
	}
	return false
}

func newPlain(t *testing.T, opt Options) (*plain, *Device) {
	t.Helper()
	m := &plain{rung: make(chan uint32, 16)}
	d, err := NewDevice(m, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return m, d
}

func config(t *testing.T, d *Device, offset, size int) uint32 {
	t.Helper()
	v, err := d.ReadConfig(offset, size)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestConfigSpace(t *testing.T) {
	_, d := newPlain(t, Options{})
	if v := config(t, d, 0, 4); v != 0x56781234 {
		t.Errorf("ids %#x", v)
	}
	if v := config(t, d, 8, 4); v != 0x02000003 {
		t.Errorf("class and revision %#x", v)
	}
	for bar, want := range []uint32{0xfffff000, 0xffffffc1, 0xffffe000, 0} {
		if err := d.WriteConfig(0x10+4*bar, 4, ^uint32(0)); err != nil {
			t.Fatal(err)
		}
		if v := config(t, d, 0x10+4*bar, 4); v != want {
			t.Errorf("BAR%d sizes to %#x, want %#x", bar, v, want)
		}
	}
	if d.WriteConfig(0, 4, 0) != nil || config(t, d, 0, 2) != 0x1234 {
		t.Error("vendor id can be written")
	}
	want := map[uint32]int{0x10: 0x48, 0x05: 0x84, 0x11: 0x9c}
	for at := config(t, d, 0x34, 1); at != 0; at = config(t, d, int(at)+1, 1) {
		id := config(t, d, int(at), 1)
		if want[id] != int(at) {
			t.Errorf("capability %#x at %#x", id, at)
		}
		delete(want, id)
	}
	if len(want) != 0 {
		t.Errorf("capabilities missing: %v", want)
	}
	if v := config(t, d, 0x9c+2, 2); v != 24 {
		t.Errorf("MSI-X table size field %d", v)
	}
	if v := config(t, d, 0x9c+8, 4); v != 0x1002 {
		t.Errorf("PBA locator %#x", v)
	}
	if v := config(t, d, 256, 4); v != ^uint32(0) {
		t.Errorf("outside reads %#x", v)
	}
}

func TestDMAIsCheckedAndGated(t *testing.T) {
	var last Fault
	m, d := newPlain(t, Options{OnFault: func(f Fault) { last = f }})
	mem := bus.HeapMemory(8192)
	if err := d.MapDMA(mem, 0x10000); err != nil {
		t.Fatal(err)
	}
	access := func(addr uint64, n int) []byte {
		m.host.Tx.Lock()
		defer m.host.Tx.Unlock()
		return m.host.Tx.Bytes(addr, n)
	}
	if access(0x10000, 4) != nil || last.Mastering {
		t.Error("DMA with bus mastering off")
	}
	if err := d.WriteConfig(4, 2, 6); err != nil {
		t.Fatal(err)
	}
	if b := access(0x10010, 16); &b[0] != &mem.Bytes()[16] || cap(b) != 16 {
		t.Error("not the memory itself")
	}
	for _, c := range []struct {
		addr uint64
		n    int
	}{{0xffff, 4}, {0x11ffd, 4}, {0x12000, 1}, {0, 1}, {^uint64(0), 2}, {0x10000, -1}, {0x10000, 8193}} {
		before := d.Faults()
		if access(c.addr, c.n) != nil || d.Faults() != before+1 || last.Addr != c.addr {
			t.Errorf("access of %d at %#x was let through or not reported", c.n, c.addr)
		}
	}
	if d.MapDMA(bus.HeapMemory(4096), 0x11000) == nil {
		t.Error("overlapping map")
	}
	if err := d.UnmapDMA(mem); err != nil {
		t.Fatal(err)
	}
	if access(0x10010, 16) != nil {
		t.Error("DMA after unmap")
	}
	if d.UnmapDMA(mem) == nil {
		t.Error("unmapped twice")
	}
}

func TestDoorbellWakesSleepingWorker(t *testing.T) {
	m, d := newPlain(t, Options{Spin: -1, HeapDoorbells: true})
	r, err := d.Region(0)
	if err != nil {
		t.Fatal(err)
	}
	bells, _ := d.Doorbells()
	for i := uint32(1); i < 100; i++ {
		if i%2 == 0 {
			r.Write32(0x610, i)
		} else {
			bells.Ring(2, i)
		}
		select {
		case v := <-m.rung:
			if v != i || r.Read32(0x610) != i {
				t.Fatalf("rang %d, device saw %d, read %d", i, v, r.Read32(0x610))
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the worker slept on")
		}
	}
	r.Write32(0x0, 77)
	if m.reg != 77 || r.Read32(0) != 77 {
		t.Error("a register that is no doorbell did not reach the model")
	}
}

func fired(t *testing.T, e *bus.Event) bool {
	t.Helper()
	e.Signal() // so that Wait never sleeps; the count tells
	n, err := e.Wait(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return n > 1
}

func newEvents(t *testing.T, n int) []*bus.Event {
	t.Helper()
	events := make([]*bus.Event, n)
	for i := range events {
		e, err := bus.NewEvent()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		events[i] = e
	}
	return events
}

func TestMessagesStayPendingUntilTheyCanBeSignalled(t *testing.T) {
	m, d := newPlain(t, Options{})
	table, _ := d.Region(2)
	m.host.Raise(3)
	if table.Read32(0x1000) != 1<<3 {
		t.Errorf("PBA %#x", table.Read32(0x1000))
	}
	ev := newEvents(t, 5)
	if err := d.SetInterrupts(bus.MSIX, ev); err != nil {
		t.Fatal(err)
	}
	if !fired(t, ev[3]) || fired(t, ev[2]) || table.Read32(0x1000) != 0 {
		t.Error("what was pending was not delivered when the vectors were enabled")
	}
	table.Write32(4*16+12, 1)
	m.host.Raise(4)
	if fired(t, ev[4]) || table.Read32(0x1000) != 1<<4 {
		t.Error("a masked vector fired")
	}
	table.Write32(4*16+12, 0)
	if !fired(t, ev[4]) {
		t.Error("unmasking did not fire what was pending")
	}
	if err := d.SetInterrupts(bus.MSI, newEvents(t, 2)); !errors.Is(err, bus.ErrNoInterrupt) {
		t.Errorf("two MSI vectors: %v", err)
	}
	if err := d.SetInterrupts(bus.MSI, ev[:1]); err != nil {
		t.Fatal(err)
	}
	m.host.Raise(4)
	if !fired(t, ev[0]) {
		t.Error("MSI did not fold to vector 0")
	}
}

func TestLineIsMaskedByFiring(t *testing.T) {
	m, d := newPlain(t, Options{})
	ev := newEvents(t, 1)
	if err := d.SetInterrupts(bus.INTx, ev); err != nil {
		t.Fatal(err)
	}
	m.host.SetLine(true)
	if !fired(t, ev[0]) {
		t.Fatal("did not fire")
	}
	if config(t, d, 6, 2)&8 == 0 {
		t.Error("status does not show the interrupt")
	}
	m.host.SetLine(false)
	m.host.SetLine(true)
	if fired(t, ev[0]) {
		t.Error("fired while masked")
	}
	if d.UnmaskInterrupt(0); !fired(t, ev[0]) {
		t.Error("unmask with the line asserted did not fire")
	}
	m.host.SetLine(false)
	if d.UnmaskInterrupt(0); fired(t, ev[0]) {
		t.Error("unmask with the line deasserted fired")
	}
	d.WriteConfig(4, 2, 1<<10)
	if m.host.SetLine(true); fired(t, ev[0]) {
		t.Error("fired though disabled in the command register")
	}
}

func TestUnplug(t *testing.T) {
	m, d := newPlain(t, Options{})
	mem := bus.HeapMemory(4096)
	d.MapDMA(mem, 0)
	d.WriteConfig(4, 2, 6)
	r, _ := d.Region(0)
	d.Unplug()
	if r.Read32(0) != bus.Gone || r.Read32(0x600) != bus.Gone {
		t.Error("registers still answer")
	}
	if err := d.MapDMA(mem, 0); !errors.Is(err, bus.ErrGone) {
		t.Errorf("MapDMA: %v", err)
	}
	if _, err := d.ReadConfig(0, 4); !errors.Is(err, bus.ErrGone) {
		t.Errorf("ReadConfig: %v", err)
	}
	m.host.Rx.Lock()
	defer m.host.Rx.Unlock()
	if m.host.Rx.Bytes(0, 4) != nil {
		t.Error("DMA after removal")
	}
}

// TestRenewedDoorbells: the next driver's page wakes the device, asleep or not, and the last
// one's does not reach it. So it goes on until the device is gone.
func TestRenewedDoorbells(t *testing.T) {
	for _, spin := range []time.Duration{-1, time.Hour} {
		m, d := newPlain(t, Options{Spin: spin})
		var last *bus.Memory
		for v := uint32(1); v <= 5; v++ {
			bells, _ := d.Doorbells()
			bells.Ring(2, v)
			if got := <-m.rung; got != v {
				t.Fatalf("rung %d, want %d", got, v)
			}
			if last != nil {
				bus.Word(last.Bytes(), bus.DoorbellOffset+8).Store(99)
				last.Close()
			}
			file, err := bells.Memory().File().SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			file.Control(func(fd uintptr) {
				var n int
				if n, err = unix.Dup(int(fd)); err == nil {
					last, err = bus.OpenMemory(os.NewFile(uintptr(n), "kept"))
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := d.RenewDoorbells(); err != nil {
				t.Fatal(err)
			}
			if got := <-m.rung; got != 0 {
				t.Errorf("a new page says %d", got)
			}
			if got := bus.Word(last.Bytes(), bus.DoorbellOffset+8).Load(); got != v {
				t.Errorf("the last page holds %d, want %d", got, v)
			}
		}
		last.Close()
		d.Unplug()
		if err := d.RenewDoorbells(); !errors.Is(err, bus.ErrGone) {
			t.Errorf("after removal: %v", err)
		}
	}
}

func TestWakeAt(t *testing.T) {
	clock := &ManualClock{}
	_, d := newPlain(t, Options{Clock: clock, Spin: -1, HeapDoorbells: true, Passive: true})
	d.host.WakeAt(5 * time.Millisecond)
	d.host.WakeAt(9 * time.Millisecond) // later: has no effect
	d.host.bells.Load().Arm()
	clock.Advance(4 * time.Millisecond)
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if d.host.bells.Load().Sleep(ctx) == nil {
		t.Fatal("woken early")
	}
	clock.Advance(time.Millisecond)
	if err := d.host.bells.Load().Sleep(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestTesterToTester(t *testing.T) {
	w := NewWire(WireOptions{})
	defer w.Close()
	a, b := NewTester(w, Wants{}), NewTester(w, Wants{})
	b.Limit = 2
	done := make(chan error)
	go func() {
		var fs []Frame
		for i := range 10 {
			f := make([]byte, 60)
			binary.BigEndian.PutUint16(f[20:], uint16(i))
			fs = append(fs, FrameOf(f))
		}
		done <- a.Send(context.Background(), fs...)
	}()
	for i := range 10 {
		r, err := b.Next(context.Background())
		if err != nil || !bytes.Equal(r.Bytes[20:22], []byte{0, byte(i)}) {
			t.Fatalf("frame %d: %v %x", i, err, r.Bytes)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if s := a.Port().Stats(); s.Frames != 10 || s.Paused == 0 {
		t.Errorf("stats %+v", s)
	}
}

// narrow is a model of bytes.
type narrow struct {
	plain
	bytes [16]byte
}

func (m *narrow) ReadNarrow(_ int, offset uint32, size int) (v uint32) {
	for i := range size {
		v |= uint32(m.bytes[int(offset)+i]) << (8 * i)
	}
	return v
}

func (m *narrow) WriteNarrow(_ int, offset uint32, size int, value uint32) {
	for i := range size {
		m.bytes[int(offset)+i] = byte(value >> (8 * i))
	}
}

func (m *narrow) Identity() Identity {
	id := m.plain.Identity()
	id.VendorCapabilities = []VendorCapability{{Offset: 0xd0, Bytes: []byte{1, 2, 3}}, {Offset: 0xc0, Bytes: []byte{4}}}
	return id
}

func TestNarrowRegisters(t *testing.T) {
	m := &narrow{}
	d, err := NewDevice(m, Options{HeapDoorbells: true})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r, err := d.Region(bus.BAR0)
	if err != nil {
		t.Fatal(err)
	}
	r.Write(5, 1, 0xab)
	r.Write(6, 2, 0xcdef)
	r.Write(7, 2, 0x1111) // no register
	if got := m.bytes[4:8]; string(got) != "\x00\xab\xef\xcd" {
		t.Errorf("bytes are % x", got)
	}
	if a, b := r.Read(5, 1), r.Read(6, 2); a != 0xab || b != 0xcdef {
		t.Errorf("read %#x, %#x", a, b)
	}
	if got := r.Read(5, 2); got != 0xffff {
		t.Errorf("read %#x at an odd offset", got)
	}
	at, err := bus.Capabilities(d, 0x09)
	if err != nil || !slices.Equal(at, []int{0xc0, 0xd0}) {
		t.Fatalf("vendor capabilities at %v, %v", at, err)
	}
	if got := config(t, d, 0xd0, 4); got>>16 != 0x0106 {
		t.Errorf("capability begins with %#x", got)
	}
	d.Unplug()
	if got := r.Read(6, 2); got != 0xffff {
		t.Errorf("read %#x of a device that is gone", got)
	}
}

// A model of 32-bit registers is read in parts and not written in parts.
func TestNarrowAccessToWideRegisters(t *testing.T) {
	m, d := newPlain(t, Options{HeapDoorbells: true})
	r, err := d.Region(bus.BAR0)
	if err != nil {
		t.Fatal(err)
	}
	m.reg = 0x44332211
	if a, b := r.Read(5, 1), r.Read(6, 2); a != 0x22 || b != 0x4433 {
		t.Errorf("read %#x, %#x", a, b)
	}
	r.Write(4, 2, 0)
	if m.reg != 0x44332211 {
		t.Errorf("a write of half a register made %#x", m.reg)
	}
	bells := m.Doorbells()[0]
	r.Write(bells.Offset, 2, 9)
	if got := d.host.Doorbell(bells.First); got != 9 {
		t.Errorf("a narrow write of a doorbell made it %d", got)
	}
}
