package lro

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// oracle is the GRO of the running kernel: a TAP device in a network namespace of its own, into which frames are
// written, and a packet socket behind it, which sees what GRO made of them.
type oracle struct {
	tap, socket int
}

// newOracle returns an oracle, or skips the test where there cannot be one; under CI that is an error.
func newOracle(t *testing.T) *oracle {
	t.Helper()
	give := t.Skipf
	if os.Getenv("CI") == "true" {
		give = t.Fatalf
	}
	if os.Getenv("NICD_NO_TAP") != "" {
		t.Skip("not wanted: NICD_NO_TAP is set")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil || os.Geteuid() != 0 {
		give("needs root and /dev/net/tun (%v)", err)
	}
	type result struct {
		o   *oracle
		err error
	}
	made := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, and with it its namespaces, ends with this goroutine
		o, err := openOracle()
		made <- result{o, err}
	}()
	r := <-made
	if r.err != nil {
		give("%v", r.err)
	}
	t.Cleanup(func() {
		unix.Close(r.o.tap)
		unix.Close(r.o.socket)
	})
	return r.o
}

// openOracle sets everything up in the current thread, which gets namespaces of its own: one for the network, and one
// for mounts, because the setting that lets GRO hold packets across writes is in the sysfs of the network namespace.
func openOracle() (*oracle, error) {
	step := func(what string, err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	}
	err := step("unshare", unix.Unshare(unix.CLONE_NEWNET|unix.CLONE_NEWNS|unix.CLONE_FS))
	if err == nil {
		err = step("private mounts", unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	}
	if err == nil {
		err = step("sysfs", unix.Mount("sysfs", "/sys", "sysfs", 0, ""))
	}
	if err != nil {
		return nil, err
	}
	os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0o644) // its own frames would disturb
	o := &oracle{}
	if o.tap, err = openTAP("gro"); err != nil {
		return nil, err
	}
	for name, value := range map[string]string{"gro_flush_timeout": "3000000", "napi_defer_hard_irqs": "1"} {
		if err := os.WriteFile("/sys/class/net/gro/"+name, []byte(value), 0o644); err != nil {
			return nil, err
		}
	}
	if o.socket, err = openPacketSocket("gro"); err != nil {
		return nil, err
	}
	return o, nil
}

func openTAP(name string) (int, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		return -1, err
	}
	req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_NAPI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, req); err != nil {
		return -1, fmt.Errorf("TUNSETIFF: %w", err)
	}
	control, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(control)
	mtu, _ := unix.NewIfreq(name)
	mtu.SetUint32(9000)
	if err := unix.IoctlIfreq(control, unix.SIOCSIFMTU, mtu); err != nil {
		return -1, fmt.Errorf("MTU: %w", err)
	}
	up, _ := unix.NewIfreq(name)
	up.SetUint16(unix.IFF_UP | unix.IFF_PROMISC)
	if err := unix.IoctlIfreq(control, unix.SIOCSIFFLAGS, up); err != nil {
		return -1, fmt.Errorf("up: %w", err)
	}
	return fd, nil
}

// openPacketSocket returns a socket that receives all frames with a virtio-net header in front.
func openPacketSocket(name string) (int, error) {
	all := binary.BigEndian.Uint16([]byte{unix.ETH_P_ALL, 0})
	if runtime.GOARCH != "s390x" { // little-endian: the protocol is in network order
		all = unix.ETH_P_ALL << 8
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all))
	if err != nil {
		return -1, err
	}
	ifi, err := unix.NewIfreq(name)
	if err != nil {
		return -1, err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, ifi); err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: int(ifi.Uint32())}); err != nil {
		return -1, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		return -1, err
	}
	limit := unix.NsecToTimeval(int64(200 * time.Millisecond))
	return fd, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit)
}

