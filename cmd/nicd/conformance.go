package main

import (
	"context"
	"errors"
	"fmt"
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
else uses meanwhile. Its wire is not the kit's, so that what takes a far end is not
applicable.

The exit status is 0 only if no check failed on any device.`,
		Args: args(0, 1, "a driver"),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), args) },
	}
	cmd.Flags().StringVar(&f.bus, "bus", "sim", "where the devices are: sim, the models in this binary; qemu, QEMU's own; or vfio:ADDRESS, a PCI function that is bound to vfio-pci")
	cmd.Flags().StringSliceVar(&f.models, "model", nil, "only these models; all that the driver drives if not given")
	cmd.Flags().StringSliceVar(&f.checks, "check", nil, "only checks whose name begins with one of these")
	cmd.Flags().BoolVar(&f.list, "list", false, "list the checks and run none")
	cmd.Flags().BoolVar(&f.quick, "quick", false, "take fewer turns where a check takes many")
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON, and progress on stderr")
	return cmd
}

func (f *conformanceFlags) run(ctx context.Context, args []string) error {
	if f.list {
		console.ConformanceChecks(os.Stdout, slices.DeleteFunc(drivertest.Describe(), func(r drivertest.Result) bool { return !f.selects(r.Name) }))
		return nil
	}
	if len(args) == 0 {
		return &usageError{errors.New("nicd conformance takes a driver")}
	}
	benches, err := f.benches(args[0])
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

// benches are those that the flags ask for.
func (f *conformanceFlags) benches(name string) ([]drivertest.Bench, error) {
	d, err := bundledDriver(name)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(drivertest.Describe(), func(r drivertest.Result) bool { return f.selects(r.Name) }) {
		return nil, &usageError{fmt.Errorf("no check begins with %s (nicd conformance --list lists them)", strings.Join(f.checks, " or "))}
	}
	benches, err := f.openBenches(d)
	if err != nil {
		return nil, err
	}
	for i := range benches {
		b := &benches[i]
		b.Quick, b.Select = f.quick, f.selects
		b.Progress = func(r drivertest.Result) {
			if r.Status == drivertest.Failed {
				fmt.Fprintf(os.Stderr, "%s: %s failed: %s\n", b.Name, r.Name, strings.Join(r.Problems, "; "))
			}
		}
	}
	return benches, nil
}

// openBenches are a driver's benches on the bus.
func (f *conformanceFlags) openBenches(d framework.Driver) ([]drivertest.Bench, error) {
	if address, ok := strings.CutPrefix(f.bus, "vfio:"); ok {
		if len(f.models) > 0 {
			return nil, &usageError{fmt.Errorf("--model %s: a real device is what it is", strings.Join(f.models, ","))}
		}
		b, err := vfiobench.New(d, address, vfiobench.Options{})
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
	return nil, fmt.Errorf("there is no driver %q in this binary; there are %s", name, strings.Join(names, ", "))
}
