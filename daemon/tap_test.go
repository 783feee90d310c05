package daemon

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"nicd/config"
	"nicd/drivers/e1000"
	"nicd/drivers/vmxnet3"
	"nicd/framework"
	"nicd/framework/engine"
	"nicd/internal/testns"
	"nicd/internal/teststream"
	"nicd/port/tap"
)

// startTest runs a config with in-process drivers until the test ends.
func startTest(t *testing.T, text string) *Daemon {
	t.Helper()
	return startWith(t, text, vmxnet3.New(), e1000.New())
}

// startWith is startTest with other drivers.
func startWith(t *testing.T, text string, bundled ...framework.Driver) *Daemon {
	t.Helper()
	c, err := config.Parse("test.hcl", []byte(text), Vocabulary([]string{"vmxnet3", "e1000"}))
	if err != nil {
		t.Fatal(err)
	}
	d, err := Start(t.Context(), Options{
		Config: c, Bundled: bundled,
		Socket: filepath.Join(t.TempDir(), "s"), Log: zerolog.New(zerolog.NewTestWriter(t)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, i := range d.interfaces {
			if v := i.violation(); v != "" {
				t.Errorf("%s: %s", i.config.Name, v)
			}
		}
		d.Stop()
	})
	return d
}

// nicText is an interface with an in-process driver.
func nicText(name, driver, model, extra, port string) string {
	return fmt.Sprintf(`
interface %q {
  driver = %q
  rx_queues = 2
  tx_queues = 2
  %s
  device "sim" {
    %s
    wire = "w0"
  }
  %s
}
`, name, driver, extra, model, port)
}

const inProcess = `
driver "vmxnet3" { mode = "in-process" }
driver "e1000" { mode = "in-process" }
wire "w0" {}
`

func vmxnet3Model(revision int) string {
	return fmt.Sprintf("model = \"vmxnet3\"\n    revision = %d", revision)
}

// send moves bytes over TCP between two namespaces and checks every one.
func send(t *testing.T, from, to *testns.Space, at string, size int) {
	t.Helper()
	listener := to.Listen(t, at)
	teststream.Move(t, listener, func() (net.Conn, error) { return from.Dial(listener.Addr()) }, size)
}

// namespaces gives the TAP devices of two interfaces a namespace and addresses.
func namespaces(t *testing.T, left, right string) (a, b *testns.Space) {
	t.Helper()
	a, b = testns.New(t), testns.New(t)
	a.Take(t, left)
	b.Take(t, right)
	a.Up(t, left, "10.77.0.1/24", "fd77::1/64")
	b.Up(t, right, "10.77.0.2/24", "fd77::2/64")
	return a, b
}

func tapText(name string) string { return fmt.Sprintf("port \"tap\" { name = %q }", name) }

// The kernel's TCP goes through every device and whoever coalesces, both ways,
// over both families.
func TestTAP(t *testing.T) {
	testns.NeedTAP(t)
	for _, c := range []struct {
		name          string
		driver, model string
		extra         string
		coalesced     engine.RxCounter // that has to count on the receiver
		gso           string           // what the kernel has to get: coalesced packets, with a size that is known or not
	}{
		{"vmxnet3 revision 3", "vmxnet3", vmxnet3Model(3), "", engine.RxHardwareCoalesced, known},
		{"vmxnet3 revision 1", "vmxnet3", vmxnet3Model(1), "", engine.RxPackets, guessed},
		{"vmxnet3 jumbo in small buffers", "vmxnet3", vmxnet3Model(3), "mtu = 9000\n  buffer_size = 2048", engine.RxHardwareCoalesced, known},
		{"vmxnet3 lro off", "vmxnet3", vmxnet3Model(3), "features { lro = false }", engine.RxPackets, none},
		{"vmxnet3 software lro", "vmxnet3", vmxnet3Model(3), `features { lro = true }` + "\n  " + `quirks { lro-owner = "software" }`, engine.RxSoftwareCoalesced, known},
		{"vmxnet3 no offloads", "vmxnet3", vmxnet3Model(3), "features {\n    lro = false\n    tso = false\n    tx-csum = false\n    rx-csum = false\n  }", engine.RxPackets, none},
		{"82574L", "e1000", `model = "82574L"`, "", engine.RxSoftwareCoalesced, known},
	} {
		t.Run(c.name, func(t *testing.T) {
			left, right := testns.LinkName(), testns.LinkName()
			d := startTest(t, inProcess+nicText("a", c.driver, c.model, c.extra, tapText(left))+nicText("b", c.driver, c.model, c.extra, tapText(right)))
			a, b := namespaces(t, left, right)
			send(t, a, b, "10.77.0.2:0", 8<<20)
			send(t, b, a, "[fd77::1]:0", 8<<20)
			for _, i := range d.interfaces {
				total := rxCount(t, d, i.config.Name, c.coalesced)
				if total == 0 {
					t.Errorf("%s: %s is 0", i.config.Name, engine.RxCounters[c.coalesced].Name)
				}
				s := i.port.(*tap.Port).Stats()
				if got := gsoKind(s); got != c.gso {
					t.Errorf("%s: the kernel got %s: %+v", i.config.Name, got, s)
				}
				if s.UpPackets == 0 || s.DownPackets == 0 || s.UpRefused+s.UpOpaque+s.UpGone+s.DownNonsense != 0 {
					t.Errorf("%s: %+v", i.config.Name, s)
				}
			}
		})
	}
}

// What the kernel got of coalesced packets.
const (
	none    = "none"
	known   = "segments of a known size"
	guessed = "segments of a guessed size"
)

func gsoKind(s tap.Stats) string {
	switch {
	case s.UpCoalesced == 0:
		return none
	case s.UpEstimated == 0:
		return known
	}
	return guessed
}

func TestTAPMistakes(t *testing.T) {
	testns.NeedTAP(t)
	text := inProcess + nicText("a", "vmxnet3", vmxnet3Model(3), "", tapText("lo"))
	c, err := config.Parse("test.hcl", []byte(text), config.Vocabulary{Drivers: []string{"vmxnet3", "e1000"}})
	if err != nil {
		t.Fatal(err)
	}
	d, err := Start(t.Context(), Options{
		Config: c, Bundled: []framework.Driver{vmxnet3.New(), e1000.New()}, Socket: filepath.Join(t.TempDir(), "s"), Log: zerolog.Nop(),
	})
	if err == nil {
		d.Stop()
		t.Fatal("it started")
	}
	if want := "port of interface a: the name lo is in use by another interface: choose another"; !strings.HasSuffix(err.Error(), want) || !strings.HasPrefix(err.Error(), "test.hcl:") {
		t.Errorf("%v; want %q", err, want)
	}
}

// While a link is down the Linux interface has no carrier, and TCP goes on when
// it is up again.
func TestTAPCarrier(t *testing.T) {
	testns.NeedTAP(t)
	left, right := testns.LinkName(), testns.LinkName()
	d := startTest(t, inProcess+nicText("a", "vmxnet3", vmxnet3Model(3), "", tapText(left))+nicText("b", "e1000", `model = "82574L"`, "", tapText(right)))
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
	awaitCarrier(t, a, left, true)
	d.wires["w0"].SetLink(false)
	awaitCarrier(t, a, left, false)
	d.wires["w0"].SetLink(true)
	awaitCarrier(t, a, left, true)
	awaitCarrier(t, b, right, true)
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := peer.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := peer.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

func awaitCarrier(t *testing.T, s *testns.Space, name string, up bool) {
	t.Helper()
	until(t, fmt.Sprintf("%s: carrier is %v", name, up), 20*time.Second, func() bool {
		return s.Link(t, name).Attrs().RawFlags&lowerUp != 0 == up
	})
}

const lowerUp = 0x10000 // IFF_LOWER_UP
