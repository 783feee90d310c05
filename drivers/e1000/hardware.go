package e1000

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"nicd/bus"
	"nicd/framework"
)

// hardware is a part as the driver reaches it: registers, reset, EEPROM, PHY.
type hardware struct {
	bus  bus.Device
	chip *chip
	bar  bus.Region
}

func (h *hardware) read(reg uint32) uint32  { return h.bar.Read32(reg) }
func (h *hardware) write(reg, v uint32)     { h.bar.Write32(reg, v) }
func (h *hardware) set(reg, bits uint32)    { h.write(reg, h.read(reg)|bits) }
func (h *hardware) clear(reg, bits uint32)  { h.write(reg, h.read(reg)&^bits) }
func queueReg(reg uint32, queue int) uint32 { return reg + queueStride*uint32(queue) }

// Gone looks at the status: no part has all its bits.
func (h *hardware) Gone() bool { return h.read(regSTATUS) == bus.Gone }

// patience is how long a register may take, which is ten times what any does.
const patience = 100 * time.Millisecond

// await waits until the bits of reg that are in mask equal want.
func (h *hardware) await(what string, reg, mask, want uint32) (value uint32, err error) {
	if value, err = bus.Await(h.bar, reg, mask, want, patience); err != nil {
		err = fmt.Errorf("%w: %s: %w", framework.ErrDevice, what, err)
	}
	return value, err
}

// reset brings the MAC into its power-on state with no DMA in flight. There are
// devices on which the reset bit does nothing (QEMU before 8.0), so receive and
// transmit are stopped in any case; but an 82574 on which it works must never see
// RCTL.EN go from one to zero (FreeBSD, Linux: FLAG2_NO_DISABLE_RX).
func (h *hardware) reset(how framework.ResetMethod) error {
	h.write(regIMC, intAll)
	h.clear(regTCTL, tctlEN)
	if h.chip.express {
		h.set(regCTRL, ctrlGIODisable)
		_, _ = h.await("bus master", regSTATUS, statusGIOMaster, 0)
	} else {
		h.clear(regRCTL, rctlEN)
	}
	if err := h.writeReset(how, h.read(regCTRL)|ctrlRST); err != nil {
		return err
	}
	if _, err := h.await("reset", regCTRL, ctrlRST, 0); err != nil {
		return err
	}
	h.clear(regCTRL, ctrlGIODisable)
	h.write(regIMC, intAll)
	h.read(regICR)
	if h.read(regRCTL)&rctlEN != 0 {
		h.clear(regRCTL, rctlEN)
		h.endThrottling()
	}
	return nil
}

// endThrottling ends the throttling of interrupts on an 82574 that the reset bit
// did not reset, which enabling all causes does with INT_TIMERS_CLEAR_ENA set.
// That is QEMU before 8.0, and it aborts if the throttling of an MSI-X vector ends
// by itself after MSI-X has been turned off. No vector is valid meanwhile.
func (h *hardware) endThrottling() {
	if h.chip.vectors[bus.MSIX] == 0 {
		return
	}
	h.write(regIVAR, 0)
	h.set(regCTRLEXT, ctrlExtTimersClear)
	h.write(regIMS, intAll)
	h.write(regIMC, intAll)
	h.clear(regCTRLEXT, ctrlExtTimersClear)
}

// writeReset writes CTRL, if wanted through the window in the I/O BAR, if the bus
// reaches that.
func (h *hardware) writeReset(how framework.ResetMethod, ctrl uint32) error {
	if how == framework.ResetByIORegister {
		io, err := bus.IORegion(h.bus)
		if err == nil {
			io.Write32(ioAddr, regCTRL)
			io.Write32(ioData, ctrl)
		}
		if !errors.Is(err, bus.ErrNoRegion) {
			return err
		}
	}
	h.write(regCTRL, ctrl)
	return nil
}

// nvm reads a word of the EEPROM.
func (h *hardware) nvm(word uint32) (uint16, error) {
	h.write(regEERD, eerdStart|word<<h.chip.eerdAddr)
	v, err := h.await("EEPROM", regEERD, h.chip.eerdDone, h.chip.eerdDone)
	return uint16(v >> eerdDataShift), err
}

// permanentMAC is the address that the device was born with.
func (h *hardware) permanentMAC() (framework.MAC, error) {
	mac, err := h.nvmMAC()
	if !errors.Is(err, bus.ErrTimeout) {
		return mac, err
	}
	// EERD need not answer on an 8254x (Linux and FreeBSD read the EEPROM by its
	// pins), but a reset has loaded the address.
	low, high := h.read(regRAL), h.read(regRAH)
	if high&rahValid == 0 {
		return mac, err
	}
	return framework.MACOf(low, high), nil
}

// nvmMAC reads the address from the EEPROM, whose sum has to be right.
func (h *hardware) nvmMAC() (mac framework.MAC, err error) {
	var sum uint16
	for i := range uint32(nvmWords) {
		w, err := h.nvm(i)
		if err != nil {
			return mac, err
		}
		if i < 3 {
			binary.LittleEndian.PutUint16(mac[2*i:], w)
		}
		sum += w
	}
	if sum != nvmSum {
		return mac, fmt.Errorf("%w: EEPROM sum is %#x, not %#x", framework.ErrDevice, sum, nvmSum)
	}
	return mac, nil
}

// phy reads or writes a register of the PHY.
func (h *hardware) phy(op, reg, v uint32) (uint16, error) {
	h.write(regMDIC, op|mdicPHY|reg<<mdicRegShift|v)
	got, err := h.await("PHY", regMDIC, mdicReady|mdicError, mdicReady)
	return uint16(got), err
}

// wakePHY makes the PHY negotiate, if someone has left it otherwise.
func (h *hardware) wakePHY() error {
	control, err := h.phy(mdicRead, phyControl, 0)
	if err != nil || control&phyAutoneg != 0 && control&phyPowerDown == 0 {
		return err
	}
	control = control&^phyPowerDown | phyAutoneg | phyRestart
	_, err = h.phy(mdicWrite, phyControl, uint32(control))
	return err
}

// Link reads the link's state.
func (h *hardware) Link() (framework.Link, error) {
	s := h.read(regSTATUS)
	return framework.Link{
		Up:         s&statusLU != 0,
		Mbps:       [...]int{10, 100, 1000, 1000}[s>>statusSpeedShift&statusSpeedMask],
		FullDuplex: s&statusFD != 0,
		Paused:     s&statusTXOFF != 0,
	}, nil
}
