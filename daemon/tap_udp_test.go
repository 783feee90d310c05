package daemon

import (
	"bytes"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nicd/framework"
	"nicd/internal/testns"
	"nicd/port/tap"
)

// Datagrams that a program hands to the kernel all at once (UDP_SEGMENT) stay
// together until the engine cuts them, and arrive as they were; with uso off the
// kernel cuts them, and nobody notices.
func TestTAPUSO(t *testing.T) {
	testns.NeedTAP(t)
	left, right := testns.LinkName(), testns.LinkName()
	d := startTest(t, inProcess+nicText("a", "vmxnet3", vmxnet3Model(3), "", tapText(left))+nicText("b", "e1000", `model = "82574L"`, "", tapText(right)))
	a, b := namespaces(t, left, right)
	port := d.find("a").port.(*tap.Port)
	if !port.Needs().Accepts.Has(framework.USO) {
		testns.Unavailable(t, "this kernel's TAP devices can't leave UDP to be cut (Linux 6.2 can)")
	}
	for _, on := range []bool{true, false, true} {
		if _, err := d.Set(t.Context(), "a", []Assignment{{"uso", onOffText(on)}}, false); err != nil {
			t.Fatal(err)
		}
		for _, at := range []string{"10.77.0.2", "fd77::2"} {
			before := port.Stats().DownSegment
			sendDatagrams(t, a, b, netip.MustParseAddr(at))
			if whole := port.Stats().DownSegment > before; whole != on {
				t.Errorf("to %s, uso %v: came down whole: %v", at, on, whole)
			}
		}
	}
	if s := port.Stats(); s.DownNonsense != 0 {
		t.Errorf("%+v", s)
	}
}

// sendDatagrams sends datagrams of one size, and a shorter last one, at once, and
// checks every one that arrives: all do, there is nothing that loses them.
func sendDatagrams(t *testing.T, from, to *testns.Space, at netip.Addr) {
	t.Helper()
	const size, last, count = 1000, 123, 20
	dial := func(s *testns.Space, local, remote *net.UDPAddr) (c *net.UDPConn) {
		err := s.Do(func() (err error) {
			if remote == nil {
				c, err = net.ListenUDP("udp", local)
			} else {
				c, err = net.DialUDP("udp", local, remote)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	receiver := dial(to, net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, 0)), nil)
	sender := dial(from, nil, receiver.LocalAddr().(*net.UDPAddr))
	raw, err := sender.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	set := error(nil)
	if err := raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, size) }); err != nil || set != nil {
		t.Fatal(err, set)
	}
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	data := make([]byte, (count-1)*size+last)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)}).Read(data)
	if _, err := sender.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := receiver.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for n := range count {
		datagram := make([]byte, 2*size)
		m, err := receiver.Read(datagram)
		if err != nil {
			t.Fatalf("datagram %d to %v: %v", n, at, err)
		}
		if want := min(size, len(data)-len(got)); m != want {
			t.Fatalf("datagram %d has %d bytes, not %d", n, m, want)
		}
		got = append(got, datagram[:m]...)
	}
	if !bytes.Equal(got, data) {
		t.Error("what arrived is not what was sent")
	}
}
