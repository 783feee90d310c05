package tap

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os/exec"
	"testing"
	"time"

	"nicd/internal/testns"
	"nicd/sim"
)

// tcpFrame is an Ethernet frame of TCP over IPv4 with so much payload, whose
// checksum field holds the sum of the pseudo-header, as the kernel leaves it.
func tcpFrame(payload int) []byte {
	b := make([]byte, 54+payload)
	binary.BigEndian.PutUint16(b[12:], sim.EtherTypeIPv4)
	b[14], b[22], b[23] = 0x45, 64, sim.ProtocolTCP
	binary.BigEndian.PutUint16(b[16:], uint16(len(b)-14))
	copy(b[26:], []byte{10, 0, 0, 1, 10, 0, 0, 2})
	b[46] = 5 << 4
	for i := range payload {
		b[54+i] = byte(i)
	}
	var h sim.Headers
	sim.ParseHeaders(&h, b, len(b))
	h.SetHeaderChecksum(b)
	binary.BigEndian.PutUint16(b[50:], h.Pseudo(b, len(b)-34))
	return b
}

func frameOf(b []byte) *sim.Frame { return &sim.Frame{Parts: [][]byte{b}, Len: len(b)} }

// A super-packet of the kernel's has to give segments with right checksums.
func TestDecodedSuperPacketCanBeCut(t *testing.T) {
	b := tcpFrame(4000)
	header := []byte{needsChecksum, gsoTCPv4 | gsoECN, 0xff, 0, 0xb4, 0x05, 34, 0, 16, 0}
	f := frameOf(b)
	decode(f, header)
	if f.Flags != sim.Partial|sim.Segment || f.SegmentSize != 1460 || f.HeaderLen != 54 {
		t.Fatalf("decoded %+v", f)
	}
	var s sim.Segmenter
	segments := s.Cut(f, 0, true)
	if len(segments) != 3 {
		t.Fatalf("%d segments", len(segments))
	}
	for i := range segments {
		whole := make([]byte, segments[i].Len)
		segments[i].CopyTo(whole, 0)
		var h sim.Headers
		plain := frameOf(whole)
		if !sim.ParseHeaders(&h, whole, len(whole)) || !h.ChecksumGood(plain, whole) {
			t.Errorf("segment %d: wrong checksum", i)
		}
	}
}

func TestDecodePlain(t *testing.T) {
	for name, c := range map[string]struct {
		header []byte
		frame  []byte
		want   sim.FrameFlags
	}{
		"nothing to be done": {make([]byte, headerLen), tcpFrame(10), 0},
		"checksum":           {[]byte{needsChecksum, 0, 0, 0, 0, 0, 34, 0, 16, 0}, tcpFrame(10), sim.Partial},
		"broken headers":     {[]byte{needsChecksum, gsoTCPv4, 0, 0, 9, 0, 34, 0, 16, 0}, make([]byte, 60), sim.Partial},
	} {
		f := frameOf(c.frame)
		decode(f, c.header)
		if f.Flags != c.want {
			t.Errorf("%s: flags %v, want %v", name, f.Flags, c.want)
		}
	}
}

func TestEncode(t *testing.T) {
	h := make([]byte, headerLen)
	f := frameOf(tcpFrame(10))
	f.Flags, f.ChecksumStart, f.ChecksumOffset = sim.Partial, 34, 16
	encode(h, f)
	back := frameOf(f.Parts[0])
	if decode(back, h); back.Flags != f.Flags || back.ChecksumStart != 34 || back.ChecksumOffset != 16 {
		t.Errorf("there and back: %+v", back)
	}
}

// The kernel's UDP reaches the wire and comes back from it.
func TestKernelTalks(t *testing.T) {
	testns.NeedTAP(t)
	space, name := testns.New(t), testns.LinkName()
	var e *End
	err := space.Do(func() (err error) {
		e, err = New(name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	wire := sim.NewWire(sim.WireOptions{})
	defer wire.Close()
	wire.Connect(e)
	peer := sim.NewTester(wire, sim.Wants{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	const ours, theirs, hardware = "198.51.100.1", "198.51.100.2", "02:00:00:00:00:09"
	for _, args := range [][]string{
		{"address", "add", ours + "/30", "dev", name}, {"link", "set", name, "up"},
		{"neighbour", "add", theirs, "lladdr", hardware, "dev", name, "nud", "permanent"},
	} {
		var out []byte
		err := space.Do(func() (err error) {
			out, err = exec.Command("ip", args...).CombinedOutput()
			return err
		})
		if errors.Is(err, exec.ErrNotFound) {
			testns.Unavailable(t, err.Error())
		}
		if err != nil {
			t.Fatalf("ip %v: %v: %s", args, err, out)
		}
	}
	var conn net.Conn
	err = space.Do(func() (err error) {
		conn, err = net.Dial("udp", theirs+":7")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("out")); err != nil {
		t.Fatal(err)
	}
	request := nextUDP(ctx, t, peer)
	if got := string(request[42:45]); got != "out" {
		t.Fatalf("the wire got %q", got)
	}
	if err := peer.Send(ctx, sim.FrameOf(answerTo(request, "back"))); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 10)
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if n, err := conn.Read(buf); err != nil || string(buf[:n]) != "back" {
		t.Fatalf("the kernel got %q, %v; dropped %d", buf[:n], err, e.Dropped())
	}
}

// nextUDP is the next UDP frame over IPv4, whose checksum has to be right.
func nextUDP(ctx context.Context, t *testing.T, peer *sim.Tester) []byte {
	t.Helper()
	for {
		r, err := peer.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var h sim.Headers
		if !sim.ParseHeaders(&h, r.Bytes, len(r.Bytes)) || h.Protocol != sim.ProtocolUDP || h.IPv6 {
			continue
		}
		if !h.ChecksumGood(frameOf(r.Bytes), r.Bytes) {
			t.Fatal("a frame of the kernel's with a wrong checksum")
		}
		return r.Bytes
	}
}

// answerTo swaps a UDP frame's ends.
func answerTo(request []byte, text string) []byte {
	b := append([]byte(nil), request[:42]...)
	copy(b[0:6], request[6:12])
	copy(b[6:12], request[0:6])
	copy(b[26:30], request[30:34])
	copy(b[30:34], request[26:30])
	copy(b[34:36], request[36:38])
	copy(b[36:38], request[34:36])
	b = append(b, text...)
	binary.BigEndian.PutUint16(b[16:], uint16(len(b)-14))
	binary.BigEndian.PutUint16(b[38:], uint16(len(b)-34))
	binary.BigEndian.PutUint16(b[40:], 0) // no checksum (RFC 768)
	var h sim.Headers
	sim.ParseHeaders(&h, b, len(b))
	h.SetHeaderChecksum(b)
	return b
}
