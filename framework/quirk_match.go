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
}

// DeviceFacts is what a Match looks at.
type DeviceFacts struct {
	Device   uint16 // PCI device id
	Revision int    // Info.Revision
	Mode     string // Info.Mode
	Link     Link   // as last read; zero before that
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
	if parts == nil {
		return "all devices"
	}
	return strings.Join(parts, ", ")
}
