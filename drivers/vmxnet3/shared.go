package vmxnet3

import (
	"encoding/binary"

	"nicd/bus"
	"nicd/framework"
)

// This file holds the memory that driver and device share besides the rings:
// DriverShared, the queue descriptors behind it and the RSS configuration.
// Everything is little endian.

// Offsets in DriverShared.
const (
	dsMagic         = 0
	dsSize          = 4
	dsDriverVersion = 8
	dsGuestOS       = 12
	dsRevisions     = 16 // always 1, whatever was chosen in regVRRS
	dsUPTVersions   = 20
	dsFeatures      = 24 // u64
	dsDriverData    = 32 // u64, unused: all ones
	dsQueues        = 40 // u64, address of the queue descriptors
	dsQueuesLen     = 52
	dsMTU           = 56
	dsMaxRxSG       = 60 // u16, most receive descriptors of a packet
	dsTxQueues      = 62 // u8
	dsRxQueues      = 63 // u8
	dsAutoMask      = 80 // u8
	dsVectors       = 81 // u8
	dsEventVector   = 82 // u8
	dsModeration    = 83 // u8 per vector
	dsIntrControl   = 108
	dsRxMode        = 120
	dsMulticastLen  = 124 // u16, in bytes
	dsMulticast     = 128 // u64
	dsVLANs         = 136 // a bit per VLAN
	dsRSSVersion    = 648
	dsRSSLen        = 652
	dsRSS           = 656 // u64
	dsEvents        = 696 // set by the device, cleared through regECR
	dsCommandInfo   = 704
	sharedSize      = 720

	sharedMagic = 0xBABEFEE1
	guestLinux  = 1<<2 | 2 // type Linux, 64 bits
	intrDisable = 1        // of dsIntrControl: all vectors
)

// Bits of dsFeatures.
const (
	uptRxChecksum = 1 << iota
	uptRSS
	uptVLANStrip
	uptLRO
)

// Bits of dsRxMode.
const (
	rxUnicast = 1 << iota
	rxMulticast
	rxBroadcast
	rxAllMulticast
	rxPromiscuous
)

// Bits of dsEvents.
const (
	eventRxQueue = 1 << iota // a receive queue has stopped
	eventTxQueue             // a transmit queue has stopped
	eventLink                // the link has changed
)

// Offsets in a queue descriptor, of either kind unless named after one.
const (
	qdTxDeferred   = 0 // transmit: packets not announced by a bell
	qdTxThreshold  = 4 // transmit: how many the device is content with
	qdRxBell       = 0 // receive: low byte set if the device wants bells
	qdTxRing       = 16
	qdTxComp       = 32
	qdRxRings      = 16 // ring 2 eight on
	qdRxComp       = 32
	qdDriverData   = 40
	qdSize         = 56 // receive: ring 2 four on
	qdCompSize     = 64
	qdVector       = 72 // u8
	qdDataDescSize = 74 // u16, transmit, revision 3: of the data ring, used or not
	qdStopped      = 80 // u8
	qdError        = 84
	qdStats        = 88 // ten u64
	numStats       = 10
	queueDescSize  = 256
	dataDescSize   = 128
)

// Offsets and values of the RSS configuration.
const (
	rssHashType  = 0 // u16
	rssHashFunc  = 2 // u16
	rssKeySize   = 4 // u16
	rssTableSize = 6 // u16
	rssKey       = 8
	rssTable     = 48

	rssTypes    = 1 | 2 | 4 | 8 // IPv4 and IPv6, with and without TCP
	rssToeplitz = 1
	rssFields   = 1 | 2 | 4 | 8 // revision 4: TCP and UDP over IPv4 and IPv6
)

// area is a piece of shared memory. Put methods write what the device reads
// after the next register write, load reads what the device may write.
type area struct{ framework.Block }

func (a area) put8(at int, v uint8)   { a.Bytes[at] = v }
func (a area) put16(at int, v uint16) { binary.LittleEndian.PutUint16(a.Bytes[at:], v) }
func (a area) put32(at int, v uint32) { bus.Word(a.Bytes, at).Store(v) }
func (a area) put64(at int, v uint64) { binary.LittleEndian.PutUint64(a.Bytes[at:], v) }
func (a area) load(at int) uint32     { return bus.Word(a.Bytes, at).Load() }

// load64 joins two words: a counter that the device fills in during a command
// is at rest when it is read.
func (a area) load64(at int) uint64 { return uint64(a.load(at)) | uint64(a.load(at+4))<<32 }

