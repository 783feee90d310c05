package plugin

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"nicd/framework"
	"nicd/framework/engine"
)

// inlineRack is a rack whose engine, in this process, lets senders do its work.
func inlineRack(t *testing.T, n nic) (*rack, *driven) {
	t.Helper()
	r := newRack(t, n)
	control, err := Drive(t.Context(), bundledDriver(n.driver), r.dev, DriveConfig{
		Name: n.driver + "0", Memory: r.host.Memory(), Events: r.host.Events(), Generation: r.host.Generation(), Host: r.host,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = control.Detach(context.Background()) }) // of a test that fails
	r.run(t, control)
	info, err := control.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := planFor(info)
	p.InlineTx = true
	if effect, err := control.Change(t.Context(), p); err != nil || effect != framework.Live {
		t.Fatalf("%v, %v", effect, err)
	}
	return r, control.(*driven)
}

// TestInlineOverTheLink: one packet at a time needs a wake each, of a task that has
// gone to sleep after a round of its own or of a sender's.
func TestInlineOverTheLink(t *testing.T) {
	for _, n := range nics {
		t.Run(n.driver, func(t *testing.T) {
			r, control := inlineRack(t, n)
			r.exchange(t, 1000)
			if s := control.Counters(); s.Tx[0][engine.TxInlineRuns] == 0 {
				t.Error("no sender did anything")
			}
			if err := control.Detach(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestInlineSenders has many senders at work on the drivers and their models while
// settings change: live, with the queue quiesced, with the device reset. Nothing
// arrives twice or out of its sender's order, and every packet was sent or dropped
// with a reason.
func TestInlineSenders(t *testing.T) {
	for _, n := range nics {
		t.Run(n.driver, func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r, control := inlineRack(t, n)
			arrived := r.watchSenders(t)
			done := make(chan struct{})
			go func() {
				defer close(done)
				for burst := range bursts {
					r.sendBurst(control, burst)
				}
			}()
			changeAtRandom(t, control, rand.New(rand.NewPCG(seed, 1)), done)
			total := uint64(bursts * sendersAtOnce * inABurst)
			eventually(t, "packets are left over", func() bool {
				s := control.Counters()
				return s.Tx[0][engine.TxTaken] == total && s.Tx[0][engine.TxInFlight] == 0
			})
			if err := control.Detach(t.Context()); err != nil {
				t.Fatal(err)
			}
			s := control.Counters()
			if err := engine.Check(s); err != nil {
				t.Error(err)
			}
			if n := arrived(); n < s.Tx[0][engine.TxCompleted] || n > s.Tx[0][engine.TxPackets] {
				t.Errorf("%d packets arrived, %d were completed and %d given to the device", n, s.Tx[0][engine.TxCompleted], s.Tx[0][engine.TxPackets])
			}
			if s.Tx[0][engine.TxInlineRuns] == 0 || s.Tx[0][engine.TxTaskRuns] == 0 {
				t.Errorf("%d runs of senders, %d of the task", s.Tx[0][engine.TxInlineRuns], s.Tx[0][engine.TxTaskRuns])
			}
		})
	}
}

const (
	sendersAtOnce = 4
	bursts        = 20
	inABurst      = 100 // of each sender
)

// sendBurst has all senders at work, and then waits until what they have sent is
// taken: the task runs dry and falls asleep. With one processor it would keep up with
// senders that never rest, and leave them nothing to do.
func (r *rack) sendBurst(control *driven, burst int) {
	var senders sync.WaitGroup
	for who := range sendersAtOnce {
		senders.Go(func() { r.sendNumbered(who, burst) })
	}
	senders.Wait()
	sent := uint64((burst + 1) * sendersAtOnce * inABurst)
	for look := 0; look < 1000 && control.Counters().Tx[0][engine.TxTaken] < sent; look++ {
		time.Sleep(time.Millisecond)
	}
}

// watchSenders checks what arrives at the wire's other end, and counts it.
func (r *rack) watchSenders(t *testing.T) (arrived func() uint64) {
	ctx, cancel := context.WithCancel(context.Background())
	last, count := map[int]int{}, uint64(0)
	check := func(b []byte) {
		var who, number int
		if _, err := fmt.Sscanf(string(b[14:]), "sender %d packet %d.", &who, &number); err != nil {
			t.Errorf("a packet that nobody sent: %v", err)
		}
		if number <= last[who] {
			t.Errorf("packet %d of sender %d after %d", number, who, last[who])
		}
		last[who] = number
		count++
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			got, err := r.tester.Next(ctx)
			if err != nil {
				return
			}
			check(got.Bytes)
		}
	})
	t.Cleanup(cancel)
	return func() uint64 {
		cancel()
		reader.Wait()
		for got, ok := r.tester.TryNext(); ok; got, ok = r.tester.TryNext() {
			check(got.Bytes)
		}
		return count
	}
}

// sendNumbered is a sender.
func (r *rack) sendNumbered(who, burst int) {
	frame := frameOf(46) // 106 bytes
	for i := range inABurst {
		number := burst*inABurst + i + 1
		copy(frame[14:], fmt.Sprintf("sender %d packet %d.", who, number))
		var buf [1]framework.Buffer
		for r.host.Alloc(0, buf[:]) == 0 {
			time.Sleep(20 * time.Microsecond)
		}
		f := framework.Fragment{Buffer: buf[0], Len: uint32(len(frame))}
		copy(r.host.Buffers().Bytes(f), frame)
		b := framework.Batch{Packets: []framework.Packet{{Frags: 1, Len: f.Len}}, Frags: []framework.Fragment{f}}
		for r.host.Send(0, &b) == 0 {
			time.Sleep(20 * time.Microsecond)
		}
	}
}

// changeAtRandom changes settings until done.
func changeAtRandom(t *testing.T, control engine.Control, rnd *rand.Rand, done <-chan struct{}) {
	info, err := control.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for {
		select {
		case <-done:
			return
		case <-control.Events():
		case <-time.After(time.Duration(rnd.IntN(3000)) * time.Microsecond):
			p := planFor(info)
			p.InlineTx = rnd.IntN(4) > 0
			p.SpinMicros = 10 * rnd.IntN(2)
			p.Features = framework.TxChecksum & info.Features
			if rnd.IntN(2) == 0 {
				p.Features = 0
			}
			if rnd.IntN(6) == 0 {
				p.TxDescriptors /= 2
			}
			if _, err := control.Change(t.Context(), p); err != nil {
				t.Errorf("%+v: %v", p, err)
			}
		}
	}
}

// TestInlineIsNotForPlugins: what a plugin's engine cannot do is refused, not left
// out.
func TestInlineIsNotForPlugins(t *testing.T) {
	o, _ := options(t, "")
	r := newRack(t, nics[0])
	_, control := r.plug(t, o)
	info, err := control.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := planFor(info)
	p.InlineTx = true
	if err := control.Start(t.Context(), p); err == nil {
		t.Error("started")
	}
	p.InlineTx = false
	if err := control.Start(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	p.InlineTx = true
	if _, err := control.Effect(t.Context(), p); err == nil {
		t.Error("it would be changed")
	}
	if _, err := control.Change(t.Context(), p); err == nil {
		t.Error("changed")
	}
}
