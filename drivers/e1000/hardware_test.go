package e1000

import (
	"errors"
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

func newBoard(id uint16) (*board, *hardware) {
	b := &board{
		fakeRegion: fakeRegion{regs: map[uint32]uint32{}, writes: map[uint32]int{}},
		phy:        map[uint32]uint16{phyControl: phyAutoneg},
	}
	return b, &hardware{chip: chipOf(vendorIntel, id), bar: b}
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
	if _, err := h.permanentMAC(); !errors.Is(err, errNVM) {
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
	if word, bit := uint32(0x341)>>5, uint32(0x341)&31; table[word] != 1<<bit {
		t.Errorf("word %d is %#x", word, table[word])
	}
}
