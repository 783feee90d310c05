package engine

import (
	"context"
	"sync"
	"time"

	"nicd/framework"
)

// adminTask is the device's one goroutine for what is neither data nor control:
// link changes, faults, resets, the watchdog, and handing out events. It lives
// from New to Detach.
type adminTask struct {
	wake   chan struct{} // there is something to do
	news   chan struct{} // there is an event to hand out
	quit   context.CancelFunc
	done   chan struct{}
	events chan Event

	mu      sync.Mutex
	faults  []fault
	pending []Event
}

// fault is something that takes a reset.
type fault struct {
	queue  int  // if neither of the following
	device bool // the device has to be reset
	gone   bool // nobody answers
	cause  DeviceCounter
	reason string
}

// maxFaults bounds the faults that wait: more say nothing new.
const maxFaults = 64

func (a *adminTask) start(e *Engine) {
	ctx, quit := context.WithCancel(context.Background())
	a.wake, a.news, a.events = make(chan struct{}, 1), make(chan struct{}, 1), make(chan Event)
	a.quit, a.done = quit, make(chan struct{})
	tick, stop := e.opts.Tick, func() {}
	if tick == nil {
		t := time.NewTicker(time.Second)
		tick, stop = t.C, t.Stop
	}
	go func() {
		defer close(a.done)
		defer close(a.events)
		defer stop()
		e.adminLoop(ctx, tick)
	}()
}

func (a *adminTask) stop() {
	a.quit()
	<-a.done
}

func (e *Engine) adminLoop(ctx context.Context, tick <-chan time.Time) {
	a := &e.admin
	for {
		next, out := a.nextEvent()
		select {
		case <-ctx.Done():
			return
		case <-a.news:
		case <-a.wake:
			e.runAdmin(ctx, false)
		case <-tick:
			e.runAdmin(ctx, true)
		case out <- next:
			a.sent()
		}
	}
}

// nextEvent returns the event to hand out next and where; a nil channel if there
// is none.
func (a *adminTask) nextEvent() (Event, chan<- Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.pending) == 0 {
		return Event{}, nil
	}
	return a.pending[0], a.events
}

func (a *adminTask) sent() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.pending) > 0 {
		a.pending = a.pending[1:]
	}
}

// emit queues an event. Nobody waits for who receives it. Of two events of one
// kind about the same thing in a row only the later one is of interest, so a
// receiver that never comes costs no more memory than there are queues and kinds.
func (e *Engine) emit(ev Event) {
	a := &e.admin
	a.mu.Lock()
	for i := 1; i < len(a.pending); i++ { // the first may be on its way already
		if a.pending[i].Kind == ev.Kind && a.pending[i].Queue == ev.Queue {
			a.pending = append(a.pending[:i], a.pending[i+1:]...)
			break
		}
	}
	a.pending = append(a.pending, ev)
	a.mu.Unlock()
	signal(a.news)
}

// wakeAdmin makes the admin task run. Any goroutine may call it.
func (e *Engine) wakeAdmin() { signal(e.admin.wake) }

// signal stores a token in a channel of capacity one, if there is none.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// report tells the admin task of a fault. Any goroutine may call it.
func (e *Engine) report(f fault) {
	a := &e.admin
	if f.cause == 0 {
		f.cause = ResetsByDeviceFault
	}
	a.mu.Lock()
	if len(a.faults) < maxFaults {
		a.faults = append(a.faults, f)
	}
	a.mu.Unlock()
	e.wakeAdmin()
}

// reportVerdict tells the admin task what a poll said of queue q.
func (e *Engine) reportVerdict(q int, v framework.Verdict) {
	switch v {
	case framework.QueueFault:
		e.report(fault{queue: q, cause: ResetsByQueueFault, reason: "receive queue fault"})
	case framework.DeviceFault:
		e.report(fault{device: true, reason: "receive found a device fault"})
	default:
		e.report(fault{gone: true, reason: "no answer to a poll"})
	}
}

func (a *adminTask) takeFaults() []fault {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.faults
	a.faults = nil
	return f
}

// runAdmin does what there is to do. It takes turns with the control methods.
func (e *Engine) runAdmin(ctx context.Context, tick bool) {
	if e.take(ctx, started) != nil {
		e.admin.takeFaults() // of a device that does not run any more
		return
	}
	defer e.give()
	e.page.add(AdminRuns, 1)
	found := e.dev.Admin()
	faults := append(e.admin.takeFaults(), faultsOf(found)...)
	if found.ModeChanged {
		e.info = e.dev.Info()
		e.setRules(&e.plan)
		e.emit(Event{Kind: ModeEvent, Reason: e.info.Mode})
	}
	if found.LinkChanged || tick {
		e.readLink(false)
	}
	if tick {
		faults = append(faults, e.watch.look(e)...)
		for _, t := range e.tasks {
			t.schedule(byTick)
		}
	}
	e.recover(ctx, faults)
}

