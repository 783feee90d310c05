package vmxnet3

import "nicd/bus"

// PCI identity (Linux vmxnet3_int.h; subsystem and capability offsets as ESXi
// places them: QEMU commits f9262dae13 and 9c087a0504).
const (
	vendorVMware  = 0x15ad
	deviceVMXNET3 = 0x07b0
	pciRevision   = 1

	offsetExpress = 0x48
	offsetMSI     = 0x84
	offsetMSIX    = 0x9c
	offsetPBA     = 0x1000
)

// Limits of revisions 1 to 5.
const (
	maxVectors  = 25
	maxTxQueues = 8
	maxRxQueues = 8
	minMTU      = 60
	maxMTU      = 9000
)

// BAR0, the passthrough registers: 8 bytes apart.
const (
	barPT     = bus.BAR0
	sizePT    = 4096
	regStride = 8

	regIMR     = 0x000 // + 8 * vector; bit 0 masks it
	regTXPROD  = 0x600 // + 8 * queue
	regRXPROD  = 0x800
	regRXPROD2 = 0xa00
)

// BAR1, the virtual device registers.
const (
	barVD  = bus.BAR1
	sizeVD = 4096

	regVRRS = 0x00
	regUVRS = 0x08
	regDSAL = 0x10
	regDSAH = 0x18
	regCMD  = 0x20
	regMACL = 0x28
	regMACH = 0x30
	regICR  = 0x38
	regECR  = 0x40
)

// BAR2 holds the MSI-X table and the pending bits.
const (
	barMSIX  = bus.BAR2
	sizeMSIX = 8192
)

// The doorbell page: registers whose last value is all that matters.
const (
	bellIMR     = 0
	bellTXPROD  = bellIMR + maxVectors
	bellRXPROD  = bellTXPROD + maxTxQueues
	bellRXPROD2 = bellRXPROD + maxRxQueues
)

var doorbells = []bus.DoorbellRange{
	{Region: barPT, Offset: regTXPROD, Stride: regStride, First: bellTXPROD, Count: maxTxQueues},
	{Region: barPT, Offset: regIMR, Stride: regStride, First: bellIMR, Count: maxVectors},
	{Region: barPT, Offset: regRXPROD, Stride: regStride, First: bellRXPROD, Count: maxRxQueues},
	{Region: barPT, Offset: regRXPROD2, Stride: regStride, First: bellRXPROD2, Count: maxRxQueues},
}

// Commands (Linux vmxnet3_defs.h).
const (
	cmdActivate         = 0xcafe0000
	cmdQuiesce          = 0xcafe0001
	cmdReset            = 0xcafe0002
	cmdUpdateRxMode     = 0xcafe0003
	cmdUpdateMACFilters = 0xcafe0004
	cmdUpdateVLAN       = 0xcafe0005
	cmdUpdateRSSIDT     = 0xcafe0006
	cmdUpdateIML        = 0xcafe0007
	cmdUpdateFeature    = 0xcafe0009
	cmdSetCoalesce      = 0xcafe000e // revision 3
	cmdRegisterMemRegs  = 0xcafe000f // revision 3
	cmdSetRSSFields     = 0xcafe0010 // revision 4

	cmdGetQueueStatus    = 0xf00d0000
	cmdGetStats          = 0xf00d0001
	cmdGetLink           = 0xf00d0002
	cmdGetPermMACLow     = 0xf00d0003
	cmdGetPermMACHigh    = 0xf00d0004
	cmdGetDeviceIDLow    = 0xf00d0005
	cmdGetDeviceIDHigh   = 0xf00d0006
	cmdGetDevExtraInfo   = 0xf00d0007
	cmdGetConfIntr       = 0xf00d0008
	cmdGetAdaptiveRing   = 0xf00d0009
	cmdGetTxDataDescSize = 0xf00d000a // revision 3
	cmdGetCoalesce       = 0xf00d000b // revision 3
	cmdGetRSSFields      = 0xf00d000c // revision 4
	cmdGetDisabled       = 0xf00d0014 // revision 9
)

// Answer of GET_DISABLED_OFFLOADS.
const (
	disabledTSO = 1 << iota
	disabledLRO
)

// Event bits of DriverShared.ecr.
const (
	eventRxQueue = 1 << iota
	eventTxQueue
	eventLink
	eventChange // DIC: the implementation of the device changed
)

// Why a queue stopped (QueueStatus.error).
const (
	errNoEOP           = 0x80000000
	errTxDescReuse     = 0x80000001
	errBigPacket       = 0x80000002
	errDescUnsupported = 0x80000003
	errSmallBuffer     = 0x80000004
	errTxDescInvalid   = 0x80000007
)
