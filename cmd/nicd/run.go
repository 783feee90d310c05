package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"nicd/config"
	"nicd/console"
	"nicd/daemon"
)

const (
	refresh        = time.Second
	streamPatience = 15 * time.Second
)

func runCommand(f *flags) *cobra.Command {
	var duration time.Duration
	cmd := jsonFlag(&cobra.Command{
		Use:   "run",
		Short: "Run nicd in the foreground",
		Long: `Run nicd with a config file, or with the embedded config: a vmxnet3 and an 82574L
on a virtual wire, each driven by its plugin, with a TCP stream each way.

The exit status is 0 only if every interface and stream ran to the end and every
counter adds up.`,
		Args: args(0, 0, "flags only, a config with -c FILE"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("for") && duration <= 0 {
				return &usageError{fmt.Errorf("--for %v: it takes a time above zero, such as 10s", duration)}
			}
			return run(cmd.Context(), f, duration)
		},
	}, f)
	cmd.Flags().StringVarP(&f.config, "config", "c", "", "config file (default: the embedded config, see nicd config show)")
	cmd.Flags().DurationVar(&duration, "for", 0, "stop by itself after so long, such as 10s")
	return cmd
}

// run runs nicd until it is told to stop, or for a duration that is not zero.
func run(ctx context.Context, f *flags, duration time.Duration) error {
	c, err := loadConfig(f.config)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	// Who reads what is shown may hang up: that is an error of a write, and nicd ends
	// as it should. Not ignored, since plugins would inherit that.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	live := console.NewLive(os.Stdout, nil)
	screen := isScreen(os.Stdout) && !f.json
	if screen {
		live = console.NewLive(os.Stdout, columns)
	}
	var logs io.Writer = os.Stderr
	if screen && isScreen(os.Stderr) {
		logs = live // both are on one screen
	}
	level, err := zerolog.ParseLevel(c.Daemon.LogLevel)
	if err != nil {
		return err
	}
	log := zerolog.New(zerolog.ConsoleWriter{Out: logs, TimeFormat: time.TimeOnly, NoColor: !isScreen(os.Stderr)}).Level(level).With().Timestamp().Logger()
	hangups := hangupSignals()
	d, err := daemon.Start(ctx, daemon.Options{
		Config: c, Bundled: bundled(), Socket: daemon.SocketPath(f.socket, c.Daemon.Socket), Version: version(), Log: log,
		Reload: func() (*config.Config, error) { return loadConfig(f.config) },
	})
	if err != nil {
		return err
	}
	defer d.Stop()
	defer onHangup(hangups, func() {
		if screen && !isScreen(os.Stdout) {
			end() // the terminal is gone, and who sat there
			return
		}
		reload(ctx, d, log)
	})()
	return measure(ctx, f, d, live, duration)
}

// isScreen tells whether a file is a terminal on which a cursor can be moved.
func isScreen(f *os.File) bool { return term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb" }

// columns is how wide the terminal is now, 0 if there is none or it can't tell.
func columns() int {
	width, _, err := term.GetSize(int(os.Stdout.Fd()))
	if err != nil {
		return 0
	}
	return width
}

func loadConfig(path string) (*config.Config, error) {
	if path == "" {
		return config.Default(vocabulary())
	}
	return config.Load(path, vocabulary())
}

// measure shows what happens until it is enough, and reports.
func measure(ctx context.Context, f *flags, d *daemon.Daemon, live *console.Live, duration time.Duration) error {
	patience, cancel := context.WithTimeoutCause(ctx, streamPatience, fmt.Errorf("in %v", streamPatience))
	err := d.AwaitStreams(patience)
	cancel()
	if err != nil && ctx.Err() == nil {
		return err
	}
	if duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, duration)
		defer cancel()
	}
	m := d.Measure()
	show := func() bool { return f.json || !errors.Is(live.Update(d.Status()), syscall.EPIPE) }
	ticker := time.NewTicker(refresh)
	defer ticker.Stop()
	for watched := show(); watched && ctx.Err() == nil; {
		select {
		case <-ctx.Done():
		case <-ticker.C:
			watched = show()
		}
	}
	r := m.Report()
	if err := f.output(r, func(w io.Writer) { console.Report(w, r, columns()) }); err != nil && !errors.Is(err, syscall.EPIPE) {
		return err
	}
	if !r.Ok {
		return errReported
	}
	return nil
}
