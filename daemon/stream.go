package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"nicd/port/netstack"
)

const (
	// streamBlock is how much a stream's sender hands to TCP at once.
	streamBlock = 256 << 10
	// dialPatience is how long a stream tries to connect: a driver may still be
	// bringing up its link.
	dialPatience = 10 * time.Second
)

// stream is a TCP stream between two netstack ports: the sender sends as fast as
// TCP lets it, the receiver counts and throws away.
type stream struct {
	name, from, to string
	sender         *netstack.Port
	receiver       *netstack.Port

	received atomic.Uint64
	running  chan struct{} // closed when the first bytes have arrived
	ended    chan struct{} // closed when run has returned

	mu  sync.Mutex
	err error
}

func newStream(name, from, to string, sender, receiver *netstack.Port) *stream {
	return &stream{name: name, from: from, to: to, sender: sender, receiver: receiver,
		running: make(chan struct{}), ended: make(chan struct{})}
}

// run moves data until ctx ends or the stream breaks, and returns when both ends
// have stopped.
func (s *stream) run(ctx context.Context) {
	defer close(s.ended)
	err := s.move(ctx)
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	s.err = err
	s.mu.Unlock()
}

func (s *stream) move(ctx context.Context) error {
	at, err := s.address()
	if err != nil {
		return err
	}
	listener, err := s.receiver.Listen(netip.AddrPortFrom(at, 0))
	if err != nil {
		return fmt.Errorf("listen on %s: %w", s.to, err)
	}
	var ends sync.WaitGroup
	defer ends.Wait()
	stop := context.AfterFunc(ctx, func() { listener.Close() })
	defer stop()
	defer listener.Close()
	receive := make(chan error, 1)
	ends.Go(func() { receive <- s.receive(ctx, listener) })

	dialling, cancel := context.WithTimeout(ctx, dialPatience)
	conn, err := s.sender.Dial(dialling, netip.AddrPortFrom(at, uint16(listener.Addr().(*net.TCPAddr).Port)))
	cancel()
	if err != nil {
		return fmt.Errorf("connect from %s to %s: %w", s.from, s.to, err)
	}
	defer conn.Close()
	defer interrupt(ctx, conn)()
	block := make([]byte, streamBlock)
	for {
		if _, err := conn.Write(block); err != nil {
			return errors.Join(fmt.Errorf("send from %s: %w", s.from, err))
		}
	}
}

// interrupt makes reads and writes that wait return when ctx ends; closing the
// connection would not.
func interrupt(ctx context.Context, conn net.Conn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
}

// address is the receiver's address in a network that the sender has one in, too; if
// there is none, one of a family that the sender has, for its gateway.
func (s *stream) address() (netip.Addr, error) {
	var far netip.Addr
	for _, prefix := range s.receiver.Addresses() {
		switch own, ok := s.sender.Address(prefix.Addr()); {
		case ok && own.Masked() == prefix.Masked():
			return prefix.Addr(), nil
		case ok && !far.IsValid():
			far = prefix.Addr()
		}
	}
	if !far.IsValid() {
		return far, fmt.Errorf("%s and %s have no address family in common", s.from, s.to)
	}
	return far, nil
}

func (s *stream) receive(ctx context.Context, listener net.Listener) error {
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	defer interrupt(ctx, conn)()
	buf := make([]byte, streamBlock)
	for first := true; ; first = false {
		n, err := conn.Read(buf)
		if err != nil {
			return err
		}
		if s.received.Add(uint64(n)); first {
			close(s.running)
		}
	}
}

// state is "connecting", "running" or "failed" with a reason.
func (s *stream) state() (state, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil && !errors.Is(s.err, io.EOF) {
		return "failed", s.err.Error()
	}
	select {
	case <-s.running:
		return "running", ""
	default:
		return "connecting", ""
	}
}

// Progress is how far a stream is.
type Progress struct {
	Name  string
	Bytes uint64 // received, since the start
}

// Progress is how far each stream is, in the config's order. Any goroutine may
// ask, as often as it likes.
func (d *Daemon) Progress() []Progress {
	var list []Progress
	for _, s := range d.streams {
		list = append(list, Progress{s.name, s.received.Load()})
	}
	return list
}
