package vfiobench

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"nicd/bus"
	"nicd/framework"
	"nicd/framework/drivertest/rig"
	"nicd/sim"
)

// Peer is a Linux interface as the far end of a device: the second port of a card, a
// NIC on the same switch, one on the same network of a virtual machine. It belongs
// to one bench at a time. While it is open nobody else uses the interface, which
// merges, cuts and sums nothing then and takes frames that are as long as it can.
//
// Others may talk on the network. Frames for the device come from addresses that
// only this peer uses, and other ones with each start of the device, so that the
// rest is told from them, as are those that somebody kept for the device while it
// was stopped. What others send is none of the checks' business but for those that
// count, or that want silence.
type Peer struct {
	dev    *netdev
	back   []func() error // how to leave the interface as it was, the last first
	mtu    int
	source atomic.Uint64 // of frames for the device, in the lower 48 bits
}

// ErrPeer: an interface can't be the far end.
var ErrPeer = errors.New("no far end")

// sourcePrefix is that of the addresses that frames for the device come from: a
// locally administered one (IEEE 802). 24 bits are left.
const sourcePrefix = 0x026E63_000000

// OpenPeer takes an interface over, which has no address but a link-local one. It
// takes CAP_NET_RAW and CAP_NET_ADMIN. An error says what to do about it, and leaves
// the interface as it was.
func OpenPeer(name string) (*Peer, error) {
	dev, err := openNetdev(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPeer, err)
	}
	p := &Peer{dev: dev, back: []func() error{dev.close}}
	p.source.Store(sourcePrefix | uint64(rand.Uint32N(1<<24)))
	if err := p.prepare(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPeer, errors.Join(err, p.Close()))
	}
	return p, nil
}

// Name is the interface's name.
func (p *Peer) Name() string { return p.dev.name }

// Close leaves the interface as it was.
func (p *Peer) Close() (err error) {
	for _, f := range slices.Backward(p.back) {
		err = errors.Join(err, f())
	}
	p.back = nil
	return err
}

// prepare sets the interface up. What it changes is in back.
func (p *Peer) prepare() error {
	if err := idle(p.dev.name); err != nil {
		return err
	}
	queues, err := p.dev.queues()
	if err != nil {
		return err
	}
	if queues > 1 {
		return fmt.Errorf("%s has %d queues, between which frames lose their order (ethtool -L %s combined 1)", p.dev.name, queues, p.dev.name)
	}
	for _, step := range []func() error{p.silence, p.plain, p.lengthen, p.raise} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// idle fails if an interface has addresses: it is used.
func idle(name string) error {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	addresses, err := i.Addrs()
	if err != nil {
		return err
	}
	for _, a := range addresses {
		if ip, ok := a.(*net.IPNet); ok && !ip.IP.IsLinkLocalUnicast() {
			return fmt.Errorf("%s has the address %s: the far end goes down and up, and nobody else may use it", name, a)
		}
	}
	return nil
}

// silence keeps the kernel's IPv6 from talking.
func (p *Peer) silence() error {
	file := "/proc/sys/net/ipv6/conf/" + p.dev.name + "/disable_ipv6"
	was, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	p.back = append(p.back, func() error { return os.WriteFile(file, was, 0o644) })
	return os.WriteFile(file, []byte("1"), 0o644)
}

// plain turns off all that changes packets.
func (p *Peer) plain() error {
	// One that is turned off may take others along, so that all are looked at first
	// and go on in order.
	was := make([]bool, len(offloads))
	for i, o := range offloads {
		on, err := p.dev.offload(o)
		if err != nil {
			return err
		}
		was[i] = on
	}
	p.back = append(p.back, func() (err error) {
		for i, o := range offloads {
			err = errors.Join(err, p.dev.setOffload(o, was[i]))
		}
		return err
	})
	for _, o := range offloads {
		if err := p.dev.setOffload(o, false); err != nil {
			return err
		}
	}
	return nil
}

// MTUs to try: for the longest frame of any check, and what NICs have.
var mtus = []int{12060, 9216, 9000}

// lengthen has the interface take the longest frames that it can.
func (p *Peer) lengthen() error {
	was, err := p.dev.mtu()
	if err != nil {
		return err
	}
	p.back = append(p.back, func() error { return p.dev.setMTU(was) })
	for _, p.mtu = range mtus {
		if p.mtu <= was || p.dev.setMTU(p.mtu) == nil {
			break
		}
	}
	p.mtu, err = p.dev.mtu()
	return err
}

// raise brings the interface up.
func (p *Peer) raise() error {
	up, _, err := p.dev.state()
	if err != nil {
		return err
	}
	p.back = append(p.back, func() error { return p.dev.setUp(up) })
	return p.dev.setUp(true)
}

// restart makes what was sent until now nobody's.
func (p *Peer) restart() {
	next := (p.source.Load() + 1) & (1<<24 - 1)
	p.source.Store(sourcePrefix | next)
}

// address is the source of frames for the device as they are on the wire.
func (p *Peer) address() (mac framework.MAC) {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], p.source.Load())
	copy(mac[:], b[2:])
	return mac
}

