package e1000

import "time"

// PHY registers: IEEE 802.3 clause 22 and the Marvell ones that drivers use.
const (
	phyControl    = 0
	phyStatus     = 1
	phyID1        = 2
	phyID2        = 3
	phyAdvertise  = 4
	phyPartner    = 5
	phyExpansion  = 6
	phyPartnerNP  = 8
	phy1000Ctrl   = 9
	phy1000Status = 10
	phyExtStatus  = 15
	phySpecCtrl   = 16
	phySpecStatus = 17
	phyIntStatus  = 19
	phyExtCtrl    = 20
	phyRxErrors   = 21
	phyPage       = 22 // 82574L: page select
	phyPageM88    = 29 // M88E1000: page select
	phyM88Tune    = 26 // M88E1000 extended control 2
	phyGenCtrl    = 30
	phyVendor     = 31

	phyRegisters = 32
	phyAddress   = 1 // the internal PHY's address on the MDI bus
)

// Bits of PHY registers.
const (
	phyCtrlFullDuplex = 1 << 8
	phyCtrlRestart    = 1 << 9
	phyCtrlPowerDown  = 1 << 11
	phyCtrlAutoneg    = 1 << 12
	phyCtrlSpeed100   = 1 << 13
	phyCtrlSpeed1000  = 1 << 6
	phyCtrlReset      = 1 << 15
	phyCtrlDefault    = phyCtrlAutoneg | phyCtrlFullDuplex | phyCtrlSpeed1000

	phyStatusLink     = 1 << 2
	phyStatusComplete = 1 << 5
	phyStatusDefault  = 0x7949 // what the PHY can: 10/100/1000, autonegotiation

	phyAdvertiseDefault = 0x0DE1 // 10 and 100, both duplexes, pause both ways, 802.3
	phyPartnerAnswer    = 0x4DE1 // the same with the acknowledge bit
	phy1000Default      = 0x0300 // advertise 1000BASE-T, both duplexes
	phy1000Answer       = 0x3C00 // partner does 1000BASE-T, receivers are good
	phyExtDefault       = 0x3000 // 1000BASE-T, both duplexes

	phySpecResolved = 1 << 11
	phySpecLink     = 1 << 10
	phySpecDuplex   = 1 << 13
	phySpecSpeed    = 14 // shift

	phyIntLink     = 1 << 10
	phyIntComplete = 1 << 11

	phyMarvell     = 0x0141
	phyIDM88E1011  = 0x0C20 // in the 82540EM and the 82545EM
	phyIDM88E1000I = 0x0C30 // in the 82544GC
	phyIDBM574     = 0x0CB1 // in the 82574L

	phySpecCtrlDefault = 0x0068
	phyExtCtrlDefault  = 0x0D60
)

// phy is the internal transceiver. Guarded by the model's control lock.
type phy struct {
	regs [phyRegisters]uint16
	id2  uint16
	// wire: there is a partner. held: the MAC holds the PHY in reset.
	wire, held bool
	// done is when the negotiation in progress ends, 0 if none is in progress.
	done       time.Duration
	negotiated bool
	// latched is set when the link was lost since the status was last read:
	// PHYSTATUS.link latches low (802.3 22.2.4.2.13).
	latched bool
}

func (p *phy) reset(kind Kind) {
	p.id2 = identities[kind].phy
	p.regs = [phyRegisters]uint16{
		phyControl:   phyCtrlDefault,
		phyAdvertise: phyAdvertiseDefault,
		phy1000Ctrl:  phy1000Default,
		phySpecCtrl:  phySpecCtrlDefault,
		phyExtCtrl:   phyExtCtrlDefault,
	}
}

// restart starts a negotiation that takes d, if there is a partner to negotiate
// with; whatever link there was is gone.
func (p *phy) restart(now, d time.Duration) {
	p.drop()
	if p.wire && !p.held && p.regs[phyControl]&phyCtrlPowerDown == 0 {
		p.done = now + d
	}
}

