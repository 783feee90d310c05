package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"nicd/framework/engine"
	"nicd/port/netstack"
)

// TestAcrossPages: devices that send nothing from two pages lose nothing if the quirk
// says so, whatever the engine or the device does to packets; without it they do.
func TestAcrossPages(t *testing.T) {
	const lossy = "variations { drops-across-pages = true }"
	for _, c := range []struct {
		name, driver, model, extra string
	}{
		{"vmxnet3", "vmxnet3", vmxnet3Model(1), ""},
		{"vmxnet3 jumbo", "vmxnet3", vmxnet3Model(3), "mtu = 9000"},
		{"vmxnet3, cut by the engine", "vmxnet3", vmxnet3Model(3), "features { tso = \"software\" }"},
		{"vmxnet3, sums by the engine", "vmxnet3", vmxnet3Model(3), "features { tx-csum = \"software\" }"},
		{"vmxnet3, large buffers", "vmxnet3", vmxnet3Model(3), "buffer_size = 9216"},
		{"82574L", "e1000", `model = "82574L"`, ""},
		{"82574L, cut by the engine", "e1000", `model = "82574L"`, "features { tso = \"software\" }"},
	} {
		t.Run(c.name, func(t *testing.T) {
			start := func(t *testing.T, quirk bool) *Daemon {
				extra := fmt.Sprintf("%s\n  quirks { tx-within-page = %v }", c.extra, quirk)
				return startTest(t, inProcess+nicText("a", c.driver, c.model+"\n    "+lossy, extra, stackText("10.7.0.1/24"))+
					nicText("b", "vmxnet3", vmxnet3Model(3), "mtu = 9000", stackText("10.7.0.2/24")))
			}
			t.Run("with", func(t *testing.T) {
				d := start(t, true)
				streamBytes(t, d.netstackOf("a"), d.netstackOf("b"), "10.7.0.2:5001", 4<<20)
				if lost, split := carried(t, d); lost != 0 || split == 0 {
					t.Errorf("%d packets were lost, %d split", lost, split)
				}
			})
			t.Run("without", func(t *testing.T) {
				d := start(t, false)
				loseSome(t, d.netstackOf("a"), d.netstackOf("b"))
				if lost, split := carried(t, d); lost == 0 || split != 0 {
					t.Errorf("%d packets were lost, %d split", lost, split)
				}
			})
		})
	}
}

// carried waits until a has sent all it had to, and counts what did not come to b,
// and what a's engine split.
func carried(t *testing.T, d *Daemon) (lost, split uint64) {
	t.Helper()
	var sent, received uint64
	until(t, "rest", 20*time.Second, func() bool {
		was, arrived := sent, received
		sent, received = 0, rxCount(t, d, "b", engine.RxSegments)
		split = 0
		s, err := d.find("a").counters()
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range s.Tx {
			sent += q[engine.TxPackets] - q[engine.TxTSOHardware] + q[engine.TxTSOHardwareSegments]
			split += q[engine.TxSplits]
		}
		return sent == was && received == arrived
	})
	return sent - received, split
}

// loseSome sends until it has waited long enough for what does not arrive.
func loseSome(t *testing.T, from, to *netstack.Port) {
	t.Helper()
	at := netip.MustParseAddrPort("10.7.0.2:5002")
	listener, err := to.Listen(at)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	for ctx.Err() == nil && from.Stats().Retransmits < 10 {
		c, err := from.Dial(ctx, at)
		if err != nil {
			continue // the first packets are lost, too
		}
		_ = c.SetDeadline(time.Now().Add(time.Second))
		_, _ = c.Write(make([]byte, 1<<20))
		c.Close()
	}
}
