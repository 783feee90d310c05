// Tap measures the kernel's TCP through nicd: two network namespaces, iperf3, a
// TAP port at each end and two simulated NICs on one wire between them. A plain
// veth pair is measured in the same rounds, since only ratios mean something on a
// machine that does other things too.
//
//	go run ./tap -nicd FILE [-rounds 3] [-seconds 5] [-only REGEXP] [-json]
//
// It needs root, /dev/net/tun, ip and iperf3; with DPDK's testpmd (Debian's
// dpdk-dev and librte-meta-net, which make bench-tap installs) that is measured too.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// row is one thing to measure.
type row struct {
	Name    string
	Base    string // the row that it is compared with
	Streams int
	config  string // of nicd; "" is a veth pair
	testpmd bool   // DPDK's, if it is installed
}

func rows() []row {
	return []row{
		{Name: "veth", Streams: 1},
		{Name: "testpmd between two net_tap", Base: "veth", Streams: 1, testpmd: true},
		{Name: "vmxnet3 plugin, lro hardware-only", Base: "veth", Streams: 1, config: pair("plugin", "vmxnet3", vmxnet3, 2, "")},
		{Name: "vmxnet3 in-process, lro hardware-only", Base: "veth", Streams: 1, config: pair("in-process", "vmxnet3", vmxnet3, 2, "")},
		{Name: "vmxnet3 in-process, lro hardware-only, to testpmd", Base: "testpmd between two net_tap", Streams: 1, config: pair("in-process", "vmxnet3", vmxnet3, 2, "")},
		{Name: "vmxnet3 in-process, lro off", Base: "veth", Streams: 1, config: pair("in-process", "vmxnet3", vmxnet3, 2, lroOff)},
		{Name: "vmxnet3 in-process, lro hybrid", Base: "vmxnet3 in-process, lro off", Streams: 1, config: pair("in-process", "vmxnet3", vmxnet3, 2, `quirks { lro-owner = "hybrid" }`)},
		{Name: "vmxnet3 in-process, lro hardware-only again", Base: "vmxnet3 in-process, lro off", Streams: 1, config: pair("in-process", "vmxnet3", vmxnet3, 2, "")},
		{Name: "vmxnet3 in-process, transmit inline", Base: "veth", Streams: 1, config: pair("in-process", "vmxnet3", vmxnet3, 2, `tx_handoff = "inline"`)},
		{Name: "vmxnet3 in-process, transmit abdicate", Base: "vmxnet3 in-process, transmit inline", Streams: 1, config: pair("in-process", "vmxnet3", vmxnet3, 2, "")},
		{Name: "82574L in-process, lro off", Base: "veth", Streams: 1, config: pair("in-process", "e1000", i82574L, 1, lroOff)},
		{Name: "82574L in-process, lro software", Base: "82574L in-process, lro off", Streams: 1, config: pair("in-process", "e1000", i82574L, 1, "")},
		{Name: "veth, 8 streams", Streams: 8},
		{Name: "vmxnet3 in-process, 8 queues and streams", Base: "veth, 8 streams", Streams: 8, config: pair("in-process", "vmxnet3", vmxnet3, 8, "")},
		// A hash finds 8 queues for 8 streams once in 416 times; with many it evens out.
		{Name: "veth, 128 streams", Streams: 128},
		{Name: "vmxnet3 in-process, 8 queues, 128 streams", Base: "veth, 128 streams", Streams: 128, config: pair("in-process", "vmxnet3", vmxnet3, 8, "")},
	}
}

const (
	vmxnet3 = "model = \"vmxnet3\"\n    revision = 3"
	i82574L = "model = \"82574L\""
	lroOff  = "features { lro = false }"
)

// pair is a config of two interfaces that are alike.
func pair(mode, driver, model string, queues int, extra string) string {
	text := fmt.Sprintf("wire \"w0\" {}\ndriver %q { mode = %q }\n", driver, mode)
	for _, name := range taps {
		text += fmt.Sprintf(`
interface %q {
  driver = %q
  rx_queues = %d
  tx_queues = %d
  %s
  device "sim" {
    %s
    wire = "w0"
  }
  port "tap" {}
}
`, name, driver, queues, queues, extra, model)
	}
	return text
}

