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
	dropped := uint64(0)
	for i := RxDropCRC; i <= RxDropPortFull; i++ {
		dropped += c[i]
	}
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
	dropped := uint64(0)
	for i := TxDropMalformed; i <= TxDropNoBuffer; i++ {
		dropped += c[i]
	}
	if c[TxTaken] != c[TxCompleted]+c[TxInFlight]+dropped {
		return fmt.Errorf("transmit queue %d: %d taken, but %d completed, %d in flight and %d dropped",
			q, c[TxTaken], c[TxCompleted], c[TxInFlight], dropped)
	}
	return nil
}
