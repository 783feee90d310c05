package drivertest

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"nicd/bus"
	"nicd/framework"
	"nicd/framework/drivertest/rig"
)

// check is one thing that holds for every driver.
type check struct {
	name     string // "category.what"
	doc      string // a sentence: what holds
	needs    []Ability
	features framework.Features // that the device has to offer
	deadline time.Duration      // 0: checkDeadline
	run      func(*c)
}

// Deadlines of a check, ordinary and in a hurry: then its waits fail, and after the
// grace it is left behind, wherever it hangs. Bench.Patience replaces both.
const (
	checkDeadline = 60 * time.Second
	quickDeadline = 30 * time.Second
	checkGrace    = 10 * time.Second
)

// c is a check that runs. It is a rig.T; its methods may be called by any
// goroutine, those that end the check by the check's own only.
type c struct {
	bench *Bench
	check *check
	lint  *linter

	mu       sync.Mutex
	log      []string
	problems []string
	reason   string          // not applicable
	deserted bool            // for want of a far end: what follows is no problem of the driver's
	waiting  context.Context // ends when deserted
	giveUp   context.CancelFunc
	cleanups []func()
}

var _ rig.T = (*c)(nil)

// runCheck runs one check to its end, or leaves it behind when it has none.
func runCheck(ctx context.Context, b *Bench, k *check, l *linter) Result {
	res := Result{Name: k.name, Doc: k.doc, Status: NotApplicable, Problems: []string{}, Log: []string{}}
	if why, excused := b.excuse(k); excused {
		res.Reason = why
		return res
	}
	begin := time.Now()
	t := &c{bench: b, check: k, lint: l}
	t.waiting, t.giveUp = context.WithCancel(context.Background())
	defer t.giveUp()
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.all()
	}()
	limit := time.NewTimer(t.deadline() + checkGrace)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
		t.Errorf("it does not end")
		t.Logf("%s", whereabouts())
	case <-ctx.Done():
		// What was begun is seen through: a device is to be closed.
		select {
		case <-done:
		case <-limit.C:
		}
		t.Errorf("interrupted: %v", ctx.Err())
	}
	res.Seconds = time.Since(begin).Seconds()
	t.result(&res)
	return res
}

// whereabouts are the stacks of checks that run: where one is that does not end.
func whereabouts() string {
	const most = 1 << 20
	buf := make([]byte, most)
	var checks []string
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(stack, "created by nicd/framework/drivertest.(*c).all") {
			checks = append(checks, stack)
		}
	}
	return strings.Join(checks, "\n\n")
}

// result fills in how the check ended.
func (t *c) result(res *Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	res.Log = append(res.Log, t.log...)
	res.Problems = append(res.Problems, t.problems...)
	switch {
	case len(t.problems) > 0:
		res.Status = Failed
	case t.reason != "":
		res.Reason = t.reason
	default:
		res.Status = Passed
	}
}

// all runs the check and then what it left to be cleaned up, last first.
func (t *c) all() {
	step := func(f func()) {
		done := make(chan struct{})
		go func() { // Fatal ends the goroutine
			defer close(done)
			defer t.recover()
			f()
		}()
		<-done
	}
	step(func() { t.check.run(t) })
	t.cleanUp(0, step)
}

// apart runs a part of the check and cleans up behind it: what it opens is closed
// before the next part opens the like.
func (t *c) apart(part func()) {
	t.mu.Lock()
	before := len(t.cleanups)
	t.mu.Unlock()
	part()
	t.cleanUp(before, func(f func()) { f() })
}

// cleanUp has step do what was registered for the check's end, the last first, but
// for the first that were.
func (t *c) cleanUp(first int, step func(func())) {
	for {
		t.mu.Lock()
		n := len(t.cleanups)
		if n <= first {
			t.mu.Unlock()
			return
		}
		f := t.cleanups[n-1]
		t.cleanups = t.cleanups[:n-1]
		t.mu.Unlock()
		step(f)
	}
}

func (t *c) recover() {
	if r := recover(); r != nil {
		t.Errorf("panic: %v at %s", r, panicAt(string(debug.Stack())))
	}
}

// panicAt is the place in a stack where the panic was.
func panicAt(stack string) string {
	_, after, found := strings.Cut(stack, "\npanic(")
	if !found {
		return "an unknown place"
	}
	lines := strings.Split(after, "\n")
	for i := 1; i+1 < len(lines); i++ {
		if at := strings.TrimSpace(lines[i+1]); strings.HasPrefix(lines[i+1], "\t") && !strings.Contains(at, "/runtime/") {
			return strings.Fields(at)[0]
		}
	}
	return "an unknown place"
}

func (t *c) deadline() time.Duration {
	switch {
	case t.bench.Patience > 0:
		return t.bench.Patience
	case t.bench.Quick:
		return quickDeadline
	case t.check.deadline == 0:
		return checkDeadline
	}
	return t.check.deadline
}

