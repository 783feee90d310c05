package daemon

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nicd/framework"
	"nicd/framework/engine"
	"nicd/internal/checksum"
	"nicd/internal/testns"
)

// The longest packet that the kernel leaves to be cut is 65535 bytes with its Ethernet
// header (netif_skb_features compares with gso_max_size); what is longer it cuts by
// itself. In the smallest buffers that is more fragments than any device takes and
// fewer than framework.MaxFragments: every byte of it goes out, cut by the engine.
func TestTAPLongestPacket(t *testing.T) {
	testns.NeedTAP(t)
	left, right := testns.LinkName(), testns.LinkName()
	d := startTest(t, inProcess+nicText("a", "vmxnet3", vmxnet3Model(3), "buffer_size = 1088", tapText(left))+nicText("b", "e1000", `model = "82574L"`, "", tapText(right)))
	in, _ := namespaces(t, left, right)
	a, b := d.find("a"), d.find("b")
	for _, c := range []struct {
		length int // of the frame
		whole  bool
	}{{65535, true}, {65536, false}, {65578, false}} {
		t.Run(fmt.Sprint(c.length), func(t *testing.T) {
			const size = 1400
			segments := uint64((c.length - tcp6Headers + size - 1) / size)
			chopped, arrived := choppedBy(t, a), arrivedAt(t, b)
			sendLong(t, in, left, b.inForce().plan.MAC, c.length, size)
			until(t, "all segments at the other end", 20*time.Second, func() bool { return arrivedAt(t, b)-arrived >= segments })
			if n := choppedBy(t, a) - chopped; c.whole && n != segments || !c.whole && n != 0 {
				t.Errorf("%d segments were cut by the engine, of %d", n, segments)
			}
		})
	}
	for _, problem := range d.Audit() {
		t.Error(problem)
	}
}

// choppedBy and arrivedAt are segments that an interface's engine has cut, and that its
// device has received.
func choppedBy(t *testing.T, i *netInterface) (n uint64) {
	t.Helper()
	s, err := i.counters()
	if err != nil {
		t.Fatal(err)
	}
	for q := range s.Tx {
		n += s.Tx[q][engine.TxTSOChoppedSegments]
	}
	return n
}

func arrivedAt(t *testing.T, i *netInterface) (n uint64) {
	t.Helper()
	s, err := i.counters()
	if err != nil {
		t.Fatal(err)
	}
	for q := range s.Rx {
		n += s.Rx[q][engine.RxSegments]
	}
	return n
}

// Headers of Ethernet, IPv6 and TCP.
const (
	etherHeader = 14
	tcp6At      = etherHeader + 40
	tcp6Headers = tcp6At + 20
)

// sendLong sends a TCP packet that is to be cut out of a Linux interface, as a virtual
// machine's would be (packet(7), PACKET_VNET_HDR).
func sendLong(t *testing.T, in *testns.Space, name string, to framework.MAC, length, size int) {
	t.Helper()
	frame := make([]byte, length)
	copy(frame, to[:])
	copy(frame[6:], []byte{2, 0, 0, 0, 0, 9, 0x86, 0xdd})
	ip := frame[etherHeader:]
	ip[0], ip[6], ip[7] = 0x60, unix.IPPROTO_TCP, 64
	binary.BigEndian.PutUint16(ip[4:], uint16(min(length-tcp6At, 65535)))
	copy(ip[8:], []byte{0xfd, 0x77, 15: 1, 16: 0xfd, 17: 0x77, 31: 2})
	tcp := frame[tcp6At:]
	tcp[12], tcp[13] = 5<<4, 0x10 // ACK
	binary.BigEndian.PutUint16(tcp[16:], checksum.Pseudo6(ip[8:40], unix.IPPROTO_TCP, length-tcp6At))

	header := make([]byte, 10) // virtio specification 1.2, section 5.1.6
	header[0], header[1] = 1, 4
	binary.NativeEndian.PutUint16(header[2:], tcp6Headers)
	binary.NativeEndian.PutUint16(header[4:], uint16(size))
	binary.NativeEndian.PutUint16(header[6:], tcp6At)
	binary.NativeEndian.PutUint16(header[8:], 16)
	link := in.Link(t, name)
	err := in.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
			return err
		}
		at := unix.SockaddrLinklayer{Protocol: 0xdd86, Ifindex: link.Attrs().Index}
		return unix.Sendto(fd, append(header, frame...), 0, &at)
	})
	if err != nil {
		t.Fatal(err)
	}
}
