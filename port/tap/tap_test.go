package tap_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"nicd/framework"
	"nicd/internal/testns"
	"nicd/port/tap"
)

// nic is an interface below a port that keeps what it is sent.
type nic struct {
	mu       sync.Mutex
	settings framework.Settings
	queues   int
	memory   framework.Buffers
	free     []framework.Buffer
	sent     chan []byte
	flags    chan framework.Packet
}

const nicBuffers = 256

func newNIC(queues int) *nic {
	n := &nic{
		queues: queues, sent: make(chan []byte, 1000), flags: make(chan framework.Packet, 1000),
		memory:   framework.Buffers{Memory: make([]byte, nicBuffers*2112), Stride: 2112, Size: 2048, Count: nicBuffers},
		settings: framework.Settings{MTU: 1400, MAC: framework.MAC{2, 0, 0, 0, 0, 9}, Features: framework.AllFeatures},
	}
	for b := range framework.Buffer(nicBuffers) {
		n.free = append(n.free, b)
	}
	return n
}

func (n *nic) Name() string { return "nic" }
func (n *nic) Settings() framework.Settings {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.settings
}
func (n *nic) Queues() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.queues
}
func (n *nic) Buffers() *framework.Buffers { return &n.memory }

func (n *nic) Alloc(_ int, dst []framework.Buffer) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	got := copy(dst, n.free)
	n.free = n.free[got:]
	return got
}

func (n *nic) Release(_ int, bufs []framework.Buffer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.free = append(n.free, bufs...)
}

func (n *nic) Send(q int, b *framework.Batch) int {
	for i := range b.Packets {
		var frame []byte
		for _, f := range b.Fragments(i) {
			frame = append(frame, n.memory.Bytes(f)...)
			n.Release(q, []framework.Buffer{f.Buffer})
		}
		n.flags <- b.Packets[i]
		n.sent <- frame
	}
	return len(b.Packets)
}

func (n *nic) set(change func(*framework.Settings)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(&n.settings)
}

// batch is frames as received packets, in fragments of at most piece bytes.
func (n *nic) batch(t *testing.T, piece int, p framework.Packet, frame []byte) *framework.Batch {
	b := framework.NewBatch(1, framework.MaxFragments)
	for len(frame) > 0 {
		var one [1]framework.Buffer
		if n.Alloc(0, one[:]) != 1 {
			t.Fatal("out of buffers")
		}
		f := framework.Fragment{Buffer: one[0], Offset: framework.RxOffset, Len: uint32(min(piece, len(frame)))}
		copy(n.memory.Bytes(f), frame)
		frame = frame[f.Len:]
		p.Len += f.Len
		p.Frags++
		b.Frags = append(b.Frags, f)
	}
	b.Packets = append(b.Packets, p)
	return b
}

func (n *nic) census(t *testing.T) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.free) != nicBuffers {
		t.Errorf("%d of %d buffers came back", len(n.free), nicBuffers)
	}
}

func newPort(t *testing.T, o tap.Options, n *nic) *tap.Port {
	t.Helper()
	p, err := tap.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	if err := p.Attach(n); err != nil {
		t.Fatal(err)
	}
	return p
}

// The Linux interface follows the one below, also into another namespace, and is
// gone when the port is.
func TestFollows(t *testing.T) {
	testns.NeedTAP(t)
	space, name, below := testns.New(t), testns.LinkName(), newNIC(3)
	p := newPort(t, tap.Options{Name: name}, below)
	space.Take(t, name)
	space.Up(t, name)
	expect := func(what string, good func(a *netlink.LinkAttrs) bool) {
		t.Helper()
		link := space.Link(t, name)
		if a := link.Attrs(); !good(a) {
			t.Errorf("%s: %+v", what, a)
		}
	}
	expect("at first", func(a *netlink.LinkAttrs) bool {
		return a.MTU == 1400 && a.HardwareAddr.String() == "02:00:00:00:00:09" && a.RawFlags&unix.IFF_LOWER_UP == 0 && a.NumTxQueues >= 3
	})
	p.LinkChanged(framework.Link{Up: true, Mbps: 10000})
	expect("link up", func(a *netlink.LinkAttrs) bool { return a.RawFlags&unix.IFF_LOWER_UP != 0 })
	below.set(func(s *framework.Settings) { s.MTU, s.MAC = 9000, framework.MAC{2, 0, 0, 0, 0, 10} })
	if err := p.SettingsChanged(); err != nil {
		t.Error(err)
	}
	expect("changed", func(a *netlink.LinkAttrs) bool {
		return a.MTU == 9000 && a.HardwareAddr.String() == "02:00:00:00:00:0a"
	})
	below.mu.Lock()
	below.queues = 5
	below.mu.Unlock()
	if err := p.SettingsChanged(); err != nil {
		t.Error(err)
	}
	if out := ethtool(t, space, "-l", name); !strings.Contains(out, "Combined:	5") {
		t.Errorf("queues: %s", out)
	}
	for q := range 7 { // any receive queue finds a way up
		p.Deliver(q, below.batch(t, 2048, framework.Packet{}, marked(100, byte(q))))
	}
	if s := p.Stats(); s.UpPackets != 7 {
		t.Errorf("%+v", s)
	}
	p.LinkChanged(framework.Link{})
	expect("link down", func(a *netlink.LinkAttrs) bool { return a.RawFlags&unix.IFF_LOWER_UP == 0 })
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if _, err := space.Netlink().LinkByName(name); err == nil {
		t.Error("the Linux interface is still there")
	}
	below.census(t)
}

