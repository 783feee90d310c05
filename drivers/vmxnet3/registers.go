package vmxnet3

// Registers of the two 4 KiB regions. All are 32 bits wide and 8 bytes apart.

// BAR0, the registers that are passed through to hardware where there is some:
// doorbells and interrupt masks.
const (
	regIMR     = 0x000 // + 8*vector: bit 0 masks
	regTxProd  = 0x600 // + 8*queue: producer index of the transmit ring
	regRxProd  = 0x800 // + 8*queue: of receive ring 1
	regRxProd2 = 0xA00 // + 8*queue: of receive ring 2
	regStride  = 8
)

// BAR1, the registers of the virtual device.
const (
	regVRRS = 0x00 // read: bit n set if revision n+1 is spoken; write: the one chosen
	regUVRS = 0x08 // the same for UPT, which has one version
	regDSAL = 0x10 // address of the shared area, low half; zero takes it away
	regDSAH = 0x18 // high half, completes it
	regCMD  = 0x20 // write a command, read its result
	regMACL = 0x28 // address, bytes 0 to 3
	regMACH = 0x30 // bytes 4 and 5, completes it
	regICR  = 0x38 // INTx: pending vectors; reading acknowledges
	regECR  = 0x40 // write one to clear events of the shared area
)

// command is a value for regCMD.
type command uint32

// Commands that do something.
const (
	cmdActivate       command = 0xCAFE0000 // result 0 is success
	cmdQuiesce        command = 0xCAFE0001 // no DMA afterwards
	cmdReset          command = 0xCAFE0002 // forgets everything
	cmdUpdateRxMode   command = 0xCAFE0003 // reads the receive mode again
	cmdUpdateFilters  command = 0xCAFE0004 // the multicast table
	cmdUpdateVLAN     command = 0xCAFE0005 // the VLAN table
	cmdUpdateRSS      command = 0xCAFE0006 // the indirection table
	cmdUpdateFeatures command = 0xCAFE0009 // dsFeatures
	cmdSetRSSFields   command = 0xCAFE0010 // revision 4: from dsCommandInfo
)

// Commands that ask something.
const (
	cmdQueueStatus   command = 0xF00D0000 // fills in the queues' status
	cmdStats         command = 0xF00D0001 // fills in the queues' statistics
	cmdLink          command = 0xF00D0002 // bit 0: up; 31:16: Mbit/s
	cmdPermMACLow    command = 0xF00D0003 // bytes 0 to 3
	cmdPermMACHigh   command = 0xF00D0004 // bytes 4 and 5
	cmdExtraInfo     command = 0xF00D0007 // bit 0: passed through to hardware (UPT)
	cmdConfInterrupt command = 0xF00D0008 // bits 1:0 kind, 3:2 how vectors are masked
)

// Answer of cmdLink.
const (
	linkUp         = 1
	linkSpeedShift = 16
)

// Answer of cmdExtraInfo.
const extraPassthrough = 1

// Answer of cmdConfInterrupt.
const (
	interruptKindMask  = 3
	interruptMaskShift = 2

	kindAuto = 0
	kindINTx = 1
	kindMSI  = 2
	kindMSIX = 3
)

// maskMode is who masks a vector that fired.
type maskMode uint8

// Mask modes.
const (
	maskAuto   maskMode = iota // the device does
	maskActive                 // the driver does, at once
	maskLazy                   // nobody, until the driver wants it
)

// Limits.
const (
	maxQueues       = 8  // of each kind, up to revision 5
	maxVectors      = 24 // of 25: one is for what is not to interrupt
	ringMultiple    = 32
	maxRing         = 4096
	ringAlign       = 512
	queueAlign      = 128
	maxTxBufferLen  = 1 << 14
	maxRxBufferLen  = 1<<14 - 1
	minHeadBuffer   = 128
	maxTxFragments  = 16 // of a packet that is not segmented
	maxTSOFragments = 24 // of one that is
	minMTU          = 60
	maxMTU          = 9000
	maxMulticast    = 682 // what one page of addresses holds
	maxRevision     = 4   // that this driver speaks
	maxRSSKey       = 40
	maxIndirection  = 128
	macLen          = 6
	rssConfSize     = 48 + maxIndirection
	moderationAdapt = 8
)
