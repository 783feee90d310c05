package plugin

import (
	"context"
	"errors"
	"fmt"
	"sync"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"nicd/bus"
	"nicd/framework"
	"nicd/framework/engine"
	"nicd/proto/driverpb"
)

// grpcPlugin is what go-plugin carries: the driver service.
type grpcPlugin struct {
	goplugin.NetRPCUnsupportedPlugin
	server *server // in the plugin
}

func (g *grpcPlugin) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	driverpb.RegisterDriverServer(s, g.server)
	return nil
}

func (g *grpcPlugin) GRPCClient(_ context.Context, _ *goplugin.GRPCBroker, c *grpc.ClientConn) (any, error) {
	return driverpb.NewDriverClient(c), nil
}

// assemble makes an engine over what came with an Attach, which it takes over,
// and says what device that is.
type assemble func(ctx context.Context, d framework.Driver, a *attachment) (engine.Control, bus.Info, error)

// server is the driver service in a plugin. nicd serialises its calls; this
// does not rely on it.
type server struct {
	driverpb.UnimplementedDriverServer
	driver   framework.Driver
	mailbox  *mailbox
	assemble assemble

	mu      sync.Mutex
	used    bool // there was an Attach
	control engine.Control
}

var (
	errAttached    = errors.New("this plugin has attached before: a process drives one device")
	errNotAttached = errors.New("no device is attached")
)

func (s *server) Describe(context.Context, *driverpb.DescribeRequest) (*driverpb.Description, error) {
	return descriptionTo(s.driver.Describe()), nil
}

func (s *server) Attach(ctx context.Context, r *driverpb.AttachRequest) (*driverpb.AttachReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used {
		return nil, toStatus(errAttached)
	}
	s.used = true
	fds, err := s.mailbox.take(ctx, r.GetTicket())
	if err != nil {
		return nil, toStatus(err)
	}
	a, err := openAttachment(r, fds)
	if err != nil {
		return nil, toStatus(err)
	}
	if a.vfio == nil {
		if err := batch(); err != nil {
			a.close()
			return nil, toStatus(err)
		}
	}
	control, device, err := s.assemble(ctx, s.driver, a)
	if err != nil {
		return nil, toStatus(err)
	}
	info, err := control.Info(ctx)
	if err != nil {
		return nil, toStatus(errors.Join(err, control.Detach(context.WithoutCancel(ctx))))
	}
	s.control = control
	return &driverpb.AttachReply{Info: infoTo(info), Identity: identityTo(device)}, nil
}

// with calls do with the engine's control.
func (s *server) with(do func(engine.Control) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.control == nil {
		return toStatus(errNotAttached)
	}
	return toStatus(do(s.control))
}

func (s *server) GetInfo(ctx context.Context, _ *driverpb.GetInfoRequest) (r *driverpb.Info, err error) {
	err = s.with(func(c engine.Control) error {
		info, err := c.Info(ctx)
		r = infoTo(info)
		return err
	})
	return r, err
}

func (s *server) Start(ctx context.Context, r *driverpb.Plan) (*driverpb.StartReply, error) {
	return &driverpb.StartReply{}, s.with(func(c engine.Control) error {
		p, err := planFrom(r)
		if err != nil {
			return err
		}
		tune(max(p.RxQueues, p.TxQueues), p.SpinMicros < 0)
		return c.Start(ctx, p)
	})
}

func (s *server) Stop(ctx context.Context, _ *driverpb.StopRequest) (*driverpb.StopReply, error) {
	return &driverpb.StopReply{}, s.with(func(c engine.Control) error { return c.Stop(ctx) })
}

func (s *server) Change(ctx context.Context, r *driverpb.Plan) (*driverpb.ChangeReply, error) {
	reply := &driverpb.ChangeReply{}
	return reply, s.with(func(c engine.Control) error {
		p, err := planFrom(r)
		if err != nil {
			return err
		}
		effect, err := c.Change(ctx, p)
		reply.Effect = uint32(effect)
		return err
	})
}

func (s *server) Effect(ctx context.Context, r *driverpb.Plan) (*driverpb.ChangeReply, error) {
	reply := &driverpb.ChangeReply{}
	return reply, s.with(func(c engine.Control) error {
		p, err := planFrom(r)
		if err != nil {
			return err
		}
		effect, err := c.Effect(ctx, p)
		reply.Effect = uint32(effect)
		return err
	})
}

func (s *server) SetQuirks(ctx context.Context, r *driverpb.SetQuirksRequest) (*driverpb.SetQuirksReply, error) {
	return &driverpb.SetQuirksReply{}, s.with(func(c engine.Control) error { return c.SetQuirks(ctx, r.GetValues()) })
}

func (s *server) SetFilters(ctx context.Context, r *driverpb.Filters) (*driverpb.SetFiltersReply, error) {
	return &driverpb.SetFiltersReply{}, s.with(func(c engine.Control) error {
		f, err := filtersFrom(r)
		if err != nil {
			return err
		}
		return c.SetFilters(ctx, f)
	})
}

func (s *server) HardwareCounters(ctx context.Context, _ *driverpb.HardwareCountersRequest) (*driverpb.HardwareCountersReply, error) {
	r := &driverpb.HardwareCountersReply{}
	return r, s.with(func(c engine.Control) (err error) {
		r.Values, err = c.HardwareCounters(ctx)
		return err
	})
}

func (s *server) Detach(ctx context.Context, _ *driverpb.DetachRequest) (*driverpb.DetachReply, error) {
	return &driverpb.DetachReply{}, s.with(func(c engine.Control) error {
		s.control = nil
		return c.Detach(ctx)
	})
}

func (s *server) Events(_ *driverpb.EventsRequest, stream grpc.ServerStreamingServer[driverpb.Event]) error {
	s.mu.Lock()
	control := s.control
	s.mu.Unlock()
	if control == nil {
		return status.Error(codes.FailedPrecondition, errNotAttached.Error())
	}
	events := control.Events()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return nil
			}
			if err := stream.Send(eventTo(e)); err != nil {
				return fmt.Errorf("event: %w", err)
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}
