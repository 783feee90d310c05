// Package soak runs a nicd under load while it changes how its interfaces run, at
// random, for as long as one likes, and fails when a connection stands still or
// is lost, when a counter does not add up, or when something leaks: the loop that
// openbsd-tech's testers of LRO on vmx(4) ran by hand (May 2024), with more to
// change.
//
// What lives here is what is changed, what is watched, and the topology. How a
// change is made and what must hold of a daemon lives in package daemon.
package soak

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"nicd/config"
	"nicd/daemon"
	"nicd/framework"
	"nicd/proto/adminpb"
)

// topology is the text of the config that is run.
//
//go:embed topology.hcl
var topology string

// Options of a Run. Bundled and Out are needed.
type Options struct {
	Bundled   []framework.Driver
	Out       io.Writer // a line for each change, and a summary
	Log       zerolog.Logger
	Duration  time.Duration // under changes; 0 is 30 s
	Seed      uint64        // of what is changed, and when
	Interval  time.Duration // mean time between changes; 0 is 300 ms
	Stall     time.Duration // a stream that moves nothing for so long, and not for want of a processor, has stalled; 0 is 1 s
	InProcess bool          // drivers in this process instead of plugins
	TAP       bool          // TAP ports and the kernel's TCP, in namespaces; needs root
}

