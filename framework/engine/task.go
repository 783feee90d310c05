package engine

import (
	"runtime"
	"sync/atomic"
	"time"
)

// taskState is where a task is.
type taskState = uint32

// A task is idle until someone schedules it; then it runs rounds until one finds
// nothing to do. Who schedules it meanwhile makes it look once more. A halted task
// counts as running although its goroutine has ended: its vectors stay masked, and
// who schedules it leaves a note for the next start.
//
// An idle task can be lent: whoever makes that step, its goroutine or a sender, has
// the queues until it gives the task back. That is a matter of a moment, so vectors
// are unmasked as if the task were idle. Who schedules it meanwhile recalls it: then
// it is given to its goroutine.
const (
	idle taskState = iota
	scheduled
	running
	rescheduled
	lent
	recalled
)

// Reasons to schedule a task.
const (
	byInterrupt uint32 = 1 << iota
	byUpper
	bySibling
	byTick
	byTimer
	byControl
	bySender
)

// maxVain is how often in a row the upper side may call a task back for nothing.
const maxVain = 16

// pollInterval is how long a task sleeps at most when no interrupt tells it of
// packets received, or of packets sent while it has given some to the device.
const pollInterval = time.Millisecond

// task is a goroutine that owns the queues of a pair, or one of them.
type task struct {
	pair    int
	rx      *rxQueue // or nil
	tx      *txQueue // or nil
	vectors []*vector
	// siblings share a vector with the task. While it is masked because one of
	// them is busy, no interrupt tells the others that they have work; so who
	// is busy has them look.
	siblings []*task

	pollRx, pollTx bool // no interrupt tells of packets received, sent
	timer          *time.Timer

	spin  time.Duration // how long to look before sleeping; negative: for ever
	cpu   int           // for an endless poller; -1: anywhere
	state atomic.Uint32
	why   atomic.Uint32
	wake  chan struct{}
	halt  atomic.Bool
	done  chan struct{}
}

func newTask(pair int, rx *rxQueue, tx *txQueue) *task {
	t := &task{pair: pair, rx: rx, tx: tx, cpu: -1, wake: make(chan struct{}, 1)}
	t.state.Store(running)
	return t
}

// place has the task spin for as long and run where the plan says. It is halted.
func (t *task) place(p *Plan) {
	t.spin, t.cpu = time.Duration(p.SpinMicros)*time.Microsecond, -1
	if t.pair < len(p.CPUs) {
		t.cpu = p.CPUs[t.pair]
	}
}

// schedule makes the task look for work. Any goroutine may call it; it does not
// block.
func (t *task) schedule(why uint32) {
	if t.why.Load()&why == 0 {
		t.why.Or(why)
	}
	for {
		switch t.state.Load() {
		case idle:
			if t.state.CompareAndSwap(idle, scheduled) {
				signal(t.wake)
				return
			}
		case running:
			if t.state.CompareAndSwap(running, rescheduled) {
				return
			}
		case lent:
			if t.state.CompareAndSwap(lent, recalled) {
				return
			}
		default:
			return
		}
	}
}

// start begins the goroutine.
func (t *task) start() {
	t.halt.Store(false)
	t.done = make(chan struct{})
	if t.timer == nil && (t.pollRx || t.pollTx) {
		t.timer = time.AfterFunc(time.Hour, func() { t.schedule(byTimer) })
		t.timer.Stop()
	}
	go t.run()
}

// stop ends the goroutine and waits for it. The task counts as busy until the
// next start.
func (t *task) stop() {
	if t.done == nil {
		return
	}
	t.halt.Store(true)
	t.schedule(byControl)
	<-t.done
	t.done = nil
	if t.timer != nil {
		t.timer.Stop()
	}
}

func (t *task) run() {
	defer close(t.done)
	if t.spin < 0 && t.cpu >= 0 {
		pin(t.cpu) // for the goroutine's life: the thread dies with it
	}
	t.state.Store(running)
	for t.work() {
		t.sleep()
	}
	t.state.Store(running)
}

