package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"nicd/bus/vfio"
	"nicd/inventory"
)

func devicesCommand() *cobra.Command {
	var asJSON, quirks bool
	cmd := &cobra.Command{
		Use: "devices", Short: "List this machine's NICs and which driver would drive them", Args: args(0, 0, "nothing"),
		RunE: func(*cobra.Command, []string) error {
			nics, err := inventory.Machine{}.List(bundled())
			if err != nil {
				return err
			}
			if asJSON {
				out := json.NewEncoder(os.Stdout)
				out.SetIndent("", "  ")
				return out.Encode(nics)
			}
			return printed(func(w io.Writer) { printNICs(w, nics, quirks) })
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON (the schema is inventory.NIC)")
	cmd.Flags().BoolVar(&quirks, "quirks", false, "with the quirks that the driver declares for each (JSON has them always)")
	return cmd
}

func printNICs(out io.Writer, nics []inventory.NIC, quirks bool) {
	if len(nics) == 0 {
		fmt.Fprintln(out, "there is no PCI NIC here")
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "ADDRESS\tID\tNAME\tKERNEL DRIVER\tINTERFACE\tIOMMU GROUP\tNICD DRIVER")
	for _, n := range nics {
		fmt.Fprintf(w, "%s\t%04x:%04x\t%s\t%s\t%s\t%s\t%s\n", n.Address, n.Vendor, n.Device, dash(n.Name),
			dash(n.KernelDriver), dash(strings.Join(n.Interfaces, " ")), dash(n.IOMMUGroup), dash(n.Driver))
	}
	w.Flush()
	if !quirks {
		return
	}
	for _, n := range nics {
		for _, q := range n.Quirks {
			fmt.Fprintf(out, "%s  %s = %s (%s)\n", n.Address, q.Name, q.Value, q.When)
		}
	}
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func bindCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "bind ADDRESS", Short: "Take a NIC from the kernel, for a device \"vfio\"", Args: args(1, 1, "a PCI address"),
		Long: `Give a NIC to the kernel's vfio-pci driver, so that nicd can open it. An interface
that has addresses or routes is left alone unless --force is given.`,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := (inventory.Machine{}).Bind(args[0], force); err != nil {
				return err
			}
			return sayDriver(args[0], func(driver string) bool { return driver == vfio.KernelDriver })
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also if the interface is in use")
	return cmd
}

func unbindCommand() *cobra.Command {
	return &cobra.Command{
		Use: "unbind ADDRESS", Short: "Give a NIC back to the kernel", Args: args(1, 1, "a PCI address"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := (inventory.Machine{}).Unbind(args[0]); err != nil {
				return err
			}
			return sayDriver(args[0], func(driver string) bool { return driver != vfio.KernelDriver })
		},
	}
}

// sayDriver prints which driver a NIC has now.
func sayDriver(address string, right func(driver string) bool) error {
	d, err := vfio.Host{}.Find(address)
	if err != nil {
		return err
	}
	if !right(d.Driver) {
		return fmt.Errorf("%s: the kernel gave it to %s (its log says why)", address, dash(d.Driver))
	}
	fmt.Printf("%s: kernel driver %s\n", address, dash(d.Driver))
	return nil
}
