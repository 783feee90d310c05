package qemu

// port is a PCI Express root port of the machine, with one device behind it: a
// reset of the bus behind it is a reset of that device and of no other.
type port struct {
	function
	index int // among the bus's devices
}

// Configuration space of a bridge: PCI-to-PCI Bridge Architecture Specification
// 1.2, section 3.2.
const (
	configBuses         = 0x18 // primary, secondary and subordinate bus number
	configIOWindow      = 0x1C // base and limit, in units of 4 KiB in the upper half of a byte
	configMemoryWindow  = 0x20 // base and limit, in units of 1 MiB in the upper 12 bits
	configPrefetch      = 0x24
	configBridgeControl = 0x3E

	bridgeReset     = 1 << 6
	prefetchNothing = 0x0000_FFF0 // the base is above the limit
)

// Where the devices' BARs are: each port passes on a window of its own.
const (
	portMemory     = 16 << 20
	portIO         = 4 << 10
	doorbellMemory = memoryBase + MaxDevices*portMemory
)

// slotPort is the slot of the first port on the machine's first bus, slotDoorbell
// that of the ivshmem device.
const (
	slotPort     = 1
	slotDoorbell = slotPort + MaxDevices
)

func newPort(index int) port {
	return port{function{slot: slotPort + index}, index}
}

// secondary is the number of the bus behind the port.
func (p *port) secondary() int { return 1 + p.index }

// space is the windows.
func (p *port) space() space {
	return space{memory: memoryBase + uint64(p.index)*portMemory, io: ioBase + uint64(p.index)*portIO}
}

// line is the interrupt controller's input for the device behind the port. A q35
// connects pin A of slot n to the line n modulo 4 of the last four (Intel 82801IB
// datasheet, section 5.8.6: PIRQE to PIRQH are the inputs 20 to 23).
func (p *port) line() int {
	const first, lines = 20, 4
	return first + p.slot%lines
}

// open makes the port pass on what is for the device.
func (p *port) open() {
	s := p.space()
	window := func(base, size uint64, shift int) (uint32, uint32) {
		return uint32(base >> shift), uint32((base + size - 1) >> shift)
	}
	base, limit := window(s.memory, portMemory, 16)
	p.write(configBuses, 4, uint32(p.secondary())<<16|uint32(p.secondary())<<8)
	p.write(configMemoryWindow, 4, limit&0xFFF0<<16|base&0xFFF0)
	p.write(configPrefetch, 4, prefetchNothing)
	base, limit = window(s.io, portIO, 8)
	p.write(configIOWindow, 2, limit&0xF0<<8|base&0xF0)
	p.write(configCommand, 2, commandIO|commandMemory|commandMaster)
}

// reset resets the device. QEMU has done it when the write is done.
func (p *port) reset() {
	control := p.read(configBridgeControl, 2)
	p.write(configBridgeControl, 2, control|bridgeReset)
	p.write(configBridgeControl, 2, control)
}
