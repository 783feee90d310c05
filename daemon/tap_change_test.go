package daemon

import (
	"context"
	"crypto/rand"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"nicd/bus"
	"nicd/drivers/e1000"
	"nicd/drivers/vmxnet3"
	"nicd/framework"
	"nicd/internal/testns"
	"nicd/port/tap"
	"nicd/proto/adminpb"
)

// What changes under the kernel's TCP while it runs: no connection is lost, no
// byte is another, and the Linux interface follows.
func TestTAPChanges(t *testing.T) {
	testns.NeedTAP(t)
	left, right := testns.LinkName(), testns.LinkName()
	d := startTest(t, inProcess+nicText("a", "vmxnet3", vmxnet3Model(3), "", tapText(left))+nicText("b", "vmxnet3", vmxnet3Model(3), "", tapText(right)))
	a, b := namespaces(t, left, right)
	listener := b.Listen(t, "10.77.0.2:0")
	c, err := a.Dial(listener.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	peer, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	go func() { _, _ = io.Copy(peer, peer) }() // what arrives comes back
	sent, back := make([]byte, 1<<20), make([]byte, 1<<20)
	goesOn := func(after string) {
		t.Helper()
		_, _ = rand.Read(sent)
		if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		written := make(chan error, 1)
		go func() {
			_, err := c.Write(sent)
			written <- err
		}()
		if _, err := io.ReadFull(c, back); err != nil || string(back) != string(sent) {
			t.Fatalf("after %s: %v, same %v", after, err, string(back) == string(sent))
		}
		if err := <-written; err != nil {
			t.Fatalf("after %s: %v", after, err)
		}
	}
	goesOn("the start")
	admin := &adminServer{daemon: d}
	for _, s := range [][2]string{
		{"mtu", "9000"}, {"queues", "1"}, {"tso", "off"}, {"lro", "off"}, {"queues", "2"}, {"lro", "on"}, {"tx-csum", "off"},
		{"mtu", "1500"}, {"tx-csum", "on"}, {"tso", "on"}, {"rx-csum", "off"}, {"lro", "software"}, {"rx-csum", "on"},
	} {
		for _, name := range []string{"a", "b"} {
			_, err := admin.SetInterface(t.Context(), &adminpb.SetInterfaceRequest{Name: name, Settings: []*adminpb.Setting{{Name: s[0], Value: s[1]}}})
			if err != nil {
				t.Fatalf("%s %s=%s: %v", name, s[0], s[1], err)
			}
		}
		goesOn(s[0] + "=" + s[1])
		if mtu := a.Link(t, left).Attrs().MTU; s[0] == "mtu" && strconv.Itoa(mtu) != s[1] {
			t.Errorf("the Linux interface's MTU is %d, not %s", mtu, s[1])
		}
	}
	for _, name := range []string{"a", "b"} {
		if s := d.find(name).port.(*tap.Port).Stats(); s.UpRefused+s.UpGone+s.UpOpaque+s.DownNonsense != 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// What the operator sets with ip(8) is what the device has: MTU, address, and all
// frames while something above is promiscuous. What it can't have is put back.
func TestTAPFollowsOperator(t *testing.T) {
	testns.NeedTAP(t)
	left, right := testns.LinkName(), testns.LinkName()
	d := startTest(t, inProcess+nicText("a", "vmxnet3", vmxnet3Model(3), "", tapText(left))+nicText("b", "e1000", `model = "82574L"`, "", tapText(right)))
	a, b := namespaces(t, left, right) // where it has to be looked for
	for name, s := range map[string]*testns.Space{left: a, right: b} {
		i := d.find(map[string]string{left: "a", right: "b"}[name])
		links, link := s.Netlink(), s.Link(t, name)
		await(t, name+": mtu 3000", func() bool { return i.inForce().plan.MTU == 3000 }, links.LinkSetMTU(link, 3000))
		mac := framework.MAC{2, 0, 0, 0, 1, 7}
		await(t, name+": address", func() bool { return i.inForce().plan.MAC == mac }, links.LinkSetHardwareAddr(link, mac[:]))
		await(t, name+": promiscuous", func() bool { return i.inForce().plan.Filters.Promiscuous }, links.SetPromiscOn(link))
		await(t, name+": not promiscuous", func() bool { return !i.inForce().plan.Filters.Promiscuous }, links.SetPromiscOff(link))
		// No device takes that much, and nicd's config does not either.
		await(t, name+": an MTU that is put back", func() bool { return s.Link(t, name).Attrs().MTU == 3000 }, links.LinkSetMTU(link, 20000))
		if got := i.inForce().plan.MTU; got != 3000 {
			t.Errorf("%s: mtu %d after one that was refused", name, got)
		}
		if got := s.Link(t, name).Attrs().HardwareAddr.String(); got != mac.String() {
			t.Errorf("%s: address %s", name, got)
		}
		// nicd's word afterwards counts as much as before.
		if _, err := d.Set(t.Context(), i.config.Name, []Assignment{{"mtu", "1500"}}, false); err != nil {
			t.Fatal(err)
		}
		if got := s.Link(t, name).Attrs().MTU; got != 1500 {
			t.Errorf("%s: the Linux interface's mtu is %d", name, got)
		}
		await(t, name+": mtu 1400", func() bool { return i.inForce().plan.MTU == 1400 }, links.LinkSetMTU(link, 1400))
		if err := links.LinkSetHardwareAddr(link, net.HardwareAddr{2, 0, 0, 0, 2, byte(i.deviceID)}); err != nil {
			t.Fatal(err) // the two have to be told apart
		}
	}
	send(t, a, b, "10.77.0.2:0", 1<<20)
}

// earlyDriver is a vmxnet3's during whose start somebody else acts.
type earlyDriver struct {
	framework.Driver
	act func()
}

func (d earlyDriver) Attach(ctx context.Context, dev bus.Device, env framework.Env) (framework.Device, error) {
	device, err := d.Driver.Attach(ctx, dev, env)
	return earlyDevice{device, d.act}, err
}

type earlyDevice struct {
	framework.Device
	act func()
}

func (d earlyDevice) Start(c framework.Config) (framework.Queues, error) {
	d.act()
	return d.Device.Start(c)
}

// What a network manager sets as soon as it sees the Linux interface, which is
// before nicd is done with the device, is what the device has.
func TestTAPFollowsEarlyOperator(t *testing.T) {
	testns.NeedTAP(t)
	name := testns.LinkName()
	mtu := func() int {
		link, err := netlink.LinkByName(name)
		if err != nil {
			t.Error(err)
			return 0
		}
		return link.Attrs().MTU
	}
	var once sync.Once
	driver := earlyDriver{vmxnet3.New(), func() {
		once.Do(func() {
			link, err := netlink.LinkByName(name)
			if err == nil {
				err = netlink.LinkSetMTU(link, 1400)
			}
			if err != nil {
				t.Error(err)
			}
			for end := time.Now().Add(300 * time.Millisecond); mtu() == 1400 && time.Now().Before(end); {
				time.Sleep(time.Millisecond) // for who may put it back
			}
		})
	}}
	d := startWith(t, inProcess+nicText("a", "vmxnet3", vmxnet3Model(3), "", tapText(name)), driver, e1000.New())
	await(t, "mtu 1400", func() bool { return d.find("a").inForce().plan.MTU == 1400 && mtu() == 1400 }, nil)
}

// A macvlan has an address of its own, which the kernel tells nobody of but by
// having the interface below promiscuous.
func TestTAPUnderMacvlan(t *testing.T) {
	testns.NeedTAP(t)
	left, right := testns.LinkName(), testns.LinkName()
	d := startTest(t, inProcess+nicText("a", "vmxnet3", vmxnet3Model(3), "", tapText(left))+nicText("b", "vmxnet3", vmxnet3Model(3), "", tapText(right)))
	a, b := namespaces(t, left, right)
	above := testns.LinkName()
	link := &netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: above, ParentIndex: a.Link(t, left).Attrs().Index}, Mode: netlink.MACVLAN_MODE_BRIDGE}
	if err := a.Netlink().LinkAdd(link); err != nil {
		testns.Unavailable(t, "no macvlan: "+err.Error())
	}
	a.Up(t, above, "10.78.0.1/24")
	b.Up(t, right, "10.78.0.2/24")
	await(t, "promiscuous", func() bool { return d.find("a").inForce().plan.Filters.Promiscuous }, nil)
	send(t, b, a, "10.78.0.1:0", 1<<20)
}

// await waits until something has come about.
func await(t *testing.T, what string, done func() bool, begun error) {
	t.Helper()
	if begun != nil {
		t.Fatalf("%s: %v", what, begun)
	}
	until(t, what, 20*time.Second, done)
}
