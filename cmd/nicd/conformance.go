package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"nicd/console"
	"nicd/framework"
	"nicd/framework/drivertest"
	"nicd/framework/drivertest/qemubench"
	"nicd/framework/drivertest/simbench"
	"nicd/framework/drivertest/vfiobench"
)

// conformanceFlags are the command's own.
type conformanceFlags struct {
	bus         string
	models      []string
	checks      []string
	peer        string
	excuses     []string
	list, quick bool
	json        bool
}

func conformanceCommand() *cobra.Command {
	var f conformanceFlags
	cmd := &cobra.Command{
		Use:   "conformance DRIVER",
		Short: "Check that a driver does what every driver has to",
		Long: `Run the conformance kit on a driver that is part of this binary: each check makes
a device of its own and has a sentence that says what holds if it passes. What a
device or its model can't do is not applicable, with the reason. Afterwards the
linter compares the quirks that the driver declares with what the device was seen
to do.

With --bus vfio:0000:03:00.0 the device is a real one (see nicd bind), which nothing
else uses meanwhile. Its far end is then the Linux interface that --peer names: the
second port of a card, or a NIC on the same switch. It has one queue and no address,
and is left as it was. Without --peer what takes a far end is not applicable.

What a device is known not to do, though it offers the feature, is not applicable
with --excuse CHECK=WHY, where CHECK is a check's name or its category.

The exit status is 0 only if no check failed on any device.`,
		Args: args(0, 1, "a driver"),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), args) },
	}
	cmd.Flags().StringVar(&f.bus, "bus", "sim", "where the devices are: sim, the models in this binary; qemu, QEMU's own; or vfio:ADDRESS, a PCI function that is bound to vfio-pci")
	cmd.Flags().StringSliceVar(&f.models, "model", nil, "only these models; all that the driver drives if not given")
	cmd.Flags().StringSliceVar(&f.checks, "check", nil, "only checks whose name begins with one of these")
	cmd.Flags().StringVar(&f.peer, "peer", "", "with --bus vfio:ADDRESS, the Linux interface that is wired to the device")
	cmd.Flags().StringArrayVar(&f.excuses, "excuse", nil, "a check or category that the device can't pass, and why: tso=\"fragments\"")
	cmd.Flags().BoolVar(&f.list, "list", false, "list the checks and run none")
	cmd.Flags().BoolVar(&f.quick, "quick", false, "take fewer turns where a check takes many")
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON, and progress on stderr")
	return cmd
}

func (f *conformanceFlags) run(ctx context.Context, args []string) error {
	if f.list {
		checks := slices.DeleteFunc(drivertest.Describe(), func(r drivertest.Result) bool { return !f.selects(r.Name) })
		return printed(func(w io.Writer) { console.ConformanceChecks(w, checks) })
	}
	if len(args) == 0 {
		return &usageError{errors.New("nicd conformance takes a driver")}
	}
	peer, err := f.openPeer()
	if err != nil {
		return err
	}
	if peer != nil {
		defer peer.Close()
	}
	benches, err := f.benches(ctx, args[0], peer)
	if err != nil {
		return err
	}
	reports, ok := []drivertest.Report{}, true
	for _, b := range benches {
		r := drivertest.Check(ctx, b)
		ok = ok && r.Ok()
		reports = append(reports, r)
		if f.json {
			fmt.Fprintf(os.Stderr, "%s: %s\n", r.Bench, console.ConformanceSummary(&r))
		} else {
			console.Conformance(os.Stdout, &r)
		}
	}
	if peer != nil {
		if err := peer.Close(); err != nil {
			return err
		}
	}
	if f.json {
		if err := console.ConformanceJSON(os.Stdout, reports); err != nil {
			return err
		}
	}
	if !ok {
		return errReported
	}
	return nil
}

// conformanceBuses are where devices can be.
var conformanceBuses = map[string]struct {
	models func(framework.Driver) []string
	open   func(d framework.Driver, model string) (drivertest.Bench, error)
}{
	"sim": {simbench.Models, func(d framework.Driver, model string) (drivertest.Bench, error) {
		return simbench.New(d, model, simbench.Options{Shared: true})
	}},
	"qemu": {qemubench.Models, func(d framework.Driver, model string) (drivertest.Bench, error) {
		return qemubench.New(d, model, qemubench.Options{})
	}},
}

