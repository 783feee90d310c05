package soak

import (
	"context"

	"nicd/daemon"
)

// load is TCP through a daemon's interfaces.
type load interface {
	// start begins, and returns when all of it moves.
	start(ctx context.Context) error
	// progress is how far each stream is. Any goroutine may ask.
	progress() []daemon.Progress
	// lost lists streams that have ended by themselves.
	lost() []string
	// retransmits are those of each stream's sender, as far as it is known.
	retransmits() []uint64
	// stop ends it for good. It may be called twice.
	stop()
}

// netstackLoad is the config's streams, between netstack ports.
type netstackLoad struct{ *daemon.Daemon }

func (l netstackLoad) start(ctx context.Context) error { return l.AwaitStreams(ctx) }
func (l netstackLoad) progress() []daemon.Progress     { return l.Progress() }
func (l netstackLoad) lost() []string                  { return nil } // the audit says so
func (l netstackLoad) stop()                           { l.StopStreams() }

func (l netstackLoad) retransmits() (list []uint64) {
	for _, s := range l.Status().Streams {
		list = append(list, s.Retransmits)
	}
	return list
}
