package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"nicd/console"
	"nicd/daemon"
	"nicd/proto/adminpb"
)

func reloadCommand(f *flags) *cobra.Command {
	var dry bool
	cmd := jsonFlag(&cobra.Command{
		Use: "reload", Short: "Have a running nicd read its config again and follow it, or change nothing",
		Long: `Have a running nicd read its config again, check all of it, and change what runs to
what it says. It is said first what that takes. If something in it takes a start
of nicd (wires, devices, ports, drivers' files), or is wrong, nothing is changed.
A running nicd does the same on SIGHUP, but for one under nohup. What "nicd set" set
ends.`,
		Args: args(0, 0, "nothing"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.ask(cmd.Context(), func(ctx context.Context, c adminpb.AdminClient) error {
				plan, err := c.Reload(ctx, &adminpb.ReloadRequest{DryRun: true})
				if err != nil {
					return err
				}
				if err := f.plan(plan, dry, func(w io.Writer) { console.Reload(w, plan) }); err != nil || dry {
					return err
				}
				done, err := c.Reload(ctx, &adminpb.ReloadRequest{})
				if err != nil {
					return err
				}
				return f.output(done, sayDone)
			})
		},
	}, f)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say what would be changed and what that takes")
	return cmd
}

// hangupSignals has SIGHUP end nicd no more. One that comes before onHangup waits
// for it. None comes if nicd was started with SIGHUP ignored, as nohup does: then one
// only says that the terminal has gone.
func hangupSignals() chan os.Signal {
	hangups := make(chan os.Signal, 1)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(hangups, syscall.SIGHUP)
	}
	return hangups
}

// onHangup calls do for each SIGHUP until stop is called, which waits for it.
func onHangup(hangups chan os.Signal, do func()) (stop func()) {
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for range hangups {
			do()
		}
	})
	return func() {
		signal.Stop(hangups)
		close(hangups)
		waiting.Wait()
	}
}

// reload is what SIGHUP asks for.
func reload(ctx context.Context, d *daemon.Daemon, log zerolog.Logger) {
	plan, err := d.Reload(ctx, true)
	if err == nil {
		for _, i := range plan.Interfaces {
			for _, c := range i.Changes {
				log.Info().Str("interface", i.Interface).Str("what", c.What).Str("from", c.From).Str("to", c.To).Str("takes", c.Effect).Msg("to be changed")
			}
		}
		_, err = d.Reload(ctx, false)
	}
	if err != nil {
		log.Error().Err(err).Msg("reload")
		return
	}
	log.Info().Msg("config reloaded")
}