// Names in namespaces of our own.
var (
	taps   = [2]string{"nbt0", "nbt1"}
	spaces = [2]string{"nicdbench0", "nicdbench1"}
	hosts  = [2]string{"10.99.0.1", "10.99.0.2"}
)

// result is what a row came to in one round.
type result struct {
	Gbps        float64
	Retransmits int
	Bytes       float64
	CPUSeconds  float64 // of nicd, its plugins and iperf3
	// Queues is how many frames on the wire came to each receive queue of the
	// receiver; empty without nicd.
	Queues []float64
}

type bench struct {
	nicd    string
	seconds int
	dir     string
}

func main() {
	b := &bench{}
	rounds := flag.Int("rounds", 3, "measure each row so often; the median counts")
	only := flag.String("only", "", "measure rows whose name matches, and what they are compared with")
	asJSON := flag.Bool("json", false, "print JSON")
	flag.StringVar(&b.nicd, "nicd", "nicd", "the nicd binary")
	flag.IntVar(&b.seconds, "seconds", 5, "of each measurement")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := b.run(ctx, *rounds, *only, *asJSON); err != nil {
		fmt.Fprintln(os.Stderr, "tap:", err)
		os.Exit(1)
	}
}

func (b *bench) run(ctx context.Context, rounds int, only string, asJSON bool) (err error) {
	list, err := choose(only)
	if err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "nicd-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	results := map[string][]result{}
	for round := range rounds {
		for _, r := range list {
			fmt.Fprintf(os.Stderr, "round %d: %s: ", round+1, r.Name)
			got, err := b.measure(ctx, r)
			if err != nil {
				return fmt.Errorf("%s: %w", r.Name, err)
			}
			fmt.Fprintf(os.Stderr, "%.2f Gbit/s\n", got.Gbps)
			results[r.Name] = append(results[r.Name], got)
		}
	}
	return report(list, results, asJSON)
}

// choose is the rows to measure.
func choose(only string) (list []row, err error) {
	match, err := regexp.Compile(only)
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	_, missing := exec.LookPath("dpdk-testpmd")
	if missing != nil {
		fmt.Fprintln(os.Stderr, "rows with testpmd are left out:", missing)
	}
	all := rows()
	for i := len(all) - 1; i >= 0; i-- { // what a row is compared with comes before it
		r := all[i]
		matches := match.MatchString(r.Name) && (missing == nil || !strings.Contains(r.Name, "testpmd"))
		if matches || wanted[r.Name] {
			wanted[r.Name], wanted[r.Base] = true, true
		}
	}
	for _, r := range all {
		if wanted[r.Name] {
			list = append(list, r)
		}
	}
	return list, nil
}

func (b *bench) measure(ctx context.Context, r row) (got result, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(b.seconds+60)*time.Second)
	defer cancel()
	for _, s := range spaces {
		if err := ip(ctx, "netns", "add", s); err != nil {
			return got, err
		}
		defer func() { _ = ip(context.WithoutCancel(ctx), "netns", "delete", s) }()
	}
	stop := func() (float64, error) { return 0, nil }
	switch {
	case r.testpmd:
		stop, err = b.startTestpmd(ctx)
	case r.config != "":
		stop, err = b.start(ctx, r.config)
	default:
		err = ip(ctx, "-n", spaces[0], "link", "add", taps[0], "type", "veth", "peer", "name", taps[1], "netns", spaces[1])
	}
	if err == nil {
		got, err = b.through(ctx, r.Streams)
	}
	if err == nil && r.config != "" {
		got.Queues, err = b.queues(ctx)
	}
	cpu, failed := stop()
	got.CPUSeconds += cpu
	return got, errors.Join(err, failed)
}

// queues asks a running nicd for what each receive queue of the receiver got.
func (b *bench) queues(ctx context.Context) (list []float64, err error) {
	out, err := exec.CommandContext(ctx, b.nicd, "stats", taps[1], "--json", "--socket", b.socket()).Output()
	if err != nil {
		return nil, fmt.Errorf("nicd stats: %w", err)
	}
	var stats struct {
		Queues []struct {
			Kind     string
			Counters []struct {
				Name  string
				Value float64
			}
		}
	}
	if err := json.Unmarshal(out, &stats); err != nil {
		return nil, fmt.Errorf("nicd stats: %w", err)
	}
	for _, q := range stats.Queues {
		for _, c := range q.Counters {
			if q.Kind == "rx" && c.Name == "rx_wire_segments" {
				list = append(list, c.Value)
			}
		}
	}
	return list, nil
}

