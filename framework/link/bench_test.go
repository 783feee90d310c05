package link

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nicd/bus"
	"nicd/framework"
)

// The test binary is its own second process.
const envChild = "NICD_LINK_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(envChild) != "" {
		child()
		return
	}
	os.Exit(m.Run())
}

// child is an engine in another process: it sends back what it is given, until
// its stdin ends.
func child() {
	mem, err := bus.OpenMemory(os.NewFile(3, "arena"))
	if err != nil {
		panic(err)
	}
	l, err := NewLower(LowerOptions{Memory: mem, Events: EventsOf([]int{4, 5}), Fault: func(err error) { panic(err) }})
	if err != nil {
		panic(err)
	}
	go bounce(l, make(chan struct{}))
	_, _ = os.Stdin.Read(make([]byte, 1))
}

// bounce delivers what it takes: the buffers go up as they came down.
func bounce(l *Lower, stop chan struct{}) {
	wake := make(chan struct{}, 1)
	poke := func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	l.SetWaker(0, poke, poke)
	b := framework.NewBatch(32, 32+framework.MaxFragments)
	for idle := 0; ; {
		b.Reset()
		l.Take(0, b)
		if len(b.Packets) > 0 {
			l.Deliver(0, b)
			idle = 0
			continue
		}
		if idle++; idle < 32 {
			runtime.Gosched()
			continue
		}
		if idle = 0; l.ArmTx(0) {
			continue
		}
		select {
		case <-wake:
		case <-stop:
			return
		}
	}
}

// carousel is a port that sends what it receives until enough went round.
type carousel struct {
	h       *Host
	left    atomic.Int64
	done    chan struct{}
	refused atomic.Uint64
}

func (c *carousel) Deliver(queue int, b *framework.Batch) {
	if left := c.left.Add(-int64(len(b.Packets))); left <= 0 {
		if left > -int64(len(b.Packets)) {
			close(c.done)
		}
		c.retire(queue, b)
		return
	}
	if c.h.Send(queue, b) != len(b.Packets) {
		c.refused.Add(1)
	}
}

// retire gives packets' buffers back one by one.
func (c *carousel) retire(queue int, b *framework.Batch) {
	for i := range b.Frags {
		one := [1]framework.Buffer{b.Frags[i].Buffer}
		c.h.Release(queue, one[:])
	}
}

func (c *carousel) TxReady(int) {}

// fill puts n packets into the carousel.
func (c *carousel) fill(tb testing.TB, n int) {
	for n > 0 {
		var bufs [32]framework.Buffer
		b := framework.NewBatch(32, 32)
		got := c.h.Alloc(0, bufs[:min(n, 32)])
		for i := range got {
			b.Packets = append(b.Packets, framework.Packet{First: uint32(i), Frags: 1, Len: 60, Flags: framework.IPv4 | framework.TCP})
			b.Frags = append(b.Frags, framework.Fragment{Buffer: bufs[i], Offset: 2, Len: 60})
		}
		if got == 0 || c.h.Send(0, b) != got {
			tb.Fatal("carousel does not fill")
		}
		n -= got
	}
}

const inFlight = 512

func (c *carousel) run(b *testing.B) {
	c.left.Store(int64(b.N))
	c.done = make(chan struct{})
	if err := c.h.Start(c); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.ResetTimer()
	before := processorTime()
	c.fill(b, inFlight)
	<-c.done
	b.StopTimer()
	spent := processorTime() - before
	c.h.Stop()
	if n := c.refused.Load(); n > 0 {
		b.Fatalf("%d sends refused", n)
	}
	if v := c.h.Violation(); v != nil {
		b.Fatal(v)
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N), "cpu-ns/entry")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mentries/s")
}

// processorTime is what this process has used: on a busy machine it says more
// than the clock.
func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkTwoProcesses counts 64-byte entries that went to the other process
// and back, checked on the way.
func BenchmarkTwoProcesses(b *testing.B) {
	lay, err := Options{}.Layout()
	if err != nil {
		b.Fatal(err)
	}
	mem, err := bus.NewMemory("bench", lay.Size())
	if err != nil {
		b.Fatal(err)
	}
	defer mem.Close()
	h, err := NewHost(HostOptions{Name: "bench0", Memory: mem, Layout: lay.Options})
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	stop := startChild(b, h)
	defer stop()
	(&carousel{h: h}).run(b)
}

func startChild(tb testing.TB, h *Host) (stop func()) {
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), envChild+"=1")
	cmd.Stderr = os.Stderr
	cmd.ExtraFiles = append([]*os.File{h.Memory().File()}, h.Events().Files()...)
	in, err := cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	return func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			tb.Errorf("child: %v", err)
		}
	}
}

// BenchmarkOneProcess is the same with the engine in this process.
func BenchmarkOneProcess(b *testing.B) {
	h := newHost(b, Options{}, nil)
	l, err := NewLower(LowerOptions{Memory: h.Memory(), Events: h.Events()})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() { bounce(l, stop); close(done) }()
	(&carousel{h: h}).run(b)
	close(stop)
	<-done
}

// BenchmarkPath is what there and back costs in instructions, without a second
// processor: both ends take turns in one goroutine.
func BenchmarkPath(b *testing.B) {
	for _, batch := range []int{1, 32} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) { benchPath(b, batch) })
	}
}

func benchPath(b *testing.B, batch int) {
	h := newHost(b, Options{}, nil)
	l, err := NewLower(LowerOptions{Memory: h.Memory(), Events: h.Events()})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	h.state.Store(hostRunning) // without receivers
	defer h.state.Store(hostStopped)
	c := &carousel{h: h}
	c.left.Store(1 << 62)
	c.fill(b, batch)
	in := framework.NewBatch(batch, batch+framework.MaxFragments)
	b.ReportAllocs()
	b.ResetTimer()
	before := processorTime()
	for done := 0; done < b.N; done += batch {
		in.Reset()
		l.Take(0, in)
		l.Deliver(0, in)
		if n, v := h.queues[0].deliver(c); n != batch || v != nil {
			b.Fatal(n, v)
		}
	}
	b.ReportMetric(float64((processorTime()-before).Nanoseconds())/float64(b.N), "cpu-ns/entry")
}
