package e1000

// Register offsets in BAR0 (8254x Software Developer's Manual chapter 13;
// 82574 datasheet chapter 10). A comment names the chip when only one has it.
const (
	regCTRL     = 0x0000
	regCTRLDup  = 0x0004
	regSTATUS   = 0x0008
	regEECD     = 0x0010
	regEERD     = 0x0014
	regCTRLEXT  = 0x0018
	regMDIC     = 0x0020
	regFCAL     = 0x0028
	regFCAH     = 0x002C
	regFCT      = 0x0030
	regVET      = 0x0038
	regICR      = 0x00C0
	regITR      = 0x00C4
	regICS      = 0x00C8
	regIMS      = 0x00D0
	regIMC      = 0x00D8
	regEIAC     = 0x00DC // 82574L
	regIAM      = 0x00E0 // 82574L
	regIVAR     = 0x00E4 // 82574L
	regEITR     = 0x00E8 // 82574L, one per vector
	regRCTL     = 0x0100
	regFCTTV    = 0x0170
	regTCTL     = 0x0400
	regTIPG     = 0x0410
	regAIT      = 0x0458
	regLEDCTL   = 0x0E00
	regPBA      = 0x1000
	regPSRCTL   = 0x2170 // 82574L
	regRDBAL    = 0x2800 // queue 1 is queueStride further
	regRDBAH    = 0x2804
	regRDLEN    = 0x2808
	regRDH      = 0x2810
	regRDT      = 0x2818
	regRDTR     = 0x2820
	regRXDCTL   = 0x2828
	regRADV     = 0x282C
	regRSRPD    = 0x2C00
	regRAID     = 0x2C08 // 82574L
	regTDBAL    = 0x3800
	regTDBAH    = 0x3804
	regTDLEN    = 0x3808
	regTDH      = 0x3810
	regTDT      = 0x3818
	regTIDV     = 0x3820
	regTXDCTL   = 0x3828
	regTADV     = 0x382C
	regTARC     = 0x3840 // 82574L, queue 1 is queueStride further
	regStats    = 0x4000
	regStatsEnd = 0x4128
	regRXCSUM   = 0x5000
	regRFCTL    = 0x5008 // 82574L
	regMTA      = 0x5200
	regRAL      = 0x5400
	regVFTA     = 0x5600
	regWUC      = 0x5800
	regMRQC     = 0x5818 // 82574L
	regMANC     = 0x5820
	regSWSM     = 0x5B50 // 82574L
	regFWSM     = 0x5B54 // 82574L
	regPBACLR   = 0x5B68 // 82574L
	regRETA     = 0x5C00 // 82574L
	regRSSRK    = 0x5C80 // 82574L

	queueStride   = 0x100
	registerSpace = 128 << 10
	// registerEnd is where the modelled registers end; what lies behind reads 0.
	registerEnd = 0x6000
)

const (
	mtaWords   = 128
	vftaWords  = 128
	rarEntries = 16
	retaWords  = 32
	rssKeyLen  = 40
)

// Device control (CTRL).
const (
	ctrlMasterDisable = 1 << 2 // 82574L: GIO master disable
	ctrlSLU           = 1 << 6
	ctrlRST           = 1 << 26
	ctrlVME           = 1 << 30
	ctrlPHYReset      = 1 << 31
	ctrlReset540      = 0x00140240
	ctrlReset574      = 0x00140241
)

// Device status (STATUS).
const (
	statusFD           = 1 << 0
	statusLU           = 1 << 1
	statusTXOFF        = 1 << 4
	statusSpeedShift   = 6
	statusASDVShift    = 8
	statusPHYRA        = 1 << 10 // 82574L: PHY reset asserted, cleared by writing 0
	statusGIOMasterEna = 1 << 19 // 82574L

	speedCode10   = 0
	speedCode100  = 1
	speedCode1000 = 2
)

// Extended device control (CTRL_EXT).
const (
	ctrlExtEERST  = 1 << 13
	ctrlExtEIAME  = 1 << 24 // 82574L: an MSI-X message masks its causes by IAM
	ctrlExtIAME   = 1 << 27 // 82574L: an ICR access masks by IAM
	ctrlExtTimers = 1 << 29 // 82574L: an interrupt clears the delay timers
)

// Receive control (RCTL).
const (
	rctlEN          = 1 << 1
	rctlSBP         = 1 << 2
	rctlUPE         = 1 << 3
	rctlMPE         = 1 << 4
	rctlLPE         = 1 << 5
	rctlRDMTSShift  = 8
	rctlDTYPMask    = 3 << 10 // 82574L
	rctlDTYPSplit   = 1 << 10
	rctlMOShift     = 12
	rctlBAM         = 1 << 15
	rctlBSIZEShift  = 16
	rctlVFE         = 1 << 18
	rctlCFIEN       = 1 << 19
	rctlCFI         = 1 << 20
	rctlBSEX        = 1 << 25
	rctlSECRC       = 1 << 26
	rctlFLXBUFShift = 27 // 82574L, 1 KiB units, 4 bits
	rctlFLXBUFMask  = 0xF
)

