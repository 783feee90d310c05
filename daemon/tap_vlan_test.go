package daemon

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"nicd/internal/testns"
)

// Tagged frames of every VLAN go from one Linux interface to another, with their
// tags, up to the longest that the MTU allows: the kernel tells nobody which VLANs it
// has above, so that no device may filter them, whoever takes tags out or puts them in.
func TestTAPVLAN(t *testing.T) {
	testns.NeedTAP(t)
	for _, c := range []struct{ name, driver, model, extra string }{
		{"vmxnet3", "vmxnet3", vmxnet3Model(3), ""},
		{"vmxnet3, tags left to the engine", "vmxnet3", vmxnet3Model(3), "features {\n    vlan-strip = false\n    vlan-insert = false\n  }"},
		{"82574L", "e1000", `model = "82574L"`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			left, right := testns.LinkName(), testns.LinkName()
			d := startTest(t, inProcess+nicText("a", c.driver, c.model, c.extra, tapText(left))+nicText("b", c.driver, c.model, c.extra, tapText(right)))
			a, b := namespaces(t, left, right)
			from, to := taggedSocket(t, a, left), taggedSocket(t, b, right)
			mac := d.find("b").inForce().plan.MAC
			for _, tag := range []uint16{1, 5, 0x6007, 4094} {
				for _, payload := range []int{46, 700, 1500} {
					frame := slices.Concat(mac[:], []byte{2, 0, 0, 0, 0, 8, 0x81, 0, byte(tag >> 8), byte(tag), 0x88, 0xb5}, make([]byte, payload))
					for i := range payload {
						frame[18+i] = byte(i) ^ byte(tag)
					}
					if _, err := unix.Write(from, frame); err != nil {
						t.Fatal(err)
					}
					if got := nextTagged(t, to); !bytes.Equal(got, frame) {
						t.Errorf("VLAN %d: %d bytes became %d: %.24x, want %.24x", tag&0xfff, len(frame), len(got), got, frame)
					}
				}
			}
		})
	}
}

// taggedSocket sees and sends what a Linux interface does, and is told tags.
func taggedSocket(t *testing.T, space *testns.Space, name string) int {
	t.Helper()
	index := space.Link(t, name).Attrs().Index
	var fd int
	err := space.Do(func() (err error) {
		const all = 0x0300 // ETH_P_ALL in network byte order
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		t.Fatal(err)
	}
	return fd
}

// nextTagged is the next frame of the test's EtherType that a socket sees, with its
// tag, which the kernel takes out and tells apart from the frame.
func nextTagged(t *testing.T, fd int) []byte {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		frame, oob := make([]byte, 1<<16), make([]byte, 256)
		n, oobn, _, _, err := unix.Recvmsg(fd, frame, oob, 0)
		if err == unix.EAGAIN || err == unix.EINTR {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		frame = frame[:n]
		messages, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil || len(messages) != 1 {
			t.Fatal(messages, err)
		}
		var aux unix.TpacketAuxdata
		if _, err := binary.Decode(messages[0].Data, binary.NativeEndian, &aux); err != nil {
			t.Fatal(err)
		}
		if aux.Status&unix.TP_STATUS_VLAN_VALID != 0 {
			frame = slices.Insert(frame, 12, 0x81, 0, byte(aux.Vlan_tci>>8), byte(aux.Vlan_tci))
		}
		if len(frame) >= 18 && bytes.Equal(frame[16:18], []byte{0x88, 0xb5}) {
			return frame
		}
	}
	t.Fatal("no frame came")
	return nil
}
