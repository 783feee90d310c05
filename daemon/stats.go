package daemon

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"nicd/framework"
	"nicd/framework/engine"
	"nicd/proto/adminpb"
)

// counters reads what the engine counted. It can be done after the driver's
// death.
func (i *netInterface) counters() (engine.Snapshot, error) {
	i.mu.Lock()
	tx := max(i.host.Layout().Queues, i.info.MaxTxQueues)
	i.mu.Unlock()
	return engine.ReadCounters(i.host.Counters(), i.host.Layout().Queues, tx)
}

// violation says how the counters break their law, "" if they add up.
func (i *netInterface) violation() string {
	s, err := i.counters()
	if err == nil {
		err = engine.Check(s)
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// statsPatience is how long a driver gets to read its device's counters.
const statsPatience = 2 * time.Second

// stats is every counter of the interface.
func (i *netInterface) stats(ctx context.Context) (*adminpb.StatsReply, error) {
	s, err := i.counters()
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", i.config.Name, err)
	}
	i.mu.Lock()
	rx, tx := i.plan.RxQueues, i.plan.TxQueues
	info, state := i.info, i.state
	i.mu.Unlock()
	r := &adminpb.StatsReply{Interface: i.config.Name, Violation: i.violation()}
	for q := range min(rx, len(s.Rx)) {
		r.Queues = append(r.Queues, &adminpb.QueueStats{Kind: "rx", Index: uint32(q), Counters: counterList(engine.RxCounters[:], s.Rx[q][:])})
	}
	for q := range min(tx, len(s.Tx)) {
		r.Queues = append(r.Queues, &adminpb.QueueStats{Kind: "tx", Index: uint32(q), Counters: counterList(engine.TxCounters[:], s.Tx[q][:])})
	}
	r.Device = counterList(engine.DeviceCounters[:], s.Device[:])
	r.Link = i.linkCounters()
	r.Port = i.portCounters()
	r.Wire = i.wireCounters()
	if state != running {
		return r, nil
	}
	ctx, cancel := context.WithTimeout(ctx, statsPatience)
	defer cancel()
	hardware, err := i.control.HardwareCounters(ctx)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", i.config.Name, err)
	}
	for n, c := range info.Counters {
		if n < len(hardware) {
			r.Hardware = append(r.Hardware, &adminpb.Counter{Name: c.Name, Value: hardware[n], Doc: c.Doc, Bad: c.Bad})
		}
	}
	return r, nil
}

func counterList(infos []engine.CounterInfo, values []uint64) []*adminpb.Counter {
	var list []*adminpb.Counter
	for n, c := range infos {
		list = append(list, &adminpb.Counter{Name: c.Name, Value: values[n], Unit: c.Unit.String(), Doc: c.Doc, Bad: c.Bad})
	}
	return list
}

// portCounters are those of the port, if it has any.
func (i *netInterface) portCounters() (list []*adminpb.Counter) {
	p, ok := i.port.(framework.CountingPort)
	if !ok {
		return nil
	}
	for _, c := range p.Counters() {
		list = append(list, &adminpb.Counter{Name: c.Name, Value: c.Value, Unit: c.Unit, Doc: c.Doc, Bad: c.Bad})
	}
	return list
}

// Names of a wire's counters begin so, and of those of frames for the device.
const (
	wirePrefix   = "wire_"
	wireRxPrefix = wirePrefix + "rx_"
)

// wireCounters are what a simulated device's wire did to frames, each way.
func (i *netInterface) wireCounters() []*adminpb.Counter {
	if i.wire == nil {
		return nil
	}
	rx, tx := i.wire.Arriving(), i.wire.Stats()
	bad := func(name, doc string, value uint64) *adminpb.Counter {
		return &adminpb.Counter{Name: name, Value: value, Unit: "segments", Doc: doc, Bad: true}
	}
	return []*adminpb.Counter{
		bad(wireRxPrefix+"lost", "Frames for this device that the wire lost.", rx.Lost),
		bad(wireRxPrefix+"reordered", "Frames for this device that the wire let others overtake.", rx.Reordered),
		bad(wireRxPrefix+"corrupted", "Frames for this device that the wire damaged.", rx.Corrupted),
		bad(wireRxPrefix+"doubled", "Frames for this device that the wire brought twice.", rx.Doubled),
		{Name: wireRxPrefix + "paused", Value: rx.Paused, Unit: "times", Doc: "Times that others stopped sending because a device had no buffer."},
		bad(wirePrefix+"tx_lost", "Frames of this device that the wire lost.", tx.Lost),
		bad(wirePrefix+"tx_reordered", "Frames of this device that the wire let others overtake.", tx.Reordered),
		bad(wirePrefix+"tx_corrupted", "Frames of this device that the wire damaged.", tx.Corrupted),
		bad(wirePrefix+"tx_doubled", "Frames of this device that the wire brought twice.", tx.Doubled),
		{Name: wirePrefix + "tx_paused", Value: tx.Paused, Unit: "times", Doc: "Times that this device stopped sending because another had no buffer."},
	}
}

// linkCounters are those of nicd's end of the link, over all queues.
func (i *netInterface) linkCounters() []*adminpb.Counter {
	list := []*adminpb.Counter{
		{Name: "link_delivered", Unit: "packets", Doc: "Packets given to the port."},
		{Name: "link_sent", Unit: "packets", Doc: "Packets of the port queued for the engine."},
		{Name: "link_dropped", Unit: "packets", Doc: "Packets of link_sent that an engine had not taken when it was gone: dropped. What it had taken is in tx_drop_stopped."},
		{Name: "link_malformed", Unit: "packets", Doc: "Packets of the port that made no sense: dropped.", Bad: true},
		{Name: "link_refused", Unit: "times", Doc: "Sends that found a queue full and took less than all."},
		{Name: "link_misused", Unit: "buffers", Doc: "Buffers that the port gave back and did not have.", Bad: true},
		{Name: "link_sleeps", Unit: "times", Doc: "Times that a queue's receiver went to sleep."},
		{Name: "link_reclaimed", Unit: "buffers", Doc: "Buffers taken back from engines that were gone."},
	}
	for q := range i.host.Layout().Queues {
		s := i.host.QueueStats(q)
		for n, v := range []uint64{s.Delivered, s.Sent, s.Dropped, s.Malformed, s.Refused, s.Misused, s.Sleeps, s.Reclaimed} {
			list[n].Value += v
		}
	}
	return list
}

func itoa(n int) string { return strconv.Itoa(n) }

// unique leaves out repetitions and keeps the order.
func unique(list []string) []string {
	var u []string
	for _, s := range list {
		if !slices.Contains(u, s) {
			u = append(u, s)
		}
	}
	return u
}
