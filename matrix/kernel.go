package matrix

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"nicd/daemon"
	"nicd/internal/netspace"
)

// This file makes the load that the kernel's own TCP is: TAP ports, each in a
// network namespace of its own, and iperf3 from one to the other. iperf3 only
// keeps the connections busy. How far they are is asked of the kernel, so that a
// row is measured in the same way whoever does the TCP.

// taps are the Linux interfaces of a row's ends, the NIC's and the peer's.
type taps [2]string

// newTAPs makes names up that no Linux interface has, with luck.
func newTAPs() taps {
	tag := rand.Uint32() & 0xFFFF
	return taps{fmt.Sprintf("nm%04xnic", tag), fmt.Sprintf("nm%04xpeer", tag)}
}

// ports are TAP ports of those names.
func (t taps) ports(e end) string { return fmt.Sprintf("port \"tap\" {\n    name = %q\n  }", t[e]) }

// tapAddresses are the ends' in their namespaces, where nobody else is.
var tapAddresses = [2]string{"10.79.0.1", "10.79.0.2"}

// iperf is the load generator's command.
const iperf = "iperf3"

const (
	// iperfPort is where its server listens unless it is told otherwise.
	iperfPort = 5201
	// moving is how much a connection has received when it surely is a stream
	// that moves: more than iperf3 says at the start of one.
	moving = 16 << 10
)

// canTAP says in one line why there can be no kernelLoad, if there can be none.
func canTAP() error {
	if _, err := exec.LookPath(iperf); err != nil {
		return fmt.Errorf("the kernel's TCP is loaded by %s: %w", iperf, err)
	}
	space, err := netspace.New()
	if err != nil {
		return err
	}
	space.Close()
	return nil
}

// kernelLoad is iperf3 between two namespaces.
type kernelLoad struct {
	row    *Row
	taps   taps
	length time.Duration // that it has to last at least

	spaces         [2]*netspace.Space
	server, client *program
	most           uint64 // bytes received when they were last asked for
	again          uint64 // segments, likewise
}

// ends are who sends and who receives.
func (l *kernelLoad) ends() (sender, receiver end) {
	if l.row.Direction == Send {
		return nic, peer
	}
	return peer, nic
}

func (l *kernelLoad) start(ctx context.Context) error {
	for e, name := range l.taps {
		var err error
		if l.spaces[e], err = netspace.New(); err != nil {
			return err
		}
		if err := l.spaces[e].Take(name, tapAddresses[e]+"/24"); err != nil {
			return fmt.Errorf("TAP device %s: %w", name, err)
		}
	}
	for e, name := range l.taps {
		if err := l.spaces[e].AwaitCarrier(ctx, name); err != nil {
			return err
		}
	}
	if err := l.startIPerf(ctx); err != nil {
		return err
	}
	return l.awaitStreams(ctx)
}

func (l *kernelLoad) startIPerf(ctx context.Context) (err error) {
	sender, receiver := l.ends()
	l.server, err = run(l.spaces[receiver], "listening", iperf, "-4", "-s", "-1", "--forceflush")
	if err != nil {
		return err
	}
	if err := l.server.awaitReady(ctx); err != nil {
		return err
	}
	seconds := int(l.length/time.Second) + 1
	l.client, err = run(l.spaces[sender], "connected", iperf, "-4", "-c", tapAddresses[receiver], "-t", strconv.Itoa(seconds), "-P", strconv.Itoa(l.row.Streams))
	return err
}

// awaitStreams waits until all streams move.
func (l *kernelLoad) awaitStreams(ctx context.Context) error {
	_, receiver := l.ends()
	for {
		list, err := l.spaces[receiver].Connections()
		if err != nil {
			return err
		}
		n := 0
		for _, c := range list {
			if c.Local.Port == iperfPort && c.Received >= moving {
				n++
			}
		}
		if n >= l.row.Streams {
			return nil
		}
		if err := l.broken(); err != nil {
			return stillError{err}
		}
		if err := pause(ctx, startTick); err != nil {
			return stillError{fmt.Errorf("%d of %d streams of %s move: %w", n, l.row.Streams, iperf, context.Cause(ctx))}
		}
	}
}

// startTick is how often the kernel is asked whether the streams move.
const startTick = 20 * time.Millisecond

func (l *kernelLoad) received() uint64 {
	_, receiver := l.ends()
	l.most = max(l.most, l.sum(receiver, func(c netspace.Connection) uint64 { return c.Received }))
	return l.most
}

func (l *kernelLoad) retransmits() uint64 {
	sender, _ := l.ends()
	l.again = max(l.again, l.sum(sender, func(c netspace.Connection) uint64 { return c.Retransmits }))
	return l.again
}

// sum adds up a figure of all connections of an end. Those that have ended are
// not among them: that is said by broken.
func (l *kernelLoad) sum(e end, of func(netspace.Connection) uint64) (sum uint64) {
	list, err := l.spaces[e].Connections()
	if err != nil {
		return 0
	}
	for _, c := range list {
		sum += of(c)
	}
	return sum
}

func (l *kernelLoad) cpu() time.Duration { return l.server.cpu() + l.client.cpu() }

func (l *kernelLoad) broken() error {
	return errors.Join(l.client.broken(), l.server.broken())
}

// stop ends the programs at once. The namespaces end with the TAP devices, which
// are the daemon's.
func (l *kernelLoad) stop() {
	l.client.stop()
	l.server.stop()
	for e, s := range l.spaces {
		s.Close()
		l.spaces[e] = nil
	}
}

// program is a process in a namespace. A nil program is one that was not started.
type program struct {
	command *exec.Cmd
	heard   chan struct{} // closed when it has printed the word
	ended   chan struct{}
	waiting sync.WaitGroup

	mu   sync.Mutex
	last string // line that it printed
}

// run starts a program in a namespace. word is in a line that it prints when it is
// ready.
func run(space *netspace.Space, word, name string, args ...string) (*program, error) {
	p := &program{command: exec.Command(name, args...), heard: make(chan struct{}), ended: make(chan struct{})}
	out, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.command.Stderr = p.command.Stdout
	if err := space.Do(p.command.Start); err != nil {
		return nil, err
	}
	p.waiting.Go(func() {
		defer close(p.ended)
		p.listen(out, word)
		_ = p.command.Wait() // whatever it is, what it printed says more
	})
	return p, nil
}

// listen notes what the program prints, until it ends.
func (p *program) listen(out io.Reader, word string) {
	ready := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if line == "" {
			continue
		}
		p.mu.Lock()
		p.last = line
		p.mu.Unlock()
		if !ready && strings.Contains(line, word) {
			ready = true
			close(p.heard)
		}
	}
}

// awaitReady waits until the program has said its word.
func (p *program) awaitReady(ctx context.Context) error {
	select {
	case <-p.heard:
		return nil
	case <-p.ended:
		return p.broken()
	case <-ctx.Done():
		return fmt.Errorf("%s does not begin: %w", p.command.Path, context.Cause(ctx))
	}
}

func (p *program) cpu() time.Duration {
	if p == nil {
		return 0
	}
	return daemon.ProcessCPU(p.command.Process.Pid)
}

// broken is what a program that has ended said last.
func (p *program) broken() error {
	if p == nil {
		return nil
	}
	select {
	case <-p.ended:
	default:
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Errorf("%s ended: %s", p.command.Path, p.last)
}

func (p *program) stop() {
	if p == nil {
		return
	}
	_ = p.command.Process.Kill() // it may have ended by itself
	p.waiting.Wait()
}
