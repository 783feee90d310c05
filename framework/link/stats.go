package link

import "sync/atomic"

// QueueStats is what the host counted for a queue, over all generations.
type QueueStats struct {
	Delivered uint64 // packets handed to the port
	Sent      uint64 // packets queued for the engine
	Malformed uint64 // packets of the port that made no sense: dropped
	Refused   uint64 // Sends that did not take all
	Misused   uint64 // buffers given back by a port that did not have them
	Sleeps    uint64 // times the receiver slept
	Reclaimed uint64 // buffers taken from engines that were gone, or put aside for the first
}

type queueCounters struct {
	delivered, sent, malformed, refused, misused, sleeps, reclaimed atomic.Uint64
}

// QueueStats reads a queue's counters. Any goroutine may call it.
func (h *Host) QueueStats(queue int) QueueStats {
	s := &h.queues[queue].counters
	return QueueStats{
		Delivered: s.delivered.Load(),
		Sent:      s.sent.Load(),
		Malformed: s.malformed.Load(),
		Refused:   s.refused.Load(),
		Misused:   s.misused.Load(),
		Sleeps:    s.sleeps.Load(),
		Reclaimed: s.reclaimed.Load(),
	}
}
