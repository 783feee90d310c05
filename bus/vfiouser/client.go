package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"nicd/bus"
)

// DialOptions are a client's; the zero value works.
type DialOptions struct {
	// Name is the device's name in messages and in bus.Info.Address. The
	// default is the socket's.
	Name string
	// Timeout is how long the server may take to answer, 10 seconds if zero. A
	// server that takes longer is gone: the connection is closed. Time in which this
	// process did not run counts for a quarter of that at the most.
	Timeout time.Duration
	// TrustServer makes doorbells cheaper (bus.Event.TrustPeers), and lets a server
	// that is not to be trusted hold up all of this process.
	TrustServer bool
}

const defaultTimeout = 10 * time.Second

// Client is a device that another process serves. It implements bus.Device.
//
// When the server dies, violates the protocol or does not answer in time, the
// device is gone: register reads return all ones, writes are lost, and
// everything else returns an error that wraps bus.ErrGone.
type Client struct {
	conn    *conn
	timeout time.Duration
	info    bus.Info
	peer    limits
	trusted bool // see DialOptions.TrustServer
	noPosts bool // mapped registers: a posted write could be overtaken by their reads

	// send is held while a message is written, so that messages do not mix.
	send sync.Mutex
	post [postSize]byte

	calls [maxCalls]call
	idle  chan *call

	lost    chan struct{} // closed when the device is gone
	isLost  atomic.Bool
	lose    sync.Once
	reason  error // why, once lost is closed
	reading sync.WaitGroup

	regions [bus.NumRegions]*region
	pages   []*bus.Memory // mapped register areas and the doorbell page
	bells   *bus.Doorbells
	kind    bus.InterruptKind // of the vectors in force
	vectors int               // how many; 0 when interrupts are off
	resize  [3]bool           // by kind: vectors may be added to those in force

	dmaMu sync.Mutex // the reader looks memory up for the server
	dma   map[*bus.Memory]uint64
}

var _ bus.Device = (*Client)(nil)

// Dial connects to the server that listens at path. ctx ends the attempt, not
// the connection.
func Dial(ctx context.Context, path string, o DialOptions) (*Client, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("vfio-user: %w", err)
	}
	if o.Name == "" {
		o.Name = "vfio-user:" + path
	}
	return open(ctx, c.(*net.UnixConn), o)
}

// Open is Dial over a socket that is connected already, one that was inherited
// for example. It takes over file.
func Open(ctx context.Context, file *os.File, o DialOptions) (*Client, error) {
	if o.Name == "" {
		o.Name = "vfio-user:" + file.Name()
	}
	uc, err := fileConn(file)
	if err != nil {
		return nil, err
	}
	return open(ctx, uc, o)
}

// open takes over uc.
func open(ctx context.Context, uc *net.UnixConn, o DialOptions) (*Client, error) {
	c := &Client{
		conn:    newConn(uc),
		timeout: o.Timeout,
		trusted: o.TrustServer,
		info:    bus.Info{Address: o.Name},
		peer:    capabilities{}.limits(),
		idle:    make(chan *call, maxCalls),
		lost:    make(chan struct{}),
		dma:     map[*bus.Memory]uint64{},
	}
	if c.timeout == 0 {
		c.timeout = defaultTimeout
	}
	for i := range c.calls {
		c.calls[i].init(uint16(i))
		c.idle <- &c.calls[i]
	}
	c.reading.Go(c.read)
	stop := context.AfterFunc(ctx, func() { c.fail(context.Cause(ctx)) })
	err := c.attach()
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("vfio-user: %s: %w", o.Name, err)
	}
	return c, nil
}

// attach negotiates and learns what the device has.
func (c *Client) attach() error {
	doorbells, err := c.negotiate()
	if err != nil {
		return err
	}
	d, err := c.deviceInfo()
	if err != nil {
		return err
	}
	c.info.CanReset = d.flags&deviceReset != 0
	for i := range min(d.regions, bus.NumRegions) {
		if err := c.attachRegion(int(i)); err != nil {
			return err
		}
	}
	for kind := range min(d.irqs, uint32(len(c.info.Vectors))) {
		if err := c.attachIRQ(kind); err != nil {
			return err
		}
	}
	if doorbells {
		if err := c.attachDoorbells(); err != nil {
			return err
		}
		if c.trusted && c.bells != nil {
			c.bells.Event().TrustPeers()
		}
	}
	return c.identify()
}

// negotiate tells whether the server's doorbells follow bus.Doorbells.
func (c *Client) negotiate() (doorbells bool, err error) {
	propose := version{major: ourMajor, minor: ourMinor, hasJSON: true, caps: capabilities{
		MaxMsgFDs:       new(uint32(maxFDs)),
		MaxDataXferSize: new(uint32(maxTransfer)),
		PageSizes:       new(uint64(pageSize)),
		Doorbells:       new(true),
		DMABase:         new(uint64(0)),
	}}
	r, err := c.call(cmdVersion, propose.append, nil, versionReplyLimit)
	if err != nil {
		return false, err
	}
	defer c.release(r)
	v, err := parseVersion(r.reply)
	if err != nil {
		return false, err
	}
	if v.major != ourMajor || v.minor > ourMinor {
		return false, violation("server speaks version %d.%d", v.major, v.minor)
	}
	c.peer = v.caps.limits()
	if v.caps.DMABase != nil {
		c.info.DMABase = *v.caps.DMABase
	}
	return v.caps.Doorbells != nil && *v.caps.Doorbells, nil
}

