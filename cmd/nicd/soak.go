package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"nicd/soak"
)

func soakCommand() *cobra.Command {
	var o soak.Options
	var logs bool
	cmd := &cobra.Command{
		Use:   "soak",
		Short: "Change everything under load, for a time, and fail if anything goes wrong",
		Long: `Run six interfaces of both drivers, TCP both ways between two of them and through a
bridge of others, and change LRO, MTU, TSO, checksum offloads, queues and
promiscuity at random, every few hundred milliseconds. Fails on a stream that
stands still for more than a second (or ten, where a process was stopped or got no
processor), on a connection lost, on a counter that does not add up, on a leak.
The seed repeats the changes, not the packets.`,
		Args: args(0, 0, "flags only"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Duration <= 0 || o.Interval <= 0 || o.Stall <= 0 {
				return &usageError{errors.New("--for, --every and --stall take a time above zero, such as 10s")}
			}
			if !cmd.Flags().Changed("seed") {
				o.Seed = rand.Uint64()
			}
			o.Bundled, o.Out, o.Log = bundled(), os.Stdout, zerolog.Nop()
			if logs {
				o.Log = zerolog.New(zerolog.ConsoleWriter{Out: os.Stderr, NoColor: true}).With().Timestamp().Logger()
			}
			err := soak.Run(cmd.Context(), o)
			if errors.Is(err, soak.ErrFailed) {
				fmt.Fprintf(os.Stderr, "nicd: %v\n", err)
				return errReported
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&o.Duration, "for", 30*time.Second, "how long to go on changing")
	cmd.Flags().Uint64Var(&o.Seed, "seed", 0, "of what is changed and when (default: a random one, which is said)")
	cmd.Flags().DurationVar(&o.Interval, "every", 300*time.Millisecond, "mean time between two changes")
	cmd.Flags().DurationVar(&o.Stall, "stall", time.Second, "how long a stream may stand still")
	cmd.Flags().BoolVar(&o.InProcess, "in-process", false, "drivers in nicd instead of plugins")
	cmd.Flags().BoolVar(&o.TAP, "tap", false, "TAP ports and the kernel's TCP instead of the netstack's; needs root")
	cmd.Flags().BoolVar(&logs, "log", false, "log to stderr")
	return cmd
}
