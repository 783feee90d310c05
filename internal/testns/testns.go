// Package testns gives tests Linux network namespaces of their own, and sockets
// in them.
//
// A test that needs one and can't have it is skipped with the reason, except
// where the environment says CI=true: there it fails.
package testns

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Space is a network namespace. It lives as long as its test.
type Space struct {
	handle netns.NsHandle
	links  *netlink.Handle
}

// Unavailable skips the test, or fails it where nothing may be missing.
func Unavailable(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s (CI=true: this may not be missing)", why)
	}
	t.Skip(why)
}

// NeedTAP sees to it that TAP devices can be made.
func NeedTAP(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Unavailable(t, "making a TAP device needs root")
	}
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0)
	if err != nil {
		Unavailable(t, err.Error())
	}
	f.Close()
}

// LinkName is a name that no Linux interface has, with luck.
func LinkName() string { return fmt.Sprintf("nt%08x", rand.Uint32()) }

// New makes a namespace with loopback up.
func New(t testing.TB) *Space {
	t.Helper()
	if os.Geteuid() != 0 {
		Unavailable(t, "making a network namespace needs root")
	}
	s := &Space{}
	err := onThread(func() (err error) {
		s.handle, err = netns.New()
		return err
	})
	if err != nil {
		Unavailable(t, fmt.Sprintf("making a network namespace: %v", err))
	}
	t.Cleanup(func() { s.handle.Close() })
	if s.links, err = netlink.NewHandleAt(s.handle); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.links.Close)
	s.Up(t, "lo")
	return s
}

// onThread runs do on a thread that ends afterwards, in whichever namespace do
// left it.
func onThread(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- do()
	}()
	return <-done
}

// Do runs do in the namespace. What it starts on other threads is not.
func (s *Space) Do(do func() error) error {
	return onThread(func() error {
		if err := netns.Set(s.handle); err != nil {
			return err
		}
		return do()
	})
}

// Take moves a link of the test's own namespace into s.
func (s *Space) Take(t testing.TB, name string) {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetNsFd(link, int(s.handle))
	}
	if err != nil {
		t.Fatalf("moving %s: %v", name, err)
	}
}

// Move moves a link of the namespace into another.
func (s *Space) Move(name string, to *Space) error {
	link, err := s.links.LinkByName(name)
	if err != nil {
		return err
	}
	return s.links.LinkSetNsFd(link, int(to.handle))
}

// Link is a link of the namespace.
func (s *Space) Link(t testing.TB, name string) netlink.Link {
	t.Helper()
	link, err := s.links.LinkByName(name)
	if err != nil {
		t.Fatalf("link %s: %v", name, err)
	}
	return link
}

// Netlink is the namespace's netlink.
func (s *Space) Netlink() *netlink.Handle { return s.links }

// Up brings a link up and gives it addresses. IPv6 addresses are usable at once.
func (s *Space) Up(t testing.TB, name string, addresses ...string) {
	t.Helper()
	link := s.Link(t, name)
	if err := s.links.LinkSetUp(link); err != nil {
		t.Fatalf("%s up: %v", name, err)
	}
	for _, a := range addresses {
		address, err := netlink.ParseAddr(a)
		if err != nil {
			t.Fatal(err)
		}
		address.Flags = 0x02 // IFA_F_NODAD
		if address.IP.To4() != nil {
			address.Flags = 0
		}
		if err := s.links.AddrAdd(link, address); err != nil {
			t.Fatalf("address %s of %s: %v", a, name, err)
		}
	}
}

// Listen accepts TCP connections in the namespace.
func (s *Space) Listen(t testing.TB, at string) *net.TCPListener {
	t.Helper()
	var l *net.TCPListener
	err := s.Do(func() (err error) {
		l, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.MustParseAddrPort(at)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// Dial opens a TCP connection from the namespace.
func (s *Space) Dial(to net.Addr) (c *net.TCPConn, err error) {
	err = s.Do(func() error {
		c, err = net.DialTCP("tcp", nil, to.(*net.TCPAddr))
		return err
	})
	return c, err
}
