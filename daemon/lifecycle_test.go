package daemon

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"nicd/bus"
	"nicd/config"
	"nicd/drivers/e1000"
	"nicd/drivers/vmxnet3"
	"nicd/framework"
	"nicd/framework/engine"
	"nicd/framework/plugin"
	"nicd/proto/adminpb"
)

var testDrivers = []framework.Driver{vmxnet3.New(), e1000.New(), hostileDriver{vmxnet3.New()}}

// TestMain lets nicd start this binary as the plugin of its bundled drivers.
func TestMain(m *testing.M) {
	plugin.ServeBundled(testDrivers...)
	os.Exit(m.Run())
}

// logBook keeps what was logged.
type logBook struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// startPlugins runs a config, with drivers as plugins unless it says otherwise.
func startPlugins(t *testing.T, text string) (*Daemon, *logBook) {
	t.Helper()
	names := []string{}
	for _, d := range testDrivers {
		names = append(names, d.Describe().Name)
	}
	c, err := config.Parse("test.hcl", []byte(text), Vocabulary(names))
	if err != nil {
		t.Fatal(err)
	}
	book := &logBook{}
	d, err := Start(t.Context(), Options{
		Config: c, Bundled: testDrivers, Socket: filepath.Join(t.TempDir(), "s"), Log: zerolog.New(book),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Stop)
	return d, book
}

// pairText is two interfaces on a wire with a stream each way. The first has
// the driver named.
func pairText(n int, driver string) string {
	return fmt.Sprintf(`
wire "w%[1]d" {}
interface "a%[1]d" {
  driver = %[2]q
  device "sim" {
    model = "vmxnet3"
    wire = "w%[1]d"
  }
  port "netstack" { address = "10.0.%[1]d.1/24" }
}
interface "b%[1]d" {
  driver = "e1000"
  device "sim" {
    model = "82574L"
    wire = "w%[1]d"
  }
  port "netstack" { address = "10.0.%[1]d.2/24" }
}
stream "ab%[1]d" {
  from = "a%[1]d"
  to = "b%[1]d"
}
stream "ba%[1]d" {
  from = "b%[1]d"
  to = "a%[1]d"
}
`, n, driver)
}

// until waits for something that has no event of its own. The limit is counted in
// looks, one in a millisecond at the most: where the machine is busy, or away, looks
// are as late as what is waited for.
func until(t *testing.T, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	for range limit / time.Millisecond {
		if ok() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	if !ok() {
		t.Fatalf("%s: not in %v", what, limit)
	}
}

func (d *Daemon) streamed(name string) uint64 {
	for _, s := range d.streams {
		if s.name == name {
			return s.received.Load()
		}
	}
	return 0
}

// awaitData waits until so many more bytes have come through streams.
func awaitData(t *testing.T, d *Daemon, bytes uint64, streams ...string) {
	t.Helper()
	for _, name := range streams {
		from := d.streamed(name)
		until(t, "stream "+name, 20*time.Second, func() bool { return d.streamed(name) >= from+bytes })
	}
}

// A driver that is killed in the middle of traffic leaves a device that does
// nothing, a stopped link, a port that knows of it, and a peer that goes on.
func TestPluginKilled(t *testing.T) {
	d, book := startPlugins(t, pairText(1, "vmxnet3")+pairText(2, "vmxnet3"))
	awaitData(t, d, 1<<20, "ab1", "ba1", "ab2", "ba2")
	victim := d.find("a1")
	if err := syscall.Kill(victim.process.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "noticed", time.Second, func() bool { return victim.is(failed) })
	until(t, "link down", time.Second, func() bool { return !victim.currentLink().Up })
	until(t, "host stopped", time.Second, func() bool { return victim.host.Reset() == nil })

	// The peer's frames reach nobody, and it is held up by nobody.
	peer := d.find("b1")
	until(t, "nothing in flight at the peer", 2*time.Second, func() bool {
		s, err := peer.counters()
		if err != nil {
			t.Fatal(err)
		}
		flying := uint64(0)
		for q := range s.Tx {
			flying += s.Tx[q][engine.TxInFlight]
		}
		return flying == 0
	})
	awaitData(t, d, 1<<20, "ab2", "ba2")
	if text := book.String(); strings.Contains(text, "refused access") {
		t.Errorf("the device went on without its memory:\n%s", text)
	}
	if n := strings.Count(book.String(), "interface failed"); n != 1 {
		t.Errorf("said %d times:\n%s", n, book)
	}
}

// A death is noticed within 100 ms: the half of five that is the quicker one, so that
// a machine which is away for a while is no failure, and looking now and then is one.
func TestDeathIsNoticedSoon(t *testing.T) {
	const deaths, limit = 5, 100 * time.Millisecond
	d, book := startPlugins(t, pairText(1, "vmxnet3")+pairText(2, "vmxnet3")+pairText(3, "vmxnet3"))
	var took []time.Duration
	for _, victim := range d.interfaces[:deaths] {
		said := fmt.Sprintf("(pid %d): exited: signal: killed", victim.process.PID())
		killed := time.Now()
		if err := syscall.Kill(victim.process.PID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		until(t, "noticed and said", 10*time.Second, func() bool { return victim.is(failed) && strings.Contains(book.String(), said) })
		took = append(took, time.Since(killed))
	}
	t.Log(took)
	slices.Sort(took)
	if took[deaths/2] > limit {
		t.Errorf("noticed after %v", took)
	}
	if last := d.interfaces[deaths]; !last.is(running) {
		t.Error("the other one does not run any more")
	}
}

// Interfaces of one driver open at the same time.
func TestOneDriverManyTimes(t *testing.T) {
	var text strings.Builder
	for n := range 3 {
		text.WriteString(pairText(n, "vmxnet3"))
	}
	d, _ := startPlugins(t, text.String())
	seen := map[int]bool{}
	for _, i := range d.interfaces {
		seen[i.process.PID()] = true
	}
	if len(seen) != 6 {
		t.Errorf("%d processes", len(seen))
	}
}

// Clients that ask while nicd stops get an answer or an error; nobody reads
// memory that is not there any more.
func TestStatusWhileStopping(t *testing.T) {
	for range 5 {
		d, _ := startPlugins(t, `driver "vmxnet3" { mode = "in-process" }`+"\n"+`driver "e1000" { mode = "in-process" }`+pairText(1, "vmxnet3"))
		conn, err := grpc.NewClient("unix:"+d.options.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		client := adminpb.NewAdminClient(conn)
		var asking sync.WaitGroup
		started := make(chan struct{}, 4)
		for range 4 {
			asking.Go(func() {
				for n := 0; ; n++ {
					_, err := client.Stats(context.Background(), &adminpb.InterfaceRequest{Name: "a1"})
					if n == 0 {
						started <- struct{}{}
					}
					if err != nil {
						return
					}
				}
			})
		}
		for range 4 {
			<-started
		}
		d.Stop()
		asking.Wait()
		conn.Close()
	}
}

// While one nicd stops, another one that is started finds the socket taken; when
// it has stopped the path is free, and belongs to whoever comes.
func TestSocketUntilTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	c, err := config.Parse("test.hcl", []byte(`driver "vmxnet3" { mode = "in-process" }`+"\n"+`driver "e1000" { mode = "in-process" }`+pairText(1, "vmxnet3")), Vocabulary([]string{"vmxnet3", "e1000"}))
	if err != nil {
		t.Fatal(err)
	}
	start := func() *Daemon {
		d, err := Start(t.Context(), Options{Config: c, Bundled: testDrivers, Socket: path, Log: zerolog.Nop()})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	d := start()
	d.server.Stop()
	if _, err := adminSocket.listenPrivate(path); err == nil || !strings.Contains(err.Error(), "a nicd runs there already") {
		t.Errorf("a second daemon while the first stops: %v", err)
	}
	d.Stop()
	again := start()
	defer again.Stop()
	if conn, err := net.Dial("unix", path); err != nil {
		t.Error(err)
	} else {
		conn.Close()
	}
}

// Restarts take no memory: a device can be started any number of times.
func TestManyRestarts(t *testing.T) {
	d, _ := startPlugins(t, pairText(1, "vmxnet3"))
	for _, i := range d.interfaces {
		i.mu.Lock()
		p := i.plan
		i.mu.Unlock()
		p.Restart = true
		for n := range 60 {
			if _, err := i.control.Change(t.Context(), p); err != nil {
				t.Fatalf("%s, restart %d: %v", i.config.Name, n, err)
			}
		}
	}
	awaitData(t, d, 1<<20, "ab1", "ba1")
}

// hostileDriver is a driver that turns on nicd: after some traffic its plugin
// writes garbage all over what it shares with nicd.
type hostileDriver struct{ framework.Driver }

func (h hostileDriver) Describe() framework.Description {
	d := h.Driver.Describe()
	d.Name = "hostile"
	return d
}

func (h hostileDriver) Attach(ctx context.Context, dev bus.Device, env framework.Env) (framework.Device, error) {
	d, err := h.Driver.Attach(ctx, dev, env)
	return hostileDevice{d, env.Name}, err
}

type hostileDevice struct {
	framework.Device
	name string
}

func (d hostileDevice) Start(c framework.Config) (framework.Queues, error) {
	q, err := d.Device.Start(c)
	for i := range q.Rx {
		q.Rx[i] = &hostileQueue{RxQueue: q.Rx[i], name: d.name}
	}
	return q, err
}

type hostileQueue struct {
	framework.RxQueue
	name    string
	packets int
}

func (q *hostileQueue) Poll(b *framework.Batch) framework.Verdict {
	v := q.RxQueue.Poll(b)
	if q.packets += len(b.Packets); q.packets > 100 {
		garble(q.name)
	}
	return v
}

var memfdLine = regexp.MustCompile(`(?m)^([0-9a-f]+)-[0-9a-f]+ rw-s .*memfd:nicd-(\w+)`)

// garble overwrites the start of this process's arena: header, counters, rings.
func garble(name string) {
	maps, _ := os.ReadFile("/proc/self/maps")
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	defer mem.Close()
	seed := uint64(time.Now().UnixNano())
	fmt.Fprintln(os.Stderr, "garbage by seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	b := make([]byte, 1536<<10) // up to the last queue's rings
	for i := 0; i < len(b); i += 8 {
		binary.NativeEndian.PutUint64(b[i:], rng.Uint64())
	}
	for _, m := range memfdLine.FindAllSubmatch(maps, -1) {
		if string(m[2]) != name {
			continue
		}
		at, _ := strconv.ParseInt(string(m[1]), 16, 64)
		if _, err := mem.WriteAt(b, at); err != nil {
			panic(err)
		}
	}
}

// A plugin that writes garbage over all that it shares ends with one error that
// names what it broke; nicd and the other interfaces go on.
func TestHostilePlugin(t *testing.T) {
	d, book := startPlugins(t, pairText(1, "hostile")+pairText(2, "vmxnet3"))
	awaitData(t, d, 1<<20, "ab2", "ba2")
	hostile := d.find("a1")
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(book)
		}
	})
	until(t, "found out", 20*time.Second, func() bool { return hostile.is(failed) })
	if reason := hostile.failure(); !strings.Contains(reason, "link queue") {
		t.Errorf("the reason is %q", reason)
	}
	until(t, "process ended", 5*time.Second, func() bool { return syscall.Kill(hostile.process.PID(), 0) != nil })
	awaitData(t, d, 1<<20, "ab2", "ba2")
	if n := strings.Count(book.String(), "interface failed"); n != 1 {
		t.Errorf("said %d times:\n%s", n, book)
	}
	_ = d.Status()
	if _, err := hostile.stats(t.Context()); err == nil {
		t.Log("the counters page survived")
	}
}
