package guest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// How long the guest may take, of which the requirement is that it be below.
const patience = 120 * time.Second

// QEMU's e1000e aborts if MSI-X is turned off while it holds back an interrupt, in
// the 128 microseconds after the one before. nicd's driver ends the interval
// first; the kernel's does not, so the guest is booted once more.
const (
	throttlingBug = "e1000e_intrmgr_on_msix_throttling_timer"
	attempts      = 2
)

// hugePages are enough for two interfaces' arenas, and for looking for pages that
// lie side by side.
const hugePages = "hugepages=128"

// The guest's NICs. The first four are nicd's, through VFIO. Of the first two the
// peers are NICs with the kernel's own drivers, at the other end of a hub each;
// behind the other two is QEMU's user-mode network, which leads to the test. (It
// can't be on a hub: it answers for every address that it sees.)
const (
	nicdVMXNET3, nicdE1000E       = "0000:00:04.0", "0000:00:05.0"
	outsideVMXNET3, outsideE1000E = "0000:00:06.0", "0000:00:07.0"
	peerE1000E, peerVMXNET3       = "0000:00:08.0", "0000:00:09.0"
)

// withIOMMU goes before machine, and its kernel's command line.
var withIOMMU = []string{"-device", "intel-iommu,intremap=on"}

const useIOMMU = "intel_iommu=on iommu=nopt"

var machine = []string{
	"-machine", "q35",
	"-netdev", "hubport,id=h1a,hubid=1", "-device", "vmxnet3,netdev=h1a,addr=4,mac=02:00:00:00:00:04",
	"-netdev", "hubport,id=h2a,hubid=2", "-device", "e1000e,netdev=h2a,addr=5,mac=02:00:00:00:00:05",
	"-netdev", "user,id=u1,net=10.3.1.0/24,host=10.3.1.2", "-device", "vmxnet3,netdev=u1,addr=6,mac=02:00:00:00:00:06",
	"-netdev", "user,id=u2,net=10.3.2.0/24,host=10.3.2.2", "-device", "e1000e,netdev=u2,addr=7,mac=02:00:00:00:00:07",
	"-netdev", "hubport,id=h1b,hubid=1", "-device", "e1000e,netdev=h1b,addr=8,mac=02:00:00:00:00:08",
	"-netdev", "hubport,id=h2b,hubid=2", "-device", "vmxnet3,netdev=h2b,addr=9,mac=02:00:00:00:00:09",
}

// TSO is off everywhere: QEMU's models before 8.0 send TSO frames as IP fragments
// unless what is behind them can segment.