// ethtool is what the tool prints about an interface.
func ethtool(t *testing.T, space *testns.Space, args ...string) (out string) {
	t.Helper()
	if _, err := exec.LookPath("ethtool"); err != nil {
		testns.Unavailable(t, err.Error())
	}
	err := space.Do(func() error {
		b, err := exec.Command("ethtool", args...).CombinedOutput()
		out = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err, out)
	}
	return out
}

// ethtool tells the truth: the link's speed, and the offloads that are in force.
func TestEthtool(t *testing.T) {
	testns.NeedTAP(t)
	space, name, below := testns.New(t), testns.LinkName(), newNIC(1)
	p := newPort(t, tap.Options{Name: name}, below)
	space.Take(t, name)
	space.Up(t, name)
	p.LinkChanged(framework.Link{Up: true, Mbps: 100000, FullDuplex: true})
	if out := ethtool(t, space, name); !strings.Contains(out, "Speed: 100000Mb/s") || !strings.Contains(out, "Duplex: Full") {
		t.Error(out)
	}
	uso := p.Needs().Accepts.Has(framework.USO) // the kernel is new enough
	for _, c := range []struct {
		features                       framework.Features
		checksum, segment, segmt6, udp string
	}{
		{framework.AllFeatures, "on", "on", "on", "on"},
		{framework.AllFeatures &^ framework.TSO6, "on", "on", "off", "on"},
		{framework.AllFeatures &^ (framework.TSO4 | framework.TSO6), "on", "off", "off", "on"},
		{framework.AllFeatures &^ framework.USO, "on", "on", "on", "off"},
		{framework.AllFeatures &^ framework.TxChecksum, "off", "off", "off", "off"},
		{framework.AllFeatures, "on", "on", "on", "on"},
	} {
		below.set(func(s *framework.Settings) { s.Features = c.features })
		if err := p.SettingsChanged(); err != nil {
			t.Fatal(err)
		}
		if !uso {
			c.udp = "off"
		}
		out := ethtool(t, space, "-k", name)
		for feature, want := range map[string]string{
			"tx-checksum-ip-generic": c.checksum, "tx-tcp-segmentation": c.segment, "tx-tcp6-segmentation": c.segmt6, "tx-udp-segmentation": c.udp,
		} {
			if !strings.Contains(out, feature+": "+want) {
				t.Errorf("with %v: %s is not %s:\n%s", c.features, feature, want, out)
			}
		}
	}
}

// packetSocket sees and sends what the Linux interface does.
func packetSocket(t *testing.T, space *testns.Space, name string) int {
	t.Helper()
	link := space.Link(t, name)
	var fd int
	err := space.Do(func() (err error) {
		const all = 0x0300 // ETH_P_ALL in network byte order
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link.Attrs().Index})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 10}); err != nil {
		t.Fatal(err)
	}
	return fd
}

// marked is a frame of an EtherType that nobody else speaks.
func marked(size int, salt byte) []byte {
	frame := []byte{2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8, 0x88, 0xb5, salt}
	for len(frame) < size {
		frame = append(frame, byte(len(frame))^salt)
	}
	return frame
}

// next is the next frame that a packet socket sees of that kind.
func next(t *testing.T, fd int) []byte {
	t.Helper()
	for {
		b := make([]byte, 1<<16)
		n, _, err := unix.Recvfrom(fd, b, 0)
		if err != nil {
			t.Fatal(err)
		}
		if n > 14 && b[12] == 0x88 && b[13] == 0xb5 {
			return b[:n]
		}
	}
}

// Frames go both ways as they are, whatever fragments they lie in, and all buffers
// come back.
func TestFrames(t *testing.T) {
	testns.NeedTAP(t)
	space, name, below := testns.New(t), testns.LinkName(), newNIC(1)
	p := newPort(t, tap.Options{Name: name}, below)
	space.Take(t, name)
	space.Up(t, name)
	p.LinkChanged(framework.Link{Up: true})
	fd := packetSocket(t, space, name)
	for i, size := range []int{60, 300, 1414} {
		want := marked(size, byte(i))
		p.Deliver(0, below.batch(t, 100, framework.Packet{}, want))
		if got := next(t, fd); !bytes.Equal(got, want) {
			t.Errorf("up: %d bytes became %d", len(want), len(got))
		}
		if _, err := unix.Write(fd, want); err != nil {
			t.Fatal(err)
		}
		for {
			got := await(t, below.sent)
			<-below.flags
			if got[12] == 0x88 && got[13] == 0xb5 {
				if !bytes.Equal(got, want) {
					t.Errorf("down: %d bytes became %d", len(want), len(got))
				}
				break
			}
		}
	}
	s := p.Stats()
	if s.UpPackets != 3 || s.DownPackets < 3 || s.UpRefused+s.UpDown+s.UpGone+s.DownNonsense != 0 {
		t.Errorf("%+v", s)
	}
	p.Close()
	below.census(t)
}

