package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"nicd/bus"
	"nicd/bus/vfiouser"
	"nicd/drivers/e1000"
	"nicd/drivers/vmxnet3"
	"nicd/framework"
	"nicd/framework/drivertest"
	"nicd/framework/engine"
	"nicd/framework/link"
	"nicd/sim"
	e1000model "nicd/sim/e1000"
	vmxnet3model "nicd/sim/vmxnet3"
)

// The drivers on the device models: by vfio-user from a process of their own,
// and in this process, over the same link. The test binary serves as nicd with
// its bundled drivers.

var bundled = []framework.Driver{vmxnet3.New(), e1000.New()}

type nic struct {
	driver string
	model  func() model
}

// model is a device and an end of a wire.
type model interface {
	sim.Model
	sim.End
}

var nics = []nic{
	{"vmxnet3", func() model { return vmxnet3model.New(vmxnet3model.Options{}) }},
	{"e1000", func() model { return e1000model.New(e1000model.Options{}) }},
}

// rack is a device on a wire with a tester, and a link for its engine.
type rack struct {
	nic
	dev    *sim.Device
	tester *sim.Tester
	host   *link.Host
	got    chan []byte
	keep   func([]framework.Buffer) // if set, has the buffers of what is delivered
}

func newRack(t *testing.T, n nic) *rack {
	t.Helper()
	r := &rack{nic: n, got: make(chan []byte, 1024)}
	m := n.model()
	wire := sim.NewWire(sim.WireOptions{})
	r.tester = sim.NewTester(wire, sim.Wants{})
	dev, err := sim.NewDevice(m, sim.Options{Name: n.driver})
	if err != nil {
		t.Fatal(err)
	}
	wire.Connect(m)
	r.dev = dev
	lay, err := link.Options{}.Layout()
	if err != nil {
		t.Fatal(err)
	}
	mem, err := bus.NewMemory(n.driver, lay.Size())
	if err != nil {
		t.Fatal(err)
	}
	r.host, err = link.NewHost(link.HostOptions{Name: n.driver, Memory: mem, Layout: lay.Options,
		OnViolation: func(v *link.Violation) { t.Error(v) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.host.Stop()
		r.host.Close()
		wire.Close()
		dev.Close()
		mem.Close()
	})
	return r
}

func (r *rack) Deliver(queue int, b *framework.Batch) {
	var bufs []framework.Buffer
	for i := range b.Packets {
		var frame []byte
		for _, f := range b.Fragments(i) {
			frame = append(frame, r.host.Buffers().Bytes(f)...)
			bufs = append(bufs, f.Buffer)
		}
		r.got <- frame
	}
	if r.keep != nil {
		r.keep(bufs)
		return
	}
	r.host.Release(queue, bufs)
}

func (r *rack) TxReady(int) {}

// plug starts a plugin for the rack's device and attaches it.
func (r *rack) plug(t *testing.T, o Options) (*Process, engine.Control) {
	t.Helper()
	o.Path, o.Bundled, o.Driver = "", r.driver, r.driver
	server, client, err := vfiouser.Pair()
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() {
		served <- vfiouser.ServeConn(context.Background(), server, r.dev, vfiouser.ServeOptions{RequireSealed: true})
	}()
	p, err := Start(t.Context(), o)
	if err != nil {
		client.Close()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(context.Background()); err != nil {
			t.Error(err)
		}
		select {
		case <-served: // an error is fine: the plugin may have been killed in the middle
		case <-time.After(10 * time.Second):
			t.Error("the device's server does not see the plugin's end")
		}
	})
	control, err := p.Attach(t.Context(), AttachConfig{
		Name: r.driver + "0", Device: client, Memory: r.host.Memory(), Events: r.host.Events(),
		Generation: r.host.Generation(), Quirks: map[string]string{"lro-owner": "none"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p, control
}

// planFor is the plainest plan for a device.
func planFor(i framework.Info) engine.Plan {
	choice := i.Interrupts[0]
	p := engine.Plan{
		Settings: framework.Settings{MTU: 1500, MAC: i.MAC}, RxQueues: 1, TxQueues: 1,
		RxDescriptors: i.RxRing.Default, TxDescriptors: i.TxRing.Default,
		Interrupts: framework.VectorPlan{Kind: choice.Kind, Vectors: min(choice.Vectors, 2), RxVector: []int{0}, TxVector: []int{0}},
		Filters:    framework.Filters{Promiscuous: true},
	}
	p.Interrupts.AdminVector = p.Interrupts.Vectors - 1
	return p
}

// run starts the engine and waits for the link.
func (r *rack) run(t *testing.T, control engine.Control) {
	t.Helper()
	info, err := control.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := control.Start(t.Context(), planFor(info)); err != nil {
		t.Fatal(err)
	}
	if err := r.host.Start(r); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		select {
		case e := <-control.Events():
			if e.Kind == engine.LinkEvent && e.Link.Up {
				return
			}
		case <-ctx.Done():
			t.Fatal("the link does not come up")
		}
	}
}

func frameOf(number int) []byte {
	f := make([]byte, 60+number%1400)
	copy(f, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5})
	copy(f[14:], fmt.Sprintf("frame %d", number))
	return f
}

// exchange sends frames both ways and checks that they arrive whole and in
// order.
func (r *rack) exchange(t *testing.T, frames int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for i := range frames {
		r.send(t, frameOf(i))
		got, err := r.tester.Next(ctx)
		if err != nil || !bytes.Equal(got.Bytes, frameOf(i)) {
			t.Fatalf("frame %d out: %v, %d bytes", i, err, len(got.Bytes))
		}
		f := frameOf(i)
		if err := r.tester.Send(ctx, sim.Frame{Parts: [][]byte{f}, Len: len(f)}); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-r.got:
			if !bytes.Equal(got, f) {
				t.Fatalf("frame %d in: %d bytes of %d", i, len(got), len(f))
			}
		case <-ctx.Done():
			t.Fatalf("frame %d in: %v", i, ctx.Err())
		}
	}
}

