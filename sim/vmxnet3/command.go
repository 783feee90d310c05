package vmxnet3

import (
	"encoding/binary"
	"math/bits"
	"slices"

	"nicd/bus"
)

// ReadRegister implements sim.Model.
func (m *Model) ReadRegister(region int, offset uint32) uint32 {
	if region != barVD {
		return 0
	}
	if offset == regICR {
		return m.intr.acknowledge()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch offset {
	case regVRRS:
		return m.revisions()
	case regUVRS:
		return 1
	case regCMD:
		return m.result
	case regMACL:
		return binary.LittleEndian.Uint32(m.rx.filter.mac[:])
	case regMACH:
		return uint32(binary.LittleEndian.Uint16(m.rx.filter.mac[4:]))
	}
	return 0
}

// revisions is the bitmap of those that the device offers.
func (m *Model) revisions() uint32 {
	if b := m.opt.Variations.RevisionBitmap; b != 0 {
		return b
	}
	return 1<<m.opt.Revision - 1
}

// WriteRegister implements sim.Model.
func (m *Model) WriteRegister(region int, offset, value uint32) {
	if region != barVD {
		return
	}
	m.lock()
	defer m.unlock()
	switch offset {
	case regVRRS:
		if bits.OnesCount32(value) == 1 && value&m.revisions() != 0 && !m.active {
			m.revision = 1 + bits.TrailingZeros32(value)
		}
	case regDSAL:
		m.addrLow = value
		if value == 0 {
			m.stop()
			m.addr = 0
		}
	case regDSAH:
		if !m.active {
			m.addr = uint64(value)<<32 | uint64(m.addrLow)
		}
	case regCMD:
		m.result = m.command(value)
	case regMACL:
		m.macLow = value
	case regMACH:
		binary.LittleEndian.PutUint32(m.rx.filter.mac[:], m.macLow)
		binary.LittleEndian.PutUint16(m.rx.filter.mac[4:], uint16(value))
	case regECR:
		m.clearEvents(value)
	}
}

func (m *Model) clearEvents(bits uint32) {
	if !m.active {
		return
	}
	if b := m.host.Rx.Bytes(m.addr+dsECR, 4); b != nil {
		bus.Word(b, 0).And(^bits)
	}
}

// command carries out a command and returns what CMD reads afterwards. All locks
// are held. A command that the device does not know reads 0.
func (m *Model) command(c uint32) uint32 {
	switch c {
	case cmdActivate:
		return m.activate()
	case cmdQuiesce:
		m.stop()
		return 0
	case cmdReset:
		m.stop()
		m.forget()
		if m.opt.Variations.ResetForgetsAddress {
			m.addr, m.addrLow = 0, 0
		}
		return 0
	case cmdGetLink:
		return m.linkWord()
	case cmdGetPermMACLow:
		return binary.LittleEndian.Uint32(m.opt.MAC[:])
	case cmdGetPermMACHigh:
		return uint32(binary.LittleEndian.Uint16(m.opt.MAC[4:]))
	case cmdGetDeviceIDLow:
		return deviceVMXNET3
	case cmdGetDeviceIDHigh:
		return pciRevision
	case cmdGetDevExtraInfo:
		if m.passthrough.Load() {
			return 1
		}
		return 0
	case cmdGetConfIntr:
		return m.opt.Interrupt
	case cmdGetAdaptiveRing:
		return 1 // disabled
	case cmdGetDisabled:
		return m.opt.Variations.DisabledOffloads
	}
	if r, ok := m.revisionCommand(c); ok {
		return r
	}
	if m.active {
		return m.activeCommand(c)
	}
	return 0
}

// linkWord is the answer to GET_LINK.
func (m *Model) linkWord() uint32 {
	speed := uint32(m.opt.SpeedMbps)
	if m.opt.Variations.LinkInGbps && speed%1000 == 0 {
		speed /= 1000
	}
	if !m.link {
		return 0
	}
	return 1 | speed<<16
}

// revisionCommand is what revisions 3 and 4 added. In lower ones the commands
// are unknown.
func (m *Model) revisionCommand(c uint32) (result uint32, known bool) {
	switch {
	case c == cmdGetTxDataDescSize && m.revision >= 3:
		return txDataDescDefault, true
	case c == cmdGetCoalesce && m.revision >= 3:
		return m.coalMode, true
	case c == cmdSetCoalesce && m.revision >= 3 && m.active:
		return m.setCoalesce(), true
	case c == cmdSetRSSFields && m.revision >= 4 && m.active:
		if b := m.host.Rx.Bytes(m.addr+dsCommandInfo, 4); b != nil {
			m.rx.rss.fields = binary.LittleEndian.Uint32(b) & fieldsOffered
			return 0, true
		}
		return 1, true
	case c == cmdGetRSSFields && m.revision >= 4:
		return m.rx.rss.fields, true
	}
	return 0, false
}

// activeCommand is the commands that read or write the driver's memory.
func (m *Model) activeCommand(c uint32) uint32 {
	var b [sharedSize]byte
	src := m.host.Rx.Bytes(m.addr, sharedSize)
	if src == nil {
		return 1
	}
	copy(b[:], src)
	switch c {
	case cmdUpdateRxMode:
		m.updateRxMode(&b)
	case cmdUpdateMACFilters:
		return m.updateMulticast(&b)
	case cmdUpdateVLAN:
		m.rx.filter.setVLANs(b[dsVLANTable:])
	case cmdUpdateRSSIDT:
		return failed(m.updateRSS(&b))
	case cmdUpdateIML:
		m.intr.updateLevels(b[dsModLevels : dsModLevels+maxVectors])
	case cmdUpdateFeature:
		return m.updateFeatures(&b)
	case cmdGetQueueStatus:
		m.writeStatus()
	case cmdGetStats:
		m.writeStats()
	}
	return 0
}

func failed(err error) uint32 {
	if err != nil {
		return 1
	}
	return 0
}

func (m *Model) updateRxMode(b *[sharedSize]byte) {
	m.rx.filter.mode = binary.LittleEndian.Uint32(b[dsRxMode:])
}

func (m *Model) updateMulticast(b *[sharedSize]byte) uint32 {
	n := int(binary.LittleEndian.Uint16(b[dsMulticastLen:]))
	m.rx.filter.multicast = nil
	if n == 0 {
		return 0
	}
	if n > maxMulticast*multicastMACSize {
		return 1
	}
	table := m.host.Rx.Bytes(binary.LittleEndian.Uint64(b[dsMulticastPA:]), n)
	m.rx.filter.multicast = slices.Clone(table)
	if table == nil {
		return 1
	}
	return 0
}

// updateRSS reads the RSS configuration if RSS is on.
func (m *Model) updateRSS(b *[sharedSize]byte) error {
	fields := m.rx.rss.fields
	m.rx.rss.on = false
	if m.shared.features&featureRSS == 0 {
		return nil
	}
	var conf [rssConfSize]byte
	n := min(int(binary.LittleEndian.Uint32(b[dsRSSLen:])), rssConfSize)
	src := m.host.Rx.Bytes(binary.LittleEndian.Uint64(b[dsRSSPA:]), n)
	if src == nil {
		return badConfig("RSS configuration is not mapped")
	}
	copy(conf[:], src)
	r, err := parseRSS(&conf, m.shared.rxQueues)
	if err != nil {
		return err
	}
	r.fields = fields
	m.rx.rss = r
	return nil
}

func (m *Model) updateFeatures(b *[sharedSize]byte) uint32 {
	rssBefore := m.shared.features & featureRSS
	m.shared.features = binary.LittleEndian.Uint32(b[dsFeatures:])
	m.updateLRO()
	if m.shared.features&featureRSS != rssBefore {
		return failed(m.updateRSS(b))
	}
	return 0
}

func (m *Model) setCoalesce() uint32 {
	info := m.host.Rx.Bytes(m.addr+dsCommandInfo, 16)
	if info == nil || binary.LittleEndian.Uint32(info[varConfLen:]) < coalesceSize {
		return 1
	}
	src := m.host.Rx.Bytes(binary.LittleEndian.Uint64(info[varConfPA:]), coalesceSize)
	if src == nil {
		return 1
	}
	var scheme [coalesceSize]byte
	copy(scheme[:], src)
	var rx, tx uint32
	for q := range m.shared.rxQueues {
		rx |= 1 << m.rx.queues[q].intr
	}
	for q := range m.shared.txQueues {
		tx |= 1 << m.tx.queues[q].intr
	}
	if !m.intr.coalesce(scheme[:], rx, tx) {
		return 1
	}
	m.coalMode = binary.LittleEndian.Uint32(scheme[coalMode:])
	return 0
}
