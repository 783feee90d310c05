package vmxnet3

import (
	"encoding/binary"
	"fmt"

	"nicd/bus"
	"nicd/framework"
)

// registers are the device's two regions. A command is a write and a read of one
// register that must not be mixed with another's: the framework calls the control
// half of a driver one method at a time, and nothing else here gives commands.
type registers struct {
	pt, vd bus.Region
}

func openRegisters(dev bus.Device) (registers, error) {
	pt, err := dev.Region(bus.BAR0)
	if err != nil {
		return registers{}, fmt.Errorf("vmxnet3: BAR0: %w", err)
	}
	vd, err := dev.Region(bus.BAR1)
	if err != nil {
		return registers{}, fmt.Errorf("vmxnet3: BAR1: %w", err)
	}
	return registers{pt: pt, vd: vd}, nil
}

// command carries out c and returns its result. The read makes sure that the
// device is through with it.
func (r registers) command(c command) uint32 {
	r.vd.Write32(regCMD, uint32(c))
	return r.vd.Read32(regCMD)
}

// gone tells whether nobody answers: no device speaks all revisions.
func (r registers) gone() bool { return r.vd.Read32(regVRRS) == bus.Gone }

// negotiate chooses the highest revision that device and driver both speak.
func (r registers) negotiate() (revision int, err error) {
	offered := r.vd.Read32(regVRRS)
	if offered == bus.Gone {
		return 0, fmt.Errorf("vmxnet3: %w", bus.ErrGone)
	}
	for revision = maxRevision; revision > 0; revision-- {
		if offered&(1<<(revision-1)) != 0 {
			break
		}
	}
	if revision == 0 {
		return 0, fmt.Errorf("vmxnet3: %w: device speaks revisions %#b, driver up to %d",
			framework.ErrUnsupported, offered, maxRevision)
	}
	r.vd.Write32(regVRRS, 1<<(revision-1))
	if upt := r.vd.Read32(regUVRS); upt&1 == 0 {
		return 0, fmt.Errorf("vmxnet3: %w: UPT versions %#b lack 1", framework.ErrUnsupported, upt)
	}
	r.vd.Write32(regUVRS, 1)
	return revision, nil
}

// permanentMAC is the address that the device was born with.
func (r registers) permanentMAC() (mac framework.MAC) {
	low, high := r.command(cmdPermMACLow), r.command(cmdPermMACHigh)
	binary.LittleEndian.PutUint32(mac[:], low)
	binary.LittleEndian.PutUint16(mac[4:], uint16(high))
	return mac
}

func (r registers) setMAC(mac framework.MAC) {
	r.vd.Write32(regMACL, binary.LittleEndian.Uint32(mac[:]))
	r.vd.Write32(regMACH, uint32(binary.LittleEndian.Uint16(mac[4:])))
}

// setShared tells the device where the shared area is; 0 takes it away.
func (r registers) setShared(addr uint64) {
	r.vd.Write32(regDSAL, uint32(addr))
	r.vd.Write32(regDSAH, uint32(addr>>32))
}

// halt ends all DMA and makes the device forget everything, its shared area
// included: there are devices whose reset keeps that.
func (r registers) halt() {
	r.command(cmdQuiesce)
	r.command(cmdReset)
	r.setShared(0)
}

func (r registers) link() (framework.Link, error) {
	l := r.command(cmdLink)
	if l == bus.Gone {
		return framework.Link{}, fmt.Errorf("vmxnet3: %w", bus.ErrGone)
	}
	return framework.Link{Up: l&linkUp != 0, Mbps: int(l >> linkSpeedShift), FullDuplex: true}, nil
}

// passthrough tells whether hardware stands behind the device's data path (UPT).
func (r registers) passthrough() bool {
	v := r.command(cmdExtraInfo)
	return v != bus.Gone && v&extraPassthrough != 0
}

// interruptConf is how the device wants to interrupt.
func (r registers) interruptConf() (kind uint32, mask maskMode) {
	v := r.command(cmdConfInterrupt)
	kind, mask = v&interruptKindMask, maskMode(v>>interruptMaskShift&3)
	return kind, min(mask, maskLazy)
}
