package vfiouser

// This file holds the package's x/sys/unix code: descriptors travel beside the
// bytes of a unix socket as control messages, and the kinds of descriptor that a
// peer sends have to be checked.

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"nicd/bus"
)

// Pair returns the two ends of a connection: one to serve on, the other to give
// to a child process, which passes it to [Open].
func Pair() (server *net.UnixConn, client *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	client = os.NewFile(uintptr(fds[1]), "vfio-user client")
	server, err = fileConn(os.NewFile(uintptr(fds[0]), "vfio-user server"))
	if err != nil {
		client.Close()
		return nil, nil, err
	}
	return server, client, nil
}

// fileConn takes over file, a connected unix stream socket.
func fileConn(file *os.File) (*net.UnixConn, error) {
	defer file.Close()
	c, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("vfio-user: %s: %w", file.Name(), err)
	}
	uc, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("vfio-user: %s is not a unix socket", file.Name())
	}
	return uc, nil
}

// maxKernelFDs is the most descriptors that Linux passes in one message
// (SCM_MAX_FD), so that no control message that arrives is ever cut short.
const maxKernelFDs = 253

// conn frames messages. One goroutine reads; writers take turns by themselves.
type conn struct {
	*net.UnixConn
	head [headerSize]byte
	oob  []byte
}

func newConn(uc *net.UnixConn) *conn {
	return &conn{UnixConn: uc, oob: make([]byte, unix.CmsgSpace(maxKernelFDs*4))}
}

// readHeader reads exactly a header and the descriptors that came with it, which
// the caller closes. io.EOF means that the peer left between messages.
//
// Reading no further than the header is what keeps descriptors with their
// message: a larger read would run on into the next one.
func (c *conn) readHeader() (header, descriptors, error) {
	var fds descriptors
	for n := 0; n < headerSize; {
		m, oobn, flags, _, err := c.ReadMsgUnix(c.head[n:], c.oob)
		if oobn > 0 {
			fds = append(fds, parseRights(c.oob[:oobn])...)
		}
		n += m
		switch {
		case flags&unix.MSG_CTRUNC != 0:
			err = violation("descriptors lost")
		case err == nil && m == 0 && n == 0:
			err = io.EOF
		case err == nil && m == 0 || errors.Is(err, io.EOF) && n > 0:
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			fds.close()
			return header{}, nil, err
		}
	}
	return parseHeader(c.head[:]), fds, nil
}

// readBody fills b. Descriptors in the middle of a message are dropped by the
// kernel, since a plain read asks for none.
func (c *conn) readBody(b []byte) error {
	_, err := io.ReadFull(c, b)
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// send writes msg in one piece as far as the socket takes it, with fds at its
// first byte: peers need header and body to arrive together.
func (c *conn) send(msg []byte, fds []int) error {
	if len(fds) == 0 {
		_, err := c.Write(msg)
		return err
	}
	n, _, err := c.WriteMsgUnix(msg, unix.UnixRights(fds...), nil)
	if err != nil || n == len(msg) {
		return err
	}
	_, err = c.Write(msg[n:])
	return err
}

// descriptors are a message's, owned by whoever holds them. A taken one is -1.
type descriptors []int

func parseRights(oob []byte) descriptors {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	var all descriptors
	for i := range msgs {
		if fds, err := unix.ParseUnixRights(&msgs[i]); err == nil {
			all = append(all, fds...)
		}
	}
	return all
}

// close closes those that nobody took.
func (d descriptors) close() {
	for i, fd := range d {
		if fd >= 0 {
			unix.Close(fd)
			d[i] = -1
		}
	}
}

// takeFile makes descriptor i the caller's.
func (d descriptors) takeFile(i int, name string) *os.File {
	fd := d[i]
	d[i] = -1
	return os.NewFile(uintptr(fd), name)
}

// takeEvent makes descriptor i, if it is an eventfd, the caller's as an event.
// Anything else could block whoever signals it, and so could an eventfd in
// blocking mode that the peer has filled up; O_NONBLOCK is set for both sides.
func (d descriptors) takeEvent(i int) (*bus.Event, error) {
	name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", d[i]))
	if err != nil || name != "anon_inode:[eventfd]" {
		return nil, violation("descriptor %d is %q, not an eventfd", i, name)
	}
	if err := unix.SetNonblock(d[i], true); err != nil {
		return nil, err
	}
	e := bus.OpenEvent(d[i])
	d[i] = -1
	return e, nil
}

// dup is a second descriptor of fd's file.
func dup(fd int, name string) (*os.File, error) {
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("dup %s: %w", name, err)
	}
	return os.NewFile(uintptr(n), name), nil
}

// fileID tells files apart.
type fileID struct {
	dev, ino uint64
}

func statID(fd int) (fileID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fileID{}, err
	}
	return fileID{uint64(st.Dev), st.Ino}, nil
}
