// Package matrix measures ways to run a NIC against each other: devices and their
// revisions, who owns LRO, and whether it was changed on the way, MTU, queues,
// interrupts, plugin or not. It is the table of freebsd-net, February 2020, as a
// program, with what was asked for there: more of its rows, and each understood.
//
// What lives here is the rows, their configs, how one is measured, and the report.
// Each row is a nicd of its own, in this process, over device models, with
// netstack ports or TAP ports and the kernel's TCP above. Figures are good for one
// thing: to be compared with those of the same run.
package matrix

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"nicd/config"
	"nicd/daemon"
	"nicd/framework"
	"nicd/proto/adminpb"
)

// Options of a Run. Bundled is needed.
type Options struct {
	Bundled []framework.Driver
	Rows    []Row         // nil is all
	Time    time.Duration // that each row is measured; 0 is 2 s
	Rounds  int           // how often all rows are run; the median counts; 0 is once
	TAP     bool          // TAP ports and iperf3, in namespaces, instead of netstack ports; needs root
	Log     zerolog.Logger
	// Progress is told each row's result, as it is there; nil is nobody.
	Progress func(Result)
}

// Result is what came of a row.
type Result struct {
	Row
	Gbps float64 `json:"gbps"`
	// Ratio is Gbps by that of the base row; 0 if either was not run.
	Ratio               float64 `json:"ratio_to_base"`
	CPUSecondsPerGB     float64 `json:"cpu_seconds_per_gigabyte"`
	InterruptsPerSecond float64 `json:"interrupts_per_second"`
	PacketsPerSecond    float64 `json:"packets_per_second"` // that the NIC was handed, or sent
	SegmentsPerPacket   float64 `json:"segments_per_packet"`
	Retransmits         uint64  `json:"retransmits"`
	Drops               uint64  `json:"drops"` // of packets, by the NIC's interface, for any reason
	// Idle is the share of the time, in tenths of a second, in which nothing
	// arrived; IdleEnd tells whether all of the last half second was.
	Idle    float64 `json:"idle_share"`
	IdleEnd bool    `json:"idle_at_the_end"`
	// Refusal is what nicd said if it did not start that way.
	Refusal  string   `json:"refusal,omitempty"`
	Problems []string `json:"problems,omitempty"` // why the row is not as it has to be

	cpuSeconds float64 // of the daemon and its plugins
}

// Report is what came of all rows.
type Report struct {
	Seconds float64  `json:"seconds_per_row"`
	Rounds  int      `json:"rounds"`
	Ports   string   `json:"ports"` // "netstack" or "tap"
	Results []Result `json:"rows"`
	OK      bool     `json:"ok"` // every row is as it has to be
}

