package e1000

import "time"

// delays are the timers that hold causes back so that one interrupt serves
// several packets: RDTR and TIDV start anew with each packet, RADV and TADV
// bound the wait of the first (8254x SDM 3.2.7.1, 3.4.3), RAID holds back
// acknowledgements on the 82574L.
type delays struct {
	rdtr, radv, tidv, tadv, raid uint32
	rx, tx, ack                  delay
}

// delay is causes that wait.
type delay struct {
	causes           uint32
	packet, absolute time.Duration // when they run out; 0 is never
}

func (d *delay) add(causes uint32, now time.Duration, packet, absolute uint32) time.Duration {
	d.causes |= causes
	d.packet = now + time.Duration(packet)*delayUnit
	if absolute != 0 && d.absolute == 0 {
		d.absolute = now + time.Duration(absolute)*delayUnit
	}
	return d.due()
}

func (d *delay) due() time.Duration {
	if d.absolute != 0 && d.absolute < d.packet {
		return d.absolute
	}
	return d.packet
}

// take ends the wait.
func (d *delay) take() uint32 {
	causes := d.causes
	*d = delay{}
	return causes
}

const (
	delayedRx = causeRXT0 | causeRXQ0 | causeRXQ1
	delayedTx = causeTXDW | causeTXQ0 | causeTXQ1
)

// raiseRx raises what a batch of received frames causes, some of it later.
func (q *interrupts) raiseRx(causes uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	d := &q.delays
	if (d.rdtr != 0 || d.raid != 0) && !q.msix() {
		now := q.model.host.Now()
		if late := causes & delayedRx; late != 0 && d.rdtr != 0 {
			q.model.schedule(d.rx.add(late, now, d.rdtr, d.radv))
			causes &^= late
		}
		if causes&causeACK != 0 && d.raid != 0 {
			if d.ack.causes == 0 {
				q.model.schedule(d.ack.add(causeACK, now, d.raid, 0))
			}
			causes &^= causeACK
		}
	}
	if causes != 0 {
		q.set(causes)
		q.deliver(0)
	}
}

// raiseTx raises causes now and delayed ones, those of descriptors with IDE, when
// the transmit timers run out.
func (q *interrupts) raiseTx(causes, delayed uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	d := &q.delays
	if delayed != 0 {
		if d.tidv == 0 || q.msix() {
			causes |= delayed
		} else {
			q.model.schedule(d.tx.add(delayed, q.model.host.Now(), d.tidv, d.tadv))
		}
	}
	if causes&delayedTx != 0 {
		causes |= d.tx.take() // a write-back that interrupts ends the wait of the others
	}
	if causes != 0 {
		q.set(causes)
		q.deliver(0)
	}
}

// expire moves to ICR what has waited long enough.
func (q *interrupts) expire(now time.Duration) {
	for _, d := range []*delay{&q.delays.rx, &q.delays.tx, &q.delays.ack} {
		switch {
		case d.causes == 0:
		case d.due() <= now:
			q.set(d.take())
		default:
			q.model.schedule(d.due())
		}
	}
}

// flush ends one direction's wait (FPD).
func (q *interrupts) flush(rx bool) {
	if rx {
		q.set(q.delays.rx.take())
		return
	}
	q.set(q.delays.tx.take())
}

// flushDelays: with CTRL_EXT.INT_TIMERS_CLEAR_ENA an interrupt takes along what
// waits.
func (q *interrupts) flushDelays() {
	if q.is574() && q.ext&ctrlExtTimers != 0 {
		q.set(q.delays.rx.take() | q.delays.tx.take() | q.delays.ack.take())
	}
}
