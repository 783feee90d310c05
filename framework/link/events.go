package link

import (
	"os"

	"nicd/bus"
)

// Events wake the two ends: per queue one for the host and one for the engine.
// An end waits on its own and signals the other's.
type Events struct {
	Host, Engine []*bus.Event
}

// NewEvents makes events for so many queues.
func NewEvents(queues int) (Events, error) {
	var ev Events
	for range 2 * queues {
		e, err := bus.NewEvent()
		if err != nil {
			ev.Close()
			return Events{}, err
		}
		if len(ev.Host) < queues {
			ev.Host = append(ev.Host, e)
		} else {
			ev.Engine = append(ev.Engine, e)
		}
	}
	return ev, nil
}

// Close closes all events. Nobody may wait on them any more.
func (ev Events) Close() {
	for _, e := range ev.Host {
		e.Close()
	}
	for _, e := range ev.Engine {
		e.Close()
	}
}

// unjam lets go of who is held by an engine that made an event blocking.
func (ev Events) unjam() {
	for _, e := range ev.Host {
		e.Unjam()
	}
	for _, e := range ev.Engine {
		e.Unjam()
	}
}

// Files are the descriptors to pass to another process, the host's first. They
// stay the events'.
func (ev Events) Files() []*os.File {
	var files []*os.File
	for _, e := range ev.Host {
		files = append(files, e.File())
	}
	for _, e := range ev.Engine {
		files = append(files, e.File())
	}
	return files
}

// EventsOf takes over descriptors in the order of Files, of a host that is trusted
// not to make them blocking.
func EventsOf(fds []int) Events {
	var ev Events
	for i, fd := range fds {
		e := bus.OpenEvent(fd)
		e.TrustPeers()
		if i < len(fds)/2 {
			ev.Host = append(ev.Host, e)
		} else {
			ev.Engine = append(ev.Engine, e)
		}
	}
	return ev
}