// Run runs the rows one after another. Findings are in the report; an error means
// that a row could not be run at all, or that ctx has ended.
func Run(ctx context.Context, o Options) (*Report, error) {
	if o.Rows == nil {
		o.Rows = Rows()
	}
	if o.Time == 0 {
		o.Time = 2 * time.Second
	}
	o.Rounds = max(o.Rounds, 1)
	if o.TAP {
		if err := canTAP(); err != nil {
			return nil, fmt.Errorf("matrix with TAP ports: %w", err)
		}
	}
	dir, err := os.MkdirTemp("", "nicd-matrix-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	rounds := make([][]Result, len(o.Rows))
	for range o.Rounds {
		for i, row := range o.Rows {
			r, err := o.measure(ctx, row, filepath.Join(dir, "socket"))
			if err != nil {
				return nil, fmt.Errorf("row %s: %w", row.ID, err)
			}
			rounds[i] = append(rounds[i], r)
			if o.Progress != nil {
				o.Progress(r)
			}
		}
	}
	report := &Report{Seconds: o.Time.Seconds(), Rounds: o.Rounds, Ports: "netstack"}
	if o.TAP {
		report.Ports = "tap"
	}
	for _, results := range rounds {
		report.Results = append(report.Results, median(results))
	}
	report.compare()
	return report, nil
}

// median is the result in the middle; what was wrong in any of them is kept.
func median(results []Result) Result {
	var problems []string
	for _, r := range results {
		problems = append(problems, r.Problems...)
	}
	slices.SortFunc(results, func(a, b Result) int {
		switch {
		case a.Gbps < b.Gbps:
			return -1
		case a.Gbps > b.Gbps:
			return 1
		}
		return 0
	})
	m := results[len(results)/2]
	m.Problems = problems
	return m
}

// compare fills in ratios and judges what depends on them.
func (p *Report) compare() {
	p.OK = true
	for i := range p.Results {
		r := &p.Results[i]
		if base := p.find(r.base()); base != nil && base.Gbps > 0 && r.Expect != Refused {
			r.Ratio = r.Gbps / base.Gbps
			if r.Expect == Collapses && r.Ratio > collapseRatio {
				r.Problems = append(r.Problems, fmt.Sprintf("a negative control that does not show: %.2f of %s", r.Ratio, base.ID))
			}
		}
		p.OK = p.OK && len(r.Problems) == 0
	}
}

func (p *Report) find(id string) *Result {
	for i := range p.Results {
		if p.Results[i].ID == id {
			return &p.Results[i]
		}
	}
	return nil
}

// base is the ID of the row that this one is compared with.
func (r *Row) base() string {
	if r.Base == "" {
		return r.ID
	}
	return r.Base
}

const (
	startPatience = 20 * time.Second
	// settling is how long TCP gets to find its pace before it is measured, and
	// resettling after each change: a window's worth of 64 KiB packets that comes
	// as single frames all at once is more than a queue has buffers for, and what
	// is lost of it takes a timeout or two.
	settling   = 300 * time.Millisecond
	resettling = time.Second
	// toggling is more than a change takes on any machine.
	toggling = 10 * time.Second
	// tick is how often progress is looked at, and what Result.Idle counts.
	tick = 100 * time.Millisecond
	// lastTicks are the half second that is more than a timeout of TCP's or a busy
	// machine's hiccup.
	lastTicks = 5
)

// measure runs one row.
func (o *Options) measure(ctx context.Context, row Row, socket string) (Result, error) {
	result, names := Result{Row: row}, newTAPs()
	d, err := o.startDaemon(ctx, &row, names, socket)
	if refused(&result, err) {
		return result, nil
	}
	if err != nil {
		return result, err
	}
	defer d.Stop()
	if row.Expect == Refused {
		result.Problems = append(result.Problems, "nicd starts in a way that it has to refuse")
		return result, nil
	}
	var l load = netstackLoad{d}
	if o.TAP {
		l = &kernelLoad{row: &row, taps: names, length: startPatience + row.patience() + o.Time}
	}
	defer l.stop()
	patience, cancel := context.WithTimeoutCause(ctx, startPatience, fmt.Errorf("in %v", startPatience))
	err = l.start(patience)
	cancel()
	still := errors.As(err, new(stillError)) && row.Expect == Collapses
	if err != nil && !still || ctx.Err() != nil {
		return result, errors.Join(err, ctx.Err())
	}
	return result, o.observe(ctx, d, l, &result)
}

func (o *Options) startDaemon(ctx context.Context, row *Row, names taps, socket string) (*daemon.Daemon, error) {
	var drivers []string
	for _, b := range o.Bundled {
		drivers = append(drivers, b.Describe().Name)
	}
	text := row.Config()
	if o.TAP {
		text = row.interfaces(names.ports)
	}
	c, err := config.Parse(row.ID+".hcl", []byte(text), daemon.Vocabulary(drivers))
	if err != nil {
		return nil, err
	}
	return daemon.Start(ctx, daemon.Options{Config: c, Bundled: o.Bundled, Socket: socket, Version: &adminpb.Version{}, Log: o.Log})
}

// patience is how long a row takes until it is measured, and then some.
func (r *Row) patience() time.Duration {
	return settling + time.Duration(len(r.Toggles))*(resettling+toggling) + toggling
}

// refused notes that nicd refused a row that it has to refuse.
func refused(r *Result, err error) bool {
	if err == nil || r.Expect != Refused {
		return false
	}
	r.Refusal = err.Error()
	if !strings.Contains(r.Refusal, "unsafe = true") {
		r.Problems = append(r.Problems, "refused for another reason: "+r.Refusal)
	}
	return true
}

// observe measures a running row.
func (o *Options) observe(ctx context.Context, d *daemon.Daemon, l load, r *Result) error {
	if err := pause(ctx, settling); err != nil {
		return err
	}
	if !r.Under {
		for _, value := range r.Toggles {
			if err := toggle(ctx, d, value); err != nil {
				return err
			}
			if err := pause(ctx, resettling); err != nil {
				return err
			}
		}
	}
	before, m := at(l), d.Measure()
	status := d.Status()
	changing, stop := context.WithCancel(ctx)
	var toggler sync.WaitGroup
	var failed error
	if r.Under {
		toggler.Go(func() { failed = keepToggling(changing, d, r.Toggles) })
	}
	err := r.watch(ctx, l, o.Time)
	stop()
	toggler.Wait()
	if err != nil {
		return err
	}
	if failed != nil {
		r.Problems = append(r.Problems, failed.Error())
	}
	r.take(m.Report(), status)
	r.takeLoad(before, at(l))
	r.judge(d, l)
	return nil
}

func toggle(ctx context.Context, d *daemon.Daemon, value string) error {
	_, err := d.Set(ctx, "nic", []daemon.Assignment{{Name: "lro", Value: value}}, false)
	return err
}

// keepToggling goes through the values until ctx ends, one each tick.
func keepToggling(ctx context.Context, d *daemon.Daemon, values []string) error {
	for n := 0; pause(ctx, tick) == nil; n++ {
		if err := toggle(ctx, d, values[n%len(values)]); err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// watch waits for the time to pass and notes when nothing arrived.
func (r *Result) watch(ctx context.Context, l load, length time.Duration) error {
	last, idle, ticks, inARow := l.received(), 0, 0, 0
	for end := time.Now().Add(length); time.Now().Before(end); ticks++ {
		if err := pause(ctx, min(tick, time.Until(end))); err != nil {
			return err
		}
		now := l.received()
		inARow++
		if now != last {
			inARow = 0
		}
		idle += min(inARow, 1)
		last = now
	}
	r.IdleEnd = inARow >= min(lastTicks, ticks)
	r.Idle = float64(idle) / float64(max(ticks, 1))
	return nil
}

// moment is how far a load was at a time.
type moment struct {
	time                  time.Time
	received, retransmits uint64
	cpu                   time.Duration
}

func at(l load) moment { return moment{time.Now(), l.received(), l.retransmits(), l.cpu()} }

// takeLoad takes over what the load did. The daemon's part of the processor time is
// known.
func (r *Result) takeLoad(from, to moment) {
	gigabytes := float64(to.received-from.received) / 1e9
	r.Gbps = 8 * gigabytes / to.time.Sub(from.time).Seconds()
	r.Retransmits = to.retransmits - from.retransmits
	r.CPUSecondsPerGB = 0
	if gigabytes > 0 {
		r.CPUSecondsPerGB = (r.cpuSeconds + (to.cpu - from.cpu).Seconds()) / gigabytes
	}
}

// take takes the figures of the row over from a daemon's report.
func (r *Result) take(p *adminpb.Report, before *adminpb.StatusReply) {
	r.cpuSeconds = p.CpuSeconds
	for n, i := range p.Interfaces {
		if i.Interface.Name != "nic" {
			continue
		}
		r.InterruptsPerSecond = i.InterruptsPerSecond
		r.Drops = i.Interface.Drops - before.Interfaces[n].Drops
		r.PacketsPerSecond, r.SegmentsPerPacket = i.RxPps, i.SegmentsPerDelivered
		if r.Direction == Send {
			r.PacketsPerSecond, r.SegmentsPerPacket = i.TxPps, 0
		}
	}
}

// judge notes what is not as it has to be and can be seen in the row itself.
func (r *Result) judge(d *daemon.Daemon, l load) {
	for _, p := range d.Audit() {
		r.Problems = append(r.Problems, p)
	}
	if err := l.broken(); err != nil && r.Expect == Moves {
		r.Problems = append(r.Problems, err.Error())
	}
	if r.Expect == Moves && r.IdleEnd {
		r.Problems = append(r.Problems, "nothing arrived in the last half second")
	}
}

// pause waits, or fails when ctx ends.
func pause(ctx context.Context, t time.Duration) error {
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errors.Join(ctx.Err(), context.Cause(ctx))
	}
}
