// Package netspace makes Linux network namespaces for what nicd does with the
// kernel's own TCP: links are moved into one, programs run in it, and what its
// TCP has received so far can be read.
//
// What lives here is the namespace. What runs in it is the caller's, and tests
// have package testns, which fails or skips for them.
package netspace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Space is a network namespace. It ends with the last process that is in it, the
// last link that is made there, and Close.
type Space struct {
	handle netns.NsHandle
	links  *netlink.Handle
}

// socketDiagnosis is NETLINK_SOCK_DIAG of include/uapi/linux/netlink.h.
const socketDiagnosis = 4

// New makes a namespace. It takes CAP_SYS_ADMIN, and the error says so.
func New() (s *Space, err error) {
	s = &Space{handle: netns.None()}
	err = onThread(func() error {
		s.handle, err = netns.New()
		return err
	})
	if errors.Is(err, os.ErrPermission) {
		return nil, errors.New("making a network namespace needs root")
	}
	if err != nil {
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	if s.links, err = netlink.NewHandleAt(s.handle); err != nil {
		s.handle.Close()
		return nil, fmt.Errorf("network namespace: %w", err)
	}
	return s, nil
}

// Close lets go of the namespace. A nil Space has nothing to let go of.
func (s *Space) Close() {
	if s == nil {
		return
	}
	s.links.Close()
	s.handle.Close()
}

// onThread runs do on a thread of its own that comes back afterwards, from whichever
// namespace do left it in. One that can't come back ends. (The first thread of a
// process never does: it would keep a namespace that it stays in.)
func onThread(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		home, err := netns.Get()
		if err != nil {
			done <- err
			return
		}
		defer home.Close()
		err = do()
		if netns.Set(home) == nil {
			runtime.UnlockOSThread()
		}
		done <- err
	}()
	return <-done
}

// Do runs do in the namespace. A process that it starts is in it too; goroutines
// are not.
func (s *Space) Do(do func() error) error {
	return onThread(func() error {
		if err := netns.Set(s.handle); err != nil {
			return err
		}
		return do()
	})
}

// Netlink is the namespace's netlink. It stays the Space's.
func (s *Space) Netlink() *netlink.Handle { return s.links }

// FD is the namespace's descriptor, to move links by. It stays the Space's.
func (s *Space) FD() int { return int(s.handle) }

// Take moves a link from the caller's namespace into this one, gives it an
// address ("10.0.0.1/24") and brings it up.
func (s *Space) Take(name, address string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetNsFd(link, int(s.handle)); err != nil {
		return err
	}
	if link, err = s.links.LinkByName(name); err != nil {
		return err
	}
	a, err := netlink.ParseAddr(address)
	if err != nil {
		return err
	}
	return errors.Join(s.links.AddrAdd(link, a), s.links.LinkSetUp(link))
}

// AwaitCarrier waits until a link of the namespace can carry frames, or ctx ends.
func (s *Space) AwaitCarrier(ctx context.Context, name string) error {
	updates, done := make(chan netlink.LinkUpdate), make(chan struct{})
	err := netlink.LinkSubscribeWithOptions(updates, done, netlink.LinkSubscribeOptions{Namespace: &s.handle, ListExisting: true})
	if err != nil {
		return err
	}
	defer func() {
		close(done)
		for range updates { // its sender ends when it finds nobody to send to
		}
	}()
	for {
		select {
		case u, ok := <-updates:
			if !ok {
				return errors.New("the kernel tells no more of its links")
			}
			if a := u.Attrs(); a.Name == name && a.RawFlags&lowerUp != 0 {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("%s has no carrier: %w", name, context.Cause(ctx))
		}
	}
}

// lowerUp is IFF_LOWER_UP of include/uapi/linux/if.h.
const lowerUp = 1 << 16

// Connection is how far one TCP connection of a namespace is, in bytes and
// segments since it began.
type Connection struct {
	Local, Remote net.TCPAddr
	Received      uint64 // bytes, in order and acknowledged
	Retransmits   uint64 // segments sent again
}

// Connections are the namespace's IPv4 TCP connections that are established.
func (s *Space) Connections() ([]Connection, error) {
	h, err := netlink.NewHandleAt(s.handle, socketDiagnosis)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	sockets, err := h.SocketDiagTCPInfo(netlink.FAMILY_V4)
	if err != nil {
		return nil, err
	}
	var list []Connection
	for _, c := range sockets {
		if c.InetDiagMsg.State != netlink.TCP_ESTABLISHED || c.TCPInfo == nil {
			continue
		}
		id := c.InetDiagMsg.ID
		list = append(list, Connection{
			Local:    net.TCPAddr{IP: id.Source, Port: int(id.SourcePort)},
			Remote:   net.TCPAddr{IP: id.Destination, Port: int(id.DestinationPort)},
			Received: c.TCPInfo.Bytes_received, Retransmits: uint64(c.TCPInfo.Total_retrans),
		})
	}
	return list, nil
}
