package e1000

// eepromWords is the size of the NVM: a 93C46 has 64 words of 16 bits.
const eepromWords = 64

// NVM words (8254x SDM chapter 5; 82574 datasheet chapter 6).
const (
	nvmMAC        = 0x00 // three words, least significant byte first
	nvmInit1      = 0x0A
	nvmSubDevice  = 0x0B
	nvmSubVendor  = 0x0C
	nvmDevice     = 0x0D
	nvmVendor     = 0x0E
	nvmInit2      = 0x0F
	nvmPCIeCtrl   = 0x1B // 82574L: bits 9:7 are the number of MSI-X vectors less one
	nvmChecksum   = 0x3F
	nvmVectorsPos = 7

	// nvmSum is what all words add up to.
	nvmSum = 0xBABA
)

// eeprom is the NVM and the pins by which an 8254x's driver can clock a
// microwire part, bit by bit. Guarded by the model's control lock.
type eeprom struct {
	words [eepromWords]uint16
	wire  microwire
}

func (e *eeprom) init(o Options) {
	for i := range e.words {
		e.words[i] = 0xFFFF
	}
	for i := range 3 {
		e.words[nvmMAC+i] = uint16(o.MAC[2*i]) | uint16(o.MAC[2*i+1])<<8
	}
	e.words[nvmInit1] = 0x640A
	e.words[nvmSubDevice] = o.Kind.identity().SubDevice
	e.words[nvmSubVendor] = vendorIntel
	e.words[nvmDevice] = o.Kind.identity().Device
	e.words[nvmVendor] = vendorIntel
	e.words[nvmInit2] = 0xB040
	if o.Kind.is574() {
		e.words[nvmPCIeCtrl] = uint16(o.vectors()-1) << nvmVectorsPos
	}
	e.words[nvmChecksum] = e.checksum()
}

// checksum is the word that makes all words add up to nvmSum.
func (e *eeprom) checksum() uint16 {
	sum := uint16(0)
	for _, w := range e.words[:nvmChecksum] {
		sum += w
	}
	return nvmSum - sum
}

// read returns a word; words that the part lacks read as all ones.
func (e *eeprom) read(word uint32) uint16 {
	if word >= eepromWords {
		return 0xFFFF
	}
	return e.words[word]
}

// eerd is what EERD holds after value was written to it: the two chips differ in
// where the address and the done bit are.
func (e *eeprom) eerd(kind Kind, value uint32) uint32 {
	shift, mask, done := uint32(eerdAddrShift540), uint32(eerdAddrMask540), uint32(eerdDone540)
	if kind.is574() {
		shift, mask, done = eerdAddrShift574, eerdAddrMask574, eerdDone574
	}
	if value&eerdStart == 0 {
		return value &^ done
	}
	word := value >> shift & mask
	return word<<shift | done | uint32(e.read(word))<<eerdDataShift
}

// microwire is a 93C46's serial side: with chip select high, a start bit, a
// two-bit operation and a six-bit address are clocked in on DI, then a dummy
// zero and sixteen bits are clocked out on DO. Only reads are served; other
// operations are clocked in and do nothing.
type microwire struct {
	clock, selected bool
	in              uint32
	inBits          int
	out             uint32
	outBits         int
	do              bool
}

const (
	microwireRead     = 2
	microwireAddrBits = 6
	microwireCommand  = 3 + microwireAddrBits // start bit, operation, address
)

// drive applies the pins of an EECD write.
func (w *microwire) drive(e *eeprom, value uint32) {
	if value&eecdCS == 0 {
		*w = microwire{clock: value&eecdSK != 0, do: true}
		return
	}
	w.selected = true
	rising := value&eecdSK != 0 && !w.clock
	w.clock = value&eecdSK != 0
	if rising {
		w.shift(e, value&eecdDI != 0)
	}
}

func (w *microwire) shift(e *eeprom, bit bool) {
	if w.outBits > 0 {
		w.outBits--
		w.do = w.out>>w.outBits&1 != 0
		return
	}
	if w.inBits == 0 && !bit {
		return // waiting for the start bit
	}
	w.in <<= 1
	if bit {
		w.in |= 1
	}
	if w.inBits++; w.inBits < microwireCommand {
		return
	}
	op, word := w.in>>microwireAddrBits&3, w.in&(1<<microwireAddrBits-1)
	w.in, w.inBits = 0, 0
	if op == microwireRead {
		w.out, w.outBits, w.do = uint32(e.read(word)), 16, false
	}
}
