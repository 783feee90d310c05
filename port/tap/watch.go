package tap

import (
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"nicd/framework"
)

// This file follows what the operator does to the Linux interface, as the kernel
// tells it (rtnetlink(7)). A message is only a reason to look: what it says may be
// what the port itself set, a while ago.

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
}

// subscription is the messages about the links of one namespace.
type subscription struct {
	updates chan netlink.LinkUpdate
	done    chan struct{}
	links   *netlink.Handle
	index   int // of the Linux interface
}

// attempts to find the Linux interface: it may be moved just then.
const attempts = 3

// watch follows the Linux interface through namespaces until the port is closed
// or the interface is gone. A nicd that may not look where it is follows nothing.
func (p *Port) watch() {
	for {
		s := p.subscribe()
		if s == nil {
			return
		}
		again := p.follow(s)
		s.close()
		if !again {
			return
		}
	}
}

// subscribe asks for messages in the namespace that the Linux interface is in.
func (p *Port) subscribe() *subscription {
	for range attempts {
		s, err := p.subscribeOnce()
		if err == nil {
			return s
		}
	}
	return nil
}

func (p *Port) subscribeOnce() (*subscription, error) {
	namespace := netns.None() // the caller's
	_ = control(p.first, func(fd int) error {
		if ns, err := unix.IoctlRetInt(fd, unix.TUNGETDEVNETNS); err == nil {
			namespace = netns.NsHandle(ns)
		}
		return nil
	})
	if namespace.IsOpen() {
		defer namespace.Close()
	}
	name, err := currentName(p.first)
	if err != nil {
		return nil, err
	}
	s := &subscription{updates: make(chan netlink.LinkUpdate), done: make(chan struct{})}
	if s.links, err = netlink.NewHandleAt(namespace, unix.NETLINK_ROUTE); err != nil {
		return nil, err
	}
	options := netlink.LinkSubscribeOptions{Namespace: &namespace, ListExisting: true}
	if err := netlink.LinkSubscribeWithOptions(s.updates, s.done, options); err != nil {
		s.links.Close()
		return nil, err
	}
	link, err := s.links.LinkByName(name)
	if err != nil {
		s.close()
		return nil, err
	}
	s.index = link.Attrs().Index
	return s, nil
}

func (s *subscription) close() {
	close(s.done)
	for range s.updates { // its sender ends when there is nothing more to send
	}
	s.links.Close()
}

// follow looks at the Linux interface whenever something happens to a link beside
// it, which may be one above that needs it promiscuous and says so nowhere else.
// True says that the interface is somewhere else by now.
func (p *Port) follow(s *subscription) bool {
	for {
		select {
		case u, ok := <-s.updates:
			if !ok || u.Header.Type == unix.RTM_DELLINK && u.Attrs().Index == s.index {
				return true
			}
			p.look(s)
		case <-p.closed:
			return false
		}
	}
}

// look finds out what the operator has set, and has the interface below follow.
func (p *Port) look(s *subscription) {
	link, err := s.links.LinkByIndex(s.index)
	if err != nil {
		return // it is gone or moved: a message about that is on its way
	}
	promiscuous := link.Attrs().Promisc != 0 // how often it was asked for, by whomever
	if p.promiscuous.Swap(promiscuous) != promiscuous && p.onNeeds != nil {
		p.onNeeds()
	}
	if p.onWish == nil {
		return
	}
	told, wish := p.wish()
	if wish != (Wish{}) {
		p.answer(told, wish, p.onWish(wish))
	}
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
