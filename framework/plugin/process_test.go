package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nicd/bus"
	"nicd/framework"
	"nicd/framework/engine"
	"nicd/framework/link"
)

func TestDescribe(t *testing.T) {
	p, _ := start(t, "good")
	d := p.Describe()
	want := testDriver{}.Describe()
	if d.Name != want.Name || d.Version != want.Version || len(d.IDs) != 1 || d.IDs[0] != want.IDs[0] ||
		len(d.Quirks) != 1 || d.Quirks[0] != want.Quirks[0] {
		t.Fatalf("it says %+v, want %+v", d, want)
	}
}

// All of a plugin's threads let others finish first, also those that it makes when
// it runs.
func TestThreadsAreBatch(t *testing.T) {
	p, _ := start(t, "good")
	h, c := wire(t)
	control, err := p.Attach(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := control.Start(t.Context(), engine.Plan{}); err != nil {
		t.Fatal(err)
	}
	startTraffic(t, h).wait(t, 1000)
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.PID()))
	if err != nil || len(threads) < 2 {
		t.Fatalf("%d threads, %v", len(threads), err)
	}
	for _, thread := range threads {
		id, _ := strconv.Atoi(thread.Name())
		if attr, err := unix.SchedGetAttr(id, 0); err != unix.ESRCH && (err != nil || attr.Policy != unix.SCHED_BATCH) {
			t.Errorf("thread %d: %+v, %v", id, attr, err)
		}
	}
}

func TestProcessors(t *testing.T) {
	for _, c := range []struct {
		cpus, queues int
		polling      bool
		want         int
	}{
		{1, 0, false, 1}, {1, 8, false, 1}, {2, 4, false, 1}, {3, 4, false, 1}, {4, 4, false, 2},
		{16, 0, false, 1}, {16, 1, false, 2}, {16, 4, false, 5}, {16, 8, false, 8},
		{1, 1, true, 2}, {2, 1, true, 2}, {2, 4, true, 2}, {4, 2, true, 3}, {16, 8, true, 9},
	} {
		if got := processors(c.cpus, c.queues, c.polling); got != c.want {
			t.Errorf("%d processors, %d queues, polling %v: %d, want %d", c.cpus, c.queues, c.polling, got, c.want)
		}
	}
}