// groups writes the frames and returns how many frames each of the kernel's outputs consists of, sorted: the kernel
// keeps the order within a flow, not between flows.
func (o *oracle) groups(frames [][]byte) ([]int, error) {
	for _, f := range frames {
		if _, err := unix.Write(o.tap, f); err != nil {
			return nil, fmt.Errorf("the kernel does not take a frame of %d bytes: %w", len(f), err)
		}
	}
	var sizes []int
	b := make([]byte, 1<<18)
	for total := 0; total < len(frames); {
		n, from, err := unix.Recvfrom(o.socket, b, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return sizes, fmt.Errorf("%d of %d frames came out: %w", total, len(frames), err)
		}
		if ll, ok := from.(*unix.SockaddrLinklayer); ok && ll.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		size := segments(b[:n])
		sizes = append(sizes, size)
		total += size
	}
	slices.Sort(sizes)
	return sizes, nil
}

// segments returns the number of segments of a frame behind a virtio-net header of 10 bytes.
func segments(b []byte) int {
	kind, size, f := b[1], int(binary.NativeEndian.Uint16(b[4:])), b[10:]
	if kind == 0 || size == 0 {
		return 1
	}
	l4 := 14 + 40
	if f[14]>>4 == 4 {
		l4 = 14 + int(f[14]&15)*4
	} else if f[20] != 6 {
		l4 += 8 // one extension header, which is all that the tests have
	}
	payload := len(f) - l4 - int(f[l4+12]>>4)*4
	return (payload + size - 1) / size
}

// kernelDiffers lists where the kernel's GRO (6.18) does something else, and why that is no mistake of this package. The
// key is a row and its name.
var kernelDiffers = map[string]struct{ groups, why string }{
	"14 no ACK on all":                         {"[3]", noACK},
	"16 urgent pointer without URG":            {"[3]", urgent},
	"16 urgent pointer without URG, high byte": {"[3]", urgent},
	"19 CWR, ECE and AE on all":                {"[1 1 1]", "The kernel ends at each CWR unless the device says that it is AccECN. It would have lost nothing."},
	"32 later fragment between":                {"[1 2]", overtakes},
	"32 first fragment between":                {"[1 2]", overtakes},
	"32 IPv6 fragment header between":          {"[1 2]", overtakes},
	"33 IPv4 options between":                  {"[1 2]", overtakes},
	"34 IPv6 extension header between":         {"[1 2]", overtakes},
	"34 IPv6 extension headers on all":         {"[3]", "The kernel merges packets whose extension headers are equal; this package passes them alone so far."},
	"45 one-byte payloads":                     {"[100]", "The kernel has no limit of 64 segments; it is Options.MaxSegments here."},
	"53 checksum field 0xffff":                 {"[3]", "The kernel segments it again with 0x0000, which is as right and not the same."},
	"53 IPv4 checksum field 0xffff":            {"[3]", "As with TCP: the kernel writes 0x0000 again."},
	"64 too large for the MTU":                 {"[3]", mtu},
	"64 too large for the MTU, IPv6":           {"[2]", mtu},
	"64 too large for a jumbo MTU":             {"[2]", mtu},
	"70 broadcast MAC":                         {"[3]", address},
	"70 multicast address":                     {"[3]", address},
	"70 multicast source":                      {"[3]", address},
	"70 source 0.0.0.0":                        {"[3]", address},
	"70 destination 0.0.0.0":                   {"[3]", address},
	"70 source ::":                             {"[2]", address},
	"70 destination ::":                        {"[2]", address},
	"70 IPv6 multicast":                        {"[2]", address},
	"70 IPv6 multicast source":                 {"[2]", address},
}

const (
	overtakes = "The kernel lets what it cannot merge overtake what it holds of the same flow."
	noACK     = "The kernel merges data without ACK, which no state of a connection allows (RFC 9293 section 3.10.7.4)."
	urgent    = "The kernel does not look at the urgent pointer; its segments would all have that of the first."
	mtu       = "The kernel does not compare with the MTU: it trusts drivers to mark what they have coalesced."
	address   = "The kernel merges, and its TCP drops the packets later; they are no connection's."
)

