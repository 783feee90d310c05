package qemu_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"nicd/bus/qemu"
	"nicd/framework"
	"nicd/framework/drivertest/rig"
	"nicd/internal/testns"
)

// These tests look at what QEMU makes of offloads where its network takes them: at
// a TAP device, with the header (struct virtio_net_hdr) in front of each frame.

// header is struct virtio_net_hdr.
type header struct {
	flags, gsoType                uint8
	headerLen, gsoSize            uint16
	checksumStart, checksumOffset uint16
}

const (
	headerSize    = 10
	needsChecksum = 1
	gsoNone       = 0
	gsoTCPv4      = 1
	gsoTCPv6      = 4
)

func (h *header) append(b []byte) []byte {
	b = append(b, h.flags, h.gsoType)
	for _, v := range []uint16{h.headerLen, h.gsoSize, h.checksumStart, h.checksumOffset} {
		b = binary.LittleEndian.AppendUint16(b, v)
	}
	return b
}

func parseHeader(b []byte) header {
	u16 := binary.LittleEndian.Uint16
	return header{b[0], b[1], u16(b[2:]), u16(b[4:]), u16(b[6:]), u16(b[8:])}
}

// tapped is a driver on a model whose network is a TAP device, and a packet socket
// there.
type tapped struct {
	*rig.Net
	socket int
}

func newTapped(t *testing.T, c nic, opt rig.Options) *tapped {
	t.Helper()
	needQEMU(t)
	testns.NeedTAP(t)
	name := testns.LinkName()
	file, err := qemu.OpenTap(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	space := testns.New(t)
	space.Take(t, name)
	space.Up(t, name)
	p := &tapped{socket: packetSocket(t, space, space.Link(t, name).Attrs().Index)}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	device, err := qemu.Start(ctx, qemu.Options{Name: "test", Model: c.model, MAC: rig.MAC, Netdev: qemu.Tap{File: file}})
	if err != nil {
		t.Fatal(err)
	}
	if device.CutsWrongly() {
		t.Error("TSO frames are said to be cut wrongly")
	}
	opt.Memory, opt.Deadline = rig.SharedMemory, patience
	p.Net = rig.On(t, c.driver(), &rig.Station{Bus: device}, opt)
	return p
}

func packetSocket(t *testing.T, space *testns.Space, link int) (fd int) {
	t.Helper()
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8&0xFF00 // in network byte order
	err := space.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	limit := unix.NsecToTimeval(patience.Nanoseconds())
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: link}))
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// arrives waits for a frame of the device's.
func (p *tapped) arrives() (header, []byte) {
	p.T.Helper()
	b := make([]byte, 1<<17)
	for {
		n, err := unix.Read(p.socket, b)
		if err != nil {
			p.T.Fatal(err)
		}
		if frame := b[headerSize:n]; framework.MAC(frame[6:12]) == rig.MAC {
			return parseHeader(b), frame
		}
	}
}

func (p *tapped) inject(h header, frame []byte) {
	p.T.Helper()
	if _, err := unix.Write(p.socket, append(h.append(nil), frame...)); err != nil {
		p.T.Fatal(err)
	}
}

// receive takes n packets of the peer's; the kernel sends some of its own.
func (p *tapped) receive(n int) (all []rig.Received) {
	p.T.Helper()
	p.Until("packets", func() bool {
		for q := range p.Queues.Rx {
			for _, g := range p.Poll(q) {
				if framework.MAC(g.Bytes[6:12]) == rig.Peer {
					all = append(all, g)
				}
			}
		}
		return len(all) >= n
	})
	return all
}

// complete fills in the checksum that h says is missing.
func complete(h header, frame []byte) []byte {
	frame = bytes.Clone(frame)
	if h.flags&needsChecksum == 0 {
		return frame
	}
	sum := uint32(0)
	rest := frame[h.checksumStart:]
	for i := 0; i+1 < len(rest); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(rest[i:]))
	}
	if len(rest)%2 == 1 {
		sum += uint32(rest[len(rest)-1]) << 8
	}
	for sum>>16 != 0 {
		sum = sum&0xFFFF + sum>>16
	}
	binary.BigEndian.PutUint16(rest[h.checksumOffset:], ^uint16(sum))
	return frame
}

