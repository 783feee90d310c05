package e1000

import (
	"nicd/framework"
	"nicd/framework/ring"
)

// rxDesc is a receive descriptor. It is given with the buffer's address and zeros
// and comes back in one of two forms:
//
//	word  legacy                          extended (82574)
//	0     address                         queue, hash type
//	1     address                         hash
//	2     length, sum                     status and errors
//	3     status, errors, VLAN tag        length, VLAN tag
type rxDesc struct {
	addr   uint64
	w2, w3 uint32
}

// Status and errors as the extended form has them; DD is bit 0 in both forms.
const (
	rxDone      = 1 << 0
	rxEOP       = 1 << 1
	rxIgnore    = 1 << 2 // nothing was found out about checksums
	rxTagged    = 1 << 3
	rxUDP       = 1 << 4
	rxL4        = 1 << 5 // the TCP or UDP checksum was looked at
	rxIP        = 1 << 6 // the IPv4 checksum was looked at
	rxErrorL4   = 1 << 29
	rxErrorIP   = 1 << 30
	rxErrorData = 1 << 31
	// Bad frame check sequence, symbol, sequence, carrier extension.
	rxErrorFrame = 1<<24 | 1<<25 | 1<<26 | 1<<28

	rxHashType = 15 // of word 0, extended
)

// The word that has DD.
var (
	legacyOwner   = ring.Owner{Offset: 12, Bit: rxDone}
	extendedOwner = ring.Owner{Offset: 8, Bit: rxDone}
)

// extend gives a legacy descriptor the extended form. There is no hash in it.
func (d *rxDesc) extend() {
	status, errors := d.w3&0xFF, d.w3>>8&0xFF
	*d = rxDesc{w2: status | errors<<24, w3: d.w2&0xFFFF | d.w3&0xFFFF_0000}
}

// What the extended form says.
func (d *rxDesc) status() uint32 { return d.w2 }
func (d *rxDesc) length() uint32 { return d.w3 & 0xFFFF }
func (d *rxDesc) vlan() uint16   { return uint16(d.w3 >> 16) }
func (d *rxDesc) hash() uint32   { return uint32(d.addr >> 32) }
func (d *rxDesc) hashed() bool   { return d.addr&rxHashType != 0 }

// rxQueue is a receive queue.
type rxQueue struct {
	ring.Receive[rxDesc]
	extended bool
	hashes   bool // word 1 is a hash, not a sum
}

// Poll takes descriptors as they come. A packet that has not ended yet waits in
// the queue, with the buffers that it has so far.
func (q *rxQueue) Poll(dst *framework.Batch) framework.Verdict {
	for {
		d, ok := q.Next(dst)
		if !ok {
			return q.End()
		}
		if !q.extended {
			d.extend()
		}
		q.Fill(d.length())
		if d.status()&rxEOP != 0 {
			q.finish(&d)
			q.Deliver(dst)
		}
	}
}

// finish gives the packet what its last descriptor says of it.
func (q *rxQueue) finish(d *rxDesc) {
	p, status := &q.Packet, d.status()
	switch {
	case status&rxErrorFrame != 0:
		q.Fail(framework.DropCRC)
		return
	case status&rxErrorData != 0:
		q.Fail(framework.DropDevice)
		return
	}
	p.Flags |= verdict(status)
	if status&rxTagged != 0 {
		p.VLAN = d.vlan()
		p.Flags |= framework.VLANTag
	}
	if q.hashes && d.hashed() {
		p.Hash = d.hash()
		p.Flags |= framework.HashValid
	}
}

// verdict is what the device found out about checksums. RXCSUM says what it
// looks at, so there is nothing to find while rx-csum is off.
func verdict(status uint32) (f framework.PacketFlags) {
	if status&rxIgnore != 0 {
		return 0
	}
	if status&rxIP != 0 {
		f |= framework.IPv4
	}
	if status&rxUDP != 0 {
		f |= framework.UDP
	}
	switch {
	case status&rxIP != 0 && status&rxErrorIP != 0,
		status&(rxL4|rxUDP) != 0 && status&rxErrorL4 != 0:
		f |= framework.ChecksumBad
	case status&(rxL4|rxUDP) != 0:
		f |= framework.ChecksumVerified
	}
	return f
}
