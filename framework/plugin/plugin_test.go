package plugin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"nicd/bus"
	"nicd/framework"
	"nicd/framework/engine"
	"nicd/framework/link"
)

// The test binary is its own plugin: run with envMode it behaves as that says.
const envMode = "NICD_TEST_PLUGIN"

// envFile names the file that a turncoat exchanges.
const envFile = "NICD_TEST_FILE"

func TestMain(m *testing.M) {
	ServeBundled(bundled...)
	if mode := os.Getenv(envMode); mode != "" {
		misbehave(mode)
		return
	}
	os.Exit(m.Run())
}

// misbehave is main of all the plugins that the tests need.
func misbehave(mode string) {
	switch mode {
	case "garbage":
		fmt.Println("Hello, I am a shell script.")
		select {}
	case "exit":
		fmt.Fprintln(os.Stderr, "cannot open shared object")
		os.Exit(3)
	case "mute":
		time.Sleep(time.Hour)
	case "version":
		goplugin.Serve(&goplugin.ServeConfig{
			HandshakeConfig:  handshake,
			VersionedPlugins: map[int]goplugin.PluginSet{99: {driverPlugin: &grpcPlugin{server: &server{}}}},
			GRPCServer:       goplugin.DefaultGRPCServer,
			Logger:           hclog.NewNullLogger(),
		})
	case "turncoat":
		if err := os.Remove(os.Getenv(envFile)); err != nil {
			fail(exitFailure, "%v", err)
		}
		if err := os.WriteFile(os.Getenv(envFile), []byte("#!/bin/sh\n"), 0o755); err != nil {
			fail(exitFailure, "%v", err)
		}
	case "records":
		fmt.Fprintln(os.Stderr, `{"@message": 1, "@level": [], "level": 7, "pid": "mine"}`)
		fmt.Fprintln(os.Stderr, `{"level":"error","message":"ring is full","queue":3,"time":"never"}`)
		fmt.Fprintln(os.Stderr, `{"level":"fatal","message":"my end, not yours"}`)
		fmt.Fprintln(os.Stderr, `{"@level":"info","@message":"in hclog's words","@timestamp":"2026-01-01"}`)
		fmt.Fprintln(os.Stderr, `panic: half a rec{ord`)
		fmt.Fprintln(os.Stderr, strings.Repeat("x", 3*maxLine))
	case "deaf":
		// A handshake, and nobody who answers behind it.
		l, err := net.Listen("unix", filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "deaf"))
		if err != nil {
			fail(exitFailure, "%v", err)
		}
		fmt.Printf("1|1|unix|%s|grpc|\n", l.Addr())
		select {}
	case "absent":
		fmt.Printf("1|1|unix|%s|grpc|\n", filepath.Join(os.Getenv("PLUGIN_UNIX_SOCKET_DIR"), "absent"))
		select {}
	case "child":
		c := exec.Command("/bin/sleep", "1000")
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			fail(exitFailure, "%v", err)
		}
		log := pluginLogger()
		log.Info().Int("child", c.Process.Pid).Msg("child")
	}
	a := loop
	switch mode {
	case "attach-exit":
		a = func(context.Context, framework.Driver, *attachment) (engine.Control, bus.Info, error) {
			fmt.Fprintln(stderr, "assertion failed: ring != NULL")
			os.Exit(7)
			return nil, bus.Info{}, nil
		}
	case "attach-hang":
		a = func(context.Context, framework.Driver, *attachment) (engine.Control, bus.Info, error) { select {} }
	case "attach-refuse":
		a = func(_ context.Context, _ framework.Driver, a *attachment) (engine.Control, bus.Info, error) {
			return nil, bus.Info{}, fmt.Errorf("%s: device 8086:100e: %w", a.name, framework.ErrNotOurs)
		}
	}
	serve(testDriver{mode}, a)
}

// testDriver describes itself; the engine under test does without a device.
type testDriver struct{ mode string }

// stdout as it was before go-plugin replaced it.
var stdout = os.Stdout

func (d testDriver) Describe() framework.Description {
	if d.mode == "chatty" {
		for range 500 {
			fmt.Fprintln(stdout, "direct "+strings.Repeat("talk ", 100))
			fmt.Fprintln(os.Stdout, "detour "+strings.Repeat("talk ", 100))
		}
	}
	version := "1.2"
	if d.mode == "unprintable" {
		version = "\x1b[2J"
	}
	return framework.Description{
		Name: "testnic", Version: version, IDs: []framework.DeviceID{{Vendor: 0x1234, Device: 0x5678, Name: "Test NIC"}},
		Quirks: []framework.Declaration{
			framework.LROOwnerQuirk.Is(framework.LROHardwareOnly, framework.Match{MinRevision: 2, Mode: "passthrough"}, "test"),
		},
	}
}

func (testDriver) Attach(context.Context, bus.Device, framework.Env) (framework.Device, error) {
	return nil, framework.ErrNotOurs
}

// looped is an engine that sends every packet straight back up, over the real
// link.
type looped struct {
	lower  *link.Lower
	events chan engine.Event
	wake   chan struct{}
	stop   chan struct{}
	joined sync.WaitGroup
}

