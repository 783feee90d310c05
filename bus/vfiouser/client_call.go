package vfiouser

import (
	"errors"
	"io"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// maxCalls is how many requests can be waiting for their replies.
	maxCalls = 16
	// postID is the id of messages that want no reply. It is no call's.
	postID = 0xffff
)

// call is a request and its reply. Calls are made once and used again; a call's
// index is its message id.
type call struct {
	id    uint16
	cmd   command
	msg   []byte // the request
	timer *time.Timer

	// The reader's, from waiting until done.
	limit int    // how long the reply's body may be
	reply []byte // its body
	fds   descriptors
	errno unix.Errno
	bad   bool

	waiting chan struct{} // holds a token while a reply is awaited
	done    chan struct{}
}

func (l *call) init(id uint16) {
	l.id = id
	l.msg = make([]byte, headerSize, 128)
	l.timer = time.NewTimer(time.Hour)
	l.timer.Stop()
	l.waiting = make(chan struct{}, 1)
	l.done = make(chan struct{}, 1)
}

// call sends a request, with the body that body appends, and waits for the
// reply, whose body may be limit bytes long. The caller releases the call that
// it gets.
func (c *Client) call(cmd command, body func([]byte) []byte, fds []int, limit int) (*call, error) {
	l, err := c.begin(cmd, limit)
	if err != nil {
		return nil, err
	}
	if body != nil {
		l.msg = body(l.msg)
	}
	return c.finish(l, fds)
}

// do is call for a reply whose body says nothing that was not known.
func (c *Client) do(cmd command, body func([]byte) []byte, fds []int, limit int) error {
	l, err := c.call(cmd, body, fds, limit)
	if err != nil {
		return err
	}
	c.release(l)
	return nil
}

// begin takes an idle call; its msg is to be completed by the body.
func (c *Client) begin(cmd command, limit int) (*call, error) {
	select {
	case l := <-c.idle:
		l.cmd, l.limit, l.msg = cmd, limit, l.msg[:headerSize]
		return l, nil
	case <-c.lost:
		return nil, c.reason
	}
}

// release makes l idle. Its reply and descriptors are dead.
func (c *Client) release(l *call) {
	l.fds.close()
	l.fds = nil
	c.idle <- l
}

// takeFDs makes the reply's descriptors the caller's.
func (l *call) takeFDs() descriptors {
	fds := l.fds
	l.fds = nil
	return fds
}

func (c *Client) finish(l *call, fds []int) (*call, error) {
	header{id: l.id, cmd: l.cmd, size: uint32(len(l.msg)), flags: flagCommand}.put(l.msg)
	l.waiting <- struct{}{}
	if err := c.transmit(l.msg, fds); err != nil {
		return nil, err
	}
	if err := c.await(l); err != nil {
		return nil, err
	}
	if l.bad {
		err := &RequestError{l.cmd.String(), l.errno}
		c.release(l)
		return nil, err
	}
	return l, nil
}

// parts are what the time for an answer is waited for in. One that takes longer than
// it should counts once: while this process, or the machine, was away (a virtual one
// that is moved is, for seconds), nobody could answer, or the answer could not be read.
const parts = 4

// await waits for l's reply.
func (c *Client) await(l *call) error {
	defer l.timer.Stop()
	for range parts {
		l.timer.Reset(c.timeout / parts)
		select {
		case <-l.done:
			return nil
		case <-c.lost:
			return c.reason
		case <-l.timer.C:
		}
	}
	c.fail(violation("%v not answered in %v", l.cmd, c.timeout))
	return c.reason
}

// transmit sends a message. A server that does not take it in time is gone.
func (c *Client) transmit(msg []byte, fds []int) error {
	c.send.Lock()
	defer c.send.Unlock()
	return c.transmitLocked(msg, fds)
}

func (c *Client) transmitLocked(msg []byte, fds []int) error {
	_ = c.conn.SetWriteDeadline(time.Now().Add(c.timeout))
	if err := c.conn.send(msg, fds); err != nil {
		c.fail(err)
		return c.reason
	}
	return nil
}

// read is the reader's goroutine: it gives replies to their calls and answers
// the server's own requests, until the connection ends.
func (c *Client) read() {
	for {
		h, fds, err := c.conn.readHeader()
		if err == nil {
			err = c.accept(h, fds)
			fds.close()
		}
		if errors.Is(err, io.EOF) {
			err = errors.New("server closed the connection")
		}
		if err != nil {
			c.fail(err)
			c.drop()
			return
		}
	}
}

// drop closes descriptors of replies that nobody is going to take.
func (c *Client) drop() {
	for i := range c.calls {
		select {
		case <-c.calls[i].done:
			c.calls[i].fds.close()
		default:
		}
	}
}

// accept takes the rest of a message. Descriptors left in fds are the caller's
// to close.
func (c *Client) accept(h header, fds descriptors) error {
	switch {
	case h.size < headerSize || h.size > maxMessage:
		return violation("%v of %d bytes", h.cmd, h.size)
	case h.isReply():
		return c.acceptReply(h, fds)
	case h.flags&flagTypeMask == flagCommand:
		return c.acceptCommand(h)
	}
	return violation("message of type %d", h.flags&flagTypeMask)
}

func (c *Client) acceptReply(h header, fds descriptors) error {
	if h.id >= maxCalls {
		return violation("reply to message %d, which wanted none", h.id)
	}
	l := &c.calls[h.id]
	select {
	case <-l.waiting:
	default:
		return violation("reply to message %d, which was not sent", h.id)
	}
	n := int(h.size) - headerSize
	switch {
	case h.cmd != l.cmd:
		return violation("%v answered by %v", l.cmd, h.cmd)
	case n > l.limit:
		return violation("reply of %d bytes to %v, which has at most %d", n, h.cmd, l.limit)
	}
	if cap(l.reply) < n {
		l.reply = make([]byte, n)
	}
	l.reply = l.reply[:n]
	if err := c.conn.readBody(l.reply); err != nil {
		return err
	}
	l.bad, l.errno = h.failed(), unix.Errno(h.errno)
	l.fds = slices.Clone(fds)
	for i := range fds {
		fds[i] = -1
	}
	l.done <- struct{}{}
	return nil
}

// acceptCommand carries out what the server asks for: access to memory that was
// mapped for it. The reader itself answers; a server that asks and does not read
// runs into the timeout of the write.
func (c *Client) acceptCommand(h header) error {
	body := make([]byte, h.size-headerSize)
	if err := c.conn.readBody(body); err != nil {
		return err
	}
	out := make([]byte, headerSize, headerSize+len(body))
	out, err := c.accessDMA(h.cmd, body, out)
	if h.noReply() {
		return nil
	}
	reply := header{id: h.id, cmd: h.cmd, flags: flagReply}
	if err != nil {
		out = out[:headerSize]
		reply.flags |= flagError
		reply.errno = uint32(errno(err))
	}
	reply.size = uint32(len(out))
	reply.put(out)
	return c.transmit(out, nil)
}
