package vmxnet3_test

import (
	"fmt"

	"nicd/bus"
	"nicd/sim"
	"nicd/sim/vmxnet3"
)

// A device of revision 3 on a wire. A driver, or a server that offers the device
// to another process, takes it from there as a bus.Device.
func ExampleNew() {
	model := vmxnet3.New(vmxnet3.Options{Revision: 3, Variations: vmxnet3.Variations{LRO: vmxnet3.LRONoMSS}})
	device, err := sim.NewDevice(model, sim.Options{Name: "vmx0"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer device.Close()
	wire := sim.NewWire(sim.WireOptions{})
	defer wire.Close()
	wire.Connect(model)

	info := device.Info()
	registers, _ := device.Region(bus.BAR1)
	fmt.Printf("%s %04x:%04x, revisions %#b\n", info.Address, info.Vendor, info.Device, registers.Read32(0))
	// Output: sim:vmx0 15ad:07b0, revisions 0b111
}
