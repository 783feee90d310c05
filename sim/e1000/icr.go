package e1000

// read reads a register that belongs to interrupts.
func (q *interrupts) read(offset uint32) (value uint32, ok bool) {
	if offset < regICR || offset > regEITR+4*maxVectors && offset < regRDTR {
		return 0, false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch offset {
	case regICR:
		return q.readICR(), true
	case regICS, regIMC:
		return 0, true // write only
	}
	if r := q.register(offset); r != nil {
		return *r, true
	}
	return 0, false
}

// register is the word behind a plain interrupt register.
func (q *interrupts) register(offset uint32) *uint32 {
	switch offset {
	case regIMS:
		return &q.ims
	case regRDTR:
		return &q.delays.rdtr
	case regTIDV:
		return &q.delays.tidv
	}
	if q.model.opt.Kind.throttles() {
		switch offset {
		case regITR:
			return &q.itr
		case regRADV:
			return &q.delays.radv
		case regTADV:
			return &q.delays.tadv
		}
	}
	if !q.is574() {
		return nil
	}
	switch offset {
	case regEIAC:
		return &q.eiac
	case regIAM:
		return &q.iam
	case regIVAR:
		return &q.ivar
	case regRAID:
		return &q.delays.raid
	}
	if i := (offset - regEITR) / 4; offset >= regEITR && i < maxVectors {
		return &q.eitr[i]
	}
	return nil
}

// write writes a register that belongs to interrupts.
func (q *interrupts) write(offset, value uint32) (ok bool) {
	if offset < regICR || offset > regEITR+4*maxVectors && offset < regRDTR {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	switch offset {
	case regICR:
		q.icr &^= value
		q.autoMask()
		q.deliver(^uint32(0))
	case regICS:
		q.set(value)
		q.deliver(0)
	case regIMS:
		added := value & q.implemented() &^ q.ims
		q.ims |= added
		q.deliver(added)
	case regIMC:
		q.ims &^= value
		q.deliver(0)
	case regRDTR, regTIDV:
		*q.register(offset) = value & timerMask
		if value&timerFlush != 0 {
			q.flush(offset == regRDTR)
			q.deliver(0)
		}
	case regEIAC:
		q.eiac = value & (queueCauses | causeOther)
	case regITR, regRADV, regTADV, regRAID:
		if r := q.register(offset); r != nil {
			*r = value & timerMask
		}
	case regIVAR:
		q.ivar = value
		q.deliver(0)
	default:
		r := q.register(offset)
		if r != nil {
			*r = value
		}
		return r != nil
	}
	return true
}

func (q *interrupts) implemented() uint32 {
	if q.is574() {
		return causes574
	}
	return causes540
}

// readICR returns ICR and acknowledges as the chip does. An 8254x clears all
// (8254x SDM 13.4.17), and so does the 82574L without MSI-X (82574 datasheet
// 7.4.3). With MSI-X it clears all if nothing is enabled or the interrupt is
// asserted; otherwise the read has no side effect (10.2.4.1; Linux e1000e relies
// on it, "Avoid missed interrupts following ICR read").
func (q *interrupts) readICR() uint32 {
	v := q.icr
	asserted := q.icr&q.ims != 0
	if q.is574() && asserted {
		v |= causeAsserted
	}
	clear := true
	if q.is574() && q.msix() {
		clear = q.ims == 0 || asserted
		if q.model.opt.Variation.ICRKeeps {
			clear = q.ims == 0 || asserted && q.ext&ctrlExtIAME != 0
		}
	}
	if asserted {
		q.autoMask()
	}
	if clear {
		q.icr = 0
	}
	q.deliver(0)
	return v
}

// autoMask is what an ICR access does with CTRL_EXT.IAME set (82574 datasheet
// 10.2.4.6): IAM is written to IMC.
func (q *interrupts) autoMask() {
	if q.is574() && q.ext&ctrlExtIAME != 0 {
		q.ims &^= q.iam
	}
}
