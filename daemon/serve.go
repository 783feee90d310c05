package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/rs/zerolog"

	"nicd/bus/vfiouser"
	"nicd/config"
	"nicd/framework"
	"nicd/sim"
	"nicd/sim/tap"
)

// ServedDevice is a device model for others to use.
type ServedDevice struct {
	Model    string        // as in a config, or one of ModelAliases
	Revision int           // 0 is the model's highest
	MAC      framework.MAC // zero is one of nicd's own
	Socket   string        // where it is served
}

// ModelAliases are the names by which the kernel's drivers know models.
var ModelAliases = map[string]string{"e1000": "82540EM", "e1000e": "82574L"}

// ServeOptions are what ServeDevices needs to know.
type ServeOptions struct {
	Devices []ServedDevice
	// TAP names a Linux interface at the far end of the wire; "" is none.
	TAP string
	Log zerolog.Logger
	// Ready is called when all sockets are there.
	Ready func()
}

var deviceSocket = socketKind{"device socket", "something serves there already", "choose another path"}

// ServeDevices serves device models over vfio-user, all on one wire, to any
// client, until ctx ends (nil) or one can't be served any more. One client at a
// time uses a device. Nothing is left behind.
func ServeDevices(ctx context.Context, o ServeOptions) error {
	if err := o.Check(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	s := &deviceServer{log: o.Log, wire: sim.NewWire(sim.WireOptions{}), fail: cancel}
	defer s.close()
	if o.TAP != "" {
		if err := s.addTAP(ctx, o.TAP); err != nil {
			return err
		}
	}
	for i, d := range o.Devices {
		if err := s.add(ctx, d, i); err != nil {
			return err
		}
	}
	o.Ready()
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// Check finds what is wrong with the options, and fills in defaults. ServeDevices
// does so by itself.
func (o *ServeOptions) Check() error {
	if len(o.Devices) == 0 {
		return errors.New("no device to serve")
	}
	o.Devices = slices.Clone(o.Devices)
	known := Vocabulary(nil).Models
	sockets := map[string]bool{}
	for i := range o.Devices {
		d := &o.Devices[i]
		if name, ok := ModelAliases[d.Model]; ok {
			d.Model = name
		}
		at := slices.IndexFunc(known, func(m config.Model) bool { return m.Name == d.Model })
		if at < 0 {
			return fmt.Errorf("there is no model %q; there are %s", d.Model, strings.Join(ModelNames(), ", "))
		}
		if d.Revision < 0 || d.Revision > known[at].Revisions {
			if known[at].Revisions == 0 {
				return fmt.Errorf("model %s has no revisions", d.Model)
			}
			return fmt.Errorf("model %s has revisions 1 to %d, not %d", d.Model, known[at].Revisions, d.Revision)
		}
		if d.Revision == 0 {
			d.Revision = known[at].Revisions
		}
		if d.MAC == (framework.MAC{}) {
			d.MAC = framework.MAC{0x02, 'n', 'i', 'c', 1, byte(i + 1)}
		}
		if d.Socket == "" {
			return fmt.Errorf("device %d, %s: no socket to serve it at", i+1, d.Model)
		}
		if sockets[d.Socket] {
			return fmt.Errorf("device %d, %s: socket %s is another device's", i+1, d.Model, d.Socket)
		}
		sockets[d.Socket] = true
	}
	return nil
}

// ModelNames are the models that ServeDevices knows, with their aliases.
func ModelNames() []string {
	var names []string
	for _, m := range Vocabulary(nil).Models {
		names = append(names, m.Name)
	}
	for alias := range ModelAliases {
		names = append(names, alias)
	}
	slices.Sort(names)
	return names
}

// deviceServer is what ServeDevices runs.
type deviceServer struct {
	log     zerolog.Logger
	wire    *sim.Wire
	fail    context.CancelCauseFunc
	serving sync.WaitGroup
	undo    []func() // last first, when nothing is served any more
}

func (s *deviceServer) addTAP(ctx context.Context, name string) error {
	end, err := tap.New(name)
	if err != nil {
		return err
	}
	s.undo = append(s.undo, func() { end.Close() })
	s.wire.Connect(end)
	s.serving.Go(func() {
		if err := end.Run(ctx); err != nil {
			s.fail(err)
		}
	})
	return nil
}

func (s *deviceServer) add(ctx context.Context, d ServedDevice, number int) error {
	model, err := newModel(&config.SimDevice{Model: d.Model, Revision: d.Revision, MAC: d.MAC})
	if err != nil {
		return err
	}
	log := s.log.With().Str("device", fmt.Sprintf("%s at %s", d.Model, d.Socket)).Logger()
	device, err := sim.NewDevice(model, sim.Options{
		Name:    fmt.Sprintf("%s-%d", d.Model, number+1),
		OnFault: func(f sim.Fault) { log.Error().Str("fault", f.String()).Msg("the device was refused access to memory") },
	})
	if err != nil {
		return err
	}
	s.undo = append(s.undo, func() { device.Close() })
	listener, err := deviceSocket.listenPrivate(d.Socket)
	if err != nil {
		return err
	}
	s.undo = append(s.undo, func() { listener.Close() })
	s.wire.Connect(model)
	s.serving.Go(func() {
		err := vfiouser.Serve(ctx, listener.UnixListener, device, vfiouser.ServeOptions{
			Report: func(err error) { log.Warn().Err(err).Msg("client") },
		})
		if err != nil && ctx.Err() == nil {
			s.fail(fmt.Errorf("%s at %s: %w", d.Model, d.Socket, err))
		}
	})
	return nil
}

// close ends everything. The wire goes first: its link is down while ends go.
func (s *deviceServer) close() {
	s.fail(nil)
	s.serving.Wait()
	s.wire.Close()
	for n := len(s.undo) - 1; n >= 0; n-- {
		s.undo[n]()
	}
}
