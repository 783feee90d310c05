package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"nicd/console"
	"nicd/daemon"
	"nicd/proto/adminpb"
)

// callPatience bounds a call: loading a plugin takes the longest, and nicd says
// itself when it has waited long enough for that.
const callPatience = 40 * time.Second

// ask calls a running daemon.
func (f *flags) ask(ctx context.Context, do func(context.Context, adminpb.AdminClient) error) error {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	return f.stream(ctx, do)
}

// stream is ask without a limit in time.
func (f *flags) stream(ctx context.Context, do func(context.Context, adminpb.AdminClient) error) error {
	path, err := f.socketPath()
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	err = do(ctx, adminpb.NewAdminClient(conn))
	var answer interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &answer) {
		return err // nil, or not the daemon's
	}
	switch s := answer.GRPCStatus(); {
	case errors.Is(ctx.Err(), context.Canceled):
		return errInterrupted
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("the nicd at %s has not answered in %v (its log may say why)", path, callPatience)
	case s.Code() == codes.Unavailable && errors.Is(dialSocket(path), fs.ErrPermission):
		return fmt.Errorf("the nicd at %s is another user's: ask as that user", path)
	case s.Code() == codes.Unavailable && noSocket(path):
		return fmt.Errorf("no nicd runs at %s: start one with \"nicd run\", or say where it is with --socket or --config", path)
	case s.Code() == codes.Unavailable && strings.HasPrefix(s.Message(), brokenOff):
		return fmt.Errorf("the nicd at %s has ended", path)
	default:
		return errors.New(s.Message())
	}
}

// brokenOff is how grpc begins what it says of a connection that broke.
const brokenOff = "error reading from server"

// socketPath is where the daemon listens that is asked.
func (f *flags) socketPath() (string, error) {
	if f.config == "" {
		return daemon.SocketPath(f.socket, ""), nil
	}
	c, err := loadConfig(f.config)
	if err != nil {
		return "", err
	}
	return daemon.SocketPath(f.socket, c.Daemon.Socket), nil
}

var errInterrupted = errors.New("interrupted")

func noSocket(path string) bool { return dialSocket(path) != nil }

// dialSocket says why nobody answers at a socket, nil if somebody does.
func dialSocket(path string) error {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

func statusCommand(f *flags) *cobra.Command {
	return jsonFlag(&cobra.Command{
		Use: "status", Short: "Interfaces and streams at a glance", Args: args(0, 0, "nothing"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.ask(cmd.Context(), func(ctx context.Context, c adminpb.AdminClient) error {
				r, err := c.Status(ctx, &adminpb.StatusRequest{})
				if err != nil {
					return err
				}
				return f.output(r, func(w io.Writer) { console.Status(w, r) })
			})
		},
	}, f)
}

func showCommand(f *flags) *cobra.Command {
	return jsonFlag(&cobra.Command{
		Use: "show IFACE", Short: "Features, quirks, queues, placement, revision and link of an interface", Args: args(1, 1, "an interface"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.ask(cmd.Context(), func(ctx context.Context, c adminpb.AdminClient) error {
				r, err := c.ShowInterface(ctx, &adminpb.InterfaceRequest{Name: args[0]})
				if err != nil {
					return err
				}
				return f.output(r, func(w io.Writer) { console.Interface(w, r) })
			})
		},
	}, f)
}

func explainCommand(f *flags) *cobra.Command {
	return jsonFlag(&cobra.Command{
		Use: "explain IFACE [FEATURE]", Short: "Why a feature is on or off, or what keeps an interface from receiving more", Args: args(1, 2, "an interface and a feature or nothing"),
		Long: `With a feature: the chain of reasons behind its state.

Without: look at the interface for a second and say what keeps it from receiving
more, as far as nicd can see that: packets dropped or lost and by whom, rings and
buffers that run short, a poll budget, queue or processor that does not suffice,
who merges segments or why nobody does, checksums, MTU, interrupts, the link.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.ask(cmd.Context(), func(ctx context.Context, c adminpb.AdminClient) error {
				if len(args) == 1 {
					return f.diagnose(ctx, c, args[0])
				}
				r, err := c.Explain(ctx, &adminpb.ExplainRequest{Interface: args[0], Feature: args[1]})
				if err != nil {
					return err
				}
				return f.output(r, func(w io.Writer) { console.Explain(w, r) })
			})
		},
	}, f)
}

func (f *flags) diagnose(ctx context.Context, c adminpb.AdminClient, name string) error {
	r, err := c.Diagnose(ctx, &adminpb.InterfaceRequest{Name: name})
	if err != nil {
		return err
	}
	return f.output(r, func(w io.Writer) { console.Diagnosis(w, r) })
}

func statsCommand(f *flags) *cobra.Command {
	var watch, all bool
	cmd := jsonFlag(&cobra.Command{
		Use: "stats IFACE", Short: "Every counter of an interface, per queue", Args: args(1, 1, "an interface"),
		Long: `Every counter of an interface, per queue, since nicd started. One that is a sign of
trouble and not zero has a ! behind its name.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			rates := console.NewCounterRates(all)
			for {
				err := f.ask(cmd.Context(), func(ctx context.Context, c adminpb.AdminClient) error {
					r, err := c.Stats(ctx, &adminpb.InterfaceRequest{Name: args[0]})
					if err != nil {
						return err
					}
					return f.output(r, func(w io.Writer) { rates.Print(w, r, time.Now()) })
				})
				if err != nil || !watch {
					return err
				}
				select {
				case <-cmd.Context().Done():
					return nil
				case <-time.After(refresh):
				}
			}
		},
	}, f)
	cmd.Flags().BoolVar(&watch, "watch", false, "print again every second until interrupted, with what was counted a second meanwhile")
	cmd.Flags().BoolVar(&all, "all", false, "also counters that are zero (JSON has them always)")
	return cmd
}

