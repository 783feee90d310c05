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

	"nicd/bus"
	"nicd/bus/vfio"
	"nicd/bus/vfiouser"
	"nicd/config"
	"nicd/framework"
	"nicd/framework/engine"
	"nicd/framework/link"
	"nicd/framework/plugin"
	"nicd/port/forward"
	"nicd/port/netstack"
	"nicd/port/pcap"
	"nicd/port/sink"
	"nicd/sim"
)

// States of an interface.
const (
	starting = "starting"
	running  = "running"
	failed   = "failed"
	stopped  = "stopped"
)

// stopPatience is how long a driver gets to stop its device before it is killed.
const stopPatience = 3 * time.Second

// netInterface is a configured interface: a device, its driver, the link between
// the driver's engine and nicd, and the port above. What open made is undone by
// close, last first.
type netInterface struct {
	config  config.Interface
	log     zerolog.Logger
	reports zerolog.Logger // of what the driver says that happened: so many a period

	address   string // of the device, for people
	memory    *bus.Memory
	host      *link.Host
	port      framework.Port
	bridge    *forward.Bridge // nil for other ports than forward
	hub       *pcap.Hub       // of capture points
	wire      *sim.Port       // of a simulated device, else nil
	driver    *driver
	process   *plugin.Process // nil in-process
	control   engine.Control
	info      framework.Info
	deviceID  uint16
	subsystem uint32 // PCI's, as framework.Match has it; 0 is unknown
	scattered bool   // the arena is in small pages that an IOMMU puts side by side
	undo      []func()
	stuck     bool           // the engine, in this process, has not ended
	followers sync.WaitGroup // of events
	watchers  sync.WaitGroup // of the process, of violations and of the Linux interface
	driverCfg config.Driver
	unsafe    bool                       // the config accepts unsafe quirks
	imposed   []framework.FeatureSetting // by what the device is part of; the config's own win

	changing sync.Mutex // held by who works out and puts in force how to run; before the others
	wish     wish       // what is in force came of; under changing

	flow   sync.Mutex // serialises those who stop the host
	linkMu sync.Mutex // serialises what the port is told of the link

	mu          sync.Mutex
	state       string
	reason      string
	link        framework.Link
	quirks      *framework.Resolution
	quirkValues map[string]string // of them, as the driver was told
	features    *framework.FeaturePlan
	plan        engine.Plan
}

func newInterface(c config.Interface, d config.Driver, log zerolog.Logger) *netInterface {
	log = log.With().Str("interface", c.Name).Logger()
	return &netInterface{config: c, driverCfg: d, wish: wish{c, d.Quirks}, log: log, reports: reportsTo(log), state: starting, hub: newHub(&c)}
}

// A driver can report events without end, and each would be a record of nicd's own.
// So many a period are logged.
const (
	reportBurst  = 200
	reportPeriod = 10 * time.Second
)

func reportsTo(log zerolog.Logger) zerolog.Logger {
	return log.Sample(&zerolog.BurstSampler{Burst: reportBurst, Period: reportPeriod})
}

func (i *netInterface) atClose(f func()) { i.undo = append(i.undo, f) }

// open brings the interface up. When it fails, close undoes what was done.
func (i *netInterface) open(ctx context.Context, d *driver, wires map[string]*sim.Wire, buses map[string]*qemuBus) error {
	i.driver = d
	device, err := i.openDevice(ctx, wires, buses)
	if err != nil {
		return err
	}
	if err := i.openLink(device); err != nil {
		device.close()
		return err
	}
	if err := device.attach(ctx, i); err != nil {
		return err
	}
	if i.info, err = i.control.Info(ctx); err != nil {
		return fmt.Errorf("interface %s: %w", i.config.Name, err)
	}
	if i.port, err = i.newPort(); err != nil {
		return fmt.Errorf("%s: %w", i.config.Port.Origin, err)
	}
	i.atClose(func() { i.port.Close() })
	if err := i.resolve(ctx); err != nil {
		return err
	}
	return i.start(ctx)
}

