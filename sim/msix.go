package sim

import "sync"

// An MSI-X table entry (PCI Local Bus Specification 3.0, section 6.8.2): message
// address low and high, data, vector control.
const (
	msixEntrySize     = 16
	msixEntryWords    = 4
	msixVectorControl = 3
	msixMasked        = 1 // of vector control
)

// msixTable is what was written to the table.
type msixTable struct {
	mu    sync.Mutex
	words []uint32
}

func (t *msixTable) init(vectors int) {
	t.words = make([]uint32, vectors*msixEntryWords)
	for v := range vectors {
		t.words[v*msixEntryWords+msixVectorControl] = msixMasked
	}
}

func (t *msixTable) unmask(vectors int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for v := range min(vectors, len(t.words)/msixEntryWords) {
		t.words[v*msixEntryWords+msixVectorControl] = 0
	}
}

// readMSIX reads a word of the table or the pending bit array.
func (d *Device) readMSIX(region int, offset uint32) (uint32, bool) {
	m := &d.id.MSIX
	if m.Vectors == 0 {
		return 0, false
	}
	if i := offset - m.TableOffset; region == m.TableBAR && i < uint32(m.Vectors*msixEntrySize) {
		d.table.mu.Lock()
		defer d.table.mu.Unlock()
		return d.table.words[i/4], true
	}
	if i := offset - m.PBAOffset; region == m.PBABAR && i < uint32((m.Vectors+63)/64*8) {
		return d.host.irq.pendingWord(int(i / 4)), true
	}
	return 0, false
}

// writeMSIX writes a word of the table; the pending bit array is read-only.
func (d *Device) writeMSIX(region int, offset, value uint32) bool {
	m := &d.id.MSIX
	if m.Vectors == 0 {
		return false
	}
	if i := offset - m.TableOffset; region == m.TableBAR && i < uint32(m.Vectors*msixEntrySize) {
		d.table.mu.Lock()
		d.table.words[i/4] = value
		d.table.mu.Unlock()
		if i/4%msixEntryWords == msixVectorControl {
			d.host.irq.maskVector(int(i/msixEntrySize), value&msixMasked != 0)
		}
		return true
	}
	return region == m.PBABAR && offset-m.PBAOffset < uint32((m.Vectors+63)/64*8)
}

// isMSIX tells whether a register is of the table or the pending bit array.
func (d *Device) isMSIX(region int, offset uint32) bool {
	m := &d.id.MSIX
	return m.Vectors > 0 && (region == m.TableBAR && offset-m.TableOffset < uint32(m.Vectors*msixEntrySize) ||
		region == m.PBABAR && offset-m.PBAOffset < uint32((m.Vectors+63)/64*8))
}
