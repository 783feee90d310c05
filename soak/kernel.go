package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"nicd/config"
	"nicd/daemon"
	"nicd/internal/netspace"
)

// This file makes the load that the kernel's own TCP is: TAP ports instead of
// netstack ports, in two network namespaces, and streams between these. It needs
// root.

// pairs are the interfaces between which there is TCP, with their addresses.
var pairs = [][2]struct{ name, address string }{
	{{"vmx0", "10.78.0.1/24"}, {"em0", "10.78.0.2/24"}},
	{{"left", "10.78.1.1/24"}, {"right", "10.78.1.2/24"}},
}

// withTAPs gives a config TAP ports where it has netstack ports, and takes its
// streams away. The names are ones that no Linux interface has, with luck.
func withTAPs(c *config.Config) {
	c.Streams = nil
	tag := rand.Uint32() & 0xFFFF
	for n := range c.Interfaces {
		if i := &c.Interfaces[n]; i.Port.Netstack != nil {
			i.Port.Netstack, i.Port.TAP = nil, &config.TAPPort{Name: fmt.Sprintf("nk%04x%s", tag, i.Name)}
		}
	}
}

// kernelLoad is TCP of the kernel, both ways between each of the pairs.
type kernelLoad struct {
	config  *config.Config
	spaces  [2]*netspace.Space
	streams []*kernelStream
	ending  atomic.Bool
	joined  sync.WaitGroup
}

// kernelStream is one TCP connection; one end sends, the other counts.
type kernelStream struct {
	name     string
	received atomic.Uint64
	moving   chan struct{} // closed when the first bytes have arrived
	ends     [2]net.Conn

	mu   sync.Mutex
	fate error
}

func (l *kernelLoad) start(ctx context.Context) error {
	for n := range l.spaces {
		var err error
		if l.spaces[n], err = netspace.New(); err != nil {
			return err
		}
	}
	for _, p := range pairs {
		for n, end := range p {
			i, _ := l.config.Interface(end.name)
			if err := l.spaces[n].Take(i.Port.TAP.Name, end.address); err != nil {
				return fmt.Errorf("TAP device of %s: %w", end.name, err)
			}
		}
	}
	for _, p := range pairs {
		for _, from := range []int{0, 1} {
			s, err := l.connect(ctx, from, p[1-from].address)
			if err != nil {
				return fmt.Errorf("TCP from %s to %s: %w", p[from].name, p[1-from].name, err)
			}
			s.name = p[from].name + "-" + p[1-from].name
			l.streams = append(l.streams, s)
			l.joined.Go(func() { s.send(&l.ending) })
			l.joined.Go(func() { s.receive(&l.ending) })
		}
	}
	for _, s := range l.streams {
		select {
		case <-s.moving:
		case <-ctx.Done():
			return fmt.Errorf("stream %s moved no data: %w", s.name, context.Cause(ctx))
		}
	}
	return nil
}

// connect opens a connection from one namespace to an address in the other.
func (l *kernelLoad) connect(ctx context.Context, from int, address string) (*kernelStream, error) {
	s := &kernelStream{moving: make(chan struct{})}
	at := netip.AddrPortFrom(netip.MustParsePrefix(address).Addr(), 0)
	var listener *net.TCPListener
	err := l.spaces[1-from].Do(func() (err error) {
		listener, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		return err
	})
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	deadline, _ := ctx.Deadline()
	err = l.spaces[from].Do(func() (err error) {
		dialer := net.Dialer{Deadline: deadline}
		s.ends[0], err = dialer.Dial("tcp", listener.Addr().String())
		return err
	})
	if err != nil {
		return nil, err
	}
	_ = listener.SetDeadline(deadline)
	if s.ends[1], err = listener.Accept(); err != nil {
		s.ends[0].Close()
	}
	return s, err
}

const block = 256 << 10

func (s *kernelStream) send(ending *atomic.Bool) {
	data := make([]byte, block)
	for {
		if _, err := s.ends[0].Write(data); err != nil {
			s.end(err, ending)
			return
		}
	}
}

func (s *kernelStream) receive(ending *atomic.Bool) {
	data := make([]byte, block)
	for first := true; ; first = false {
		n, err := s.ends[1].Read(data)
		if err != nil {
			s.end(err, ending)
			return
		}
		if s.received.Add(uint64(n)); first {
			close(s.moving)
		}
	}
}

// end notes why a stream ended, unless it was ended.
func (s *kernelStream) end(err error, ending *atomic.Bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fate == nil && !ending.Load() {
		s.fate = err
	}
}

func (l *kernelLoad) progress() []daemon.Progress {
	var list []daemon.Progress
	for _, s := range l.streams {
		list = append(list, daemon.Progress{Name: s.name, Bytes: s.received.Load()})
	}
	return list
}

func (l *kernelLoad) lost() (list []string) {
	for _, s := range l.streams {
		s.mu.Lock()
		if s.fate != nil {
			list = append(list, fmt.Sprintf("stream %s: %v", s.name, s.fate))
		}
		s.mu.Unlock()
	}
	return list
}

func (l *kernelLoad) retransmits() []uint64 { return nil }

// stop ends the connections at once: what is under way is of no use to anybody.
// The namespaces end with the last that is in them; the TAP devices are nicd's.
func (l *kernelLoad) stop() {
	if l.ending.Swap(true) {
		return
	}
	for _, s := range l.streams {
		for _, c := range s.ends {
			_ = c.SetDeadline(time.Unix(1, 0))
		}
	}
	l.joined.Wait()
	for _, s := range l.streams {
		for _, c := range s.ends {
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}
	}
	for _, n := range l.spaces {
		n.Close()
	}
}
