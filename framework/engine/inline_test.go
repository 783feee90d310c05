package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"nicd/framework"
)

// asleep waits until a queue pair's task is idle.
func (r *rig) asleep(q int) {
	r.t.Helper()
	r.until("asleep", func() bool { return r.e.txTasks[q].state.Load() == idle })
}

// putters notes, of each packet, which goroutine gives it to the device.
func (r *rig) putters() (of func() []string) {
	var mu sync.Mutex
	var all []string
	r.dev.sent = func(int, []byte, framework.Packet) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, goroutine())
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), all...)
	}
}

// goroutine tells the caller's from others: "goroutine 7 ".
func goroutine() string {
	name, _, _ := strings.Cut(string(debug.Stack()), "[")
	return name
}

// byThis counts the packets that the calling goroutine put.
func byThis(putters []string) (n int) {
	for _, g := range putters {
		if g == goroutine() {
			n++
		}
	}
	return n
}

// TestInlineRunsInTheSender: a sender that finds the task asleep gives its packet to
// the device itself, before it returns. Told otherwise, while the device runs, it
// leaves that to the task; and back.
func TestInlineRunsInTheSender(t *testing.T) {
	for _, separate := range []bool{false, true} {
		r := newRig(t, 1, func(r *rig) {
			r.plan.InlineTx, r.dev.autoTx, r.opts.SeparateTasks = true, false, separate
		})
		putters := r.putters()
		r.start()
		sent, inline := 0, 0
		send := func(want bool) {
			t.Helper()
			r.asleep(0)
			r.up.frame(0, framework.Packet{}, 0, numbered(sent, 60))
			sent++
			if want {
				inline++
				if n := r.txCount(0, TxPackets); n != uint64(sent) {
					t.Errorf("%d packets are with the device, %d were sent", n, sent)
				}
			}
			r.until("with the device", func() bool { return r.txCount(0, TxPackets) == uint64(sent) })
			if n := byThis(putters()); n != inline {
				t.Errorf("%d of %d packets by the sender, want %d", n, sent, inline)
			}
			if n := r.txCount(0, TxInlineRuns); n != uint64(inline) {
				t.Errorf("counted %d runs of the sender, want %d", n, inline)
			}
		}
		send(true)
		send(true)
		p := r.plan
		for _, on := range []bool{false, true} {
			p.InlineTx = on
			if effect, err := r.e.Change(context.Background(), p); err != nil || effect != framework.Live {
				t.Fatalf("inline %v: %v, %v", on, effect, err)
			}
			send(on)
		}
		r.finish()
	}
}

// TestInlineShare: a sender does so much and no more; its task does the rest.
func TestInlineShare(t *testing.T) {
	r := newRig(t, 1, func(r *rig) { r.plan.InlineTx, r.plan.TxDescriptors, r.dev.autoTx = true, 1024, false })
	putters := r.putters()
	r.start()
	r.asleep(0)
	r.up.mu.Lock()
	wake := r.up.wakeTx[0]
	r.up.wakeTx[0] = nil
	r.up.mu.Unlock()
	const packets = inlineRounds*txBatch + 100
	for i := range packets {
		r.up.frame(0, framework.Packet{}, 0, numbered(i, 60))
	}
	wake()
	r.until("with the device", func() bool { return r.txCount(0, TxPackets) == packets })
	if n := byThis(putters()); n != inlineRounds*txBatch {
		t.Errorf("the sender did %d of %d packets", n, packets)
	}
	r.asleep(0)
	r.finish()
}

// senderInside is a rig with a sender that has queue 0's task on loan and stays there
// until leave is called, which waits for it to return.
func senderInside(t *testing.T, queues int, setup func(*rig)) (r *rig, leave func()) {
	t.Helper()
	var gate *gatedUpper
	r = newRig(t, queues, func(r *rig) {
		r.plan.InlineTx = true
		if setup != nil {
			setup(r)
		}
		gate = &gatedUpper{fakeUpper: r.up, inside: make(chan struct{}), leave: make(chan struct{})}
		r.above = gate
	})
	r.start()
	for q := range queues {
		r.asleep(q)
	}
	gate.shut.Store(true)
	var sender sync.WaitGroup
	sender.Go(func() { r.up.frame(0, framework.Packet{}, 0, numbered(1, 60)) })
	<-gate.inside
	return r, func() {
		close(gate.leave)
		sender.Wait()
	}
}

