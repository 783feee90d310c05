package engine

import "nicd/framework"

// This file is the catalogue of an engine's counters: what the stats command
// prints, what the documentation lists and what [Check] adds up is made from
// these tables.

// Unit is what a counter counts.
type Unit uint8

// Units.
const (
	Packets Unit = iota
	Bytes
	Segments // TCP segments as they were, or will be, on the wire
	Buffers
	Times // something that happened
	Level // not a total: how many there are now
)

func (u Unit) String() string {
	return [...]string{"packets", "bytes", "segments", "buffers", "times", "level"}[u]
}

// CounterInfo describes a counter. Its index in its table is its index in the
// blocks of a [Snapshot].
type CounterInfo struct {
	Name string // stable: part of the CLI's and the JSON's interface
	Doc  string
	Unit Unit
	Bad  bool // a sign of trouble when it is not zero
}

// RxCounter indexes a receive queue's counters.
type RxCounter int

// Counters of a receive queue.
const (
	RxPackets RxCounter = iota
	RxBytes
	RxSegments
	RxHardwareCoalesced
	RxHardwareSegments
	RxAccepted
	RxDelivered
	RxDeliveredBytes
	RxSoftwareCoalesced
	RxSoftwareSegments
	RxDropCRC
	RxDropTruncated
	RxDropTooLong
	RxDropDevice
	RxDropPortFull
	RxChecksumBad
	RxBuffersPosted
	RxBuffersOutstanding
	RxBuffersFree
	RxAllocFailed
	RxRingDry
	RxPostRefused
	RxBadReclaim
	RxRefills
	RxPolls
	RxEmptyPolls
	RxBudgetExhausted
	RxInterrupts
	RxTaskRuns
	RxLostInterrupts
	RxQueueFaults
	LROPackets
	LROMerged
	LROVerified
	LROEndBatch
	LROEndPush
	LROEndLimit
	LROEndSequence
	LROEndHeader
	LROEndEvicted
	LROPassHardware
	LROPassNoPayload
	LROPassNotTCP
	LROPassChecksum
	LROPassOther
	numRxCounters
)

// RxCounters describes a receive queue's counters.
var RxCounters = [numRxCounters]CounterInfo{
	RxPackets:            {"rx_packets", "Packets that the device handed over, bad ones included, before software LRO.", Packets, false},
	RxBytes:              {"rx_bytes", "Bytes of rx_packets, without frame check sequences.", Bytes, false},
	RxSegments:           {"rx_wire_segments", "Frames on the wire that rx_packets stand for: a packet that the device coalesced counts as its segments.", Segments, false},
	RxHardwareCoalesced:  {"rx_lro_hw_packets", "Packets that the device had coalesced.", Packets, false},
	RxHardwareSegments:   {"rx_lro_hw_segments", "TCP segments in packets that the device had coalesced, as far as it tells.", Segments, false},
	RxAccepted:           {"rx_accepted", "Packets of rx_packets that went up, alone or as part of an aggregate.", Packets, false},
	RxDelivered:          {"rx_delivered_packets", "Packets that went up, after software LRO.", Packets, false},
	RxDeliveredBytes:     {"rx_delivered_bytes", "Bytes of rx_delivered_packets.", Bytes, false},
	RxSoftwareCoalesced:  {"rx_lro_sw_packets", "Delivered packets that software LRO had made out of several.", Packets, false},
	RxSoftwareSegments:   {"rx_lro_sw_segments", "Received packets that are in rx_lro_sw_packets.", Segments, false},
	RxDropCRC:            {"rx_drop_crc", "Dropped: bad frame check sequence or symbol error.", Packets, true},
	RxDropTruncated:      {"rx_drop_truncated", "Dropped: the device ran out of descriptors in the middle.", Packets, true},
	RxDropTooLong:        {"rx_drop_too_long", "Dropped: longer than the device or the framework allow.", Packets, true},
	RxDropDevice:         {"rx_drop_device_error", "Dropped: another error that the device or its driver made.", Packets, true},
	RxDropPortFull:       {"rx_drop_port_full", "Dropped: the upper side took no more.", Packets, true},
	RxChecksumBad:        {"rx_csum_bad", "Delivered packets with a wrong checksum.", Packets, true},
	RxBuffersPosted:      {"rx_buffers_posted", "Buffers that the device has now.", Level, false},
	RxBuffersOutstanding: {"rx_buffers_above", "Buffers that the upper side has now.", Level, false},
	RxBuffersFree:        {"rx_buffers_free", "Buffers in the queue's pool now.", Level, false},
	RxAllocFailed:        {"rx_alloc_failed", "Refills that found too few buffers in the queue's pool: the others are above. Nothing is dropped for that.", Times, true},
	RxRingDry:            {"rx_ring_dry", "Times that the device was left without any buffer. Until some come back it pauses its peer, or drops and counts that itself.", Times, true},
	RxPostRefused:        {"rx_post_refused", "Refills of which the device took fewer buffers than it has room for.", Times, true},
	RxBadReclaim:         {"rx_bad_reclaim", "Buffers that came back from above although they were not there.", Buffers, true},
	RxRefills:            {"rx_refills", "Times that buffers were given to the device.", Times, false},
	RxPolls:              {"rx_polls", "Polls of the device.", Times, false},
	RxEmptyPolls:         {"rx_polls_empty", "Polls that found nothing.", Times, false},
	RxBudgetExhausted:    {"rx_budget_exhausted", "Polls that found as much as the budget allows, or more.", Times, false},
	RxInterrupts:         {"rx_interrupts", "Interrupts that named this queue for receive.", Times, false},
	RxTaskRuns:           {"rx_task_runs", "Times that the queue's task woke up.", Times, false},
	RxLostInterrupts:     {"rx_lost_interrupts", "Times that the periodic check found packets that no interrupt had announced yet.", Times, false},
	RxQueueFaults:        {"rx_faults", "Polls whose verdict was that the queue or the device has to be reset.", Times, true},
	LROPackets:           {"lro_packets", "Packets that the software LRO engine looked at.", Packets, false},
	LROMerged:            {"lro_merged", "Packets that the software LRO engine appended to another one.", Packets, false},
	LROVerified:          {"lro_csum_verified", "Checksums that the software LRO engine computed because the device had not.", Packets, false},
	LROEndBatch:          {"lro_flush_batch", "Aggregates that ended with the batch.", Times, false},
	LROEndPush:           {"lro_flush_push", "Aggregates that ended with PSH, FIN or a shorter segment.", Times, false},
	LROEndLimit:          {"lro_flush_limit", "Aggregates that ended because they were as long as they may be.", Times, false},
	LROEndSequence:       {"lro_flush_sequence", "Aggregates ended by a gap, a retransmission, a larger segment or the identification.", Times, false},
	LROEndHeader:         {"lro_flush_header", "Aggregates ended by another difference in the headers.", Times, false},
	LROEndEvicted:        {"lro_flush_evicted", "Aggregates ended because the flow table was full.", Times, false},
	LROPassHardware:      {"lro_bypass_hardware", "Packets that bypassed software LRO because the device had coalesced them.", Packets, false},
	LROPassNoPayload:     {"lro_bypass_no_payload", "Packets that bypassed software LRO: acknowledgements and the like.", Packets, false},
	LROPassNotTCP:        {"lro_bypass_not_tcp", "Packets that bypassed software LRO: not TCP.", Packets, false},
	LROPassChecksum:      {"lro_bypass_csum", "Packets that bypassed software LRO: checksum wrong or not verified.", Packets, false},
	LROPassOther:         {"lro_bypass_other", "Packets that bypassed software LRO for another reason.", Packets, false},
}

