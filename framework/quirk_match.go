package framework

import (
	"fmt"
	"strings"
)

// Declaration is a driver's statement that a quirk has a value on some devices.
// [Quirk.Is] makes one.
type Declaration struct {
	Quirk     string
	Value     string
	When      Match
	Reference string
}

// Match is a predicate over a device. Zero fields match everything. It is data,
// so that nicd can evaluate it again when link or mode change and `explain` can
// print it.
type Match struct {
	Device                   uint16 // PCI device id
	MinRevision, MaxRevision int    // of the device interface, Info.Revision
	Mode                     string // Info.Mode, such as "passthrough"
	LinkBelow                int    // link up, with a speed below so many Mbit/s
	Subsystem                uint32 // PCI subsystem: vendor in the upper half, id in the lower
	// Scattered: the memory that the device shares with its driver is in pages that
	// only an IOMMU puts side by side.
	Scattered bool
}

// DeviceFacts is what a Match looks at.
type DeviceFacts struct {
	Device   uint16 // PCI device id
	Revision int    // Info.Revision
	Mode     string // Info.Mode
	Link     Link   // as last read; zero before that
	// Subsystem is as in Match, 0 if it is not known; Scattered likewise.
	Subsystem uint32
	Scattered bool
}

// FactsOf collects the facts about a device of that PCI id.
func FactsOf(device uint16, info Info, link Link) DeviceFacts {
	return DeviceFacts{Device: device, Revision: info.Revision, Mode: info.Mode, Link: link}
}

// Matches tells whether the predicate holds.
func (m Match) Matches(f DeviceFacts) bool {
	switch {
	case m.Device != 0 && m.Device != f.Device,
		m.MinRevision != 0 && f.Revision < m.MinRevision,
		m.MaxRevision != 0 && f.Revision > m.MaxRevision,
		m.Mode != "" && m.Mode != f.Mode,
		m.Subsystem != 0 && m.Subsystem != f.Subsystem,
		m.Scattered && !f.Scattered,
		m.LinkBelow != 0 && (!f.Link.Up || f.Link.Mbps >= m.LinkBelow):
		return false
	}
	return true
}

// String says when the predicate holds: "device 10d3, link below 1000 Mbit/s".
// The zero Match is "all devices".
func (m Match) String() string {
	var parts []string
	if m.Device != 0 {
		parts = append(parts, fmt.Sprintf("device %04x", m.Device))
	}
	if m.Subsystem != 0 {
		parts = append(parts, fmt.Sprintf("subsystem %04x:%04x", m.Subsystem>>16, m.Subsystem&0xffff))
	}
	switch {
	case m.MinRevision != 0 && m.MinRevision == m.MaxRevision:
		parts = append(parts, fmt.Sprintf("revision %d", m.MinRevision))
	case m.MinRevision != 0 && m.MaxRevision != 0:
		parts = append(parts, fmt.Sprintf("revision %d to %d", m.MinRevision, m.MaxRevision))
	case m.MinRevision != 0:
		parts = append(parts, fmt.Sprintf("revision %d and up", m.MinRevision))
	case m.MaxRevision != 0:
		parts = append(parts, fmt.Sprintf("revision up to %d", m.MaxRevision))
	}
	if m.Mode != "" {
		parts = append(parts, "mode "+m.Mode)
	}
	if m.LinkBelow != 0 {
		parts = append(parts, fmt.Sprintf("link below %d Mbit/s", m.LinkBelow))
	}
	if m.Scattered {
		parts = append(parts, "memory in small pages")
	}
	if parts == nil {
		return "all devices"
	}
	return strings.Join(parts, ", ")
}