// sleep waits until the task is scheduled. A token may be from before: only the
// state says whose the task is.
func (t *task) sleep() {
	for {
		<-t.wake
		if t.state.CompareAndSwap(scheduled, running) {
			return
		}
	}
}

// work runs rounds until the task sleeps, and then returns true, or is halted. The
// queues are the caller's before, and after it in the latter case.
func (t *task) work() bool {
	why := t.why.Swap(0)
	t.countRun()
	var emptySince time.Time
	vain := 0
	for !t.halt.Load() {
		if t.round(why) {
			emptySince, vain = time.Time{}, 0
			t.yield()
			why |= byControl // what comes now was not found by the tick
			continue
		}
		if t.spin < 0 {
			runtime.Gosched()
			continue
		}
		if t.spin > 0 {
			if emptySince.IsZero() {
				emptySince = time.Now()
			}
			if time.Since(emptySince) < t.spin {
				runtime.Gosched()
				continue
			}
		}
		// An upper side that says there is work and gives none is broken, and
		// must not keep the task from sleeping.
		if t.arm() && vain < maxVain {
			vain++
			continue
		}
		t.publish()
		if polls := t.polls(); !t.state.CompareAndSwap(running, idle) {
			t.state.Store(running)
			why = t.why.Swap(0)
		} else if t.rest(polls) {
			return true
		}
	}
	return false
}

// rest is what follows when the task has become idle: interrupts are unmasked, and
// then it looks once more for what came before. It tells whether the task sleeps; if
// not, it is running.
func (t *task) rest(polls bool) bool {
	for _, v := range t.vectors {
		v.release()
	}
	if polls {
		t.timer.Reset(pollInterval)
	}
	if !t.state.CompareAndSwap(idle, lent) {
		t.schedule(bySender) // who has it is done soon; then the look is made by a round
		return true
	}
	if !t.pending() {
		t.giveBack()
		return true
	}
	t.state.Store(running)
	return false
}

// giveBack ends a loan. Who has scheduled the task meanwhile is served by its
// goroutine.
func (t *task) giveBack() {
	if t.state.CompareAndSwap(lent, idle) {
		return
	}
	t.state.Store(scheduled)
	signal(t.wake)
}

// polls tells whether only the timer will say that there is something to do.
func (t *task) polls() bool {
	return t.pollRx || t.pollTx && t.tx.fifo.len() > 0
}

// round does one round of each queue and tells whether there was anything to do.
func (t *task) round(why uint32) bool {
	worked := false
	if t.rx != nil {
		had := t.rx.count[RxPackets]
		worked = t.rx.round()
		if why == byTick && t.rx.count[RxPackets] != had {
			t.rx.count[RxLostInterrupts]++
		}
	}
	if t.tx != nil && t.tx.round() {
		worked = true
		if why == byTick {
			t.tx.count[TxLostInterrupts]++
		}
	}
	return worked
}

// yield is called between two rounds that found work.
func (t *task) yield() {
	for _, s := range t.siblings {
		s.schedule(bySibling)
	}
	runtime.Gosched()
}

// arm says above that the task is about to sleep, and tells whether it should
// not. A receive ring that is short of buffers waits for some to come back: if it
// is empty, nothing else would wake the task.
func (t *task) arm() bool {
	if t.rx != nil && t.rx.short && t.rx.upper.ArmRx(t.rx.id) {
		return true
	}
	return t.tx != nil && !t.tx.blocked() && t.tx.upper.ArmTx(t.tx.id)
}

// pending tells whether the device has finished something.
func (t *task) pending() bool {
	if t.rx != nil && !t.rx.faulty && t.rx.dev.Pending() {
		return true
	}
	return t.tx != nil && t.tx.fifo.len() > 0 && t.tx.dev.Pending()
}

func (t *task) countRun() {
	if t.rx != nil {
		t.rx.count[RxTaskRuns]++
	}
	if t.tx != nil {
		t.tx.count[TxTaskRuns]++
	}
}

func (t *task) publish() {
	if t.rx != nil {
		t.rx.publish(true)
	}
	if t.tx != nil {
		t.tx.publish()
	}
}
