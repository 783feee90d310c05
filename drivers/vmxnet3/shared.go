package vmxnet3

import (
	"math/bits"
	"sync/atomic"

	"nicd/framework"
	"nicd/framework/ring"
)

// This file is the memory that driver and device share besides the rings. The
// device looks at it when it is told to by a command; what it writes, or looks at
// when it likes, is atomic.

// sharedMemory is all of it. The device is told the address of its start; all other
// addresses are in it.
type sharedMemory struct {
	driver    driverShared
	_         [48]byte // queue descriptors are 128-byte aligned
	queues    [2 * maxQueues]queueDesc
	rss       rssConf
	multicast [maxMulticast]framework.MAC
}

// driverShared is Vmxnet3_DriverShared.
type driverShared struct {
	magic, size                       uint32
	driverVersion, guestOS            uint32
	revisions                         uint32 // always 1, whatever was chosen in regVRRS
	uptVersions                       uint32
	features                          uint64
	driverData                        uint64 // unused: all ones
	queues                            uint64
	_, queuesLen                      uint32
	mtu                               uint32
	maxRxSG                           uint16 // most receive descriptors of a packet
	txQueues, rxQueues                uint8
	_                                 [16]byte
	autoMask, numVectors, eventVector uint8
	moderation                        [maxVectors + 1]uint8
	interruptControl                  atomic.Uint32
	_                                 [8]byte
	rxMode                            uint32
	multicastLen                      uint16 // in bytes
	multicast                         uint64
	vlans                             [4096 / 64]uint64 // a bit per VLAN
	rssVersion, rssLen                uint32
	rss                               uint64
	_                                 [32]byte
	events                            atomic.Uint32 // set by the device, cleared through regECR
	_                                 uint32
	commandInfo                       [4]uint32
}

// Sizes of the structures, and values of driverShared.
const (
	sharedSize    = 720
	queueDescSize = 256
	rssConfSize   = 176

	sharedMagic = 0xBABEFEE1
	guestLinux  = 1<<2 | 2 // type Linux, 64 bits
	intrDisable = 1        // of interruptControl: all vectors
)

// uptFeatures are the bits of driverShared.features.
var uptFeatures = framework.FeatureBits{
	{Feature: framework.RxChecksum, Bits: 1 << 0},
	{Feature: framework.RSSHash, Bits: 1 << 1},
	{Feature: framework.VLANStrip, Bits: 1 << 2},
	{Feature: framework.LRO, Bits: 1 << 3},
}

// Bits of driverShared.rxMode.
const (
	rxUnicast = 1 << iota
	rxMulticast
	rxBroadcast
	rxAllMulticast
	rxPromiscuous
)

// Bits of driverShared.events.
const (
	eventRxQueue = 1 << iota // a receive queue has stopped
	eventTxQueue             // a transmit queue has stopped
	eventLink                // the link has changed
)

// queueDesc is Vmxnet3_TxQueueDesc or Vmxnet3_RxQueueDesc. The transmit queues' come
// first.
type queueDesc struct {
	control      atomic.Uint32 // transmit: packets not announced by a bell; receive: low byte set if the device wants bells
	threshold    atomic.Uint32 // transmit: how many such packets the device is content with
	_            [8]byte
	rings        [2]uint64 // transmit: ring and data ring; receive: ring 1 and ring 2
	comp         uint64
	driverData   uint64 // unused: all ones
	_            uint64
	sizes        [2]uint32 // of rings
	compSize     uint32
	_            uint32
	vector       uint8
	dataDescSize uint16 // transmit, from revision 3 on: bytes of an entry of the data ring
	_            uint32
	stopped      atomic.Uint32 // low byte
	error        atomic.Uint32
	stats        [numStats]atomic.Uint64
	_            [88]byte
}

// numStats is how many counters a queue has.
const numStats = 10

// rssConf is UPT1_RSSConf.
type rssConf struct {
	types, function, keySize, tableSize uint16
	key                                 [40]byte
	table                               [128]uint8
}

// Values for RSS.
const (
	rssTypes    = 1 | 2 | 4 | 8 // IPv4 and IPv6, with and without TCP
	rssToeplitz = 1
	rssFields   = 1 | 2 | 4 | 8 // revision 4: TCP and UDP over IPv4 and IPv6
)

// newShared is what the device reads at activation, but for the queues' rings.
func newShared(dma framework.DMA, cfg *framework.Config, mask maskMode) (ring.Shared[sharedMemory], error) {
	shared, err := ring.AllocShared[sharedMemory](dma, ringAlign)
	if err != nil {
		return shared, err
	}
	s, plan := shared.Fields, &cfg.Interrupts
	s.rss = rssConf{rssTypes, rssToeplitz, uint16(len(cfg.RSS.Key)), uint16(len(cfg.RSS.Indirection)), cfg.RSS.Key, cfg.RSS.Indirection}

	d := &s.driver
	d.magic, d.size = sharedMagic, sharedSize
	d.driverVersion, d.guestOS = driverVersion, guestLinux
	d.revisions, d.uptVersions = 1, 1
	d.features = uptFeatures.Of(cfg.Features)
	d.driverData = ^uint64(0)
	d.queues = ring.AddrOf(shared, &s.queues)
	d.queuesLen = uint32(len(s.queues) * queueDescSize)
	d.mtu = uint32(cfg.MTU)
	d.maxRxSG = framework.MaxFragments
	d.txQueues, d.rxQueues = uint8(cfg.TxQueues), uint8(cfg.RxQueues)
	if mask == maskAuto {
		d.autoMask = 1
	}
	d.numVectors = uint8(muteVector(plan) + 1)
	d.eventVector = uint8(max(plan.AdminVector, 0))
	for v := range plan.Vectors {
		d.moderation[v] = moderationLevel(plan.Moderation)
	}
	d.interruptControl.Store(intrDisable)
	d.multicast = ring.AddrOf(shared, &s.multicast)
	d.rssVersion, d.rssLen, d.rss = 1, rssConfSize, ring.AddrOf(shared, &s.rss)
	return shared, nil
}

// moderationLevel picks one of the device's seven steps, which no document
// gives a unit: doubling from 8 us on is this driver's reading. Zero lets the
// device adapt.
func moderationLevel(micros int) uint8 {
	if micros <= 0 {
		return moderationAdapt
	}
	return uint8(min(1+bits.Len(uint(micros-1)/8), moderationAdapt-1))
}