// RxDrop returns the counter of a reason to drop a received packet.
func RxDrop(r framework.DropReason) RxCounter {
	if r < framework.DropCRC || r > framework.DropPortFull {
		return RxDropDevice
	}
	return RxDropCRC + RxCounter(r-framework.DropCRC)
}

// TxCounter indexes a transmit queue's counters.
type TxCounter int

// Counters of a transmit queue.
const (
	TxTaken TxCounter = iota
	TxTakenBytes
	TxCompleted
	TxInFlight
	TxPackets
	TxBytes
	TxFramesDone
	TxDropMalformed
	TxDropTooLong
	TxDropLinkDown
	TxDropStopped
	TxDropNoBuffer
	TxTSOHardware
	TxTSOHardwareSegments
	TxTSOChopped
	TxTSOChoppedSegments
	TxChecksumSoftware
	TxVLANSoftware
	TxPullups
	TxPads
	TxLinearised
	TxSplits
	TxBells
	TxBellsDelayed
	TxRingFull
	TxNoBuffer
	TxBadCompletion
	TxInterrupts
	TxTaskRuns
	TxInlineRuns
	TxLostInterrupts
	TxWatchdogKicks
	TxQueueResets
	numTxCounters
)

// TxCounters describes a transmit queue's counters.
var TxCounters = [numTxCounters]CounterInfo{
	TxTaken:               {"tx_taken", "Packets that the engine took from above.", Packets, false},
	TxTakenBytes:          {"tx_taken_bytes", "Bytes of tx_taken.", Bytes, false},
	TxCompleted:           {"tx_completed", "Packets of tx_taken that the device has sent.", Packets, false},
	TxInFlight:            {"tx_in_flight", "Packets of tx_taken that are on their way now.", Level, false},
	TxPackets:             {"tx_packets", "Packets that the device was given, after segmentation in software.", Packets, false},
	TxBytes:               {"tx_bytes", "Bytes of tx_packets.", Bytes, false},
	TxFramesDone:          {"tx_packets_done", "Packets of tx_packets that the device has finished.", Packets, false},
	TxDropMalformed:       {"tx_drop_malformed", "Dropped: makes no sense.", Packets, true},
	TxDropTooLong:         {"tx_drop_too_long", "Dropped: longer than the MTU or what the device can send.", Packets, true},
	TxDropLinkDown:        {"tx_drop_link_down", "Dropped: the link was down.", Packets, true},
	TxDropStopped:         {"tx_drop_stopped", "Dropped: in the queue when the interface stopped or was reset.", Packets, false},
	TxDropNoBuffer:        {"tx_drop_no_buffer", "Dropped: a fallback needs more buffers than there are.", Packets, true},
	TxTSOHardware:         {"tx_tso_hw_packets", "Packets that the device was asked to segment: TCP (TSO) and UDP (USO).", Packets, false},
	TxTSOHardwareSegments: {"tx_tso_hw_segments", "Segments that the device makes of tx_tso_hw_packets.", Segments, false},
	TxTSOChopped:          {"tx_tso_sw_packets", "Packets that were segmented in software, TCP and UDP.", Packets, false},
	TxTSOChoppedSegments:  {"tx_tso_sw_segments", "Segments made of tx_tso_sw_packets.", Segments, false},
	TxChecksumSoftware:    {"tx_csum_sw", "Checksums computed in software, segments' not counted.", Packets, false},
	TxVLANSoftware:        {"tx_vlan_sw", "VLAN tags inserted in software.", Packets, false},
	TxPullups:             {"tx_pullups", "Packets whose headers were copied into one fragment.", Packets, false},
	TxPads:                {"tx_pads", "Packets that were padded to the device's minimum.", Packets, false},
	TxLinearised:          {"tx_linearised", "Packets that were copied because they had too many fragments.", Packets, false},
	TxSplits:              {"tx_splits", "Packets with a fragment that was split because one descriptor cannot carry it.", Packets, false},
	TxBells:               {"tx_bells", "Bells rung.", Times, false},
	TxBellsDelayed:        {"tx_bells_delayed", "Bells put off because more packets were coming.", Times, false},
	TxRingFull:            {"tx_ring_full", "Times that packets had to wait for room in the ring.", Times, false},
	TxNoBuffer:            {"tx_no_buffer", "Times that packets had to wait for a buffer for a fallback.", Times, false},
	TxBadCompletion:       {"tx_bad_completions", "Completions of packets that nobody had put.", Times, true},
	TxInterrupts:          {"tx_interrupts", "Interrupts that named this queue for transmit.", Times, false},
	TxTaskRuns:            {"tx_task_runs", "Times that the queue's task woke up.", Times, false},
	TxInlineRuns:          {"tx_inline_runs", "Times that a sender did the work of the queue's sleeping task.", Times, false},
	TxLostInterrupts:      {"tx_lost_interrupts", "Times that the periodic check found completions that no interrupt had announced yet.", Times, false},
	TxWatchdogKicks:       {"tx_watchdog_kicks", "Times that the watchdog rang the bell again.", Times, true},
	TxQueueResets:         {"tx_queue_resets", "Times that the queue was reset.", Times, true},
}

