package daemon

import (
	"encoding/binary"
	"io"
	"math/bits"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"nicd/framework/engine"
	"nicd/internal/testns"
)

// Flows spread over eight queues, and none is on two. With the port numbers as the
// kernel gives them that takes many: a hash puts 8 flows on 8 queues once in 416
// times (8!/8^8), and on five of them on average. So it is either many flows, or
// eight whose numbers were looked for; in both cases no queue is idle and none has
// twice its share.
func TestTAPSpread(t *testing.T) {
	testns.NeedTAP(t)
	const queues = 8
	left, right := testns.LinkName(), testns.LinkName()
	two := func(text string) string { return strings.ReplaceAll(text, "queues = 2", "queues = 8") }
	d := startTest(t, inProcess+two(nicText("a", "vmxnet3", vmxnet3Model(3), "", tapText(left)))+two(nicText("b", "vmxnet3", vmxnet3Model(3), "", tapText(right))))
	a, b := namespaces(t, left, right)
	listener := b.Listen(t, "10.77.0.2:0")
	at := listener.Addr().(*net.TCPAddr).AddrPort()

	spread := func(what string, size int, froms []netip.AddrPort) {
		t.Helper()
		before := perQueue(t, d, "b")
		sendAll(t, a, listener, froms, size)
		var got []uint64
		total := uint64(0)
		for q, n := range perQueue(t, d, "b") {
			got = append(got, n-before[q])
			total += n - before[q]
		}
		t.Logf("%s: segments of each queue: %v", what, got)
		if len(got) != queues {
			t.Fatalf("%s: %d queues", what, len(got))
		}
		for q, n := range got {
			if n == 0 || n > 2*total/queues {
				t.Errorf("%s: queue %d has %d of %d segments", what, q, n, total)
			}
		}
	}
	anyPort := netip.AddrPortFrom(netip.MustParseAddr("10.77.0.1"), 0)
	many := make([]netip.AddrPort, 256)
	for n := range many {
		many[n] = anyPort
	}
	spread("256 flows", 64<<10, many)
	spread("8 flows, one for each queue", 2<<20, portsFor(anyPort.Addr(), at, queues))
}

// portsFor are source ports of flows to an address that RSS puts on a queue each.
func portsFor(from netip.Addr, to netip.AddrPort, queues int) []netip.AddrPort {
	var list []netip.AddrPort
	taken := map[uint32]bool{}
	for port := uint16(20000 + rand.IntN(10000)); len(list) < queues; port++ {
		var flow []byte
		flow = append(append(flow, from.AsSlice()...), to.Addr().AsSlice()...)
		flow = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(flow, port), to.Port())
		if q := toeplitz(flow) % 128 % uint32(queues); !taken[q] {
			taken[q] = true
			list = append(list, netip.AddrPortFrom(from, port))
		}
	}
	return list
}

// toeplitz is the hash as Microsoft's RSS specification defines it: for each bit
// that is set, the 32 bits of the key from there on.
func toeplitz(data []byte) (hash uint32) {
	window := binary.BigEndian.Uint32(toeplitzKey[:])
	for n, octet := range data {
		for bit := range 8 {
			if octet<<bit&0x80 != 0 {
				hash ^= window
			}
			window = window<<1 | uint32(bits.Reverse8(toeplitzKey[n+4])>>bit&1)
		}
	}
	return hash
}

// perQueue is how many frames on the wire each receive queue's packets stand for.
func perQueue(t *testing.T, d *Daemon, name string) (list []uint64) {
	t.Helper()
	i := d.find(name)
	s, err := i.counters()
	if err != nil {
		t.Fatal(err)
	}
	for q := range i.inForce().plan.RxQueues {
		list = append(list, s.Rx[q][engine.RxSegments])
	}
	return list
}

// sendAll sends so many bytes from each address to a listener, all at once.
func sendAll(t *testing.T, from *testns.Space, listener *net.TCPListener, froms []netip.AddrPort, size int) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	if err := listener.SetDeadline(deadline); err != nil {
		t.Fatal(err)
	}
	var ends sync.WaitGroup
	defer ends.Wait()
	arrived := make(chan error, len(froms))
	ends.Go(func() {
		for range froms {
			c, err := listener.Accept()
			if err != nil {
				arrived <- err
				continue
			}
			ends.Go(func() {
				defer c.Close()
				_ = c.SetDeadline(deadline)
				n, err := io.Copy(io.Discard, c)
				if err == nil && n != int64(size) {
					err = io.ErrUnexpectedEOF
				}
				arrived <- err
			})
		}
	})
	for _, at := range froms {
		var c *net.TCPConn
		err := from.Do(func() (err error) {
			c, err = net.DialTCP("tcp", net.TCPAddrFromAddrPort(at), listener.Addr().(*net.TCPAddr))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		ends.Go(func() {
			defer c.Close()
			_ = c.SetDeadline(deadline)
			_, _ = c.Write(make([]byte, size)) // a failure is missed at the other end
		})
	}
	for range froms {
		if err := <-arrived; err != nil {
			t.Fatal(err)
		}
	}
}