// openLink makes the arena and nicd's end of the link.
func (i *netInterface) openLink(device *openedDevice) error {
	queues := arenaQueues(&i.config)
	options := link.Options{Queues: queues, BufferSize: i.config.BufferSize, RxBuffers: defaultRxBuffers}
	if options.BufferSize == 0 {
		options.BufferSize = defaultBufferSize
	}
	if i.config.Buffers != 0 {
		options.RxBuffers = max(1, i.config.Buffers/plannedQueues(&i.config))
	}
	layout, err := options.Layout()
	if err != nil {
		return fmt.Errorf("%s: %w", i.config.Origin, err)
	}
	if i.memory, err = i.newArena(vfio.Host{}, layout.Size(), device.vfio); err != nil {
		return fmt.Errorf("interface %s: %w", i.config.Name, err)
	}
	i.atClose(func() { i.memory.Close() })
	i.host, err = link.NewHost(link.HostOptions{
		Name: i.config.Name, Memory: i.memory, Layout: options,
		OnViolation: i.onViolation,
	})
	if err != nil {
		return fmt.Errorf("interface %s: %w", i.config.Name, err)
	}
	i.atClose(func() {
		i.watchers.Wait()
		i.host.Close()
	})
	return nil
}

// defaultRxBuffers is how many receive buffers a queue has: two rings full for a
// vmxnet3, and as many on their way up.
const defaultRxBuffers = 2048

// defaultBufferSize lets a 64 KiB frame fit 17 fragments: few enough for TSO on a
// vmxnet3 (24 descriptors a packet), and half the descriptors for what it merges.
const defaultBufferSize = 4096

// openedDevice is a device and the way to give it to a driver.
type openedDevice struct {
	bus    bus.Device   // for a driver in this process,
	socket *os.File     // or for a plugin: a vfio-user socket
	vfio   *vfio.Handle // a PCI device, which becomes a bus for a driver in this process
}

// close is for a device that did not get to its driver.
func (o *openedDevice) close() {
	switch {
	case o.socket != nil:
		o.socket.Close()
	case o.vfio != nil:
		o.vfio.Close()
	}
}

// openDevice makes or finds the device and checks that the driver drives it.
func (i *netInterface) openDevice(ctx context.Context, wires map[string]*sim.Wire, buses map[string]*qemuBus) (*openedDevice, error) {
	if c := i.config.Device.VFIOUser; c != nil {
		return i.openRemote(ctx, c)
	}
	if c := i.config.Device.VFIO; c != nil {
		return i.openPCI(vfio.Host{}, c)
	}
	if c := i.config.Device.QEMU; c != nil {
		return i.openQEMU(ctx, *c, buses)
	}
	return i.openModel(ctx, wires)
}

// A driver that gives its device wrong addresses makes a fault of every packet.
// So many a period are logged.
const (
	faultBurst  = 5
	faultPeriod = 10 * time.Second
)

func (i *netInterface) openModel(ctx context.Context, wires map[string]*sim.Wire) (*openedDevice, error) {
	c := i.config.Device.Sim
	model, err := newModel(c)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", i.config.Device.Origin, err)
	}
	faults := i.log.Sample(&zerolog.BurstSampler{Burst: faultBurst, Period: faultPeriod})
	device, err := sim.NewDevice(model, sim.Options{
		Name: i.config.Name,
		OnFault: func(f sim.Fault) {
			faults.Error().Str("fault", f.String()).Msg("the device was refused access to memory")
		},
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", i.config.Device.Origin, err)
	}
	i.atClose(func() { device.Close() })
	i.wire = wires[c.Wire].Connect(&watchedEnd{model, i.hub})
	info := device.Info()
	i.address, i.deviceID = deviceText(&i.config.Device, info), info.Device
	if err := i.driver.drives(info, i.config.Origin); err != nil {
		return nil, err
	}
	return i.give(ctx, device)
}

// give makes a device that this process has one for the driver, which may be in
// another.
func (i *netInterface) give(ctx context.Context, device bus.Device) (*openedDevice, error) {
	if i.driverCfg.Mode == config.InProcess {
		return &openedDevice{bus: device}, nil
	}
	server, client, err := vfiouser.Pair()
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", i.config.Name, err)
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var served sync.WaitGroup
	served.Go(func() {
		err := vfiouser.ServeConn(serving, server, device, vfiouser.ServeOptions{RequireSealed: true})
		if err != nil && serving.Err() == nil {
			i.log.Error().Err(err).Msg("the driver's access to its device ended")
		}
	})
	i.atClose(func() {
		cancel()
		served.Wait()
	})
	return &openedDevice{socket: client}, nil
}