func (o Options) withDefaults() Options {
	for _, f := range []struct {
		field *time.Duration
		value time.Duration
	}{{&o.Duration, 30 * time.Second}, {&o.Interval, 300 * time.Millisecond}, {&o.Stall, time.Second}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	return o
}

// ErrFailed: something went wrong that must not; what, stands in the output.
var ErrFailed = errors.New("soak failed")

// startPatience is how long the streams get to begin.
const startPatience = 20 * time.Second

// Run soaks. It returns when everything that it started has ended. An error that
// wraps ErrFailed is a finding; any other means that it could not run. The end of
// ctx ends the soak early, which is no failure.
func Run(ctx context.Context, o Options) error {
	o = o.withDefaults()
	dir, err := os.MkdirTemp("", "nicd-soak-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r := &run{Options: o, random: rand.New(rand.NewPCG(o.Seed, 0)), began: time.Now(), summary: newSummary()}
	outside := ownResources()
	fmt.Fprintf(o.Out, "soak: seed %d, %v, a change every %v or so, a stall is %v\n", o.Seed, o.Duration, o.Interval, o.Stall)
	if err := r.start(ctx, filepath.Join(dir, "socket")); err != nil {
		return err
	}
	r.soak(ctx)
	r.load.stop()
	r.daemon.Stop()
	r.checkOutside(outside)
	return r.finish()
}

// run is a soak under way.
type run struct {
	Options
	random   *rand.Rand
	began    time.Time
	config   *config.Config
	daemon   *daemon.Daemon
	load     load
	watcher  *watcher
	problems []string
	warm     uint64 // private memory after a quarter of the time
	summary  *summary
}

func (r *run) start(ctx context.Context, socket string) error {
	text := topology
	if r.InProcess {
		text = strings.ReplaceAll(text, `"plugin"`, `"in-process"`)
	}
	var names []string
	for _, b := range r.Bundled {
		names = append(names, b.Describe().Name)
	}
	var err error
	if r.config, err = config.Parse("topology.hcl", []byte(text), daemon.Vocabulary(names)); err != nil {
		return err
	}
	if r.TAP {
		withTAPs(r.config)
	}
	r.daemon, err = daemon.Start(ctx, daemon.Options{
		Config: r.config, Bundled: r.Bundled, Socket: socket, Version: &adminpb.Version{}, Log: r.Log,
		Reload: func() (*config.Config, error) { return r.config, nil },
	})
	if err != nil {
		return err
	}
	patience, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("in %v", startPatience))
	defer cancel()
	r.load = netstackLoad{r.daemon}
	if r.TAP {
		r.load = &kernelLoad{config: r.config}
	}
	if err := r.load.start(patience); err != nil {
		r.load.stop()
		r.daemon.Stop()
		return err
	}
	return nil
}

// problem notes and says what went wrong.
func (r *run) problem(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	for _, p := range r.problems {
		if p == text {
			return
		}
	}
	r.problems = append(r.problems, text)
	r.say("PROBLEM: %s", text)
}

// say prints a line with the time since the start.
func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.Out, "%9.3fs  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

// soak changes and watches until time is up or something went wrong, then checks
// what can be checked only at rest.
func (r *run) soak(ctx context.Context) {
	inside := r.resources()
	inside.memory = 0 // it is looked at when all is warm
	r.watcher = watch(r.load.progress, r.daemon.Processes, r.Stall)
	r.changes(ctx)
	r.restore()
	r.settle(ctx)
	r.summary.streams = r.watcher.stop()
	r.summary.blind, r.summary.starved = r.watcher.blind, r.watcher.starved
	r.audit()
	if len(r.problems) == 0 {
		inside.memory = r.warm
		r.checkInside(inside)
	}
	r.summary.status, r.summary.retransmits = r.daemon.Status(), r.load.retransmits()
	r.load.stop()
	patience, cancel := context.WithTimeout(context.Background(), restPatience)
	defer cancel()
	if err := r.daemon.Rest(patience); err != nil {
		r.problem("leak: %v", err)
	}
}

// restPatience is how long TCP gets to say goodbye and buffers to come back.
const restPatience = 10 * time.Second

// changes makes changes at random moments. The first problem ends it.
func (r *run) changes(ctx context.Context) {
	end := time.NewTimer(r.Duration)
	defer end.Stop()
	began := time.Now()
	for {
		if r.warm == 0 && time.Since(began) > r.Duration/4 {
			r.warm = r.resources().memory
		}
		// Between a half and three halves of the mean.
		pause := time.NewTimer(r.Interval/2 + time.Duration(r.random.Int64N(int64(r.Interval))))
		select {
		case <-end.C:
			pause.Stop()
			return
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
		r.change(pick(r.random))
		r.audit()
		if len(r.problems) > 0 {
			return
		}
	}
}

// change makes a change, of one interface after another, and says how long that
// took.
func (r *run) change(c change) {
	began := time.Now()
	effect := "nothing new"
	for _, name := range c.interfaces {
		ctx, cancel := context.WithTimeout(context.Background(), startPatience)
		reply, err := r.daemon.Set(ctx, name, c.settings, false)
		cancel()
		if err != nil {
			r.problem("%v: %v", c, err)
			return
		}
		if len(reply.Changes) > 0 {
			effect = reply.Effect
		}
	}
	r.summary.count(c, effect)
	r.say("%-34s %-11s %6.1f ms", c, effect, float64(time.Since(began).Microseconds())/1000)
}

// restore brings everything back to how it began.
func (r *run) restore() {
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	if _, err := r.daemon.Reload(ctx, false); err != nil {
		r.problem("back to the beginning: %v", err)
		return
	}
	r.say("as it began")
}

// settle lets the streams show that they still move after the last change.
func (r *run) settle(ctx context.Context) {
	select {
	case <-time.After(2 * r.Stall):
	case <-ctx.Done():
	}
}

// audit asks the daemon and the watcher what is wrong.
func (r *run) audit() {
	for _, p := range r.daemon.Audit() {
		r.problem("%s", p)
	}
	for _, p := range append(r.load.lost(), r.watcher.problems()...) {
		r.problem("%s", p)
	}
}

// finish prints the summary.
func (r *run) finish() error {
	r.summary.print(r.Out, time.Since(r.began))
	if len(r.problems) == 0 {
		fmt.Fprintln(r.Out, "soak: no stall, no connection lost, all counters add up, no leak")
		return nil
	}
	return fmt.Errorf("%w with seed %d: %s", ErrFailed, r.Seed, strings.Join(r.problems, "; "))
}
