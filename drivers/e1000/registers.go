package e1000

// Register offsets in BAR0: 8254x Software Developer's Manual chapter 13, 82574
// datasheet chapter 10.
const (
	regCTRL    = 0x0000
	regSTATUS  = 0x0008
	regEERD    = 0x0014
	regCTRLEXT = 0x0018
	regMDIC    = 0x0020
	regICR     = 0x00C0 // reading acknowledges, except with MSI-X
	regITR     = 0x00C4
	regICS     = 0x00C8
	regIMS     = 0x00D0
	regIMC     = 0x00D8
	regEIAC    = 0x00DC
	regIAM     = 0x00E0
	regIVAR    = 0x00E4
	regEITR    = 0x00E8 // + 4*vector
	regRCTL    = 0x0100
	regTCTL    = 0x0400
	regTIPG    = 0x0410
	regRDTR    = 0x2820
	regRADV    = 0x282C
	regRXCSUM  = 0x5000
	regRFCTL   = 0x5008
	regMTA     = 0x5200 // 128 words
	regRAL     = 0x5400 // + 8*entry
	regRAH     = 0x5404
	regVFTA    = 0x5600 // 128 words
	regMRQC    = 0x5818
	regGCR     = 0x5B00
	regGCR2    = 0x5B64
	regRETA    = 0x5C00 // 128 bytes
	regRSSRK   = 0x5C80 // 40 bytes

	// Rings, + queueStride*queue.
	regRDBAL    = 0x2800
	regRDBAH    = 0x2804
	regRDLEN    = 0x2808
	regRDH      = 0x2810
	regRDT      = 0x2818
	regTDBAL    = 0x3800
	regTDT      = 0x3818
	regTXDCTL   = 0x3828
	regTARC     = 0x3840
	queueStride = 0x100
)

// The window of the I/O BAR.
const (
	ioAddr = 0
	ioData = 4
)

// Bits of regCTRL.
const (
	ctrlASDE   = 1 << 5 // detect the speed
	ctrlSLU    = 1 << 6 // set link up
	ctrlFRCSPD = 1 << 11
	ctrlFRCDPX = 1 << 12
	ctrlRST    = 1 << 26
	ctrlVME    = 1 << 30 // strip and insert VLAN tags
	// ctrlGIODisable stops a PCI Express part from mastering the bus.
	ctrlGIODisable = 1 << 2
)

// Bits of regSTATUS.
const (
	statusFD         = 1 << 0
	statusLU         = 1 << 1
	statusTXOFF      = 1 << 4 // paused by the peer
	statusSpeedShift = 6
	statusSpeedMask  = 3
	statusGIOMaster  = 1 << 19
)

// Bits of regCTRLEXT.
const (
	ctrlExtReload       = 1 << 13 // EE_RST
	ctrlExtAutoMask     = 1 << 24 // EIAME: an MSI-X vector that fires masks what is in IAM
	ctrlExtDriverLoaded = 1 << 28
	ctrlExtTimersClear  = 1 << 29 // INT_TIMERS_CLEAR_ENA
	ctrlExtClearPBA     = 1 << 31 // an MSI-X vector's pending bit goes when it fires
)

// Bits of regICR, regICS, regIMS, regIMC and regEIAC.
const (
	intTxWritten = 1 << 0
	intLink      = 1 << 2
	intRxLow     = 1 << 4 // few descriptors left
	intRxOverrun = 1 << 6
	intRxTimer   = 1 << 7
	intRxQueue   = 1 << 20 // << queue, with MSI-X
	intTxQueue   = 1 << 22 // << queue, with MSI-X
	intOther     = 1 << 24
	intAll       = 1<<32 - 1

	intRx     = intRxLow | intRxOverrun | intRxTimer
	intTx     = intTxWritten
	intQueues = 3*intRxQueue | 3*intTxQueue
)

// Fields of regIVAR: a vector and a valid bit each.
const (
	ivarRx        = 0 // + 4*queue
	ivarTx        = 8 // + 4*queue
	ivarOther     = 16
	ivarValid     = 1 << 3
	ivarEachWrite = 1 << 31 // interrupt on every transmit write-back
)

// Bits of regRCTL.
const (
	rctlEN        = 1 << 1
	rctlUPE       = 1 << 3 // unicast promiscuous
	rctlMPE       = 1 << 4 // multicast promiscuous
	rctlLPE       = 1 << 5 // frames longer than 1522
	rctlBAM       = 1 << 15
	rctlSizeShift = 16
	rctlVFE       = 1 << 18 // VLAN filter
	rctlBSEX      = 1 << 25 // buffer sizes times 16
	rctlSECRC     = 1 << 26 // strip the frame check sequence
)

// Bits of regTCTL and what else sets up transmission.
const (
	tctlEN        = 1 << 1
	tctlPSP       = 1 << 3 // pad short frames
	tctlCollision = 0x0F<<4 | 0x40<<12
	tctlRTLC      = 1 << 24
	tctlMULR      = 1 << 28 // 82574: several reads in flight
	tipgCopper    = 8 | 8<<10 | 6<<20

	txdctlReserved = 1 << 22 // 82574: must be one
	txdctlGran     = 1 << 24 // thresholds count descriptors
	txdctlWrite1   = 1 << 16 // write back each

	// TARC of the 82574's first queue, for two queues: FreeBSD em(4).
	tarcCompensate = 1 << 7
	tarcMultiQueue = 7 << 23
	tarcErrata     = 1 << 26
)

// Bits of regRXCSUM, regRFCTL and regMRQC.
const (
	rxcsumIP     = 1 << 8
	rxcsumTCPUDP = 1 << 9
	rxcsumHash   = 1 << 13 // the hash instead of the packet's sum

	rfctlNoACK    = 1 << 12 // no interrupt for TCP ACKs
	rfctlExtended = 1 << 15 // extended receive descriptors

	mrqcRSS = 1 | 1<<16 | 1<<17 | 1<<20 | 1<<21 // IPv4, IPv6, with and without TCP
	retaBit = 7                                 // of an entry: the queue
)

// GCR bits that go with PCI Express L0s being off.
const (
	gcrL1Active = 1 << 22
	gcr2NoL0s   = 1 << 0
)

// Fields of regEERD and of the words in it.
const (
	eerdStart     = 1 << 0
	eerdDataShift = 16
	nvmSum        = 0xBABA // of the first 64 words
	nvmWords      = 64
)

// Fields of regMDIC.
const (
	mdicRegShift = 16
	mdicPHY      = 1 << 21
	mdicWrite    = 1 << 26
	mdicRead     = 2 << 26
	mdicReady    = 1 << 28
	mdicError    = 1 << 30
)

// PHY registers of IEEE 802.3 clause 22.
const (
	phyControl = 0

	phyRestart   = 1 << 9
	phyPowerDown = 1 << 11
	phyAutoneg   = 1 << 12
)

const rahValid = 1 << 31
