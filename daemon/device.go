package daemon

import (
	"fmt"
	"reflect"

	"nicd/bus"
	"nicd/bus/qemu"
	"nicd/config"
	"nicd/sim"
	"nicd/sim/e1000"
	"nicd/sim/vmxnet3"
)

// Vocabulary is what a config for this program can name.
func Vocabulary(bundled []string) config.Vocabulary {
	models := []config.Model{{Name: "vmxnet3", Revisions: vmxnet3.MaxRevision, Variation: vmxnet3.Variations{}}}
	for _, k := range e1000.Kinds() {
		models = append(models, config.Model{Name: k.String(), Variation: e1000.Variation{}})
	}
	return config.Vocabulary{Drivers: bundled, Models: models, QEMUModels: qemu.Models()}
}

// newModel makes the device model that a config describes.
func newModel(c *config.SimDevice) (sim.Model, error) {
	if c.Model == "vmxnet3" {
		variation, _ := valueOf(c.Variation).(vmxnet3.Variations)
		return vmxnet3.New(vmxnet3.Options{MAC: c.MAC, Revision: c.Revision, Variations: variation}), nil
	}
	kind, err := e1000.KindOf(c.Model)
	if err != nil {
		return nil, fmt.Errorf("there is no model of %q", c.Model)
	}
	variation, _ := valueOf(c.Variation).(e1000.Variation)
	return e1000.New(e1000.Options{Kind: kind, MAC: c.MAC, Variation: variation}), nil
}

// valueOf follows a pointer, if v is one.
func valueOf(v any) any {
	if p := reflect.ValueOf(v); p.Kind() == reflect.Pointer && !p.IsNil() {
		return p.Elem().Interface()
	}
	return v
}

// newWires makes the config's wires, by name.
func newWires(c *config.Config) map[string]*sim.Wire {
	wires := map[string]*sim.Wire{}
	for _, w := range c.Wires {
		wires[w.Name] = sim.NewWire(sim.WireOptions{
			NoFlowControl: !w.FlowControl,
			Faults: sim.Faults{
				Seed: w.Seed, Lose: w.Loss, Duplicate: w.Duplicate, Reorder: w.Reorder, Corrupt: w.Corrupt,
				Delay: w.Delay, Jitter: w.Jitter,
			},
		})
	}
	return wires
}

func deviceText(c *config.Device, info bus.Info) string {
	switch {
	case c.Sim != nil:
		return fmt.Sprintf("%s %s", info.Address, c.Sim.Model)
	case c.VFIO != nil:
		return "vfio:" + c.VFIO.Address
	case c.VFIOUser != nil:
		return "vfio-user:" + c.VFIOUser.Socket
	}
	return info.Address
}
