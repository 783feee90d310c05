package vfiouser

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nicd/bus"
)

// These tests talk to programs that others wrote: libvfio-user's samples. The
// environment names its build directory (meson setup build
// -Dshadow-ioeventfd=true && ninja -C build). Where samples/server exits because
// its BAR of three pages is no power of two, it needs
// the fix of libvfio-user/pull/872 or a BAR of four.
const libvfioUserVar = "NICD_TEST_LIBVFIO_USER"

func sample(t *testing.T, name string) string {
	t.Helper()
	build := os.Getenv(libvfioUserVar)
	if build == "" {
		t.Skipf("%s names no build of libvfio-user", libvfioUserVar)
	}
	path := filepath.Join(build, "samples", name)
	if _, err := os.Stat(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// startServer runs a sample server and returns a client of it.
func startServer(t *testing.T, name string, args ...string) *Client {
	t.Helper()
	path := sample(t, name)
	socket := filepath.Join(t.TempDir(), "s")
	ctx := soon(t)
	var output bytes.Buffer
	cmd := exec.CommandContext(ctx, path, append(args, socket)...)
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s said:\n%s", name, output.String())
		}
	})
	for {
		c, err := Dial(ctx, socket, DialOptions{})
		if err == nil {
			t.Cleanup(func() { c.Close() })
			return c
		}
		if ctx.Err() != nil || !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatal(err)
		}
	}
}

func TestClientOfLibvfioUserGPIO(t *testing.T) {
	c := startServer(t, "gpio-pci-idio-16", "-v")
	if i := c.Info(); i.Vendor != 0x494f || i.Device != 0x0dc8 || i.Vectors != [3]int{1, 0, 0} {
		t.Errorf("Info = %+v", i)
	}
	r := bar(t, c, bus.BAR2)
	if r.Size() != 256 {
		t.Errorf("BAR2 of %d bytes", r.Size())
	}
	for range 500 {
		r.Write32(0, 0xff)
	}
	r.Read32(0)
	if err := c.SetInterrupts(bus.INTx, newEvents(t, 1)); err != nil {
		t.Error(err)
	}
	if err := c.SetInterrupts(bus.INTx, nil); err != nil {
		t.Error(err)
	}
	if v, err := c.ReadConfig(0, 2); v != 0x494f || err != nil {
		t.Errorf("vendor %#x, %v", v, err)
	}
	if err := c.Err(); err != nil {
		t.Error(err)
	}
}

// The sample server has a BAR of which two pages are mapped, a timer that raises
// INTx, and then reads and writes client memory: of the first range by message,
// of the second directly.
func TestClientOfLibvfioUserServer(t *testing.T) {
	c := startServer(t, "server", "-v")
	if i := c.Info(); i.Vendor != 0xdead || i.Device != 0xbeef {
		t.Errorf("Info = %+v", i)
	}
	r := bar(t, c, bus.BAR1)
	for _, offset := range []uint32{0xffc, 0x2000, 0} {
		r.Write32(offset, offset^0x5a5a5a5a)
		if got := r.Read32(offset); got != offset^0x5a5a5a5a {
			t.Errorf("register %#x reads %#x", offset, got)
		}
	}
	// By message the sample reads the BAR's start, whatever the offset.
	if got := r.Read32(0x1000); got != 0x5a5a5a5a {
		t.Errorf("register 0x1000, which is not mapped, reads %#x", got)
	}
	if n := len(c.pages); n != 2 {
		t.Errorf("%d areas mapped, want 2", n)
	}
	if err := c.Reset(soon(t)); err != nil {
		t.Error(err)
	}
	events := newEvents(t, 1)
	if err := c.SetInterrupts(bus.INTx, events); err != nil {
		t.Fatal(err)
	}
	var ranges [2]*bus.Memory
	for i := range ranges {
		m, err := bus.NewMemory("range", 4096)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if err := c.MapDMA(m, uint64(i+1)<<20); err != nil {
			t.Fatal(err)
		}
		ranges[i] = m
	}
	// BAR0 is a time_t, written as a whole: when the timer fires.
	alarm := func(b []byte) []byte {
		b = regionAccess{0, 0, 8}.append(b)
		return host.AppendUint64(b, uint64(time.Now().Unix()+1))
	}
	if err := c.do(cmdRegionWrite, alarm, nil, regionAccessSize); err != nil {
		t.Fatal(err)
	}
	ctx := soon(t)
	if n, err := events[0].Wait(ctx); n != 1 || err != nil {
		t.Fatalf("the timer: %d, %v", n, err)
	}
	want := bytes.Join([][]byte{bytes.Repeat([]byte("A"), 1024), bytes.Repeat([]byte("B"), 1024),
		bytes.Repeat([]byte("C"), 1024), bytes.Repeat([]byte("D"), 1024)}, nil)
	for i, m := range ranges {
		for bus.Word(m.Bytes(), 4092).Load() == 0 && ctx.Err() == nil {
		}
		if !bytes.Equal(m.Bytes(), want) {
			t.Errorf("range %d holds %q...", i, m.Bytes()[:8])
		}
		if err := c.UnmapDMA(m); err != nil {
			t.Error(err)
		}
	}
}

func TestClientOfLibvfioUserShadowIOEventFDs(t *testing.T) {
	c := startServer(t, "shadow_ioeventfd_server")
	l, err := c.call(cmdGetRegionIOFDs, ioFDs{argsz: 4096}.append, nil, 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer c.release(l)
	head, err := parseIOFDs(l.reply)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := parseShadowFDs(l.reply, head)
	if err != nil || len(entries) != 1 || len(l.fds) < 1 {
		t.Errorf("entries %+v with %d descriptors, %v", entries, len(l.fds), err)
	}
	// Without our extension the client does not use it: writes go by message.
	if c.bells != nil {
		t.Error("the client rings by a page whose server does not count posted writes")
	}
}

// The sample client negotiates, describes, reads configuration space, resets,
// maps, asks for interrupts and then wants migration, which nobody here has: so
// far it has to get.
func TestServerOfLibvfioUserClient(t *testing.T) {
	path := sample(t, "client")
	d := newFakeDevice(t)
	copy(d.config[:], []byte{0xad, 0xde, 0xef, 0xbe})
	copy(d.config[0x2c:], []byte{0xfe, 0xca, 0xbe, 0xba})
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(soon(t))
	served := make(chan error)
	go func() { served <- Serve(ctx, l, d, ServeOptions{}) }()
	cmd := exec.CommandContext(ctx, path, socket)
	output, _ := cmd.CombinedOutput()
	cancel()
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Errorf("Serve = %v", err)
	}
	t.Logf("the client said:\n%s", output)
	if !bytes.Contains(output, []byte("failed to start dirty page logging")) {
		t.Error("the client did not get as far as migration")
	}
	if log := d.takeLog(); len(log) < 3 || log[0] != "reset" {
		t.Errorf("the device saw %q", log)
	}
}
