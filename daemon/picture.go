package daemon

import (
	"os"
	"strings"
	"sync"
	"time"

	"nicd/framework"
	"nicd/framework/engine"
	"nicd/port/netstack"
	"nicd/proto/adminpb"
)

// Status is a picture of everything as it is now. Totals are since the start.
func (d *Daemon) Status() *adminpb.StatusReply {
	s := &adminpb.StatusReply{
		Version:       d.options.Version,
		Pid:           uint32(os.Getpid()),
		UptimeSeconds: time.Since(d.began).Seconds(),
		CpuSeconds:    ownCPU().Seconds(),
		ResidentBytes: d.resident(),
	}
	for _, i := range d.interfaces {
		s.Interfaces = append(s.Interfaces, i.picture())
	}
	for _, t := range d.streams {
		state, reason := t.state()
		s.Streams = append(s.Streams, &adminpb.Stream{
			Name: t.name, From: t.from, To: t.to, State: state, StateReason: reason,
			Bytes: t.received.Load(), Retransmits: t.sender.Stats().Retransmits,
		})
	}
	return s
}

// resident is the memory of nicd and its plugins, shared memory counted once.
func (d *Daemon) resident() uint64 {
	var sum uint64
	for n, pid := range d.pids() {
		sum += residentBytes(pid, n == 0)
	}
	d.peak.note(sum)
	return sum
}

// peakMemory is the most memory that was seen.
type peakMemory struct {
	mu  sync.Mutex
	max uint64
}

func (p *peakMemory) note(n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.max = max(p.max, n)
}

func (p *peakMemory) get() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.max
}

// picture is the interface at a glance.
func (i *netInterface) picture() *adminpb.Interface {
	counters, _ := i.counters()
	i.mu.Lock()
	defer i.mu.Unlock()
	p := &adminpb.Interface{
		Name: i.config.Name, State: i.state, StateReason: i.reason, Link: linkOf(i.link),
		Driver: i.config.Driver, Mode: string(i.driverCfg.Mode), Pid: uint32(os.Getpid()), Device: i.address,
		Port: portName(i.port), LroOwner: i.plan.LRO.String(),
		Mac: i.plan.MAC.String(), Mtu: uint32(i.plan.MTU), Generation: i.host.Generation(),
	}
	if i.process != nil {
		p.Pid = uint32(i.process.PID())
		p.PluginCpuSeconds = ProcessCPU(i.process.PID()).Seconds()
	}
	if n, ok := i.port.(*netstack.Port); ok {
		for _, a := range n.Addresses() {
			p.Addresses = append(p.Addresses, a.String())
		}
	}
	addUp(p, counters)
	return p
}

// addUp fills in the totals over all queues.
func addUp(p *adminpb.Interface, s engine.Snapshot) {
	for q := range s.Rx {
		rx := &s.Rx[q]
		p.RxBytes += rx[engine.RxBytes]
		p.RxPackets += rx[engine.RxPackets]
		p.RxDeliveredPackets += rx[engine.RxDelivered]
		p.RxWireSegments += rx[engine.RxSegments]
		p.Polls += rx[engine.RxPolls]
		for r := framework.DropCRC; r <= framework.DropPortFull; r++ {
			p.Drops += rx[engine.RxDrop(r)]
		}
	}
	for q := range s.Tx {
		tx := &s.Tx[q]
		p.TxBytes += tx[engine.TxTakenBytes]
		p.TxPackets += tx[engine.TxTaken]
		for r := framework.DropTxMalformed; r < framework.NumDropReasons; r++ {
			p.Drops += tx[engine.TxDrop(r)]
		}
	}
	p.Interrupts = s.Device[engine.Interrupts]
}

func linkOf(l framework.Link) *adminpb.Link {
	return &adminpb.Link{Up: l.Up, Mbps: uint32(l.Mbps), FullDuplex: l.FullDuplex, Paused: l.Paused}
}

func portName(p framework.Port) string {
	if p == nil {
		return ""
	}
	return p.Needs().Name
}

// detail is all about the interface but its counters.
func (i *netInterface) detail() *adminpb.InterfaceDetail {
	r := &adminpb.InterfaceDetail{Interface: i.picture()}
	i.mu.Lock()
	defer i.mu.Unlock()
	layout := i.host.Layout()
	r.Model, r.Revision, r.DeviceMode = i.info.Model, uint32(i.info.Revision), i.info.Mode
	r.Interrupts = vectorText(&i.plan)
	r.TxHandoff = handoffText(&i.plan)
	r.Buffers = uint32(layout.Queues * (layout.RxBuffers + layout.TxBuffers))
	r.BufferSize = uint32(layout.BufferSize)
	r.ArenaBytes = uint64(i.memory.Size())
	r.RxBudget, r.Spin, r.Promiscuous = uint32(budget(&i.plan)), spinText(&i.plan), i.plan.Filters.Promiscuous
	if i.features != nil {
		for _, f := range i.features.Status {
			r.Features = append(r.Features, &adminpb.Feature{
				Name: f.Feature.String(), State: f.State.String(), Reason: f.Reasons[len(f.Reasons)-1],
			})
		}
	}
	if i.quirks != nil {
		for _, q := range i.quirks.All() {
			r.Quirks = append(r.Quirks, &adminpb.Quirk{Name: q.Info.Name, Value: q.Value, Level: q.Level.String(), Because: q.Because})
		}
	}
	r.Queues = append(queuesOf("rx", i.plan.RxQueues, i.plan.RxDescriptors, i.plan.Interrupts.RxVector, i.plan.CPUs),
		queuesOf("tx", i.plan.TxQueues, i.plan.TxDescriptors, i.plan.Interrupts.TxVector, i.plan.CPUs)...)
	return r
}

func queuesOf(kind string, n, descriptors int, vectors, cpus []int) []*adminpb.Queue {
	var list []*adminpb.Queue
	for q := range n {
		entry := &adminpb.Queue{Kind: kind, Index: uint32(q), Descriptors: uint32(descriptors), Vector: -1, Cpu: "any"}
		if q < len(vectors) {
			entry.Vector = int32(vectors[q])
		}
		if q < len(cpus) {
			entry.Cpu = itoa(cpus[q])
		}
		list = append(list, entry)
	}
	return list
}

// explain is the chain of reasons behind a feature's state.
func (i *netInterface) explain(name string) (*adminpb.ExplainReply, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	r := &adminpb.ExplainReply{Interface: i.config.Name, Feature: name}
	wanted, ok := framework.ParseFeature(name)
	if !ok || i.features == nil {
		return nil, false
	}
	var states []string
	wanted.Each(func(f framework.Features) {
		s := i.features.Of(f)
		states = append(states, s.State.String())
		for _, reason := range s.Reasons {
			if wanted != f { // a name for several
				reason = f.String() + ": " + reason
			}
			r.Reasons = append(r.Reasons, reason)
		}
	})
	r.State = strings.Join(unique(states), " and ")
	return r, true
}
