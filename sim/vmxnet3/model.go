package vmxnet3

import (
	"sync"
	"sync/atomic"

	"nicd/bus"
	"nicd/sim"
)

// Model is a vmxnet3 device. Make a sim.Device of it, then connect it to a
// sim.Wire.
type Model struct {
	opt  Options
	host *sim.Host
	port *sim.Port

	mu       sync.Mutex // registers and commands; before Host.Tx, before Host.Rx
	revision int        // selected by VRRS
	addrLow  uint32
	addr     uint64 // of DriverShared, 0 if none was given
	result   uint32 // of the last command
	macLow   uint32 // written to MACL and not completed by MACH
	coalMode uint32
	reason   error // why the last activation failed

	// With mu, Host.Tx and Host.Rx held to write, with any of them to read.
	active bool
	shared shared
	link   bool

	passthrough atomic.Bool
	lro         atomic.Bool // whole TSO frames are welcome
	intr        interrupts
	tx          transmitter // with Host.Tx held
	rx          receiver    // with Host.Rx held
}

// New makes a model.
func New(opt Options) *Model {
	if opt.MAC == ([6]byte{}) {
		opt.MAC = [6]byte{0x00, 0x50, 0x56, 0, 0, 1}
	}
	if opt.Revision <= 0 || opt.Revision > MaxRevision {
		opt.Revision = MaxRevision
	}
	if opt.SpeedMbps == 0 {
		opt.SpeedMbps = 10_000
	}
	m := &Model{opt: opt}
	m.intr.m, m.tx.m, m.rx.m = m, m, m
	m.tx.init()
	m.rx.init()
	return m
}

var _ sim.Model = (*Model)(nil)

// MaxRevision is the highest revision that is modelled.
const MaxRevision = 4

// Identity implements sim.Model.
func (m *Model) Identity() sim.Identity {
	return sim.Identity{
		Vendor: vendorVMware, Device: deviceVMXNET3,
		SubVendor: vendorVMware, SubDevice: deviceVMXNET3,
		Revision: pciRevision, Class: sim.ClassEthernet,
		BARs:    [6]sim.BAR{barPT: {Size: sizePT}, barVD: {Size: sizeVD}, barMSIX: {Size: sizeMSIX}},
		MSI:     sim.MSICapability{Offset: offsetMSI, Vectors: 1},
		MSIX:    sim.MSIXCapability{Offset: offsetMSIX, Vectors: maxVectors, TableBAR: barMSIX, PBABAR: barMSIX, PBAOffset: offsetPBA},
		Express: offsetExpress,
	}
}

// Connect implements sim.Model.
func (m *Model) Connect(h *sim.Host) {
	m.host = h
	m.Reset()
}

// Doorbells implements sim.Model: the producer indices and the interrupt masks.
func (m *Model) Doorbells() []bus.DoorbellRange { return doorbells }

// Plug implements sim.End.
func (m *Model) Plug(p *sim.Port) {
	m.lock()
	defer m.unlock()
	m.port = p
}

// Wants implements sim.End: with LRO on, TSO frames are taken whole.
func (m *Model) Wants() sim.Wants { return sim.Wants{Segment: m.lro.Load()} }

// lock takes all locks.
func (m *Model) lock() {
	m.mu.Lock()
	m.host.Tx.Lock()
	m.host.Rx.Lock()
}

func (m *Model) unlock() {
	m.host.Rx.Unlock()
	m.host.Tx.Unlock()
	m.mu.Unlock()
}

// Reset implements sim.Model: power-on state, with all vectors masked. The link
// stays as the wire has it.
func (m *Model) Reset() {
	m.lock()
	defer m.unlock()
	m.stop()
	m.revision = 1
	m.addrLow, m.addr, m.result, m.coalMode, m.reason = 0, 0, 0, 0, nil
	m.forget()
}

// forget is what RESET does to the rest of the device.
func (m *Model) forget() {
	m.rx.filter = filter{mac: m.opt.MAC}
	m.rx.rss = rss{fields: fieldsDefault}
	m.rx.counters, m.tx.counters = [maxRxQueues]rxCounters{}, [maxTxQueues]txCounters{}
	for v := range maxVectors {
		m.host.SetDoorbell(bellIMR+v, 1)
	}
}

// stop ends all work on the driver's memory. All locks are held.
func (m *Model) stop() {
	m.active = false
	m.lro.Store(false)
	m.intr.stop()
	m.tx.stop()
	m.rx.stop()
}

// SetLink implements sim.End: the driver gets a link event.
func (m *Model) SetLink(up bool) {
	m.lock()
	defer m.unlock()
	if m.link == up {
		return
	}
	m.link = up
	m.event(&m.host.Rx, eventLink)
}

// SetPassthrough moves the device between emulation and passthrough (UPT), where
// hardware does the work and nothing is coalesced, and announces it with a DIC
// event (V18).
func (m *Model) SetPassthrough(on bool) {
	m.lock()
	defer m.unlock()
	if m.passthrough.Swap(on) == on {
		return
	}
	m.updateLRO()
	m.event(&m.host.Rx, eventChange)
}

func (m *Model) updateLRO() {
	f := m.shared.features
	able := !m.passthrough.Load() && m.opt.Variations.DisabledOffloads&disabledLRO == 0
	m.lro.Store(m.active && able && f&featureLRO != 0 && f&featureChecksum != 0)
}

// event sets bits of DriverShared.ecr and raises the event interrupt. The lock
// of a is held. An inactive device has no events.
func (m *Model) event(a *sim.Access, bits uint32) {
	if !m.active {
		return
	}
	if b := a.Bytes(m.addr+dsECR, 4); b != nil {
		bus.Word(b, 0).Or(bits)
	}
	m.intr.urgent(a, m.shared.eventIntr)
}

// Work implements sim.Model.
func (m *Model) Work(budget int) bool {
	m.host.Tx.Lock()
	did := m.tx.work(budget)
	if m.intr.poll(&m.host.Tx) {
		did = true
	}
	m.host.Tx.Unlock()
	if m.rx.starved.Load() && m.rx.recover() {
		did = true
	}
	return did
}

// Resume implements sim.End.
func (m *Model) Resume() {
	m.tx.resumed.Store(true)
	m.host.Wake()
}

// Hang makes a transmit queue stand still, without an error and without an event,
// as a hypervisor's thread that starves does, until the device is activated anew.
func (m *Model) Hang(queue int) {
	m.host.Tx.Lock()
	defer m.host.Tx.Unlock()
	m.tx.queues[queue].hung = true
}

// ActivationError is why the last ACTIVATE failed, nil if it did not. The driver
// learns only that it did; this is for tests.
func (m *Model) ActivationError() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reason
}
