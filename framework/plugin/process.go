package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"github.com/rs/zerolog"
	"google.golang.org/grpc"

	"nicd/bus"
	"nicd/proto/driverpb"
)

// Options say which plugin to start and how.
type Options struct {
	// Path is the plugin's file. If it is empty, nicd's own executable is run as
	// the plugin of the driver that Bundled names.
	Path    string
	Bundled string
	// SHA256 is what the file has to have, in hex; "" for no check. What runs is
	// what was summed, whatever becomes of the file.
	SHA256 string
	// Env is added to the plugin's environment, which has nothing of nicd's own.
	Env []string
	// Log gets what the plugin prints, a record a line, with driver, pid and
	// generation added. Its level is the plugin's level too.
	Log        zerolog.Logger
	Driver     string // name for the log until the plugin has said its own
	Generation int    // how often the driver has been started, for the log
	// SocketDir is where the private directory of the plugin's socket is made;
	// "" is the system's place for temporary files.
	SocketDir string
	// StartTimeout bounds Start, from opening the file to the plugin's first
	// answer; 0 is 30 s.
	StartTimeout time.Duration
	// SlowAfter is how long the plugin may take to answer before the log says that
	// it is being waited for; 0 is 5 s.
	SlowAfter time.Duration
}

// Times that plugins get. To start and to attach takes a tenth of a second of a
// processor, but the limits are on the clock: on a machine where tens of others
// want its processors that was 9 s.
const (
	defaultStartTimeout = 30 * time.Second
	defaultCallTimeout  = 30 * time.Second
	defaultSlowAfter    = 5 * time.Second
	exitGrace           = 500 * time.Millisecond // from being asked to exit to being killed
	killTimeout         = 5 * time.Second        // from SIGKILL to giving up
)

// maxReply is the longest answer that a plugin may give.
const maxReply = 1 << 20

// name is what the plugin is called in errors.
func (o Options) name() string {
	if o.Path == "" {
		return "bundled " + o.Bundled
	}
	return o.Path
}

// Process is a running plugin. Its methods are safe for any goroutine.
type Process struct {
	name        string
	log         zerolog.Logger
	slowAfter   time.Duration
	proc        *proc
	client      *goplugin.Client
	rpc         driverpb.DriverClient
	control     *net.UnixConn
	socketDir   string
	description Description
	sum         string   // of the file, in hex
	device      bus.Info // set by Attach
	tickets     atomic.Uint64

	life     context.Context // ends with the process
	died     chan error
	ending   atomic.Bool   // nicd wants it to end
	finished chan struct{} // everything of it is gone
}

// Start starts a plugin and asks what it is. If it fails nothing is left of the
// plugin, and the error is an *Error. ctx bounds the start only.
func Start(ctx context.Context, o Options) (*Process, error) {
	if o.StartTimeout == 0 {
		o.StartTimeout = defaultStartTimeout
	}
	if o.SlowAfter == 0 {
		o.SlowAfter = defaultSlowAfter
	}
	ctx, cancel := context.WithTimeout(ctx, o.StartTimeout)
	defer cancel()
	exe, sum, err := o.executable()
	if err != nil {
		return nil, err
	}
	defer exe.Close()
	p, theirs, err := newProcess(o)
	if err != nil {
		return nil, &Error{Plugin: o.name(), Op: "start", Err: err}
	}
	defer theirs.Close()
	p.sum = sum
	if err := p.launch(ctx, o, exe, theirs); err != nil {
		died := p.diesByItself(ctx)
		p.abandon()
		return nil, p.startError(ctx, o, err, died)
	}
	return p, nil
}

// executable is the file to run and its sha256. nicd's own, which runs already,
// is as good as its checksum and is summed only to compare that.
func (o Options) executable() (exe *os.File, sum string, err error) {
	const own = "/proc/self/exe"
	switch {
	case o.Path != "":
		return openExecutable(o.Path, o.SHA256)
	case o.SHA256 != "":
		return openExecutable(own, o.SHA256)
	}
	exe, err = openProgram(own)
	return exe, "", err
}

// Lengths of socket paths: Linux's limit (unix(7)), and what go-plugin adds to a
// directory at most.
const (
	maxSocketPath = 107
	socketName    = len("/plugin-dir0123456789/plugin0123456789")
)