// TxDrop returns the counter of a reason to drop a packet to send.
func TxDrop(r framework.DropReason) TxCounter {
	if r < framework.DropTxMalformed || r > framework.DropTxNoBuffer {
		return TxDropMalformed
	}
	return TxDropMalformed + TxCounter(r-framework.DropTxMalformed)
}

// DeviceCounter indexes a device's counters.
type DeviceCounter int

// Counters of a device.
const (
	Interrupts DeviceCounter = iota
	SpuriousInterrupts
	AdminInterrupts
	AdminRuns
	LinkChanges
	WatchdogKicks
	QueueResets
	DeviceResets
	ResetsByWatchdog
	ResetsByQueueFault
	ResetsByDeviceFault
	ResetsByChange
	FailedResets
	ShortOfBuffers
	numDeviceCounters
)

// DeviceCounters describes a device's counters.
var DeviceCounters = [numDeviceCounters]CounterInfo{
	Interrupts:          {"interrupts", "Interrupts, of all vectors.", Times, false},
	SpuriousInterrupts:  {"interrupts_spurious", "Interrupts that were not the device's.", Times, false},
	AdminInterrupts:     {"interrupts_admin", "Interrupts for link changes and faults.", Times, false},
	AdminRuns:           {"admin_runs", "Runs of the device's admin task.", Times, false},
	LinkChanges:         {"link_changes", "Changes of the link's state.", Times, false},
	WatchdogKicks:       {"watchdog_kicks", "Bells that the watchdog had rung again.", Times, true},
	QueueResets:         {"queue_resets", "Resets of one queue.", Times, true},
	DeviceResets:        {"device_resets", "Resets of the device, those for changes of settings included.", Times, false},
	ResetsByWatchdog:    {"resets_watchdog", "Queue and device resets because a transmit queue hung.", Times, true},
	ResetsByQueueFault:  {"resets_queue_fault", "Queue and device resets because the device reported a queue's fault.", Times, true},
	ResetsByDeviceFault: {"resets_device_fault", "Device resets because the device reported a fault.", Times, true},
	ResetsByChange:      {"resets_change", "Device resets that a change of settings took.", Times, false},
	FailedResets:        {"resets_failed", "Resets after which the device did not run.", Times, true},
	ShortOfBuffers:      {"rings_short", "Receive rings that were started for a queue with fewer buffers than they take.", Times, true},
}