// turns is n, or less if the bench is in a hurry.
func (t *c) turns(n int) int {
	if t.bench.Quick {
		return max(n/20, 3)
	}
	return n
}

func (t *c) Helper() {}

func (t *c) Logf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log = append(t.log, fmt.Sprintf(format, args...))
}

// maxProblems bounds what a check says of itself.
const maxProblems = 10

func (t *c) Errorf(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.problems) < maxProblems && !t.deserted {
		t.problems = append(t.problems, shorten(fmt.Sprintf(format, args...)))
	}
}

// shorten keeps whole frames out of the report.
func shorten(s string) string {
	const most = 400
	if len(s) > most {
		return s[:most] + " ..."
	}
	return s
}

func (t *c) Error(args ...any) { t.Errorf("%s", strings.TrimSpace(fmt.Sprintln(args...))) }

func (t *c) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	runtime.Goexit()
}

func (t *c) Fatal(args ...any) {
	t.Error(args...)
	runtime.Goexit()
}

func (t *c) Cleanup(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cleanups = append(t.cleanups, f)
}

// notApplicable ends the check: the device or the driver has no part in it.
func (t *c) notApplicable(format string, args ...any) {
	t.mu.Lock()
	t.reason = fmt.Sprintf(format, args...)
	t.mu.Unlock()
	runtime.Goexit()
}

// must ends the check if there is an error.
func (t *c) must(err error) {
	if err != nil {
		t.Fatal(err)
	}
}

// on is what a check wants to run on. The zero value works.
type on struct {
	Setup
	rig.Options
}

// station opens a station. Where two can't be open at a time, the check is done
// with the one that it had.
func (t *c) station(s Setup) *rig.Station {
	if _, lacks := t.bench.Lacks[TwoDevices]; lacks {
		t.cleanUp(0, func(f func()) { f() })
	}
	st, err := t.bench.Open(s)
	if err != nil {
		t.Fatalf("bench: %v", err)
	}
	for _, a := range t.check.needs {
		if !provides(st, a) {
			_ = st.Bus.Close()
			if st.Close != nil {
				st.Close()
			}
			t.Fatalf("bench: its station has no function for %s: Bench.Lacks has to say why not", a)
		}
	}
	if why, lacks := t.bench.Lacks[FarEnd]; lacks {
		st.Peer, st.NoLink = nobody{t, why}, func() { t.desert("the link does not come up: " + why) }
	}
	return st
}

// provides tells whether a station has the function that an ability is about, if there
// is one.
func provides(s *rig.Station, a Ability) bool {
	switch a {
	case LinkControl:
		return s.SetLink != nil
	case WireFaults:
		return s.SetFaults != nil
	case Unplug:
		return s.Unplug != nil
	case Hang:
		return s.Hang != nil
	case ModeChange:
		return s.SetMode != nil
	}
	return true
}

// net runs the driver on a new device, with the link up. The check is not
// applicable if the device lacks a feature that it needs.
func (t *c) net(o on) *rig.Net {
	o.Options.Memory = t.bench.Memory
	if o.Options.Deadline == 0 {
		o.Options.Deadline = t.deadline()
	}
	if o.Quirks == nil {
		o.Quirks = t.bench.Quirks
	}
	o.Options.Context = t.waiting
	st := t.station(o.Setup)
	start := !o.Stopped && !o.Detached
	o.Stopped = o.Stopped || start
	n := rig.On(t, t.bench.Driver, st, o.Options)
	if o.Detached {
		return n
	}
	if st.MaxFrame > 0 {
		n.Info.MaxMTU = min(n.Info.MaxMTU, st.MaxFrame-ethernetHeader) // longer ones nobody would see
	}
	if lacks := t.check.features &^ n.Info.Features; lacks != 0 {
		t.notApplicable("%s does not offer %v", n.Info.Model, lacks)
	}
	if start {
		n.Start()
		n.WaitLink(true)
		t.settle(n)
	}
	return n
}

// ethernetHeader is the length of an Ethernet header without a tag.
const ethernetHeader = 14

// settle has all arrive that was under way before the check, in either direction,
// where the wire is not the kit's alone.
func (t *c) settle(n *rig.Net) {
	if n.Own == nil {
		return
	}
	n.Inject(marker)
	n.Until("the first frame", func() bool {
		for q := range n.Queues.Rx {
			if len(n.Poll(q)) > 0 {
				return true
			}
		}
		return false
	})
	t.flushLate(n)
	for v := range n.Config.Interrupts.Vectors {
		n.Events[v].Take()
		n.Device.Interrupt(v)
		if n.Config.Interrupts.Kind == bus.INTx {
			t.must(n.Bus.UnmaskInterrupt(v))
		}
		n.Device.Unmask(v)
	}
}
