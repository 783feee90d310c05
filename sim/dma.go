package sim

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"nicd/bus"
)

// Fault is an access to memory that was refused.
type Fault struct {
	Addr uint64
	Len  int
	// Mastering is false if the function's bus master bit was off, true if no
	// mapping holds the whole range.
	Mastering bool
}

func (f Fault) String() string {
	why := "bus mastering is off"
	if f.Mastering {
		why = "not mapped"
	}
	return fmt.Sprintf("DMA of %d bytes at %#x: %s", f.Len, f.Addr, why)
}

// pageSize is what device addresses of mappings are multiples of, as an IOMMU's
// are; so what is aligned for the device is aligned for atomic access.
const pageSize = 4096

// mapping is memory that the device may access.
type mapping struct {
	memory *bus.Memory
	base   uint64
	bytes  []byte
}

// Access is one direction's lock and its view of memory.
type Access struct {
	sync.Mutex
	host *Host
	last *mapping // where the last access was: the next one is there too
}

// Bytes are the n bytes of memory at device address addr: the memory itself, not
// a copy, valid while the lock is held. Nil means that the access was refused:
// it is counted and reported, and the device sees an abort.
func (a *Access) Bytes(addr uint64, n int) []byte {
	if m := a.last; m != nil {
		off := addr - m.base
		if size := uint64(len(m.bytes)); off < size && uint64(n) <= size-off {
			return m.bytes[off : off+uint64(n) : off+uint64(n)]
		}
	}
	return a.find(addr, n)
}

func (a *Access) find(addr uint64, n int) []byte {
	h := a.host
	if !h.master {
		h.fault(Fault{Addr: addr, Len: n})
		return nil
	}
	i, exact := slices.BinarySearchFunc(h.mappings, addr, func(m *mapping, at uint64) int {
		return cmp.Compare(m.base, at)
	})
	if !exact {
		i--
	}
	if i >= 0 {
		m := h.mappings[i]
		off, size := addr-m.base, uint64(len(m.bytes))
		if off < size && n >= 0 && uint64(n) <= size-off {
			a.last = m
			return m.bytes[off : off+uint64(n) : off+uint64(n)]
		}
	}
	h.fault(Fault{Addr: addr, Len: n, Mastering: true})
	return nil
}

func (h *Host) fault(f Fault) {
	h.faults.Add(1)
	if h.onFault != nil {
		h.onFault(f)
	}
}

// lockMemory keeps all DMA out until unlockMemory, and makes the directions look
// mappings up again.
func (h *Host) lockMemory() {
	h.Tx.Lock()
	h.Rx.Lock()
	h.Tx.last, h.Rx.last = nil, nil
}

func (h *Host) unlockMemory() {
	h.Rx.Unlock()
	h.Tx.Unlock()
}

func (h *Host) setMaster(on bool) {
	h.lockMemory()
	h.master = on
	h.unlockMemory()
}

func (h *Host) mapMemory(m *bus.Memory, base uint64) error {
	size := uint64(m.Size())
	if size == 0 || base%pageSize != 0 || base+size-1 < base {
		return fmt.Errorf("sim: map %d bytes at %#x: no such range", size, base)
	}
	h.lockMemory()
	defer h.unlockMemory()
	for _, o := range h.mappings {
		if o.memory == m || (base <= o.base+uint64(len(o.bytes))-1 && o.base <= base+size-1) {
			return fmt.Errorf("sim: map %d bytes at %#x: overlaps what is mapped at %#x", size, base, o.base)
		}
	}
	h.mappings = append(h.mappings, &mapping{memory: m, base: base, bytes: m.Bytes()})
	slices.SortFunc(h.mappings, func(x, y *mapping) int { return cmp.Compare(x.base, y.base) })
	return nil
}

func (h *Host) unmapMemory(m *bus.Memory) error {
	h.lockMemory()
	defer h.unlockMemory()
	n := len(h.mappings)
	h.mappings = slices.DeleteFunc(h.mappings, func(o *mapping) bool { return o.memory == m })
	if len(h.mappings) == n {
		return fmt.Errorf("sim: unmap: memory is not mapped")
	}
	return nil
}

func (h *Host) unmapAll() {
	h.lockMemory()
	h.mappings = nil
	h.master = false
	h.unlockMemory()
}
