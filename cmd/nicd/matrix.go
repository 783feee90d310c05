package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"nicd/matrix"
)

// matrixFlags are the command's own.
type matrixFlags struct {
	time            time.Duration
	rounds          int
	rows            []string
	list, tap       bool
	json, svg, html string
}

func matrixCommand() *cobra.Command {
	var f matrixFlags
	cmd := &cobra.Command{
		Use:   "matrix",
		Short: "Measure devices, LRO owners, MTUs, queues and interrupts against each other",
		Long: `Measure ways to run a NIC against each other, one after another in one run:
devices and revisions, who owns LRO and whether that was changed on the way, MTU,
queues, kinds of interrupt, plugin or built in. Negative controls, which lose
nearly all throughput, are among them; beside each is a row that shows that nicd
refuses to run that way. docs/matrix.md explains the rows.

The exit status is 0 only if every row came out as it has to.`,
		Args: args(0, 0, "flags only"),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.Context()) },
	}
	cmd.Flags().DurationVar(&f.time, "time", 2*time.Second, "how long each row is measured")
	cmd.Flags().IntVar(&f.rounds, "rounds", 1, "how often all rows are run; the median counts")
	cmd.Flags().StringSliceVar(&f.rows, "rows", nil, "only rows whose ID begins with one of these, and what they are compared with")
	cmd.Flags().BoolVar(&f.tap, "tap", false, "TAP ports, the kernel's TCP and iperf3 instead of netstack ports; needs root")
	cmd.Flags().BoolVar(&f.list, "list", false, "list the rows and run none")
	cmd.Flags().StringVar(&f.json, "json", "", "write the results as JSON to a file")
	cmd.Flags().StringVar(&f.svg, "svg", "", "draw the results to an SVG file")
	cmd.Flags().StringVar(&f.html, "html", "", "write a report with picture and table to an HTML file")
	return cmd
}

func (f *matrixFlags) run(ctx context.Context) error {
	if f.time <= 0 || f.rounds < 1 {
		return &usageError{errors.New("--time takes a time above zero, such as 2s, and --rounds a number above zero")}
	}
	rows := matrix.Select(matrix.Rows(), f.rows)
	if len(rows) == 0 {
		return &usageError{fmt.Errorf("no row begins with %s (nicd matrix --list lists them)", strings.Join(f.rows, " or "))}
	}
	if f.list {
		return printed(func(w io.Writer) { list(w, rows) })
	}
	for _, path := range []string{f.json, f.svg, f.html} {
		if err := canWrite(path); err != nil {
			return err
		}
	}
	report, err := matrix.Run(ctx, matrix.Options{
		Bundled: bundled(), Rows: rows, Time: f.time, Rounds: f.rounds, TAP: f.tap, Log: zerolog.Nop(),
		Progress: func(r matrix.Result) { fmt.Fprintln(os.Stderr, r.Line()) },
	})
	if err != nil {
		return err
	}
	report.Print(os.Stdout)
	for _, out := range []struct {
		path  string
		write func(io.Writer) error
	}{{f.json, report.JSON}, {f.svg, report.SVG}, {f.html, report.HTML}} {
		if err := writeTo(out.path, out.write); err != nil {
			return err
		}
	}
	if !report.OK {
		return errReported
	}
	return nil
}

// list prints rows under the headings of their groups.
func list(w io.Writer, rows []matrix.Row) {
	group := ""
	for _, r := range rows {
		if r.Group != group {
			if group != "" {
				fmt.Fprintln(w)
			}
			group = r.Group
			fmt.Fprintln(w, group)
		}
		fmt.Fprintf(w, "  %-21s  %s\n", r.ID, r.Why)
	}
}

// canWrite finds out whether a file can be written before that takes minutes to come
// to. Nothing is different afterwards.
func canWrite(path string) error {
	if path == "" {
		return nil
	}
	_, err := os.Lstat(path)
	isNew := errors.Is(err, os.ErrNotExist)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	err = file.Close()
	if isNew {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// writeTo writes a file, unless it has no name.
func writeTo(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(file), file.Close())
}
