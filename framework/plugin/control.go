package plugin

import (
	"context"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"nicd/bus"
	"nicd/bus/vfio"
	"nicd/framework"
	"nicd/framework/engine"
	"nicd/framework/link"
	"nicd/proto/driverpb"
)

// AttachConfig is what a plugin needs to drive an interface.
type AttachConfig struct {
	Name string // of the interface
	// Device is a connected vfio-user socket of the device. Attach closes it,
	// also on error: only the plugin has it then, so that the device's server
	// sees the plugin's end.
	Device *os.File
	// VFIO is an opened PCI device instead. Attach closes it likewise: the
	// device's DMA ends with the plugin.
	VFIO *vfio.Handle
	// Memory, Events and Generation are the link host's. They stay its own.
	Memory     *bus.Memory
	Events     link.Events
	Generation uint32
	Quirks     map[string]string // effective values; others have their default
}

// Attach makes the plugin drive a device, which it can do once in its life. The
// answer is the control of the engine in the plugin. What device the plugin has
// found then is what [Process.Device] says.
func (p *Process) Attach(ctx context.Context, c AttachConfig) (engine.Control, error) {
	defer c.closeDevice()
	if c.VFIO != nil {
		p.letLock(c.Memory.Size())
	}
	request, files := c.request()
	request.Ticket = p.tickets.Add(1)
	if err := sendDescriptors(p.control, request.Ticket, files); err != nil {
		if p.hasExited() {
			return nil, p.exitError("attach " + c.Name)
		}
		return nil, &Error{Plugin: p.name, PID: p.PID(), Op: "attach " + c.Name, Err: err, Detail: "sending descriptors"}
	}
	r := &remote{process: p, events: make(chan engine.Event, eventBacklog)}
	err := p.call(ctx, "attach "+c.Name, func(ctx context.Context) error {
		reply, err := p.rpc.Attach(ctx, request)
		if err == nil {
			p.device = identityFrom(reply.GetIdentity())
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := r.subscribe(); err != nil {
		return nil, err
	}
	return r, nil
}

// Device is what the device says it is that the plugin has attached to: vendor,
// device and revision of its configuration space, the rest is zero. So is all of
// it before Attach, and with a plugin that is older than this.
func (p *Process) Device() bus.Info { return p.device }

// request is what the plugin is told and, in order, the descriptors for it.
func (c *AttachConfig) request() (*driverpb.AttachRequest, []*os.File) {
	r := &driverpb.AttachRequest{Name: c.Name, Bus: driverpb.BusKind_BUS_VFIO_USER, Generation: c.Generation, Quirks: c.Quirks}
	files := []*os.File{c.Device, c.Memory.File()}
	if h := c.VFIO; h != nil {
		r.Bus = driverpb.BusKind_BUS_VFIO
		r.Vfio = &driverpb.VFIO{
			Address: h.Address, Ioas: h.IOAS, Group: h.Group != nil,
			NoIommu: h.NoIOMMU, DmaBase: h.DMABase, DmaSize: h.DMASize,
		}
		files[fdDevice] = h.Device
		if files = append(files, h.IOMMU); h.Group != nil {
			files = append(files, h.Group)
		}
	}
	return r, append(files, c.Events.Files()...)
}

// letLock raises the plugin's RLIMIT_MEMLOCK by so many bytes: the kernel counts
// what a process maps for a device against it. Where that is not allowed the limit
// may do as it is, and if not the kernel says so.
func (p *Process) letLock(bytes int) {
	var limit unix.Rlimit
	if unix.Prlimit(p.PID(), unix.RLIMIT_MEMLOCK, nil, &limit) != nil {
		return
	}
	if raised := limit.Cur + uint64(bytes); raised > limit.Cur { // else it is unlimited
		limit.Cur, limit.Max = raised, max(raised, limit.Max)
		_ = unix.Prlimit(p.PID(), unix.RLIMIT_MEMLOCK, &limit, nil)
	}
}

func (c *AttachConfig) closeDevice() {
	if c.VFIO != nil {
		c.VFIO.Close()
		return
	}
	c.Device.Close()
}

// eventBacklog is how many events wait for nicd before the plugin's wait.
const eventBacklog = 16

// remote is the engine.Control of an engine in a plugin.
type remote struct {
	process *Process
	events  chan engine.Event
	stop    context.CancelFunc // of the stream
	joined  sync.WaitGroup
}

// subscribe forwards events until Detach or the process's end.
func (r *remote) subscribe() error {
	ctx, cancel := context.WithCancel(r.process.life)
	stream, err := r.process.rpc.Events(ctx, &driverpb.EventsRequest{})
	if err != nil {
		cancel()
		return &Error{Plugin: r.process.name, PID: r.process.PID(), Op: "events", Err: fromStatus(err)}
	}
	r.stop = cancel
	r.joined.Go(func() {
		defer close(r.events)
		for {
			e, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case r.events <- eventFrom(e):
			case <-ctx.Done():
				return
			}
		}
	})
	return nil
}

func (r *remote) Events() <-chan engine.Event { return r.events }

func (r *remote) Info(ctx context.Context) (info framework.Info, err error) {
	err = r.process.call(ctx, "info", func(ctx context.Context) error {
		pb, err := r.process.rpc.GetInfo(ctx, &driverpb.GetInfoRequest{})
		info = infoFrom(pb)
		if err == nil {
			err = info.Check()
		}
		return err
	})
	return info, err
}

// checkPlan refuses what nothing in another process can do: a sender here does not
// run an engine there.
func (r *remote) checkPlan(p *engine.Plan) error {
	if p.InlineTx {
		return fmt.Errorf("%w: inline transmit, of an engine in another process", engine.ErrPlan)
	}
	return nil
}

func (r *remote) Start(ctx context.Context, p engine.Plan) error {
	if err := r.checkPlan(&p); err != nil {
		return err
	}
	return r.process.call(ctx, "start the device", func(ctx context.Context) error {
		_, err := r.process.rpc.Start(ctx, planTo(p))
		return err
	})
}

func (r *remote) Stop(ctx context.Context) error {
	return r.process.call(ctx, "stop the device", func(ctx context.Context) error {
		_, err := r.process.rpc.Stop(ctx, &driverpb.StopRequest{})
		return err
	})
}

func (r *remote) Change(ctx context.Context, p engine.Plan) (effect framework.Effect, err error) {
	if err := r.checkPlan(&p); err != nil {
		return framework.Live, err
	}
	err = r.process.call(ctx, "change", func(ctx context.Context) error {
		pb, err := r.process.rpc.Change(ctx, planTo(p))
		effect = min(framework.Effect(pb.GetEffect()), framework.Reset)
		return err
	})
	return effect, err
}

func (r *remote) Effect(ctx context.Context, p engine.Plan) (effect framework.Effect, err error) {
	if err := r.checkPlan(&p); err != nil {
		return framework.Live, err
	}
	err = r.process.call(ctx, "ask what a change takes", func(ctx context.Context) error {
		pb, err := r.process.rpc.Effect(ctx, planTo(p))
		effect = min(framework.Effect(pb.GetEffect()), framework.Reset)
		return err
	})
	return effect, err
}

func (r *remote) SetQuirks(ctx context.Context, values map[string]string) error {
	return r.process.call(ctx, "set quirks", func(ctx context.Context) error {
		_, err := r.process.rpc.SetQuirks(ctx, &driverpb.SetQuirksRequest{Values: values})
		return err
	})
}

func (r *remote) SetFilters(ctx context.Context, f framework.Filters) error {
	return r.process.call(ctx, "set filters", func(ctx context.Context) error {
		_, err := r.process.rpc.SetFilters(ctx, filtersTo(f))
		return err
	})
}

func (r *remote) HardwareCounters(ctx context.Context) (values []uint64, err error) {
	err = r.process.call(ctx, "read counters", func(ctx context.Context) error {
		pb, err := r.process.rpc.HardwareCounters(ctx, &driverpb.HardwareCountersRequest{})
		values = pb.GetValues()
		return err
	})
	return values, err
}

func (r *remote) Detach(ctx context.Context) error {
	err := r.process.call(ctx, "detach", func(ctx context.Context) error {
		_, err := r.process.rpc.Detach(ctx, &driverpb.DetachRequest{})
		return err
	})
	r.stop()
	r.joined.Wait()
	return err
}
