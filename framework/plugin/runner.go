package plugin

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
)

// procRunner is how go-plugin sees a proc. It gets the handshake line and nothing
// else of the output: go-plugin's own parser of stderr panics on records that
// it does not expect.
type procRunner struct {
	*proc
	exe     *os.File
	control *os.File // the plugin's end
	env     []string
}

func (r *procRunner) Start(context.Context) error {
	return r.proc.start(r.exe, r.env, r.control)
}

func (r *procRunner) Wait(ctx context.Context) error {
	select {
	case <-r.exited:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *procRunner) Kill(ctx context.Context) error {
	r.kill()
	if r.pid() == 0 {
		return nil
	}
	return r.Wait(ctx)
}

func (r *procRunner) Stdout() io.ReadCloser { return &r.first }
func (r *procRunner) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }
func (r *procRunner) Name() string          { return r.name }

func (r *procRunner) Diagnose(context.Context) string { return "" }

var errNotUnix = errors.New("the plugin does not listen on a unix socket")

// PluginToHost passes on addresses of unix sockets only.
func (r *procRunner) PluginToHost(network, addr string) (string, string, error) {
	if network != "unix" {
		return "", "", errNotUnix
	}
	return network, addr, nil
}

func (r *procRunner) HostToPlugin(network, addr string) (string, string, error) {
	return network, addr, nil
}

// ID is "" before the process runs: go-plugin leaves it alone then.
func (r *procRunner) ID() string {
	if pid := r.pid(); pid != 0 {
		return strconv.Itoa(pid)
	}
	return ""
}
