package daemon

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"nicd/framework"
	"nicd/framework/engine"
	"nicd/proto/adminpb"
)

// What a diagnosis takes for a sign. Below busy packets a second nothing is said
// of what costs time for each packet: nobody waits for it.
const (
	busy          = 1000
	fewSegments   = 2.0  // segments a packet that are hardly more than none merged
	mostPolls     = 0.75 // polls with packets that found all that the budget allows
	nearlyAll     = 0.95 // of the packets, of the processors, of the link
	nearModerated = 0.5  // interrupts, of those that moderation allows: so much of the time the next is held back
	fullFrames    = 0.8  // mean length of frames, of the MTU
	smallBuffer   = 2048 // bytes; a buffer that holds a frame of the ordinary MTU
	longDelay     = time.Millisecond
)

// shortOfBuffers are the counters of known devices for frames that came when no
// descriptor had a buffer. Of other devices only what their driver says is said.
var shortOfBuffers = []string{"rx_no_buffer", "rx_missed", "rx_out_of_buffer"}

// findings are the signs, those first that explain others: what does not work at
// all, what was set so, and then what may follow from that.
func (e *evidence) findings() (list []*adminpb.Finding) {
	for _, look := range []func(*evidence) []*adminpb.Finding{
		atState, atQuirks, atWire,
		atLRO, atChecksums, atMTU, atModeration, atBufferSize, atSmallBudget,
		atStreams, atRings, atCounters, atBudget, atProcessors, atQueues, atMerging, atOwner, atLink,
	} {
		list = append(list, look(e)...)
	}
	return list
}

func finding(where, remedy, what string, args ...any) *adminpb.Finding {
	return &adminpb.Finding{Where: where, What: fmt.Sprintf(what, args...), Remedy: remedy}
}

// nothing and one are what most of the signs amount to.
var nothing []*adminpb.Finding

func one(f *adminpb.Finding) []*adminpb.Finding { return []*adminpb.Finding{f} }

func atState(e *evidence) []*adminpb.Finding {
	i := e.detail.Interface
	switch {
	case i.State != running:
		return one(finding("interface", "see nicd's log", "%s: %s", i.State, i.StateReason))
	case !i.Link.GetUp():
		return one(finding("link", "look at the far end", "it is down"))
	case e.rxAll(engine.RxPackets) == 0:
		return one(finding("device", "", "nothing was received"))
	}
	return nothing
}

// atCounters has every counter that is a sign of trouble and rose, but for those
// that other signs are made of.
func atCounters(e *evidence) (list []*adminpb.Finding) {
	for q := range e.queues() {
		for c, info := range engine.RxCounters {
			n := e.rx(q, engine.RxCounter(c))
			if info.Bad && n > 0 && c != int(engine.RxRingDry) && c != int(engine.RxAllocFailed) {
				list = append(list, finding(fmt.Sprintf("rx %d", q), "", "%s rose %s: %s", info.Name, e.perSecond(n), info.Doc))
			}
		}
	}
	for n, c := range e.after.others {
		if n >= len(e.before.others) || !c.Bad || c.Value <= e.before.others[n].Value || strings.HasPrefix(c.Name, wirePrefix) {
			continue
		}
		remedy := ""
		if slices.Contains(shortOfBuffers, c.Name) && e.rxAll(engine.RxRingDry) == 0 && atQuirks(e) == nil {
			remedy = fmt.Sprintf("its queue was not emptied in time: rx-descriptors, now %d, or more of a processor for it", e.plan.RxDescriptors)
		}
		list = append(list, finding("device", remedy, "%s rose %s: %s", c.Name, e.perSecond(c.Value-e.before.others[n].Value), c.Doc))
	}
	return list
}

// atWire has what the wire does to frames on their way here.
func atWire(e *evidence) (list []*adminpb.Finding) {
	for n, c := range e.after.others {
		if n < len(e.before.others) && strings.HasPrefix(c.Name, wireRxPrefix) && c.Bad && c.Value > e.before.others[n].Value {
			list = append(list, finding("wire "+e.wire, "the config's wire block says so", "%s rose %s: %s", c.Name, e.perSecond(c.Value-e.before.others[n].Value), c.Doc))
		}
	}
	if e.delay >= longDelay {
		list = append(list, finding("wire "+e.wire, "the config's wire block says so; more flows, or larger buffers at both ends",
			"a frame is %v under way, on average: a flow moves what its buffers hold, and waits for an answer", e.delay))
	}
	return list
}

// atStreams: what a sender's TCP sends again was lost, or late, on the way here.
func atStreams(e *evidence) (list []*adminpb.Finding) {
	for _, now := range e.after.status.Streams {
		for _, then := range e.before.status.Streams {
			if now.Name == then.Name && now.To == e.detail.Interface.Name && now.Retransmits > then.Retransmits {
				list = append(list, finding("stream "+now.Name, "", "TCP at %s sent again %s: packets are lost or late on their way here",
					now.From, e.perSecond(now.Retransmits-then.Retransmits)))
			}
		}
	}
	return list
}