func (p *phy) drop() {
	if p.negotiated {
		p.latched = true
		p.regs[phyIntStatus] |= phyIntLink
	}
	p.negotiated, p.done = false, 0
}

// finish ends a negotiation whose time has come.
func (p *phy) finish(now time.Duration) {
	if p.done == 0 || now < p.done {
		return
	}
	p.done, p.negotiated = 0, true
	p.regs[phyIntStatus] |= phyIntLink | phyIntComplete
}

// speed is what was agreed on: with negotiation the best that is advertised,
// without it what the control register says. It is a STATUS speed code.
func (p *phy) speed() (code uint32, full bool) {
	ctrl := p.regs[phyControl]
	if ctrl&phyCtrlAutoneg == 0 {
		switch {
		case ctrl&phyCtrlSpeed1000 != 0:
			code = speedCode1000
		case ctrl&phyCtrlSpeed100 != 0:
			code = speedCode100
		}
		return code, ctrl&phyCtrlFullDuplex != 0
	}
	adv, gig := p.regs[phyAdvertise], p.regs[phy1000Ctrl]
	switch {
	case gig&0x300 != 0:
		return speedCode1000, gig&0x200 != 0
	case adv&0x180 != 0:
		return speedCode100, adv&0x100 != 0
	default:
		return speedCode10, adv&0x40 != 0
	}
}

// known tells whether the PHY answers for a register.
func phyKnown(reg uint32) bool {
	switch {
	case reg <= phy1000Status, reg >= phyExtStatus && reg <= phyPage:
		return true
	default:
		return reg == phyM88Tune || reg >= phyPageM88
	}
}

func (p *phy) read(reg uint32) uint16 {
	switch reg {
	case phyStatus:
		return p.readStatus()
	case phyID1:
		return phyMarvell
	case phyID2:
		return p.id2
	case phyPartner:
		return p.whenUp(phyPartnerAnswer)
	case phyExpansion:
		return p.whenUp(1) // the partner negotiates
	case phy1000Status:
		return p.whenUp(phy1000Answer)
	case phyExtStatus:
		return phyExtDefault
	case phySpecStatus:
		return p.readSpecific()
	case phyIntStatus:
		v := p.regs[reg]
		p.regs[reg] = 0
		return v
	}
	return p.regs[reg]
}

func (p *phy) whenUp(v uint16) uint16 {
	if !p.negotiated {
		return 0
	}
	return v
}

func (p *phy) readStatus() uint16 {
	v := uint16(phyStatusDefault)
	if p.negotiated {
		v |= phyStatusComplete
		if !p.latched {
			v |= phyStatusLink
		}
	}
	p.latched = false
	return v
}

func (p *phy) readSpecific() uint16 {
	if !p.negotiated {
		return 0
	}
	code, full := p.speed()
	v := uint16(code)<<phySpecSpeed | phySpecResolved | phySpecLink
	if full {
		v |= phySpecDuplex
	}
	return v
}

// write stores a register. It tells whether the link has to be negotiated anew.
func (p *phy) write(reg uint32, value uint16, kind Kind) (restart bool) {
	switch reg {
	case phyControl:
		return p.writeControl(value, kind)
	case phyStatus, phyID1, phyID2, phyPartner, phyExpansion, phyPartnerNP, phy1000Status, phyExtStatus,
		phySpecStatus, phyIntStatus, phyRxErrors:
		return false // read only
	}
	p.regs[reg] = value
	return false
}

func (p *phy) writeControl(value uint16, kind Kind) (restart bool) {
	if value&phyCtrlReset != 0 {
		p.reset(kind)
		return true
	}
	old := p.regs[phyControl]
	p.regs[phyControl] = value &^ phyCtrlRestart
	changed := (old ^ value) & (phyCtrlPowerDown | phyCtrlAutoneg | phyCtrlSpeed1000 | phyCtrlSpeed100 | phyCtrlFullDuplex)
	return value&phyCtrlRestart != 0 || changed != 0
}
