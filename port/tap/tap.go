// Package tap is a port that ends in the kernel: an interface gets a Linux
// network interface that applications, routes and the kernel's TCP use like one
// with a kernel driver.
//
// What lives here is the seam between the two: frames are read straight into an
// interface's buffers and written straight from them, one system call a packet,
// and offloads are translated both ways (a super-packet of the kernel's goes down
// to be segmented, a coalesced packet goes up as one). What does not: addresses
// and routes, which are the operator's ("ip address add ... dev NAME").
//
// The Linux interface follows the one below in address, MTU and carrier; and what
// the operator sets at it with "ip link" (address, MTU, promiscuity) is passed on
// to whoever can have the interface below follow. It is made by New, stays while
// drivers come and go, and is removed by Close.
package tap

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"nicd/framework"
)

// Options of a port. Name or FDs has to be set.
type Options struct {
	// Name of the Linux interface. It must not exist yet.
	Name string
	// FDs are queues of a TAP device that somebody else opened, with IFF_TAP,
	// IFF_NO_PI and IFF_VNET_HDR. They are the port's from New on. When New fails
	// those before the one that was refused are closed, and that one and the rest
	// left alone: a number that is no queue may be anything. Such a device is
	// removed by Close only if it is not persistent.
	FDs []int
	// OnFault is told, once, that the Linux interface is gone ("ip link delete")
	// or does not work any more, at the latest with the next packet. It must not
	// block.
	OnFault func(error)
	// OnWish is told what the operator set at the Linux interface. It returns when
	// the interface below has that, after SettingsChanged, or with the reason why
	// not: the Linux interface then gets back what it had. nil: what the operator
	// sets is left alone. There is one call at a time; Close waits for it.
	OnWish func(Wish) error
	// OnNeeds is told that Needs gives another answer than before; likewise.
	OnNeeds func()
}

// Port is a framework.Port.
type Port struct {
	name      string
	inherited bool
	onFault   func(error)
	onWish    func(Wish) error
	onNeeds   func()
	first     *os.File // makes the interface exist from New on
	iface     framework.Interface
	queues    atomic.Pointer[[]*queue] // only grows; changed by New, Attach and SettingsChanged
	applied   framework.Settings       // what the Linux interface was told, zero before that
	offloads  int                      // likewise, -1
	uso       bool                     // the kernel can leave UDP to be cut
	running   sync.WaitGroup
	closed    chan struct{}
	end       sync.Once
	fault     sync.Once
	mtu       atomic.Int64 // of the interface below
	counters  counters

	watcher     watcher
	promiscuous atomic.Bool // something above the Linux interface wants all frames
}

var (
	_ framework.Port             = (*Port)(nil)
	_ framework.SettingsFollower = (*Port)(nil)
	_ framework.CountingPort     = (*Port)(nil)
)

// New makes the Linux interface, without a carrier, or takes over the one that
// the descriptors belong to.
func New(o Options) (*Port, error) {
	p := &Port{
		name: o.Name, onFault: o.OnFault, onWish: o.OnWish, onNeeds: o.OnNeeds,
		offloads: -1, closed: make(chan struct{}), inherited: len(o.FDs) > 0,
	}
	if p.inherited {
		if err := p.inherit(o.FDs); err != nil {
			p.closeFiles()
			return nil, err
		}
		p.name, _ = currentName(p.first)
	} else if err := p.create(); err != nil {
		return nil, err
	}
	p.uso = setOffloads(p.first, offloadChecksum|offloadUSO) == nil // until Attach sets what is in force
	if err := setCarrier(p.first, false); err != nil {
		p.closeFiles()
		return nil, fmt.Errorf("%s: carrier: %w", p.name, err)
	}
	return p, nil
}

func (p *Port) create() (err error) {
	if p.name == "" {
		return errors.New("a TAP port needs a name or a descriptor")
	}
	if p.first, err = openQueue(p.name, true); err != nil {
		return err
	}
	p.add(p.first)
	return nil
}

func (p *Port) inherit(fds []int) error {
	for _, fd := range fds {
		file, err := inheritQueue(fd)
		if err != nil {
			return err
		}
		p.add(file)
	}
	p.first = p.all()[0].file
	return nil
}

// Name is the Linux interface's name as it was at New.
func (p *Port) Name() string { return p.name }

// all is the Linux interface's queues.
func (p *Port) all() []*queue {
	if queues := p.queues.Load(); queues != nil {
		return *queues
	}
	return nil
}

func (p *Port) add(file *os.File) *queue {
	q := newQueue(p, file, len(p.all()))
	if p.iface != nil {
		q.attach(p.iface)
	}
	queues := append(slices.Clone(p.all()), q)
	p.queues.Store(&queues)
	return q
}

// Attach implements framework.Port: the Linux interface gets as many queues as
// the one below, its address and MTU.
func (p *Port) Attach(i framework.Interface) error {
	p.iface = i
	for _, q := range p.all() {
		q.attach(i)
	}
	if err := p.SettingsChanged(); err != nil {
		return err
	}
	for _, q := range p.all() {
		q.start()
	}
	p.running.Go(p.watch)
	return nil
}

