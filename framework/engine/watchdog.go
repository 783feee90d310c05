package engine

import (
	"fmt"

	"nicd/framework"
)

// watchdog looks at the age of the oldest packet that the device was given and
// has not finished. A queue that finishes others meanwhile is slow and does not hang:
// behind a peer that holds it up a full ring can take any time, and not every device
// says that it is paused. A queue that hangs is kicked; if it still hangs it is reset;
// if it hangs again soon the device is. Public drivers taught the steps: a lost
// bell needs no reset, and a reset that does not help must not be repeated all
// the time.
type watchdog struct {
	queues    []watched
	lastReset int64 // of the device, for whatever reason; 0: never
}

// watched is what the watchdog knows of a queue. Times are Options.Now's.
type watched struct {
	step   watchStep
	oldest int64  // the packet that made it suspect
	done   uint64 // frames that it had finished when it was looked at last
	since  int64  // not suspect before: it got on, or the peer asked for silence, until then
	reset  int64  // when the queue was reset; 0: never
}

// watchStep is what was done last about a queue.
type watchStep uint8

const (
	nothingDone watchStep = iota
	kicked
	queueReset
)

func newWatchdog(queues int) watchdog { return watchdog{queues: make([]watched, queues)} }

// forget starts anew after the device was started; when it was reset last is
// remembered.
func (w *watchdog) forget() {
	for i := range w.queues {
		w.queues[i].step = nothingDone
		w.queues[i].oldest = 0
	}
}

// look is called at each tick. It kicks, and returns what has to be reset.
func (w *watchdog) look(e *Engine) []fault {
	var faults []fault
	now := e.opts.Now()
	for q, t := range e.tx[:e.plan.TxQueues] {
		oldest := t.oldest.Load()
		s := &w.queues[q]
		done := e.page.tx[q].counter(int(TxFramesDone)).Load()
		if e.link.Paused || done != s.done {
			s.since, s.done = now, done
		}
		if oldest == 0 || now-max(oldest, s.since) < int64(e.opts.Watchdog) {
			s.step = nothingDone
			continue
		}
		if f, ok := w.act(e, q, s, oldest, now); ok {
			faults = append(faults, f)
		}
	}
	return faults
}

// act takes the next step with a queue that hangs.
func (w *watchdog) act(e *Engine, q int, s *watched, oldest, now int64) (fault, bool) {
	if s.step == nothingDone || s.oldest != oldest {
		s.step, s.oldest = kicked, oldest
		e.tx[q].kick.Store(true)
		e.txTasks[q].schedule(byControl)
		e.page.tx[q].counter(int(TxWatchdogKicks)).Add(1)
		e.page.add(WatchdogKicks, 1)
		return fault{}, false
	}
	f := fault{
		queue: q, cause: ResetsByWatchdog,
		reason: fmt.Sprintf("transmit queue %d: oldest packet is %d ms old", q, (now-oldest)/1e6),
	}
	_, can := e.dev.(framework.QueueResetter)
	if can && s.step == kicked && (s.reset == 0 || now-s.reset > int64(e.opts.Cooldown)) {
		s.step, s.reset = queueReset, now
		return f, true
	}
	if w.lastReset != 0 && now-w.lastReset < int64(e.opts.Cooldown) {
		return fault{}, false // it was reset just now, and that did not help
	}
	f.device = true
	return f, true
}