// gatedUpper has the next Take of queue 0 wait, once it is shut.
type gatedUpper struct {
	*fakeUpper
	shut          atomic.Bool
	inside, leave chan struct{}
}

func (u *gatedUpper) Take(q int, b *framework.Batch) {
	if q == 0 && u.shut.Swap(false) {
		close(u.inside)
		<-u.leave
	}
	u.fakeUpper.Take(q, b)
}

// TestInlineWaitsForNobody: a sender that finds another one at work leaves its packet
// to the task and returns; nobody goes to sleep over it.
func TestInlineWaitsForNobody(t *testing.T) {
	r, leave := senderInside(t, 1, nil)
	for i := range 10 {
		r.up.frame(0, framework.Packet{}, 0, numbered(2+i, 60)) // would never return if it waited
	}
	if s := r.e.txTasks[0].state.Load(); s != recalled {
		t.Errorf("state %d while a sender has the task", s)
	}
	leave()
	r.until("all sent", func() bool { return r.txCount(0, TxCompleted) == 11 })
	r.finish()
}

// TestLoanKeepsNothingMasked: a vector is unmasked although a sender has the task of
// one of its queues, and stays masked when that one has been recalled.
func TestLoanKeepsNothingMasked(t *testing.T) {
	r, leave := senderInside(t, 2, func(r *rig) {
		v := &r.plan.Interrupts
		v.Vectors, v.AdminVector, v.RxVector, v.TxVector = 1, 0, []int{0, 0}, []int{0, 0}
	})
	masked := func() bool {
		r.dev.mu.Lock()
		defer r.dev.mu.Unlock()
		return r.dev.masked[0]
	}
	r.until("unmasked", func() bool { return !masked() })
	r.dev.raiseAdmin(framework.Events{}) // an interrupt that names no queue
	r.until("it was handled", func() bool { return r.count(AdminInterrupts) == 1 })
	r.until("unmasked", func() bool { return !masked() })
	r.arrive(0, numbered(1, 60), framework.Packet{}, 0)
	r.until("recalled", func() bool { return r.e.rxTasks[0].state.Load() == recalled })
	for _, v := range r.e.vectors {
		v.release()
	}
	if !masked() {
		t.Error("unmasked before the task has looked")
	}
	leave()
	r.until("delivered", func() bool { return len(r.deliveries(0)) == 1 })
	r.until("unmasked", func() bool { return !masked() })
	r.finish()
}

// TestTokenFromBefore: a token in the task's channel that nobody waits for any more
// does not have its goroutine use queues that are a sender's.
func TestTokenFromBefore(t *testing.T) {
	r, leave := senderInside(t, 1, nil)
	task := r.e.txTasks[0]
	signal(task.wake)
	r.until("the goroutine has it", func() bool { return len(task.wake) == 0 })
	signal(task.wake) // when it has this, it is done with the first
	r.until("the goroutine has it", func() bool { return len(task.wake) == 0 })
	if s := task.state.Load(); s != lent {
		t.Errorf("state %d, want that of a loan", s)
	}
	leave()
	r.until("sent", func() bool { return r.txCount(0, TxCompleted) == 1 })
	r.finish()
}

// TestHaltWaitsForTheSender: nobody takes a queue away from under a sender, and no
// sender begins with one that is halted.
func TestHaltWaitsForTheSender(t *testing.T) {
	r, leave := senderInside(t, 1, nil)
	task, halted := r.e.txTasks[0], make(chan struct{})
	go func() {
		task.stop()
		close(halted)
	}()
	r.until("recalled", func() bool { return task.state.Load() == recalled })
	select {
	case <-halted:
		t.Error("the task was halted while a sender had its queue")
	default:
	}
	leave()
	<-halted
	runs := r.txCount(0, TxInlineRuns)
	r.up.frame(0, framework.Packet{}, 0, numbered(2, 60)) // it waits for the next start
	if n := r.txCount(0, TxInlineRuns); n != runs {
		t.Error("a sender ran a halted task")
	}
	task.start()
	r.until("all sent", func() bool { return r.txCount(0, TxCompleted) == 2 })
	r.finish()
}