// followQueues adds queues if there are more below, and has those that wait for
// one below that is not in use any more look for another.
func (p *Port) followQueues() error {
	for n, below := len(p.all()), p.iface.Queues(); n < below && !p.inherited; n++ {
		file, err := openQueueBeside(p.first)
		if err != nil {
			return fmt.Errorf("%s: queue %d of %d: %w", p.name, n+1, below, err)
		}
		p.add(file).start()
	}
	for _, q := range p.all() {
		q.wake()
	}
	return nil
}

// SettingsChanged implements framework.SettingsFollower. What has not changed is
// left alone: the operator may have set something else, and wait for an answer.
func (p *Port) SettingsChanged() error {
	s := p.iface.Settings()
	p.mtu.Store(int64(s.MTU))
	if err := p.followQueues(); err != nil {
		return err
	}
	if err := p.offload(s.Features); err != nil {
		return err
	}
	p.watcher.mu.Lock()
	defer p.watcher.mu.Unlock()
	if s.MAC != p.applied.MAC {
		if err := setMAC(p.first, s.MAC); err != nil {
			return fmt.Errorf("%s: address %v: %w", p.name, s.MAC, err)
		}
		p.applied.MAC, p.watcher.told.MAC = s.MAC, s.MAC
	}
	if s.MTU != p.applied.MTU {
		has, err := p.setMTU(s.MTU)
		if err != nil {
			return err
		}
		p.applied.MTU, p.watcher.told.MTU = s.MTU, has
	}
	return nil
}

// setMTU sets the Linux interface's MTU and returns what it is then. Without the
// permission it has to do that whoever handed the interface over has set one that
// is not larger.
func (p *Port) setMTU(mtu int) (int, error) {
	err := setMTU(p.first, mtu)
	if err == nil {
		return mtu, nil
	}
	if has, unknown := getMTU(p.first); errors.Is(err, os.ErrPermission) && unknown == nil && has <= mtu {
		return has, nil
	}
	return 0, fmt.Errorf("%s: mtu %d: %w", p.name, mtu, err)
}

// offload tells the kernel what it may leave to the interface below.
func (p *Port) offload(usable framework.Features) error {
	offloads := 0
	if usable.Has(framework.TxChecksum) {
		offloads = offloadChecksum
		if usable.Has(framework.TSO4) {
			offloads |= offloadTSO4
		}
		if usable.Has(framework.TSO6) {
			offloads |= offloadTSO6
		}
		if offloads&(offloadTSO4|offloadTSO6) != 0 {
			offloads |= offloadECN // segmenters clear CWR after the first (RFC 3168)
		}
		if usable.Has(framework.USO) {
			offloads |= offloadUSO
		}
	}
	if offloads == p.offloads {
		return nil
	}
	if err := setOffloads(p.first, offloads); err != nil {
		return fmt.Errorf("%s: offloads %#x: %w", p.name, offloads, err)
	}
	p.offloads = offloads
	return nil
}

// Deliver implements framework.Port: packets are written to the kernel and their
// buffers go straight back.
func (p *Port) Deliver(queue int, b *framework.Batch) {
	queues := p.all()
	queues[queue%len(queues)].deliver(queue, b)
}

// TxReady implements framework.Port.
func (p *Port) TxReady(queue int) {
	queues := p.all()
	for n := queue; n < len(queues); n += p.iface.Queues() {
		queues[n].wake()
	}
}

// LinkChanged implements framework.Port: the link is the Linux interface's
// carrier, and its speed what ethtool shows.
func (p *Port) LinkChanged(l framework.Link) {
	if err := setCarrier(p.first, l.Up); err != nil {
		p.broke(fmt.Errorf("%s: carrier: %w", p.name, err))
		return
	}
	if l.Up {
		// Who may not set it has another speed shown, and no harm done.
		_ = setSpeed(p.first, l.Mbps, l.FullDuplex)
	}
}

// Needs implements framework.Port. The kernel joins multicast groups (IPv6 needs
// some for its addresses), so all multicast has to come in; and everything while a
// bridge, a capture or the operator has the Linux interface promiscuous.
func (p *Port) Needs() framework.PortNeeds {
	accepts := framework.AllFeatures
	if !p.uso {
		accepts &^= framework.USO
	}
	return framework.PortNeeds{Name: "tap", Accepts: accepts, AllMulticast: true, Promiscuous: p.promiscuous.Load()}
}

// broke reports that the Linux interface does not work any more.
func (p *Port) broke(err error) {
	select {
	case <-p.closed:
		return
	default:
	}
	p.fault.Do(func() {
		if p.onFault != nil {
			p.onFault(err)
		}
	})
}

// gone reports that the Linux interface is no more. The kernel wakes a reader
// when it is about to remove an interface, and not after: the reader may have
// looked too early, so that the next packet up is what finds out.
func (p *Port) gone(err error) { p.broke(fmt.Errorf("the interface %s is gone: %w", p.name, err)) }

// Close removes the Linux interface, unless it is a persistent one that was
// handed over.
func (p *Port) Close() error {
	p.end.Do(func() { close(p.closed) })
	p.closeFiles()
	p.running.Wait()
	return nil
}

func (p *Port) closeFiles() {
	for _, q := range p.all() {
		q.file.Close()
	}
}
