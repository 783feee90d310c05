package vfiobench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"nicd/bus"
	"nicd/drivers/e1000"
	"nicd/drivers/vmxnet3"
	"nicd/framework"
	"nicd/framework/drivertest"
	"nicd/framework/drivertest/rig"
	"nicd/internal/testns"
	"nicd/sim"
	models "nicd/sim/e1000"
	"nicd/sim/tap"
	vmxnet3model "nicd/sim/vmxnet3"
)

// cable makes a Linux interface that is the far end, and the wire behind it.
func cable(t *testing.T) (space *testns.Space, peer *Peer, wire *sim.Wire) {
	t.Helper()
	testns.NeedTAP(t)
	space = testns.New(t)
	wire = sim.NewWire(sim.WireOptions{NoFlowControl: true})
	var far *tap.End
	inSpace(t, space, func() (err error) {
		if far, err = tap.New(testns.LinkName()); err != nil {
			return err
		}
		wire.Connect(carrier{far})
		peer, err = OpenPeer(far.Name())
		return err
	})
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		if err := far.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		inSpace(t, space, peer.Close)
		cancel()
		all.Wait()
		wire.Close()
	})
	return space, peer, wire
}

// carrier is an end of a wire that takes frames only as they are on a real one, and
// that has a carrier whenever it is up.
type carrier struct{ *tap.End }

func (carrier) Wants() sim.Wants { return sim.Wants{} }

func (carrier) SetLink(bool) {}

func inSpace(t *testing.T, s *testns.Space, do func() error) {
	t.Helper()
	if err := s.Do(do); err != nil {
		t.Fatal(err)
	}
}

// nic is a model on the peer's wire, whose link is up when the peer is. One is there
// at a time.
type nic struct {
	bus.Device
	close func()
}

func (n nic) Close() error {
	n.close()
	return n.Device.Close()
}

func newNIC(t *testing.T, model sim.Model, wire *sim.Wire, peer *Peer) (bus.Device, error) {
	dev, err := sim.NewDevice(model, sim.Options{Name: "model", HeapDoorbells: true, OnFault: func(f sim.Fault) { t.Error(f) }})
	if err != nil {
		return nil, err
	}
	port := wire.Connect(model)
	done := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		look := time.NewTicker(time.Millisecond)
		defer look.Stop()
		for was := true; ; {
			select {
			case <-done:
				return
			case <-look.C:
			}
			if up, _, err := peer.dev.state(); err == nil && up != was {
				was = up
				wire.SetLink(up)
			}
		}
	})
	return nic{dev, func() {
		close(done)
		all.Wait()
		wire.SetLink(true)
		wire.Disconnect(port)
	}}, nil
}

var cases = []struct {
	driver framework.Driver
	id     uint16
	model  func() sim.Model
	least  int // checks that pass
}{
	{vmxnet3.New(), 0x07B0, func() sim.Model { return vmxnet3model.New(vmxnet3model.Options{MAC: rig.MAC}) }, 120},
	{e1000.New(), 0x10D3, func() sim.Model { return models.New(models.Options{Kind: models.I82574L, MAC: rig.MAC}) }, 120},
}

// TestPeer puts device models in a real device's place, whose wire ends in a Linux
// interface that another one is wired to: that is the far end.
func TestPeer(t *testing.T) {
	for _, c := range cases {
		t.Run(c.driver.Describe().Name, func(t *testing.T) {
			_, peer, wire := cable(t)
			b := bench(c.driver, "0000:03:00.0", func() (bus.Device, error) { return newNIC(t, c.model(), wire, peer) })
			b.Quick = true
			if err := peer.face(t.Context(), &b, c.id); err != nil {
				t.Fatal(err)
			}
			if why, lacks := b.Lacks[drivertest.LinkControl]; lacks {
				t.Errorf("the link does not follow: %s", why)
			}
			b.Progress = func(k drivertest.Result) {
				if k.Status == drivertest.Failed || k.Seconds > 20 {
					t.Errorf("%s %s after %.1f s: %v %v", k.Name, k.Status, k.Seconds, k.Problems, k.Log)
				}
				if k.Status == drivertest.NotApplicable && (k.Reason == "" || k.Reason == noFarEnd) {
					t.Errorf("%s: not applicable: %q", k.Name, k.Reason)
				}
			}
			r := drivertest.Check(t.Context(), b)
			if r.Passed < c.least {
				t.Errorf("%d passed", r.Passed)
			}
			t.Logf("%s: %d passed, %d failed, %d not applicable, %.0f s", b.Name, r.Passed, r.Failed, r.NotApplicable, r.Seconds)
		})
	}
}

