package e1000

import "encoding/binary"

// descriptorSize is the size of every descriptor that the models know.
const descriptorSize = 16

// Receive status and errors (legacy: bytes 12 and 13; extended: the low and the
// high bits of status_error).
const (
	rxDD    = 1 << 0
	rxEOP   = 1 << 1
	rxIXSM  = 1 << 2
	rxVP    = 1 << 3
	rxUDPCS = 1 << 4
	rxTCPCS = 1 << 5
	rxIPCS  = 1 << 6
	rxPIF   = 1 << 7

	rxExtIPIDV = 1 << 9
	rxExtACK   = 1 << 15

	rxErrCE   = 1 << 0
	rxErrTCPE = 1 << 5
	rxErrIPE  = 1 << 6
	rxErrRXE  = 1 << 7

	rxExtErrorShift = 24 // where the error byte lies in status_error
)

// Words of a receive descriptor.
const (
	rxLegacyLength = 8  // length 15:0, checksum 31:16
	rxLegacyStatus = 12 // status 7:0, errors 15:8, special 31:16; the word with DD
	rxExtMRQ       = 0  // RSS type 3:0, queue 12:8
	rxExtHash      = 4  // RSS hash, or IP identification 15:0 and checksum 31:16
	rxExtStatus    = 8  // status and errors; the word with DD
	rxExtLength    = 12 // length 15:0, VLAN tag 31:16

	rxExtQueueShift = 8
)

// RSS types of an extended descriptor (82574 datasheet 7.1.5.1).
const (
	rssNone    = 0
	rssTCPIPv4 = 1
	rssIPv4    = 2
	rssTCPIPv6 = 3
	rssIPv6Ex  = 4
	rssIPv6    = 5
)

// Transmit command bits, in the top byte of the second word.
const (
	txCmdEOP  = 1 << 0
	txCmdIFCS = 1 << 1
	txCmdIC   = 1 << 2 // legacy
	txCmdTSE  = 1 << 2 // data and context
	txCmdRS   = 1 << 3
	txCmdDEXT = 1 << 5
	txCmdVLE  = 1 << 6
	txCmdIDE  = 1 << 7

	tucmdTCP = 1 << 0
	tucmdIP  = 1 << 1 // IPv4; clear is IPv6

	txTypeContext = 0
	txTypeData    = 1

	txStatusWord = 12 // status 3:0; the word with DD
	txDD         = 1 << 0

	poptsIXSM = 1 << 0
	poptsTXSM = 1 << 1
)

// txDescriptor is a transmit descriptor as the device fetched it.
type txDescriptor struct {
	addr  uint64
	lower uint32 // length, type, command
	upper uint32 // status, options, special
}

func loadTxDescriptor(b []byte) txDescriptor {
	_ = b[descriptorSize-1]
	return txDescriptor{
		addr:  binary.LittleEndian.Uint64(b),
		lower: binary.LittleEndian.Uint32(b[8:]),
		upper: binary.LittleEndian.Uint32(b[12:]),
	}
}

func (d txDescriptor) command() uint8  { return uint8(d.lower >> 24) }
func (d txDescriptor) extended() bool  { return d.command()&txCmdDEXT != 0 }
func (d txDescriptor) dtyp() uint32    { return d.lower >> 20 & 0xF }
func (d txDescriptor) special() uint16 { return uint16(d.upper >> 16) }
func (d txDescriptor) popts() uint8    { return uint8(d.upper >> 8) }
func (d txDescriptor) css() uint8      { return uint8(d.upper >> 8) }  // legacy
func (d txDescriptor) cso() uint8      { return uint8(d.lower >> 16) } // legacy

// dataLen is the length of the buffer: 16 bits of a legacy descriptor, 20 of a data descriptor.
func (d txDescriptor) dataLen() int {
	if d.extended() {
		return int(d.lower & 0xFFFFF)
	}
	return int(d.lower & 0xFFFF)
}

// txContext is what a context descriptor loads into the device: where the
// checksums are and how to cut (8254x SDM 3.3.6).
type txContext struct {
	ipcss, ipcso uint8
	ipcse        uint16
	tucss, tucso uint8
	tucse        uint16
	paylen       uint32
	tucmd        uint8
	hdrlen       uint8
	mss          uint16
}

// context reads a context descriptor, whose fields lie across the words of a data descriptor.
func (d txDescriptor) context() txContext {
	return txContext{
		ipcss:  uint8(d.addr),
		ipcso:  uint8(d.addr >> 8),
		ipcse:  uint16(d.addr >> 16),
		tucss:  uint8(d.addr >> 32),
		tucso:  uint8(d.addr >> 40),
		tucse:  uint16(d.addr >> 48),
		paylen: d.lower & 0xFFFFF,
		tucmd:  d.command(),
		hdrlen: uint8(d.upper >> 8),
		mss:    uint16(d.upper >> 16),
	}
}