// part is size bytes of a from at on.
func (a area) part(at, size int) area {
	return area{framework.Block{Bytes: a.Bytes[at : at+size : at+size], Addr: a.Addr + uint64(at)}}
}

// sharedMemory is what a started device shares with its driver.
type sharedMemory struct {
	driver    area   // DriverShared
	tx, rx    []area // queue descriptors
	rss       area
	multicast area
}

func allocShared(dma framework.DMA, cfg *framework.Config) (*sharedMemory, error) {
	queues := (cfg.TxQueues + cfg.RxQueues) * queueDescSize
	const queuesAt = (sharedSize + queueAlign - 1) / queueAlign * queueAlign
	rssAt := queuesAt + queues
	multicastAt := rssAt + rssConfSize
	b, err := dma.Alloc(multicastAt+maxMulticast*macLen, ringAlign)
	if err != nil {
		return nil, err
	}
	all := area{b}
	s := &sharedMemory{
		driver:    all.part(0, sharedSize),
		rss:       all.part(rssAt, rssConfSize),
		multicast: all.part(multicastAt, maxMulticast*macLen),
	}
	for q := range cfg.TxQueues {
		s.tx = append(s.tx, all.part(queuesAt+q*queueDescSize, queueDescSize))
	}
	for q := range cfg.RxQueues {
		s.rx = append(s.rx, all.part(queuesAt+(cfg.TxQueues+q)*queueDescSize, queueDescSize))
	}
	s.driver.put64(dsQueues, s.driver.Addr+queuesAt)
	s.driver.put32(dsQueuesLen, uint32(queues))
	return s, nil
}

// fill writes all that does not change while the device runs.
func (s *sharedMemory) fill(cfg *framework.Config, mask maskMode) {
	d := s.driver
	d.put32(dsMagic, sharedMagic)
	d.put32(dsSize, sharedSize)
	d.put32(dsDriverVersion, driverVersion)
	d.put32(dsGuestOS, guestLinux)
	d.put32(dsRevisions, 1)
	d.put32(dsUPTVersions, 1)
	d.put64(dsDriverData, ^uint64(0))
	d.put32(dsMTU, uint32(cfg.MTU))
	d.put16(dsMaxRxSG, framework.MaxFragments)
	d.put8(dsTxQueues, uint8(cfg.TxQueues))
	d.put8(dsRxQueues, uint8(cfg.RxQueues))

	plan := &cfg.Interrupts
	if mask == maskAuto {
		d.put8(dsAutoMask, 1)
	}
	d.put8(dsVectors, uint8(plan.Vectors+1))
	d.put8(dsEventVector, uint8(max(plan.AdminVector, 0)))
	for v := range plan.Vectors {
		d.put8(dsModeration+v, moderationLevel(plan.Moderation))
	}
	d.put32(dsIntrControl, intrDisable)
	d.put64(dsMulticast, s.multicast.Addr)
	s.fillRSS(cfg)
}

func (s *sharedMemory) fillRSS(cfg *framework.Config) {
	s.driver.put32(dsRSSVersion, 1)
	s.driver.put32(dsRSSLen, rssConfSize)
	s.driver.put64(dsRSS, s.rss.Addr)
	s.rss.put16(rssHashType, rssTypes)
	s.rss.put16(rssHashFunc, rssToeplitz)
	s.rss.put16(rssKeySize, maxRSSKey)
	s.rss.put16(rssTableSize, maxIndirection)
	copy(s.rss.Bytes[rssKey:], cfg.RSS.Key[:])
	copy(s.rss.Bytes[rssTable:], cfg.RSS.Indirection[:])
}

// features writes which of the device's functions are wanted.
func (s *sharedMemory) features(f framework.Features, rxQueues int) {
	var bits uint64
	for _, m := range [...]struct {
		feature framework.Features
		bit     uint64
	}{
		{framework.RxChecksum, uptRxChecksum},
		{framework.VLANStrip, uptVLANStrip},
		{framework.LRO, uptLRO},
	} {
		if f.Has(m.feature) {
			bits |= m.bit
		}
	}
	if f.Has(framework.RSSHash) && rxQueues > 1 {
		bits |= uptRSS
	}
	s.driver.put64(dsFeatures, bits)
}

// moderationLevel picks one of the device's seven steps, which no document
// gives a unit: doubling from 8 us on is this driver's reading. Zero lets the
// device adapt.
func moderationLevel(micros int) uint8 {
	if micros <= 0 {
		return moderationAdapt
	}
	level := uint8(1)
	for micros > 8 && level < moderationAdapt-1 {
		micros /= 2
		level++
	}
	return level
}
