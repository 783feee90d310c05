package guest

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// acrossPages is toOutside without what nicd does for QEMU's devices.
var acrossPages = strings.ReplaceAll(toOutside, "  features {", "  quirks { tx-within-page = false }\n  features {")

// datagramBytes use each transmit buffer of each queue. A third of the frames in them
// crosses a page boundary. The kernel gave an arena runs of some eighty pages that are
// side by side, so that about one in sixty of those frames is lost.
const datagramBytes = 8 << 20

// smallPagesPlan sends from arenas for which there are no huge pages.
func smallPagesPlan(port string) Plan {
	steps := []Step{{Do: Write, Path: "/proc/sys/vm/nr_hugepages", Content: "0"}}
	for _, address := range []string{nicdVMXNET3, nicdE1000E, outsideVMXNET3, outsideE1000E} {
		steps = append(steps, Step{Do: Run, Args: []string{"bind", address}})
	}
	return Plan{Steps: append(steps,
		Step{Do: Start, Args: []string{"run", "-c", "/across-pages.hcl", "--json"}},
		Step{Do: Address, Interface: "tap1", Prefix: "10.3.1.15/24"},
		Step{Do: Datagrams, Interface: "tap1", URL: "http://10.3.1.2:9", Bytes: datagramBytes},
		Step{Do: Run, Args: []string{"stats", "vmx0", "--all"}},
		Step{Do: Run, Args: []string{"show", "vmx0"}},
		Step{Do: Stop},

		Step{Do: Start, Args: []string{"run", "-c", "/to-outside.hcl", "--json"}},
		Step{Do: Address, Interface: "tap1", Prefix: "10.3.1.15/24"},
		Step{Do: Datagrams, Interface: "tap1", URL: "http://10.3.1.2:9", Bytes: datagramBytes},
		Step{Do: Retransmits},
		Step{Do: Fetch, URL: "http://10.3.1.2:" + port, Bytes: fetchBytes},
		Step{Do: Retransmits},
		Step{Do: Address, Interface: "tap2", Prefix: "10.3.2.15/24"},
		Step{Do: Fetch, URL: "http://10.3.2.2:" + port, Bytes: fetchBytes},
		Step{Do: Retransmits},
		Step{Do: Run, Args: []string{"stats", "vmx0", "--all"}},
		Step{Do: Run, Args: []string{"show", "vmx0"}},
		Step{Do: Run, Args: []string{"show", "em0"}},
		Step{Do: Stop},

		Step{Do: Address, Device: peerE1000E, Prefix: "10.1.0.1/24"},
		Step{Do: Address, Device: peerVMXNET3, Prefix: "10.2.0.1/24"},
		Step{Do: NoTSO, Device: peerE1000E},
		Step{Do: NoTSO, Device: peerVMXNET3},
		Step{Do: Write, Path: "/proc/sys/net/ipv4/ip_forward", Content: "1"},
		Step{Do: Run, Args: []string{"run", "-c", "/through-kernel.hcl", "--json", "--for", "5s"}},
	)}
}

// TestSmallPages is TestVFIO's traffic without huge pages. QEMU's vmxnet3 and 82574L
// lose what lies in two pages that are not side by side in physical memory: the
// vmxnet3 counts it, and counts nothing where nicd's engine sends no such thing. That
// it does count is seen with the quirk turned off.
func TestSmallPages(t *testing.T) {
	k := needQEMU(t)
	modules, err := k.modules("vfio_pci", "vfio_iommu_type1", "tun", "vmxnet3", "e1000e")
	if err != nil {
		t.Fatal(err)
	}
	outside := newOutside(t)
	plan := smallPagesPlan(outside.port)
	o := carryOut(t, k, modules, plan, outside, useIOMMU, append(withIOMMU, machine...)...)
	if faults := fault.FindAllString(o.console, -1); faults != nil {
		t.Errorf("faults: %q", faults)
	}
	if n := strings.Count(o.console, smallPages); n != 6 {
		t.Errorf("%d of 6 arenas are in small pages", n)
	}
	config := ""
	for _, e := range o.events {
		if e.Step == len(plan.Steps) {
			break
		}
		switch s := plan.Steps[e.Step]; {
		case s.Do == Start:
			config = s.Args[2]
		case s.Do == Retransmits:
			t.Logf("%s, step %d: %v", config, e.Step, e.Counters)
		case s.Do == Run && s.Args[0] == "stats":
			checkLost(t, config, e.Output)
		case s.Do == Run && s.Args[0] == "show":
			checkQuirk(t, config, e.Output)
		}
	}
}

var txErrors = regexp.MustCompile(`\btx_errors(?: !)?\s+(\d+)`)

// checkLost looks at what a vmxnet3 did not send.
func checkLost(t *testing.T, config, stats string) {
	t.Helper()
	found := txErrors.FindStringSubmatch(stats)
	if found == nil {
		t.Errorf("%s: no tx_errors: %s", config, stats)
		return
	}
	lost, err := strconv.Atoi(found[1])
	if err != nil || (lost > 0) != (config == "/across-pages.hcl") {
		t.Errorf("%s: the vmxnet3 lost %d packets, %v", config, lost, err)
	}
	t.Logf("%s: the vmxnet3 lost %d packets", config, lost)
}

// checkQuirk wants to be told that fragments are split, and why.
func checkQuirk(t *testing.T, config, show string) {
	t.Helper()
	line := ""
	for l := range strings.Lines(show) {
		if strings.Contains(l, "tx-within-page") {
			line = l
		}
	}
	want := "memory in small pages"
	if config == "/across-pages.hcl" {
		want = "false"
	}
	t.Log(line)
	if !strings.Contains(line, want) {
		t.Errorf("%s: nicd show says %q, nothing of %q", config, line, want)
	}
}
