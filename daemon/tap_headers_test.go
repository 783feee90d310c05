package daemon

import (
	"net"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"nicd/framework/engine"
	"nicd/internal/testns"
	"nicd/internal/teststream"
	"nicd/port/tap"
)

// TCP whose packets have IPv6 extension headers (RFC 8200 section 4), which the
// kernel hands over to be cut like any other, arrives whole: whether the device cuts
// or the engine does.
func TestTAPExtensionHeaders(t *testing.T) {
	testns.NeedTAP(t)
	for _, c := range []struct {
		name, driver, model, extra string
		whole, chopped             bool // come down to be cut, and are cut by the engine
	}{
		{"a vmxnet3 cuts", "vmxnet3", vmxnet3Model(3), "", true, false},
		{"an 82574L cuts", "e1000", `model = "82574L"`, "", true, false},
		{"too many fragments for a vmxnet3", "vmxnet3", vmxnet3Model(3), "buffer_size = 2048", true, true},
		{"the kernel cuts", "e1000", `model = "82574L"`, "features { tso = false }", false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			left, right := testns.LinkName(), testns.LinkName()
			d := startTest(t, inProcess+nicText("a", c.driver, c.model, c.extra, tapText(left))+nicText("b", "e1000", `model = "82574L"`, "", tapText(right)))
			a, b := namespaces(t, left, right)
			longPackets(t, a)
			sendWithOption(t, a, b)
			i := d.find("a")
			s, err := i.counters()
			if err != nil {
				t.Fatal(err)
			}
			chopped := false
			for q := range s.Tx {
				chopped = chopped || s.Tx[q][engine.TxTSOChopped] > 0
			}
			for _, problem := range d.Audit() { // malformed packets, too
				t.Error(problem)
			}
			if whole := i.port.(*tap.Port).Stats().DownSegment > 0; whole != c.whole || chopped != c.chopped {
				t.Errorf("to be cut: %v; by the engine: %v", whole, chopped)
			}
		})
	}
}

// longPackets has TCP build packets as long as they may be, however slow the machine:
// by itself it builds short ones when round trips take milliseconds, and those need no
// more fragments than any device takes.
func longPackets(t *testing.T, in *testns.Space) {
	t.Helper()
	err := in.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/tcp_tso_rtt_log", []byte("31"), 0) })
	if err != nil {
		t.Fatal(err) // Linux has it since 5.18
	}
}

// sendWithOption moves bytes over a connection whose packets have a destination
// option, and checks them.
func sendWithOption(t *testing.T, from, to *testns.Space) {
	t.Helper()
	listener := to.Listen(t, "[fd77::2]:0")
	padding := string([]byte{0, 0, 1, 4, 0, 0, 0, 0}) // PadN (RFC 8200 section 4.2)
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if failed := c.Control(func(fd uintptr) { err = unix.SetsockoptString(int(fd), unix.IPPROTO_IPV6, unix.IPV6_DSTOPTS, padding) }); failed != nil {
			return failed
		}
		return err
	}}
	teststream.Move(t, listener, func() (c net.Conn, err error) {
		err = from.Do(func() (err error) {
			c, err = dialer.DialContext(t.Context(), "tcp6", listener.Addr().String())
			return err
		})
		return c, err
	}, 1<<20)
}
