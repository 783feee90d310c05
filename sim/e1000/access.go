package e1000

import "nicd/bus"

// ReadRegister implements sim.Model.
func (m *Model) ReadRegister(region int, offset uint32) uint32 {
	switch region {
	case bus.BAR0:
		return m.read(offset)
	case m.opt.Kind.ioBAR():
		return m.readIO(offset)
	}
	return bus.Gone // flash that holds nothing
}

// WriteRegister implements sim.Model.
func (m *Model) WriteRegister(region int, offset, value uint32) {
	switch region {
	case bus.BAR0:
		m.write(offset, value, false)
	case m.opt.Kind.ioBAR():
		m.writeIO(offset, value)
	}
}

// readIO reads through the I/O BAR.
func (m *Model) readIO(offset uint32) uint32 {
	m.control.Lock()
	at := m.ioAddr
	m.control.Unlock()
	switch offset {
	case ioADDR:
		return at
	case ioDATA:
		if bell, ok := m.bell(at); ok {
			m.host.Rx.Lock()
			defer m.host.Rx.Unlock()
			return m.host.Doorbell(bell)
		}
		return m.read(at)
	}
	return 0
}

// writeIO writes through the I/O BAR.
func (m *Model) writeIO(offset, value uint32) {
	switch offset {
	case ioADDR:
		m.control.Lock()
		m.ioAddr = value &^ 3
		m.control.Unlock()
	case ioDATA:
		m.control.Lock()
		at := m.ioAddr
		m.control.Unlock()
		if bell, ok := m.bell(at); ok {
			m.host.Rx.Lock()
			m.host.SetDoorbell(bell, value)
			m.host.Rx.Unlock()
			m.host.Wake()
			return
		}
		m.write(at, value, true)
	}
}

// bell is the doorbell that a BAR0 register is.
func (m *Model) bell(offset uint32) (int, bool) {
	for q := range m.opt.Kind.queues() {
		switch offset {
		case regRDT + uint32(q)*queueStride:
			return bellRDT + q, true
		case regTDT + uint32(q)*queueStride:
			return bellTDT + q, true
		}
	}
	return 0, false
}

// queueOf splits the offset of a queue register into queue 0's and the queue.
func (m *Model) queueOf(offset, first, last uint32) (reg uint32, queue int, ok bool) {
	for q := range m.opt.Kind.queues() {
		if r := offset - uint32(q)*queueStride; r >= first && r <= last {
			return r, q, true
		}
	}
	return 0, 0, false
}

func (m *Model) read(offset uint32) uint32 {
	if v, ok := m.irq.read(offset); ok {
		return v
	}
	if offset >= registerEnd {
		return 0
	}
	if offset >= regStats && offset < regStatsEnd {
		return m.readStatistic(offset)
	}
	m.control.Lock()
	defer m.control.Unlock()
	if r, q, ok := m.queueOf(offset, regRDBAL, regRDT); ok && r == regRDH {
		m.host.Rx.Lock()
		defer m.host.Rx.Unlock()
		return m.rx.queues[q].head
	}
	if r, q, ok := m.queueOf(offset, regTDBAL, regTDT); ok && r == regTDH {
		return m.tx.queues[q].head.Load()
	}
	switch offset {
	case regSTATUS:
		return m.status()
	case regCTRLDup:
		return m.regs[regCTRL/4]
	case regEECD:
		return m.readEECD()
	case regSWSM:
		v := m.regs[regSWSM/4]
		m.regs[regSWSM/4] |= swsmSMBI
		return v
	}
	return m.regs[offset/4]
}

func (m *Model) write(offset, value uint32, io bool) {
	if m.irq.write(offset, value) || offset >= registerEnd || m.absent(offset) {
		return
	}
	m.control.Lock()
	defer m.control.Unlock()
	switch offset {
	case regCTRL, regCTRLDup:
		m.writeCTRL(value, io)
	case regSTATUS:
		m.regs[regSTATUS/4] &= value | ^uint32(statusPHYRA)
	case regEECD:
		m.writeEECD(value)
	case regEERD:
		if !m.opt.Variation.NoEERD {
			m.regs[regEERD/4] = m.nvm.eerd(m.opt.Kind, value)
		}
	case regCTRLEXT:
		m.writeCTRLEXT(value)
	case regMDIC:
		m.writeMDIC(value)
	case regSWSM, regFWSM, regLEDCTL, regPBA, regWUC, regMANC, regAIT, regTIPG, regFCAL, regFCAH, regFCT, regFCTTV:
		m.regs[offset/4] = value // looked at by nobody
	default:
		m.writeConfig(offset, value)
	}
}

// writeConfig stores a register that a data path looks at.
func (m *Model) writeConfig(offset, value uint32) {
	if offset >= regStats && offset < regStatsEnd {
		return // read only
	}
	m.lockAll()
	defer m.unlockAll()
	m.regs[offset/4] = value
	if m.opt.Kind.spillsOddWords() && offset&4 != 0 && isTable(offset) {
		m.regs[offset/4-1] = value
	}
	if offset >= regRSSRK && offset < regRSSRK+rssKeyLen {
		m.rx.rss.dirty = true
	}
	if r, q, ok := m.queueOf(offset, regRDBAL, regRDT); ok {
		m.rx.setup(q, r, value)
	}
	if r, q, ok := m.queueOf(offset, regTDBAL, regTDT); ok {
		m.tx.setup(q, r, value)
	}
	if offset == regRCTL {
		m.rx.deafen()
	}
	m.rx.update()
	m.tx.update()
	m.host.Wake()
}

// isTable tells whether a register is a word of the multicast or the VLAN table.
func isTable(offset uint32) bool {
	return offset >= regMTA && offset < regMTA+4*mtaWords || offset >= regVFTA && offset < regVFTA+4*vftaWords
}

// absent tells which registers of the 82574L an 8254x lacks: they read zero.
func (m *Model) absent(offset uint32) bool {
	if m.opt.Kind.is574() {
		return false
	}
	switch {
	case offset == regRFCTL, offset == regPSRCTL, offset == regMRQC, offset == regSWSM, offset == regFWSM, offset == regPBACLR,
		offset >= regEIAC && offset < regEITR+4*maxVectors, offset == regRAID, offset >= regRETA, offset == regTARC, offset == regTARC+queueStride,
		offset >= regRDBAL+queueStride && offset <= regRDT+queueStride,
		offset >= regTDBAL+queueStride && offset <= regTDT+queueStride:
		return true
	}
	return false
}

func (m *Model) writeCTRLEXT(value uint32) {
	if value&ctrlExtEERST != 0 {
		// The NVM is read again, as after a reset; the bit clears itself.
		value &^= ctrlExtEERST
		m.lockAll()
		m.loadAddress()
		m.rx.update()
		m.unlockAll()
	}
	m.regs[regCTRLEXT/4] = value
	m.irq.setControl(value)
}

func (m *Model) readEECD() uint32 {
	v := m.regs[regEECD/4]&(eecdSK|eecdCS|eecdDI|eecdRequest) | eecdPresent
	if m.opt.Kind.is574() {
		v |= eecdAutoRD
	}
	if v&eecdRequest != 0 {
		v |= eecdGrant
	}
	if m.nvm.wire.do {
		v |= eecdDO
	}
	return v
}

func (m *Model) writeEECD(value uint32) {
	m.regs[regEECD/4] = value
	if !m.opt.Kind.is574() {
		m.nvm.wire.drive(&m.nvm, value)
	}
}