// least returns the kernel's groups of the run, out of a few, with the fewest outputs: GRO gives up what it holds when
// the clock ticks or its timer runs out, and that is no rule. It tries longer while there are more outputs than expected,
// or as many of other sizes.
func (o *oracle) least(frames [][]byte, expected string) ([]int, error) {
	var best []int
	fewest, count := math.MaxInt, len(strings.Fields(expected))
	met := false
	for n := 0; n < 3 || n < 20 && (fewest > count || fewest == count && !met); n++ {
		sizes, err := o.groups(frames)
		if err != nil {
			return nil, err
		}
		same := fmt.Sprint(sizes) == expected
		if len(sizes) < fewest || len(sizes) == fewest && same {
			best, fewest, met = sizes, len(sizes), same
		}
	}
	return best, nil
}

// plain reports whether frames say all there is to say about the packets.
func plain(in []Packet) bool {
	for i := range in {
		p := &in[i]
		if p.Flags != 0 || p.Segments != 0 || p.SegmentSize != 0 || p.Port != 0 || p.Mark != 0 || p.Checksum != 0 ||
			int(p.Len) != len(p.Data) || len(p.Data) < 14 || p.Data[12] == 0x81 || p.Data[12] == 0x88 || p.Data[12] == 0x91 {
			return false
		}
	}
	return true
}

// sizes returns the sizes of the groups of this package's outputs, sorted.
func sizes(t *testing.T, in []Packet, out []Aggregate) []int {
	var v []int
	for i := range out {
		v = append(v, len(members(t, in, &out[i])))
	}
	slices.Sort(v)
	return v
}

// TestKernel runs every row that consists of frames alone through the kernel's GRO and through the engine.
func TestKernel(t *testing.T) {
	o := newOracle(t)
	met := map[string]bool{}
	for _, r := range rules() {
		if !plain(r.in) || (r.options != Options{} && r.options != Options{MTU: 9000}) {
			continue
		}
		name := fmt.Sprintf("%02d %s", r.row, r.name)
		frames := snapshot(r.in)
		groups := sizes(t, r.in, New(r.options).Batch(r.in, nil))
		listed, differs := kernelDiffers[name]
		expected := fmt.Sprint(groups)
		if differs {
			expected = listed.groups
		}
		kernel, err := o.least(frames, expected)
		if err != nil {
			t.Logf("%s: %v", name, err)
			continue
		}
		ours, theirs := fmt.Sprint(groups), fmt.Sprint(kernel)
		if differs {
			met[name] = true
			if listed.groups != theirs {
				t.Errorf("%s: the kernel makes %s of it, the list says %s (%s), the engine makes %s", name, theirs,
					listed.groups, listed.why, ours)
			}
		} else if ours != theirs {
			t.Errorf("%s: the kernel makes %s of it, the engine %s", name, theirs, ours)
		}
	}
	for name := range kernelDiffers {
		if !met[name] {
			t.Errorf("%s is on the list and was not met", name)
		}
	}
}

// TestKernelCaptures runs the captures through both, in small batches. The kernel may hold what the engine lets go and
// the other way round only where the list says so.
func TestKernelCaptures(t *testing.T) {
	o := newOracle(t)
	for _, name := range captures(t) {
		frames := readCapture(t, name)
		short := strings.TrimSuffix(filepath.Base(name), ".pcapng")
		same := 0
		for at := 0; at < len(frames); at += 10 {
			part := frames[at:min(at+10, len(frames))]
			in := make([]Packet, len(part))
			for i, f := range part {
				in[i] = Packet{Data: slices.Clone(f), Len: uint32(len(f))}
			}
			ours := sizes(t, in, New(Options{}).Batch(in, nil))
			kernel, err := o.least(part, fmt.Sprint(ours))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(ours, kernel) {
				t.Errorf("%s, frames %d to %d: the kernel makes %v of them, the engine %v", short, at, at+len(part)-1, kernel, ours)
				continue
			}
			same++
		}
		t.Logf("%s: %d batches", short, same)
	}
}