// socket is nicd's.
func (b *bench) socket() string { return filepath.Join(b.dir, "s") }

// startTestpmd runs DPDK's forwarder between two TAP devices: what a user-space
// driver framework with the kernel's TCP above it is usually compared with.
func (b *bench) startTestpmd(ctx context.Context) (stop func() (float64, error), err error) {
	cmd := exec.CommandContext(ctx, "dpdk-testpmd", "--no-huge", "-m", "512", "--no-pci", "-l", "0,1", "--file-prefix", "nicdbench",
		"--vdev", "net_tap0,iface="+taps[0], "--vdev", "net_tap1,iface="+taps[1], "--",
		"--total-num-mbufs=16384", "--forward-mode=io", "--auto-start")
	stop = func() (float64, error) { return 0, nil }
	if _, err := cmd.StdinPipe(); err != nil { // it ends when its input does
		return stop, err
	}
	if err := cmd.Start(); err != nil {
		return stop, err
	}
	stop = func() (float64, error) {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		return cpu(cmd), nil
	}
	for i, name := range taps {
		for !isUp(ctx, name) {
			select {
			case <-ctx.Done():
				return stop, errors.New("testpmd made no TAP devices")
			case <-time.After(time.Second): // it has no other way to say that it forwards
			}
		}
		if err := ip(ctx, "link", "set", name, "netns", spaces[i]); err != nil {
			return stop, err
		}
	}
	return stop, nil
}

func isUp(ctx context.Context, name string) bool {
	out, err := exec.CommandContext(ctx, "ip", "-o", "link", "show", "up", "dev", name).Output()
	return err == nil && len(out) > 0
}

// through gives both ends their addresses and runs iperf3.
func (b *bench) through(ctx context.Context, streams int) (got result, err error) {
	for i := range taps {
		if err := ip(ctx, "-n", spaces[i], "addr", "add", hosts[i]+"/24", "dev", taps[i]); err != nil {
			return got, err
		}
		if err := ip(ctx, "-n", spaces[i], "link", "set", taps[i], "up"); err != nil {
			return got, err
		}
	}
	return b.iperf(ctx, streams)
}