func loop(_ context.Context, _ framework.Driver, a *attachment) (engine.Control, bus.Info, error) {
	lower, err := link.NewLower(link.LowerOptions{Memory: a.arena, Events: a.events, Generation: a.generation})
	if err != nil {
		return nil, bus.Info{}, err
	}
	l := &looped{lower: lower, events: make(chan engine.Event, 8), wake: make(chan struct{}, 1), stop: make(chan struct{})}
	poke := func() {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
	lower.SetWaker(0, poke, poke)
	return l, bus.Info{Vendor: 0x1234, Device: 0x5678, Revision: 9}, nil
}

func (l *looped) Info(context.Context) (framework.Info, error) {
	i := framework.Info{Model: "LOOP", Revision: 3, MaxRxQueues: 1, MaxTxQueues: 1, MaxMTU: 9000}
	i.RxRing = framework.RingRule{Min: 32, Max: 64, Default: 32}
	i.TxRing = i.RxRing
	if os.Getenv(envMode) == "nonsense" {
		i.MaxTxQueues = 1 << 60
	}
	return i, nil
}

func (l *looped) Start(_ context.Context, p engine.Plan) error {
	if p.MTU == 666 {
		return fmt.Errorf("MTU 666: %w", framework.ErrUnsupported)
	}
	l.joined.Go(l.run)
	l.events <- engine.Event{Kind: engine.LinkEvent, Link: framework.Link{Up: true, Mbps: 10000, FullDuplex: true}}
	return nil
}

func (l *looped) run() {
	b := framework.NewBatch(32, 128)
	for {
		b.Reset()
		l.lower.Take(0, b)
		if len(b.Packets) > 0 {
			l.lower.Deliver(0, b)
			continue
		}
		if l.lower.ArmTx(0) {
			continue
		}
		select {
		case <-l.wake:
		case <-l.stop:
			return
		}
	}
}

func (l *looped) Stop(context.Context) error {
	close(l.stop)
	l.joined.Wait()
	l.stop = make(chan struct{})
	return nil
}

func (l *looped) Change(context.Context, engine.Plan) (framework.Effect, error) {
	return framework.Quiesce, nil
}

func (l *looped) Effect(context.Context, engine.Plan) (framework.Effect, error) {
	return framework.Reset, nil
}

func (l *looped) SetQuirks(_ context.Context, v map[string]string) error {
	return framework.NewQuirkSet().SetAll(v)
}

func (l *looped) SetFilters(context.Context, framework.Filters) error { return nil }

func (l *looped) HardwareCounters(context.Context) ([]uint64, error) { return []uint64{1, 2, 3}, nil }

func (l *looped) Detach(context.Context) error {
	l.lower.Close()
	close(l.events)
	return nil
}

func (l *looped) Events() <-chan engine.Event { return l.events }

// options are for a plugin that behaves as mode says, and check at the test's
// end that nothing of it is left: no process, goroutine,
// descriptor or file.
func options(t *testing.T, mode string) (Options, *journal) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "np")
	if err != nil {
		t.Fatal(err)
	}
	before := descriptors(t)
	goroutines := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		if left, _ := filepath.Glob(dir + "/*"); len(left) > 0 {
			t.Errorf("files left: %v", left)
		}
		os.RemoveAll(dir)
		noChildren(t)
		goleak.VerifyNone(t, goroutines)
		eventually(t, "descriptors are open", func() bool { return descriptors(t) <= before })
	})
	j := &journal{}
	return Options{
		Path: exe, Env: []string{envMode + "=" + mode, "GOCOVERDIR=" + dir, "GORACE=atexit_sleep_ms=0"}, Driver: "testnic", Generation: 4,
		SocketDir: dir, Log: zerolog.New(j), StartTimeout: 20 * time.Second,
	}, j
}

func descriptors(t *testing.T) int {
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// noChildren fails the test if this process has children, zombies included.
func noChildren(t *testing.T) {
	t.Helper()
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	if err != unix.ECHILD {
		t.Errorf("children are left (%v)", err)
	}
}

// eventually waits for something that is about to happen: so many looks, a millisecond
// apart at the least. Where the machine is busy, or away, looks are as late as what is
// waited for, and a limit on the clock would be one on the machine.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	const looks = 20_000
	for range looks {
		if ok() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("after %d looks still: %s", looks, what)
}

// journal keeps log records.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(b)
}

// records are all so far.
func (j *journal) records(t *testing.T) (all []map[string]any) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range bytes.Lines(j.buf.Bytes()) {
		var r map[string]any
		if err := json.Unmarshal(line, &r); err != nil {
			t.Fatalf("log line %q: %v", line, err)
		}
		all = append(all, r)
	}
	return all
}

// start starts a plugin and sees to its end.
func start(t *testing.T, mode string) (*Process, *journal) {
	t.Helper()
	o, j := options(t, mode)
	p, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p, j
}

// wire makes a link host and a device socket to attach.
func wire(t *testing.T) (*link.Host, AttachConfig) {
	t.Helper()
	lay, err := link.Options{RxBuffers: 64, TxBuffers: 64}.Layout()
	if err != nil {
		t.Fatal(err)
	}
	mem, err := bus.NewMemory("test", lay.Size())
	if err != nil {
		t.Fatal(err)
	}
	h, err := link.NewHost(link.HostOptions{Name: "t0", Memory: mem, Layout: lay.Options,
		OnViolation: func(v *link.Violation) { t.Error(v) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.Stop()
		h.Close()
		mem.Close()
	})
	return h, attachConfig(t, h)
}

func attachConfig(t *testing.T, h *link.Host) AttachConfig {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]) })
	return AttachConfig{
		Name: "t0", Device: os.NewFile(uintptr(fds[1]), "device"),
		Memory: h.Memory(), Events: h.Events(), Generation: h.Generation(),
	}
}
