package e1000_test

import (
	"fmt"

	"nicd/bus"
	"nicd/sim"
	"nicd/sim/e1000"
)

// A model becomes a bus.Device through sim.NewDevice, and sends and receives once
// it is connected to a wire.
func Example() {
	wire := sim.NewWire(sim.WireOptions{})
	defer wire.Close()
	model := e1000.New(e1000.Options{Kind: e1000.I82574L, MAC: [6]byte{2, 0, 0, 0, 0, 1}})
	dev, err := sim.NewDevice(model, sim.Options{Name: "em0"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer dev.Close()
	wire.Connect(model)
	regs, _ := dev.Region(bus.BAR0)
	const ral0, rah0 = 0x5400, 0x5404
	fmt.Printf("%04x:%04x %08x %08x\n", dev.Info().Vendor, dev.Info().Device, regs.Read32(ral0), regs.Read32(rah0))
	// Output: 8086:10d3 00000002 80000100
}
