package daemon

import (
	"slices"
	"strings"
	"testing"
	"time"

	"nicd/framework"
	"nicd/framework/engine"
	"nicd/proto/adminpb"
)

// receivesWell is an interface of two queues that receives well.
func receivesWell() *evidence {
	i := &adminpb.Interface{Name: "em0", State: running, Link: &adminpb.Link{Up: true, FullDuplex: true, Mbps: 1000}}
	e := &evidence{
		seconds: 2, processors: 4, maxQueues: 4, elsewhere: map[int]string{}, wire: "w0",
		detail: &adminpb.InterfaceDetail{Interface: i, Features: []*adminpb.Feature{
			{Name: "lro", State: "software"}, {Name: "rx-csum", State: "on"}, {Name: "rss", State: "on"},
		}},
		rates: &adminpb.InterfaceReport{Interface: i, SegmentsPerDelivered: 20},
	}
	e.detail.BufferSize = 4096
	e.plan.RxQueues, e.plan.TxQueues, e.plan.MTU, e.plan.RxDescriptors = 2, 2, 1500, 512
	e.before = moment{status: &adminpb.StatusReply{}, machine: machineTime{100, 100}}
	e.after = moment{status: &adminpb.StatusReply{}, machine: machineTime{200, 200}, cpu: 1}
	e.before.engine.Rx = make([][len(engine.RxCounters)]uint64, 2)
	e.after.engine.Rx = make([][len(engine.RxCounters)]uint64, 2)
	for q := range 2 {
		rx := &e.after.engine.Rx[q]
		rx[engine.RxPackets], rx[engine.RxSegments], rx[engine.RxBytes] = 20000, 20000, 20000*1514
		rx[engine.RxPolls], rx[engine.RxEmptyPolls], rx[engine.RxInterrupts] = 2000, 1000, 1000
		rx[engine.LROPackets], rx[engine.LROEndPush] = 20000, 1000
	}
	for _, m := range []*moment{&e.before, &e.after} {
		m.others = []*adminpb.Counter{
			{Name: "rx_missed", Doc: "frames lost", Bad: true}, {Name: "good", Value: uint64(m.machine.busy)}, {Name: wireRxPrefix + "lost", Doc: "Lost.", Bad: true},
		}
	}
	return e
}

func (e *evidence) set(name, state, reason string) {
	f := &adminpb.Feature{Name: name, State: state, Reason: reason}
	e.detail.Features = append([]*adminpb.Feature{f}, e.detail.Features...)
}

