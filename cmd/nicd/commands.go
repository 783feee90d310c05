package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"nicd/config"
	"nicd/console"
	"nicd/daemon"
	"nicd/framework/plugin"
	"nicd/proto/adminpb"
)

// release is the version of this source.
const release = "0.1.0"

// flags that several commands have.
type flags struct {
	config string
	socket string
	json   bool
}

func rootCommand() *cobra.Command {
	f := &flags{}
	root := &cobra.Command{
		Use:   "nicd",
		Short: "A user-space NIC driver framework",
		Long: `nicd runs NIC drivers as plugins in user space: "nicd run" starts it, the other
commands ask a running one.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return noCommand(cmd, args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{fmt.Errorf("%w (%s --help lists the flags)", err, cmd.CommandPath())}
	})
	root.SetHelpCommand(helpCommand(root))
	root.Version = release // --version; SetVersionTemplate prints as the command does
	root.SetVersionTemplate(versionText())
	speaking := []*cobra.Command{
		runCommand(f), statusCommand(f), complete(showCommand(f), f.interfaces, nothingMore), complete(explainCommand(f), f.interfaces, features, nothingMore),
		complete(statsCommand(f), f.interfaces, nothingMore), complete(captureCommand(f), f.interfaces, nothingMore),
		complete(setCommand(f), f.interfaces, assignments), reloadCommand(f), driverCommand(f), complete(quirksCommand(f), f.drivers, nothingMore),
	}
	for _, c := range speaking {
		c.PersistentFlags().StringVar(&f.socket, "socket", "", "path of the admin socket (else $"+daemon.SocketEnv+", else the config's, else the runtime directory's)")
	}
	for _, c := range speaking[1:] { // run has one with another meaning
		c.PersistentFlags().StringVar(&f.config, "config", "", "config file of the nicd that is asked, for its socket")
	}
	root.AddCommand(speaking...)
	root.AddCommand(
		configCommand(), soakCommand(), matrixCommand(), complete(conformanceCommand(), bundledNames, nothingMore), versionCommand(f),
		deviceCommand(), devicesCommand(), bindCommand(), unbindCommand(),
	)
	return root
}

// versionText is what --version prints.
func versionText() string {
	var b bytes.Buffer
	console.Version(&b, version())
	return b.String()
}

// group is a command of which only the subcommands do anything.
func group(name, short string, subcommands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: name, Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return noCommand(cmd, args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SuggestionsMinimumDistance = 2
	cmd.AddCommand(subcommands...)
	return cmd
}

func noCommand(parent *cobra.Command, name string) error {
	hint := ""
	if s := parent.SuggestionsFor(name); len(s) > 0 {
		hint = fmt.Sprintf("; did you mean %q?", s[0])
	}
	return &usageError{fmt.Errorf("%s has no command %q%s (%s --help lists them)", parent.CommandPath(), name, hint, parent.CommandPath())}
}

// helpCommand is cobra's, but for a command that there is not: then cobra shows the
// root's help, as if that were it.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Help about any command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			switch {
			case err != nil:
				return noCommand(root, args[0])
			case cmd.HasSubCommands() && len(rest) > 0:
				return noCommand(cmd, rest[0])
			}
			return cmd.Help()
		},
	}
}

// args checks how many arguments a command has.
func args(min, max int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < min || len(args) > max {
			s := "s"
			if len(args) == 1 {
				s = ""
			}
			return &usageError{fmt.Errorf("%s takes %s, not %d argument%s", cmd.CommandPath(), what, len(args), s)}
		}
		return nil
	}
}

func jsonFlag(cmd *cobra.Command, f *flags) *cobra.Command {
	cmd.Flags().BoolVar(&f.json, "json", false, "print JSON (the schema is proto/adminpb/admin.proto)")
	return cmd
}

// output prints a message as JSON or as text, and fails if it can't.
func (f *flags) output(m proto.Message, text func(io.Writer)) error {
	if f.json {
		return console.JSON(os.Stdout, m)
	}
	return printed(text)
}

// printed prints a text, and fails if it can't.
func printed(text func(io.Writer)) error {
	var b bytes.Buffer
	text(&b)
	_, err := b.WriteTo(os.Stdout)
	return err
}

func configCommand() *cobra.Command {
	return group("config", "Show the embedded config, or check a file", &cobra.Command{
		Use: "show", Short: "Print the embedded config, a start for one's own", Args: args(0, 0, "nothing"),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Print(config.DefaultSource())
			return err
		},
	}, &cobra.Command{
		Use: "check FILE", Short: "Check a config file without running it", Args: args(1, 1, "a file"),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := config.Load(args[0], vocabulary())
			if err != nil {
				return err
			}
			fmt.Printf("%s: good: %s, %s, %s, %s\n", args[0], counted(len(c.Interfaces), "interface", "s"),
				counted(len(c.Wires), "wire", "s"), counted(len(c.Buses), "bus", "es"), counted(len(c.Streams), "stream", "s"))
			return nil
		},
	})
}

// counted is a number of things.
func counted(n int, thing, plural string) string {
	if n != 1 {
		thing += plural
	}
	return fmt.Sprintf("%d %s", n, thing)
}

func vocabulary() config.Vocabulary {
	var names []string
	for _, d := range bundled() {
		names = append(names, d.Describe().Name)
	}
	return daemon.Vocabulary(names)
}

func versionCommand(f *flags) *cobra.Command {
	return jsonFlag(&cobra.Command{
		Use: "version", Short: "Say which version this is", Args: args(0, 0, "nothing"),
		RunE: func(*cobra.Command, []string) error {
			v := version()
			return f.output(v, func(w io.Writer) { console.Version(w, v) })
		},
	}, f)
}

func version() *adminpb.Version {
	v := &adminpb.Version{Version: release, Go: runtime.Version(), PluginProtocol: plugin.ProtocolVersion}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Revision = s.Value
			}
		}
	}
	return v
}