// versionReplyLimit is the longest VERSION reply taken.
const versionReplyLimit = 4096

func (c *Client) deviceInfo() (deviceInfo, error) {
	r, err := c.call(cmdGetInfo, deviceInfo{}.append, nil, deviceInfoSize)
	if err != nil {
		return deviceInfo{}, err
	}
	defer c.release(r)
	d, err := parseDeviceInfo(r.reply)
	if err == nil && d.regions <= bus.ConfigSpace {
		err = violation("device without configuration space")
	}
	return d, err
}

func (c *Client) attachIRQ(kind uint32) error {
	r, err := c.call(cmdGetIRQInfo, irqInfo{index: kind}.append, nil, irqInfoSize)
	if err != nil {
		return err
	}
	defer c.release(r)
	i, err := parseIRQInfo(r.reply)
	if err != nil {
		return err
	}
	const maxVectors = 2048 // MSI-X's
	if i.count > maxVectors {
		return violation("%d vectors", i.count)
	}
	if i.flags&irqEventFD != 0 {
		c.info.Vectors[kind] = int(i.count)
		c.resize[kind] = i.flags&irqNoResize == 0
	}
	return nil
}

// Where configuration space says what a device is.
const (
	configVendor   = 0x00
	configRevision = 0x08
)

func (c *Client) identify() error {
	id, err := c.ReadConfig(configVendor, 4)
	if err != nil {
		return err
	}
	revision, err := c.ReadConfig(configRevision, 1)
	if err != nil {
		return err
	}
	c.info.Vendor, c.info.Device = uint16(id), uint16(id>>16)
	c.info.Revision = uint8(revision)
	return nil
}

// Info describes the device.
func (c *Client) Info() bus.Info { return c.info }

// Lost is closed when the device is gone, also by Close.
func (c *Client) Lost() <-chan struct{} { return c.lost }

// Err is nil while the device is there, and then says why it is gone.
func (c *Client) Err() error {
	if !c.isLost.Load() {
		return nil
	}
	<-c.lost
	return c.named(c.reason)
}

// named is err with the device's name.
func (c *Client) named(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", c.info.Address, err)
}

// ReadConfig reads configuration space.
func (c *Client) ReadConfig(offset, size int) (uint32, error) {
	if err := checkConfigAccess(offset, size); err != nil {
		return bus.Gone, c.named(err)
	}
	if offset >= c.regionSize(bus.ConfigSpace) {
		return allOnes(size), nil
	}
	v, err := c.readRegion(bus.ConfigSpace, uint64(offset), size)
	if err != nil {
		return allOnes(size), c.named(err)
	}
	return v, nil
}

// WriteConfig writes configuration space and waits until it is done.
func (c *Client) WriteConfig(offset, size int, value uint32) error {
	if err := checkConfigAccess(offset, size); err != nil {
		return c.named(err)
	}
	return c.named(c.writeRegion(bus.ConfigSpace, uint64(offset), size, value))
}

func allOnes(size int) uint32 { return bus.Gone >> (32 - 8*size) }

func checkConfigAccess(offset, size int) error {
	if size != 1 && size != 2 && size != 4 || offset < 0 || offset%size != 0 {
		return fmt.Errorf("configuration space access of %d bytes at %#x", size, offset)
	}
	return nil
}

// Reset brings the device into its power-on state. When ctx ends first, the
// device is gone: nobody knows what state it will be in.
func (c *Client) Reset(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { c.fail(context.Cause(ctx)) })
	defer stop()
	return c.named(c.do(cmdReset, nil, nil, 0))
}

// fail makes the device gone because of err.
func (c *Client) fail(err error) {
	c.lose.Do(func() {
		c.reason = fmt.Errorf("%w: %w", bus.ErrGone, err)
		c.isLost.Store(true)
		c.conn.Close()
		close(c.lost)
	})
}

// errClosed is why a device is gone that was closed.
var errClosed = errors.New("closed")

// Close takes the device's interrupts and DMA from it and ends the connection.
// A register access that comes late, even while Close runs, does no harm.
func (c *Client) Close() error {
	if !c.isLost.Load() {
		_ = c.SetInterrupts(c.kind, nil)
		c.unmapAll()
	}
	c.fail(errClosed)
	c.reading.Wait()
	for _, p := range c.pages {
		p.Abandon()
	}
	if c.bells != nil {
		c.bells.Event().Close()
	}
	return nil
}

// RequestError is a request that the server refused.
type RequestError struct {
	Command string // "DMA_MAP"
	Errno   unix.Errno
}

func (e *RequestError) Error() string {
	if e.Errno == 0 {
		return e.Command + " failed"
	}
	return fmt.Sprintf("%s: %v", e.Command, e.Errno)
}

// Unwrap returns the error number.
func (e *RequestError) Unwrap() error { return e.Errno }

// Is makes the numbers that a bus has its own errors for those errors.
func (e *RequestError) Is(target error) bool {
	switch target {
	case bus.ErrGone:
		return e.Errno == unix.ENODEV
	case bus.ErrUnsupported:
		return e.Errno == unix.EOPNOTSUPP
	}
	return false
}
