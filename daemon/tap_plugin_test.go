package daemon

import (
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"nicd/internal/testns"
)

// The kernel's TCP through drivers that are plugins, both ways; then one of these
// is killed in the middle of it. Its Linux interface stays as it is and loses its
// carrier, the connections wait, and everybody else goes on.
func TestTAPPluginKilled(t *testing.T) {
	testns.NeedTAP(t)
	left, right := testns.LinkName(), testns.LinkName()
	d, book := startPlugins(t, `wire "w0" {}`+nicText("a", "vmxnet3", vmxnet3Model(3), "", tapText(left))+nicText("b", "e1000", `model = "82574L"`, "", tapText(right)))
	a, b := namespaces(t, left, right)
	send(t, a, b, "10.77.0.2:0", 4<<20)
	send(t, b, a, "[fd77::1]:0", 4<<20)

	up, down := startFlow(t, a, b, "10.77.0.2:0"), startFlow(t, b, a, "10.77.0.1:0")
	for _, f := range []*flow{up, down} {
		until(t, "a stream moves", 20*time.Second, func() bool { return f.received.Load() > 4<<20 })
	}
	victim := d.find("a")
	if err := syscall.Kill(victim.process.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "noticed", 5*time.Second, func() bool { return victim.is(failed) })
	awaitCarrier(t, a, left, false)
	if addresses, err := a.Netlink().AddrList(a.Link(t, left), 2); err != nil || len(addresses) != 1 {
		t.Errorf("addresses of the interface that stays: %v, %v", addresses, err)
	}
	awaitCarrier(t, b, right, true)
	for _, f := range []*flow{up, down} {
		if reason := f.lost.Load(); reason != nil {
			t.Errorf("a connection was lost: %v", *reason)
		}
	}

	// Nothing can be changed below, and the Linux interface does not pretend.
	if err := a.Netlink().LinkSetMTU(a.Link(t, left), 1400); err != nil {
		t.Fatal(err)
	}
	until(t, "the old MTU is back", 10*time.Second, func() bool { return a.Link(t, left).Attrs().MTU == 1500 })
	if n := strings.Count(book.String(), "refused and put back"); n != 1 {
		t.Errorf("said %d times:\n%s", n, book)
	}
	if n := strings.Count(book.String(), "interface failed"); n != 1 {
		t.Errorf("failed %d times:\n%s", n, book)
	}
	d.Stop()
	if _, err := a.Netlink().LinkByName(left); err == nil {
		t.Error("the Linux interface is still there")
	}
}

// flow is a TCP connection that carries as much as it can, until its test ends.
type flow struct {
	received atomic.Uint64
	lost     atomic.Pointer[error] // why it ended before
}

func startFlow(t *testing.T, from, to *testns.Space, at string) *flow {
	t.Helper()
	listener := to.Listen(t, at)
	sender, err := from.Dial(listener.Addr())
	if err != nil {
		t.Fatal(err)
	}
	receiver, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	f := &flow{}
	ends := make(chan struct{}, 2)
	run := func(move func() error) {
		defer func() { ends <- struct{}{} }()
		for {
			if err := move(); err != nil {
				f.lost.CompareAndSwap(nil, &err)
				return
			}
		}
	}
	block, sink := make([]byte, 1<<16), make([]byte, 1<<16)
	go run(func() error {
		_, err := sender.Write(block)
		return err
	})
	go run(func() error {
		n, err := receiver.Read(sink)
		f.received.Add(uint64(n))
		return err
	})
	t.Cleanup(func() {
		for _, c := range []net.Conn{sender, receiver} {
			_ = c.SetDeadline(time.Unix(1, 0))
		}
		<-ends
		<-ends
		sender.Close()
		receiver.Close()
	})
	return f
}
