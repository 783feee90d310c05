// Package tap ends a virtual wire in the kernel: a Linux network interface at
// the far end of a device model, so that any program can talk through it.
//
// What lives here is an end of a wire ([sim.End]) over a TAP device. It is no
// port of nicd's (that is port/tap): there is no driver and no arena, only frames
// on a wire. The kernel's own super-packets go onto the wire uncut; what comes
// off the wire is cut for the kernel, with the checksum left to it.
package tap

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"nicd/sim"
)

const (
	devicePath = "/dev/net/tun"
	// maxFrame is the longest that the kernel passes: an IP packet of 64 KiB with
	// its Ethernet header and a tag.
	maxFrame = 65535 + sim.EthernetHeaderLen + sim.VLANTagLen
)

// End is the wire's end and the Linux interface behind it. Connect it to a wire,
// then call Run.
type End struct {
	name   string
	file   *os.File
	conn   syscall.RawConn
	port   *sim.Port
	resume chan struct{} // Resume was called

	mu      sync.Mutex // of what follows: each peer receives on a goroutine of its own
	out     [headerLen + maxFrame]byte
	write   func(fd uintptr) bool // writes out[:length]; made once
	length  int
	errno   error
	dropped atomic.Uint64
}

var _ sim.End = (*End)(nil)

// New makes the Linux interface of a name, or takes over one that is there and
// persistent ("ip tuntap add NAME mode tap vnet_hdr"). Making one needs
// CAP_NET_ADMIN. The interface is removed by Close, if New made it.
func New(name string) (*End, error) {
	fd, err := unix.Open(devicePath, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("tap %s: no permission to open %s: run as root", name, devicePath)
	case err != nil:
		return nil, fmt.Errorf("tap %s: %s: %w (is the kernel's tun module loaded?)", name, devicePath, err)
	}
	if err := configure(fd, name); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("tap %s: %w", name, err)
	}
	e := &End{name: name, file: os.NewFile(uintptr(fd), devicePath), resume: make(chan struct{}, 1)}
	if e.conn, err = e.file.SyscallConn(); err != nil {
		e.file.Close()
		return nil, err
	}
	e.write = func(fd uintptr) bool {
		_, e.errno = unix.Write(int(fd), e.out[:e.length])
		return true // one try: who sends on a wire does not wait for the kernel
	}
	return e, nil
}

func configure(fd int, name string) error {
	request, err := unix.NewIfreq(name)
	if err != nil {
		return errors.New("an interface's name has 1 to 15 characters")
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		switch {
		case errors.Is(err, unix.EBUSY):
			return errors.New("the name is in use by another interface: choose another")
		case errors.Is(err, unix.EPERM):
			return errors.New("no permission to make the interface: that takes CAP_NET_ADMIN")
		}
		return err
	}
	for _, set := range []struct {
		request uint
		value   int
	}{{unix.TUNSETVNETHDRSZ, headerLen}, {unix.TUNSETVNETLE, 1}} {
		if err := unix.IoctlSetPointerInt(fd, set.request, set.value); err != nil {
			return err
		}
	}
	return unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, unix.TUN_F_CSUM|unix.TUN_F_TSO4|unix.TUN_F_TSO6|unix.TUN_F_TSO_ECN)
}

// Name is the Linux interface's name.
func (e *End) Name() string { return e.name }

// Dropped is how many frames off the wire the kernel did not take: the interface
// is down, or has no room.
func (e *End) Dropped() uint64 { return e.dropped.Load() }

// Close ends Run and removes the interface, unless it is a persistent one.
func (e *End) Close() error { return e.file.Close() }

// Plug implements sim.End.
func (e *End) Plug(p *sim.Port) { e.port = p }

// Wants implements sim.End.
func (e *End) Wants() sim.Wants { return sim.Wants{Partial: true} }

// Resume implements sim.End.
func (e *End) Resume() {
	select {
	case e.resume <- struct{}{}:
	default:
	}
}

