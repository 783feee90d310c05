package e1000

import (
	"sync/atomic"
	"time"

	"nicd/bus"
	"nicd/sim"
)

// receiver is the receive half. Guarded by Host.Rx, but for what is atomic.
type receiver struct {
	model  *Model
	queues [maxQueues]rxQueue
	stats  statistics
	filter filter
	rss    rss
	rxConfig

	// deaf: nothing is received until then (Variation.DeafAfterRCTL).
	deaf time.Duration
	// short has bit q set while queue q keeps a sender waiting for descriptors.
	short atomic.Uint32
	// offer makes Work tell the senders that there is room.
	offer atomic.Bool
	// seen counts frames, for the variations that treat one in so many.
	seen int

	causes  uint32 // of the batch
	parsed  sim.Headers
	scratch [headerView]byte
	fcs     [fcsLen]byte
	parts   [][]byte
	slots   []rxSlot
}

// rxConfig is what the registers say, read when they change.
type rxConfig struct {
	enabled      bool
	strip        bool // CTRL.VME
	longPackets  bool // RCTL.LPE
	storeBad     bool // RCTL.SBP
	stripFCS     bool // RCTL.SECRC
	extended     bool // RFCTL.EXTEN
	checkIP      bool // RXCSUM.IPOFL
	checkL4      bool // RXCSUM.TUOFL
	checkL4IPv6  bool
	reportHash   bool // RXCSUM.PCSD
	reportSum    bool // see receiver.update
	sumFrom      int  // RXCSUM.PCSS
	bufferSize   int
	units        uint32            // of the ring in a descriptor
	split        [splitBuffers]int // sizes of a packet split descriptor's buffers
	smallPacket  int               // RSRPD
	noticeACK    bool
	minThreshold uint32 // RXDMT0: a ring's size is shifted right by this
}

// rxQueue is a receive ring.
type rxQueue struct {
	index  int
	base   uint64
	size   uint32 // in descriptors
	head   uint32
	broken bool // the ring is not in memory that the device may access

	// ring and tail are looked up once a batch.
	ring []byte
	bell uint32 // what the driver wrote to the tail register
	tail uint32 // and what it is worth
	// shortTail is the tail that was too little, when the short bit is set.
	shortTail atomic.Uint32
	// since is when a sender began to wait, 0 if none has since a frame was last
	// received.
	since time.Duration
}

// rxSlot is a descriptor chosen for a part of a frame. No bytes: it has no
// buffer and is passed over.
type rxSlot struct {
	index uint32
	addr  uint64
	n     int
	split splitSlot
}

const (
	// headerView is how much of a frame is looked at as headers: Ethernet with a
	// tag, and the longest IPv4 and TCP headers or IPv6 with some extensions.
	headerView = 192

	minFrame     = 60    // without FCS
	maxStandard  = 1522  // with FCS: what passes without LPE
	maxLong      = 16384 // with FCS: what passes with it
	ringSizeMask = 0xFFF80
	ringBaseMask = ^uint32(15)
	headMask     = 0xFFFF

	// pauseLimit is how long a driver that posts nothing may hold up its peer.
	// After that frames are dropped until one is received again, as a switch's
	// pause watchdog does.
	pauseLimit = time.Second
)

func (r *receiver) init(m *Model) {
	r.model = m
	for q := range r.queues {
		r.queues[q].index = q
	}
	r.parts = make([][]byte, 0, 64)
	r.slots = make([]rxSlot, 0, 64)
}

// reset makes the rings empty. All locks are held.
func (r *receiver) reset() {
	for i := range r.queues {
		q := &r.queues[i]
		q.base, q.size, q.head, q.broken, q.since = 0, 0, 0, false, 0
	}
	r.stats = statistics{}
	r.rss.dirty = true
	r.deaf = 0
	r.release()
}

// release lets waiting senders try again.
func (r *receiver) release() {
	if r.short.Swap(0) != 0 {
		r.offer.Store(true)
	}
}

// setup takes over a write to a ring's registers. All locks are held.
func (r *receiver) setup(queue int, reg, value uint32) {
	q := &r.queues[queue]
	regs := &r.model.regs
	at := (reg + uint32(queue)*queueStride) / 4
	switch reg {
	case regRDBAL:
		regs[at] = value & ringBaseMask
	case regRDLEN:
		regs[at] = value & ringSizeMask
	case regRDH:
		q.head = value & headMask
	}
	first := (regRDBAL + uint32(queue)*queueStride) / 4
	q.base = uint64(regs[first]) | uint64(regs[first+1])<<32
	q.size = regs[first+2] / descriptorSize
	q.broken, q.since = false, 0
	r.release()
}

