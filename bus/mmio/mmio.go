// Package mmio accesses device registers that are mapped into this
// process: the BARs of a real device, or pages that a device model in another
// process shares.
//
// It exists because neither plain Go accesses nor sync/atomic will do. The
// compiler may drop or merge plain loads and stores of the same address, and
// an atomic store is an exchange on amd64, which also reads the register: some
// registers clear when read. Loads are atomic; stores are a single store
// instruction in assembly, after what the architecture needs to order them
// behind earlier stores to memory.
package mmio

import "sync/atomic"

// Store32 stores v to the register at addr, after all earlier stores of the
// caller to memory have become visible to devices. It does not read.
//
//go:noescape
func Store32(addr *uint32, v uint32)

// Load32 loads the register at addr with acquire order: what the device wrote
// to memory before it set the register is visible after it.
func Load32(addr *uint32) uint32 { return atomic.LoadUint32(addr) }

// Store16 and Store8 are Store32 for narrower registers.
//
//go:noescape
func Store16(addr *uint16, v uint16)

//go:noescape
func Store8(addr *uint8, v uint8)

// Load16 and Load8 are Load32 for narrower registers, for which sync/atomic has
// nothing.
//
//go:noescape
func Load16(addr *uint16) uint16

//go:noescape
func Load8(addr *uint8) uint8
