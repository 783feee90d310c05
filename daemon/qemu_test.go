package daemon

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"nicd/bus/qemu"
	"nicd/config"
	"nicd/drivers/e1000"
	"nicd/drivers/vmxnet3"
	"nicd/framework/engine"
	"nicd/internal/testns"
	"nicd/internal/teststream"
	"nicd/port/netstack"
)

func needQEMU(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath(qemu.DefaultProgram); err != nil {
		testns.Unavailable(t, err.Error())
	}
}

// qemuText is an interface on one of QEMU's models, alone on its bus.
func qemuText(name, driver, model, extra, netdev, port string) string {
	return fmt.Sprintf(`
bus "qemu" "lab" {
  %s
}
interface %q {
  driver = %q
  %s
  device = "qemu:lab/%s"
  %s
}
`, netdev, name, driver, extra, model, port)
}

// healthy sees to it that nothing failed and all counters add up, once traffic has
// ended.
func healthy(t *testing.T, d *Daemon) {
	t.Helper()
	for _, i := range d.interfaces {
		if !i.is(running) {
			t.Errorf("%s: %s", i.config.Name, i.failure())
		}
		if v := i.violation(); v != "" {
			t.Errorf("%s: %s", i.config.Name, v)
		}
	}
}

const downloadSize = 20 << 20

// TestQEMUDownload: a netstack port behind each of QEMU's models, driven by a
// plugin, fetches a file from a server on the loopback of this machine, through
// QEMU's own network and with the address that DHCP gives there.
func TestQEMUDownload(t *testing.T) {
	needQEMU(t)
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	file := make([]byte, downloadSize)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)}).Read(file)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write(file) }))
	t.Cleanup(server.Close)
	port := server.Listener.Addr().(*net.TCPAddr).Port
	for _, c := range []struct{ name, driver, model, extra string }{
		{"vmxnet3", "vmxnet3", "vmxnet3", ""},
		{"82574L", "e1000", "82574L", ""},
		{"82574L by INTx", "e1000", "82574L", `interrupts = "intx"`},
		{"82574L by MSI", "e1000", "82574L", `interrupts = "msi"`},
		{"82540EM", "e1000", "82540EM", ""},
		{"82545EM", "e1000", "82545EM", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			driver := vmxnet3.New()
			if c.driver == "e1000" {
				driver = e1000.New()
			}
			given := getLease(t, driver, c.model)
			d, _ := startPlugins(t, qemuText("nic", c.driver, c.model, c.extra, `netdev = "user"`, fmt.Sprintf(`port "netstack" {
    address = %q
    gateway = %q
  }`, given.address, given.router)))
			stack := d.interfaces[0].port.(*netstack.Port)
			client := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, at string) (net.Conn, error) {
				return stack.Dial(ctx, netip.MustParseAddrPort(at))
			}}}
			defer client.CloseIdleConnections()
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%v:%d/file", given.router, port), nil)
			if err != nil {
				t.Fatal(err)
			}
			reply, err := client.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer reply.Body.Close()
			sum := sha256.New()
			n, err := io.Copy(sum, reply.Body)
			if err != nil || n != downloadSize {
				t.Fatalf("%d bytes, %v", n, err)
			}
			if [32]byte(sum.Sum(nil)) != sha256.Sum256(file) {
				t.Error("another file arrived")
			}
			healthy(t, d)
		})
	}
}

// TestQEMUTAP: the Linux kernel's TCP through a port of nicd and each of QEMU's
// models, driven by a plugin, to the kernel's TCP behind QEMU's TAP device. TSO
// frames and checksums pass QEMU as they are.
func TestQEMUTAP(t *testing.T) {
	needQEMU(t)
	testns.NeedTAP(t)
	for _, c := range []struct {
		name, driver, model, extra string
		whole                      bool // TSO frames reach QEMU's network uncut
	}{
		{"vmxnet3", "vmxnet3", "vmxnet3", "", true},
		{"vmxnet3 lro off", "vmxnet3", "vmxnet3", "features { lro = false }", true},
		{"vmxnet3 by INTx", "vmxnet3", "vmxnet3", `interrupts = "intx"`, true},
		{"vmxnet3 jumbo", "vmxnet3", "vmxnet3", "mtu = 9000\n  rx_queues = 2\n  tx_queues = 2", false},
		{"82574L", "e1000", "82574L", "rx_queues = 2\n  tx_queues = 2", true},
		{"82540EM", "e1000", "82540EM", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			left, right := testns.LinkName(), testns.LinkName()
			d, _ := startPlugins(t, qemuText("nic", c.driver, c.model, c.extra, "netdev = \"tap\"\n    tap = \""+right+"\"", tapText(left)))
			a, b := namespaces(t, left, right)
			send(t, a, b, "10.77.0.2:0", 8<<20)
			got := b.Link(t, right).Attrs().Statistics
			if mean := got.RxBytes / got.RxPackets; c.whole != (mean > 3000) && c.extra == "" {
				t.Errorf("%d bytes a packet left the device", mean)
			}
			send(t, b, a, "10.77.0.1:0", 8<<20)
			send(t, b, a, "[fd77::1]:0", 1<<20)
			healthy(t, d)
		})
	}
}

