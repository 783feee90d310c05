package plugin

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// The control socket is a SEQPACKET pair that a plugin inherits. Each message
// is a ticket, an 8-byte number in host byte order, with the descriptors that
// belong to it; the RPC that needs them names the ticket. Its end of file means
// that nicd is gone or wants the plugin to end.

// maxDescriptors is how many a message can carry (the kernel's SCM_MAX_FD).
const maxDescriptors = 253

// controlPair makes a control socket: nicd's end, and the plugin's for exec.
func controlPair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("control socket: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "control")
	ours, err := unixConn(fds[0])
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("control socket: %w", err)
	}
	return ours, theirs, nil
}

// unixConn takes over a descriptor of a unix socket.
func unixConn(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("descriptor %d is a %T, not a unix socket", fd, c)
	}
	return u, nil
}

// sendDescriptors sends files under a ticket. They stay the caller's.
func sendDescriptors(c *net.UnixConn, ticket uint64, files []*os.File) error {
	if len(files) > maxDescriptors {
		return fmt.Errorf("%d descriptors in a message, %d fit", len(files), maxDescriptors)
	}
	fds := make([]int, len(files))
	for i, f := range files {
		raw, err := f.SyscallConn() // Fd could make it blocking
		if err != nil {
			return err
		}
		if err := raw.Control(func(fd uintptr) { fds[i] = int(fd) }); err != nil {
			return err
		}
	}
	message := binary.NativeEndian.AppendUint64(nil, ticket)
	_, _, err := c.WriteMsgUnix(message, unix.UnixRights(fds...), nil)
	return err
}

// mailbox keeps descriptors in the plugin until the RPC that needs them comes,
// or they come for it.
type mailbox struct {
	mu      sync.Mutex
	tickets map[uint64][]int
	arrived chan struct{} // closed and replaced when something comes
}

func newMailbox() *mailbox {
	return &mailbox{tickets: make(map[uint64][]int), arrived: make(chan struct{})}
}

// receive fills the mailbox until the socket ends.
func (m *mailbox) receive(c *net.UnixConn) error {
	var message [8]byte
	rights := make([]byte, unix.CmsgSpace(maxDescriptors*4))
	for {
		n, oobn, _, _, err := c.ReadMsgUnix(message[:], rights)
		if err != nil {
			return err
		}
		if n == 0 && oobn == 0 {
			return nil
		}
		fds, err := descriptorsOf(rights[:oobn])
		if err != nil {
			return err
		}
		if n == len(message) {
			m.put(binary.NativeEndian.Uint64(message[:]), fds)
		}
	}
}

func descriptorsOf(rights []byte) ([]int, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	var all []int
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return nil, err
		}
		all = append(all, fds...)
	}
	return all, nil
}

func (m *mailbox) put(ticket uint64, fds []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tickets[ticket] = append(m.tickets[ticket], fds...)
	close(m.arrived)
	m.arrived = make(chan struct{})
}

// take waits for a ticket's descriptors, which are the caller's then.
func (m *mailbox) take(ctx context.Context, ticket uint64) ([]int, error) {
	for {
		m.mu.Lock()
		fds, ok := m.tickets[ticket]
		delete(m.tickets, ticket)
		arrived := m.arrived
		m.mu.Unlock()
		if ok {
			return fds, nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return nil, fmt.Errorf("descriptors of ticket %d: %w", ticket, ctx.Err())
		}
	}
}
