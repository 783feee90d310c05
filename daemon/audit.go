package daemon

import (
	"context"
	"fmt"
	"time"

	"nicd/framework"
	"nicd/framework/engine"
	"nicd/framework/link"
)

// This file is for whoever doubts a daemon: what must hold of it at any time, and
// what must hold when nothing moves.

// Audit lists what is wrong with the daemon: interfaces and streams that do not
// run, counters that do not add up or that count what must never happen. It may
// be called while packets flow and settings change.
func (d *Daemon) Audit() []string {
	var list []string
	problem := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	for _, i := range d.interfaces {
		i.mu.Lock()
		state, reason := i.state, i.reason
		i.mu.Unlock()
		if state != running {
			problem("interface %s: %s: %s", i.config.Name, state, reason)
		}
		if v := i.violation(); v != "" {
			problem("interface %s: counters do not add up: %s", i.config.Name, v)
		}
		for _, c := range i.never() {
			problem("interface %s: %s", i.config.Name, c)
		}
	}
	for _, s := range d.streams {
		if state, reason := s.state(); reason != "" {
			problem("stream %s: %s: %s", s.name, state, reason)
		}
	}
	return list
}

// neverRx, neverTx and neverDevice count what no load and no change of settings
// excuses.
var (
	neverRx     = []engine.RxCounter{engine.RxBadReclaim, engine.RxQueueFaults, engine.RxPostRefused}
	neverTx     = []engine.TxCounter{engine.TxBadCompletion, engine.TxDropMalformed}
	neverDevice = []engine.DeviceCounter{engine.ResetsByQueueFault, engine.ResetsByDeviceFault, engine.FailedResets, engine.ShortOfBuffers}
)

// never lists counters that should be zero and are not.
func (i *netInterface) never() []string {
	s, err := i.counters()
	if err != nil {
		return []string{err.Error()}
	}
	var list []string
	note := func(c engine.CounterInfo, where string, n uint64) {
		if n != 0 {
			list = append(list, fmt.Sprintf("%s%s = %d: %s", c.Name, where, n, c.Doc))
		}
	}
	for q := range s.Rx {
		for _, c := range neverRx {
			note(engine.RxCounters[c], fmt.Sprint(" of queue ", q), s.Rx[q][c])
		}
	}
	for q := range s.Tx {
		for _, c := range neverTx {
			note(engine.TxCounters[c], fmt.Sprint(" of queue ", q), s.Tx[q][c])
		}
	}
	for _, c := range neverDevice {
		note(engine.DeviceCounters[c], "", s.Device[c])
	}
	for q := range i.host.Layout().Queues {
		if h := i.host.QueueStats(q); h.Malformed+h.Misused != 0 {
			list = append(list, fmt.Sprintf("the port misused queue %d: %d packets malformed, %d buffers given back that it had not", q, h.Malformed, h.Misused))
		}
	}
	return list
}

// StopStreams ends the TCP streams for good and waits for that. The interfaces
// run on.
func (d *Daemon) StopStreams() {
	if d.stopStreams != nil {
		d.stopStreams()
	}
	d.moving.Wait()
}

// portReserve is how many transmit buffers a port may keep at hand for each queue.
const portReserve = 2 * framework.MaxFragments

// Rest waits until no buffer is on its way any more, after the streams were
// stopped. A buffer that does not come back is a leak; the error, when ctx ends,
// says whose and where it was last.
func (d *Daemon) Rest(ctx context.Context) error {
	const interval = 10 * time.Millisecond
	for {
		err := d.restless()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(interval):
		}
	}
}

// restless says which buffers are on their way.
func (d *Daemon) restless() error {
	for _, i := range d.interfaces {
		i.host.Reclaim()
		n, l := i.host.Holdings(), i.host.Layout()
		reserve := l.Queues * portReserve
		if n.RxPort != 0 || n.TxEngine != 0 || n.TxPort > reserve {
			return fmt.Errorf("interface %s: buffers do not come back: %s; a port may keep %d of those for transmit", i.config.Name, holdingsText(n), reserve)
		}
	}
	return nil
}

func holdingsText(n link.Holdings) string {
	return fmt.Sprintf("receive: %d with the engine, %d with the port; transmit: %d free, %d with the port, %d with the engine",
		n.RxEngine, n.RxPort, n.TxFree, n.TxPort, n.TxEngine)
}

// Processes are the ids of the processes that belong to the daemon, its own
// first.
func (d *Daemon) Processes() []int { return d.pids() }

// PrivateMemory is what those processes have resident to themselves, in bytes. The
// arenas are not in it: they grow to their fixed size as buffers are used.
func (d *Daemon) PrivateMemory() uint64 {
	var sum uint64
	for _, pid := range d.pids() {
		sum += privateBytes(pid)
	}
	return sum
}
