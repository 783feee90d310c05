package vmxnet3

import "nicd/framework"

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
	cmdDisabled      command = 0xF00D0014 // revision 9: what it does not do after all; others answer 0
)

// Answer of cmdLink.
const (
	linkUp         = 1
	linkSpeedShift = 16
)

// Answer of cmdExtraInfo.
const extraPassthrough = 1

// Answer of cmdDisabled.
const (
	disabledTSO = 1
	disabledLRO = 2
)

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

// command carries out c and returns its result. The read makes sure that the
// device is through with it.
func (r registers) command(c command) uint32 {
	r.vd.Write32(regCMD, uint32(c))
	return r.vd.Read32(regCMD)
}

// permanentMAC is the address that the device was born with.
func (r registers) permanentMAC() framework.MAC {
	return framework.MACOf(r.command(cmdPermMACLow), r.command(cmdPermMACHigh))
}

// halt ends all DMA and makes the device forget everything, its shared area
// included: there are devices whose reset keeps that.
func (r registers) halt() {
	r.command(cmdQuiesce)
	r.command(cmdReset)
	r.setShared(0)
}

// disabled are the features that the device's host has turned off.
func (r registers) disabled() (f framework.Features) {
	v := r.command(cmdDisabled)
	if v&disabledTSO != 0 {
		f |= framework.TSO4 | framework.TSO6
	}
	if v&disabledLRO != 0 {
		f |= framework.LRO
	}
	return f
}

// mode asks whether hardware stands behind the device's data path. (Linux goes by
// whether receive bells are wanted; but a device in emulation may want one as well,
// when it has run dry.)
func (r registers) mode() string {
	if r.command(cmdExtraInfo)&extraPassthrough != 0 {
		return modePassthrough
	}
	return ""
}

// interruptConf is how the device wants to interrupt.
func (r registers) interruptConf() (kind uint32, mask maskMode) {
	v := r.command(cmdConfInterrupt)
	kind, mask = v&interruptKindMask, maskMode(v>>interruptMaskShift&3)
	return kind, min(mask, maskLazy)
}
