package plugin

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
)

// runner is how go-plugin sees a proc. It gets the handshake line and nothing
// else of the output: go-plugin's own parser of stderr panics on records that
// it does not expect.
type runner struct {
	*proc
	exe     *os.File
	control *os.File // the plugin's end
	env     []string
}

func (r *runner) Start(context.Context) error {
	return r.proc.start(r.exe, r.env, r.control)
}

func (r *runner) Wait(ctx context.Context) error {
	select {
	case <-r.exited:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *runner) Kill(ctx context.Context) error {
	r.kill()
	if r.pid() == 0 {
		return nil
	}
	return r.Wait(ctx)
}

func (r *runner) Stdout() io.ReadCloser { return &r.first }
func (r *runner) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }
func (r *runner) Name() string          { return r.name }

func (r *runner) Diagnose(context.Context) string { return "" }

var errNotUnix = errors.New("the plugin does not listen on a unix socket")

// PluginToHost passes on addresses of unix sockets only.
func (r *runner) PluginToHost(network, addr string) (string, string, error) {
	if network != "unix" {
		return "", "", errNotUnix
	}
	return network, addr, nil
}

func (r *runner) HostToPlugin(network, addr string) (string, string, error) {
	return network, addr, nil
}

// ID is "" before the process runs: go-plugin leaves it alone then.
func (r *runner) ID() string {
	if pid := r.pid(); pid != 0 {
		return strconv.Itoa(pid)
	}
	return ""
}
