package tap_test

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"nicd/framework"
	"nicd/internal/testns"
	"nicd/port/tap"
)

// What the operator sets is told once, in whichever namespace it is done; what is
// refused is put back, and what the port itself set is nobody's wish.
func TestWish(t *testing.T) {
	testns.NeedTAP(t)
	first, second, name, below := testns.New(t), testns.New(t), testns.LinkName(), newNIC(1)
	wishes, needs := make(chan tap.Wish, 10), make(chan bool, 10)
	var refuse atomic.Bool
	var p *tap.Port
	p, err := tap.New(tap.Options{
		Name: name,
		OnWish: func(w tap.Wish) error {
			defer func() { wishes <- w }() // when it is done: the test sets other things then
			if refuse.Load() {
				return errors.New("no")
			}
			below.set(func(s *framework.Settings) {
				if w.MTU != 0 {
					s.MTU = w.MTU
				}
				if w.MAC != (framework.MAC{}) {
					s.MAC = w.MAC
				}
			})
			return p.SettingsChanged()
		},
		OnNeeds: func() { needs <- p.Needs().Promiscuous },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.Attach(below); err != nil {
		t.Fatal(err)
	}
	first.Take(t, name)
	wished := func(s *testns.Space, want tap.Wish) {
		t.Helper()
		link := s.Link(t, name)
		var err error
		if want.MTU != 0 {
			err = s.Netlink().LinkSetMTU(link, want.MTU)
		} else {
			err = s.Netlink().LinkSetHardwareAddr(link, net.HardwareAddr(want.MAC[:]))
		}
		if err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-wishes:
			if got != want {
				t.Errorf("wish %+v, want %+v", got, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("nobody was told of %+v", want)
		}
	}
	wished(first, tap.Wish{MTU: 1300})
	wished(first, tap.Wish{MAC: framework.MAC{2, 0, 0, 0, 7, 7}})
	if err := first.Move(name, second); err != nil {
		t.Fatal(err)
	}
	wished(second, tap.Wish{MTU: 1200})
	below.set(func(s *framework.Settings) { s.MTU = 2000 })
	if err := p.SettingsChanged(); err != nil {
		t.Fatal(err)
	}
	if err := second.Netlink().SetPromiscOn(second.Link(t, name)); err != nil {
		t.Fatal(err)
	}
	select {
	case on := <-needs:
		if !on {
			t.Error("the port does not need all frames")
		}
	case <-time.After(10 * time.Second):
		t.Fatal("promiscuity was not noticed")
	}
	refuse.Store(true)
	wished(second, tap.Wish{MTU: 1111})
	for end := time.Now().Add(10 * time.Second); second.Link(t, name).Attrs().MTU != 2000; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("what was refused was not put back")
		}
	}
	p.Close()
	if len(wishes) != 0 {
		t.Errorf("told of %+v", <-wishes)
	}
}