func atRings(e *evidence) (list []*adminpb.Finding) {
	for q := range e.queues() {
		dry, failed := e.rx(q, engine.RxRingDry), e.rx(q, engine.RxAllocFailed)
		if dry == 0 && failed == 0 {
			continue
		}
		now := &e.after.engine.Rx[q]
		above, all := now[engine.RxBuffersOutstanding], now[engine.RxBuffersPosted]+now[engine.RxBuffersOutstanding]+now[engine.RxBuffersFree]
		none := ""
		if dry > 0 {
			none = ", none left in it " + e.perSecond(dry)
		}
		list = append(list, finding(fmt.Sprintf("rx %d", q), "buffers in the config, or a port that gives them back sooner",
			"too few buffers to fill the ring %s%s; the port has %d of the queue's %d now", e.perSecond(failed), none, above, all))
	}
	return list
}

// atSmallBudget and atBudget have the queues that are behind: those of which too
// little was asked, and others.
func atSmallBudget(e *evidence) []*adminpb.Finding {
	if budget(&e.plan) >= engine.DefaultRxBudget {
		return nothing
	}
	return e.behind(fmt.Sprintf("rx-budget=%d, the default: software LRO merges no more than a poll finds", engine.DefaultRxBudget))
}

func atBudget(e *evidence) []*adminpb.Finding {
	if budget(&e.plan) < engine.DefaultRxBudget {
		return nothing
	}
	return e.behind("more queues, if there is more than one flow, or more of a processor")
}

func (e *evidence) behind(remedy string) (list []*adminpb.Finding) {
	for q := range e.queues() {
		useful := e.rx(q, engine.RxPolls) - e.rx(q, engine.RxEmptyPolls)
		full := e.rx(q, engine.RxBudgetExhausted)
		if !e.busy(e.rx(q, engine.RxPackets)) || useful == 0 || float64(full) < mostPolls*float64(useful) {
			continue
		}
		list = append(list, finding(fmt.Sprintf("rx %d", q), remedy, "%.0f %% of polls that found packets found as many as the budget of %d allows, or more: the queue is behind",
			100*float64(full)/float64(useful), budget(&e.plan)))
	}
	return list
}

func (e *evidence) busy(packets uint64) bool { return float64(packets) >= busy*e.seconds }

func atProcessors(e *evidence) (list []*adminpb.Finding) {
	for q, cpu := range e.plan.CPUs {
		if q >= max(e.plan.RxQueues, e.plan.TxQueues) {
			break
		}
		if other := e.elsewhere[cpu]; other != "" {
			list = append(list, finding(fmt.Sprintf("queue %d", q), "another processor in cpus", "it polls for ever on processor %d, and so does %s", cpu, other))
		}
		if first := slices.Index(e.plan.CPUs, cpu); first < q {
			list = append(list, finding(fmt.Sprintf("queue %d", q), "another processor in cpus", "it polls for ever on processor %d, and so does queue %d", cpu, first))
		}
	}
	was, is := e.before.machine, e.after.machine
	work, all := float64(is.busy-was.busy), float64(is.busy+is.idle-was.busy-was.idle)
	if all > 0 && work >= nearlyAll*all {
		list = append(list, finding("processors", "", "the machine's %d were busy %.0f %% of the time; nicd and its drivers used %.2f of them",
			e.processors, 100*work/all, (e.after.cpu-e.before.cpu)/e.seconds))
	}
	return list
}

func atQueues(e *evidence) []*adminpb.Finding {
	all := e.rxAll(engine.RxPackets)
	if !e.busy(all) {
		return nothing
	}
	if e.plan.RxQueues == 1 {
		if e.maxQueues > 1 && e.processors > 1 {
			return one(finding("queues", "rx-queues, if there is more than one flow", "one receive queue of the %d that the device has: one processor does it all", e.maxQueues))
		}
		return nothing
	}
	for q := range e.queues() {
		if float64(e.rx(q, engine.RxPackets)) < nearlyAll*float64(all) {
			continue
		}
		why := "rss spreads flows, and a flow has one queue"
		if rss := e.feature(framework.RSSHash); rss.State == "off" {
			why = "rss is off: " + rss.Reason
		}
		return one(finding("queues", "", "all packets came on queue %d of %d: %s", q, e.plan.RxQueues, why))
	}
	return nothing
}

// atLRO has who turned merging off; atMerging what comes of it where it is on.
func atLRO(e *evidence) []*adminpb.Finding {
	lro := e.feature(framework.LRO)
	if lro.State != "off" || !e.mergesLittle() {
		return nothing
	}
	return one(finding("lro", fmt.Sprintf("nicd explain %s lro", e.detail.Interface.Name), "%.1f segments a packet: nobody merges: %s", e.rates.SegmentsPerDelivered, lro.Reason))
}

func (e *evidence) mergesLittle() bool {
	return e.busy(e.rxAll(engine.RxSegments)) && e.rates.SegmentsPerDelivered < fewSegments
}

