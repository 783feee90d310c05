package engine

import (
	"errors"
	"fmt"
	"sync/atomic"

	"nicd/bus"
)

// The counters page is memory that the engine writes and nicd reads, while the
// engine runs and after its process died. It is 64-bit words in host byte
// order: a header of eight words, the device's block, a block per receive queue,
// a block per transmit queue. Each block begins with a sequence word that is odd
// while its owner writes; the counters follow in their table's order; blocks are
// padded to whole cache lines.
//
// A queue's block is written by the queue's task, once per batch; interrupts and
// resets, which others count, are added atomically and are not covered by the
// sequence word.
const (
	pageMagic   = 0x6e696364_636e7473 // "nicdcnts"
	pageVersion = 1

	headerWords = 8
	lineWords   = 8

	deviceWords = (1 + int(numDeviceCounters) + lineWords - 1) / lineWords * lineWords
	rxWords     = (1 + int(numRxCounters) + lineWords - 1) / lineWords * lineWords
	txWords     = (1 + int(numTxCounters) + lineWords - 1) / lineWords * lineWords
)

// ErrCounters: a counters page is too small or was not written by an engine of
// this version.
var ErrCounters = errors.New("counters page does not fit")

// CountersSize is how many bytes a page for so many queues takes.
func CountersSize(rxQueues, txQueues int) int {
	return 8 * (headerWords + deviceWords + rxQueues*rxWords + txQueues*txWords)
}

// page is the writer's view.
type page struct {
	device []atomic.Uint64
	rx, tx []block
}

// block is where a queue's counters stand in the page.
type block struct {
	words []atomic.Uint64 // sequence word, then the counters
}

// openPage makes mem a counters page for so many queues. What an earlier engine
// of the same layout counted goes on.
func openPage(mem []byte, rxQueues, txQueues int) (*page, error) {
	if len(mem) < CountersSize(rxQueues, txQueues) {
		return nil, fmt.Errorf("%w: %d bytes for %d+%d queues, %d are needed",
			ErrCounters, len(mem), rxQueues, txQueues, CountersSize(rxQueues, txQueues))
	}
	w := bus.Words64(mem)
	header := [...]uint64{pageMagic, pageVersion, uint64(rxQueues), uint64(txQueues),
		uint64(numDeviceCounters), uint64(numRxCounters), uint64(numTxCounters)}
	same := true
	for i, v := range header {
		same = same && w[i].Load() == v
	}
	if !same {
		for i := range w {
			w[i].Store(0)
		}
		for i, v := range header {
			w[i].Store(v)
		}
	}
	p := &page{}
	w = w[headerWords:]
	p.device, w = w[1:deviceWords:deviceWords], w[deviceWords:]
	for range rxQueues {
		p.rx = append(p.rx, openBlock(w[:rxWords:rxWords]))
		w = w[rxWords:]
	}
	for range txQueues {
		p.tx = append(p.tx, openBlock(w[:txWords:txWords]))
		w = w[txWords:]
	}
	return p, nil
}

func openBlock(w []atomic.Uint64) block {
	if s := w[0].Load(); s&1 != 0 { // its owner died while it wrote
		w[0].Store(s + 1)
	}
	return block{w}
}

func (p *page) add(c DeviceCounter, n uint64) { p.device[c].Add(n) }

// counter is a counter that others than the block's owner add to.
func (b block) counter(i int) *atomic.Uint64 { return &b.words[1+i] }

// load reads all of a block's counters.
func (b block) load(dst []uint64) {
	for i := range dst {
		dst[i] = b.words[1+i].Load()
	}
}

// publish stores what differs between now and was, and makes them equal. A
// counter that others add to never differs here.
func (b block) publish(now, was []uint64) {
	was = was[:len(now)]
	words := b.words[1 : 1+len(now)]
	open := false
	for i, v := range now {
		if v == was[i] {
			continue
		}
		if !open {
			b.words[0].Add(1)
			open = true
		}
		words[i].Store(v)
		was[i] = v
	}
	if open {
		b.words[0].Add(1)
	}
}

// Snapshot is what a counters page says at one moment: tables by queue, in the
// order of [DeviceCounters], [RxCounters] and [TxCounters].
type Snapshot struct {
	Device [numDeviceCounters]uint64
	Rx     [][numRxCounters]uint64
	Tx     [][numTxCounters]uint64
	// Torn tells that a block was read in the middle of a batch, because its
	// owner died there or because it never stood still: its numbers need not
	// add up.
	Torn bool
}

// ReadCounters reads a page for so many queues. It does not trust the page: it
// reads nothing outside mem and believes no number in it.
func ReadCounters(mem []byte, rxQueues, txQueues int) (Snapshot, error) {
	var s Snapshot
	if len(mem) < CountersSize(rxQueues, txQueues) {
		return s, ErrCounters
	}
	w := bus.Words64(mem)
	if w[0].Load() != pageMagic || w[1].Load() != pageVersion ||
		w[2].Load() != uint64(rxQueues) || w[3].Load() != uint64(txQueues) {
		return s, fmt.Errorf("%w: version %d, %d+%d queues", ErrCounters, w[1].Load(), w[2].Load(), w[3].Load())
	}
	w = w[headerWords:]
	for i := range s.Device {
		s.Device[i] = w[1+i].Load()
	}
	w = w[deviceWords:]
	s.Rx = make([][numRxCounters]uint64, rxQueues)
	for q := range s.Rx {
		s.Torn = !readBlock(s.Rx[q][:], w[:rxWords]) || s.Torn
		w = w[rxWords:]
	}
	s.Tx = make([][numTxCounters]uint64, txQueues)
	for q := range s.Tx {
		s.Torn = !readBlock(s.Tx[q][:], w[:txWords]) || s.Torn
		w = w[txWords:]
	}
	return s, nil
}

// readBlock copies a block and tells whether it is one that stood still.
func readBlock(dst []uint64, w []atomic.Uint64) bool {
	const tries = 1000
	for range tries {
		before := w[0].Load()
		for i := range dst {
			dst[i] = w[1+i].Load()
		}
		if before&1 == 0 && w[0].Load() == before {
			return true
		}
	}
	return false
}