// TestFindings: each cause is found, nothing else is, and nothing of an interface
// that does well.
func TestFindings(t *testing.T) {
	rx := func(e *evidence, q int, c engine.RxCounter, v uint64) { e.after.engine.Rx[q][c] = v }
	for _, test := range []struct {
		name  string
		spoil func(*evidence)
		want  []string // where, and words of what or the remedy, of each finding
	}{
		{"all is well", func(*evidence) {}, nil},
		{"an hour of trouble that is over", func(e *evidence) {
			for _, m := range []*moment{&e.before, &e.after} {
				m.engine.Rx[0][engine.RxRingDry], m.engine.Rx[0][engine.RxDropCRC], m.others[0].Value = 9, 9, 9
			}
		}, nil},
		{"failed", func(e *evidence) { e.detail.Interface.State, e.detail.Interface.StateReason = "failed", "gone" }, []string{"interface: failed: gone"}},
		{"no link", func(e *evidence) { e.detail.Interface.Link.Up = false }, []string{"link: it is down"}},
		{"silence", func(e *evidence) { e.after.engine.Rx = e.before.engine.Rx }, []string{"device: nothing was received"}},
		{"drops", func(e *evidence) { rx(e, 1, engine.RxDropCRC, 10) }, []string{"rx 1: rx_drop_crc rose 5 times a second"}},
		{"the device drops", func(e *evidence) { e.after.others[0].Value = 10 }, []string{"device: rx_missed rose 5 times a second: frames lost -> its queue was not emptied in time: rx-descriptors, now 512"}},
		{"no buffers", func(e *evidence) {
			rx(e, 0, engine.RxRingDry, 4)
			rx(e, 0, engine.RxAllocFailed, 8)
			rx(e, 0, engine.RxBuffersOutstanding, 60)
			rx(e, 0, engine.RxBuffersFree, 4)
		}, []string{"rx 0: too few buffers to fill the ring 4 times a second, none left in it 2 times a second; the port has 60 of the queue's 64"}},
		{"the wire loses", func(e *evidence) { e.after.others[2].Value = 2 }, []string{"wire w0: wire_rx_lost rose 1 times a second"}},
		{"retransmits", func(e *evidence) {
			e.before.status.Streams = []*adminpb.Stream{{Name: "s", From: "a", To: "em0"}, {Name: "u", From: "em0", To: "a"}}
			e.after.status.Streams = []*adminpb.Stream{{Name: "s", From: "a", To: "em0", Retransmits: 4}, {Name: "u", From: "em0", To: "a", Retransmits: 4}}
		}, []string{"stream s: TCP at a sent again 2 times a second"}},
		{"behind", func(e *evidence) { rx(e, 0, engine.RxBudgetExhausted, 900) }, []string{"rx 0: 90 % of polls that found packets -> more queues"}},
		{"small budget", func(e *evidence) { e.plan.RxBudget = 2; rx(e, 0, engine.RxBudgetExhausted, 900) }, []string{"rx 0: as the budget of 2 allows -> rx-budget=64"}},
		{"two pollers on one processor", func(e *evidence) { e.plan.CPUs = []int{3, 3} }, []string{"queue 1: on processor 3, and so does queue 0"}},
		{"another's poller", func(e *evidence) {
			e.plan.CPUs = []int{2, 3, 1}
			e.elsewhere[3], e.elsewhere[1] = "queue 0 of vmx0", "nobody"
		}, []string{"queue 1: on processor 3, and so does queue 0 of vmx0"}},
		{"a busy machine", func(e *evidence) { e.after.machine = machineTime{400, 101} }, []string{"processors: the machine's 4 were busy 100 % of the time; nicd and its drivers used 0.50"}},
		{"one queue", func(e *evidence) { e.plan.RxQueues = 1 }, []string{"queues: one receive queue of the 4"}},
		{"one queue is all there is", func(e *evidence) { e.plan.RxQueues, e.maxQueues = 1, 1 }, nil},
		{"one flow", func(e *evidence) { rx(e, 0, engine.RxPackets, 10) }, []string{"queues: all packets came on queue 1 of 2: rss spreads flows"}},
		{"no RSS", func(e *evidence) { rx(e, 0, engine.RxPackets, 10); e.set("rss", "off", "no key") }, []string{"queues: rss is off: no key"}},
		{"LRO off", func(e *evidence) { e.rates.SegmentsPerDelivered = 1; e.set("lro", "off", "the config") }, []string{"lro: 1.0 segments a packet: nobody merges: the config -> nicd explain em0 lro"}},
		{"LRO off and nothing to merge", func(e *evidence) {
			e.rates.SegmentsPerDelivered = 1
			e.set("lro", "off", "the config")
			for q := range 2 {
				rx(e, q, engine.RxSegments, 20)
			}
		}, nil},
		{"the device does not merge", func(e *evidence) {
			e.rates.SegmentsPerDelivered, e.plan.LRO = 1, framework.LROHardwareOnly
			rx(e, 0, engine.LROPackets, 0)
			rx(e, 1, engine.LROPackets, 0)
		}, []string{"lro: the device merges next to nothing, and only it may (lro-owner hardware-only)"}},
		{"merging does not succeed", func(e *evidence) { e.rates.SegmentsPerDelivered = 1; rx(e, 0, engine.LROPassChecksum, 15000) }, []string{"lro: above all lro_bypass_csum, 7500 times"}},
		{"checksums", func(e *evidence) { e.set("rx-csum", "off", "the config") }, []string{"rx-csum: processors verify what the device could: the config"}},
		{"small MTU", func(e *evidence) {
			e.plan.MTU = 576
			for q := range 2 {
				rx(e, q, engine.RxBytes, 20000*580)
			}
		}, []string{"mtu: the MTU of 576 allows, 580 bytes"}},
		{"small MTU and smaller frames", func(e *evidence) {
			e.plan.MTU = 576
			for q := range 2 {
				rx(e, q, engine.RxBytes, 20000*60)
			}
		}, nil},
		{"moderation", func(e *evidence) { e.plan.Interrupts.Moderation = 2000 }, []string{"rx 0: 500 interrupts a second, of the 500 that moderation allows, at most one in 2ms"}},
		{"moderation half of the time", func(e *evidence) { e.plan.Interrupts.Moderation = 1000 }, []string{"rx 0: 500 interrupts a second, of the 1000"}},
		{"a wire that takes its time", func(e *evidence) { e.delay = 10 * time.Millisecond }, []string{"wire w0: a frame is 10ms under way"}},
		{"small buffers", func(e *evidence) { e.detail.BufferSize = 512 }, []string{"buffers: a frame of 1514 bytes, the average, takes 3 buffers of 512 bytes -> buffer_size=2048"}},
		{"small buffers and smaller frames", func(e *evidence) {
			e.detail.BufferSize = 512
			for q := range 2 {
				rx(e, q, engine.RxBytes, 20000*60)
			}
		}, nil},
		{"the engine merges for a device that merges", func(e *evidence) {
			e.deviceMerges, e.plan.LRO = true, framework.LROSoftware
			e.detail.Quirks = []*adminpb.Quirk{{Name: "lro-owner", Value: "software", Level: framework.FromInterfaceConfig.String(), Because: "nicd set"}}
		}, []string{"lro: the engine merges what the device would have -> leave lro-owner to the driver"}},
		{"the engine merges as the driver says", func(e *evidence) {
			e.deviceMerges, e.plan.LRO = true, framework.LROSoftware
			e.detail.Quirks = []*adminpb.Quirk{{Name: "lro-owner", Value: "software", Level: framework.FromMatch.String()}}
		}, nil},
		{"what was set comes before what follows", func(e *evidence) {
			e.rates.SegmentsPerDelivered = 1
			e.set("lro", "off", "the config")
			e.set("rx-csum", "off", "the config")
			e.plan.RxBudget = 2
			rx(e, 0, engine.RxBudgetExhausted, 900)
			rx(e, 0, engine.RxRingDry, 4)
			e.after.others[0].Value = 10
			e.after.machine = machineTime{400, 101}
		}, []string{"lro: nobody merges", "rx-csum: ", "rx 0: the budget of 2", "rx 0: too few buffers", "device: rx_missed", "processors: "}},
		{"moderation that is not felt", func(e *evidence) { e.plan.Interrupts.Moderation = 20 }, nil},
		{"pause", func(e *evidence) { e.detail.Interface.Link.Paused = true }, []string{"link: the far end asked for a pause"}},
		{"half duplex", func(e *evidence) { e.detail.Interface.Link.FullDuplex = false }, []string{"link: it is half duplex"}},
		{"a full link", func(e *evidence) { e.limit, e.rates.RxGbps = 1000, 0.97 }, []string{"link: its 1000 Mbit/s are used up"}},
		{"an unsafe quirk", func(e *evidence) {
			e.detail.Quirks = []*adminpb.Quirk{{Name: "unsafe-rx-refill-cap", Value: "8", Because: "the config"}, {Name: "unsafe-forget-coalesced", Value: "false"}, {Name: "bell-delay", Value: "9"}}
		}, []string{"quirk unsafe-rx-refill-cap: 8, which is unsafe to set (the config)"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			e := receivesWell()
			test.spoil(e)
			var got []string
			for _, f := range e.findings() {
				got = append(got, f.Where+": "+f.What+" -> "+f.Remedy)
			}
			if !slices.EqualFunc(got, test.want, hasAll) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
		})
	}
}

// hasAll: a finding has the wanted place, and then the wanted words in order.
func hasAll(got, want string) bool {
	where, words, _ := strings.Cut(want, ": ")
	rest, ok := strings.CutPrefix(got, where+": ")
	what, remedy, _ := strings.Cut(words, " -> ")
	_, after, found := strings.Cut(rest, what)
	return ok && found && strings.Contains(after, remedy)
}

func TestMachineTime(t *testing.T) {
	if m := readMachineTime(); m.busy == 0 || m.idle == 0 {
		t.Errorf("a machine that was never busy, or always: %+v", m)
	}
}