// newProcess makes all that a process needs besides itself.
func newProcess(o Options) (p *Process, theirs *os.File, err error) {
	p = &Process{
		name:      o.name(),
		slowAfter: o.SlowAfter,
		proc:      newProc(o.name()),
		died:      make(chan error, 1),
		finished:  make(chan struct{}),
	}
	p.log = p.logger(o)
	p.proc.stdout = &output{log: p.log, stream: "stdout"}
	p.proc.stderr = &output{log: p.log, stream: "stderr"}
	if p.socketDir, err = os.MkdirTemp(o.SocketDir, "nicd-plugin-"); err != nil {
		return nil, nil, err
	}
	if len(p.socketDir)+socketName > maxSocketPath {
		os.RemoveAll(p.socketDir)
		return nil, nil, fmt.Errorf("directory %s is too long a name for sockets in it: choose a shorter one (or TMPDIR)", p.socketDir)
	}
	if p.control, theirs, err = controlPair(); err != nil {
		os.RemoveAll(p.socketDir)
		return nil, nil, err
	}
	return p, theirs, nil
}

// logger adds to each record which process it is from. The pid is known by the
// time there is a record.
func (p *Process) logger(o Options) zerolog.Logger {
	driver := o.Driver
	if driver == "" {
		driver = p.name
	}
	pid := zerolog.HookFunc(func(e *zerolog.Event, _ zerolog.Level, _ string) { e.Int("pid", p.proc.pid()) })
	return o.Log.With().Str("driver", driver).Int("generation", o.Generation).Logger().Hook(pid)
}

// launch runs the process and talks to it until it has described itself.
func (p *Process) launch(ctx context.Context, o Options, exe, theirs *os.File) error {
	stop := context.AfterFunc(ctx, p.proc.kill)
	defer stop()
	defer p.warnSlow(ctx, "start")()
	p.client = goplugin.NewClient(&goplugin.ClientConfig{
		HandshakeConfig:  handshake,
		VersionedPlugins: map[int]goplugin.PluginSet{ProtocolVersion: {driverPlugin: &grpcPlugin{}}},
		AllowedProtocols: []goplugin.Protocol{goplugin.ProtocolGRPC},
		AutoMTLS:         true,
		SkipHostEnv:      true,
		StartTimeout:     o.StartTimeout,
		GRPCDialOptions: []grpc.DialOption{
			grpc.WithIdleTimeout(0), // it could not connect again
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)), // go-plugin would take 2 GiB
		},
		Logger:           hclog.NewNullLogger(),
		UnixSocketConfig: &goplugin.UnixSocketConfig{TempDir: p.socketDir},
		SyncStdout:       lineWriter{p.proc.stdout},
		SyncStderr:       lineWriter{p.proc.stderr},
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, _ string) (runner.Runner, error) {
			return &procRunner{proc: p.proc, exe: exe, control: theirs, env: append(cmd.Env, o.env()...)}, nil
		},
	})
	life, end := context.WithCancel(context.Background())
	p.life = life
	go func() {
		defer end()
		select {
		case <-p.proc.exited:
		case <-p.finished: // it never ran
		}
	}()
	protocol, err := p.client.Client()
	if err != nil {
		return err
	}
	raw, err := protocol.Dispense(driverPlugin)
	if err != nil {
		return err
	}
	p.rpc = raw.(driverpb.DriverClient)
	theirs.Close()
	if err := p.describe(ctx); err != nil {
		return err
	}
	// The one connection is made; its name has no more use, and would be left
	// behind if nicd were killed.
	os.RemoveAll(p.socketDir)
	go p.finish()
	return nil
}

// env is what nicd tells the plugin.
func (o Options) env() []string {
	env := append([]string{
		envControl + "=3",
		envExec + "=4",
		envLog + "=" + o.Log.GetLevel().String(),
	}, o.Env...)
	if o.Path == "" {
		env = append(env, envBundled+"="+o.Bundled)
	}
	return env
}

func (p *Process) describe(ctx context.Context) error {
	return p.call(ctx, "describe", func(ctx context.Context) error {
		d, err := p.rpc.Describe(ctx, &driverpb.DescribeRequest{})
		if err != nil {
			return err
		}
		p.description = descriptionFrom(d)
		return p.description.Check()
	})
}

// diesByItself tells whether a process that failed to start has died of that, which
// may be noticed a little later than what it broke.
func (p *Process) diesByItself(ctx context.Context) bool {
	if p.proc.pid() == 0 {
		return false
	}
	select {
	case <-p.proc.exited:
		return true
	case <-time.After(exitNotice):
	case <-ctx.Done():
	}
	return p.hasExited()
}

