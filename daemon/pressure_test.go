package daemon

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"nicd/framework/engine"
	"nicd/internal/teststream"
	"nicd/port/netstack"
)

func stackText(address string) string {
	return fmt.Sprintf("port \"netstack\" { address = %q }", address)
}

// streamBytes moves bytes from one netstack port to another and checks every one.
func streamBytes(t *testing.T, from, to *netstack.Port, at string, size int) {
	t.Helper()
	address := netip.MustParseAddrPort(at)
	listener, err := to.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	teststream.Move(t, listener, func() (net.Conn, error) { return from.Dial(t.Context(), address) }, size)
}

// Frames of 9000 bytes go through buffers that hold less than a quarter of one,
// as chains, and through buffers that hold one whole.
func TestJumbo(t *testing.T) {
	for _, c := range []struct {
		name, driver, model string
		bufferSize          int
		features            string
	}{
		{"vmxnet3 in chains", "vmxnet3", vmxnet3Model(3), 2048, "lro = false"},
		{"vmxnet3 in chains, coalesced", "vmxnet3", vmxnet3Model(3), 2048, "lro = true"},
		{"vmxnet3 in chains, all in software", "vmxnet3", vmxnet3Model(3), 2048, "lro = \"software\"\n    tso = \"software\"\n    tx-csum = \"software\""},
		{"vmxnet3 whole", "vmxnet3", vmxnet3Model(3), 9216, "lro = false"},
		{"82574L in chains", "e1000", `model = "82574L"`, 2048, "lro = false"},
	} {
		t.Run(c.name, func(t *testing.T) {
			extra := fmt.Sprintf("mtu = 9000\n  buffer_size = %d\n  features {\n    %s\n  }", c.bufferSize, c.features)
			d := startTest(t, inProcess+nicText("a", c.driver, c.model, extra, stackText("10.7.0.1/24"))+nicText("b", c.driver, c.model, extra, stackText("10.7.0.2/24")))
			streamBytes(t, d.netstackOf("a"), d.netstackOf("b"), "10.7.0.2:5001", 16<<20)
			packets, bytes := rxCount(t, d, "b", engine.RxSegments), rxCount(t, d, "b", engine.RxBytes)
			if packets == 0 || bytes/packets < 6000 {
				t.Errorf("%d bytes in %d frames: not jumbo ones", bytes, packets)
			}
		})
	}
}

// With far too few buffers packets are dropped and counted by the reason, TCP
// gets through all the same, and when there is no pressure the ring is full again.
func TestPoolRunsDry(t *testing.T) {
	const extra = "mtu = 9000\n  buffer_size = 2048\n  buffers = 96\n  features { lro = false }"
	d := startTest(t, inProcess+nicText("a", "vmxnet3", vmxnet3Model(3), "mtu = 9000", stackText("10.7.0.1/24"))+nicText("b", "vmxnet3", vmxnet3Model(3), extra, stackText("10.7.0.2/24")))
	for port := range 3 {
		streamBytes(t, d.netstackOf("a"), d.netstackOf("b"), fmt.Sprint("10.7.0.2:", 5001+port), 2<<20)
	}
	if n := rxCount(t, d, "b", engine.RxAllocFailed); n == 0 {
		t.Error("the pool never ran dry: the test tests nothing")
	}
	if n := rxCount(t, d, "b", engine.RxPostRefused); n != 0 {
		t.Errorf("%d buffers were refused by the ring, which is another reason", n)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		free, posted := rxCount(t, d, "b", engine.RxBuffersFree), rxCount(t, d, "b", engine.RxBuffersPosted)
		above := rxCount(t, d, "b", engine.RxBuffersOutstanding)
		if above == 0 && free+posted == 96 {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("%d buffers posted, %d free, %d above of 96", posted, free, above)
		}
		time.Sleep(time.Millisecond)
	}
}
