package engine

import (
	"errors"
	"fmt"
)

// This file is the law that counters keep, at any moment and across resets.

// Check adds up: on every receive queue, what was received is what went up and
// what was dropped; on every transmit queue, what was taken is what was sent,
// what is on its way and what was dropped. It returns what does not, nil if all
// does. A torn snapshot is not judged.
func Check(s Snapshot) error {
	if s.Torn {
		return nil
	}
	var errs []error
	for q := range s.Rx {
		errs = append(errs, checkRx(q, &s.Rx[q]))
	}
	for q := range s.Tx {
		errs = append(errs, checkTx(q, &s.Tx[q]))
	}
	return errors.Join(errs...)
}

func checkRx(q int, c *[numRxCounters]uint64) error {
	dropped := droppedRx(c)
	if c[RxPackets] != c[RxAccepted]+dropped {
		return fmt.Errorf("receive queue %d: %d packets, but %d accepted and %d dropped", q, c[RxPackets], c[RxAccepted], dropped)
	}
	merged := c[RxSoftwareSegments] - c[RxSoftwareCoalesced]
	if c[RxAccepted] != c[RxDelivered]+merged {
		return fmt.Errorf("receive queue %d: %d accepted, but %d delivered and %d merged into them", q, c[RxAccepted], c[RxDelivered], merged)
	}
	return nil
}

func checkTx(q int, c *[numTxCounters]uint64) error {
	dropped := droppedTx(c)
	if c[TxTaken] != c[TxCompleted]+c[TxInFlight]+dropped {
		return fmt.Errorf("transmit queue %d: %d taken, but %d completed, %d in flight and %d dropped",
			q, c[TxTaken], c[TxCompleted], c[TxInFlight], dropped)
	}
	return nil
}

// mendRx makes counters add up that an engine died in the middle of storing. They
// are stored in order, so some are a batch ahead of others; those are raised. What
// was received and went nowhere by any account went down with the engine.
func mendRx(c *[numRxCounters]uint64) {
	c[RxSoftwareSegments] = max(c[RxSoftwareSegments], c[RxSoftwareCoalesced])
	merged := c[RxSoftwareSegments] - c[RxSoftwareCoalesced]
	c[RxAccepted] = max(c[RxAccepted], c[RxDelivered]+merged)
	c[RxDelivered] = c[RxAccepted] - merged
	used := c[RxAccepted] + droppedRx(c)
	c[RxPackets] = max(c[RxPackets], used)
	c[RxDropDevice] += c[RxPackets] - used
}

// mendTx is the same for transmit. What the engine had in flight is lost: it was in
// a queue when the interface stopped.
func mendTx(c *[numTxCounters]uint64) {
	used := c[TxCompleted] + droppedTx(c)
	c[TxTaken] = max(c[TxTaken], used)
	c[TxDropStopped] += c[TxTaken] - used
	c[TxInFlight] = 0
}

func droppedRx(c *[numRxCounters]uint64) (n uint64) {
	for i := RxDropCRC; i <= RxDropPortFull; i++ {
		n += c[i]
	}
	return n
}

func droppedTx(c *[numTxCounters]uint64) (n uint64) {
	for i := TxDropMalformed; i <= TxDropNoBuffer; i++ {
		n += c[i]
	}
	return n
}
