package vfiouser

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"nicd/bus"
)

// connect serves dev and returns a client of it. end ends the server and
// returns what ServeConn did.
func connect(t testing.TB, dev bus.Device, o ServeOptions) (c *Client, end func() error) {
	t.Helper()
	server, file, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- ServeConn(ctx, server, dev, o) }()
	end = func() error {
		cancel()
		err := <-served
		served <- err
		return err
	}
	t.Cleanup(func() { end() })
	c, err = Open(context.Background(), file, DialOptions{Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, end
}

func newEvents(t testing.TB, n int) []*bus.Event {
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

func bar(t testing.TB, d bus.Device, index int) bus.Region {
	t.Helper()
	r, err := d.Region(index)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// soon is a context that ends a test that hangs.
func soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestClientSeesTheDevice(t *testing.T) {
	c, _ := connect(t, newFakeDevice(t), ServeOptions{})
	want := bus.Info{Address: "test", Vendor: fakeVendor, Device: fakeID, Revision: 3,
		Vectors: [3]int{1, fakeMSI, fakeMSIX}, CanReset: true, DMABase: 0x100000000}
	if got := c.Info(); got != want {
		t.Errorf("Info = %+v, want %+v", got, want)
	}
	r := bar(t, c, 1)
	if r.Size() != 0x1000 || bar(t, c, 1) != r {
		t.Errorf("region 1 has %#x bytes, or is another each time", r.Size())
	}
	for _, index := range []int{-1, 2, bus.ROM, bus.ConfigSpace, bus.NumRegions} {
		if _, err := c.Region(index); !errors.Is(err, bus.ErrNoRegion) {
			t.Errorf("Region(%d) = %v", index, err)
		}
	}
}

func TestRegisters(t *testing.T) {
	d := newFakeDevice(t)
	c, _ := connect(t, d, ServeOptions{})
	r := bar(t, c, 1)
	for i := range uint32(100) {
		r.Write32(4*i, i+7)
	}
	if got := r.Read32(4 * 99); got != 106 {
		t.Errorf("a read after posted writes gave %d", got)
	}
	if n := len(d.bars[1].takeWrites()); n != 100 {
		t.Errorf("%d of 100 writes arrived", n)
	}
	for _, offset := range []uint32{0x1000, 2, 0xfffffffc} {
		r.Write32(offset, 1)
		if got := r.Read32(offset); got != bus.Gone {
			t.Errorf("register %#x = %#x", offset, got)
		}
	}
	if w := d.bars[1].takeWrites(); len(w) != 0 {
		t.Errorf("writes outside arrived: %+v", w)
	}
}

func TestConfigSpace(t *testing.T) {
	c, _ := connect(t, newFakeDevice(t), ServeOptions{})
	for _, size := range []int{1, 2, 4} {
		if err := c.WriteConfig(0x40, size, 0x11223344); err != nil {
			t.Fatal(err)
		}
		want := uint32(0x11223344) & allOnes(size)
		if got, err := c.ReadConfig(0x40, size); got != want || err != nil {
			t.Errorf("%d bytes: %#x, %v; want %#x", size, got, err, want)
		}
	}
	if got, err := c.ReadConfig(0x100, 2); got != 0xffff || err != nil {
		t.Errorf("beyond the end: %#x, %v", got, err)
	}
	for _, bad := range [][2]int{{1, 2}, {0, 3}, {2, 4}, {-4, 4}, {0, 8}} {
		if _, err := c.ReadConfig(bad[0], bad[1]); err == nil {
			t.Errorf("ReadConfig(%d, %d) is fine", bad[0], bad[1])
		}
	}
}

func TestInterrupts(t *testing.T) {
	d := newFakeDevice(t)
	c, end := connect(t, d, ServeOptions{})
	events := newEvents(t, fakeMSIX)
	if err := c.SetInterrupts(bus.MSIX, events); err != nil {
		t.Fatal(err)
	}
	for v := range events {
		d.fire(v)
		if n, err := events[v].Wait(soon(t)); n != 1 || err != nil {
			t.Fatalf("vector %d: %d, %v", v, n, err)
		}
	}
	if err := c.SetInterrupts(bus.INTx, events[:1]); err != nil {
		t.Fatal(err)
	}
	if err := c.UnmaskInterrupt(0); err != nil {
		t.Fatal(err)
	}
	if err := c.SetInterrupts(bus.MSIX, newEvents(t, fakeMSIX+1)); !errors.Is(err, bus.ErrNoInterrupt) {
		t.Errorf("too many vectors: %v", err)
	}
	if err := c.SetInterrupts(bus.INTx, nil); err != nil {
		t.Fatal(err)
	}
	want := []string{"interrupts MSI-X 5", "interrupts MSI-X 0", "interrupts INTx 1", "unmask 0", "interrupts INTx 0"}
	if got := d.takeLog(); !slices.Equal(got, want) {
		t.Errorf("the device saw %q, want %q", got, want)
	}
	end()
}

// A client that uses fewer vectors than there are: the others are latched, and
// delivered when they are assigned.
func TestInterruptBeforeItsEventIsAssigned(t *testing.T) {
	d := newFakeDevice(t)
	c, _ := connect(t, d, ServeOptions{})
	events := newEvents(t, fakeMSIX)
	if err := c.SetInterrupts(bus.MSIX, events[:2]); err != nil {
		t.Fatal(err)
	}
	d.fire(4)
	d.fire(1)
	if err := c.SetInterrupts(bus.MSIX, events); err != nil {
		t.Fatal(err)
	}
	for _, v := range []int{4, 1} {
		if n, err := events[v].Wait(soon(t)); n != 1 || err != nil {
			t.Errorf("vector %d: %d, %v", v, n, err)
		}
	}
}

func TestDMA(t *testing.T) {
	d := newFakeDevice(t)
	c, _ := connect(t, d, ServeOptions{RequireSealed: true})
	mem, err := bus.NewMemory("arena", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	if err := c.MapDMA(mem, 0x40000000); err != nil {
		t.Fatal(err)
	}
	copy(mem.Bytes()[5000:], "from the client")
	theirs := d.memoryAt(0x40000000)
	if theirs == nil || string(theirs.Bytes()[5000:5015]) != "from the client" {
		t.Fatal("the device does not see the client's memory")
	}
	if err := c.MapDMA(mem, 0x50000000); err == nil {
		t.Error("mapped twice")
	}
	if err := c.UnmapDMA(mem); err != nil {
		t.Fatal(err)
	}
	if d.memoryAt(0x40000000) != nil {
		t.Error("the device has it still")
	}
	if err := c.UnmapDMA(mem); err == nil {
		t.Error("unmapped twice")
	}
	if err := c.MapDMA(bus.HeapMemory(4096), 0); !errors.Is(err, bus.ErrUnsupported) {
		t.Errorf("heap memory: %v", err)
	}
}

// A device that was pulled out may still be looking at memory while its client
// takes that back: the mapping stays as long as the device refers to it.
func TestDMAOfADeviceThatIsGone(t *testing.T) {
	d := newFakeDevice(t)
	c, _ := connect(t, d, ServeOptions{})
	mem, err := bus.NewMemory("arena", 8192)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	if err := c.MapDMA(mem, 0); err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	d.gone = true
	d.mu.Unlock()
	if err := c.UnmapDMA(mem); err != nil {
		t.Errorf("UnmapDMA = %v", err)
	}
	d.memoryAt(0).Bytes()[5000] = 1 // a fault if it is unmapped
}

func TestUnsealedMemoryIsRefused(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "memory"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(8192); err != nil {
		t.Fatal(err)
	}
	mem, err := bus.OpenMemory(f)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	strict, _ := connect(t, newFakeDevice(t), ServeOptions{RequireSealed: true})
	var refused *RequestError
	if err := strict.MapDMA(mem, 0); !errors.As(err, &refused) || refused.Command != "DMA_MAP" {
		t.Errorf("strict server: %v", err)
	}
	lenient, _ := connect(t, newFakeDevice(t), ServeOptions{})
	if err := lenient.MapDMA(mem, 0); err != nil {
		t.Errorf("lenient server: %v", err)
	}
}

func TestReset(t *testing.T) {
	d := newFakeDevice(t)
	c, _ := connect(t, d, ServeOptions{})
	if err := c.Reset(soon(t)); err != nil {
		t.Fatal(err)
	}
	if got := d.takeLog(); !slices.Equal(got, []string{"reset"}) {
		t.Errorf("the device saw %q", got)
	}
}

// Whoever handles an interrupt unmasks it while others use the device.
func TestUnmaskMeanwhile(t *testing.T) {
	c, _ := connect(t, newFakeDevice(t), ServeOptions{})
	if err := c.SetInterrupts(bus.INTx, newEvents(t, 1)); err != nil {
		t.Fatal(err)
	}
	const times = 200
	var unmasking sync.WaitGroup
	for range 2 {
		unmasking.Go(func() {
			for range times {
				if err := c.UnmaskInterrupt(0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range times {
		if _, err := c.ReadConfig(0, 4); err != nil {
			t.Error(err)
		}
		if err := c.Reset(soon(t)); err != nil {
			t.Error(err)
		}
	}
	unmasking.Wait()
}

// When a client leaves, however it leaves, the device does no more DMA and
// signals nobody, and the next client finds it as after power-on. The reset comes
// between: a device that still runs would find its memory gone.
func TestClientLeaves(t *testing.T) {
	d := newFakeDevice(t)
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error)
	go func() { served <- Serve(ctx, l, d, ServeOptions{}) }()
	mem, err := bus.NewMemory("arena", 8192)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	for range 3 {
		c, err := Dial(soon(t), path, DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.MapDMA(mem, 0x1000); err != nil {
			t.Fatal(err)
		}
		if err := c.SetInterrupts(bus.MSIX, newEvents(t, 2)); err != nil {
			t.Fatal(err)
		}
		c.fail(errors.New("killed")) // no goodbye
		c.Close()
	}
	c, err := Dial(soon(t), path, DialOptions{}) // waits for the one before to have ended
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	cancel()
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Errorf("Serve = %v", err)
	}
	one := []string{"map 0x1000+0x2000", "interrupts MSI-X 5", "interrupts MSI-X 0", "renew", "reset", "unmap 0x1000"}
	if got := d.takeLog(); !slices.Equal(got, slices.Concat(one, one, one, []string{"renew", "reset"})) {
		t.Errorf("the device saw %q", got)
	}
}

func TestServerDies(t *testing.T) {
	c, end := connect(t, newFakeDevice(t), ServeOptions{})
	r := bar(t, c, 0)
	if c.Err() != nil {
		t.Fatal(c.Err())
	}
	end()
	select {
	case <-c.Lost():
	case <-soon(t).Done():
		t.Fatal("the client does not notice")
	}
	if got := r.Read32(0); got != bus.Gone {
		t.Errorf("a register reads %#x", got)
	}
	r.Write32(0, 1)
	r.Write32(bellOffset, 1)
	_, regionErr := c.Region(0)
	_, configErr := c.ReadConfig(0, 4)
	for what, err := range map[string]error{
		"Err": c.Err(), "Region": regionErr, "ReadConfig": configErr,
		"WriteConfig":   c.WriteConfig(4, 2, 0),
		"SetInterrupts": c.SetInterrupts(bus.MSIX, newEvents(t, 1)),
		"Reset":         c.Reset(soon(t)),
	} {
		if !errors.Is(err, bus.ErrGone) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestServerEndsWithContext(t *testing.T) {
	_, end := connect(t, newFakeDevice(t), ServeOptions{})
	if err := end(); !errors.Is(err, context.Canceled) {
		t.Errorf("ServeConn = %v", err)
	}
}

// A server that does not answer is gone after the timeout; the attempt to reach
// one ends with its context.
func TestSilentServer(t *testing.T) {
	for _, timeout := range []time.Duration{20 * time.Millisecond, time.Hour} {
		server, file, err := Pair()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		_, err = Open(ctx, file, DialOptions{Timeout: timeout})
		if !errors.Is(err, bus.ErrGone) {
			t.Errorf("timeout %v: Open = %v", timeout, err)
		}
		cancel()
		server.Close()
	}
}

func countFDs(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestNoDescriptorIsLeft(t *testing.T) {
	mem, err := bus.NewMemory("arena", 8192)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	events := newEvents(t, fakeMSIX)
	d := newFakeDevice(t)
	before := countFDs(t)
	for range 20 {
		c, end := connect(t, d, ServeOptions{})
		if err := c.MapDMA(mem, 0); err != nil {
			t.Fatal(err)
		}
		for n := range fakeMSIX {
			if err := c.SetInterrupts(bus.MSIX, events[:n+1]); err != nil {
				t.Fatal(err)
			}
		}
		bar(t, c, 0).Write32(bellOffset, 1)
		c.Close()
		end()
	}
	if after := countFDs(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestNarrowRegisters(t *testing.T) {
	d := newFakeDevice(t)
	c, _ := connect(t, d, ServeOptions{})
	r := bar(t, c, 1)
	r.Write32(8, 0x44332211)
	if a, b, both := r.Read(9, 1), r.Read(10, 2), r.Read(8, 4); a != 0x22 || b != 0x4433 || both != 0x44332211 {
		t.Errorf("read %#x, %#x, %#x", a, b, both)
	}
	if got := r.Read(9, 2); got != 0xffff {
		t.Errorf("two bytes at an odd offset are %#x", got)
	}
	r.Write(10, 2, 0xabcd)
	r.Write(13, 1, 0xef)
	r.Write(15, 2, 0) // no register
	r.Write(16, 4, 7)
	if got := r.Read32(16); got != 7 {
		t.Errorf("wrote 7 and read %d", got)
	}
	if want := []narrowWrite{{10, 2, 0xabcd}, {13, 1, 0xef}}; !slices.Equal(d.bars[1].narrow, want) {
		t.Errorf("the device saw %+v, want %+v", d.bars[1].narrow, want)
	}
}
