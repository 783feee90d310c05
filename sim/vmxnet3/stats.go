package vmxnet3

import (
	"encoding/binary"
)

// txCounters and rxCounters are the statistics of a queue, in the order in which
// GET_STATS stores them (Linux upt1_defs.h). Frames are counted as they are on
// the wire: after segmentation, before coalescing. They start again at RESET.
type txCounters struct {
	tsoPkts, tsoBytes uint64
	cast              castCounters
	err               uint64
	discard           uint64
}

type rxCounters struct {
	lroPkts, lroBytes uint64 // coalesced packets
	cast              castCounters
	outOfBuf          uint64
	err               uint64
	discard           uint64 // reported with err
}

type castCounters [numCastKinds]struct{ pkts, bytes uint64 }

func (c *castCounters) add(kind castKind, pkts, bytes int) {
	c[kind].pkts += uint64(pkts)
	c[kind].bytes += uint64(bytes)
}

// count counts the packet that was received.
func (r *receiver) count(q *rxQueue, bad bool) {
	p, c := &r.packet, &r.counters[q.id]
	if bad {
		c.err++
		return
	}
	c.cast.add(p.cast, p.segments, p.len+(p.segments-1)*p.h.Payload)
	if p.segments > 1 {
		c.lroPkts++
		c.lroBytes += uint64(p.len)
	}
}

// writeStats is GET_STATS: the device stores all queues' counters.
func (m *Model) writeStats() {
	for q := range m.shared.txQueues {
		c := &m.tx.counters[q]
		m.writeWords(q, qdStats, c.tsoPkts, c.tsoBytes,
			c.cast[castUnicast].pkts, c.cast[castUnicast].bytes,
			c.cast[castMulticast].pkts, c.cast[castMulticast].bytes,
			c.cast[castBroadcast].pkts, c.cast[castBroadcast].bytes,
			c.err, c.discard)
	}
	for q := range m.shared.rxQueues {
		c := &m.rx.counters[q]
		m.writeWords(m.shared.txQueues+q, qdStats, c.lroPkts, c.lroBytes,
			c.cast[castUnicast].pkts, c.cast[castUnicast].bytes,
			c.cast[castMulticast].pkts, c.cast[castMulticast].bytes,
			c.cast[castBroadcast].pkts, c.cast[castBroadcast].bytes,
			c.outOfBuf, c.err+c.discard)
	}
}

// writeWords stores words to queue descriptor number q from offset at on.
func (m *Model) writeWords(q, at int, words ...uint64) {
	b := m.host.Rx.Bytes(m.shared.queueDesc+uint64(q*queueDescSize+at), 8*len(words))
	if b == nil {
		return
	}
	for i, w := range words {
		binary.LittleEndian.PutUint64(b[8*i:], w)
	}
}

// writeStatus is GET_QUEUE_STATUS: which queues stopped, and why.
func (m *Model) writeStatus() {
	store := func(q int, stopped bool, code uint32) {
		b := m.host.Rx.Bytes(m.shared.queueDesc+uint64(q*queueDescSize+qdStopped), 8)
		if b == nil {
			return
		}
		b[0] = 0
		if stopped {
			b[0] = 1
		}
		binary.LittleEndian.PutUint32(b[qdError-qdStopped:], code)
	}
	for q := range m.shared.txQueues {
		store(q, m.tx.queues[q].stopped, m.tx.queues[q].err)
	}
	for q := range m.shared.rxQueues {
		store(m.shared.txQueues+q, m.rx.queues[q].stopped, m.rx.queues[q].err)
	}
}