// TestInlineWithoutInterrupts: completions that no interrupt tells of are looked for
// after a sender's round as after the task's, and senders do not put off the looking
// for packets received.
func TestInlineWithoutInterrupts(t *testing.T) {
	for _, vectors := range []int{0, 2} {
		r := newRig(t, 1, func(r *rig) {
			r.dev.mute, r.dev.autoTx, r.plan.InlineTx = true, false, true
			r.plan.Interrupts.TxVector = []int{-1}
			if vectors == 0 {
				r.plan.Interrupts = framework.VectorPlan{}
			}
		}).start()
		for i := range 20 {
			r.asleep(0)
			r.up.frame(0, framework.Packet{}, 0, numbered(i, 60))
			r.until("given to the device", func() bool { return r.txCount(0, TxPackets) == uint64(i+1) })
			r.dev.finish(0, 1)
			r.until("back", func() bool { return r.txCount(0, TxCompleted) == uint64(i+1) })
		}
		// Senders all the time, more often than the timer.
		stop := make(chan struct{})
		var sender sync.WaitGroup
		sender.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					r.up.frame(0, framework.Packet{}, 0, numbered(0, 60))
					r.dev.finish(0, 10)
					time.Sleep(10 * time.Microsecond)
				}
			}
		})
		for i := range 20 {
			r.arrive(0, numbered(i, 60), framework.Packet{}, 0)
		}
		r.until("all delivered", func() bool { return len(r.deliveries(0)) == 20 })
		close(stop)
		sender.Wait()
		if r.txCount(0, TxInlineRuns) == 0 {
			t.Error("no sender did anything")
		}
		r.finish()
	}
}

// TestInlineStress has many senders at work against all that can happen to a queue
// meanwhile, by a seed: interrupts, ticks, faults, watchdog kicks, quiesces, resets,
// changes of who sends. No packet is sent twice or out of its sender's order, every
// one is accounted for, and at the end, without a tick to help, nothing waits.
func TestInlineStress(t *testing.T) {
	inline := uint64(0)
	for range 4 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) { inline += inlineStress(t, seed) })
	}
	if inline == 0 {
		t.Error("the test reached nothing: no sender did anything")
	}
}

// inlineStress returns how often senders did the work.
func inlineStress(t *testing.T, seed uint64) (inline uint64) {
	const queues, senders, each = 2, 4, 3000
	rnd := rand.New(rand.NewPCG(seed, 7))
	r := newRig(t, queues, func(r *rig) {
		r.plan.InlineTx, r.plan.TxDescriptors = true, 64
		r.resettable = seed%2 == 0
		r.opts.SeparateTasks = seed%3 == 0
		if seed%5 == 0 { // one vector for all
			r.plan.Interrupts.Vectors, r.plan.Interrupts.AdminVector = 1, 0
			r.plan.Interrupts.RxVector, r.plan.Interrupts.TxVector = []int{0, 0}, []int{0, 0}
		}
	})
	r.up.record = false
	last := [queues * senders]uint32{}
	given := [queues]uint64{}
	r.dev.sent = func(q int, frame []byte, _ framework.Packet) { // under the device's lock
		who, number := binary.BigEndian.Uint32(frame[20:]), binary.BigEndian.Uint32(frame[24:])
		if int(who)/senders != q || number <= last[who] {
			t.Errorf("seed %d: queue %d sends packet %d of sender %d after %d", seed, q, number, who, last[who])
		}
		last[who] = number
		given[q]++
	}
	r.start()
	var all sync.WaitGroup
	var going atomic.Int32
	for who := range queues * senders {
		going.Add(1)
		all.Go(func() {
			defer going.Add(-1)
			frame := numbered(0, 60)
			binary.BigEndian.PutUint32(frame[20:], uint32(who))
			for number := uint32(1); number <= each; {
				binary.BigEndian.PutUint32(frame[24:], number)
				if r.up.frame(who/senders, framework.Packet{}, 0, frame) {
					number++
				} else {
					time.Sleep(10 * time.Microsecond)
				}
			}
		})
	}
	for step := 0; going.Load() > 0; step++ {
		r.disturb(rnd, step)
	}
	all.Wait()
	r.dev.mu.Lock()
	clear(r.dev.hangs)
	r.dev.autoTx = true
	if r.dev.running {
		for _, q := range r.dev.tx {
			q.finish(q.rung)
		}
	}
	r.dev.mu.Unlock()
	for q := range queues {
		r.until("all is accounted for", func() bool {
			return r.txCount(q, TxTaken) == senders*each && r.txCount(q, TxInFlight) == 0
		})
		s := r.e.Counters()
		if n := s.Tx[q][TxCompleted] + droppedTx(&s.Tx[q]); n != senders*each {
			t.Errorf("seed %d: %d packets sent or dropped on queue %d, want %d", seed, n, q, senders*each)
		}
		r.dev.mu.Lock()
		if s.Tx[q][TxPackets] != given[q] {
			t.Errorf("seed %d: %d packets counted, the device got %d", seed, s.Tx[q][TxPackets], given[q])
		}
		r.dev.mu.Unlock()
		inline += s.Tx[q][TxInlineRuns]
	}
	r.finish()
	return inline
}

