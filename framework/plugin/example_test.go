package plugin_test

import (
	"context"
	"os"

	"github.com/rs/zerolog"

	"nicd/drivers/vmxnet3"
	"nicd/framework/engine"
	"nicd/framework/link"
	"nicd/framework/plugin"
)

// All of a plugin's main.
func ExampleServe() {
	plugin.Serve(vmxnet3.New())
}

// How nicd gives an interface to a plugin. The device is a connected vfio-user
// socket, the host nicd's end of the interface's link.
func ExampleProcess_Attach() {
	attach := func(ctx context.Context, device *os.File, host *link.Host) (engine.Control, error) {
		p, err := plugin.Start(ctx, plugin.Options{Path: "/usr/lib/nicd/nicd-driver-vmxnet3", Log: zerolog.New(os.Stderr)})
		if err != nil {
			return nil, err
		}
		return p.Attach(ctx, plugin.AttachConfig{
			Name: "vmx0", Device: device,
			Memory: host.Memory(), Events: host.Events(), Generation: host.Generation(),
		})
	}
	_ = attach
}