func atMerging(e *evidence) []*adminpb.Finding {
	if e.feature(framework.LRO).State == "off" || !e.mergesLittle() {
		return nothing
	}
	seen := fmt.Sprintf("%.1f segments a packet", e.rates.SegmentsPerDelivered)
	if e.rxAll(engine.LROPackets) == 0 {
		return one(finding("lro", "", "%s: the device merges next to nothing, and only it may (lro-owner %s)", seen, e.plan.LRO))
	}
	var most engine.RxCounter
	var times uint64
	for c := engine.LROEndBatch; c <= engine.LROPassOther; c++ {
		if n := e.rxAll(c); n > times {
			most, times = c, n
		}
	}
	if times == 0 {
		return nothing
	}
	return one(finding("lro", "", "%s, though merging is on: above all %s, %s: %s", seen, engine.RxCounters[most].Name, e.perSecond(times), engine.RxCounters[most].Doc))
}

// atOwner: an operator has the engine merge what the device would.
func atOwner(e *evidence) []*adminpb.Finding {
	if !e.deviceMerges || e.plan.LRO != framework.LROSoftware || !e.busy(e.rxAll(engine.RxPackets)) {
		return nothing
	}
	for _, q := range e.detail.Quirks {
		if q.Name == framework.LROOwnerQuirk.Info().Name && q.Level != framework.FromDriver.String() && q.Level != framework.FromMatch.String() {
			return one(finding("lro", "leave "+q.Name+" to the driver",
				"the engine merges what the device would have, at the cost of a descriptor for each segment: %s is software (%s)", q.Name, q.Because))
		}
	}
	return nothing
}

func atChecksums(e *evidence) []*adminpb.Finding {
	csum := e.feature(framework.RxChecksum)
	if csum.State != "off" || !e.busy(e.rxAll(engine.RxPackets)) {
		return nothing
	}
	return one(finding("rx-csum", fmt.Sprintf("nicd explain %s rx-csum", e.detail.Interface.Name), "processors verify what the device could: %s", csum.Reason))
}

const (
	ethernetMTU    = 1500
	ethernetHeader = 14
)

func atMTU(e *evidence) []*adminpb.Finding {
	segments := e.rxAll(engine.RxSegments)
	if !e.busy(segments) || e.plan.MTU >= ethernetMTU {
		return nothing
	}
	mean := float64(e.rxAll(engine.RxBytes)) / float64(segments)
	if mean < fullFrames*float64(e.plan.MTU+ethernetHeader) {
		return nothing
	}
	return one(finding("mtu", "a larger mtu here and at the far end", "frames are as long as the MTU of %d allows, %.0f bytes on average: many packets for few bytes", e.plan.MTU, mean))
}

func atModeration(e *evidence) []*adminpb.Finding {
	micros := e.plan.Interrupts.Moderation
	if micros == 0 {
		return nothing
	}
	for q := range e.queues() {
		if n := float64(e.rx(q, engine.RxInterrupts)) / e.seconds; n >= nearModerated*1e6/float64(micros) {
			return one(finding(fmt.Sprintf("rx %d", q), "a shorter moderation", "%.0f interrupts a second, of the %.0f that moderation allows%s: packets wait for the next",
				n, 1e6/float64(micros), moderationText(micros)))
		}
	}
	return nothing
}

// atBufferSize has buffers that are too small for a frame.
func atBufferSize(e *evidence) []*adminpb.Finding {
	segments := e.rxAll(engine.RxSegments)
	if !e.busy(segments) || e.detail.BufferSize >= smallBuffer {
		return nothing
	}
	mean := float64(e.rxAll(engine.RxBytes)) / float64(segments)
	if mean <= float64(e.detail.BufferSize) {
		return nothing
	}
	return one(finding("buffers", fmt.Sprintf("buffer_size=%d in the config", smallBuffer), "a frame of %.0f bytes, the average, takes %.0f buffers of %d bytes and as many descriptors",
		mean, math.Ceil(mean/float64(e.detail.BufferSize)), e.detail.BufferSize))
}

func atLink(e *evidence) []*adminpb.Finding {
	link := e.detail.Interface.Link
	switch {
	case link.GetPaused():
		return one(finding("link", "", "the far end asked for a pause"))
	case link.GetUp() && !link.FullDuplex:
		return one(finding("link", "look at what was negotiated", "it is half duplex"))
	case e.limit > 0 && e.rates.RxGbps*1000 >= nearlyAll*float64(e.limit):
		return one(finding("link", "", "its %d Mbit/s are used up", e.limit))
	}
	return nothing
}

// atQuirks has the unsafe ones that an operator set: each loses throughput without
// a word if it is wrong.
func atQuirks(e *evidence) (list []*adminpb.Finding) {
	for _, q := range e.detail.Quirks {
		if info := framework.LookupQuirk(q.Name); info != nil && info.Unsafe && q.Value != info.Default {
			list = append(list, finding("quirk "+q.Name, "leave it out", "%s, which is unsafe to set (%s): %s", q.Value, q.Because, info.Doc))
		}
	}
	return list
}
