package daemon

import (
	"strings"
	"testing"

	"nicd/framework/engine"
	"nicd/internal/testns"
)

// A 1500-byte egress behind hardware LRO: the kernel's TCP, which sets the
// don't-fragment bit, goes through a bridge of two NICs, both ways and over both
// families. The bridge's ingress coalesces exactly if its device tells the
// segments' size; else the framework turns its LRO off and says why.
func TestForward(t *testing.T) {
	testns.NeedTAP(t)
	for _, c := range []struct {
		name      string
		revision  int
		egress    string
		coalesces bool
	}{
		{"revision 3 to 82574L", 3, `model = "82574L"`, true},
		{"revision 1 to 82574L", 1, `model = "82574L"`, false},
		{"revision 4 to vmxnet3", 4, vmxnet3Model(4), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			left, right := testns.LinkName(), testns.LinkName()
			driver := "e1000"
			if strings.Contains(c.egress, "vmxnet3") {
				driver = "vmxnet3"
			}
			second := strings.NewReplacer(`"w0"`, `"w1"`)
			const bridge, off = `port "forward" { bridge = "br0" }`, "features { lro = false }"
			d := startTest(t, inProcess+"wire \"w1\" {}\n"+
				nicText("a", "vmxnet3", vmxnet3Model(3), "", tapText(left))+
				nicText("in", "vmxnet3", vmxnet3Model(c.revision), "", bridge)+
				second.Replace(nicText("out", driver, c.egress, "", bridge))+
				second.Replace(nicText("b", "vmxnet3", vmxnet3Model(3), off, tapText(right))))
			a, b := namespaces(t, left, right)
			send(t, a, b, "10.77.0.2:0", 8<<20)
			send(t, b, a, "10.77.0.1:0", 8<<20)
			send(t, a, b, "[fd77::2]:0", 8<<20)
			if s := d.bridges["br0"].Stats(); s.Forwarded == 0 || s.TooLong != 0 {
				t.Errorf("%+v", s)
			}
			stats, err := d.find("in").stats(t.Context())
			if err != nil || len(stats.Port) == 0 || stats.Port[0].Name != "bridge_forwarded" || stats.Port[0].Value == 0 {
				t.Errorf("port counters %v, %v", stats, err)
			}
			if n := rxCount(t, d, "in", engine.RxHardwareCoalesced); (n > 0) != c.coalesces {
				t.Errorf("the ingress got %d packets that its device had merged", n)
			}
			why, _ := d.find("in").explain("lro")
			if text := strings.Join(why.Reasons, "; "); strings.Contains(text, "does not tell the size of the segments, and port forward sends packets on") == c.coalesces {
				t.Errorf("reasons: %s", text)
			}
			// b merges nothing: what it got is what was on the egress wire.
			packets, bytes := rxCount(t, d, "b", engine.RxPackets), rxCount(t, d, "b", engine.RxBytes)
			if merged := rxCount(t, d, "b", engine.RxSegments) - packets; merged != 0 || bytes > packets*1514 {
				t.Errorf("the receiver got %d bytes in %d packets, and %d segments more", bytes, packets, merged)
			}
		})
	}
}

// rxCount is a receive counter of an interface over all queues.
func rxCount(t *testing.T, d *Daemon, name string, c engine.RxCounter) (sum uint64) {
	t.Helper()
	s, err := d.find(name).counters()
	if err != nil {
		t.Fatal(err)
	}
	for q := range s.Rx {
		sum += s.Rx[q][c]
	}
	return sum
}
