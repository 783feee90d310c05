package tap_test

import (
	"strings"
	"testing"
	"time"

	"nicd/framework"
	"nicd/internal/netspace"
	"nicd/internal/testns"
	"nicd/port/tap"
)

// The operator removes the namespace that the Linux interface is in, or the interface,
// while nothing is sent: both are gone then, and that is said. The port, which follows
// what is set there, does not keep the namespace.
func TestRemovedWhileIdle(t *testing.T) {
	testns.NeedTAP(t)
	for name, remove := range map[string]func(*testing.T, *netspace.Space, string){
		"namespace": func(_ *testing.T, s *netspace.Space, _ string) { s.Close() },
		"interface": func(t *testing.T, s *netspace.Space, name string) {
			link, err := s.Netlink().LinkByName(name)
			if err == nil {
				err = s.Netlink().LinkDel(link)
			}
			if err != nil {
				t.Error(err)
			}
			s.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			space, err := netspace.New()
			if err != nil {
				t.Fatal(err)
			}
			name, below := testns.LinkName(), newNIC(1)
			faults, wishes := make(chan error, 10), make(chan tap.Wish, 10)
			p := newPort(t, tap.Options{
				Name:    name,
				OnFault: func(err error) { faults <- err },
				OnWish:  func(w tap.Wish) error { wishes <- w; return nil },
			}, below)
			if err := space.Take(name, "192.0.2.1/24"); err != nil {
				t.Fatal(err)
			}
			link, err := space.Netlink().LinkByName(name)
			if err == nil {
				err = space.Netlink().LinkSetMTU(link, 1300)
			}
			if err != nil {
				t.Fatal(err)
			}
			wait := time.After(20 * time.Second)
			select {
			case <-wishes: // it looks in that namespace
			case <-wait:
				t.Fatal("the port does not follow")
			}
			remove(t, space, name)
			select {
			case err := <-faults:
				if !strings.Contains(err.Error(), name+" is gone") {
					t.Error(err)
				}
			case <-wait:
				t.Fatal("nobody noticed")
			}
			p.LinkChanged(framework.Link{Up: true})
			p.Close()
			below.census(t)
			if len(faults) != 0 {
				t.Errorf("and: %v", <-faults)
			}
		})
	}
}