// openRemote connects to a device that another process serves.
func (i *netInterface) openRemote(ctx context.Context, c *config.VFIOUserDevice) (*openedDevice, error) {
	absent := func(err error) error {
		return fmt.Errorf("%s: no device is served at %s: %w", i.config.Device.Origin, c.Socket, err)
	}
	i.address = "vfio-user:" + c.Socket
	if i.driverCfg.Mode == config.InProcess {
		device, err := vfiouser.Dial(ctx, c.Socket, vfiouser.DialOptions{})
		if err != nil {
			return nil, absent(err)
		}
		i.atClose(func() { device.Close() })
		i.deviceID = device.Info().Device
		return &openedDevice{bus: device}, i.driver.drives(device.Info(), i.config.Origin)
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", c.Socket)
	if err != nil {
		return nil, absent(err)
	}
	defer conn.Close()
	file, err := conn.(*net.UnixConn).File()
	if err != nil {
		return nil, absent(err)
	}
	return &openedDevice{socket: file}, nil
}

// attach gives the device to the driver, in a process of its own or in this one.
func (o *openedDevice) attach(ctx context.Context, i *netInterface) (err error) {
	quirks, err := i.initialQuirks()
	if err != nil {
		o.close()
		return fmt.Errorf("interface %s: %w", i.config.Name, err)
	}
	if o.vfio != nil && i.driverCfg.Mode == config.InProcess {
		if err := o.open(i); err != nil {
			return err
		}
	}
	if o.bus != nil {
		i.control, err = plugin.Drive(ctx, i.driver.bundled, o.bus, plugin.DriveConfig{
			Name: i.config.Name, Memory: i.memory, Events: i.host.Events(),
			Generation: i.host.Generation(), Host: i.host, Quirks: quirks, Log: i.log,
		})
		if err != nil {
			return fmt.Errorf("interface %s: %w", i.config.Name, err)
		}
	} else {
		if i.process, err = i.driver.start(ctx, i.log); err != nil {
			o.close()
			return fmt.Errorf("interface %s: %w", i.config.Name, err)
		}
		i.atClose(i.endProcess)
		i.control, err = i.process.Attach(ctx, plugin.AttachConfig{
			Name: i.config.Name, Device: o.socket, VFIO: o.vfio, Memory: i.memory, Events: i.host.Events(),
			Generation: i.host.Generation(), Quirks: quirks,
		})
		if err != nil {
			return i.attachError(err)
		}
	}
	i.atClose(i.detach)
	return i.identify()
}

// initialQuirks are the values that the driver attaches with: what is known of
// the device is what its bus says, if that.
func (i *netInterface) initialQuirks() (map[string]string, error) {
	r, err := framework.ResolveQuirks(i.quirkSources(i.wish, i.facts(framework.Info{}, framework.Link{})))
	if err != nil {
		return nil, err
	}
	return i.driver.valuesOf(r)
}

// facts are what is known of the device, for quirks that go by it.
func (i *netInterface) facts(info framework.Info, link framework.Link) framework.DeviceFacts {
	f := framework.FactsOf(i.deviceID, info, link)
	f.Subsystem, f.Scattered = i.subsystem, i.scattered
	return f
}

// attachError says why a plugin did not attach.
func (i *netInterface) attachError(err error) error {
	if errors.Is(err, framework.ErrNotOurs) {
		return fmt.Errorf("%s: %w; it drives %s", i.config.Device.Origin, err, i.driver.devices())
	}
	return fmt.Errorf("interface %s: %w", i.config.Name, err)
}

// identify learns from the plugin what a device is that only the plugin has spoken
// with, before quirks are resolved for it and it is started.
func (i *netInterface) identify() error {
	if i.process == nil || i.deviceID != 0 {
		return nil
	}
	found := i.process.Device()
	if found == (bus.Info{}) {
		i.log.Warn().Msg("the plugin does not say what device it drives: quirks that go by the device's id do not apply")
		return nil
	}
	i.deviceID, found.Address = found.Device, i.address
	return i.driver.drives(found, i.config.Device.Origin)
}

func (i *netInterface) endProcess() {
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	if err := i.process.Kill(ctx); err != nil {
		i.log.Error().Err(err).Msg("the driver did not end")
	}
}

// stopEngine stops the device, unless the driver does not return: what comes of
// that is for detach to say.
func (i *netInterface) stopEngine() {
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- i.control.Stop(ctx) }()
	select {
	case err := <-stopped:
		if err != nil {
			i.log.Debug().Err(err).Msg("stop")
		}
	case <-ctx.Done():
		i.log.Debug().Msg("the driver has not stopped the device yet")
	}
}

