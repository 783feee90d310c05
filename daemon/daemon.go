// Package daemon is nicd at work: it makes a config's wires, devices, interfaces
// and streams, keeps them running until it is told to stop, and answers the
// admin API.
//
// What lives here is the order of things and who is told what: which driver gets
// which device, what quirks and features come to, what happens when a driver
// dies. How a driver runs, how packets flow and what a port does live elsewhere;
// so does everything that a person sees (package console).
package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"

	"nicd/config"
	"nicd/framework"
	"nicd/port/forward"
	"nicd/port/netstack"
	"nicd/proto/adminpb"
	"nicd/sim"
)

// Options of a Daemon. Config is needed.
type Options struct {
	Config *config.Config
	// Reload reads the config again, for Daemon.Reload; nil if that can't be.
	Reload  func() (*config.Config, error)
	Bundled []framework.Driver // drivers that are part of this program
	Socket  string             // path of the admin socket
	Version *adminpb.Version
	Log     zerolog.Logger
}

// Daemon is a running nicd. Start makes one, Stop ends it; the rest may be called
// by any goroutine in between.
type Daemon struct {
	options    Options
	reloading  sync.Mutex
	config     *config.Config // the last one that was put in force; under reloading
	log        zerolog.Logger
	began      time.Time
	catalogue  *catalogue
	wires      map[string]*sim.Wire
	buses      map[string]*qemuBus
	interfaces []*netInterface
	bridges    map[string]*forward.Bridge
	streams    []*stream

	stopStreams context.CancelFunc
	moving      sync.WaitGroup
	listener    net.Listener // keeps a second daemon away until the end
	server      *grpc.Server
	serving     sync.WaitGroup
	peak        peakMemory
}

// Start brings up everything that the config asks for. When it fails, nothing is
// left behind, and the error is one line. ctx bounds the start only.
func Start(ctx context.Context, o Options) (*Daemon, error) {
	d := &Daemon{options: o, config: o.Config, log: o.Log, began: time.Now(), bridges: map[string]*forward.Bridge{}, buses: map[string]*qemuBus{}}
	if err := d.start(ctx); err != nil {
		d.Stop()
		return nil, err
	}
	return d, nil
}

func (d *Daemon) start(ctx context.Context) error {
	// The socket first: a second daemon has to notice before it does anything.
	listener, err := adminSocket.listenPrivate(d.options.Socket)
	if err != nil {
		return err
	}
	d.listener = listener
	if d.options.Config.Daemon.Unsafe {
		d.log.Warn().Msg("the config accepts unsafe quirks: nicd may lose throughput without a word")
	}
	d.catalogue = newCatalogue(d.options.Bundled, d.log)
	if err := d.catalogue.configure(ctx, d.options.Config); err != nil {
		return err
	}
	d.wires = newWires(d.options.Config)
	d.makeInterfaces()
	if err := d.openBuses(ctx); err != nil {
		return err
	}
	if err := d.openInterfaces(ctx); err != nil {
		return err
	}
	d.startStreams()
	d.serve(listener) // nobody is answered before there is something to say
	return nil
}

// serve answers the admin API. The server's Stop waits for the answers that are
// being given: they look at what is ended next.
func (d *Daemon) serve(listener *privateListener) {
	d.server = grpc.NewServer(grpc.WaitForHandlers(true))
	adminpb.RegisterAdminServer(d.server, &adminServer{daemon: d})
	d.serving.Go(func() {
		// It may be stopped before it has begun.
		if err := d.server.Serve(borrowedListener{listener}); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			d.log.Error().Err(err).Msg("the admin socket is not served any more")
		}
	})
}

// makeInterfaces makes all interfaces, which are still to be opened.
func (d *Daemon) makeInterfaces() {
	for _, c := range d.options.Config.Interfaces {
		driverConfig, _ := d.options.Config.Driver(c.Driver)
		i := newInterface(c, driverConfig, d.log)
		i.unsafe = d.options.Config.Daemon.Unsafe
		i.bridge = d.bridgeOf(c.Port.Forward)
		d.interfaces = append(d.interfaces, i)
	}
}

// openInterfaces opens all interfaces at once: most of it is waiting for
// processes to start and links to come up.
func (d *Daemon) openInterfaces(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var opening sync.WaitGroup
	for _, i := range d.interfaces {
		opening.Go(func() {
			if err := i.open(ctx, d.catalogue.get(i.config.Driver), d.wires, d.buses); err != nil {
				cancel(err) // the first error is the one that helps
			}
		})
	}
	opening.Wait()
	return context.Cause(ctx)
}

// bridgeOf is the bridge that a forward port is one of, nil for other ports.
func (d *Daemon) bridgeOf(c *config.ForwardPort) *forward.Bridge {
	if c == nil {
		return nil
	}
	b := d.bridges[c.Bridge]
	if b == nil {
		b = forward.NewBridge(forward.Options{})
		d.bridges[c.Bridge] = b
	}
	return b
}

// startStreams starts the config's TCP streams.
func (d *Daemon) startStreams() {
	ctx, cancel := context.WithCancel(context.Background())
	d.stopStreams = cancel
	for _, c := range d.options.Config.Streams {
		s := newStream(c.Name, c.From, c.To, d.netstackOf(c.From), d.netstackOf(c.To))
		d.streams = append(d.streams, s)
		d.moving.Go(func() { s.run(ctx) })
	}
}

// netstackOf is an interface's port; the config was checked to have one there.
func (d *Daemon) netstackOf(name string) *netstack.Port {
	p, _ := d.find(name).port.(*netstack.Port)
	return p
}

func (d *Daemon) find(name string) *netInterface {
	for _, i := range d.interfaces {
		if i.config.Name == name {
			return i
		}
	}
	return nil
}

// usersOf is the names of the interfaces that a driver drives.
func (d *Daemon) usersOf(driver string) []string {
	var users []string
	for _, i := range d.interfaces {
		if i.config.Driver == driver {
			users = append(users, i.config.Name)
		}
	}
	return users
}

// AwaitStreams waits until all streams move data. A stream that fails is an
// error, and so is the end of ctx.
func (d *Daemon) AwaitStreams(ctx context.Context) error {
	for _, s := range d.streams {
		select {
		case <-s.running:
		case <-s.ended:
			_, reason := s.state()
			return fmt.Errorf("stream %s: %s", s.name, reason)
		case <-ctx.Done():
			return fmt.Errorf("stream %s from %s to %s moved no data: %w", s.name, s.from, s.to, context.Cause(ctx))
		}
	}
	return nil
}

// Stop ends everything in the opposite order. It returns when no process,
// socket, memory file or temporary file is left.
func (d *Daemon) Stop() {
	if d.server != nil {
		d.server.Stop()
	}
	d.serving.Wait()
	if d.stopStreams != nil {
		d.stopStreams()
	}
	d.moving.Wait()
	for _, i := range d.interfaces {
		i.setState(stopped, "")
	}
	for _, w := range d.wires { // before the devices that are their ends
		w.Close()
	}
	var closing sync.WaitGroup
	for _, i := range d.interfaces {
		closing.Go(i.close)
	}
	closing.Wait()
	for _, b := range d.buses {
		closing.Go(b.close)
	}
	closing.Wait()
	if d.listener != nil {
		d.listener.Close()
	}
}

// pids are the processes that belong to the daemon, its own first.
func (d *Daemon) pids() []int {
	pids := []int{os.Getpid()}
	for _, i := range d.interfaces {
		if i.process != nil {
			pids = append(pids, i.process.PID())
		}
	}
	return pids
}