// disturb does one of the things that happen to a queue while senders are at work.
func (r *rig) disturb(rnd *rand.Rand, step int) {
	q := rnd.IntN(len(r.e.tx))
	switch rnd.IntN(12) {
	case 0:
		r.tick <- time.Time{}
	case 1, 2, 3:
		r.dev.receive(q, numbered(step, 60), framework.Packet{}, 0)
	case 4, 5:
		r.dev.finish(q, rnd.IntN(64))
	case 6:
		r.dev.mu.Lock()
		r.dev.autoTx = !r.dev.autoTx
		r.dev.mu.Unlock()
	case 7:
		r.dev.mu.Lock()
		r.dev.hangs[q] = !r.dev.hangs[q]
		r.dev.mu.Unlock()
		r.clock.advance(time.Duration(rnd.IntN(3)) * time.Second)
	case 8:
		if rnd.IntN(4) == 0 {
			r.dev.raiseAdmin(framework.Events{QueueFault: 1 << q, DeviceFault: rnd.IntN(4) == 0})
		}
	case 9, 10:
		p := r.plan
		p.InlineTx = rnd.IntN(4) > 0
		p.SpinMicros = rnd.IntN(2) * 20
		p.MTU = 1000 + rnd.IntN(500)
		if rnd.IntN(8) == 0 {
			p.RxDescriptors = 64 + rnd.IntN(100)
		}
		if _, err := r.e.Change(context.Background(), p); err != nil {
			r.t.Errorf("step %d: %v", step, err)
		}
	case 11:
		if err := Check(r.e.Counters()); err != nil {
			r.t.Errorf("step %d: %v", step, err)
		}
		time.Sleep(time.Duration(rnd.IntN(200)) * time.Microsecond)
	}
}

// TestInlineAllocatesNothing: nor does it leave packets with anybody.
func TestInlineAllocatesNothing(t *testing.T) {
	up := &directUpper{back: make([]framework.Buffer, 0, 1024)}
	e, err := New(newFakeDevice(1), up, Options{Buffers: newBuffers(200), RxBuffers: []BufferRange{{0, 100}}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Detach(context.Background())
	e.plan = Plan{Settings: framework.Settings{MTU: 1500}, RxQueues: 1, TxQueues: 1, RxDescriptors: 64, TxDescriptors: 64}
	e.linkUp.Store(true)
	e.tx[0].start(&nullTx{}, 64)
	e.setRules(&e.plan)
	task := newTask(0, nil, e.tx[0])
	task.state.Store(idle)
	send := func() {
		for i := range 10 {
			f := framework.Fragment{Buffer: framework.Buffer(150 + i), Len: 60}
			up.taken.Packets = append(up.taken.Packets, framework.Packet{First: uint32(len(up.taken.Frags)), Frags: 1, Len: 60})
			up.taken.Frags = append(up.taken.Frags, f)
		}
		task.send()
		up.back = up.back[:0]
	}
	if n := testing.AllocsPerRun(200, send); n != 0 {
		t.Errorf("%v allocations a send", n)
	}
	if c := &e.tx[0].count; c[TxInlineRuns] != 201 || c[TxCompleted] != 2010 || task.state.Load() != idle {
		t.Errorf("%d runs, %d packets sent, state %d", c[TxInlineRuns], c[TxCompleted], task.state.Load())
	}
}