// mark gives a frame for the device the source by which it is known, in place of
// rig.Peer.
func (p *Peer) mark(frame []byte) {
	if mac := p.address(); len(frame) >= headerLen {
		copy(frame[addressLen:], mac[:])
	}
}

// marked tells whether mark has seen a frame since the last restart, and gives it
// back its source.
func (p *Peer) marked(frame []byte) bool {
	mac := p.address()
	if len(frame) < headerLen || !bytes.Equal(frame[addressLen:2*addressLen], mac[:]) {
		return false
	}
	copy(frame[addressLen:], rig.Peer[:])
	return true
}

// fromDevice tells whether a frame is from a check, by way of the device.
func fromDevice(frame []byte) bool {
	return bytes.Equal(frame[:addressLen], rig.Peer[:]) && bytes.Equal(frame[addressLen:2*addressLen], rig.MAC[:])
}

// farEnd is the peer as a station's.
type farEnd struct {
	*sim.Tester
	peer *Peer
	dev  bus.Device
}

var _ rig.Tester = farEnd{}

// Send implements rig.Tester. It sends when all register writes before hold, which
// take another way than frames do: nothing that is read from the device overtakes
// a write (PCI Express, transaction ordering). And it waits for a carrier.
func (f farEnd) Send(ctx context.Context, frames ...sim.Frame) error {
	for i := range frames {
		if most := f.peer.maxFrame(); frames[i].Len > most+tagLen {
			return fmt.Errorf("%s sends frames of up to %d bytes, not of %d", f.peer.Name(), most, frames[i].Len)
		}
	}
	_, _ = f.dev.ReadConfig(0, 4) // of a device that is gone: it has no writes to wait for
	if err := f.peer.carrier(ctx); err != nil {
		return err
	}
	return f.Tester.Send(ctx, frames...)
}

// maxFrame is the longest frame that the interface sends, without a tag.
func (p *Peer) maxFrame() int { return p.mtu + headerLen }

// carrierPause is how long to wait before the next look at the carrier.
const carrierPause = time.Millisecond

// carrier waits until the interface is up with a carrier, if it is up at all: what
// is sent while it is down is lost, and is meant to be.
func (p *Peer) carrier(ctx context.Context) error {
	for {
		up, running, err := p.dev.state()
		if err != nil || !up || running {
			return err
		}
		select {
		case <-time.After(carrierPause):
		case <-ctx.Done():
			return fmt.Errorf("%s has no carrier", p.Name())
		}
	}
}

// join makes the peer the far end of a station, until the station's Close.
func (p *Peer) join(s *rig.Station) error {
	if err := p.dev.setUp(true); err != nil { // a check may have ended with it down
		return err
	}
	p.restart()
	wire := sim.NewWire(sim.WireOptions{})
	tester := sim.NewTester(wire, sim.Wants{})
	e := &end{peer: p, dev: p.dev}
	e.connect(wire)
	s.Peer, s.SetFaults = farEnd{tester, p, s.Bus}, wire.SetFaults
	s.Own, s.Restart, s.MaxFrame = p.marked, p.restart, p.maxFrame()
	closed := s.Close
	s.Close = func() {
		wire.Close()
		e.close()
		if closed != nil {
			closed()
		}
	}
	return nil
}

// setLink takes the interface down, or up. A failure is seen by who waits for the
// link.
func (p *Peer) setLink(up bool) { _ = p.dev.setUp(up) }
