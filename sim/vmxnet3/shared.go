package vmxnet3

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// DriverShared: offsets (Linux vmxnet3_defs.h; checked against QEMU's device).
const (
	sharedSize  = 720
	sharedMagic = 0xbabefee1

	dsMagic          = 0
	dsFeatures       = 24
	dsQueueDescPA    = 40
	dsQueueDescLen   = 52
	dsMTU            = 56
	dsMaxRxSG        = 60
	dsTxQueues       = 62
	dsRxQueues       = 63
	dsAutoMask       = 80
	dsNumIntrs       = 81
	dsEventIntr      = 82
	dsModLevels      = 83
	dsIntrCtrl       = 108
	dsRxMode         = 120
	dsMulticastLen   = 124
	dsMulticastPA    = 128
	dsVLANTable      = 136
	dsRSSLen         = 652
	dsRSSPA          = 656
	dsECR            = 696
	dsCommandInfo    = 704
	intrDisableAll   = 1
	queueDescSize    = 256
	queueDescAlign   = 128
	rssConfSize      = 176
	maxMulticast     = 682
	vlanTableWords   = 128
	multicastMACSize = 6
)

// uptFeatures.
const (
	featureChecksum = 1 << iota
	featureRSS
	featureVLAN
	featureLRO
)

// rxMode.
const (
	modeUnicast = 1 << iota
	modeMulticast
	modeBroadcast
	modeAllMulticast
	modePromiscuous
)

// Queue descriptors: offsets. Transmit ones come first, then receive ones.
const (
	qdTxDeferred     = 0
	qdTxThreshold    = 4
	qdTxRing         = 16
	qdTxDataRing     = 24
	qdTxComp         = 32
	qdTxSize         = 56
	qdTxDataSize     = 60
	qdTxCompSize     = 64
	qdIntr           = 72
	qdTxDataDescSize = 74
	qdStopped        = 80
	qdError          = 84
	qdStats          = 88

	qdUpdateRxProd   = 0
	qdRxRing0        = 16
	qdRxRing1        = 24
	qdRxComp         = 32
	qdRxDataRing     = 48
	qdRxSize0        = 56
	qdRxSize1        = 60
	qdRxCompSize     = 64
	qdRxDataDescSize = 74

	txDataDescDefault = 128
	maxDataDesc       = 2048
	dataDescUnit      = 64
)

// errConfig is what is wrong with the memory that a driver offered. The device
// says only that activation failed; tests see the reason.
var errConfig = errors.New("bad configuration")

func badConfig(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{errConfig}, args...)...)
}

// shared is DriverShared as far as it is read at activation, copied and checked.
type shared struct {
	features   uint32
	queueDesc  uint64
	mtu        int
	maxRxSG    int
	txQueues   int
	rxQueues   int
	autoMask   bool
	eventIntr  int
	modLevels  [maxVectors]uint8
	numVectors int
}

// parseShared checks a copy of DriverShared.
func parseShared(b *[sharedSize]byte) (s shared, err error) {
	le := binary.LittleEndian
	s = shared{
		features:   le.Uint32(b[dsFeatures:]),
		queueDesc:  le.Uint64(b[dsQueueDescPA:]),
		mtu:        int(le.Uint32(b[dsMTU:])),
		maxRxSG:    int(le.Uint16(b[dsMaxRxSG:])),
		txQueues:   int(b[dsTxQueues]),
		rxQueues:   int(b[dsRxQueues]),
		autoMask:   b[dsAutoMask]&1 != 0,
		numVectors: int(b[dsNumIntrs]),
		eventIntr:  int(b[dsEventIntr]),
	}
	copy(s.modLevels[:], b[dsModLevels:])
	queueBytes := (s.txQueues + s.rxQueues) * queueDescSize
	switch {
	case le.Uint32(b[dsMagic:]) != sharedMagic:
		return s, badConfig("magic %#x", le.Uint32(b[dsMagic:]))
	case s.mtu < minMTU || s.mtu > maxMTU:
		return s, badConfig("mtu %d", s.mtu)
	case s.txQueues < 1 || s.txQueues > maxTxQueues || s.rxQueues < 1 || s.rxQueues > maxRxQueues:
		return s, badConfig("%d transmit and %d receive queues", s.txQueues, s.rxQueues)
	case s.numVectors < 1 || s.numVectors > maxVectors || s.eventIntr >= s.numVectors:
		return s, badConfig("%d interrupts, events on %d", s.numVectors, s.eventIntr)
	case s.queueDesc%queueDescAlign != 0:
		return s, badConfig("queue descriptors at %#x", s.queueDesc)
	case int(le.Uint32(b[dsQueueDescLen:])) < queueBytes:
		return s, badConfig("%d bytes of queue descriptors", le.Uint32(b[dsQueueDescLen:]))
	}
	return s, nil
}