func TestDriverTAPTransmit(t *testing.T) {
	each(t, []nic{vmx, pro74}, func(t *testing.T, c nic) {
		p := newTapped(t, c, rig.Options{Config: func(c *framework.Config) { c.TxDescriptors = 256 }})
		for _, f := range []rig.Frame{{}, {UDP: true}, {V6: true}, {V6: true, UDP: true}} {
			f.To, f.From, f.Partial, f.Payload = rig.Peer, rig.MAC, true, 101
			p.Send(0, f.Build(), 64, f.Offload())
			h, frame := p.arrives()
			if h.gsoType != gsoNone || !rig.Sums(complete(h, frame)) {
				t.Errorf("%+v: sent with %+v as %x", f, h, frame)
			}
		}
		for _, v6 := range []bool{false, true} {
			for _, payload := range []int{1449, 4000, 2 * 1448, 40000} {
				f := rig.Frame{V6: v6, To: rig.Peer, From: rig.MAC, Payload: payload, NoLength: true}
				p.Send(0, f.Build(), 2000, f.TSO(1448))
				h, frame := p.arrives()
				kind := uint8(gsoTCPv4)
				if v6 {
					kind = gsoTCPv6
				}
				if h.gsoType != kind || h.gsoSize != 1448 || h.flags&needsChecksum == 0 {
					t.Fatalf("v6 %v, %d bytes: header %+v", v6, payload, h)
				}
				if len(frame) != f.HeaderLen()+payload || !bytes.Equal(frame[f.HeaderLen():], f.Build()[f.HeaderLen():]) {
					t.Fatalf("v6 %v, %d bytes: sent as %d bytes", v6, payload, len(frame))
				}
				if int(h.checksumStart) != f.L4() || int(h.checksumOffset) != f.SumOffset() {
					t.Errorf("v6 %v: checksum at %d+%d", v6, h.checksumStart, h.checksumOffset)
				}
			}
		}
	})
}

// mergedFrame is what the kernel's TCP gives a network that cuts.
func mergedFrame(payload int) (header, []byte, rig.Frame) {
	f := rig.Frame{Payload: payload, Partial: true}
	return header{
		flags: needsChecksum, gsoType: gsoTCPv4, headerLen: uint16(f.HeaderLen()), gsoSize: 1448,
		checksumStart: uint16(f.L4()), checksumOffset: uint16(f.SumOffset()),
	}, f.Build(), f
}

// TestDriverTAPLRO: a merged packet comes in many buffers, verified, and says
// nothing of its segments; with LRO off the kernel cuts it.
func TestDriverTAPLRO(t *testing.T) {
	p := newTapped(t, vmx, rig.Options{})
	for lap := range 20 { // around the second ring
		h, frame, f := mergedFrame(8000 + lap)
		p.inject(h, frame)
		got := p.receive(1)[0]
		if got.Flags&(framework.Coalesced|framework.ChecksumVerified) != framework.Coalesced|framework.ChecksumVerified {
			t.Fatalf("flags %b", got.Flags)
		}
		if got.SegmentSize != 0 {
			t.Errorf("segments of %d bytes, which the device can't know", got.SegmentSize)
		}
		if want := (len(frame) + rig.BufferSize - 1) / rig.BufferSize; got.Frags != want {
			t.Errorf("%d fragments, want %d", got.Frags, want)
		}
		if !bytes.Equal(got.Bytes[f.HeaderLen():], frame[f.HeaderLen():]) {
			t.Fatal("other data")
		}
	}
	p.Apply(framework.Live, func(s *framework.Settings) { s.Features &^= framework.LRO })
	settle(p.Net)
	h, frame, f := mergedFrame(8000)
	p.inject(h, frame)
	var stream []byte
	for _, got := range p.receive(6) {
		if got.Flags&framework.Coalesced != 0 || !rig.Sums(got.Bytes) || got.Flags&framework.ChecksumVerified == 0 {
			t.Errorf("flags %b, %d bytes", got.Flags, len(got.Bytes))
		}
		stream = append(stream, got.Bytes[f.HeaderLen():]...)
	}
	if !bytes.Equal(stream, frame[f.HeaderLen():]) {
		t.Error("another stream")
	}
}

// TestDriverTAPChecksum: a frame that the kernel has not summed is verified; one
// that came from elsewhere is what it is.
func TestDriverTAPChecksum(t *testing.T) {
	p := newTapped(t, vmx, rig.Options{})
	partial := rig.Frame{Payload: 100, Partial: true}
	p.inject(header{flags: needsChecksum, checksumStart: uint16(partial.L4()), checksumOffset: uint16(partial.SumOffset())}, partial.Build())
	got := p.receive(1)[0]
	if got.Flags&framework.ChecksumVerified == 0 || !rig.Sums(got.Bytes) {
		t.Errorf("flags %b, %x", got.Flags, got.Bytes)
	}
	p.inject(header{}, rig.Frame{Payload: 100}.Build())
	if got := p.receive(1)[0]; got.Flags&(framework.ChecksumVerified|framework.ChecksumBad) != 0 {
		t.Errorf("verdict on what nobody looked at: flags %b", got.Flags)
	}
}
