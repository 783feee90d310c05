package vmxnet3

import (
	"encoding/binary"

	"nicd/bus"
)

// Descriptors are 16 bytes, little endian. The word with the generation bit is
// accessed atomically as a host word, which is the same on the little-endian
// machines that this is built for.
const descSize = 16

// Rings (Linux vmxnet3_defs.h).
const (
	ringAlign     = 512
	ringSizeUnit  = 32
	maxTxRing     = 4096
	maxRxRing     = 4096
	maxRxComp     = 8192
	maxTxPacket   = 16 // descriptors of a packet
	maxTSOPacket  = 24
	maxTxBuffer   = 16384
	minHeadBuffer = 128
	maxCsumOffset = 1024
)

// txDesc is the words 2 and 3 of a transmit descriptor; words 0 and 1 are the
// address.
type txDesc struct{ w2, w3 uint32 }

const (
	txDescGenWord = 8

	txLenMask   = 0x3fff
	txGen       = 1 << 14
	txDtype     = 1 << 16
	txMSSShift  = 18
	txHlenMask  = 0x3ff
	txOMShift   = 10
	txOMMask    = 3
	txEOP       = 1 << 12
	txCQ        = 1 << 13
	txTI        = 1 << 15
	txTCIShift  = 16
	omNone      = 0
	omEncap     = 1
	omChecksum  = 2
	omTSO       = 3
	txCompIndex = 0xfff
)

func (d txDesc) length() int {
	if n := int(d.w2 & txLenMask); n != 0 {
		return n
	}
	return maxTxBuffer
}
func (d txDesc) mssOrOffset() int { return int(d.w2 >> txMSSShift) }
func (d txDesc) headerLen() int   { return int(d.w3 & txHlenMask) }
func (d txDesc) offload() uint32  { return d.w3 >> txOMShift & txOMMask }
func (d txDesc) eop() bool        { return d.w3&txEOP != 0 }
func (d txDesc) wantsComp() bool  { return d.w3&txCQ != 0 }
func (d txDesc) insertsTag() bool { return d.w3&txTI != 0 }
func (d txDesc) tci() uint16      { return uint16(d.w3 >> txTCIShift) }

// loadTxDesc reads descriptor i of a ring: the generation's word first.
func loadTxDesc(ring []byte, i int) (addr uint64, d txDesc) {
	at := i * descSize
	d.w2 = bus.Word(ring, at+txDescGenWord).Load()
	d.w3 = binary.LittleEndian.Uint32(ring[at+12:])
	return binary.LittleEndian.Uint64(ring[at:]), d
}

// Completions have their generation in bit 31 of word 3, next to the type.
const (
	compGenWord   = 12
	compGen       = 1 << 31
	compTypeShift = 24
	typeTxComp    = 0
	typeRxComp    = 3
	typeRxCompLRO = 4
)

// Receive descriptor, word 2.
const (
	rxLenMask     = 0x3fff
	rxBody        = 1 << 14
	rxGen         = 1 << 31
	rxDescGenWord = 8
)

// Receive completion: word 0.
const (
	rcIndexMask   = 0xfff
	rcInner12     = 1 << 12 // ext1
	rcInner13     = 1 << 13
	rcEOP         = 1 << 14
	rcSOP         = 1 << 15
	rcQueueShift  = 16
	rcRSSShift    = 26
	rcNotChecksum = 1 << 30 // cnc: no checksum was calculated
	rcLenMask     = 0x3fff  // word 2
	rcErr         = 1 << 14
	rcTagStripped = 1 << 15
	rcTCIShift    = 16
	rcL4Correct   = 1 << 16 // tuc; word 3
	rcUDP         = 1 << 17
	rcTCP         = 1 << 18
	rcIPCorrect   = 1 << 19
	rcIPv6        = 1 << 20
	rcIPv4        = 1 << 21
	rcFragment    = 1 << 22
	rcFCSCorrect  = 1 << 23
	rcMaxSegments = 255 // type 4, word 1
	rssNone       = 0
	rssIPv4       = 1
	rssTCPIPv4    = 2
	rssIPv6       = 3
	rssTCPIPv6    = 4
	rssUDPIPv4    = 5
	rssUDPIPv6    = 6
)

// completion is a ring that the device writes.
type completion struct {
	base uint64
	size int
	next int
	gen  uint32 // compGen or 0
	view []byte // of the ring, in this batch
}

// put writes a completion and publishes it.
func (c *completion) put(w0, w1, w2, w3 uint32) {
	at := c.next * descSize
	d := c.view[at : at+descSize : at+descSize]
	binary.LittleEndian.PutUint32(d[0:], w0)
	binary.LittleEndian.PutUint32(d[4:], w1)
	binary.LittleEndian.PutUint32(d[8:], w2)
	bus.Word(c.view, at+compGenWord).Store(w3 | c.gen)
	if c.next++; c.next == c.size {
		c.next = 0
		c.gen ^= compGen
	}
}