func faultsOf(ev framework.Events) []fault {
	var faults []fault
	if ev.Gone {
		faults = append(faults, fault{gone: true, reason: ev.Reason})
	}
	if ev.DeviceFault {
		faults = append(faults, fault{device: true, cause: ResetsByDeviceFault, reason: ev.Reason})
	}
	for q := range 64 {
		if ev.QueueFault&(1<<q) != 0 {
			faults = append(faults, fault{queue: q, cause: ResetsByQueueFault, reason: ev.Reason})
		}
	}
	return faults
}

// readLink reads the link's state and reports it if it changed, or if asked to.
func (e *Engine) readLink(always bool) {
	l, err := e.dev.Link()
	if err != nil {
		e.opts.Log.Warn().Err(err).Msg("link state")
		return
	}
	if l == e.link && !always {
		return
	}
	if l != e.link {
		e.page.add(LinkChanges, 1)
	}
	notable := always || l.Up != e.link.Up || l.Mbps != e.link.Mbps || l.FullDuplex != e.link.FullDuplex
	e.link = l
	e.linkUp.Store(l.Up)
	if notable {
		e.emit(Event{Kind: LinkEvent, Link: l})
	}
}

// recover does the most thorough of what the faults ask for.
func (e *Engine) recover(ctx context.Context, faults []fault) {
	var device *fault
	for i := range faults {
		f := &faults[i]
		if f.gone {
			e.abandon(f.reason)
			return
		}
		if f.device {
			device = f
		}
	}
	if device != nil {
		e.resetDevice(ctx, *device)
		return
	}
	seen := uint64(0)
	for _, f := range faults {
		if f.queue >= max(e.plan.RxQueues, e.plan.TxQueues) || seen&(1<<f.queue) != 0 {
			continue
		}
		seen |= 1 << f.queue
		if !e.resetQueue(f) {
			e.resetDevice(ctx, f)
			return
		}
	}
}

// resetQueue resets one queue pair while the others run, and tells whether the
// driver could.
func (e *Engine) resetQueue(f fault) bool {
	r, ok := e.dev.(framework.QueueResetter)
	if !ok {
		return false
	}
	q := f.queue
	tasks := e.tasksOf(q)
	for _, t := range tasks {
		t.stop()
	}
	rx, tx, err := r.ResetQueue(q)
	hasRx, hasTx := q < e.plan.RxQueues, q < e.plan.TxQueues
	if err != nil || hasRx && rx == nil || hasTx && tx == nil {
		e.opts.Log.Warn().Err(err).Int("queue", q).Msg("queue reset failed; the device is reset")
		return false
	}
	if hasRx {
		e.rx[q].stop()
		e.startRx(q, rx)
	}
	if hasTx {
		e.tx[q].stop()
		e.tx[q].start(tx, e.plan.TxDescriptors)
		e.page.tx[q].counter(int(TxQueueResets)).Add(1)
	}
	e.page.add(QueueResets, 1)
	e.page.add(f.cause, 1)
	e.opts.Log.Warn().Int("queue", q).Str("reason", f.reason).Msg("queue was reset")
	e.emit(Event{Kind: QueueReset, Queue: q, Reason: f.reason})
	for _, t := range tasks {
		t.start()
	}
	return true
}

// tasksOf returns the task or the two of a queue pair.
func (e *Engine) tasksOf(q int) []*task {
	var tasks []*task
	for _, t := range e.tasks {
		if t.pair == q {
			tasks = append(tasks, t)
		}
	}
	return tasks
}

// restartTries is how often a device that does not come up is reset again.
const restartTries = 3

// resetTimeout bounds how long a driver may take to stop a device.
const resetTimeout = 10 * time.Second

// resetDevice stops the device and starts it by the same plan.
func (e *Engine) resetDevice(ctx context.Context, f fault) {
	ctx, cancel := context.WithTimeout(ctx, resetTimeout)
	defer cancel()
	p := e.plan
	e.watch.lastReset = e.opts.Now()
	e.page.add(DeviceResets, 1)
	e.page.add(f.cause, 1)
	e.opts.Log.Warn().Str("reason", f.reason).Msg("device is reset")
	if err := e.halt(ctx); err != nil {
		e.opts.Log.Warn().Err(err).Msg("reset")
	}
	var err error
	for range restartTries {
		if e.ending.begun.Load() {
			return // somebody waits for the end
		}
		if err = e.run(ctx, p); err == nil {
			e.emit(Event{Kind: DeviceReset, Reason: f.reason})
			return
		}
		e.page.add(FailedResets, 1)
	}
	e.lose("does not start after a reset (" + f.reason + "): " + err.Error())
}

// abandon gives up a device that does not answer.
func (e *Engine) abandon(reason string) {
	ctx, cancel := context.WithTimeout(context.Background(), resetTimeout)
	defer cancel()
	if err := e.halt(ctx); err != nil {
		e.opts.Log.Warn().Err(err).Msg("device is gone")
	}
	e.lose(reason)
}

// lose makes a stopped engine a lost one.
func (e *Engine) lose(reason string) {
	e.state = lost
	e.linkUp.Store(false)
	e.link = framework.Link{}
	e.opts.Log.Error().Str("reason", reason).Msg("device is lost")
	e.emit(Event{Kind: DeviceLost, Reason: reason})
}
