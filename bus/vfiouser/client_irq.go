package vfiouser

import (
	"fmt"

	"nicd/bus"
)

// SetInterrupts passes the events' descriptors to the server. Vectors that stay
// in force keep what is pending, unless the server said that it can't add to
// those in force.
func (c *Client) SetInterrupts(kind bus.InterruptKind, events []*bus.Event) error {
	if int(kind) >= len(c.info.Vectors) || len(events) > c.info.Vectors[kind] {
		return fmt.Errorf("%s: %d vectors of %v: %w", c.info.Address, len(events), kind, bus.ErrNoInterrupt)
	}
	keep := kind == c.kind && len(events) >= c.vectors && c.resize[kind]
	if c.vectors > 0 && !keep {
		off := setIRQs{flags: irqDataNone | irqTrigger, index: uint32(c.kind)}
		if err := c.do(cmdSetIRQs, off.append, nil, 0); err != nil {
			return fmt.Errorf("%s: %v off: %w", c.info.Address, c.kind, err)
		}
		c.vectors = 0
	}
	for start := 0; start < len(events); {
		n := min(len(events)-start, max(c.peer.fds, 1))
		if err := c.assign(kind, start, events[start:start+n]); err != nil {
			return fmt.Errorf("%s: %v: %w", c.info.Address, kind, err)
		}
		start += n
		c.kind, c.vectors = kind, max(c.vectors, start)
	}
	return nil
}

func (c *Client) assign(kind bus.InterruptKind, start int, events []*bus.Event) error {
	fds := make([]int, len(events))
	for i, e := range events {
		fds[i] = int(e.File().Fd())
	}
	q := setIRQs{
		flags: irqDataEventFD | irqTrigger,
		index: uint32(kind),
		start: uint32(start),
		count: uint32(len(events)),
	}
	return c.do(cmdSetIRQs, q.append, fds, 0)
}

// UnmaskInterrupt re-enables INTx after it fired.
func (c *Client) UnmaskInterrupt(vector int) error {
	if c.kind != bus.INTx || c.vectors == 0 {
		return nil
	}
	if vector != 0 {
		return fmt.Errorf("%s: vector %d of INTx: %w", c.info.Address, vector, bus.ErrNoInterrupt)
	}
	q := setIRQs{flags: irqDataNone | irqUnmask, index: uint32(bus.INTx), count: 1}
	return c.named(c.do(cmdSetIRQs, q.append, nil, 0))
}
