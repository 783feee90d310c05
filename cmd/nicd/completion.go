package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"nicd/config"
	"nicd/framework"
	"nicd/proto/adminpb"
)

// completionPatience is how long a shell waits for names that a daemon knows.
const completionPatience = time.Second

// complete has a shell complete a command's arguments: what choices has for the
// first one, the second one, and so on; the last is for all that follow.
func complete(cmd *cobra.Command, choices ...func(context.Context) []string) *cobra.Command {
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
		defer cancel()
		directive := cobra.ShellCompDirectiveNoFileComp
		list := choices[min(len(args), len(choices)-1)](ctx)
		if len(list) > 0 && strings.HasSuffix(list[0], "=") {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		return list, directive
	}
	return cmd
}

// interfaces are those of a running daemon.
func (f *flags) interfaces(ctx context.Context) (names []string) {
	_ = f.ask(ctx, func(ctx context.Context, c adminpb.AdminClient) error {
		r, err := c.Status(ctx, &adminpb.StatusRequest{})
		for _, i := range r.GetInterfaces() {
			names = append(names, i.Name)
		}
		return err
	})
	return names
}

// drivers are those that a running daemon knows.
func (f *flags) drivers(ctx context.Context) (names []string) {
	_ = f.ask(ctx, func(ctx context.Context, c adminpb.AdminClient) error {
		r, err := c.ListDrivers(ctx, &adminpb.ListDriversRequest{})
		for _, d := range r.GetDrivers() {
			names = append(names, d.Name)
		}
		return err
	})
	return names
}

func bundledNames(context.Context) (names []string) {
	for _, d := range bundled() {
		names = append(names, d.Describe().Name)
	}
	return names
}

func features(context.Context) []string { return framework.FeatureNames() }

func nothingMore(context.Context) []string { return nil }

// assignments are settings and quirks to be set.
func assignments(context.Context) []string {
	names := config.SettingNames()
	for _, q := range framework.Quirks() {
		names = append(names, q.Name)
	}
	for n := range names {
		names[n] += "="
	}
	return names
}
