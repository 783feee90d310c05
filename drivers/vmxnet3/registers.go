package vmxnet3

import (
	"fmt"
	"math/bits"

	"nicd/bus"
	"nicd/framework"
)

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

// registers are the device's two regions. A command is a write and a read of one
// register that must not be mixed with another's: the framework calls the control
// half of a driver one method at a time, and nothing else here gives commands.
type registers struct {
	pt, vd bus.Region
}

func openRegisters(dev bus.Device) (r registers, err error) {
	if r.pt, err = dev.Region(bus.BAR0); err == nil {
		r.vd, err = dev.Region(bus.BAR1)
	}
	return r, err
}

// bell is a queue's register that begins at reg for queue 0.
func (r registers) bell(reg uint32, queue int) framework.Register {
	return framework.Register{Region: r.pt, Offset: reg + regStride*uint32(queue)}
}

// negotiate chooses the highest revision that device and driver both speak.
func (r registers) negotiate() (revision int, err error) {
	offered := r.vd.Read32(regVRRS)
	if revision = bits.Len32(offered & (1<<maxRevision - 1)); revision == 0 {
		return 0, fmt.Errorf("%w: device speaks revisions %#b, driver up to %d",
			framework.ErrUnsupported, offered, maxRevision)
	}
	r.vd.Write32(regVRRS, 1<<(revision-1))
	if upt := r.vd.Read32(regUVRS); upt&1 == 0 {
		return 0, fmt.Errorf("%w: UPT versions %#b lack 1", framework.ErrUnsupported, upt)
	}
	r.vd.Write32(regUVRS, 1)
	return revision, nil
}

func (r registers) setMAC(mac framework.MAC) {
	low, high := mac.Words()
	r.vd.Write32(regMACL, low)
	r.vd.Write32(regMACH, high)
}

// setShared tells the device where the shared area is; 0 takes it away.
func (r registers) setShared(addr uint64) {
	r.vd.Write32(regDSAL, uint32(addr))
	r.vd.Write32(regDSAH, uint32(addr>>32))
}

// Limits.
const (
	maxQueues       = 8  // of each kind, up to revision 5
	maxVectors      = 24 // of 25: one is for what is not to interrupt
	ringMultiple    = 32
	maxRing         = 4096
	ringAlign       = 512
	maxTxBufferLen  = 1 << 14
	maxRxBufferLen  = 1<<14 - 1
	minHeadBuffer   = 128
	maxTxFragments  = 16 // of a packet that is not segmented
	maxTSOFragments = 24 // of one that is
	minMTU          = 60
	maxMTU          = 9000
	maxMulticast    = 682 // what one page of addresses holds
	maxRevision     = 4   // that this driver speaks
	moderationAdapt = 8
)