func await(t *testing.T, sent <-chan []byte) []byte {
	t.Helper()
	select {
	case b := <-sent:
		return b
	case <-time.After(10 * time.Second):
		t.Fatal("nothing came down")
		return nil
	}
}

// A tag that the device took out of a frame is in it again when the kernel sees it.
func TestTag(t *testing.T) {
	testns.NeedTAP(t)
	space, name, below := testns.New(t), testns.LinkName(), newNIC(1)
	p := newPort(t, tap.Options{Name: name}, below)
	space.Take(t, name)
	space.Up(t, name)
	p.LinkChanged(framework.Link{Up: true})
	fd := packetSocket(t, space, name)
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
		t.Fatal(err)
	}
	want := marked(200, 1)
	p.Deliver(0, below.batch(t, 2048, framework.Packet{Flags: framework.VLANTag, VLAN: 0x6007}, want))
	for {
		frame, oob := make([]byte, 2048), make([]byte, 256)
		n, oobn, _, _, err := unix.Recvmsg(fd, frame, oob, 0)
		if err != nil {
			t.Fatal(err)
		}
		if frame[12] != 0x88 || frame[13] != 0xb5 {
			continue
		}
		messages, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil || len(messages) != 1 {
			t.Fatal(messages, err)
		}
		// The kernel takes the tag out again and says what it was.
		var aux unix.TpacketAuxdata
		if _, err := binary.Decode(messages[0].Data, binary.NativeEndian, &aux); err != nil {
			t.Fatal(err)
		}
		if aux.Status&unix.TP_STATUS_VLAN_VALID == 0 || aux.Vlan_tci != 0x6007 || !bytes.Equal(frame[:n], want) {
			t.Errorf("%+v\n%x\n%x", aux, frame[:n], want)
		}
		return
	}
}

func TestMistakes(t *testing.T) {
	testns.NeedTAP(t)
	name := testns.LinkName()
	p := newPort(t, tap.Options{Name: name}, newNIC(1))
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	other, err := unix.Dup(int(null.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		options tap.Options
		want    string
	}{
		{"nothing", tap.Options{}, "needs a name or a descriptor"},
		{"taken", tap.Options{Name: p.Name()}, "the name " + name + " is in use"},
		{"loopback", tap.Options{Name: "lo"}, "the name lo is in use"},
		{"too long", tap.Options{Name: "a-name-that-is-too-long"}, "1 to 15 characters"},
		{"not a TAP", tap.Options{FDs: []int{other}}, "is not a queue of a TAP device"},
	} {
		q, err := tap.New(c.options)
		if err == nil {
			q.Close()
			t.Errorf("%s: no error", c.name)
		} else if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
	}
}

// A port can be given a queue that somebody else opened.
func TestInherited(t *testing.T) {
	testns.NeedTAP(t)
	space, name, below := testns.New(t), testns.LinkName(), newNIC(2)
	var fd int
	err := space.Do(func() (err error) {
		fd, err = handOver(name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	p := newPort(t, tap.Options{FDs: []int{fd}}, below)
	if p.Name() != name {
		t.Errorf("name %q, want %q", p.Name(), name)
	}
	space.Up(t, name)
	p.LinkChanged(framework.Link{Up: true})
	socket := packetSocket(t, space, name)
	want := marked(100, 3)
	p.Deliver(1, below.batch(t, 2048, framework.Packet{}, want))
	if got := next(t, socket); !bytes.Equal(got, want) {
		t.Error("another frame")
	}
}

// The operator deletes the Linux interface: that is said, once, and nothing hangs.
func TestDeleted(t *testing.T) {
	testns.NeedTAP(t)
	space, name, below := testns.New(t), testns.LinkName(), newNIC(1)
	faults := make(chan error, 10)
	p := newPort(t, tap.Options{Name: name, OnFault: func(err error) { faults <- err }}, below)
	space.Take(t, name)
	space.Up(t, name)
	if err := space.Netlink().LinkDel(space.Link(t, name)); err != nil {
		t.Fatal(err)
	}
	p.Deliver(0, below.batch(t, 2048, framework.Packet{}, marked(100, 1)))
	select {
	case err := <-faults:
		if !strings.Contains(err.Error(), name) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("nobody noticed")
	}
	if s := p.Stats(); s.UpGone != 1 {
		t.Errorf("%+v", s)
	}
	p.Close()
	below.census(t)
	if len(faults) != 0 {
		t.Error("said twice")
	}
}