func driverCommand(f *flags) *cobra.Command {
	return group("driver", "List, load and unload drivers", driverListCommand(f), driverLoadCommand(f), complete(driverUnloadCommand(f), f.drivers, nothingMore))
}

func driverListCommand(f *flags) *cobra.Command {
	return jsonFlag(&cobra.Command{
		Use: "list", Short: "Drivers that the daemon knows", Args: args(0, 0, "nothing"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.ask(cmd.Context(), func(ctx context.Context, c adminpb.AdminClient) error {
				r, err := c.ListDrivers(ctx, &adminpb.ListDriversRequest{})
				if err != nil {
					return err
				}
				return f.output(r, func(w io.Writer) { console.Drivers(w, r.Drivers) })
			})
		},
	}, f)
}

func driverLoadCommand(f *flags) *cobra.Command {
	var sum string
	cmd := jsonFlag(&cobra.Command{
		Use: "load FILE", Short: "Load a driver plugin and say which devices it matches", Args: args(1, 1, "a plugin's file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			return f.ask(cmd.Context(), func(ctx context.Context, c adminpb.AdminClient) error {
				r, err := c.LoadDriver(ctx, &adminpb.LoadDriverRequest{Path: path, Sha256: sum})
				if err != nil {
					return err
				}
				return f.output(r, func(w io.Writer) { console.Driver(w, r) })
			})
		},
	}, f)
	cmd.Flags().StringVar(&sum, "sha256", "", "refuse the file if its SHA-256 is another")
	return cmd
}

func driverUnloadCommand(f *flags) *cobra.Command {
	return jsonFlag(&cobra.Command{
		Use: "unload NAME", Short: "Forget a driver that no interface uses", Args: args(1, 1, "a driver"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.ask(cmd.Context(), func(ctx context.Context, c adminpb.AdminClient) error {
				r, err := c.UnloadDriver(ctx, &adminpb.UnloadDriverRequest{Name: args[0]})
				if err != nil {
					return err
				}
				return f.output(r, func(w io.Writer) { fmt.Fprintf(w, "driver %s unloaded\n", args[0]) })
			})
		},
	}, f)
}

// quirksCommand asks a running daemon, which knows the quirks of drivers that it
// has loaded, or lists those of this binary.
func quirksCommand(f *flags) *cobra.Command {
	return jsonFlag(&cobra.Command{
		Use: "quirks [DRIVER]", Short: "All quirks: name, type, default, meaning, reference", Args: args(0, 1, "a driver or nothing"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := &adminpb.ListQuirksRequest{}
			if len(args) == 1 {
				r.Driver = args[0]
			}
			reply, err := f.listQuirks(cmd.Context(), r)
			if err != nil {
				return err
			}
			return f.output(reply, func(w io.Writer) { console.Quirks(w, reply.Quirks) })
		},
	}, f)
}

func (f *flags) listQuirks(ctx context.Context, r *adminpb.ListQuirksRequest) (reply *adminpb.ListQuirksReply, err error) {
	path, err := f.socketPath()
	if err != nil {
		return nil, err
	}
	if noSocket(path) {
		for _, d := range bundled() {
			if r.Driver == "" || r.Driver == d.Describe().Name {
				return &adminpb.ListQuirksReply{Quirks: daemon.Quirks(r.Driver)}, nil
			}
		}
		return nil, fmt.Errorf("there is no bundled driver %q (there are %s), and no nicd runs that might have loaded it", r.Driver, strings.Join(bundledNames(ctx), ", "))
	}
	err = f.ask(ctx, func(ctx context.Context, c adminpb.AdminClient) error {
		reply, err = c.ListQuirks(ctx, r)
		return err
	})
	return reply, err
}
