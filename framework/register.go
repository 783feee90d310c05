package framework

import "nicd/bus"

// This file is what drivers do with registers that is the same for many devices.

// Register is one 32-bit register of a device, a doorbell say.
type Register struct {
	Region bus.Region
	Offset uint32
}

// Write writes the register, see bus.Region.
func (r Register) Write(value uint32) { r.Region.Write32(r.Offset, value) }

// WriteWords writes registers that follow one another, the first at offset.
func WriteWords(r bus.Region, offset uint32, words []uint32) {
	for i, w := range words {
		r.Write32(offset+4*uint32(i), w)
	}
}

// Statistic is a hardware counter in a register that clears when it is read, as
// Intel's do. A wide one is two registers, the low one of which is read first.
type Statistic struct {
	Offset uint32
	Wide   bool
	// As in CounterInfo.
	Name, Doc string
	Bad       bool
}

// Statistics are a device's, in the order of Info.Counters.
type Statistics []Statistic

// Infos is Info.Counters.
func (s Statistics) Infos() []CounterInfo {
	infos := make([]CounterInfo, len(s))
	for i := range s {
		infos[i] = CounterInfo{Name: s[i].Name, Doc: s[i].Doc, Bad: s[i].Bad}
	}
	return infos
}

// Read reads, and by that clears, the registers and adds them to totals, which
// has as many elements as s.
func (s Statistics) Read(r bus.Region, totals []uint64) {
	for i := range s {
		n := uint64(r.Read32(s[i].Offset))
		if s[i].Wide {
			n |= uint64(r.Read32(s[i].Offset+4)) << 32
		}
		totals[i] += n
	}
}
