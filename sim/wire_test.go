package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
)

func numbered(i int) Frame {
	b := make([]byte, 100)
	binary.BigEndian.PutUint32(b[20:], uint32(i))
	return FrameOf(b)
}

func number(b []byte) int { return int(binary.BigEndian.Uint32(b[20:])) }

// collect reads frames until n have come.
func collect(t *testing.T, e *Tester, n int) (got []int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for len(got) < n {
		r, err := e.Next(ctx)
		if err != nil {
			t.Fatalf("%d of %d frames came", len(got), n)
		}
		got = append(got, number(r.Bytes))
	}
	return got
}

func sendNumbered(t *testing.T, e *Tester, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for i := range n {
		if err := e.Send(ctx, numbered(i)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestHubDeliversToAllOthers(t *testing.T) {
	w := NewWire(WireOptions{})
	defer w.Close()
	a, b, c := NewTester(w, Wants{}), NewTester(w, Wants{Segment: true}), NewTester(w, Wants{})
	c.Limit = 1 // with three ends nobody is paused
	f := newTSO(rand.New(rand.NewPCG(1, 1)), false, false, 3000, 1400)
	if n := a.Port().Send([]Frame{f, numbered(1)}); n != 2 {
		t.Fatalf("%d taken", n)
	}
	if a.Drain() != 0 || b.Drain() != 2 || c.Drain() != 1 {
		t.Error("not delivered to all others, or to the sender")
	}
}

func TestLinkDown(t *testing.T) {
	w := NewWire(WireOptions{})
	defer w.Close()
	a, b := NewTester(w, Wants{}), NewTester(w, Wants{})
	if !a.Link() {
		t.Error("link is down at first")
	}
	w.SetLink(false)
	sendNumbered(t, a, 3)
	if a.Link() || b.Drain() != 0 || a.Port().Stats().LinkDown != 3 {
		t.Errorf("stats %+v", a.Port().Stats())
	}
	w.SetLink(true)
	sendNumbered(t, a, 3)
	if b.Drain() != 3 {
		t.Error("nothing comes after link up")
	}
}

func TestDisconnect(t *testing.T) {
	w := NewWire(WireOptions{})
	defer w.Close()
	a, b := NewTester(w, Wants{}), NewTester(w, Wants{})
	b.Limit = 1
	done := make(chan error, 1)
	go func() { done <- a.Send(t.Context(), numbered(0), numbered(1), numbered(2)) }()
	collect(t, b, 1)
	w.Disconnect(b.Port())
	if err := <-done; err != nil { // nobody is left who could pause it
		t.Fatal(err)
	}
	b.Drain()
	sendNumbered(t, a, 3)
	sendNumbered(t, b, 3)
	if a.Drain()+b.Drain() != 0 || b.Link() || !a.Link() || b.Port().Stats().LinkDown != 3 {
		t.Error("still connected")
	}
	c := NewTester(w, Wants{})
	sendNumbered(t, a, 3)
	if c.Drain() != 3 {
		t.Error("the next end gets nothing")
	}
}

// TestDisconnectInTheMiddle: an end that holds up a sender in the middle of a frame is
// taken off. The sender is free, and the next end gets all that is sent from then on.
func TestDisconnectInTheMiddle(t *testing.T) {
	for _, faults := range []Faults{{}, {Delay: time.Microsecond}} {
		w := NewWire(WireOptions{Faults: faults})
		a, b := NewTester(w, Wants{}), NewTester(w, Wants{})
		b.Limit = 5
		rng := rand.New(rand.NewPCG(3, 1))
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		done := make(chan error, 1)
		go func() { done <- a.Send(ctx, newTSO(rng, false, false, 60_000, 1000)) }()
		collect(t, b, 1)
		w.Disconnect(b.Port())
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if faults.none() {
			c := NewTester(w, Wants{})
			sendNumbered(t, a, 3)
			if got := collect(t, c, 3); !slices.Equal(got, []int{0, 1, 2}) {
				t.Errorf("the next end got %v", got)
			}
		}
		w.SetFaults(Faults{})
		for l := a.port.line.Load(); l != nil && l.active(); { // what is left is for nobody
			if ctx.Err() != nil {
				t.Fatal("the line waits for who is not there any more")
			}
			runtime.Gosched()
		}
		cancel()
		w.Close()
	}
}

func TestLinkDownEndsAPause(t *testing.T) {
	w := NewWire(WireOptions{})
	defer w.Close()
	a, b := NewTester(w, Wants{}), NewTester(w, Wants{})
	b.Limit = 1
	done := make(chan error, 1)
	go func() { done <- a.Send(t.Context(), numbered(0), numbered(1)) }()
	collect(t, b, 1)
	w.SetLink(false)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestPausedSegmentsGoOnWhereTheyStopped(t *testing.T) {
	w := NewWire(WireOptions{})
	defer w.Close()
	a, b := NewTester(w, Wants{}), NewTester(w, Wants{})
	b.Limit = 5
	f := newTSO(rand.New(rand.NewPCG(2, 1)), false, false, 60_000, 1000)
	done := make(chan error, 1)
	go func() { done <- a.Send(t.Context(), f, numbered(7)) }()
	var s Segmenter
	for i := 0; i < 60; {
		segs := s.Cut(&f, i, true)
		for j := range segs {
			r, err := b.Next(t.Context())
			if err != nil || !bytes.Equal(r.Bytes, flat(&segs[j])) {
				t.Fatalf("segment %d: %v", i+j, err)
			}
		}
		i += len(segs)
	}
	if got := collect(t, b, 1); got[0] != 7 {
		t.Error("the frame behind")
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if b.Drain() != 0 {
		t.Error("too many frames")
	}
}

func TestNoFlowControlDrops(t *testing.T) {
	w := NewWire(WireOptions{NoFlowControl: true})
	defer w.Close()
	a, b := NewTester(w, Wants{}), NewTester(w, Wants{})
	b.Limit = 2
	sendNumbered(t, a, 5)
	if b.Drain() != 2 || a.Port().Stats().Paused != 0 {
		t.Error("paused without flow control")
	}
}

// faulty sends n numbered frames over a wire with faults and returns what came
// and the sender's statistics.
func faulty(t *testing.T, n int, f Faults, lost func(PortStats) int) ([]int, PortStats) {
	w := NewWire(WireOptions{Faults: f})
	defer w.Close()
	a, b := NewTester(w, Wants{}), NewTester(w, Wants{})
	sendNumbered(t, a, n)
	s := a.Port().Stats()
	return collect(t, b, n+lost(s)), s
}

func TestFaultsFollowTheSeed(t *testing.T) {
	const n = 2000
	extra := func(s PortStats) int { return int(s.Doubled) - int(s.Lost) }
	for _, f := range []Faults{{Lose: 0.1}, {Duplicate: 0.1}, {Lose: 0.05, Duplicate: 0.05}} {
		f.Seed = 99
		t.Logf("seed %d", f.Seed)
		x, s := faulty(t, n, f, extra)
		y, _ := faulty(t, n, f, extra)
		if !slices.Equal(x, y) {
			t.Errorf("%+v: the same seed, other frames", f)
		}
		f.Seed++
		if z, _ := faulty(t, n, f, extra); slices.Equal(x, z) {
			t.Errorf("%+v: another seed, the same frames", f)
		}
		if !slices.IsSorted(x) {
			t.Errorf("%+v: reordered", f)
		}
		for what, got := range map[string][2]float64{"lost": {f.Lose, float64(s.Lost)}, "doubled": {f.Duplicate, float64(s.Doubled)}} {
			if d := got[1] - n*got[0]; d > 80 || d < -80 {
				t.Errorf("%s %v of %d", what, got[1], n)
			}
		}
	}
}

// TestArriving: what was on its way to a port is what all others sent.
func TestArriving(t *testing.T) {
	w := NewWire(WireOptions{Faults: Faults{Seed: 3, Lose: 1}})
	defer w.Close()
	a, b, c := NewTester(w, Wants{}), NewTester(w, Wants{}), NewTester(w, Wants{})
	sendNumbered(t, a, 5)
	sendNumbered(t, b, 2)
	for n, p := range map[uint64]*Port{2: a.Port(), 5: b.Port(), 7: c.Port()} {
		if got := p.Arriving(); got.Frames != n || got.Lost == 0 {
			t.Errorf("%+v, want %d frames, all lost", got, n)
		}
	}
}

func TestReorder(t *testing.T) {
	const n = 1000
	x, s := faulty(t, n, Faults{Seed: 5, Reorder: 0.1}, func(PortStats) int { return 0 })
	if slices.IsSorted(x) || s.Reordered < 50 {
		t.Fatalf("in order; %+v", s)
	}
	for i, v := range x {
		if v-i > 8 || i-v > 40 {
			t.Errorf("frame %d came as number %d", v, i)
		}
	}
	slices.Sort(x)
	for i, v := range x {
		if i != v {
			t.Fatal("frames lost or doubled")
		}
	}
}

func TestCorruptFlipsOneBit(t *testing.T) {
	w := NewWire(WireOptions{Faults: Faults{Seed: 3, Corrupt: 1}})
	defer w.Close()
	a, b := NewTester(w, Wants{Partial: true}), NewTester(w, Wants{Partial: true})
	f := newTSO(rand.New(rand.NewPCG(1, 1)), false, false, 900, 1000)
	if err := a.Send(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	r, err := b.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var s Segmenter
	want, diff := flat(&s.Cut(&f, 0, true)[0]), 0
	for i := range want {
		for x := want[i] ^ r.Bytes[i]; x != 0; x &= x - 1 {
			diff++
		}
	}
	if diff != 1 || r.Frame.Flags != 0 {
		t.Errorf("%d bits differ, flags %v", diff, r.Frame.Flags)
	}
}

func TestDelay(t *testing.T) {
	clock := &ManualClock{}
	w := NewWire(WireOptions{Faults: Faults{Delay: 5 * time.Millisecond}, Clock: clock})
	defer w.Close()
	a, b := NewTester(w, Wants{}), NewTester(w, Wants{})
	sendNumbered(t, a, 1)
	clock.Advance(3 * time.Millisecond)
	if err := a.Send(t.Context(), numbered(1)); err != nil {
		t.Fatal(err)
	}
	if b.Drain() != 0 {
		t.Fatal("too early")
	}
	clock.Advance(2 * time.Millisecond)
	if got := collect(t, b, 1); got[0] != 0 || b.Drain() != 0 {
		t.Fatal("not the first alone")
	}
	clock.Advance(3 * time.Millisecond)
	if got := collect(t, b, 1); got[0] != 1 {
		t.Fatal("not the second")
	}
}

func TestFaultsComeAndGoInOrder(t *testing.T) {
	w := NewWire(WireOptions{})
	defer w.Close()
	a, b := NewTester(w, Wants{}), NewTester(w, Wants{})
	b.Limit = 10
	done := make(chan error, 1)
	const n = 3000
	go func() {
		for i := range n {
			if i%100 == 0 {
				w.SetFaults(Faults{Delay: time.Duration(i/100%2) * 100 * time.Microsecond})
			}
			if err := a.Send(t.Context(), numbered(i)); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for i, v := range collect(t, b, n) {
		if i != v {
			t.Fatalf("frame %d came as number %d", v, i)
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestFullLinePausesTheSender(t *testing.T) {
	clock := &ManualClock{}
	w := NewWire(WireOptions{Faults: Faults{Delay: time.Millisecond}, Clock: clock})
	defer w.Close()
	a, b := NewTester(w, Wants{}), NewTester(w, Wants{})
	frames := make([]Frame, lineCapacity+100)
	for i := range frames {
		frames[i] = numbered(i)
	}
	if n := a.Port().Send(frames); n != lineCapacity {
		t.Fatalf("%d taken", n)
	}
	clock.Advance(time.Millisecond)
	collect(t, b, lineCapacity)
	done := make(chan error, 1)
	go func() { done <- a.Send(t.Context(), frames[lineCapacity:]...) }()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	clock.Advance(time.Millisecond)
	for i, v := range collect(t, b, 100) {
		if v != lineCapacity+i {
			t.Fatal("wrong frame")
		}
	}
}

func TestSum(t *testing.T) {
	const seed = 11
	rng := rand.New(rand.NewPCG(seed, 0))
	for n := range 300 {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32()) | byte(0xff*(n&1))
		}
		s := uint16(rng.Uint32())
		if got, want := sum(s, b), uint16(naive(uint32(s), b)); !same(got, want) {
			t.Fatalf("seed %d, %d bytes: %#x, want %#x", seed, n, got, want)
		}
		var parts [][]byte
		for rest := b; len(rest) > 0; {
			k := min(len(rest), 1+rng.IntN(9))
			parts = append(parts, rest[:k])
			rest = rest[k:]
		}
		if n < 3 {
			continue
		}
		from := rng.IntN(n - 1)
		k := 1 + rng.IntN(n-from-1)
		if got, want := sumParts(s, parts, from, k), uint16(naive(uint32(s), b[from:from+k])); !same(got, want) {
			t.Fatalf("seed %d, parts of %d from %d: %#x, want %#x", seed, n, from, got, want)
		}
	}
}

func ExampleWire() {
	w := NewWire(WireOptions{})
	defer w.Close()
	a, b := NewTester(w, Wants{}), NewTester(w, Wants{})
	a.Port().Send([]Frame{FrameOf([]byte("a frame"))})
	r, _ := b.TryNext()
	fmt.Printf("%s\n", r.Bytes)
	// Output: a frame
}

// TestSegmentsComeOnceWhateverTheWireDoes: a wire that begins and ceases to delay
// while a receiver of little room holds up a sender in the middle of frames loses,
// repeats and reorders nothing.
func TestSegmentsComeOnceWhateverTheWireDoes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	w := NewWire(WireOptions{})
	defer w.Close()
	a, b := NewTester(w, Wants{}), NewTester(w, Wants{})
	b.Limit = 1 + rng.IntN(20)
	var frames []Frame
	var want [][]byte
	for i := range 300 {
		f := numbered(i)
		if rng.IntN(3) > 0 {
			f = newTSO(rng, rng.IntN(2) == 0, false, 1+rng.IntN(40_000), 1000)
		}
		frames = append(frames, f)
		var s Segmenter
		for n, total := 0, s.Count(&f); n < total; {
			segs := s.Cut(&f, n, true)
			n += len(segs)
			for j := range segs {
				want = append(want, flat(&segs[j]))
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- a.Send(ctx, frames...) }()
	for i := range want {
		r, err := b.Next(ctx)
		if err != nil || !bytes.Equal(r.Bytes, want[i]) {
			t.Fatalf("frame %d of %d: %v", i, len(want), err)
		}
		if rng.IntN(20) == 0 {
			w.SetFaults(Faults{Delay: time.Duration(rng.IntN(2)*rng.IntN(100)) * time.Microsecond})
		}
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if n := b.Drain(); n != 0 {
		t.Errorf("%d frames too many", n)
	}
}
