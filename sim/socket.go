package sim

// This file uses package syscall for one thing that net does not have: a write
// that does not wait.

import (
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
)

// Socket is an end of a wire that is somewhere else: a connected datagram socket,
// to another process mostly, where a frame is a datagram. A peer that does not
// read pauses the wire, or has frames dropped.
type Socket struct {
	conn    net.Conn
	raw     syscall.RawConn
	link    func(up bool)
	port    *Port
	resume  chan struct{}
	closing chan struct{}
	all     sync.WaitGroup

	mu   sync.Mutex // of what follows: each peer receives on a goroutine of its own
	out  []byte
	full bool
	try  func(fd uintptr) bool

	waiting chan struct{} // a frame had no room
}

// NewSocket makes a copy of socket an end of w. The file stays the caller's. What
// becomes of the wire's link is told to link, if it is not nil; it must not call
// the wire.
func NewSocket(w *Wire, socket *os.File, link func(up bool)) (*Socket, error) {
	conn, err := net.FileConn(socket)
	if err != nil {
		return nil, fmt.Errorf("end of a wire: %w", err)
	}
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("end of a wire: %w", err)
	}
	s := &Socket{
		conn: conn, raw: raw, link: link, out: make([]byte, 0, maxDatagram),
		resume: make(chan struct{}, 1), closing: make(chan struct{}), waiting: make(chan struct{}, 1),
	}
	s.try = func(fd uintptr) bool {
		_, err := syscall.Write(int(fd), s.out)
		s.full = err == syscall.EAGAIN
		return true
	}
	w.Connect(s)
	s.all.Go(s.read)
	s.all.Go(s.waitForRoom)
	return s, nil
}

// maxDatagram is more than the longest frame.
const maxDatagram = 1 << 17

// Plug implements End.
func (s *Socket) Plug(p *Port) { s.port = p }

// Wants implements End.
func (s *Socket) Wants() Wants { return Wants{} }

// Resume implements End.
func (s *Socket) Resume() { notify(s.resume) }

// SetLink implements End.
func (s *Socket) SetLink(up bool) {
	if s.link != nil {
		s.link(up)
	}
}

// Receive implements End.
func (s *Socket) Receive(frames []Frame, pause bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range frames {
		s.out = s.out[:frames[i].Len]
		frames[i].CopyTo(s.out, 0)
		s.full = false
		_ = s.raw.Write(s.try) // a socket that is closed takes anything
		if s.full && pause {
			notify(s.waiting)
			return i
		}
	}
	return len(frames)
}

// waitForRoom lets the wire go on when the socket does, until it is closed.
func (s *Socket) waitForRoom() {
	for {
		select {
		case <-s.waiting:
		case <-s.closing:
			return
		}
		asked := false
		err := s.raw.Write(func(uintptr) bool {
			was := asked
			asked = true
			return was // the second time it can be written to
		})
		s.port.Room()
		if err != nil {
			return
		}
	}
}

// read sends what comes from the socket, until it is closed.
func (s *Socket) read() {
	buf := make([]byte, maxDatagram)
	frame := make([]Frame, 1)
	part := make([][]byte, 1)
	for {
		n, err := s.conn.Read(buf)
		if err != nil {
			return
		}
		if n == 0 {
			continue
		}
		part[0] = buf[:n]
		frame[0] = Frame{Parts: part, Len: n}
		for s.port.Send(frame) == 0 {
			select {
			case <-s.resume:
			case <-s.closing:
				return
			}
		}
	}
}

// Close takes the socket off its wire and ends it.
func (s *Socket) Close() {
	s.port.wire.Disconnect(s.port)
	close(s.closing)
	s.conn.Close()
	s.all.Wait()
}
