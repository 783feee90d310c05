package framework

import "nicd/bus"

// Info is what a driver found out about the device that it attached, and the
// rules that the framework must keep.
type Info struct {
	Model    string // "VMXNET3", "82574L"
	Revision int    // the device interface's revision, as the driver negotiated it
	Mode     string // how the device works now, "" if it has but one way; see Match.Mode
	MAC      MAC    // permanent address

	MaxRxQueues, MaxTxQueues int
	RxRing, TxRing           RingRule
	// RxRings is how many rings of Config.RxDescriptors each receive queue
	// has; each takes one buffer less than that. 0 means 1.
	RxRings        int
	MinMTU, MaxMTU int

	// Features is all that the device offers.
	Features Features
	// CoalescedSizeKnown: packets that the device merged carry their segments'
	// size. Without it a port that sends packets on can't have them.
	CoalescedSizeKnown bool

	// MaxTxFragments is how many fragments a packet may have, MaxTSOFragments
	// how many a TSO packet may (0: the same). MaxTSOLen is the longest TSO frame.
	MaxTxFragments, MaxTSOFragments int
	MaxTSOLen                       int
	// MaxTxFragmentLen is the most bytes that one descriptor carries.
	MaxTxFragmentLen int
	// MaxRxFragments is over how many buffers the device may spread a packet.
	MaxRxFragments int

	// Interrupts the driver can work with, best first, and how many vectors it
	// can use of each: with n data vectors, queue q uses vector q%n; the admin
	// vector is the one after them, or 0 if there is only one vector.
	Interrupts []InterruptChoice

	// Filters that the device has room for.
	MaxUnicast, MaxMulticast int

	// Counters names what ReadCounters returns, in order.
	Counters []CounterInfo
}

// InterruptChoice is a kind of interrupt and how many vectors of it a driver can
// use, counting the admin vector.
type InterruptChoice struct {
	Kind    bus.InterruptKind
	Vectors int
}

// CounterInfo names a hardware counter.
type CounterInfo struct {
	Name string // "rx_crc_errors"
	Doc  string
	Bad  bool // a sign of trouble when it is not zero
}

// RingRule is what a device demands of the number of descriptors in a ring. Multiple
// is what the number is a multiple of, 0 or 1 if it can be any, or PowersOfTwo.
type RingRule struct {
	Min, Max, Multiple, Default int
}

// Config is how a device is to run, from Start to Stop.
type Config struct {
	Settings
	RxQueues, TxQueues           int // at least one each
	RxDescriptors, TxDescriptors int // per ring; keep the RingRules
	Buffers                      *Buffers
	Interrupts                   VectorPlan
	Filters                      Filters
	// Fire makes a vector fire as if the device had. It is for the Unmask of a
	// device that does not interrupt by itself for what came while the vector was
	// masked, as a virtio device does not whose driver moves the event index: that
	// looks once more, and fires. Any goroutine may call it between Start and Stop.
	Fire func(vector int)
}

// VectorPlan says which vector serves what. Queue indexes RxVector and TxVector.
// A vector of -1 means that the queue has none and is served with its partner; a
// transmit queue without one raises no interrupt (quirk tx-interrupt).
type VectorPlan struct {
	Kind               bus.InterruptKind
	Vectors            int
	RxVector, TxVector []int
	AdminVector        int
	// Moderation is the least time between two interrupts of a vector, in
	// microseconds; 0 leaves it to the device.
	Moderation int
}

// Settings are what can change while a device runs.
type Settings struct {
	MTU int
	MAC MAC
	// Features are effective: the device offers each of them. LRO never comes without
	// RxChecksum, nor, by the quirk vlan-one-switch, VLANInsert without VLANStrip, nor
	// RSSHash with one receive queue.
	Features Features
	RSS      RSS
}

// EffectOf is what a change of settings takes on a device with such quirks that looks
// at the MTU, at the RSS key and at whether there is RSS only when it starts, and
// follows all else at once. By vlan-one-switch, packets that the device was given
// before would go without their tags, into another VLAN, when it is turned off.
func EffectOf(now, next *Settings, quirks *QuirkSet) Effect {
	untags := VLANOneSwitchQuirk.Get(quirks) && now.Features.Has(VLANInsert) && !next.Features.Has(VLANStrip)
	if untags || now.MTU != next.MTU || now.RSS.Key != next.RSS.Key || (now.Features^next.Features)&RSSHash != 0 {
		return Reset
	}
	return Live
}

// RSS is how the device spreads flows over its receive queues.
type RSS struct {
	Key         [40]byte // Toeplitz
	Indirection [128]uint8
}

// Filters is the whole set of what the device is to receive.
type Filters struct {
	Promiscuous  bool
	AllMulticast bool
	Unicast      []MAC // besides Settings.MAC
	Multicast    []MAC
	VLANs        *[4096 / 64]uint64 // bit per VLAN id; nil receives all
}

// VLANTable is the VLANs that are received, a bit for each, with features in force, and
// whether those are all.
func (f *Filters) VLANTable(features Features) (table [4096 / 64]uint64, all bool) {
	if f.VLANs != nil && !f.Promiscuous && features.Has(VLANFilter) {
		return *f.VLANs, false
	}
	for i := range table {
		table[i] = ^uint64(0)
	}
	return table, true
}

// Link is the state of a link.
type Link struct {
	Up         bool
	Mbps       int
	FullDuplex bool
	// Paused: the peer asked for silence (802.3x); the transmit watchdog waits.
	Paused bool
}
