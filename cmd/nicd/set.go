package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"nicd/config"
	"nicd/console"
	"nicd/proto/adminpb"
)

func setCommand(f *flags) *cobra.Command {
	var dry bool
	cmd := jsonFlag(&cobra.Command{
		Use:   "set IFACE NAME=VALUE...",
		Short: "Change settings of a running interface, all or none",
		Long: `Change settings of a running interface, all of them or none. It is said first what
is different afterwards and what each difference takes: nothing (live), a pause
of the queues (quiesce), or a restart of the device (reset). TCP connections and
counters go on in any case.

Settings:
` + lines(config.SettingNames(), 80) + `,
and every quirk by its name (nicd quirks lists them). Features are on, off or,
where the framework can do them, software; lro is also hardware or hybrid.

What was set lasts until the config is reloaded or nicd ends.`,
		Example: "  nicd set vmx0 lro=off\n  nicd set vmx0 mtu=9000 queues=2 tso=software",
		Args:    args(2, 100, "an interface and settings such as mtu=9000"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := &adminpb.SetInterfaceRequest{Name: args[0]}
			for _, a := range args[1:] {
				name, value, ok := strings.Cut(a, "=")
				if !ok || name == "" {
					return &usageError{fmt.Errorf("%q is no setting: it takes NAME=VALUE, such as mtu=9000", a)}
				}
				if slices.ContainsFunc(r.Settings, func(s *adminpb.Setting) bool { return s.Name == name }) {
					return &usageError{fmt.Errorf("%s is set twice", name)}
				}
				r.Settings = append(r.Settings, &adminpb.Setting{Name: name, Value: value})
			}
			return f.ask(cmd.Context(), func(ctx context.Context, c adminpb.AdminClient) error { return f.set(ctx, c, r, dry) })
		},
	}, f)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say what would be changed and what that takes")
	return cmd
}

// lines puts words with commas between them into lines of at most width characters.
func lines(words []string, width int) string {
	var b strings.Builder
	used := 0
	for i, w := range words {
		switch {
		case i == 0:
		case used+len(", ")+len(w)+len(",") > width:
			b.WriteString(",\n")
			used = 0
		default:
			b.WriteString(", ")
			used += len(", ")
		}
		b.WriteString(w)
		used += len(w)
	}
	return b.String()
}

// set says what a change takes, and makes it.
func (f *flags) set(ctx context.Context, c adminpb.AdminClient, r *adminpb.SetInterfaceRequest, dry bool) error {
	r.DryRun = true
	plan, err := c.SetInterface(ctx, r)
	if err != nil {
		return err
	}
	if err := f.plan(plan, dry, func(w io.Writer) { console.Change(w, plan) }); err != nil || dry {
		return err
	}
	r.DryRun = false
	done, err := c.SetInterface(ctx, r)
	if err != nil {
		return err
	}
	return f.output(done, sayDone)
}

// plan says what is to be changed: as JSON only if that is all that is wanted.
func (f *flags) plan(m proto.Message, dry bool, text func(io.Writer)) error {
	if f.json && !dry {
		return nil
	}
	return f.output(m, text)
}

func sayDone(w io.Writer) { fmt.Fprintln(w, "done") }