// The whole way: attach, start, packets there and back, events, stop, detach.
func TestControlAndPackets(t *testing.T) {
	p, _ := start(t, "good")
	h, c := wire(t)
	control, err := p.Attach(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if d := p.Device(); d != (bus.Info{Vendor: 0x1234, Device: 0x5678, Revision: 9}) {
		t.Errorf("it has found %+v", d)
	}
	info, err := control.Info(t.Context())
	if err != nil || info.Model != "LOOP" || info.Revision != 3 {
		t.Fatalf("info %+v, %v", info, err)
	}
	if err := control.Start(t.Context(), engine.Plan{Settings: framework.Settings{MTU: 666}}); !errors.Is(err, framework.ErrUnsupported) ||
		!strings.Contains(err.Error(), "MTU 666") {
		t.Fatalf("start with MTU 666: %v", err)
	}
	if err := control.Start(t.Context(), engine.Plan{}); err != nil {
		t.Fatal(err)
	}
	if e := <-control.Events(); e.Kind != engine.LinkEvent || !e.Link.Up || e.Link.Mbps != 10000 {
		t.Fatalf("event %+v", e)
	}
	traffic := startTraffic(t, h)
	traffic.wait(t, 1000)
	if effect, err := control.Change(t.Context(), engine.Plan{}); effect != framework.Quiesce || err != nil {
		t.Fatalf("change: %v, %v", effect, err)
	}
	if effect, err := control.Effect(t.Context(), engine.Plan{}); effect != framework.Reset || err != nil {
		t.Fatalf("effect: %v, %v", effect, err)
	}
	if n, err := control.HardwareCounters(t.Context()); len(n) != 3 || err != nil {
		t.Fatalf("counters: %v, %v", n, err)
	}
	if err := control.SetQuirks(t.Context(), map[string]string{"lro-owner": "nobody"}); err == nil {
		t.Fatal("a wrong quirk was accepted")
	}
	if err := control.SetQuirks(t.Context(), map[string]string{"lro-owner": "none"}); err != nil {
		t.Fatal(err)
	}
	if err := control.SetFilters(t.Context(), framework.Filters{Promiscuous: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Attach(t.Context(), attachConfig(t, h)); err == nil || !strings.Contains(err.Error(), "attached before") {
		t.Fatalf("second attach: %v", err)
	}
	if err := control.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := control.Detach(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, ok := <-control.Events(); ok {
		t.Fatal("events after detach")
	}
}

// traffic keeps packets going round.
type traffic struct {
	h     *link.Host
	round atomic.Uint64
}

func (f *traffic) Deliver(queue int, b *framework.Batch) {
	f.round.Add(uint64(len(b.Packets)))
	f.h.Send(queue, b)
}

func (f *traffic) TxReady(int) {}

func startTraffic(t *testing.T, h *link.Host) *traffic {
	t.Helper()
	f := &traffic{h: h}
	if err := h.Start(f); err != nil {
		t.Fatal(err)
	}
	bufs := make([]framework.Buffer, 16)
	b := framework.NewBatch(16, 64)
	for i := range h.Alloc(0, bufs) {
		b.Packets = append(b.Packets, framework.Packet{First: uint32(i), Frags: 1, Len: 60})
		b.Frags = append(b.Frags, framework.Fragment{Buffer: bufs[i], Len: 60})
	}
	if n := h.Send(0, b); n != 16 {
		t.Fatalf("sent %d", n)
	}
	return f
}

func (f *traffic) wait(t *testing.T, n uint64) {
	t.Helper()
	from := f.round.Load()
	eventually(t, "no traffic", func() bool { return f.round.Load() >= from+n })
}

func attached(t *testing.T, mode string) (*Process, *link.Host, engine.Control) {
	t.Helper()
	p, _ := start(t, mode)
	h, c := wire(t)
	control, err := p.Attach(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := control.Start(t.Context(), engine.Plan{}); err != nil {
		t.Fatal(err)
	}
	return p, h, control
}

// A plugin that dies under traffic is noticed (after 5 ms, and on a busy machine more
// than 100), and another one goes on with the same arena and the same port.
func TestDeathUnderTraffic(t *testing.T) {
	p, h, control := attached(t, "good")
	f := startTraffic(t, h)
	f.wait(t, 1000)
	killed := time.Now()
	if err := unix.Kill(p.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	err := <-p.Died()
	t.Logf("noticed after %v", time.Since(killed))
	if !errors.Is(err, ErrExited) || !strings.Contains(err.Error(), "signal: killed") {
		t.Errorf("died of %v", err)
	}
	for range control.Events() {
	}
	if _, err := control.Info(t.Context()); !errors.Is(err, ErrExited) {
		t.Errorf("info of a dead plugin: %v", err)
	}

	h.Stop()
	if err := h.Reset(); err != nil {
		t.Fatal(err)
	}
	next, _ := start(t, "good")
	control, err = next.Attach(t.Context(), attachConfig(t, h))
	if err != nil {
		t.Fatal(err)
	}
	if err := control.Start(t.Context(), engine.Plan{}); err != nil {
		t.Fatal(err)
	}
	startTraffic(t, h).wait(t, 1000)
	h.Stop()
}

func TestAttachFailures(t *testing.T) {
	for _, c := range []struct {
		mode     string
		patience time.Duration
		is       error
		says     string
	}{
		{"attach-exit", time.Minute, ErrExited, "assertion failed: ring != NULL"},
		{"attach-hang", time.Second, ErrTimeout, "it was given 1s"},
		{"attach-refuse", time.Minute, framework.ErrNotOurs, "8086:100e"},
	} {
		t.Run(c.mode, func(t *testing.T) {
			p, _ := start(t, c.mode)
			_, config := wire(t)
			ctx, cancel := context.WithTimeout(t.Context(), c.patience)
			defer cancel()
			_, err := p.Attach(ctx, config)
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Fatalf("%v, want %v with %q", err, c.is, c.says)
			}
			t.Log(err)
		})
	}
}

// Who waits for a slow plugin is told for what, for whom and until when.
func TestSlowIsSaid(t *testing.T) {
	o, j := options(t, "attach-hang")
	o.SlowAfter = 100 * time.Millisecond
	p, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Kill(context.Background()) })
	_, config := wire(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := p.Attach(ctx, config); !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "it was given ") {
		t.Error(err)
	}
	said := slices.ContainsFunc(j.records(t), func(r map[string]any) bool {
		message, _ := r["message"].(string)
		return r["level"] == "warn" && r["pid"] == float64(p.PID()) && r["operation"] == "attach "+config.Name &&
			strings.Contains(message, "nicd waits for ")
	})
	if !said {
		t.Errorf("the log has %v", j.records(t))
	}
}

// A frozen plugin answers nothing, but can be killed in bounded time.
func TestFrozenPlugin(t *testing.T) {
	p, _, control := attached(t, "good")
	if err := unix.Kill(p.PID(), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is not stopped", func() bool { return state(p.PID()) == "T" })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := control.Info(ctx); !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "is stopped by a signal") {
		t.Errorf("info of a frozen plugin: %v", err)
	}
	if err := p.Kill(t.Context()); err != nil { // it returns
		t.Fatal(err)
	}
	if err, ok := <-p.Died(); ok {
		t.Errorf("killed, but died of %v", err)
	}
}

func TestKillIsQuickAndRepeatable(t *testing.T) {
	p, _ := start(t, "good")
	for range 2 {
		if err := p.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if s := p.proc.state; !s.Exited() {
		t.Errorf("it did not exit by itself: %v", s)
	}
}

// Children of a plugin end with it.
func TestKillEndsChildren(t *testing.T) {
	p, j := start(t, "child")
	var child int
	eventually(t, "no child", func() bool {
		for _, r := range j.records(t) {
			if r["message"] == "child" {
				child = int(r["child"].(float64))
			}
		}
		return child != 0
	})
	if err := p.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the child is alive", func() bool { return dead(child) })
}

// state is a process's state as ps shows it, "" if there is no such process.
func state(pid int) string {
	stat, err := os.ReadFile("/proc/" + itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return rest[:1]
}

// dead tells whether there is no such process, or only its zombie.
func dead(pid int) bool { return state(pid) == "" || state(pid) == "Z" }

// A plugin ends when nicd is killed: this test's own copy is the nicd.
func TestPluginEndsWithNicd(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "np")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	nicd := exec.Command(exe, "-test.run=^TestAsNicd$", "-test.v")
	nicd.Env = append(os.Environ(), envAsNicd+"="+dir)
	out, err := nicd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := nicd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := pidIn(t, out)
	if dead(pid) {
		t.Fatal("the plugin is dead before nicd")
	}
	nicd.Process.Kill()
	nicd.Wait()
	eventually(t, "the plugin is alive", func() bool { return dead(pid) })
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("files left: %v", left)
	}
}

// Nobody is told to wait for less than nothing, when the machine was away meanwhile.
func TestRemaining(t *testing.T) {
	for left, says := range map[time.Duration]string{time.Hour: "1h0m0s", -4 * time.Second: "0s"} {
		ctx, cancel := context.WithTimeout(t.Context(), left)
		if got := remaining(ctx).String(); got != says {
			t.Errorf("%v are left: %s, want %s", left, got, says)
		}
		cancel()
	}
}
