package netspace_test

import (
	"context"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"nicd/internal/netspace"
	"nicd/internal/testns"
)

func newSpace(t *testing.T) *netspace.Space {
	t.Helper()
	if os.Geteuid() != 0 {
		testns.Unavailable(t, "making a network namespace needs root")
	}
	s, err := netspace.New()
	if err != nil {
		testns.Unavailable(t, err.Error())
	}
	t.Cleanup(s.Close)
	return s
}

// Two namespaces and a veth pair: carrier comes when both ends are up, and what
// TCP has received is told to the byte.
func TestConnections(t *testing.T) {
	a, b := newSpace(t), newSpace(t)
	left, right := testns.LinkName(), testns.LinkName()
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: left}, PeerName: right}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	if err := a.Take(left, "10.76.0.1/24"); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := a.AwaitCarrier(short, left); err == nil || !strings.Contains(err.Error(), left+" has no carrier") {
		t.Errorf("one end is down: %v", err)
	}
	if err := b.Take(right, "10.76.0.2/24"); err != nil {
		t.Fatal(err)
	}
	patience, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for s, name := range map[*netspace.Space]string{a: left, b: right} {
		if err := s.AwaitCarrier(patience, name); err != nil {
			t.Fatal(err)
		}
	}
	var listener net.Listener
	err := b.Do(func() (err error) {
		listener, err = net.Listen("tcp", "10.76.0.2:0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var from net.Conn
	err = a.Do(func() (err error) {
		from, err = net.Dial("tcp", listener.Addr().String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	const size = 123456
	if _, err := from.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, to, size); err != nil {
		t.Fatal(err)
	}
	list, err := b.Connections()
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	c := list[0]
	if c.Received != size || c.Local.String() != listener.Addr().String() || c.Remote.String() != from.LocalAddr().String() {
		t.Errorf("%+v", c)
	}
	if list, err := a.Connections(); err != nil || len(list) != 1 || list[0].Received != 0 {
		t.Errorf("the sender's: %+v, %v", list, err)
	}
}
