// Command run compares this repository's engine with its peers and writes a table and a plot.
//
// It is run in the directory of the benchmark's module. It builds each engine, each in a process of its own, and runs
// them in turn (A B C A B C ...), so that whatever else the machine does falls on all of them. What it reports is, for
// each engine and trace, the median over the rounds of the median over the passes of one process, and ratios of these.
// An engine that cannot be built or that fails is an error: a table with a gap would say that nothing was there.
//
// DPDK is built against the installed libdpdk (pkg-config); the other peers come through Go modules.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"nicd/bench/trace"
)

// peer is one engine: how its binary is made, and with which arguments it is started.
type peer struct {
	name  string
	label string
	build func(dir string) (binary string, err error)
	args  func(dir string) []string
}

func peers() []peer {
	return []peer{
		{"nicd", "nicd lro", goBuild("nicd"), none},
		{"gvisor", "gVisor", goBuild("gvisor"), none},
		{"dpdk", "DPDK + ptype", buildDPDK, dpdkArgs},
		{"tailscale", "Tailscale", exportBuild("tailscale", "github.com/tailscale/wireguard-go"), none},
		{"wireguard", "wireguard-go", exportBuild("wireguard", "golang.zx2c4.com/wireguard"), none},
	}
}

func none(string) []string { return nil }

// key names one column of the result.
type key struct {
	trace  string
	verify bool
}

// sample is what one process said about one trace.
type sample struct {
	median, best float64
	outputs      int
}

// results are all samples by engine.
type results map[string]map[key][]sample

func main() {
	rounds := flag.Int("rounds", 5, "how often each engine is run")
	out := flag.String("out", "../docs", "directory for lro-bench.md and lro-bench.svg")
	cpu := flag.String("cpu", "", "CPU to pin each engine to (with taskset); empty: none")
	flag.Parse()
	if err := run(*rounds, *out, *cpu); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(rounds int, out, cpu string) error {
	dir, err := os.MkdirTemp("", "lro-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := writeTraces(dir); err != nil {
		return err
	}
	binaries := map[string]string{}
	for _, p := range peers() {
		fmt.Fprintln(os.Stderr, "building", p.name)
		if binaries[p.name], err = p.build(dir); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	all := results{}
	for r := range rounds {
		for _, p := range peers() {
			fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", r+1, rounds, p.name)
			if err := all.measure(p, binaries[p.name], dir, cpu); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
	}
	text := table(all, rounds)
	fmt.Print(text)
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(out, "lro-bench.md"), []byte(text), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "lro-bench.svg"), []byte(plot(all)), 0o644)
}

func writeTraces(dir string) error {
	for _, s := range trace.Specs() {
		f, err := os.Create(filepath.Join(dir, s.String()))
		if err != nil {
			return err
		}
		if err := s.Write(f); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// goBuild builds an engine that needs nothing special.
func goBuild(name string) func(dir string) (string, error) {
	return func(dir string) (string, error) {
		binary := filepath.Join(dir, "bin-"+name)
		return binary, command("go", "build", "-o", binary, "./engines/"+name)
	}
}

// exportBuild builds an engine with a file added to package tun of its module, whose function is not exported. The file
// is added to a copy of the module, as the go command replaces nothing beneath its module cache.
func exportBuild(name, module string) func(dir string) (string, error) {
	return func(dir string) (string, error) {
		where, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
		if err != nil {
			return "", fmt.Errorf("finding %s: %w", module, err)
		}
		copied := filepath.Join(dir, "src-"+name)
		if err := os.CopyFS(copied, os.DirFS(strings.TrimSpace(string(where)))); err != nil {
			return "", err
		}
		if err := copyFile(filepath.Join(copied, "tun", "bench_export.go"), filepath.Join("engines", name, "export.go.txt")); err != nil {
			return "", err
		}
		mod := filepath.Join(dir, name+".mod")
		if err := copyFile(mod, "go.mod"); err != nil {
			return "", err
		}
		if err := copyFile(filepath.Join(dir, name+".sum"), "go.sum"); err != nil {
			return "", err
		}
		if err := command("go", "mod", "edit", "-replace", module+"="+copied, mod); err != nil {
			return "", err
		}
		binary := filepath.Join(dir, "bin-"+name)
		return binary, command("go", "build", "-tags", "export", "-modfile", mod, "-o", binary, "./engines/"+name)
	}
}

func copyFile(to, from string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}

func buildDPDK(dir string) (string, error) {
	flags, err := exec.Command("pkg-config", "--cflags", "--libs", "libdpdk").Output()
	if err != nil {
		return "", fmt.Errorf("libdpdk is not installed (Debian: libdpdk-dev, pkg-config): %w", err)
	}
	binary := filepath.Join(dir, "bin-dpdk")
	args := append([]string{"-O3", "-march=native", "-o", binary, "engines/dpdk/gro.c"}, strings.Fields(string(flags))...)
	return binary, command("cc", args...)
}

func dpdkArgs(dir string) []string {
	args := []string{"--no-huge", "-m", "512", "--no-pci", "--no-telemetry", "--log-level", "1", "-l", "0", "--"}
	for _, s := range trace.Specs() {
		args = append(args, filepath.Join(dir, s.String()))
	}
	return args
}

func command(name string, args ...string) error {
	c := exec.Command(name, args...)
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	return c.Run()
}

// measure runs one engine once.
func (all results) measure(p peer, binary, dir, cpu string) error {
	args := append([]string{binary}, p.args(dir)...)
	if cpu != "" {
		args = append([]string{"taskset", "-c", cpu}, args...)
	}
	c := exec.Command(args[0], args[1:]...)
	c.Stderr = os.Stderr
	output, err := c.Output()
	if err != nil {
		return err
	}
	if all[p.name] == nil {
		all[p.name] = map[key][]sample{}
	}
	for line := range bytes.Lines(output) {
		var k key
		var s sample
		if _, err := fmt.Sscan(string(line), &k.trace, &k.verify, &s.median, &s.best, &s.outputs); err != nil {
			continue // DPDK's libraries talk, too
		}
		all[p.name][k] = append(all[p.name][k], s)
	}
	if len(all[p.name]) == 0 {
		return fmt.Errorf("no results")
	}
	return nil
}

// median returns the median of the rounds' medians; false if the engine does not run this trace.
func (all results) median(name string, k key) (float64, bool) {
	var v []float64
	for _, s := range all[name][k] {
		v = append(v, s.median)
	}
	if len(v) == 0 {
		return 0, false
	}
	slices.Sort(v)
	return v[len(v)/2], true
}

// spread returns the best and the worst of the rounds' medians.
func (all results) spread(name string, k key) (least, most float64) {
	for i, s := range all[name][k] {
		if i == 0 || s.median < least {
			least = s.median
		}
		most = max(most, s.median)
	}
	return least, most
}
