package link

import (
	"sync/atomic"

	"nicd/framework"
)

// QueueStats is what the host counted for a queue, over all generations.
type QueueStats struct {
	Delivered uint64 // packets handed to the port
	Sent      uint64 // packets queued for the engine
	Dropped   uint64 // packets of Sent that an engine had not taken when it was gone
	Malformed uint64 // packets of the port that made no sense: dropped
	Refused   uint64 // Sends that did not take all
	Misused   uint64 // buffers given back by a port that did not have them
	Sleeps    uint64 // times the receiver slept
	Reclaimed uint64 // buffers taken from engines that were gone
}

type queueCounters struct {
	delivered, sent, dropped, malformed, refused, misused, sleeps, reclaimed atomic.Uint64
}

// QueueStats reads a queue's counters. Any goroutine may call it.
func (h *Host) QueueStats(queue int) QueueStats {
	s := &h.queues[queue].counters
	return QueueStats{
		Delivered: s.delivered.Load(),
		Sent:      s.sent.Load(),
		Dropped:   s.dropped.Load(),
		Malformed: s.malformed.Load(),
		Refused:   s.refused.Load(),
		Misused:   s.misused.Load(),
		Sleeps:    s.sleeps.Load(),
		Reclaimed: s.reclaimed.Load(),
	}
}

// Holdings counts who has a host's buffers, over all queues. While packets flow
// it is a blurred picture; when nothing does, what is not Free or with the engine
// for receive is a port's reserve or a leak.
type Holdings struct {
	RxEngine int // receive buffers with the engine, or on the way to or from it
	RxPort   int // receive buffers that were delivered and not given back
	TxFree   int // transmit buffers that nobody has
	TxPort   int // transmit buffers that the port took and has not sent
	TxEngine int // transmit buffers with the engine, or on the way to or from it
}

// Holdings looks at every buffer. Any goroutine may call it.
func (h *Host) Holdings() (n Holdings) {
	for i := range h.queues {
		q := &h.queues[i]
		for b := range q.rxPool.Count {
			if h.owners.of(q.rxPool.First+framework.Buffer(b)) == ownerPort {
				n.RxPort++
				continue
			}
			n.RxEngine++
		}
		for b := range q.txPool.Count {
			switch h.owners.of(q.txPool.First + framework.Buffer(b)) {
			case ownerHost:
				n.TxFree++
			case ownerPort:
				n.TxPort++
			default:
				n.TxEngine++
			}
		}
	}
	return n
}

// Reclaim takes back what the engine has given back of transmit buffers. That
// happens by itself when a port asks for buffers; before Holdings is believed it
// may have to happen now.
func (h *Host) Reclaim() {
	for i := range h.queues {
		q := &h.queues[i]
		q.mu.Lock()
		v := q.reclaim()
		q.mu.Unlock()
		if v != nil {
			h.broken(v)
		}
	}
}
