package vmxnet3

import (
	"encoding/binary"

	"nicd/bus"
)

// activate is ACTIVATE_DEV: it reads DriverShared and the queue descriptors,
// checks all of it, and starts the queues. It returns 0, or 1 with nothing
// changed. All locks are held.
func (m *Model) activate() uint32 {
	if m.active {
		if m.opt.Variations.ActivateTwice {
			return 0
		}
		m.reason = badConfig("the device is active already")
		return 1
	}
	m.reason = m.start()
	if m.reason != nil {
		m.stop()
		return 1
	}
	return 0
}

func (m *Model) start() error {
	if m.addr == 0 || m.addr%8 != 0 {
		return badConfig("DriverShared at %#x", m.addr)
	}
	src := m.host.Rx.Bytes(m.addr, sharedSize)
	if src == nil {
		return badConfig("DriverShared at %#x is not mapped", m.addr)
	}
	var b [sharedSize]byte
	copy(b[:], src)
	s, err := parseShared(&b)
	if err != nil {
		return err
	}
	if err := m.startQueues(&s); err != nil {
		return err
	}
	m.shared = s
	if err := m.updateRSS(&b); err != nil {
		return err
	}
	m.updateRxMode(&b)
	m.updateMulticast(&b)
	m.rx.filter.setVLANs(b[dsVLANTable:])
	if m.opt.Variations.ActivateRestoresMAC {
		m.rx.filter.mac = m.opt.MAC
	}
	if m.opt.Variations.ActivateMasks {
		for v := range maxVectors {
			m.host.SetDoorbell(bellIMR+v, 1)
		}
	}
	m.active = true
	m.updateLRO()
	m.intr.start(m.addr, &s)
	return nil
}

// startQueues checks all queue descriptors before it starts any queue.
func (m *Model) startQueues(s *shared) error {
	total := (s.txQueues + s.rxQueues) * queueDescSize
	src := m.host.Rx.Bytes(s.queueDesc, total)
	if src == nil {
		return badConfig("queue descriptors at %#x are not mapped", s.queueDesc)
	}
	var b [(maxTxQueues + maxRxQueues) * queueDescSize]byte
	copy(b[:], src)
	var tx [maxTxQueues]txConfig
	var rx [maxRxQueues]rxConfig
	var err error
	for q := range s.txQueues {
		if tx[q], err = parseTxQueue(b[q*queueDescSize:], s, m.revision); err != nil {
			return err
		}
		if err := m.mapped(tx[q].ring, tx[q].comp); err != nil {
			return err
		}
	}
	for q := range s.rxQueues {
		if rx[q], err = parseRxQueue(b[(s.txQueues+q)*queueDescSize:], s, m.revision); err != nil {
			return err
		}
		if err := m.mapped(rx[q].ring[0], rx[q].ring[1], rx[q].comp); err != nil {
			return err
		}
	}
	threshold := max(m.opt.Variations.TxThreshold, 1)
	if threshold > 1 {
		m.tx.expectDeferred()
	}
	for q := range s.txQueues {
		m.tx.start(q, tx[q], s.queueDesc+uint64(q*queueDescSize))
		binary.LittleEndian.PutUint32(src[q*queueDescSize+qdTxThreshold:], threshold)
	}
	for q := range s.rxQueues {
		m.rx.start(q, rx[q], s.queueDesc+uint64((s.txQueues+q)*queueDescSize))
		m.rx.queues[q].ask(bus.Word(src, (s.txQueues+q)*queueDescSize+qdUpdateRxProd), false)
	}
	return nil
}

// mapped tells whether the driver's memory holds the rings.
func (m *Model) mapped(rings ...ringConfig) error {
	for _, r := range rings {
		if r.size > 0 && m.host.Rx.Bytes(r.base, r.size*descSize) == nil {
			return badConfig("ring of %d at %#x is not mapped", r.size, r.base)
		}
	}
	return nil
}