// SetLink implements sim.End: the wire's link is the interface's carrier.
func (e *End) SetLink(up bool) {
	carrier := 0
	if up {
		carrier = 1
	}
	// Kernels before 5.0 do not have it, and a closed interface has none.
	_ = e.conn.Control(func(fd uintptr) { _ = unix.IoctlSetPointerInt(int(fd), unix.TUNSETCARRIER, carrier) })
}

// Receive implements sim.End.
func (e *End) Receive(frames []sim.Frame, _ bool) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range frames {
		f := &frames[i]
		if f.Len > maxFrame {
			e.dropped.Add(1)
			continue
		}
		encode(e.out[:headerLen], f)
		e.length = headerLen + f.CopyTo(e.out[headerLen:], 0)
		if err := e.conn.Write(e.write); err != nil || e.errno != nil {
			e.dropped.Add(1)
		}
	}
	return len(frames)
}

// Run puts what the kernel sends onto the wire until ctx ends (nil), or the
// interface is gone.
func (e *End) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { e.file.Close() })
	defer stop()
	buf := make([]byte, headerLen+maxFrame)
	var parts [1][]byte
	frames := make([]sim.Frame, 1)
	for {
		n, err := e.file.Read(buf)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("tap %s: %w", e.name, err)
		case n < headerLen+sim.EthernetHeaderLen:
			continue
		}
		parts[0] = buf[headerLen:n]
		frames[0] = sim.Frame{Parts: parts[:], Len: n - headerLen}
		decode(&frames[0], buf[:headerLen])
		for e.port.Send(frames) == 0 {
			select {
			case <-e.resume:
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// The header in front of each frame: struct virtio_net_hdr of the virtio
// specification 1.2, section 5.1.6, without the fields of later versions, in
// little-endian byte order.
const (
	headerLen = 10

	atFlags          = 0
	atGSOType        = 1
	atGSOSize        = 4
	atChecksumStart  = 6
	atChecksumOffset = 8

	needsChecksum = 1
	gsoTCPv4      = 1
	gsoTCPv6      = 4
	gsoECN        = 0x80 // of the type: the segment has CWR set
)

// encode describes a frame off the wire.
func encode(h []byte, f *sim.Frame) {
	clear(h)
	if f.Flags&sim.Partial == 0 {
		return
	}
	h[atFlags] = needsChecksum
	binary.LittleEndian.PutUint16(h[atChecksumStart:], uint16(f.ChecksumStart))
	binary.LittleEndian.PutUint16(h[atChecksumOffset:], uint16(f.ChecksumOffset))
}

// decode says what the kernel left to be done on a frame of one part.
func decode(f *sim.Frame, h []byte) {
	if h[atFlags]&needsChecksum == 0 {
		return
	}
	f.Flags = sim.Partial
	f.ChecksumStart = int(binary.LittleEndian.Uint16(h[atChecksumStart:]))
	f.ChecksumOffset = int(binary.LittleEndian.Uint16(h[atChecksumOffset:]))
	kind := h[atGSOType] &^ gsoECN
	if kind != gsoTCPv4 && kind != gsoTCPv6 {
		return
	}
	// The kernel's header length is of what lies in one piece, not of the
	// headers.
	var p sim.Headers
	b := f.Parts[0]
	if !sim.ParseHeaders(&p, b, f.Len) || p.Protocol != sim.ProtocolTCP || p.Payload == 0 {
		return
	}
	f.Flags |= sim.Segment
	f.HeaderLen = p.Payload
	f.SegmentSize = int(binary.LittleEndian.Uint16(h[atGSOSize:]))
	withoutLength(b[p.ChecksumAt():], f.Len-p.L4)
}

// withoutLength takes the length out of a checksum's seed: the kernel's has it,
// that of a frame that is to be cut does not (each segment has its own).
func withoutLength(seed []byte, length int) {
	sum := uint32(binary.BigEndian.Uint16(seed)) + uint32(^uint16(length))
	sum = sum&0xffff + sum>>16
	binary.BigEndian.PutUint16(seed, uint16(sum&0xffff+sum>>16))
}
