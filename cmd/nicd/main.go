// Nicd is a user-space NIC driver framework's daemon and the client of a running
// one. This package is flags, commands and wiring.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"nicd/config"
	"nicd/drivers/e1000"
	"nicd/drivers/vmxnet3"
	"nicd/framework"
	"nicd/framework/plugin"
)

// Exit statuses.
const (
	exitFailure = 1
	exitUsage   = 2
)

// bundled are the drivers that are part of this binary.
func bundled() []framework.Driver {
	return []framework.Driver{vmxnet3.New(), e1000.New()}
}

func main() {
	plugin.ServeBundled(bundled()...) // does not return in a driver's process
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends nicd the hard way
	err := rootCommand().ExecuteContext(ctx)
	stop()
	os.Exit(exitStatus(err))
}

// exitStatus says on stderr what went wrong, unless it has been said.
func exitStatus(err error) int {
	var usage *usageError
	var problems config.Diagnostics
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errReported):
		return exitFailure
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "nicd: %v\n", err)
		return exitUsage
	case errors.As(err, &problems):
		fmt.Fprintln(os.Stderr, problems.Detail())
		return exitFailure
	}
	fmt.Fprintf(os.Stderr, "nicd: %v\n", err)
	return exitFailure
}

// errReported: what went wrong stands in the output.
var errReported = errors.New("reported")

// usageError is a mistake in the command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }
