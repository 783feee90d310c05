package e1000

import (
	"sync"
	"sync/atomic"
	"time"

	"nicd/bus"
	"nicd/sim"
)

// Doorbells: the tail registers, receive queues first.
const (
	bellRDT = 0
	bellTDT = bellRDT + maxQueues
)

// Model is one controller: a sim.Model and a sim.End. Make a bus.Device of it
// with sim.NewDevice and connect it to a wire with sim.Wire.Connect.
//
// Locks, in the order in which they are taken: control (registers, NVM, PHY),
// Host.Tx (transmit queues), Host.Rx (receive queues), the interrupts' own. A
// register that a data path looks at is written with all of the first three
// held, so that each path reads it under its own lock.
type Model struct {
	opt  Options
	host *sim.Host
	port *sim.Port

	control sync.Mutex
	regs    [registerEnd / 4]uint32
	ioAddr  uint32
	nvm     eeprom
	phy     phy

	up atomic.Bool // the link is up
	// next is when the earliest timer runs out, 0 if none runs.
	next atomic.Int64

	irq interrupts
	rx  receiver
	tx  transmitter
}

// New makes a model.
func New(o Options) *Model {
	m := &Model{opt: o.withDefaults()}
	m.nvm.init(m.opt)
	m.irq.model = m
	m.rx.init(m)
	m.tx.init(m)
	return m
}

// Identity implements sim.Model.
func (m *Model) Identity() sim.Identity {
	id := m.opt.Kind.identity()
	if id.MSIX.Vectors != 0 {
		id.MSIX.Vectors = m.opt.vectors()
	}
	return id
}

// Connect implements sim.Model.
func (m *Model) Connect(h *sim.Host) {
	m.host = h
	m.Reset()
}

// Doorbells implements sim.Model.
func (m *Model) Doorbells() []bus.DoorbellRange {
	n := m.opt.Kind.queues()
	return []bus.DoorbellRange{
		{Region: bus.BAR0, Offset: regRDT, Stride: queueStride, First: bellRDT, Count: n},
		{Region: bus.BAR0, Offset: regTDT, Stride: queueStride, First: bellTDT, Count: n},
	}
}

// Reset implements sim.Model: power on.
func (m *Model) Reset() {
	m.control.Lock()
	defer m.control.Unlock()
	m.phy.reset(m.opt.Kind)
	m.phy.held = false
	m.phy.drop()
	m.resetMAC()
	m.lockAll()
	m.loadAddress()
	m.rx.update()
	m.unlockAll()
	m.negotiate()
}

// resetMAC does what CTRL.RST does: everything but the PHY.
func (m *Model) resetMAC() {
	m.lockAll()
	clear(m.regs[:])
	for _, d := range resetValues {
		m.regs[d.offset/4] = d.value
	}
	m.regs[regCTRL/4] = ctrlReset540
	if m.opt.Kind.is574() {
		m.regs[regCTRL/4] = ctrlReset574
		m.regs[regSTATUS/4] = statusPHYRA
		for q := range uint32(maxQueues) {
			m.regs[(regTARC+q*queueStride)/4] = 3 | tarcEnable
		}
	}
	if !m.opt.Kind.forgetsAddress() {
		m.loadAddress()
	}
	m.rx.reset()
	m.tx.reset()
	for q := range m.opt.Kind.queues() {
		m.host.SetDoorbell(bellRDT+q, 0)
		m.host.SetDoorbell(bellTDT+q, 0)
	}
	m.irq.reset()
	m.updateLinkLocked(false)
	m.unlockAll()
}

// resetValues are registers that do not start at zero.
var resetValues = []struct{ offset, value uint32 }{
	{regFCAL, 0x00C28001}, {regFCAH, 0x0100}, {regFCT, 0x8808}, {regVET, sim.EtherTypeVLAN},
	{regLEDCTL, 0x602}, {regPBA, 0x100030}, {regTXDCTL, 1 << 24}, {regRXDCTL, 1 << 24},
	{regTXDCTL + queueStride, 1 << 24}, {regRXDCTL + queueStride, 1 << 24},
	{regRCTL, 0}, {regTIPG, 0x602008},
}

// loadAddress loads receive address 0 from the NVM, as a reset does.
func (m *Model) loadAddress() {
	w := &m.nvm.words
	m.regs[regRAL/4] = uint32(w[nvmMAC]) | uint32(w[nvmMAC+1])<<16
	m.regs[regRAL/4+1] = uint32(w[nvmMAC+2]) | rahAV
}

// lockAll keeps both data paths out. The control lock is held.
func (m *Model) lockAll() {
	m.host.Tx.Lock()
	m.host.Rx.Lock()
}

func (m *Model) unlockAll() {
	m.host.Rx.Unlock()
	m.host.Tx.Unlock()
}

// Work implements sim.Model.
func (m *Model) Work(budget int) bool {
	did := m.runTimers()
	for q := range m.tx.queues[:m.opt.Kind.queues()] {
		if m.transmit(&m.tx.queues[q], budget) {
			did = true
		}
	}
	return m.offerRoom() || did
}

// schedule makes Work look at the timers at the time at. Any goroutine may call
// it with any lock held.
func (m *Model) schedule(at time.Duration) {
	for {
		old := m.next.Load()
		if old != 0 && old <= int64(at) {
			return
		}
		if m.next.CompareAndSwap(old, int64(at)) {
			m.host.WakeAt(at)
			return
		}
	}
}

// runTimers does what is due. Whatever is not due schedules itself again.
func (m *Model) runTimers() bool {
	at := m.next.Load()
	if at == 0 {
		return false
	}
	now := m.host.Now()
	if int64(now) < at {
		return false
	}
	m.next.CompareAndSwap(at, 0)
	m.phyTimer(now)
	m.rx.timers(now)
	m.irq.timers(now)
	return true
}

// Plug implements sim.End.
func (m *Model) Plug(p *sim.Port) { m.port = p }

// SetLink implements sim.End: a partner appeared at the other end of the cable,
// or it went.
func (m *Model) SetLink(up bool) {
	m.control.Lock()
	defer m.control.Unlock()
	m.phy.wire = up
	m.negotiate()
}

// Resume implements sim.End.
func (m *Model) Resume() {
	for q := range m.tx.queues {
		m.tx.queues[q].paused.Store(false)
	}
	m.host.Wake()
}

// Hang makes a transmit queue stop as chips do that hit an erratum: its head
// does not move any more until the queue is set up anew or the device is reset.
func (m *Model) Hang(queue int) {
	m.host.Tx.Lock()
	defer m.host.Tx.Unlock()
	m.tx.queues[queue].hang()
}