func (r *rack) send(t *testing.T, frame []byte) {
	t.Helper()
	var buf [1]framework.Buffer
	eventually(t, "no transmit buffer", func() bool { return r.host.Alloc(0, buf[:]) == 1 })
	f := framework.Fragment{Buffer: buf[0], Len: uint32(len(frame))}
	copy(r.host.Buffers().Bytes(f), frame)
	b := framework.Batch{
		Packets: []framework.Packet{{Frags: 1, Len: f.Len}},
		Frags:   []framework.Fragment{f},
	}
	if r.host.Send(0, &b) != 1 {
		t.Fatal("not sent")
	}
}

func TestDriversInPlugins(t *testing.T) {
	for _, n := range nics {
		t.Run(n.driver, func(t *testing.T) {
			o, _ := options(t, "")
			r := newRack(t, n)
			p, control := r.plug(t, o)
			if d := p.Describe(); d.Name != n.driver || len(d.IDs) == 0 {
				t.Fatalf("it is %+v", d)
			}
			r.run(t, control)
			r.exchange(t, 300)
			if err := control.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := control.Detach(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A driver that is killed in the middle is replaced: same device, same arena,
// same port.
func TestDriverIsReplaced(t *testing.T) {
	for _, n := range nics {
		t.Run(n.driver, func(t *testing.T) {
			o, _ := options(t, "")
			r := newRack(t, n)
			for range 3 {
				p, control := r.plug(t, o)
				r.run(t, control)
				r.exchange(t, 50)
				p.proc.kill()
				if err := <-p.Died(); err == nil || !strings.Contains(err.Error(), "killed") {
					t.Fatalf("died of %v", err)
				}
				r.host.Stop()
				if err := p.Kill(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := r.dev.Reset(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := r.host.Reset(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestDriversInProcess(t *testing.T) {
	for _, n := range nics {
		t.Run(n.driver, func(t *testing.T) {
			r := newRack(t, n)
			control, err := Drive(t.Context(), bundledDriver(n.driver), r.dev, DriveConfig{
				Name: n.driver + "0", Memory: r.host.Memory(), Events: r.host.Events(), Generation: r.host.Generation(),
			})
			if err != nil {
				t.Fatal(err)
			}
			r.run(t, control)
			r.exchange(t, 300)
			if err := control.Detach(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func bundledDriver(name string) framework.Driver {
	for _, d := range bundled {
		if d.Describe().Name == name {
			return d
		}
	}
	return nil
}

// TestStuckDriverInProcess: an engine that can't end in time goes on with all that
// it stands on, packets included, and ends when its driver lets it.
func TestStuckDriverInProcess(t *testing.T) {
	for _, n := range nics {
		t.Run(n.driver, func(t *testing.T) {
			r := newRack(t, n)
			d := drivertest.NewStuck(bundledDriver(n.driver))
			control, err := Drive(t.Context(), d, r.dev, DriveConfig{
				Name: n.driver + "0", Memory: r.host.Memory(), Events: r.host.Events(), Generation: r.host.Generation(),
			})
			if err != nil {
				t.Fatal(err)
			}
			r.run(t, control)
			d.Stick()
			<-d.Entered()
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if err := control.Detach(ctx); !errors.Is(err, engine.ErrEnding) {
				t.Fatalf("detach: %v", err)
			}
			r.exchange(t, 300)
			d.Leave()
			if err := control.Detach(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// hoarder is a port's hands: it keeps buffers until there are no more to be had.
type hoarder struct {
	mu   sync.Mutex
	kept []framework.Buffer
}

func (h *hoarder) keep(bufs []framework.Buffer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept = append(h.kept, bufs...)
}

// idle waits until nothing has come for a while, and tells how many buffers there
// are. Looking too early costs the test its point and no more.
func (h *hoarder) idle() (n int) {
	for still := 0; still < 50; still++ {
		time.Sleep(time.Millisecond)
		h.mu.Lock()
		if len(h.kept) != n {
			n, still = len(h.kept), 0
		}
		h.mu.Unlock()
	}
	return n
}

// release gives up to n buffers back.
func (h *hoarder) release(host *link.Host, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n = min(n, len(h.kept))
	host.Release(0, h.kept[:n])
	h.kept = h.kept[n:]
}

// TestStalledPort: a port that holds all buffers, whether the driver runs in this
// process or in its own, stops the far end and loses nothing: buffers that it gives
// back, all or a few, set things going again.
func TestStalledPort(t *testing.T) {
	for _, n := range nics {
		for _, where := range []string{"in process", "plugin"} {
			t.Run(n.driver+" "+where, func(t *testing.T) {
				r := newRack(t, n)
				h := &hoarder{}
				r.keep = h.keep
				var control engine.Control
				if where == "plugin" {
					_, control = r.plug(t, Options{})
				} else {
					var err error
					control, err = Drive(t.Context(), bundledDriver(n.driver), r.dev, DriveConfig{
						Name: n.driver + "0", Memory: r.host.Memory(), Events: r.host.Events(), Generation: r.host.Generation(),
					})
					if err != nil {
						t.Fatal(err)
					}
				}
				r.run(t, control)
				info, err := control.Info(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				r.stall(t, h)
				s, err := engine.ReadCounters(r.host.Counters(), 1, info.MaxTxQueues)
				if err != nil || s.Rx[0][engine.RxAllocFailed] == 0 {
					t.Errorf("there was no want of buffers: nothing was tested (%v)", err)
				}
				if err := control.Detach(t.Context()); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

func (r *rack) stall(t *testing.T, h *hoarder) {
	t.Helper()
	const frames = 4000
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	sent := make(chan error, 1)
	go func() {
		for i := range frames {
			f := frameOf(i)
			if err := r.tester.Send(ctx, sim.Frame{Parts: [][]byte{f}, Len: len(f)}); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	arrived := make(chan error, 1)
	go func() {
		for i := range frames {
			select {
			case got := <-r.got:
				if !bytes.Equal(got, frameOf(i)) {
					arrived <- fmt.Errorf("%d bytes instead of frame %d", len(got), i)
					return
				}
			case <-ctx.Done():
				arrived <- fmt.Errorf("frame %d does not come", i)
				return
			}
		}
		arrived <- nil
	}()
	for round := 0; ; round++ {
		select {
		case err := <-arrived:
			if err != nil {
				t.Fatal(err)
			}
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			h.release(r.host, frames)
			return
		default:
		}
		n := h.idle()
		if round%2 == 0 {
			n = 3
		}
		h.release(r.host, n)
	}
}