// update reads the configuration anew. All locks are held.
func (r *receiver) update() {
	m := r.model
	rctl, ctrl := m.regs[regRCTL/4], m.regs[regCTRL/4]
	rxcsum, rfctl := m.regs[regRXCSUM/4], m.regs[regRFCTL/4]
	is574 := m.opt.Kind.is574()
	r.rxConfig = rxConfig{
		enabled:      rctl&rctlEN != 0 && !(is574 && ctrl&ctrlMasterDisable != 0) && m.up.Load(),
		strip:        ctrl&ctrlVME != 0,
		longPackets:  rctl&rctlLPE != 0,
		storeBad:     rctl&rctlSBP != 0,
		stripFCS:     rctl&rctlSECRC != 0,
		extended:     is574 && rfctl&rfctlEXTEN != 0,
		checkIP:      rxcsum&rxcsumIPOFL != 0,
		checkL4:      rxcsum&rxcsumTUOFL != 0,
		checkL4IPv6:  is574 && rfctl&(rfctlIPv6Dis|rfctlIPv6XsumDis) == 0,
		reportHash:   is574 && rxcsum&rxcsumPCSD != 0,
		sumFrom:      int(rxcsum & rxcsumPCSSMask),
		bufferSize:   r.bufferBytes(rctl),
		smallPacket:  int(m.regs[regRSRPD/4] & 0xFFF),
		noticeACK:    is574 && rfctl&rfctlAckDis == 0,
		minThreshold: rctl>>rctlRDMTSShift&3 + 1,
	}
	r.units = 1
	if r.extended && rctl&rctlDTYPMask == rctlDTYPSplit {
		r.units, r.split = splitUnits, splitSizes(m.regs[regPSRCTL/4])
	}
	// Summing every frame costs a pass over it, so the packet checksum is
	// reported only to software that seems to want it: PCSS is set, or the chip
	// is not to check by itself.
	r.reportSum = !r.reportHash && (r.sumFrom != 0 || !r.checkIP && !r.checkL4)
	r.filter.update(m)
	r.rss.update(m)
	for i := range r.queues {
		if q := &r.queues[i]; q.head >= max(q.size, 1) {
			q.head = 0
		}
	}
	if !r.enabled {
		r.release()
	}
}

// bufferBytes is the size of a receive buffer (8254x SDM 13.4.22; FLXBUF: 82574
// datasheet 10.2.5.1).
func (r *receiver) bufferBytes(rctl uint32) int {
	m := r.model
	if flex := rctl >> rctlFLXBUFShift & rctlFLXBUFMask; flex != 0 && m.opt.Kind.is574() && !m.opt.Variation.IgnoreFLXBUF {
		return int(flex) << 10
	}
	size := rctl >> rctlBSIZEShift & 3
	if rctl&rctlBSEX != 0 && size != 0 {
		return 32768 >> size
	}
	return 2048 >> size
}

// deafen is what a write of RCTL does to QEMU's model.
func (r *receiver) deafen() {
	if d := r.model.opt.Variation.DeafAfterRCTL; d > 0 {
		r.deaf = r.model.host.Now() + d
		r.model.schedule(r.deaf)
	}
}

// timers ends deafness, and pauses that have lasted too long.
func (r *receiver) timers(now time.Duration) {
	r.model.host.Rx.Lock()
	defer r.model.host.Rx.Unlock()
	if r.deaf != 0 && r.due(r.deaf, now) {
		r.deaf = 0
		r.release()
	}
	for i := range r.queues {
		q := &r.queues[i]
		if q.since != 0 && r.short.Load()>>i&1 != 0 && r.due(q.since+pauseLimit, now) {
			r.release()
		}
	}
}

// due tells whether a time has come; if not, timers is called again then.
func (r *receiver) due(at, now time.Duration) bool {
	if now < at {
		r.model.schedule(at)
		return false
	}
	return true
}

// expired tells whether the queue has made its peer wait for too long.
func (r *receiver) expired(q *rxQueue) bool {
	return q.since != 0 && r.model.host.Now() >= q.since+pauseLimit
}

// offerRoom tells waiting senders that there are descriptors again.
func (m *Model) offerRoom() bool {
	r := &m.rx
	for short, q := r.short.Load(), 0; short != 0; short, q = short>>1, q+1 {
		if short&1 == 0 || m.host.Doorbell(bellRDT+q) == r.queues[q].shortTail.Load() {
			continue
		}
		r.short.And(^uint32(1 << q))
		r.offer.Store(true)
	}
	if !r.offer.Load() || !r.offer.Swap(false) {
		return false
	}
	m.host.Rx.Lock()
	r.stats.add(statXONTXC, 1)
	m.host.Rx.Unlock()
	if m.port != nil {
		m.port.Room()
	}
	return true
}

// begin looks up a queue's ring and tail for a batch. It returns false if the
// queue can take nothing at all.
func (q *rxQueue) begin(m *Model) bool {
	if q.broken || q.size == 0 {
		return false
	}
	if q.ring == nil {
		q.ring = m.host.Rx.Bytes(q.base, int(q.size)*descriptorSize)
		q.broken = q.ring == nil
		q.refresh(m)
	}
	return !q.broken
}

// refresh reads the tail and tells whether it moved. One outside the ring leaves
// nothing to receive into.
func (q *rxQueue) refresh(m *Model) bool {
	was := q.bell
	q.bell = m.host.Doorbell(bellRDT + q.index)
	if q.tail = q.bell; q.tail >= q.size {
		q.tail = q.head
	}
	return q.bell != was
}

// ready is how many descriptors the device has.
func (q *rxQueue) ready() uint32 {
	if q.tail >= q.head {
		return q.tail - q.head
	}
	return q.tail + q.size - q.head
}

// word is a descriptor's word for atomic access.
func descriptorWord(ring []byte, index uint32, at int) *atomic.Uint32 {
	return bus.Word(ring, int(index)*descriptorSize+at)
}
