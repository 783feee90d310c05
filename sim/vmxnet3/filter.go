package vmxnet3

import (
	"bytes"
	"encoding/binary"
)

// filter says which frames are for this NIC.
type filter struct {
	mac       [6]byte
	mode      uint32
	multicast []byte // addresses, packed
	vlans     [vlanTableWords]uint32
}

var broadcast = []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// castKind is how a destination address addresses, as the statistics tell it.
type castKind uint8

const (
	castUnicast castKind = iota
	castMulticast
	castBroadcast
	numCastKinds
)

func castOf(dst []byte) castKind {
	switch {
	case dst[0]&1 == 0:
		return castUnicast
	case bytes.Equal(dst[:6], broadcast):
		return castBroadcast
	}
	return castMulticast
}

// accepts tells whether a frame to dst with VLAN id vid, 0 if it is untagged, is
// received. The table holds for untagged frames too (DPDK sets its bit 0), and
// for none in promiscuous mode.
func (f *filter) accepts(dst []byte, vid uint16) bool {
	if f.mode&modePromiscuous != 0 {
		return true
	}
	if f.vlans[vid>>5]>>(vid&31)&1 == 0 {
		return false
	}
	switch castOf(dst) {
	case castUnicast:
		return f.mode&modeUnicast != 0 && bytes.Equal(dst[:6], f.mac[:])
	case castBroadcast:
		return f.mode&modeBroadcast != 0
	}
	return f.mode&modeAllMulticast != 0 || f.mode&modeMulticast != 0 && f.listed(dst[:6])
}

func (f *filter) listed(dst []byte) bool {
	for at := 0; at+multicastMACSize <= len(f.multicast); at += multicastMACSize {
		if bytes.Equal(f.multicast[at:at+multicastMACSize], dst) {
			return true
		}
	}
	return false
}

func (f *filter) setVLANs(table []byte) {
	for i := range f.vlans {
		f.vlans[i] = binary.LittleEndian.Uint32(table[4*i:])
	}
}