// ringConfig is where a ring lies.
type ringConfig struct {
	base uint64
	size int
}

func parseRing(b []byte, base, size, limit int, what string) (r ringConfig, err error) {
	r.base = binary.LittleEndian.Uint64(b[base:])
	n := binary.LittleEndian.Uint32(b[size:])
	if n == 0 || n > uint32(limit) || n%ringSizeUnit != 0 || r.base%ringAlign != 0 {
		return r, badConfig("%s ring of %d at %#x", what, n, r.base)
	}
	r.size = int(n)
	return r, nil
}

// txConfig is a TxQueueDesc, checked.
type txConfig struct {
	ring, comp ringConfig
	intr       int
}

func parseTxQueue(b []byte, s *shared, revision int) (c txConfig, err error) {
	if c.ring, err = parseRing(b, qdTxRing, qdTxSize, maxTxRing, "transmit"); err != nil {
		return c, err
	}
	if c.comp, err = parseRing(b, qdTxComp, qdTxCompSize, maxTxRing, "transmit completion"); err != nil {
		return c, err
	}
	if c.comp.size < c.ring.size {
		return c, badConfig("%d completions for %d transmit descriptors", c.comp.size, c.ring.size)
	}
	if err := checkTxData(b, c.ring.size, revision); err != nil {
		return c, err
	}
	c.intr, err = parseIntr(b, s)
	return c, err
}

// checkTxData checks a data ring. The device needs nothing of it: descriptors
// point into it as into any memory.
func checkTxData(b []byte, entries, revision int) error {
	le := binary.LittleEndian
	base, n := le.Uint64(b[qdTxDataRing:]), int(le.Uint32(b[qdTxDataSize:]))
	if n == 0 {
		return nil
	}
	size := txDataDescDefault
	if revision >= 3 {
		size = int(le.Uint16(b[qdTxDataDescSize:]))
	}
	if base%ringAlign != 0 || n != entries || size < txDataDescDefault || size > maxDataDesc || size%dataDescUnit != 0 {
		return badConfig("transmit data ring of %d x %d at %#x", n, size, base)
	}
	return nil
}

func parseIntr(b []byte, s *shared) (int, error) {
	if int(b[qdIntr]) >= s.numVectors {
		return 0, badConfig("interrupt %d of %d", b[qdIntr], s.numVectors)
	}
	return int(b[qdIntr]), nil
}

// rxConfig is an RxQueueDesc, checked. A second ring of size 0 is none.
type rxConfig struct {
	ring         [2]ringConfig
	comp         ringConfig
	data         uint64
	dataDescSize int
	intr         int
}

func parseRxQueue(b []byte, s *shared, revision int) (c rxConfig, err error) {
	if c.ring[0], err = parseRing(b, qdRxRing0, qdRxSize0, maxRxRing, "receive"); err != nil {
		return c, err
	}
	if binary.LittleEndian.Uint32(b[qdRxSize1:]) != 0 {
		if c.ring[1], err = parseRing(b, qdRxRing1, qdRxSize1, maxRxRing, "second receive"); err != nil {
			return c, err
		}
	}
	if c.comp, err = parseRing(b, qdRxComp, qdRxCompSize, maxRxComp, "receive completion"); err != nil {
		return c, err
	}
	if n := c.ring[0].size + c.ring[1].size; c.comp.size < n {
		return c, badConfig("%d completions for %d receive descriptors", c.comp.size, n)
	}
	if revision >= 3 {
		c.dataDescSize = int(binary.LittleEndian.Uint16(b[qdRxDataDescSize:]))
		c.data = binary.LittleEndian.Uint64(b[qdRxDataRing:])
		if c.dataDescSize > maxDataDesc || c.dataDescSize%dataDescUnit != 0 || c.dataDescSize > 0 && c.data%ringAlign != 0 {
			return c, badConfig("receive data ring of %d bytes each at %#x", c.dataDescSize, c.data)
		}
	}
	c.intr, err = parseIntr(b, s)
	return c, err
}
