package plugin

import (
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/hashicorp/go-hclog"
	goplugin "github.com/hashicorp/go-plugin"
	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"nicd/framework"
)

// Exit statuses of a plugin.
const (
	exitDone    = 0
	exitFailure = 1
	exitUsage   = 2
)

// Serve makes this process the plugin of a driver. It does not return: the
// process ends when nicd says so, or is gone.
func Serve(d framework.Driver) { serve(d, drive) }

// ServeBundled is for nicd's own main, before anything else: if nicd was started
// as the plugin of one of drivers it serves that and does not return.
func ServeBundled(drivers ...framework.Driver) {
	name := os.Getenv(envBundled)
	if name == "" {
		return
	}
	for _, d := range drivers {
		if d.Describe().Name == name {
			Serve(d)
		}
	}
	fail(exitFailure, "no bundled driver %q", name)
}

func fail(status int, format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(status)
}

func serve(d framework.Driver, a assemble) {
	if os.Getenv(handshake.MagicCookieKey) != handshake.MagicCookieValue {
		fail(exitUsage, "this is the plugin of nicd's driver %q: nicd starts it (nicd driver load %s)", d.Describe().Name, os.Args[0])
	}
	control, err := inheritedControl()
	if err != nil {
		fail(exitFailure, "control socket: %v", err)
	}
	tune(0, false)
	s := &server{driver: d, mailbox: newMailbox(), assemble: a}
	go func() {
		_ = s.mailbox.receive(control)
		os.Exit(exitDone) // nicd is gone or wants us gone
	}()
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig:  handshake,
		VersionedPlugins: map[int]goplugin.PluginSet{ProtocolVersion: {driverPlugin: &grpcPlugin{server: s}}},
		GRPCServer:       goplugin.DefaultGRPCServer,
		Logger:           hclog.New(&hclog.LoggerOptions{Level: hclog.Error, Output: stderr, JSONFormat: true}),
	})
	os.Exit(exitDone)
}

// inheritedControl takes over what nicd left open for the plugin.
func inheritedControl() (*net.UnixConn, error) {
	if fd, err := strconv.Atoi(os.Getenv(envExec)); err == nil && fd > 2 {
		unix.Close(fd)
	}
	fd, err := strconv.Atoi(os.Getenv(envControl))
	if err != nil || fd <= 2 {
		return nil, fmt.Errorf("%s is %q", envControl, os.Getenv(envControl))
	}
	unix.CloseOnExec(fd)
	return unixConn(fd)
}

// stderr is where a plugin logs. go-plugin replaces os.Stderr by a detour
// through gRPC.
var stderr = os.Stderr

// pluginLogger is the log of a plugin: JSON on stderr, for nicd to read.
func pluginLogger() zerolog.Logger {
	level, err := zerolog.ParseLevel(os.Getenv(envLog))
	if err != nil {
		level = zerolog.InfoLevel
	}
	return zerolog.New(stderr).Level(level)
}
