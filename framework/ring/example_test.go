package ring_test

import (
	"fmt"

	"nicd/framework/ring"
)

// A driver's transmit queue in short: a packet of two fragments is published,
// the device reports its last descriptor, the packet is finished.
func Example() {
	type descriptor struct {
		Addr       uint64
		Len, Flags uint32
	}
	type completion struct {
		Last uint32
		_    [2]uint32
		Gen  uint32
	}
	commands, err := ring.NewCommand[descriptor](make([]byte, 32*16), 32, ring.Owner{Offset: 8, Bit: 1 << 14})
	if err != nil {
		fmt.Println(err)
		return
	}
	device := make([]byte, 32*16)
	completions, err := ring.NewCompletion[completion](device, 32, ring.Owner{Offset: 12, Bit: 1 << 31})
	if err != nil {
		fmt.Println(err)
		return
	}
	flight := ring.NewFlight(32)

	fragments := []uint32{66, 1448}
	var last uint32
	if commands.Space() >= len(fragments) {
		for _, n := range fragments {
			d := commands.Next()
			d.Addr, d.Flags = 0x1000, 0
			last = commands.Tail()
			commands.Add(n)
		}
		commands.Publish()
		flight.Add(last, len(fragments), true)
	}
	fmt.Println("outstanding:", commands.Outstanding())

	device[0], device[15] = byte(last), 0x80 // as the device would

	for c, ok := completions.Take(); ok; c, ok = completions.Take() {
		commands.Release(flight.RetireThrough(commands.Through(c.Last)))
	}
	fmt.Println("finished:", flight.Completed(64), "outstanding:", commands.Outstanding())
	// Output:
	// outstanding: 2
	// finished: 1 outstanding: 0
}
