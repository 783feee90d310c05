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
	"testing"

	"github.com/vishvananda/netlink"

	"nicd/internal/netspace"
)

// Space is a network namespace. It lives as long as its test.
type Space struct{ space *netspace.Space }

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
	space, err := netspace.New()
	if err != nil {
		Unavailable(t, err.Error())
	}
	t.Cleanup(space.Close)
	s := &Space{space}
	s.Up(t, "lo")
	return s
}

// Do runs do in the namespace. What it starts on other threads is not.
func (s *Space) Do(do func() error) error { return s.space.Do(do) }

// Take moves a link of the test's own namespace into s.
func (s *Space) Take(t testing.TB, name string) {
	t.Helper()
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetNsFd(link, s.space.FD())
	}
	if err != nil {
		t.Fatalf("moving %s: %v", name, err)
	}
}

// Move moves a link of the namespace into another.
func (s *Space) Move(name string, to *Space) error {
	link, err := s.Netlink().LinkByName(name)
	if err != nil {
		return err
	}
	return s.Netlink().LinkSetNsFd(link, to.space.FD())
}

// Link is a link of the namespace.
func (s *Space) Link(t testing.TB, name string) netlink.Link {
	t.Helper()
	link, err := s.Netlink().LinkByName(name)
	if err != nil {
		t.Fatalf("link %s: %v", name, err)
	}
	return link
}

// Netlink is the namespace's netlink.
func (s *Space) Netlink() *netlink.Handle { return s.space.Netlink() }

// Up brings a link up and gives it addresses. IPv6 addresses are usable at once.
func (s *Space) Up(t testing.TB, name string, addresses ...string) {
	t.Helper()
	link := s.Link(t, name)
	if err := s.Netlink().LinkSetUp(link); err != nil {
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
		if err := s.Netlink().AddrAdd(link, address); err != nil {
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
