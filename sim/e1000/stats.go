package e1000

// Statistics registers (8254x SDM 13.7). They stick at their maximum and clear
// when read; of a pair, the low half is read first and the high half clears both.
const (
	statCRCERRS = 0x4000
	statRXERRC  = 0x400C
	statMPC     = 0x4010
	statXONRXC  = 0x4048
	statXONTXC  = 0x404C
	statXOFFRXC = 0x4050
	statXOFFTXC = 0x4054
	statPRC64   = 0x405C // six counters by size, as PTC64
	statGPRC    = 0x4074
	statBPRC    = 0x4078
	statMPRC    = 0x407C
	statGPTC    = 0x4080
	statGORC    = 0x4088 // a pair
	statGOTC    = 0x4090 // a pair
	statRNBC    = 0x40A0
	statRUC     = 0x40A4
	statROC     = 0x40AC
	statTOR     = 0x40C0 // a pair
	statTOT     = 0x40C8 // a pair
	statTPR     = 0x40D0
	statTPT     = 0x40D4
	statPTC64   = 0x40D8
	statMPTC    = 0x40F0
	statBPTC    = 0x40F4
	statTSCTC   = 0x40F8
	statIAC     = 0x4100

	fcsLen = 4
)

// statistics are one direction's counters, guarded by its lock. A pair is kept
// in its low half's entry.
type statistics [(regStatsEnd - regStats) / 4]uint64

func (s *statistics) add(register uint32, n uint64) { s[(register-regStats)/4] += n }

// sizeClass is the counter of frames of a length, FCS included, counted from the
// first of six.
func sizeClass(n int) uint32 {
	switch {
	case n <= 64:
		return 0
	case n <= 127:
		return 4
	case n <= 255:
		return 8
	case n <= 511:
		return 12
	case n <= 1023:
		return 16
	default:
		return 20
	}
}

// isPairLow and isPairHigh tell the halves of the 64-bit counters.
func isPairLow(register uint32) bool {
	return register == statGORC || register == statGOTC || register == statTOR || register == statTOT
}

func isPairHigh(register uint32) bool { return isPairLow(register - 4) }

// readStatistic reads a counter and clears it. Each counter is counted by one
// direction, so the sum is that one's.
func (m *Model) readStatistic(offset uint32) uint32 {
	m.host.Tx.Lock()
	m.host.Rx.Lock()
	defer m.unlockAll()
	if offset == statIAC {
		return m.irq.takeAsserted()
	}
	i := (offset - regStats) / 4
	rx, tx := &m.rx.stats, &m.tx.stats
	switch {
	case isPairLow(offset):
		return uint32(rx[i] + tx[i])
	case isPairHigh(offset):
		i--
		v := (rx[i] + tx[i]) >> 32
		rx[i], tx[i] = 0, 0
		return uint32(v)
	}
	v := min(rx[i]+tx[i], 0xFFFFFFFF)
	rx[i], tx[i] = 0, 0
	return uint32(v)
}
