package matrix

import (
	"context"
	"time"

	"nicd/daemon"
)

// load is TCP through the two interfaces of a row. Figures are totals since its
// start. One goroutine uses it.
type load interface {
	// start begins, and returns when every stream moves. A stillError says that it
	// could begin, and not every stream moves.
	start(ctx context.Context) error
	received() uint64    // bytes, by the receiver's TCP
	retransmits() uint64 // by the sender's
	// cpu is the processor time of processes that the daemon does not know of.
	cpu() time.Duration
	// broken is why it ended by itself; nil while it runs.
	broken() error
	// stop ends it for good. It may be called twice, and without start.
	stop()
}

// stillError: streams that were started do not move.
type stillError struct{ error }

// netstackLoad is the config's streams, between TCP/IP stacks in the daemon's own
// process.
type netstackLoad struct{ daemon *daemon.Daemon }

func (l netstackLoad) cpu() time.Duration { return 0 }
func (l netstackLoad) broken() error      { return nil } // the daemon's audit says so
func (l netstackLoad) stop()              {}             // the daemon ends it

func (l netstackLoad) start(ctx context.Context) error {
	if err := l.daemon.AwaitStreams(ctx); err != nil {
		return stillError{err}
	}
	return nil
}

func (l netstackLoad) received() (sum uint64) {
	for _, p := range l.daemon.Progress() {
		sum += p.Bytes
	}
	return sum
}

// retransmits are those of any stream: all have one sender, whose total it is.
func (l netstackLoad) retransmits() (total uint64) {
	for _, s := range l.daemon.Status().Streams {
		total = s.Retransmits
	}
	return total
}
