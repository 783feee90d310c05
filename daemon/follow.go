package daemon

import (
	"context"
	"fmt"
	"time"

	"nicd/framework"
	"nicd/framework/engine"
)

// follow reacts to what happens to a running interface by itself, until its
// engine is detached or dies.
func (i *netInterface) follow() {
	i.replan("the port's needs changed while it started")
	events := i.control.Events()
	i.followers.Go(func() {
		for e := range events {
			i.handle(e)
		}
	})
	if i.process == nil {
		return
	}
	died := i.process.Died()
	i.watchers.Go(func() {
		if err, ok := <-died; ok {
			i.fail(err.Error())
		}
	})
}

func (i *netInterface) handle(e engine.Event) {
	if !i.is(running) {
		return // links go down when the wire goes
	}
	switch e.Kind {
	case engine.LinkEvent:
		i.setLink(e.Link)
		i.replan("the link changed")
	case engine.ModeEvent:
		ctx, cancel := context.WithTimeout(context.Background(), changePatience)
		info, err := i.control.Info(ctx)
		cancel()
		if err == nil {
			i.mu.Lock()
			i.info = info
			i.mu.Unlock()
			i.replan("the device's mode changed")
		}
	case engine.QueueReset:
		i.reports.Warn().Int("queue", e.Queue).Str("reason", e.Reason).Msg("queue was reset")
	case engine.DeviceReset:
		i.reports.Warn().Str("reason", e.Reason).Msg("device was reset")
	case engine.DeviceLost:
		i.fail("device lost: " + e.Reason)
	}
}

// changePatience is how long a driver gets to change what runs.
const changePatience = 10 * time.Second

// setLink tells the port of the link. That of an interface that does not run is
// down.
func (i *netInterface) setLink(l framework.Link) {
	i.linkMu.Lock()
	defer i.linkMu.Unlock()
	i.mu.Lock()
	if i.state != running {
		l = framework.Link{}
	}
	changed := i.link != l
	i.link = l
	i.mu.Unlock()
	if !changed {
		return
	}
	state := "down"
	if l.Up {
		state = "up"
	}
	i.reports.Info().Str("link", state).Int("mbps", l.Mbps).Msg("link changed")
	i.port.LinkChanged(l)
}

// replan resolves again after a fact about the device changed, and changes what
// runs if the outcome is another.
func (i *netInterface) replan(why string) {
	i.changing.Lock()
	defer i.changing.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), changePatience)
	defer cancel()
	after, err := i.outcome(i.wish)
	if err != nil {
		i.reports.Error().Err(err).Msg("resolving quirks and features again")
		return
	}
	before := i.inForce()
	if before.same(after) {
		i.enforce(after) // for its reasons
		return
	}
	effect, err := i.apply(ctx, after)
	if err != nil {
		i.reports.Error().Err(err).Msg("changing features")
		return
	}
	i.reports.Info().Str("because", why).Stringer("effect", effect).
		Str("features", after.plan.Features.String()).Stringer("lro", after.plan.LRO).Msg("features changed")
}

// describeInterrupts is the plan's interrupts in words.
func describeInterrupts(p *engine.Plan) string {
	v := p.Interrupts
	if v.Vectors == 1 {
		return fmt.Sprintf("%s, 1 vector", v.Kind)
	}
	return fmt.Sprintf("%s, %d vectors", v.Kind, v.Vectors)
}