// TestQEMURevision1LRO: what the kernel gives QEMU uncut arrives as packets that
// the device merged and does not know the segment size of.
func TestQEMURevision1LRO(t *testing.T) {
	needQEMU(t)
	testns.NeedTAP(t)
	tap := testns.LinkName()
	d, _ := startPlugins(t, qemuText("nic", "vmxnet3", "vmxnet3", "", "netdev = \"tap\"\n    tap = \""+tap+"\"",
		`port "netstack" { address = "10.77.0.1/24" }`))
	b := testns.New(t)
	b.Take(t, tap)
	b.Up(t, tap, "10.77.0.2/24")
	listener, err := d.interfaces[0].port.(*netstack.Port).Listen(netip.MustParseAddrPort("10.77.0.1:80"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	teststream.Move(t, listener, func() (net.Conn, error) { return b.Dial(&net.TCPAddr{IP: net.IPv4(10, 77, 0, 1), Port: 80}) }, 16<<20)
	if n := rxCount(t, d, "nic", engine.RxHardwareCoalesced); n == 0 {
		t.Error("the device merged nothing")
	}
	if n := rxCount(t, d, "nic", engine.RxSoftwareCoalesced); n != 0 {
		t.Errorf("%d packets were merged twice", n)
	}
	healthy(t, d)
}

// TestQEMUWire: one of QEMU's models and one of ours on a wire, with TCP both
// ways, while the link goes down and up again.
func TestQEMUWire(t *testing.T) {
	needQEMU(t)
	for _, c := range []struct{ driver, model string }{{"vmxnet3", "vmxnet3"}, {"e1000", "82574L"}, {"e1000", "82540EM"}, {"e1000", "82544GC"}} {
		t.Run(c.model, func(t *testing.T) {
			t.Parallel()
			text := strings.Replace(pairText(1, c.driver), "device \"sim\" {\n    model = \"vmxnet3\"\n    wire = \"w1\"\n  }", "device = \"qemu:lab/"+c.model+"\"", 1) +
				"bus \"qemu\" \"lab\" {\n  netdev = \"wire\"\n  wire = \"w1\"\n}\n"
			if !strings.Contains(text, "qemu") {
				t.Fatal(text)
			}
			d, _ := startPlugins(t, text)
			more := func(bytes uint64) {
				t.Helper()
				for _, stream := range []string{"ab1", "ba1"} {
					was := d.streamed(stream)
					until(t, stream, 30*time.Second, func() bool { return d.streamed(stream) > was+bytes })
				}
			}
			if r, ok := d.interfaces[0].explain("tso4"); !ok || strings.Contains(strings.Join(r.Reasons, " "), "IP fragments") != (c.model == "vmxnet3" || c.model == "82574L") {
				t.Errorf("tso4 is %v", r)
			}
			more(1 << 20)
			up := func(want bool) {
				t.Helper()
				d.wires["w1"].SetLink(want)
				until(t, "link", 20*time.Second, func() bool {
					return d.interfaces[0].currentLink().Up == want && d.interfaces[1].currentLink().Up == want
				})
			}
			up(false)
			up(true)
			more(1 << 20)
			for _, i := range d.interfaces {
				if v := i.violation(); v != "" || !i.is(running) {
					t.Errorf("%s: %s %s", i.config.Name, v, i.failure())
				}
			}
		})
	}
}

// busText is two devices of QEMU's on one bus and one wire, with TCP both ways.
const busText = `
wire "w9" {}
bus "qemu" "lab" {
  netdev = "wire"
  wire   = "w9"
  device "second" { model = "82574L" }
}
interface "vmx0" {
  driver = "vmxnet3"
  device = "qemu:lab/vmxnet3"
  port "netstack" { address = "10.0.9.1/24" }
}
interface "em0" {
  driver = "e1000"
  device = "qemu:lab/second"
  port "netstack" { address = "10.0.9.2/24" }
}
stream "down" {
  from = "vmx0"
  to   = "em0"
}
stream "up" {
  from = "em0"
  to   = "vmx0"
}
`

// TestQEMUBus: both devices of a bus, each driven by a plugin of its own, are in
// one QEMU. Its death is the end of both, with the reason, and of nobody else.
func TestQEMUBus(t *testing.T) {
	needQEMU(t)
	d, book := startPlugins(t, busText+pairText(1, "vmxnet3"))
	ours := qemus(t)
	if len(ours) != 1 {
		t.Fatalf("%d QEMUs", len(ours))
	}
	for _, name := range []string{"down", "up"} {
		was := d.streamed(name)
		until(t, name, 30*time.Second, func() bool { return d.streamed(name) > was+1<<20 })
	}
	healthy(t, d)
	vmx, em := d.find("vmx0"), d.find("em0")
	if vmx.address != "qemu:lab/vmxnet3" || em.address != "qemu:lab/second" {
		t.Errorf("devices %s and %s", vmx.address, em.address)
	}
	if err := syscall.Kill(ours[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	until(t, "failure", 20*time.Second, func() bool { return vmx.is(failed) && em.is(failed) })
	for _, i := range []*netInterface{vmx, em} {
		if r := i.failure(); !strings.Contains(r, "qemu:lab: device is gone: QEMU ended: signal: killed") {
			t.Errorf("%s: reason is %q", i.config.Name, r)
		}
	}
	if n := strings.Count(book.String(), "QEMU ended\""); n != 1 {
		t.Errorf("said %d times:\n%s", n, book)
	}
	was := d.streamed("ab1")
	until(t, "the other interfaces", 20*time.Second, func() bool { return d.streamed("ab1") > was+1<<20 })
}

// TestQEMUBusReload: what is different of a bus takes a start of nicd, and a reload
// says so; the rest of the config can be followed.
func TestQEMUBusReload(t *testing.T) {
	needQEMU(t)
	text := busText
	parse := func() (*config.Config, error) {
		return config.Parse("test.hcl", []byte(text), Vocabulary([]string{"vmxnet3", "e1000"}))
	}
	first, err := parse()
	if err != nil {
		t.Fatal(err)
	}
	d, err := Start(t.Context(), Options{
		Config: first, Reload: parse, Bundled: testDrivers, Socket: filepath.Join(t.TempDir(), "s"), Log: zerolog.Nop(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Stop)
	for _, change := range [][2]string{
		{`{ model = "82574L" }`, "{\n    model = \"82574L\"\n    mac = \"02:00:00:00:00:09\"\n  }"},
		{`netdev = "wire"`, `program = "qemu"` + "\n" + `netdev = "wire"`},
	} {
		text = strings.Replace(busText, change[0], change[1], 1)
		if _, err := d.Reload(t.Context(), false); err == nil || !strings.Contains(err.Error(), "a start of nicd is needed for bus lab: it is different") {
			t.Errorf("%s: %v", change[1], err)
		}
	}
	text = "\n\n" + strings.Replace(busText, `driver = "e1000"`, `driver = "e1000"`+"\n  mtu = 1400", 1)
	if r, err := d.Reload(t.Context(), false); err != nil || len(r.Interfaces) != 1 {
		t.Errorf("%v, %v", r, err)
	}
}

// The config's limit is the bus's.
func TestQEMUBusLimit(t *testing.T) {
	if config.MaxQEMUDevices != qemu.MaxDevices {
		t.Errorf("a config may have %d devices on a bus, which has %d", config.MaxQEMUDevices, qemu.MaxDevices)
	}
}

// qemus are the QEMUs that this process has started.
func qemus(t *testing.T) (pids []int) {
	t.Helper()
	lists, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range lists {
		text, _ := os.ReadFile(list) // a thread may have ended
		for _, child := range strings.Fields(string(text)) {
			name, _ := os.ReadFile("/proc/" + child + "/comm")
			if pid, err := strconv.Atoi(child); err == nil && strings.HasPrefix(string(name), "qemu-system") {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// TestQEMURefused: what can't be says so in a line that names the place.
func TestQEMURefused(t *testing.T) {
	needQEMU(t)
	for _, c := range []struct{ driver, bus, want string }{
		{"e1000", "", "15ad:07b0"},
		{"vmxnet3", `program = "/nonexistent/qemu"`, "test.hcl:2: bus lab: qemu:lab: QEMU is not installed"},
		{"vmxnet3", `program = "false"`, "QEMU ended: exit status 1"},
		{"vmxnet3", "netdev = \"dgram\"\nlocal = \"/nonexistent/a\"\nremote = \"/nonexistent/b\"", "test.hcl:2: bus lab: qemu:lab: QEMU ended: exit status 1: "},
	} {
		text := qemuText("nic", c.driver, "vmxnet3", "", c.bus, `port "sink" {}`)
		parsed, err := config.Parse("test.hcl", []byte(text), Vocabulary([]string{"vmxnet3", "e1000"}))
		if err != nil {
			t.Fatal(err)
		}
		_, err = Start(t.Context(), Options{Config: parsed, Bundled: testDrivers, Socket: filepath.Join(t.TempDir(), "s"), Log: zerolog.Nop()})
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", c.bus, err, c.want)
		}
		if left := qemus(t); len(left) > 0 {
			t.Errorf("%s: QEMU %v is left", c.bus, left)
		}
	}
}
