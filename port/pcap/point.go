// Package pcap captures packets on their way between a device and a port.
//
// What lives here: the points where packets can be seen, copying them for
// whoever asked (bounded: a slow reader loses packets, never the interface), a
// filter language, and writing pcapng. While nobody captures, a point costs one
// atomic load for each batch. What does not live here: who may capture, and how
// captured packets get to another process.
package pcap

import (
	"fmt"
	"strings"
)

// Point is a place where packets can be seen.
type Point uint8

// Points.
const (
	// RxWire: frames as they reach the device, before it or the engine merges
	// any. Only a simulated device's wire can be seen; of a real one nicd gets
	// what its driver delivers.
	RxWire Point = iota
	// RxDelivered: packets as the port gets them, coalesced ones whole.
	RxDelivered
	// TxPort: packets as the port sends them, those to be segmented whole.
	TxPort
	// TxWire: frames as they leave the device, or, if the wire carries frames to
	// be segmented whole, those whole. Seen for simulated devices only.
	TxWire
	NumPoints
)

var pointNames = [NumPoints]string{"rx-wire", "rx-delivered", "tx-port", "tx-wire"}

func (p Point) String() string { return pointNames[p] }

// Incoming tells whether packets at the point come from the wire.
func (p Point) Incoming() bool { return p == RxWire || p == RxDelivered }

// PointNames are the names of all points.
func PointNames() []string { return pointNames[:] }

// ParsePoint returns the point of a name.
func ParsePoint(name string) (Point, error) {
	for p, n := range pointNames {
		if n == name {
			return Point(p), nil
		}
	}
	return 0, fmt.Errorf("there is no capture point %q; there are %s", name, strings.Join(pointNames[:], ", "))
}
