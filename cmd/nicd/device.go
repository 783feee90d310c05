package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nicd/daemon"
	"nicd/framework"
)

func deviceCommand() *cobra.Command {
	return group("device", "Serve device models to other programs", &cobra.Command{
		Use:   "serve MODEL --socket PATH [--revision N] [--mac MAC] [MODEL --socket PATH ...] [--tap NAME]",
		Short: "Serve device models over vfio-user",
		Long: `Serve device models over vfio-user, to QEMU's vfio-user-pci, to cloud-hypervisor,
to a device "vfio-user" of another nicd or to any other client.

Models are vmxnet3, 82540EM (or e1000), 82545EM, 82544GC and 82574L (or e1000e).
All devices of one command are ends of one wire; --tap adds a Linux interface of
that name to it. Each socket takes one client at a time, with permission for this
user alone.

  --socket PATH    where the device before it is served
  --revision N     of a vmxnet3, 1 to 4 (default 4)
  --mac MAC        the device's permanent address
  --tap NAME       a Linux interface at the far end of the wire`,
		DisableFlagParsing: true, // flags belong to the model before them
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := parseServe(args)
			if errors.Is(err, pflag.ErrHelp) {
				return cmd.Help()
			}
			if err == nil {
				err = o.Check()
			}
			if err != nil {
				return &usageError{fmt.Errorf("nicd device serve: %w (nicd device serve --help says how)", err)}
			}
			return serveDevices(cmd.Context(), o)
		},
	})
}

// parseServe reads groups of a model and its flags.
func parseServe(args []string) (o daemon.ServeOptions, err error) {
	for len(args) > 0 {
		d := daemon.ServedDevice{}
		if args[0] != "" && args[0][0] != '-' {
			d.Model, args = args[0], args[1:]
		}
		f := pflag.NewFlagSet("nicd device serve", pflag.ContinueOnError)
		f.SetInterspersed(false) // the next model begins the next group
		f.Usage = func() {}
		f.StringVar(&d.Socket, "socket", "", "")
		f.IntVar(&d.Revision, "revision", 0, "")
		f.StringVar(&o.TAP, "tap", o.TAP, "")
		mac := f.String("mac", "", "")
		if err := f.Parse(args); err != nil {
			return o, err
		}
		if *mac != "" {
			if d.MAC, err = parseMAC(*mac); err != nil {
				return o, err
			}
		}
		if d.Model == "" && (f.Changed("socket") || f.Changed("revision") || f.Changed("mac")) {
			return o, errors.New("the model comes before its flags")
		}
		if d.Model != "" {
			o.Devices = append(o.Devices, d)
		}
		args = f.Args()
	}
	if len(o.Devices) == 0 {
		return o, errors.New("it takes a model and where to serve it")
	}
	return o, nil
}

func parseMAC(text string) (m framework.MAC, err error) {
	hw, err := net.ParseMAC(text)
	if err != nil || len(hw) != len(m) || hw[0]&1 != 0 {
		return m, fmt.Errorf("--mac takes a unicast address such as 02:00:00:00:00:01, not %q", text)
	}
	return framework.MAC(hw), nil
}

func serveDevices(ctx context.Context, o daemon.ServeOptions) error {
	o.Log = zerolog.New(zerolog.ConsoleWriter{Out: os.Stderr, TimeFormat: time.TimeOnly, NoColor: true}).With().Timestamp().Logger()
	o.Ready = func() {
		for _, d := range o.Devices {
			fmt.Printf("%s served at %s\n", d.Model, d.Socket)
		}
	}
	return daemon.ServeDevices(ctx, o)
}
