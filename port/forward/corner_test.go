package forward

import (
	"testing"
	"time"

	"nicd/framework"
)

// A destination of zeros is an address that nobody has: it is flooded, however new
// the table is, and after a port's addresses were forgotten.
func TestZeroIsNoAddress(t *testing.T) {
	a, b, c := newNIC(t, 1500, 2048, 200), newNIC(t, 1500, 2048, 200), newNIC(t, 1500, 2048, 200)
	_, ports := bridge(t, Options{}, a, b, c)
	zero := frame(0, 2)
	clear(zero[:6])
	for range 2 {
		b.receive(ports[1], 0, nil, zero)
		if got := len(a.take()) + len(c.take()); got != 2 {
			t.Errorf("%d copies", got)
		}
		ports[1].LinkChanged(framework.Link{})
		ports[1].LinkChanged(framework.Link{Up: true})
	}
}

// A queue whose batch began in the last second looks at what another has learned in
// this one: the entry is new, not as old as time.
func TestEntryFromTheNextSecond(t *testing.T) {
	table := newTable(ways, 300)
	for address := uint64(1); address < ways; address++ {
		table.learn(address, 3, 50)
	}
	table.learn(ways, 4, 100)
	if port, ok := table.lookup(ways, 99); !ok || port != 4 {
		t.Errorf("port %d, %v", port, ok)
	}
	if got := table.size(99); got != ways {
		t.Errorf("%d entries", got)
	}
	table.learn(9, 5, 99) // the oldest gives way
	if port, ok := table.lookup(ways, 100); !ok || port != 4 {
		t.Error("the newest gave way")
	}
	table.learn(ways, 4, 99)
	if _, ok := table.lookup(ways, 400); !ok {
		t.Error("an entry became older by being seen")
	}
}

// Queues that have nothing to send hold no buffers that others could send with.
func TestIdleQueuesHoldNoBuffers(t *testing.T) {
	in, out := newNIC(t, 1500, 2048, 400), newNIC(t, 1500, 2048, 2*buffersAtHand)
	b, ports := bridge(t, Options{}, in, out)
	for queue := range 8 {
		in.receive(ports[0], queue, nil, frame(2, 1))
		out.census()
	}
	if s := b.Stats(); len(out.take()) != 8 || s.Full != 0 {
		t.Errorf("%+v", s)
	}
	out.full = true
	in.receive(ports[0], 0, nil, frame(2, 1), frame(2, 1))
	out.census()
	if s := b.Stats(); s.Full != 2 {
		t.Errorf("%+v", s)
	}
}

// An address that was silent for as long as ageing takes is looked for everywhere.
func TestAgeing(t *testing.T) {
	c := clock{time.Unix(1000, 0)}
	a, b, d := newNIC(t, 1500, 2048, 200), newNIC(t, 1500, 2048, 200), newNIC(t, 1500, 2048, 200)
	_, ports := bridge(t, Options{Age: 10 * time.Second, Now: func() time.Time { return c.now }}, a, b, d)
	a.receive(ports[0], 0, nil, frame(9, 1))
	for _, step := range []struct {
		wait time.Duration
		want int // copies
	}{{10 * time.Second, 1}, {11 * time.Second, 2}} {
		b.take()
		d.take()
		a.take()
		c.now = time.Unix(1000, 0).Add(step.wait)
		b.receive(ports[1], 0, nil, frame(1, 7))
		if got := len(a.take()) + len(d.take()); got != step.want {
			t.Errorf("after %v: %d copies", step.wait, got)
		}
	}
}
