package engine

import (
	"context"
	"sync"
	"time"
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
		was := e.info.Mode
		e.info = e.dev.Info()
		e.opts.Log.Info().Str("was", was).Str("is", e.info.Mode).Msg("device changed its mode")
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
