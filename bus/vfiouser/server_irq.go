package vfiouser

import (
	"context"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"nicd/bus"
)

// irqs is a client's view of the device's interrupts. The device always signals
// one event per vector: the client's, or, while the client has assigned none or
// masks the vector, a latch of ours, so that no interrupt is lost.
//
// All but request, fault and join are called under server.mu.
type irqs struct {
	server *server
	kind   bus.InterruptKind // which kind lines are of
	lines  []line            // nil while interrupts are off
	used   int               // lines that the client has named since they are on
	// alerts are the error and the request interrupt, which are not the device's.
	alerts [2]atomic.Pointer[bus.Event]
	tasks  sync.WaitGroup
}

// line is one vector.
type line struct {
	event  *bus.Event // the client's, or nil
	latch  *bus.Event
	masked bool
	unmask context.CancelFunc // ends the task that unmasks by eventfd, if there is one
}

// target is where the device's signal goes.
func (l *line) target() *bus.Event {
	if l.event != nil && !l.masked {
		return l.event
	}
	return l.latch
}

func (s *server) setIRQs(r *request) error {
	q, err := parseSetIRQs(r.body)
	if err != nil {
		return err
	}
	if err := q.check(s.vectors(q.index), len(r.fds)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.index >= irqError {
		return s.irqs.setAlert(q, r.fds)
	}
	return s.irqs.set(bus.InterruptKind(q.index), q, r.fds)
}

// disables tells whether a request turns off a whole index.
func (q setIRQs) disables() bool {
	return q.flags == irqDataNone|irqTrigger && q.start == 0 && q.count == 0
}

// check tells whether a request makes sense for an index of that many vectors.
func (q setIRQs) check(vectors, fds int) error {
	data, action := q.flags&irqDataMask, q.flags&irqActionMask
	switch {
	case q.index >= numIRQs, q.flags&^(irqDataMask|irqActionMask) != 0:
		return unix.EINVAL
	case data != irqDataNone && data != irqDataBool && data != irqDataEventFD:
		return unix.EINVAL
	case action != irqMask && action != irqUnmask && action != irqTrigger:
		return unix.EINVAL
	case fds > 0 && (data != irqDataEventFD || fds != int(q.count)):
		return unix.EINVAL
	case data == irqDataBool && len(q.data) != int(q.count):
		return unix.EINVAL
	case q.disables():
		return nil // an index without vectors is off already
	case q.count == 0, q.start >= uint32(vectors), q.count > uint32(vectors)-q.start:
		return unix.EINVAL
	}
	return nil
}

func (i *irqs) set(kind bus.InterruptKind, q setIRQs, fds descriptors) error {
	on := i.lines != nil && i.kind == kind
	switch data, action := q.flags&irqDataMask, q.flags&irqActionMask; {
	case q.disables():
		if !on {
			return nil
		}
		return i.off()
	case action == irqTrigger && data == irqDataEventFD:
		return i.assign(kind, q, fds)
	case !on:
		return unix.EINVAL
	case action == irqTrigger:
		i.trigger(q)
		return nil
	case data == irqDataEventFD:
		return i.unmaskBy(q, action, fds)
	default:
		return i.mask(q, action == irqMask)
	}
}

// names tells whether a request means its n-th vector.
func (q setIRQs) names(n int) bool {
	return q.flags&irqDataBool == 0 || q.data[n] != 0
}

// assign gives vectors the client's eventfds, or takes them away if there are
// none in the message. It makes kind the kind in force.
func (i *irqs) assign(kind bus.InterruptKind, q setIRQs, fds descriptors) error {
	events, err := takeEvents(fds)
	if err != nil {
		return err
	}
	if err := i.on(kind); err != nil {
		closeEvents(events)
		return err
	}
	i.used = max(i.used, int(q.start+q.count))
	replaced := make([]*bus.Event, 0, q.count)
	for n := range int(q.count) {
		l := &i.lines[int(q.start)+n]
		replaced = append(replaced, l.event)
		l.event = nil
		if events != nil {
			l.event = events[n]
		}
	}
	err = i.apply()
	closeEvents(replaced)
	return err
}

func takeEvents(fds descriptors) ([]*bus.Event, error) {
	var events []*bus.Event
	for n := range fds {
		e, err := fds.takeEvent(n)
		if err != nil {
			closeEvents(events)
			return nil, err
		}
		events = append(events, e)
	}
	return events, nil
}

func closeEvents(events []*bus.Event) {
	for _, e := range events {
		if e != nil {
			e.Close()
		}
	}
}

// on makes lines for all vectors of kind, unless it has them, and drops those of
// any other kind: a device has one kind on at a time.
func (i *irqs) on(kind bus.InterruptKind) error {
	if i.lines != nil && i.kind == kind {
		return nil
	}
	if err := i.off(); err != nil {
		return err
	}
	lines := make([]line, i.server.info.Vectors[kind])
	for n := range lines {
		latch, err := bus.NewEvent()
		if err != nil {
			closeLines(lines)
			return err
		}
		lines[n].latch = latch
	}
	i.kind, i.lines, i.used = kind, lines, 0
	return nil
}

// apply tells the device which event is which vector's, and hands on what was
// latched meanwhile. How many vectors of MSI are enabled says to the device how
// to share them, so it gets as many as the client uses; of MSI-X, whose vectors
// come one by one, it gets all.
func (i *irqs) apply() error {
	n := len(i.lines)
	if i.kind == bus.MSI {
		n = i.used
	}
	events := make([]*bus.Event, n)
	for n := range events {
		events[n] = i.lines[n].target()
	}
	if err := i.server.dev.SetInterrupts(i.kind, events); err != nil {
		return err
	}
	for n := range i.lines {
		l := &i.lines[n]
		if t := l.target(); t != l.latch && l.latch.Take() > 0 {
			t.Signal()
		}
	}
	return nil
}

// off turns the device's interrupts off and forgets the client's eventfds.
func (i *irqs) off() error {
	if i.lines == nil {
		return nil
	}
	err := i.server.dev.SetInterrupts(i.kind, nil)
	closeLines(i.lines)
	i.lines = nil
	return err
}

func closeLines(lines []line) {
	for n := range lines {
		l := &lines[n]
		if l.unmask != nil {
			l.unmask()
		}
		closeEvents([]*bus.Event{l.event, l.latch})
	}
}

// trigger signals vectors as if the device had.
func (i *irqs) trigger(q setIRQs) {
	for n := range int(q.count) {
		if q.names(n) {
			i.lines[int(q.start)+n].target().Signal()
		}
	}
}

// mask masks or unmasks vectors. Unmasking is also how a client says that it has
// handled INTx, which was masked by firing.
func (i *irqs) mask(q setIRQs, masked bool) error {
	changed := false
	for n := range int(q.count) {
		l := &i.lines[int(q.start)+n]
		if q.names(n) && l.masked != masked {
			l.masked, changed = masked, true
		}
	}
	if changed {
		if err := i.apply(); err != nil {
			return err
		}
	}
	if masked {
		return nil
	}
	for n := range int(q.count) {
		if !q.names(n) {
			continue
		}
		if err := i.server.dev.UnmaskInterrupt(int(q.start) + n); err != nil {
			return err
		}
	}
	return nil
}

// unmaskBy makes each vector be unmasked whenever an eventfd of the client's
// fires (KVM's resampling), or ends that if the message has no eventfds.
func (i *irqs) unmaskBy(q setIRQs, action uint32, fds descriptors) error {
	if action != irqUnmask {
		return unix.EINVAL
	}
	events, err := takeEvents(fds)
	if err != nil {
		return err
	}
	for n := range int(q.count) {
		l := &i.lines[int(q.start)+n]
		if l.unmask != nil {
			l.unmask()
			l.unmask = nil
		}
		if events != nil {
			l.unmask = i.startUnmasking(q.start+uint32(n), events[n])
		}
	}
	return nil
}

func (i *irqs) startUnmasking(vector uint32, e *bus.Event) context.CancelFunc {
	ctx, cancel := context.WithCancel(context.Background())
	kind := i.kind
	unmask := setIRQs{flags: irqDataNone | irqUnmask, index: uint32(kind), start: vector, count: 1}
	i.tasks.Go(func() {
		defer e.Close()
		for {
			if _, err := e.Wait(ctx); err != nil {
				return
			}
			i.server.mu.Lock()
			if ctx.Err() == nil { // else the lines may be another kind's by now
				_ = i.mask(unmask, false)
			}
			i.server.mu.Unlock()
		}
	})
	return cancel
}

// setAlert assigns, takes away or triggers the error or request interrupt.
func (i *irqs) setAlert(q setIRQs, fds descriptors) error {
	alert := &i.alerts[q.index-irqError]
	if q.flags&irqTrigger == 0 {
		return unix.EINVAL
	}
	if q.flags&irqDataEventFD == 0 && !q.disables() {
		if e := alert.Load(); e != nil && q.names(0) {
			e.Signal()
		}
		return nil
	}
	var next *bus.Event
	if len(fds) == 1 {
		e, err := fds.takeEvent(0)
		if err != nil {
			return err
		}
		next = e
	}
	if old := alert.Swap(next); old != nil {
		old.Close()
	}
	return nil
}

// request tells the client that the device is wanted back.
func (i *irqs) request() { i.alert(irqRequest) }

// fault tells the client that the device is beyond recovery.
func (i *irqs) fault() { i.alert(irqError) }

func (i *irqs) alert(index int) {
	if e := i.alerts[index-irqError].Load(); e != nil {
		e.Signal()
	}
}

// end turns everything off. join waits for its tasks, without server.mu.
func (i *irqs) end() {
	_ = i.off()
	for n := range i.alerts {
		if e := i.alerts[n].Swap(nil); e != nil {
			e.Close()
		}
	}
}

func (i *irqs) join() { i.tasks.Wait() }