// startError says in the operator's terms why a plugin did not start. The process is
// gone; died tells whether it was before it was killed.
func (p *Process) startError(ctx context.Context, o Options, err error, died bool) error {
	e, said := &Error{Plugin: p.name, PID: p.proc.pid(), Op: "start", Err: err}, (*Error)(nil)
	line, answered := p.proc.first.get()
	version, spoken := protocolOf(line)
	switch {
	case e.PID == 0 && ctx.Err() == nil:
		e.Err = ErrNotPlugin
		e.Detail = fmt.Sprintf("the system can't run it: %v", systemError(err))
	case spoken && version != fmt.Sprint(ProtocolVersion):
		e.Err = ErrVersion
		e.Detail = fmt.Sprintf("it speaks version %s, this nicd version %d: install the plugin that belongs to this nicd",
			version, ProtocolVersion)
	case answered && !spoken && line != "":
		e.Err = ErrNotPlugin
		e.Detail = fmt.Sprintf("instead of a handshake it printed %.60q", line)
	case answered && !spoken && ctx.Err() == nil:
		e.Err = ErrNotPlugin
		e.Detail = "before a handshake: " + exitDetail(p.proc.state, p.proc.stderr.lastLine())
	case errors.Is(ctx.Err(), context.Canceled):
		e.Err = ctx.Err()
	case ctx.Err() != nil:
		e.Err = ErrTimeout
		e.Detail = fmt.Sprintf("it hangs, or the machine is too busy for it: it was given %v and then killed", o.StartTimeout)
	case died:
		e.Err = ErrExited
		e.Detail = exitDetail(p.proc.state, p.proc.stderr.lastLine())
	case errors.As(err, &said): // it speaks, and what it says is refused
		e.Op, e.Err, e.Detail = said.Op, said.Err, said.Detail
	}
	return e
}

// systemError is the innermost error: how the file is called in /proc is of no
// use to anyone.
func systemError(err error) error {
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		return errno
	}
	return err
}

// abandon ends a process whose start failed. It waits until the process is
// gone.
func (p *Process) abandon() {
	p.proc.kill()
	p.control.Close()
	if p.proc.pid() != 0 {
		<-p.proc.exited
	}
	p.client.Kill()
	os.RemoveAll(p.socketDir)
	close(p.finished)
}

// finish says that the process died and removes what is left of it.
func (p *Process) finish() {
	<-p.proc.exited
	if !p.ending.Load() {
		p.died <- p.exitError("")
	}
	close(p.died)
	p.control.Close()
	p.client.Kill() // only cleans up: the process is gone
	close(p.finished)
}

func (p *Process) exitError(op string) error {
	e := &Error{Plugin: p.name, PID: p.proc.pid(), Op: op, Err: ErrExited}
	if p.ending.Load() {
		e.Err = ErrKilled
		return e
	}
	e.Detail = exitDetail(p.proc.state, p.proc.stderr.lastLine())
	return e
}

func (p *Process) hasExited() bool {
	select {
	case <-p.proc.exited:
		return true
	default:
		return false
	}
}

// PID is the process's id.
func (p *Process) PID() int { return p.proc.pid() }

// Describe says what driver the plugin is, as it said itself at the start.
func (p *Process) Describe() Description { return p.description }

// SHA256 is that of the file that the process was made of, in hex, taken before
// it ran. It is "" of a bundled driver, unless Options had one.
func (p *Process) SHA256() string { return p.sum }

// Died delivers one error, an *Error, when the process ends by itself, at once
// when the kernel knows. It is closed then, and also when Kill ended it.
func (p *Process) Died() <-chan error { return p.died }

// Kill ends the process: it is asked to exit, and made to after half a second,
// or when ctx ends. When Kill returns nil, nothing of it and its children is
// left, neither process nor socket nor file. A process that the kernel can't end
// within seconds is an error, and Kill may be tried again.
func (p *Process) Kill(ctx context.Context) error {
	p.ending.Store(true)
	p.control.Close()
	grace := time.NewTimer(exitGrace)
	defer grace.Stop()
	select {
	case <-p.finished:
		return nil
	case <-grace.C:
	case <-ctx.Done():
	}
	p.proc.kill()
	limit := time.NewTimer(killTimeout)
	defer limit.Stop()
	select {
	case <-p.finished:
		return nil
	case <-limit.C:
		return &Error{Plugin: p.name, PID: p.PID(), Op: "kill", Err: ErrTimeout,
			Detail: fmt.Sprintf("it is alive %v after SIGKILL", killTimeout)}
	}
}

// lineWriter logs what go-plugin forwards of a plugin's redirected output.
type lineWriter struct{ o *output }

func (w lineWriter) Write(b []byte) (int, error) {
	for line := range bytes.Lines(b) {
		w.o.line(bytes.TrimRight(line, "\r\n"))
	}
	return len(b), nil
}