// TestForeignTraffic: others talk on the network all the time, to the device, to
// everybody and to the far end. It is none of the checks' business.
func TestForeignTraffic(t *testing.T) {
	space, peer, wire := cable(t)
	chatter := openSecond(t, space, peer.Name())
	back := sim.NewTester(wire, sim.Wants{})
	back.Limit = 1 // what it hears is forgotten
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		others := framework.MAC{0x02, 7, 7, 7, 7, 7}
		everybody := framework.MAC{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}
		each := time.NewTicker(3 * time.Millisecond)
		defer each.Stop()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-each.C:
			}
			_ = chatter.write(rig.Frame{To: []framework.MAC{rig.MAC, everybody}[i%2], From: others, Payload: 300}.Build())
			_ = back.Send(t.Context(), sim.FrameOf(rig.Frame{To: rig.Peer, From: others, Payload: 300}.Build()))
		}
	})
	defer func() {
		close(stop)
		all.Wait()
	}()
	c := cases[1]
	b := bench(c.driver, "0000:03:00.0", func() (bus.Device, error) { return newNIC(t, c.model(), wire, peer) })
	b.Quick = true
	names := []string{"receive.wrap", "receive.small-batch", "transmit.wrap", "filter.own", "filter.promiscuous", "jumbo.between", "vlan.strip",
		"checksum.good", "lro.none", "stop.loaded", "link.state"}
	b.Select = func(name string) bool { return slices.Contains(names, name) }
	if err := peer.face(t.Context(), &b, c.id); err != nil {
		t.Fatal(err)
	}
	r := drivertest.Check(t.Context(), b)
	for _, k := range r.Checks {
		if k.Status != drivertest.Passed {
			t.Errorf("%s %s: %v %s", k.Name, k.Status, k.Problems, k.Reason)
		}
	}
	if r.Passed != len(names) {
		t.Errorf("%d checks passed", r.Passed)
	}
}

func openSecond(t *testing.T, space *testns.Space, name string) (d *netdev) {
	t.Helper()
	inSpace(t, space, func() (err error) { d, err = openNetdev(name); return err })
	t.Cleanup(func() { d.close() })
	return d
}

// TestWrongCable: what the far end sends does not get to the device.
func TestWrongCable(t *testing.T) {
	_, peer, _ := cable(t)
	_, _, elsewhere := cable(t)
	c := cases[1]
	b := bench(c.driver, "0000:03:00.0", func() (bus.Device, error) { return newNIC(t, c.model(), elsewhere, peer) })
	b.Patience = time.Second
	err := peer.face(t.Context(), &b, c.id)
	if !errors.Is(err, drivertest.ErrNoFarEnd) || !strings.Contains(err.Error(), peer.Name()) || strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
}

// TestPeerIsLeftAsItWas: all settings are what they were, and in between those that
// change packets are off.
func TestPeerIsLeftAsItWas(t *testing.T) {
	space := testns.New(t)
	near, far := testns.LinkName(), testns.LinkName()
	if err := space.Netlink().LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: near}, PeerName: far}); err != nil {
		t.Fatal(err)
	}
	for _, up := range []bool{true, false} {
		inSpace(t, space, func() error {
			if err := exec.Command("ip", "link", "set", far, map[bool]string{true: "up", false: "down"}[up]).Run(); err != nil {
				return err
			}
			before := settings(t, far)
			p, err := OpenPeer(far)
			if err != nil {
				return err
			}
			during := settings(t, far)
			if !strings.Contains(during, "mtu=12060") || !strings.Contains(during, "up=true") || !strings.Contains(during, "ipv6=1") ||
				!strings.Contains(during, "TSO=false") || !strings.Contains(during, "GRO=false") || !strings.Contains(during, "tx-checksum=false") {
				t.Errorf("while it is open: %s", during)
			}
			if err := p.Close(); err != nil {
				return err
			}
			if err := p.Close(); err != nil {
				t.Errorf("closed again: %v", err)
			}
			if after := settings(t, far); after != before || !strings.Contains(before, "TSO=true") {
				t.Errorf("before: %s\nafter: %s", before, after)
			}
			return nil
		})
	}
}

// settings are what OpenPeer may change.
func settings(t *testing.T, name string) (all string) {
	t.Helper()
	d, err := openNetdev(name)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	up, _, err := d.state()
	if err != nil {
		t.Fatal(err)
	}
	mtu, err := d.mtu()
	if err != nil {
		t.Fatal(err)
	}
	ipv6, _ := os.ReadFile("/proc/sys/net/ipv6/conf/" + name + "/disable_ipv6")
	all = fmt.Sprintf("up=%v mtu=%d ipv6=%s", up, mtu, strings.TrimSpace(string(ipv6)))
	for _, o := range offloads {
		v, err := d.offload(o)
		if err != nil {
			t.Fatal(err)
		}
		all += fmt.Sprintf(" %s=%v", o.name, v)
	}
	return all
}

// TestPeerRefused: an interface that can't be the far end is a line that says why.
func TestPeerRefused(t *testing.T) {
	space := testns.New(t)
	used, many := testns.LinkName(), testns.LinkName()
	if err := space.Netlink().LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: used}, PeerName: testns.LinkName()}); err != nil {
		t.Fatal(err)
	}
	space.Up(t, used, "10.9.8.7/24")
	if err := space.Netlink().LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: many, NumTxQueues: 4, NumRxQueues: 4}, PeerName: testns.LinkName(),
	}); err != nil {
		t.Fatal(err)
	}
	for name, says := range map[string]string{"no-such": "no interface", used: "10.9.8.7/24", many: "combined 1"} {
		inSpace(t, space, func() error {
			p, err := OpenPeer(name)
			if !errors.Is(err, ErrPeer) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v", name, err)
			}
			if p != nil {
				return p.Close()
			}
			return nil
		})
	}
}
