package e1000

import "time"

// negotiate makes the PHY agree on a link anew. The control lock is held.
func (m *Model) negotiate() {
	now := m.host.Now()
	m.phy.restart(now, m.opt.Autonegotiation)
	if m.phy.done != 0 {
		m.schedule(m.phy.done)
	}
	m.updateLink()
}

// phyTimer ends a negotiation that is due.
func (m *Model) phyTimer(now time.Duration) {
	m.control.Lock()
	defer m.control.Unlock()
	if m.phy.done == 0 {
		return
	}
	if now < m.phy.done {
		m.schedule(m.phy.done)
		return
	}
	m.phy.finish(now)
	m.updateLink()
}

// updateLink makes STATUS and the data paths follow PHY and CTRL. The control
// lock is held.
func (m *Model) updateLink() {
	m.lockAll()
	m.updateLinkLocked(true)
	m.unlockAll()
}

func (m *Model) updateLinkLocked(signal bool) {
	up := m.phy.negotiated && m.regs[regCTRL/4]&ctrlSLU != 0
	if m.up.Swap(up) != up && signal {
		m.irq.raise(causeLSC)
	}
	m.tx.update()
	m.rx.update()
	m.host.Wake()
}

// status is what STATUS reads. The control lock is held.
func (m *Model) status() uint32 {
	s := m.regs[regSTATUS/4] & statusPHYRA
	if m.opt.Kind.is574() && m.regs[regCTRL/4]&ctrlMasterDisable == 0 {
		s |= statusGIOMasterEna
	}
	if m.tx.stalled.Load() {
		s |= statusTXOFF
	}
	code, full := m.phy.speed()
	if !m.up.Load() {
		return s | code<<statusSpeedShift
	}
	s |= statusLU | code<<statusSpeedShift | code<<statusASDVShift
	if full {
		s |= statusFD
	}
	return s
}

// writeCTRL is a write of device control; io tells by which way it came.
func (m *Model) writeCTRL(value uint32, io bool) {
	if value&ctrlRST != 0 {
		if m.opt.Variation.NoReset || m.opt.Variation.ResetNeedsIO && !io {
			return
		}
		m.resetMAC()
		return
	}
	m.lockAll()
	m.regs[regCTRL/4] = value
	m.unlockAll()
	switch held := value&ctrlPHYReset != 0; {
	case held && !m.phy.held:
		m.phy.reset(m.opt.Kind)
		m.phy.held = true
		m.phy.drop()
		m.regs[regSTATUS/4] |= statusPHYRA
	case !held && m.phy.held:
		m.phy.held = false
		m.negotiate()
	}
	m.updateLink()
}

// writeMDIC carries out an MDI access, at once. The control lock is held.
func (m *Model) writeMDIC(value uint32) {
	reg := value >> mdicRegShift & (phyRegisters - 1)
	addr := value >> mdicPHYShift & 0x1F
	op := value >> mdicOpShift & 3
	out := value&^(mdicError) | mdicReady
	switch {
	case addr != phyAddress || !phyKnown(reg):
		out |= mdicError
	case op == mdicOpRead:
		out = out&^0xFFFF | uint32(m.phy.read(reg))
	case op == mdicOpWrite:
		if m.phy.write(reg, uint16(value), m.opt.Kind) {
			m.negotiate()
		}
	}
	m.regs[regMDIC/4] = out
	if value&mdicIntEna != 0 {
		m.irq.raise(causeMDAC)
	}
}
