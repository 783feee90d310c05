package tap

import (
	"errors"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"nicd/framework"
)

// This file follows what the operator does to the Linux interface, as the kernel
// tells it. A notice is only a reason to look: what it says may be what the port itself
// set, a while ago.

// Wish is what the operator set at the Linux interface. Zero is what was left
// alone.
type Wish struct {
	MTU int
	MAC framework.MAC
}

// watcher compares the Linux interface with what it was told.
type watcher struct {
	mu sync.Mutex // held while the Linux interface is told something, and while it is looked at
	// told is what the Linux interface has by the port's doing or knowing. What is
	// different from it is the operator's doing.
	told Wish

	// Where the Linux interface was last; the watching goroutine's.
	place  string
	placed bool // it can be known
}

// watch follows the Linux interface through namespaces until the port is closed or
// the interface is gone. A nicd that may not look where it is follows nothing.
func (p *Port) watch() {
	n, err := openNotices()
	if err != nil {
		return
	}
	defer n.file.Close()
	p.running.Go(func() {
		<-p.closed
		n.file.Close()
	})
	for p.look() && n.wait() {
	}
}

// look finds out what the operator has set, and has the interface below follow. False
// says that the Linux interface is no more.
func (p *Port) look() bool {
	place, err := p.place()
	if err != nil {
		p.gone(err)
		return false
	}
	defer place.Close()
	link, err := p.link(place)
	if err != nil {
		return true // it is moved or removed just now: there is a notice to come
	}
	promiscuous := link.Attrs().Promisc != 0 // how often it was asked for, by whomever
	if p.promiscuous.Swap(promiscuous) != promiscuous && p.onNeeds != nil {
		p.onNeeds()
	}
	if p.onWish == nil {
		return true
	}
	told, wish := p.wish()
	if wish != (Wish{}) {
		p.answer(told, wish, p.onWish(wish))
	}
	return true
}

var errNamespaceGone = errors.New("its network namespace is removed")

// place is the network namespace that the Linux interface is in, and none if that is
// not to be known: then it has not moved. An error says that there is no interface,
// or that its namespace is being removed with all that is in it.
func (p *Port) place() (netns.NsHandle, error) {
	place := netns.None()
	err := control(p.first, func(fd int) error {
		ns, err := unix.IoctlRetInt(fd, unix.TUNGETDEVNETNS)
		switch {
		case err == nil:
			place = netns.NsHandle(ns)
		case errors.Is(err, unix.EBADFD):
			return err
		case errors.Is(err, unix.EINVAL) && p.watcher.placed: // if not, the kernel is older than 5.2 and knows no such call
			return errNamespaceGone
		}
		return nil
	})
	if err != nil || !place.IsOpen() {
		return place, err
	}
	p.watcher.placed = true
	if id := place.UniqueId(); id != p.watcher.place {
		p.watcher.place = id
		hear(place)
	}
	return place, nil
}

// link asks the kernel about the Linux interface. Nothing stays open in its
// namespace: that would be kept for nobody when the operator removes it.
func (p *Port) link(place netns.NsHandle) (link netlink.Link, err error) {
	name, err := currentName(p.first)
	switch {
	case err != nil:
		return nil, err
	case !place.IsOpen() || own(place):
		return netlink.LinkByName(name)
	}
	links, err := netlink.NewHandleAt(place, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer links.Close()
	return links.LinkByName(name)
}

// wish is what the operator has set, and what the Linux interface was told before.
func (p *Port) wish() (told, w Wish) {
	p.watcher.mu.Lock()
	defer p.watcher.mu.Unlock()
	told = p.watcher.told
	if mtu, err := getMTU(p.first); err == nil && mtu != told.MTU {
		w.MTU = mtu
	}
	if mac, err := getMAC(p.first); err == nil && mac != told.MAC {
		w.MAC = mac
	}
	return told, w
}

// answer notes that a wish was fulfilled, or puts back what was there before. What
// the Linux interface was told in the meantime counts.
func (p *Port) answer(before, w Wish, refused error) {
	p.watcher.mu.Lock()
	defer p.watcher.mu.Unlock()
	told := &p.watcher.told
	if w.MTU != 0 && told.MTU == before.MTU {
		if refused == nil || setMTU(p.first, before.MTU) != nil {
			told.MTU = w.MTU
		}
	}
	if w.MAC != (framework.MAC{}) && told.MAC == before.MAC {
		if refused == nil || setMAC(p.first, before.MAC) != nil {
			told.MAC = w.MAC
		}
	}
}
