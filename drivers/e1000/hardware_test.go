package e1000

import (
	"errors"
	"slices"
	"testing"

	"nicd/bus"
	"nicd/framework"
)

// board is a register file with an EEPROM and a PHY behind it.
type board struct {
	fakeRegion
	nvm  []uint16 // none: EERD does not answer
	phy  map[uint32]uint16
	gone bool
}

func partOf(id uint16) *chip {
	return &chips[slices.IndexFunc(chips, func(c chip) bool { return c.id == id })]
}

func newBoard(id uint16) (*board, *hardware) {
	b := &board{
		fakeRegion: fakeRegion{regs: map[uint32]uint32{}, writes: map[uint32]int{}},
		phy:        map[uint32]uint16{phyControl: phyAutoneg},
	}
	return b, &hardware{chip: partOf(id), bar: b}
}

func (b *board) Read32(off uint32) uint32 {
	if b.gone {
		return bus.Gone
	}
	return b.regs[off]
}

func (b *board) Write32(off, v uint32) {
	b.fakeRegion.Write32(off, v)
	switch {
	case off == regEERD && b.nvm != nil:
		b.regs[off] = v | 1<<1 | uint32(b.nvm[v>>2&0x3F])<<eerdDataShift // as the 82574 answers
	case off == regMDIC:
		reg := v >> mdicRegShift & 31
		if v&mdicWrite != 0 {
			b.phy[reg] = uint16(v)
		}
		word, ok := b.phy[reg]
		b.regs[off] = v&^0xFFFF | uint32(word) | mdicReady
		if !ok {
			b.regs[off] |= mdicError
		}
	}
}

// image is an EEPROM of the right sum.
func image() []uint16 {
	w := make([]uint16, nvmWords)
	w[0], w[1], w[2] = 0x0100, 0x0302, 0x0504
	w[nvmWords-1] = nvmSum - (0x0100 + 0x0302 + 0x0504)
	return w
}

var imageMAC = framework.MAC{0, 1, 2, 3, 4, 5}

func TestEEPROM(t *testing.T) {
	b, h := newBoard(0x10D3)
	b.nvm = image()
	if mac, err := h.permanentMAC(); err != nil || mac != imageMAC {
		t.Errorf("address %v, %v", mac, err)
	}
	b.nvm[20]++
	if mac, err := h.permanentMAC(); !errors.Is(err, framework.ErrDevice) {
		t.Errorf("wrong sum: address %v, %v", mac, err)
	}
}

// TestNoEERD: the address that the part has loaded by itself will do.
func TestNoEERD(t *testing.T) {
	b, h := newBoard(0x100C)
	if _, err := h.permanentMAC(); !errors.Is(err, bus.ErrTimeout) {
		t.Errorf("no address anywhere: %v", err)
	}
	b.regs[regRAL], b.regs[regRAH] = 0x03020100, 0x0504|rahValid
	if mac, err := h.permanentMAC(); err != nil || mac != imageMAC {
		t.Errorf("address %v, %v", mac, err)
	}
	b.gone = true
	if _, err := h.permanentMAC(); !errors.Is(err, bus.ErrGone) {
		t.Errorf("a device that is gone: %v", err)
	}
}

func TestPHYIsWoken(t *testing.T) {
	for _, control := range []uint16{0, phyPowerDown, phyPowerDown | phyAutoneg} {
		b, h := newBoard(0x10D3)
		b.phy[phyControl] = control
		if err := h.wakePHY(); err != nil {
			t.Fatal(err)
		}
		if got := b.phy[phyControl]; got != phyAutoneg|phyRestart {
			t.Errorf("control %#x became %#x", control, got)
		}
	}
	b, h := newBoard(0x10D3)
	if err := h.wakePHY(); err != nil || b.writes[regMDIC] != 1 {
		t.Errorf("a PHY that is awake was disturbed: %v", err)
	}
	delete(b.phy, phyControl)
	if err := h.wakePHY(); !errors.Is(err, framework.ErrDevice) {
		t.Errorf("a PHY that does not answer: %v", err)
	}
}

func TestBufferSizes(t *testing.T) {
	for n, want := range map[uint32]uint32{256: 256, 2047: 1024, 2048: 2048, 4095: 2048, 4096: 4096, 9000: 8192, 1 << 20: 16384} {
		if got, err := bufferSize(n); err != nil || got.size != want {
			t.Errorf("%d bytes: %d, %v", n, got.size, err)
		}
	}
	if _, err := bufferSize(255); !errors.Is(err, framework.ErrUnsupported) {
		t.Errorf("255 bytes: %v", err)
	}
}

func TestMulticastHash(t *testing.T) {
	// Bits 47:36 of the address, of which the first six bits of the sixth byte
	// are the highest.
	table := multicastTable([]framework.MAC{{1, 0, 0x5E, 0, 0x12, 0x34}})
	if word, bit := uint32(0x341)/64, uint32(0x341)%64; table[word] != 1<<bit {
		t.Errorf("word %d is %#x", word, table[word])
	}
	_, h := newBoard(id82574L)
	(&device{hardware: *h}).writeTable(regMTA, table)
	if word, bit := uint32(0x341)>>5, uint32(0x341)&31; h.read(regMTA+4*word) != 1<<bit || h.read(regMTA+4*(word^1)) != 0 {
		t.Errorf("register %d is %#x", word, h.read(regMTA+4*word))
	}
}

// stubborn is an 82574 whose reset bit resets nothing, and that tells with which
// vectors all causes were enabled to end its throttling.
type stubborn struct {
	*board
	ended []uint32 // IVAR at the time
}

func (s *stubborn) Write32(off, v uint32) {
	s.board.Write32(off, v)
	switch {
	case off == regCTRL:
		s.regs[off] &^= ctrlRST
		s.regs[regSTATUS] = statusGIOMaster
		if v&ctrlGIODisable != 0 {
			s.regs[regSTATUS] = 0
		}
	case off == regIMS && v == intAll && s.regs[regCTRLEXT]&ctrlExtTimersClear != 0:
		s.ended = append(s.ended, s.regs[regIVAR])
	}
}

// TestResetThatResetsNothing: what QEMU's e1000e goes on with after a reset is
// ended, once, and with no vector to interrupt by; an 82540EM has no such thing.
func TestResetThatResetsNothing(t *testing.T) {
	for id, want := range map[uint16]int{0x10D3: 1, 0x100E: 0} {
		b, h := newBoard(id)
		s := &stubborn{board: b}
		h.bar = s
		b.regs[regRCTL], b.regs[regTCTL], b.regs[regIVAR] = rctlEN, tctlEN, 0x800A0908
		for range 2 { // the second time nothing runs
			if err := h.reset(framework.ResetByRegister); err != nil {
				t.Fatal(err)
			}
		}
		if b.regs[regRCTL]&rctlEN != 0 || b.regs[regTCTL]&tctlEN != 0 || b.regs[regCTRL]&ctrlGIODisable != 0 {
			t.Errorf("%04x: RCTL %#x, TCTL %#x, CTRL %#x", id, b.regs[regRCTL], b.regs[regTCTL], b.regs[regCTRL])
		}
		if len(s.ended) != want || want == 1 && s.ended[0] != 0 {
			t.Errorf("%04x: throttling ended with IVAR %#x", id, s.ended)
		}
		if b.regs[regIMC] != intAll || b.regs[regCTRLEXT]&ctrlExtTimersClear != 0 {
			t.Errorf("%04x: IMC %#x, CTRL_EXT %#x", id, b.regs[regIMC], b.regs[regCTRLEXT])
		}
	}
}
