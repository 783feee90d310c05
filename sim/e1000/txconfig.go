package e1000

import (
	"sync/atomic"

	"nicd/sim"
)

const (
	// passFrames and passBytes bound how much one pass puts on the wire while it
	// keeps register accesses waiting.
	passFrames = 64
	passBytes  = 512 << 10

	// maxTxFrame is the longest frame without segmentation, FCS included.
	maxTxFrame = 16288
	// maxTSOFrame is the longest that HDRLEN and PAYLEN can say.
	maxTSOFrame = 0xFF + 0xFFFFF
)

// transmitter is the transmit half. Guarded by Host.Tx, but for what is atomic.
type transmitter struct {
	model  *Model
	queues [maxQueues]txQueue
	stats  statistics
	txConfig

	// contexts are what context descriptors loaded. The 8254x keep one for
	// segmentation and one for checksums (8254x SDM 3.3.6); the 82574L has a
	// single one for all, and for both queues (82574 datasheet 7.2.6).
	contexts [2]txContext

	frames  []sim.Frame
	units   []txUnit
	done    []txDone
	parts   [][]byte
	headers [passFrames]txHeader
	view    [headerView]byte
	parsed  sim.Headers
	literal literal
	all     bool // every descriptor is written back
	// begun is the queue whose frame the wire did not take: it is the next to send.
	begun *txQueue
	// stalled: the peer has asked for silence.
	stalled atomic.Bool
}

// txConfig is what the registers say, read when they change.
type txConfig struct {
	insertVLAN bool // CTRL.VME
	pad        bool // TCTL.PSP
	vet        uint16
}

// txQueue is a transmit ring. base, size and hung are guarded by Host.Tx.
type txQueue struct {
	index int
	base  uint64
	size  uint32
	hung  bool // stopped for good, until it is set up anew
	lwm   uint32
	head  atomic.Uint32
	// run: there is something to do when head and tail differ.
	run atomic.Bool
	// paused: the wire took no more; Resume ends it.
	paused atomic.Bool
	// cut is how many segments of the frame at head are sent already.
	cut int
}

// txUnit is a frame with the descriptors that it came from: contexts before it
// included, so that a frame that is not taken is read anew with its context.
type txUnit struct {
	start, end uint32 // descriptors, end is not of the unit
	contexts   [2]txContext
	before     int // txDones of what is in front of this unit
	tso        bool
}

// txDone is a descriptor that is written back.
type txDone struct {
	index  uint32
	status uint32 // the word with DD
	delay  bool   // IDE
}

// txHeader is memory for the part of a frame that the device changes: headers as
// far as the offsets of a context descriptor reach, behind room for a tag.
type txHeader [sim.VLANTagLen + headerReach]byte

// headerReach covers HDRLEN, and two bytes at the largest TUCSO.
const headerReach = 264

func (t *transmitter) init(m *Model) {
	t.model = m
	for q := range t.queues {
		t.queues[q].index = q
	}
	t.frames = make([]sim.Frame, 0, passFrames)
	t.units = make([]txUnit, 0, passFrames)
	t.done = make([]txDone, 0, 1024)
	t.parts = make([][]byte, 0, 4096)
}

// reset makes the rings empty. All locks are held.
func (t *transmitter) reset() {
	for i := range t.queues {
		q := &t.queues[i]
		q.base, q.size = 0, 0
		q.head.Store(0)
		t.renew(q)
	}
	t.stats = statistics{}
	t.contexts = [2]txContext{}
}

// renew lets a queue start over.
func (t *transmitter) renew(q *txQueue) {
	q.hung = false
	q.cut = 0
	q.paused.Store(false)
	if t.begun == q {
		t.abandon()
	}
}

// hang stops a queue.
func (q *txQueue) hang() {
	q.hung = true
	q.run.Store(false)
}

// setup takes over a write to a ring's registers. All locks are held.
func (t *transmitter) setup(queue int, reg, value uint32) {
	q := &t.queues[queue]
	regs := &t.model.regs
	at := (reg + uint32(queue)*queueStride) / 4
	switch reg {
	case regTDBAL:
		regs[at] = value & ringBaseMask
	case regTDLEN:
		regs[at] = value & ringSizeMask
	case regTDH:
		q.head.Store(value & headMask)
	}
	first := (regTDBAL + uint32(queue)*queueStride) / 4
	q.base = uint64(regs[first]) | uint64(regs[first+1])<<32
	q.size = regs[first+2] / descriptorSize
	t.renew(q)
}

// update reads the configuration anew. All locks are held.
func (t *transmitter) update() {
	m := t.model
	ctrl := m.regs[regCTRL/4]
	is574 := m.opt.Kind.is574()
	t.txConfig = txConfig{
		insertVLAN: ctrl&ctrlVME != 0,
		pad:        m.regs[regTCTL/4]&tctlPSP != 0,
		vet:        uint16(m.regs[regVET/4]),
	}
	on := m.regs[regTCTL/4]&tctlEN != 0 && !(is574 && ctrl&ctrlMasterDisable != 0) && m.up.Load()
	for i := range t.queues {
		q := &t.queues[i]
		stride := uint32(i) * queueStride
		if q.head.Load() >= max(q.size, 1) {
			q.head.Store(0)
		}
		if q.lwm = 0; m.opt.Kind.throttles() {
			q.lwm = m.regs[(regTXDCTL+stride)/4] >> txdctlLWTHRESHShift * 8
		}
		gate := !is574 || m.regs[(regTARC+stride)/4]&tarcEnable != 0
		q.run.Store(on && gate && q.size != 0 && !q.hung)
	}
}

// context returns the context that a packet uses.
func (t *transmitter) context(tso bool) *txContext {
	if tso && !t.model.opt.Kind.is574() {
		return &t.contexts[1]
	}
	return &t.contexts[0]
}
