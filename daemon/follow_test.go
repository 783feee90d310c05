package daemon

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"nicd/framework"
	"nicd/framework/engine"
)

func (p *fakePort) LinkChanged(framework.Link) {}

// TestEventsWithoutEnd: a driver that reports the same thing over and over does not
// fill the log with it, and what happened last is what nicd goes by.
func TestEventsWithoutEnd(t *testing.T) {
	i, _, _ := changeable(t, "a")
	book := &logBook{}
	i.log = zerolog.New(book)
	i.reports = reportsTo(i.log)
	const events = 20 * reportBurst
	for n := range events {
		i.handle(engine.Event{Kind: engine.QueueReset, Reason: "again"})
		i.handle(engine.Event{Kind: engine.DeviceReset, Reason: "again"})
		i.handle(engine.Event{Kind: engine.LinkEvent, Link: framework.Link{Up: n%2 == 0, Mbps: n}})
	}
	if n := strings.Count(book.String(), "\n"); n == 0 || n > 3*reportBurst {
		t.Errorf("%d records of %d events", n, 3*events)
	}
	if l := i.currentLink(); l.Mbps != events-1 {
		t.Errorf("the link is %+v", l)
	}
}
