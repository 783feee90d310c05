package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"nicd/bus"
	"nicd/bus/internal/vfiocap"
)

// ServeOptions are a server's; the zero value serves any client.
type ServeOptions struct {
	// RequireSealed refuses DMA memory whose file can shrink: a client that
	// shrinks it makes this process fault. Clients that one does not trust have
	// to be held to it; QEMU's memory-backend-memfd passes, cloud-hypervisor's
	// memory does not.
	RequireSealed bool
	// Report, if set, is called for what a client did that is wrong but can't be
	// refused in a way that clients survive (a register access of a width that
	// the device does not have) and, by Serve, for why a connection ended.
	Report func(error)
}

// Serve serves dev to the clients that connect to l, one after the other, until
// ctx ends, and closes l. A client that connects while another is served waits.
// While a client is served nobody else calls dev's methods.
func Serve(ctx context.Context, l *net.UnixListener, dev bus.Device, o ServeOptions) error {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	defer l.Close()
	for {
		c, err := l.AcceptUnix()
		if ctx.Err() != nil {
			if c != nil {
				c.Close()
			}
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("vfio-user: %w", err)
		}
		if err := ServeConn(ctx, c, dev, o); err != nil && ctx.Err() == nil {
			o.report(err)
		}
	}
}

// ServeConn serves dev to the client at c, which it closes, until the client
// leaves (nil), ctx ends (its error) or the client violates the protocol. When
// it returns the device's interrupts are off, it has been reset, as Linux resets
// a VFIO device whose last user is gone, and its DMA is unmapped. While it runs
// nobody else calls dev's methods.
func ServeConn(ctx context.Context, c *net.UnixConn, dev bus.Device, o ServeOptions) error {
	defer c.Close()
	s := newServer(ctx, newConn(c), dev, o)
	stop := context.AfterFunc(ctx, func() {
		s.irqs.request()
		c.Close()
	})
	defer stop()
	err := s.loop()
	s.end()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE):
		return nil
	}
	return fmt.Errorf("vfio-user: %w", err)
}

func (o ServeOptions) report(err error) {
	if o.Report != nil {
		o.Report(err)
	}
}

// server is one connection's. Its goroutine carries out requests in the order in
// which they arrive.
type server struct {
	ctx  context.Context
	conn *conn
	o    ServeOptions

	// mu serialises calls of dev between the connection's goroutine and those
	// that unmask interrupts.
	mu  sync.Mutex
	dev bus.Device

	info       bus.Info
	configSize int
	regions    [bus.ConfigSpace]bus.Region // nil for those that are absent

	bells      *bus.Doorbells // nil if there are none to give out
	bellRanges []bus.DoorbellRange

	greeted bool
	peer    limits
	dma     dmaTable
	irqs    irqs

	body []byte // of the request
	out  []byte // the reply
}

func newServer(ctx context.Context, c *conn, dev bus.Device, o ServeOptions) *server {
	s := &server{
		ctx: ctx, conn: c, dev: dev, o: o,
		info:       dev.Info(),
		configSize: configSize(dev),
	}
	for i := range s.regions {
		if r, err := dev.Region(i); err == nil {
			s.regions[i] = r
		}
	}
	s.findDoorbells()
	s.dma = dmaTable{dev: dev, requireSealed: o.RequireSealed}
	s.irqs = irqs{server: s}
	return s
}

// findDoorbells looks for doorbells that can be given out: a page in a file.
func (s *server) findDoorbells() {
	d, ok := s.dev.(bus.DoorbellDevice)
	if !ok {
		return
	}
	bells, ranges := d.Doorbells()
	if bells == nil || bells.Memory().File() == nil {
		return
	}
	s.bells, s.bellRanges = bells, ranges
}

// configSize is 4096 for a device with extended configuration space, whose
// first word is then never all ones, and 256 for one without.
func configSize(dev bus.Device) int {
	const plain, extended = 256, 4096
	if v, err := dev.ReadConfig(plain, 4); err != nil || v == bus.Gone {
		return plain
	}
	return extended
}

func (s *server) loop() error {
	for {
		h, fds, err := s.conn.readHeader()
		if err != nil {
			return err
		}
		err = s.serve(h, fds)
		fds.close()
		if err != nil {
			return err
		}
	}
}

// serve takes the rest of a message, carries it out and answers. An error ends
// the connection. Descriptors that are left in fds are the caller's to close.
func (s *server) serve(h header, fds descriptors) error {
	if h.size < headerSize || h.size > maxMessage {
		_ = s.answer(h, unix.EINVAL, nil)
		return violation("%v of %d bytes", h.cmd, h.size)
	}
	n := int(h.size) - headerSize
	if cap(s.body) < n {
		s.body = make([]byte, n)
	}
	body := s.body[:n]
	if err := s.conn.readBody(body); err != nil {
		return err
	}
	if err := s.catchUp(); err != nil {
		return err
	}
	return s.carryOut(h, body, fds)
}

func (s *server) carryOut(h header, body []byte, fds descriptors) error {
	if h.flags&flagTypeMask != flagCommand {
		return violation("%v of type %d from a client", h.cmd, h.flags&flagTypeMask)
	}
	r := &request{cmd: h.cmd, body: body, fds: fds, out: append(s.out[:0], make([]byte, headerSize)...)}
	err := s.dispatch(r)
	s.out = r.out
	fds.close() // what was not taken, before the client hears
	if errors.Is(err, bus.ErrGone) {
		s.irqs.fault()
	}
	if err := s.answer(h, err, r); err != nil {
		return err
	}
	if !s.greeted {
		return violation("%v refused or before VERSION", h.cmd)
	}
	return nil
}

