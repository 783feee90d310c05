// Package config is nicd's configuration: HCL text in, checked structs out.
//
// What lives here: the shape of the file, strict decoding (whatever is not known
// is an error), defaults, ranges, references between blocks, and errors that
// show the line and the nearest name that would have been right. What does not:
// anything that needs a device, a plugin or the file system. The only I/O is
// reading the file itself.
//
// The blocks, in any order:
//
//	daemon { ... }             at most one
//	wire "NAME" { ... }        a virtual wire between simulated devices
//	bus "qemu" "NAME" { ... }  device models of QEMU's, all in one process
//	driver "NAME" { ... }      how a driver runs, and its quirks
//	interface "NAME" { ... }   a device, its driver, what sits above it
//	stream "NAME" { ... }      TCP traffic between two netstack ports
//
// The text of [DefaultSource] shows them all.
package config

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"nicd/framework"
)

// Config is a checked configuration: names are unique, references lead
// somewhere, values are in range, defaults are applied. Blocks are in the order
// of the file.
type Config struct {
	Daemon     Daemon
	Wires      []Wire
	Buses      []QEMUBus
	Drivers    []Driver // those with a block, then bundled ones that an interface uses
	Interfaces []Interface
	Streams    []Stream
}

// Origin is where a block is: "nicd.hcl:12: interface vmx0".
type Origin struct {
	File string
	Line int
	What string
}

func (o Origin) String() string {
	if o.File == "" { // of nobody's making but nicd's
		return o.What
	}
	return fmt.Sprintf("%s:%d: %s", o.File, o.Line, o.What)
}

// Daemon are settings of nicd itself.
type Daemon struct {
	Socket    string // of the admin API; "" leaves it to nicd
	PluginDir string // where driver plugins are looked for; "" is nowhere
	LogLevel  string // trace, debug, info, warn or error
	// Unsafe: quirks may be set whose wrong values lose packets or throughput
	// without a word (framework.QuirkInfo.Unsafe).
	Unsafe bool
}

// Wire is a virtual wire and what goes wrong on it.
type Wire struct {
	Name        string
	FlowControl bool // a receiver without buffers pauses the sender
	// Chances from 0 to 1, for each frame, drawn by Seed.
	Loss, Duplicate, Reorder, Corrupt float64
	Seed                              uint64
	Delay, Jitter                     time.Duration
	Origin                            Origin
}

// Mode is where a driver runs.
type Mode string

// Modes.
const (
	Plugin    Mode = "plugin"     // in a process of its own
	InProcess Mode = "in-process" // in nicd; bundled drivers only
)

// Driver is how a driver is found and run.
type Driver struct {
	Name   string
	Path   string // of the plugin binary; "" is the plugin directory, then the bundled driver
	SHA256 string // of that file, in lower-case hex; "" is any
	Mode   Mode
	Quirks []framework.QuirkSetting // for all its devices
	Origin Origin                   // zero for a driver without a block
}

// Interrupts is which kind of interrupt an interface uses.
type Interrupts string

// Kinds of interrupt.
const (
	AutoInterrupts Interrupts = "auto" // the best that device, driver and bus can do
	MSIX           Interrupts = "msi-x"
	MSI            Interrupts = "msi"
	INTx           Interrupts = "intx"
)

// TxHandoff is who gives packets to send to the device. The zero value is Abdicate.
type TxHandoff string

// Ways of transmit, in iflib's words.
const (
	Abdicate TxHandoff = "abdicate" // the queue's task, to which senders leave them
	Inline   TxHandoff = "inline"   // a sender that finds the queue's task asleep
)

// CheckTxHandoff says why an interface whose driver runs in this mode can't do so.
func (i *Interface) CheckTxHandoff(m Mode) error {
	switch {
	case i.TxHandoff != Inline:
		return nil
	case m != InProcess:
		return fmt.Errorf("tx_handoff can't be \"inline\" with driver %q in mode \"plugin\": a sender in nicd can't do the work of a plugin's process", i.Driver)
	case i.CPUs != nil:
		return errors.New("tx_handoff can't be \"inline\" with cpus: tasks that poll for ever leave nothing for senders to do")
	}
	return nil
}

// Interface is one NIC. Zero numbers leave the choice to nicd and the driver;
// ranges of the device are checked when it is attached.
type Interface struct {
	Name   string
	Driver string // of one of Config.Drivers
	Device Device
	Port   Port

	MTU                          int           // bytes
	MAC                          framework.MAC // zero is the device's own
	RxQueues, TxQueues           int
	RxDescriptors, TxDescriptors int // per ring
	BufferSize                   int // bytes of packet per buffer
	Buffers                      int // in the arena
	Interrupts                   Interrupts
	Moderation                   time.Duration // least time between two interrupts
	RxBudget                     int           // packets a poll
	Spin                         time.Duration // how long an idle task looks before it sleeps
	CPUs                         []int         // per queue
	TxHandoff                    TxHandoff
	Promiscuous                  bool // receive what is for others, too

	Features []framework.FeatureSetting
	Quirks   []framework.QuirkSetting
	Origin   Origin
}