// Two networks, with the kernel as the router between them: each TCP stream goes
// through both of nicd's drivers and both of the kernel's.
const throughKernel = `
interface "vmx0" {
  driver = "vmxnet3"
  device "vfio" { address = "` + nicdVMXNET3 + `" }
  features { tso = false }
  port "netstack" {
    address = "10.1.0.2/24"
    gateway = "10.1.0.1"
  }
}
interface "em0" {
  driver = "e1000"
  device "vfio" { address = "` + nicdE1000E + `" }
  features { tso = false }
  port "netstack" {
    address = "10.2.0.2/24"
    gateway = "10.2.0.1"
  }
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

// The guest's TCP over nicd's drivers to the world outside.
const toOutside = `
interface "vmx0" {
  driver = "vmxnet3"
  device "vfio" { address = "` + outsideVMXNET3 + `" }
  features { tso = false }
  port "tap" { name = "tap1" }
}
interface "em0" {
  driver = "e1000"
  device "vfio" { address = "` + outsideE1000E + `" }
  features { tso = false }
  port "tap" { name = "tap2" }
}
`

// fetchBytes go each way in a Fetch.
const fetchBytes = 8 << 20

func vfioPlan(port string) Plan {
	return Plan{Steps: []Step{
		{Do: Run, Args: []string{"devices", "--json"}},
		{Do: Hardware, Devices: []string{nicdVMXNET3, nicdE1000E}},
		{Do: Run, Args: []string{"bind", nicdVMXNET3}},
		{Do: Run, Args: []string{"bind", nicdE1000E}},
		{Do: Run, Args: []string{"bind", outsideVMXNET3}},
		{Do: Run, Args: []string{"bind", outsideE1000E}},

		{Do: Address, Device: peerE1000E, Prefix: "10.1.0.1/24"},
		{Do: Address, Device: peerVMXNET3, Prefix: "10.2.0.1/24"},
		{Do: NoTSO, Device: peerE1000E},
		{Do: NoTSO, Device: peerVMXNET3},
		{Do: Write, Path: "/proc/sys/net/ipv4/ip_forward", Content: "1"},
		{Do: Run, Args: []string{"run", "-c", "/through-kernel.hcl", "--json", "--for", "5s"}},
		{Do: Errors, Device: peerE1000E},
		{Do: Errors, Device: peerVMXNET3},

		{Do: Start, Args: []string{"run", "-c", "/to-outside.hcl", "--json"}},
		{Do: Address, Interface: "tap1", Prefix: "10.3.1.15/24"},
		{Do: Fetch, URL: "http://10.3.1.2:" + port, Bytes: fetchBytes},
		{Do: Address, Interface: "tap2", Prefix: "10.3.2.15/24"},
		{Do: Fetch, URL: "http://10.3.2.2:" + port, Bytes: fetchBytes},
		{Do: Stop},

		// A kernel that forwards turns LRO off on a new interface, before its driver
		// has given the device an address to read that from: a fault of theirs.
		{Do: Write, Path: "/proc/sys/net/ipv4/ip_forward", Content: "0"},
		{Do: Run, Args: []string{"unbind", nicdVMXNET3}},
		{Do: Address, Device: nicdVMXNET3, Prefix: "10.4.0.1/24"}, // the kernel has it again
		{Do: Fault, Device: nicdE1000E},
	}}
}

// TestVFIO runs nicd with plugins on a vmxnet3 and an 82574L through VFIO, in a
// guest with an IOMMU, and moves TCP through them: between each other by way of
// the kernel's own drivers, and to this process. No access of a device's to
// memory may be refused by the IOMMU, until one is provoked.
func TestVFIO(t *testing.T) {
	k := needQEMU(t)
	modules, err := k.modules("vfio_pci", "vfio_iommu_type1", "tun", "vmxnet3", "e1000e")
	if err != nil {
		t.Fatal(err)
	}
	outside := newOutside(t)
	plan := vfioPlan(outside.port)
	o := carryOut(t, k, modules, plan, outside, useIOMMU, append(withIOMMU, machine...)...)
	checkFaults(t, o.console)
	checkHugePages(t, o.console)
}

// smallPages is what nicd says of an interface that gets no huge pages.
const smallPages = "the arena is in small pages"

func checkHugePages(t *testing.T, console string) {
	t.Helper()
	if strings.Contains(console, smallPages) {
		t.Error("an arena is not in huge pages")
	}
}

// configs are the files that plans run nicd with.
var configs = map[string]string{
	"/through-kernel.hcl": throughKernel, "/to-outside.hcl": toOutside, "/unconfined.hcl": unconfined, "/across-pages.hcl": acrossPages,
}

// carryOut boots a guest that carries out the plan, and looks at all that its
// steps have to show. A test that failed has the console in its log.
func carryOut(t *testing.T, k *kernel, modules []string, plan Plan, outside *outside, cmdline string, machine ...string) (o outcome) {
	t.Helper()
	dir := t.TempDir()
	initramfs := archive(t, dir, modules, plan, configs)
	for range attempts {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		o = boot(ctx, t, dir, k, initramfs, "quiet "+hugePages+" "+cmdline, machine...)
		cancel()
		if !strings.Contains(o.qemu, throttlingBug) {
			break
		}
		t.Log("QEMU aborted over its e1000e's throttling timer: once more")
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("console:\n%s\nQEMU: %s", o.console, o.qemu)
		}
	})
	if o.err != nil {
		t.Errorf("QEMU: %v", o.err)
	}
	for _, e := range o.events {
		t.Logf("%2d %-8s %5.1f s", e.Step, e.Do, e.Seconds)
		if e.Error != "" {
			t.Errorf("step %d, %s: %s\n%s", e.Step, e.Do, e.Error, e.Output)
		}
		check(t, outside, plan, e)
	}
	if n := len(o.events); n == 0 || o.events[n-1].Step != len(plan.Steps) {
		t.Fatalf("the guest ended after %d of %d steps", len(o.events), len(plan.Steps))
	}
	return o
}

// check looks at what a step has to show.
func check(t *testing.T, outside *outside, plan Plan, e Event) {
	t.Helper()
	switch {
	case e.Error != "" || e.Step >= len(plan.Steps):
	case e.Do == Hardware:
		// It skips where there are no huge pages; here there are.
		if !strings.Contains(e.Output, "--- PASS: TestNewContiguous") {
			t.Errorf("memory in one piece was not tried:\n%s", e.Output)
		}
		if n := strings.Count(e.Output, "--- PASS: TestHardware/"); n != len(plan.Steps[e.Step].Devices) {
			t.Errorf("step %d: %d NICs passed: %s", e.Step, n, e.Output)
		}
	case e.Do == Fetch:
		if e.Received != outside.sum || !outside.got(e.Sent) {
			t.Errorf("step %d: received %s of %s, or %s did not arrive outside", e.Step, e.Received, outside.sum, e.Sent)
		}
	case e.Do == Errors:
		// Short frames, which no MAC in QEMU pads, are what e1000e calls so.
		e.Counters["rx_errors"] -= e.Counters["rx_length_errors"]
		delete(e.Counters, "rx_length_errors")
		for name, n := range e.Counters {
			if n != 0 {
				t.Errorf("step %d: the kernel's driver counted %s = %d", e.Step, name, n)
			}
		}
	case e.Do == Run && plan.Steps[e.Step].Args[0] == "devices":
		checkDevices(t, e.Output)
	case e.Do == Stop || e.Do == Run && plan.Steps[e.Step].Args[0] == "run" && plan.Steps[e.Step].Fails == "":
		checkReport(t, e)
	}
}

func checkDevices(t *testing.T, output string) {
	t.Helper()
	var nics []struct {
		Address, Driver string
		KernelDriver    string `json:"kernel_driver"`
		IOMMUGroup      string `json:"iommu_group"`
	}
	if err := json.Unmarshal([]byte(output), &nics); err != nil || len(nics) != 6 {
		t.Errorf("nicd devices: %v: %s", err, output)
		return
	}
	if v := nics[0]; v.Address != nicdVMXNET3 || v.Driver != "vmxnet3" || v.KernelDriver != "vmxnet3" || v.IOMMUGroup == "" {
		t.Errorf("nicd devices: %+v", v)
	}
	if e := nics[1]; e.Address != nicdE1000E || e.Driver != "e1000" || e.KernelDriver != "e1000e" || e.IOMMUGroup == "" {
		t.Errorf("nicd devices: %+v", e)
	}
}

func checkReport(t *testing.T, e Event) {
	t.Helper()
	var report struct {
		OK       bool
		Problems []string
		Streams  []struct {
			Gbps   float64
			Stream struct{ Retransmits uint64 }
		}
	}
	if err := json.Unmarshal([]byte(e.Output), &report); err != nil || !report.OK {
		t.Errorf("step %d: report %v, %v: %s", e.Step, err, report.Problems, e.Output)
	}
	for _, s := range report.Streams {
		if t.Logf("   stream: %.1f Mbit/s, %d retransmits", 1e3*s.Gbps, s.Stream.Retransmits); s.Gbps <= 0 {
			t.Errorf("step %d: a stream moved nothing", e.Step)
		}
	}
}

// fault is how the kernel reports what the IOMMU refused.
var fault = regexp.MustCompile(`DMAR: \[[^\]]*\] Request device.*`)

// checkFaults wants the provoked fault, which shows that faults are seen, and no
// other.
func checkFaults(t *testing.T, console string) {
	t.Helper()
	faults := fault.FindAllString(console, -1)
	provoked := strings.TrimPrefix(nicdE1000E, "0000:")
	if len(faults) == 0 || !strings.Contains(faults[0], provoked) || !strings.Contains(faults[0], "0x10000") {
		t.Errorf("the provoked fault of %s was not seen: %q", provoked, faults)
	}
	for _, f := range faults {
		if !strings.Contains(f, "0x10000") {
			t.Errorf("fault: %s", f)
		}
	}
}

// outside is an HTTP server in this process: the peer beyond the guest's NICs.
type outside struct {
	port string
	sum  string // of what it gives

	mu  sync.Mutex
	put map[string]bool // sums of what was put
}

func newOutside(t *testing.T) *outside {
	data := make([]byte, fetchBytes)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(data)
	digest := sha256.Sum256(data)
	o := &outside{sum: hex.EncodeToString(digest[:]), put: map[string]bool{}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = w.Write(data)
			return
		}
		h := sha256.New()
		if _, err := io.Copy(h, r.Body); err != nil {
			http.Error(w, fmt.Sprint(err), http.StatusBadRequest)
			return
		}
		o.mu.Lock()
		o.put[hex.EncodeToString(h.Sum(nil))] = true
		o.mu.Unlock()
	}))
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	o.port = u.Port()
	return o
}

// got tells whether something of that sum was put.
func (o *outside) got(sum string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.put[sum]
}