// openPeer takes over the far end that the flags ask for, nil if they do not.
func (f *conformanceFlags) openPeer() (*vfiobench.Peer, error) {
	if f.peer == "" {
		return nil, nil
	}
	if !strings.HasPrefix(f.bus, busVFIO) {
		return nil, &usageError{fmt.Errorf("--peer %s: it takes --bus %sADDRESS, other devices have a far end", f.peer, busVFIO)}
	}
	return vfiobench.OpenPeer(f.peer)
}

// excused are the checks that the operator excuses.
func (f *conformanceFlags) excused() (map[string]string, error) {
	all := map[string]string{}
	for _, e := range f.excuses {
		name, why, ok := strings.Cut(e, "=")
		if !ok || why == "" {
			return nil, &usageError{fmt.Errorf("--excuse %s: it takes CHECK=WHY", e)}
		}
		if !slices.ContainsFunc(drivertest.Describe(), func(r drivertest.Result) bool { return r.Name == name || strings.HasPrefix(r.Name, name+".") }) {
			return nil, &usageError{fmt.Errorf("--excuse %s: there is no check or category %q (nicd conformance --list lists them)", e, name)}
		}
		all[name] = why
	}
	return all, nil
}

// joined is a map with what is in either.
func joined(a, b map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

// benches are those that the flags ask for.
func (f *conformanceFlags) benches(ctx context.Context, name string, peer *vfiobench.Peer) ([]drivertest.Bench, error) {
	d, err := bundledDriver(name)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(drivertest.Describe(), func(r drivertest.Result) bool { return f.selects(r.Name) }) {
		return nil, &usageError{fmt.Errorf("no check begins with %s (nicd conformance --list lists them)", strings.Join(f.checks, " or "))}
	}
	excused, err := f.excused()
	if err != nil {
		return nil, err
	}
	benches, err := f.openBenches(ctx, d, peer)
	if err != nil {
		return nil, err
	}
	for i := range benches {
		b := &benches[i]
		b.Quick, b.Select = f.quick, f.selects
		b.Excused = joined(b.Excused, excused)
		b.Progress = func(r drivertest.Result) {
			if r.Status == drivertest.Failed {
				fmt.Fprintf(os.Stderr, "%s: %s failed: %s\n", b.Name, r.Name, strings.Join(r.Problems, "; "))
			}
		}
	}
	return benches, nil
}

// busVFIO begins a --bus that is one PCI function.
const busVFIO = "vfio:"

// openBenches are a driver's benches on the bus.
func (f *conformanceFlags) openBenches(ctx context.Context, d framework.Driver, peer *vfiobench.Peer) ([]drivertest.Bench, error) {
	if address, ok := strings.CutPrefix(f.bus, busVFIO); ok {
		if len(f.models) > 0 {
			return nil, &usageError{fmt.Errorf("--model %s: a real device is what it is", strings.Join(f.models, ","))}
		}
		b, err := vfiobench.New(ctx, d, address, vfiobench.Options{Peer: peer})
		return []drivertest.Bench{b}, err
	}
	bus, ok := conformanceBuses[f.bus]
	if !ok {
		return nil, &usageError{fmt.Errorf("--bus %s: it takes sim, qemu or vfio:ADDRESS", f.bus)}
	}
	models := f.models
	if len(models) == 0 {
		models = bus.models(d)
	}
	var benches []drivertest.Bench
	for _, m := range models {
		b, err := bus.open(d, m)
		if err != nil {
			return nil, &usageError{err}
		}
		benches = append(benches, b)
	}
	return benches, nil
}

func (f *conformanceFlags) selects(name string) bool {
	return len(f.checks) == 0 || slices.ContainsFunc(f.checks, func(p string) bool { return strings.HasPrefix(name, p) })
}

// bundledDriver is the driver of a name that is part of this binary.
func bundledDriver(name string) (framework.Driver, error) {
	var names []string
	for _, d := range bundled() {
		if d.Describe().Name == name {
			return d, nil
		}
		names = append(names, d.Describe().Name)
	}
	return nil, &usageError{fmt.Errorf("there is no driver %q in this binary; there are %s", name, strings.Join(names, ", "))}
}