// request is a message being carried out. Handlers take descriptors from fds,
// append the reply's body to out and name the reply's descriptors.
type request struct {
	cmd    command
	body   []byte
	fds    descriptors
	out    []byte
	outFDs []int
}

func (s *server) dispatch(r *request) error {
	if s.greeted == (r.cmd == cmdVersion) {
		return unix.EINVAL // once, and first
	}
	switch takesFDs := r.cmd == cmdDMAMap || r.cmd == cmdSetIRQs; {
	case len(r.fds) > maxFDs:
		return unix.EINVAL
	case len(r.fds) > 0 && !takesFDs && r.cmd != cmdDMAUnmap: // SPDK sends one with DMA_UNMAP
		return unix.EINVAL
	}
	switch r.cmd {
	case cmdVersion:
		return s.version(r)
	case cmdDMAMap:
		return s.dmaMap(r)
	case cmdDMAUnmap:
		return s.dmaUnmap(r)
	case cmdGetInfo:
		return s.getInfo(r)
	case cmdGetRegionInfo:
		return s.getRegionInfo(r)
	case cmdGetRegionIOFDs:
		return s.getRegionIOFDs(r)
	case cmdGetIRQInfo:
		return s.getIRQInfo(r)
	case cmdSetIRQs:
		return s.setIRQs(r)
	case cmdRegionRead:
		return s.regionRead(r)
	case cmdRegionWrite:
		return s.regionWrite(r)
	case cmdRegionWriteMany:
		return s.regionWriteMany(r)
	case cmdReset:
		return s.reset(r)
	}
	return unix.EINVAL
}

// answer sends the reply to h: what r has gathered, or a bare header with an
// errno. A command that wants no reply gets none, whatever became of it.
func (s *server) answer(h header, failure error, r *request) error {
	if h.noReply() {
		return nil
	}
	reply := header{id: h.id, cmd: h.cmd, size: headerSize, flags: flagReply}
	if failure != nil {
		reply.flags |= flagError
		reply.errno = uint32(errno(failure))
		var b [headerSize]byte
		reply.put(b[:])
		return s.conn.send(b[:], nil)
	}
	reply.size = uint32(len(r.out))
	reply.put(r.out)
	return s.conn.send(r.out, r.outFDs)
}

// errno is the number that says err to a client.
func errno(err error) unix.Errno {
	var no unix.Errno
	switch {
	case errors.As(err, &no):
		return no
	case errors.Is(err, ErrProtocol), errors.Is(err, vfiocap.ErrShort), errors.Is(err, bus.ErrNoRegion), errors.Is(err, bus.ErrNoInterrupt):
		return unix.EINVAL
	case errors.Is(err, bus.ErrUnsupported):
		return unix.EOPNOTSUPP
	case errors.Is(err, bus.ErrGone):
		return unix.ENODEV
	}
	return unix.EIO
}

// catchUp carries out what the client has posted in the doorbell page: the message
// that follows must not overtake it.
func (s *server) catchUp() error {
	if s.bells == nil {
		return nil
	}
	if err := s.bells.CarryOut(s.writePosted); err != nil {
		return violation("%v", err)
	}
	return nil
}

// writePosted is a write that came through the page, from a client that is no
// more trusted than its messages are.
func (s *server) writePosted(region int, offset, value uint32) {
	if region >= 0 && region < len(s.regions) && s.regions[region] != nil {
		s.regions[region].Write32(offset, value)
	}
}

// end leaves the device as after power-on, without interrupts and DMA. A client
// that died has not stopped it: it is reset before its memory goes. One that lives on
// keeps a doorbell page that is nobody's.
func (s *server) end() {
	_ = s.catchUp()
	s.mu.Lock()
	s.irqs.end()
	s.renewDoorbells()
	s.quiesce()
	s.dma.end()
	s.mu.Unlock()
	s.irqs.join()
}

func (s *server) renewDoorbells() {
	d, ok := s.dev.(bus.DoorbellDevice)
	if !ok {
		return
	}
	if err := d.RenewDoorbells(); err != nil && !errors.Is(err, bus.ErrGone) {
		s.o.report(fmt.Errorf("the next client writes registers by message: %w", err))
	}
}

// resetTimeout bounds the reset of a device whose client is gone.
const resetTimeout = 10 * time.Second

func (s *server) quiesce() {
	if !s.info.CanReset {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), resetTimeout)
	defer cancel()
	if err := s.dev.Reset(ctx); err != nil && !errors.Is(err, bus.ErrGone) {
		s.o.report(fmt.Errorf("reset after the client: %w", err))
	}
}

func (s *server) version(r *request) error {
	v, err := parseVersion(r.body)
	if err != nil {
		return err
	}
	if v.major != ourMajor {
		return unix.EINVAL
	}
	s.peer = v.caps.limits()
	s.greeted = true
	r.out = v.answer(s.info.DMABase, s.bells != nil).append(r.out)
	return nil
}

func (s *server) reset(*request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dev.Reset(s.ctx)
}
