package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"nicd/bus"
	"nicd/framework"
	"nicd/internal/schedstat"
)

// wellKnown are the errors that keep their identity on the way from a driver to
// nicd.
var wellKnown = []struct {
	err  error
	code codes.Code
}{
	{framework.ErrNotOurs, codes.NotFound},
	{framework.ErrUnsupported, codes.OutOfRange},
	{framework.ErrDevice, codes.Internal},
	{bus.ErrGone, codes.DataLoss},
	{context.DeadlineExceeded, codes.DeadlineExceeded},
	{context.Canceled, codes.Canceled},
}

// toStatus is an error on its way to nicd.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	for _, w := range wellKnown {
		if errors.Is(err, w.err) {
			return status.Error(w.code, err.Error())
		}
	}
	return status.Error(codes.Unknown, err.Error())
}

// remoteError is an error that a driver reported.
type remoteError struct {
	message string
	is      error
}

func (e *remoteError) Error() string { return e.message }
func (e *remoteError) Unwrap() error { return e.is }

// fromStatus is an error that came back from a plugin.
func fromStatus(err error) error {
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	r := &remoteError{message: shorten(s.Message()), is: err}
	for _, w := range wellKnown {
		if s.Code() == w.code {
			r.is = w.err
		}
	}
	return r
}

// exitNotice is how long after the connection broke the process's end is waited
// for, to tell why.
const exitNotice = 200 * time.Millisecond

// call does one RPC. It ends when ctx does, after the default time if ctx has
// no deadline, and when the process ends.
func (p *Process) call(ctx context.Context, op string, rpc func(context.Context) error) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultCallTimeout)
		defer cancel()
	}
	joined, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.life, cancel)()
	defer p.warnSlow(ctx, op)()
	limit := remaining(ctx)
	half := lookAtHalfTime(ctx, p.PID())
	defer half.timer.Stop()
	err := rpc(joined)
	switch {
	case err == nil:
		return nil
	case p.diedDuring(err):
		return p.exitError(op)
	case errors.Is(ctx.Err(), context.DeadlineExceeded), pluginTimedOut(ctx, err):
		return &Error{Plugin: p.name, PID: p.PID(), Op: op, Err: ErrTimeout,
			Detail: fmt.Sprintf("%s: it was given %v", half.why(), limit)}
	case ctx.Err() != nil:
		return &Error{Plugin: p.name, PID: p.PID(), Op: op, Err: ctx.Err()}
	}
	return &Error{Plugin: p.name, PID: p.PID(), Op: op, Err: fromStatus(err)}
}

// remaining is how much time ctx leaves, as people say it.
func remaining(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return max(time.Until(end), 0).Round(100 * time.Millisecond) // a timer may come late
}

// warnSlow has the log say that op is being waited for if that takes long, and
// until when. What it returns ends that.
func (p *Process) warnSlow(ctx context.Context, op string) (answered func() bool) {
	return time.AfterFunc(p.slowAfter, func() {
		p.log.Warn().Str("operation", op).Dur("waited_ms", p.slowAfter).
			Msgf("the driver has not answered yet; nicd waits for %v more", remaining(ctx))
	}).Stop
}

// halfTime is a look at a process when half of the time for an answer is gone. What
// the process did after that tells why there is none.
type halfTime struct {
	pid   int
	look  atomic.Pointer[schedstat.Process]
	timer *time.Timer
}

// lookAtHalfTime starts the clock. Its timer has to be stopped.
func lookAtHalfTime(ctx context.Context, pid int) *halfTime {
	h := &halfTime{pid: pid}
	end, _ := ctx.Deadline()
	h.timer = time.AfterFunc(time.Until(end)/2, func() {
		look := schedstat.Look(pid)
		h.look.Store(&look)
	})
	return h
}

// why says, when time is up, why there is no answer.
func (h *halfTime) why() string {
	was := h.look.Load()
	if was == nil {
		return "it hangs, or the machine is too busy for it"
	}
	use := schedstat.Look(h.pid).Since(*was)
	switch {
	case use.Stopped:
		return use.String()
	case use.Starved():
		return fmt.Sprintf("the machine is too busy for it (%v)", use)
	}
	return fmt.Sprintf("it hangs (%v)", use)
}

// pluginTimedOut tells whether the plugin gave up because time is up, which it
// can notice before this end does.
func pluginTimedOut(ctx context.Context, err error) bool {
	const margin = 100 * time.Millisecond
	end, ok := ctx.Deadline()
	code := status.Code(err)
	return ok && time.Until(end) < margin && (code == codes.Canceled || code == codes.DeadlineExceeded)
}

// diedDuring tells whether an RPC failed because the process ended.
func (p *Process) diedDuring(err error) bool {
	if status.Code(err) == codes.Unavailable {
		select {
		case <-p.proc.exited:
		case <-time.After(exitNotice):
		}
	}
	return p.hasExited()
}

// protocolOf reads the protocol's version from go-plugin's handshake line,
// CORE|APP|NETWORK|ADDRESS|PROTOCOL|CERTIFICATE.
func protocolOf(line string) (string, bool) {
	parts := strings.Split(line, "|")
	if len(parts) < 5 || parts[0] != fmt.Sprint(1) || parts[4] != "grpc" {
		return "", false
	}
	return parts[1], true
}