// start runs nicd and moves its interfaces into the namespaces. stop ends it and
// tells how much processor time it took.
func (b *bench) start(ctx context.Context, text string) (stop func() (float64, error), err error) {
	stop = func() (float64, error) { return 0, nil }
	file := filepath.Join(b.dir, "nicd.hcl")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return stop, err
	}
	socket := b.socket()
	cmd := exec.CommandContext(ctx, b.nicd, "run", "-c", file, "--socket", socket, "--json")
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		return stop, err
	}
	stop = func() (float64, error) {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		var report struct {
			CPUSeconds float64 `json:"cpu_seconds"`
		}
		err := json.Unmarshal([]byte(out.String()), &report)
		return report.CPUSeconds, err
	}
	for ctx.Err() == nil && exec.CommandContext(ctx, b.nicd, "status", "--socket", socket).Run() != nil {
		select {
		case <-ctx.Done():
			return stop, fmt.Errorf("nicd did not start: %s", errs.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
	for i := range taps {
		if err := ip(ctx, "link", "set", taps[i], "netns", spaces[i]); err != nil {
			return stop, err
		}
	}
	return stop, nil
}

func (b *bench) iperf(ctx context.Context, streams int) (got result, err error) {
	server := inSpace(ctx, 1, "iperf3", "-s", "-1")
	if err := server.Start(); err != nil {
		return got, err
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		got.CPUSeconds += cpu(server)
	}()
	for { // until the server listens and the path works
		client := inSpace(ctx, 0, "iperf3", "-c", hosts[1], "-t", fmt.Sprint(b.seconds), "-P", fmt.Sprint(streams), "-J")
		out, _ := client.Output() // what went wrong is in it
		if ctx.Err() != nil {
			return got, ctx.Err()
		}
		if strings.Contains(string(out), "unable to connect") {
			continue
		}
		var report struct {
			Error string `json:"error"`
			End   struct {
				Sent struct {
					Retransmits int `json:"retransmits"`
				} `json:"sum_sent"`
				Received struct {
					Bytes         float64 `json:"bytes"`
					BitsPerSecond float64 `json:"bits_per_second"`
				} `json:"sum_received"`
			} `json:"end"`
		}
		if err := json.Unmarshal(out, &report); err != nil {
			return got, err
		}
		if report.Error != "" {
			return got, fmt.Errorf("iperf3: %s", report.Error)
		}
		end := &report.End
		return result{
			Gbps: end.Received.BitsPerSecond / 1e9, Retransmits: end.Sent.Retransmits, Bytes: end.Received.Bytes, CPUSeconds: cpu(client),
		}, nil
	}
}

// cpu is the processor time of a command that has ended.
func cpu(c *exec.Cmd) float64 {
	return (c.ProcessState.UserTime() + c.ProcessState.SystemTime()).Seconds()
}

func inSpace(ctx context.Context, i int, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", spaces[i]}, args...)...)
}

func ip(ctx context.Context, args ...string) error {
	if out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %s", strings.Join(args, " "), strings.TrimSpace(string(out)))
	}
	return nil
}

// line is a row of the report. Ratio is the median of the rounds' ratios.
type line struct {
	Name        string   `json:"name"`
	Gbps        float64  `json:"gbps"`
	CPU         float64  `json:"cpu_seconds_per_gigabyte"`
	Rounds      []result `json:"rounds"`
	Retransmits int      `json:"retransmits"`
	Base        string   `json:"base,omitempty"`
	Ratio       float64  `json:"ratio,omitempty"`
}

func report(list []row, results map[string][]result, asJSON bool) error {
	var lines []line
	for _, r := range list {
		l := line{Name: r.Name, Rounds: results[r.Name], Base: r.Base}
		var rates, ratios, cpus []float64
		for i, got := range l.Rounds {
			rates = append(rates, got.Gbps)
			cpus = append(cpus, got.CPUSeconds/got.Bytes*1e9)
			l.Retransmits += got.Retransmits
			if r.Base != "" {
				ratios = append(ratios, got.Gbps/results[r.Base][i].Gbps)
			}
		}
		l.Gbps, l.CPU = median(rates), median(cpus)
		if r.Base != "" {
			l.Ratio = median(ratios)
		}
		lines = append(lines, l)
	}
	if asJSON {
		return json.NewEncoder(os.Stdout).Encode(lines)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ROW\tGbit/s\tCPU s/GB\tRETRANSMITS\tQUEUES\tRATIO\tTO")
	for _, l := range lines {
		ratio := ""
		if l.Base != "" {
			ratio = fmt.Sprintf("%.2f", l.Ratio)
		}
		fmt.Fprintf(w, "%s\t%.2f\t%.2f\t%d\t%s\t%s\t%s\n", l.Name, l.Gbps, l.CPU, l.Retransmits, l.spread(), ratio, l.Base)
	}
	fmt.Fprintln(w, "\nQUEUES, of the worst round: receive queues in use, which is from 1 % of the mean on, and the busiest by the mean.")
	return w.Flush()
}

// spread is how the frames came to the receiver's queues.
func (l *line) spread() string {
	text, worst := "", 0.0
	for _, got := range l.Rounds {
		if len(got.Queues) < 2 {
			continue
		}
		sum, busiest, used := 0.0, 0.0, 0
		for _, n := range got.Queues {
			sum, busiest = sum+n, max(busiest, n)
		}
		mean := sum / float64(len(got.Queues))
		for _, n := range got.Queues {
			if n >= mean/100 { // neighbour discovery and iperf3's control are everywhere
				used++
			}
		}
		if busiest/mean > worst {
			worst = busiest / mean
			text = fmt.Sprintf("%d of %d, %.1f", used, len(got.Queues), worst)
		}
	}
	return text
}

func median(list []float64) float64 {
	s := slices.Clone(list)
	slices.Sort(s)
	if len(s) == 0 {
		return 0
	}
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