// Device says where an interface's device is; one of the pointers is set.
type Device struct {
	Sim      *SimDevice
	VFIOUser *VFIOUserDevice
	VFIO     *VFIODevice
	QEMU     *QEMUAddress
	Origin   Origin
}

// SimDevice is a device model that nicd runs.
type SimDevice struct {
	Model    string        // of one of the Vocabulary's models
	Revision int           // 0 if the model has none
	Wire     string        // of one of Config.Wires
	MAC      framework.MAC // permanent address, never zero
	// Variation has the type of the model's Vocabulary entry and is nil if that
	// has none.
	Variation any
}

// VFIOUserDevice is a device that another process serves.
type VFIOUserDevice struct {
	Socket string
}

// VFIODevice is a PCI function of this machine, bound to the kernel's vfio-pci.
type VFIODevice struct {
	Address string // "0000:03:00.0"
	// AllowUnsafeNoIOMMU accepts that nothing keeps the device from all of the
	// machine's memory. It has no effect on one behind an IOMMU.
	AllowUnsafeNoIOMMU bool
}

// QEMUAddress is a device on one of Config.Buses: "qemu:BUS/DEVICE".
type QEMUAddress struct {
	Bus, Device string
}

func (a QEMUAddress) String() string { return "qemu:" + a.Bus + "/" + a.Device }

// QEMUBus is a QEMU that nicd runs, with the devices in it.
type QEMUBus struct {
	Name    string
	Program string // the QEMU; "" leaves it to nicd
	// Network is what devices are connected to whose blocks do not say.
	Network Network
	// Devices are those with a block, then models that an interface names as they
	// are. They may be more than interfaces use.
	Devices []QEMUDevice
	Origin  Origin
}

// MaxQEMUDevices is how many of a QEMUBus's devices interfaces can use.
const MaxQEMUDevices = 4

// QEMUDevice is one of QEMU's device models.
type QEMUDevice struct {
	Name    string        // on its bus
	Model   string        // of the Vocabulary's QEMUModels
	MAC     framework.MAC // permanent address; not zero if an interface uses the device
	Network Network
	Origin  Origin
}

// Network is what a QEMUDevice is connected to.
type Network struct {
	Netdev string // one of the following
	Wire   string // NetdevWire: of one of Config.Wires
	TAP    string // NetdevTAP: the Linux interface
	// NetdevDgram: unix datagram sockets, QEMU's own and the one that it sends to.
	Local, Remote string
}

// Kinds of Network.
const (
	NetdevUser  = "user"  // QEMU's own, in user space
	NetdevTAP   = "tap"   // a Linux interface
	NetdevDgram = "dgram" // a frame is a datagram
	NetdevWire  = "wire"  // one of nicd's virtual wires
)

// Port is what sits above an interface; one of the pointers is set.
type Port struct {
	Netstack *NetstackPort
	Sink     *SinkPort
	TAP      *TAPPort
	Forward  *ForwardPort
	Origin   Origin
}

// NetstackPort is a user-space TCP/IP stack.
type NetstackPort struct {
	Addresses []netip.Prefix // at least one; the bits after the prefix are the host's
	Gateway   netip.Addr     // invalid if there is none
	Buffer    int            // bytes a TCP connection buffers each way; 0 is the stack's choice
}

// SinkPort drops and counts what it gets.
type SinkPort struct{}

// TAPPort is a Linux network interface.
type TAPPort struct {
	Name string // of the Linux interface
	FDs  []int  // descriptors of its queues that nicd was started with; none: nicd makes it
}

// ForwardPort is a port of a learning bridge.
type ForwardPort struct {
	Bridge string // ports with the same name are one bridge; there are at least two
}

// Stream is one TCP connection's worth of traffic between netstack ports.
type Stream struct {
	Name     string
	From, To string // interfaces
	Origin   Origin
}

// Driver is the driver of a name.
func (c *Config) Driver(name string) (Driver, bool) {
	for _, d := range c.Drivers {
		if d.Name == name {
			return d, true
		}
	}
	return Driver{}, false
}

// QEMUDevice is a device and the bus that it is on, nil if there is none.
func (c *Config) QEMUDevice(a QEMUAddress) (*QEMUBus, *QEMUDevice) {
	for i := range c.Buses {
		b := &c.Buses[i]
		if b.Name != a.Bus {
			continue
		}
		for j := range b.Devices {
			if b.Devices[j].Name == a.Device {
				return b, &b.Devices[j]
			}
		}
		return b, nil
	}
	return nil, nil
}

// Interface is the interface of a name.
func (c *Config) Interface(name string) (Interface, bool) {
	for _, i := range c.Interfaces {
		if i.Name == name {
			return i, true
		}
	}
	return Interface{}, false
}