// Transmit control (TCTL), descriptor control (TXDCTL) and arbitration (TARC).
const (
	tctlEN              = 1 << 1
	tctlPSP             = 1 << 3
	txdctlLWTHRESHShift = 25
	tarcEnable          = 1 << 10
)

// Receive checksum control (RXCSUM), filter control (RFCTL) and multiple queues (MRQC).
const (
	rxcsumPCSSMask = 0xFF
	rxcsumIPOFL    = 1 << 8
	rxcsumTUOFL    = 1 << 9
	rxcsumPCSD     = 1 << 13 // 82574L: report the RSS hash instead of the checksum

	rfctlIPv6Dis     = 1 << 10
	rfctlIPv6XsumDis = 1 << 11
	rfctlAckDis      = 1 << 12
	rfctlEXTEN       = 1 << 15

	mrqcEnableMask = 3
	mrqcEnableRSS  = 1
	mrqcTCPIPv4    = 1 << 16
	mrqcIPv4       = 1 << 17
	mrqcTCPIPv6    = 1 << 18
	mrqcIPv6Ex     = 1 << 19
	mrqcIPv6       = 1 << 20
)

// Receive address high (RAH).
const (
	rahAV        = 1 << 31
	rahASELShift = 16
	rahASELMask  = 3
)

// Interrupt causes (ICR, ICS, IMS, IMC).
const (
	causeTXDW     = 1 << 0
	causeTXQE     = 1 << 1
	causeLSC      = 1 << 2
	causeRXDMT0   = 1 << 4
	causeRXO      = 1 << 6
	causeRXT0     = 1 << 7
	causeMDAC     = 1 << 9
	causeTXDLOW   = 1 << 15
	causeSRPD     = 1 << 16
	causeACK      = 1 << 17 // 82574L, as all that follow
	causeMNG      = 1 << 18
	causeRXQ0     = 1 << 20
	causeRXQ1     = 1 << 21
	causeTXQ0     = 1 << 22
	causeTXQ1     = 1 << 23
	causeOther    = 1 << 24
	causeAsserted = 1 << 31

	causes540 = 0x0001FFFF &^ (1<<5 | 1<<8)
	causes574 = causes540 | causeACK | causeMNG | causeRXQ0 | causeRXQ1 | causeTXQ0 | causeTXQ1 | causeOther

	// otherCauses are those that ICR.OTHER sums up on the 82574L.
	otherCauses = causeLSC | causeRXO | causeMDAC | causeSRPD | causeMNG | causeACK
	// queueCauses are those that have a vector of their own in IVAR.
	queueCauses = causeRXQ0 | causeRXQ1 | causeTXQ0 | causeTXQ1
)

// Interrupt vector allocation (IVAR): five fields of four bits, in the order
// RXQ0, RXQ1, TXQ0, TXQ1, OTHER.
const (
	ivarFields     = 5
	ivarFieldBits  = 4
	ivarVectorMask = 7
	ivarValid      = 8
	ivarEveryTx    = 1 << 31 // an interrupt on every transmit write-back
)

// ivarCauses is the cause of each IVAR field.
var ivarCauses = [ivarFields]uint32{causeRXQ0, causeRXQ1, causeTXQ0, causeTXQ1, causeOther}

// Delay timers: RDTR, RADV, TIDV, TADV and RAID count in units of 1.024 us,
// ITR and EITR in units of 256 ns.
const (
	delayUnit    = 1024 // ns
	throttleUnit = 256  // ns
	timerMask    = 0xFFFF
	timerFlush   = 1 << 31 // RDTR.FPD, TIDV.FPD: expire now
)

// MDI control (MDIC).
const (
	mdicRegShift = 16
	mdicPHYShift = 21
	mdicOpShift  = 26
	mdicOpWrite  = 1
	mdicOpRead   = 2
	mdicReady    = 1 << 28
	mdicIntEna   = 1 << 29
	mdicError    = 1 << 30
)

// EEPROM read (EERD) and EEPROM control (EECD).
const (
	eerdStart        = 1 << 0
	eerdDone540      = 1 << 4
	eerdAddrShift540 = 8
	eerdAddrMask540  = 0xFF
	eerdDone574      = 1 << 1
	eerdAddrShift574 = 2
	eerdAddrMask574  = 0x3FFF
	eerdDataShift    = 16

	eecdSK      = 1 << 0
	eecdCS      = 1 << 1
	eecdDI      = 1 << 2
	eecdDO      = 1 << 3
	eecdRequest = 1 << 6
	eecdGrant   = 1 << 7
	eecdPresent = 1 << 8
	eecdAutoRD  = 1 << 9 // 82574L: the NVM has been read
)

// Software semaphore (SWSM), 82574L: reading sets SMBI.
const swsmSMBI = 1 << 0

// The I/O BAR: an address register and a window to the register it names.
const (
	ioADDR = 0
	ioDATA = 4
)