// detach ends the engine and whoever listens to it.
func (i *netInterface) detach() {
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	err := i.control.Detach(ctx)
	if i.stuck = errors.Is(err, engine.ErrEnding); i.stuck {
		i.log.Error().Err(err).Msg("the driver does not return: its device and its memory are left to it")
		return
	}
	if err != nil {
		i.log.Debug().Err(err).Msg("detach")
	}
	i.followers.Wait()
}

// start makes the device run and packets flow. What the operator sets at the Linux
// interface in the meantime waits until it can be done.
func (i *netInterface) start(ctx context.Context) error {
	i.changing.Lock()
	err := i.startFlow(ctx)
	i.changing.Unlock()
	if err != nil {
		return err
	}
	i.follow()
	return nil
}

// startFlow is start. The caller has changing.
func (i *netInterface) startFlow(ctx context.Context) error {
	i.host.Configure(i.portSettings(i.inForce()), i.plan.TxQueues)
	if err := i.port.Attach(i.hub.Interface(i.host)); err != nil {
		return err
	}
	i.port.LinkChanged(framework.Link{}) // a link that never comes up is no change
	if err := i.host.Start(i.hub.Port(i.port, i.host)); err != nil {
		return fmt.Errorf("interface %s: %w", i.config.Name, err)
	}
	i.atClose(i.stopHost)
	if err := i.control.Start(ctx, i.plan); err != nil {
		return fmt.Errorf("interface %s: %w", i.config.Name, err)
	}
	i.atClose(i.stopEngine)
	if !i.setState(running, "") {
		return fmt.Errorf("interface %s: %s", i.config.Name, i.failure())
	}
	return nil
}

// close undoes open. The interface's state is stopped. What a stuck engine stands
// on, which is what was made before it, stays.
func (i *netInterface) close() {
	for len(i.undo) > 0 && !i.stuck {
		last := len(i.undo) - 1
		undo := i.undo[last]
		i.undo = i.undo[:last]
		undo()
	}
}

// resolve works out quirks, features and the plan from what is known of the
// device, and tells the driver about its quirks.
func (i *netInterface) resolve(ctx context.Context) error {
	o, err := i.outcome(i.wish)
	if err != nil {
		return err
	}
	if err := i.control.SetQuirks(ctx, o.values); err != nil {
		return fmt.Errorf("interface %s: %w", i.config.Name, err)
	}
	i.enforce(o)
	return nil
}

func (i *netInterface) currentLink() framework.Link {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.link
}

// setState tells whether the interface is in another state now. It leaves failed
// for stopped only, because the first reason is the one that helps, and stopped
// never.
func (i *netInterface) setState(state, reason string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.state == state || i.state == stopped || i.state == failed && state != stopped {
		return false
	}
	i.state, i.reason = state, reason
	return true
}

// failure is why the interface failed.
func (i *netInterface) failure() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.reason
}

func (i *netInterface) is(state string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.state == state
}

// fail stops the flow of packets and says why. The device's driver may be gone.
func (i *netInterface) fail(reason string) {
	if !i.setState(failed, reason) {
		return
	}
	i.log.Error().Str("reason", reason).Msg("interface failed")
	i.stopHost()
	i.setLink(framework.Link{})
}

// stopHost stops nicd's end of the link, for whichever of close and fail comes
// first. The port can send to a stopped host: it is refused.
func (i *netInterface) stopHost() {
	i.flow.Lock()
	defer i.flow.Unlock()
	i.host.Stop()
}

// onViolation is told that the driver broke the link's rules, by a goroutine that
// must not wait for what comes of it.
func (i *netInterface) onViolation(v *link.Violation) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.state == stopped {
		return // close ends the driver anyway, and waits for watchers
	}
	i.watchers.Go(func() {
		i.fail(v.Error())
		if i.process != nil {
			i.endProcess()
		}
	})
}

func (i *netInterface) newPort() (framework.Port, error) {
	c := &i.config.Port
	switch {
	case c.Netstack != nil:
		return netstack.New(netstack.Options{
			Addresses: c.Netstack.Addresses, Gateway: c.Netstack.Gateway, BufferBytes: c.Netstack.Buffer,
		})
	case c.Sink != nil:
		return &sink.Port{}, nil
	case c.Forward != nil:
		return i.bridge.NewPort(), nil
	case c.TAP != nil:
		return i.newTAP(c.TAP)
	}
	return nil, errors.New("no port")
}
