// Package guest boots a Linux of its own in QEMU for tests that need one: real
// drivers of a real kernel, an IOMMU that refuses what was not mapped, devices
// that nobody here wrote.
//
// What lives here is the plan that a test and the guest's init agree on; init is
// in guest/init, and the rest, which makes an initramfs and runs QEMU, is the
// test's. Nothing of nicd uses it.
package guest

// Plan is what init does. It finds it in PlanFile.
type Plan struct {
	Modules []string // files, in the order in which to load them
	Steps   []Step
}

// Files in the initramfs, and where init reports.
const (
	PlanFile  = "/plan.json"
	NICD      = "/nicd"
	VFIOTest  = "/vfio.test" // bus/vfio's test binary
	EventsTTY = "ttyS1"      // an Event a line, in JSON
)

// Step is one thing to do.
type Step struct {
	Do Action
	// Args are nicd's, of Run and Start.
	Args []string
	// Devices are PCI addresses, of Hardware.
	Devices []string
	// Fails is what Run has to fail with, "" if it has to end well.
	Fails string
	// Device is the PCI address of the NIC whose kernel interface is meant, or
	// Interface is that interface's name.
	Device, Interface string
	Prefix            string // of Address: "10.0.0.1/24"
	Path, Content     string // of Write and Remove
	URL               string // of Fetch and Datagrams
	Bytes             int64  // of Fetch and Datagrams: how many to send
}

// Action is a kind of step.
type Action string

// Actions. A failed one ends the guest.
const (
	// Run runs nicd to its end, which has to be a good one or fail as said; the
	// event has what it printed. It may ask the nicd that was started.
	Run Action = "run"
	// Hardware runs bus/vfio's tests on the NICs of Devices.
	Hardware Action = "hardware"
	// Start starts nicd, and Stop ends it with an interrupt and reports like Run.
	Start Action = "start"
	Stop  Action = "stop"
	// Address waits for a kernel interface, gives it an address and brings it up.
	Address Action = "address"
	// NoTSO turns TSO of a kernel interface off.
	NoTSO Action = "no-tso"
	// Write writes a file, one of /proc for example.
	Write Action = "write"
	// Remove removes a file, a device's node for example.
	Remove Action = "remove"
	// Fetch gets what is at a URL, then puts as many bytes there as it says. The
	// event has the SHA-256 of both.
	Fetch Action = "fetch"
	// Errors reports a kernel interface's error counters that are not zero.
	Errors Action = "errors"
	// Datagrams waits for a kernel interface's carrier, and sends UDP datagrams of
	// 1,400 bytes in several flows to the address of URL, Bytes in all.
	Datagrams Action = "datagrams"
	// Retransmits reports, in Counters, how many segments the guest's own TCP has
	// sent and sent again since it was booted.
	Retransmits Action = "retransmits"
	// Fault makes the NIC, an 82574L that vfio-pci has, read memory that is not
	// mapped for it.
	Fault Action = "fault"
)

// Event is how a step ended.
type Event struct {
	Step   int // of Plan.Steps; len(Plan.Steps) says that all are done
	Do     Action
	Error  string
	Output string // of nicd
	// Received and Sent are sums of Fetch.
	Received, Sent string
	Counters       map[string]uint64
	Seconds        float64
}
