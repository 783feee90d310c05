package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"nicd/framework"
	"nicd/internal/checksum"
)

// udpFrame is a UDP datagram over IPv4 with n bytes of payload, without a checksum.
func udpFrame(n int) []byte {
	f := make([]byte, 42+n)
	copy(f, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45})
	binary.BigEndian.PutUint16(f[16:], uint16(len(f)-14))
	binary.BigEndian.PutUint16(f[18:], 0xfffe) // the identification wraps
	f[22], f[23] = 64, 17
	copy(f[26:], []byte{10, 0, 0, 1, 10, 0, 0, 2, 0x10, 1, 0x20, 2})
	binary.BigEndian.PutUint16(f[24:], ^checksum.Sum(f[14:34]))
	binary.BigEndian.PutUint16(f[38:], uint16(8+n))
	fill(f[42:])
	return f
}

// udp6Frame is udpFrame over IPv6.
func udp6Frame(n int) []byte {
	f := make([]byte, 62+n)
	copy(f, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60})
	binary.BigEndian.PutUint16(f[18:], uint16(8+n))
	f[20], f[21] = 17, 64
	f[22], f[37], f[38], f[53] = 0xfd, 1, 0xfd, 2
	copy(f[54:], []byte{0x10, 1, 0x20, 2})
	binary.BigEndian.PutUint16(f[58:], uint16(8+n))
	fill(f[62:])
	return f
}

func fill(payload []byte) {
	for i := range payload {
		payload[i] = byte(i*7 + len(payload))
	}
}

// uso describes a frame of the two above that is to be cut, and writes the
// pseudo-header's sum into it.
func uso(f []byte, size uint16) framework.Packet {
	p := framework.Packet{
		Flags:         framework.Segment | framework.ChecksumPartial | framework.UDP,
		ChecksumStart: 34, ChecksumOffset: 6, HeaderLen: 42, SegmentSize: size,
	}
	if f[12] == 0x86 {
		p.Flags |= framework.IPv6
		p.ChecksumStart, p.HeaderLen = 54, 62
	} else {
		p.Flags |= framework.IPv4
	}
	at := int(p.ChecksumStart)
	binary.BigEndian.PutUint16(f[at+6:], udpPseudo(f, at, len(f)-at))
	return p
}

func udpPseudo(f []byte, at, length int) uint16 {
	if f[12] == 0x86 {
		return checksum.Pseudo6(f[22:54], 17, length)
	}
	return checksum.Pseudo4(f[26:34], 17, length)
}

// TestUSOInSoftware: a large UDP packet becomes datagrams of the size asked for,
// whole and with good headers, whatever else the device cannot do either.
func TestUSOInSoftware(t *testing.T) {
	for _, frameOf := range []func(int) []byte{udpFrame, udp6Frame} {
		for _, lacking := range []framework.Features{
			0, framework.TxChecksum, framework.VLANInsert, framework.TxChecksum | framework.VLANInsert,
		} {
			for _, size := range []int{1, 1448, 1449, 14480} {
				frame := frameOf(size)
				t.Run(fmt.Sprintf("%x, %d bytes, without %v", frame[12:14], size, lacking), func(t *testing.T) {
					cutUDP(t, frame, lacking)
				})
			}
		}
	}
}

func cutUDP(t *testing.T, frame []byte, lacking framework.Features) {
	const size = 1448
	r := newRig(t, 1, without(lacking|framework.USO))
	w := r.listen()
	r.start()
	p := uso(frame, size)
	p.Flags |= framework.VLANTag
	p.VLAN = 0x2064
	headers := int(p.HeaderLen)
	var pieces [][]byte
	for at := 0; at < len(frame); at += 1999 {
		pieces = append(pieces, frame[at:min(at+1999, len(frame))])
	}
	got, packets := r.sendOne(w, p, 4, pieces...)
	payload := frame[headers:]
	if want := (len(payload) + size - 1) / size; len(got) != want {
		t.Fatalf("%d datagrams, want %d", len(got), want)
	}
	for i, f := range got {
		if lacking.Has(framework.VLANInsert) {
			if !bytes.Equal(f[12:16], []byte{0x81, 0, 0x20, 0x64}) {
				t.Fatalf("datagram %d has no tag: %x", i, f[:20])
			}
			f = append(append([]byte(nil), f[:12]...), f[16:]...)
		}
		if packets[i].Flags&framework.Segment != 0 {
			t.Errorf("datagram %d is still to be cut", i)
		}
		partial := packets[i].Flags&framework.ChecksumPartial != 0
		if partial == lacking.Has(framework.TxChecksum) {
			t.Errorf("datagram %d has flags %b", i, packets[i].Flags)
		}
		checkDatagram(t, f, int(p.ChecksumStart), i, partial)
		if !bytes.Equal(f[headers:], payload[:len(f)-headers]) {
			t.Errorf("datagram %d has another payload", i)
		}
		payload = payload[len(f)-headers:]
	}
	if len(payload) != 0 {
		t.Errorf("%d bytes were not sent", len(payload))
	}
	r.finish()
}

// checkDatagram checks the headers of datagram i of a packet, whose UDP header
// begins at at.
func checkDatagram(t *testing.T, f []byte, at, i int, partial bool) {
	t.Helper()
	if n := int(binary.BigEndian.Uint16(f[at+4:])); n != len(f)-at {
		t.Errorf("datagram %d: UDP says %d bytes, it has %d", i, n, len(f)-at)
	}
	if f[12] == 0x86 {
		if n := int(binary.BigEndian.Uint16(f[18:])); n != len(f)-54 {
			t.Errorf("datagram %d: IPv6 says %d bytes, it has %d", i, n, len(f)-54)
		}
	} else {
		if n := int(binary.BigEndian.Uint16(f[16:])); n != len(f)-14 || checksum.Sum(f[14:34]) != 0xffff {
			t.Errorf("datagram %d: IPv4 says %d bytes of %d, header sum %#x", i, n, len(f)-14, checksum.Sum(f[14:34]))
		}
		if id := binary.BigEndian.Uint16(f[18:]); id != 0xfffe+uint16(i) {
			t.Errorf("datagram %d: identification %#x", i, id)
		}
	}
	pseudo := udpPseudo(f, at, len(f)-at)
	if field := binary.BigEndian.Uint16(f[at+6:]); partial && field != pseudo {
		t.Errorf("datagram %d: checksum field %#x, the pseudo-header's sum is %#x", i, field, pseudo)
	}
	if !partial && checksum.Add(pseudo, checksum.Sum(f[at:])) != 0xffff {
		t.Errorf("datagram %d: wrong checksum", i)
	}
}

// TestHardwareUSO: a device that can cut UDP is left to it, with the checksum
// field as a device that cuts wants it.
func TestHardwareUSO(t *testing.T) {
	for _, frame := range [][]byte{udpFrame(8000), udp6Frame(8000)} {
		// TSO is another feature.
		r := newRig(t, 1, without(framework.TSO4|framework.TSO6))
		w := r.listen()
		r.start()
		p := uso(frame, 1000)
		want := udpPseudo(frame, int(p.ChecksumStart), 0)
		got, packets := r.sendOne(w, p, 0, frame[:1500], frame[1500:3000], frame[3000:4500], frame[4500:6000], frame[6000:])
		if len(got) != 1 || packets[0].Flags&framework.Segment == 0 {
			t.Fatalf("%d packets: %+v", len(got), packets)
		}
		if sum := binary.BigEndian.Uint16(got[0][p.ChecksumStart+6:]); sum != want {
			t.Errorf("checksum field %#x, want %#x", sum, want)
		}
		if n := r.txCount(0, TxTSOHardwareSegments); n != 8 {
			t.Errorf("%d segments", n)
		}
		r.finish()
	}
}

// TestMalformedUSO: what is neither TCP nor UDP, or contradicts itself, is not cut
// by anybody.
func TestMalformedUSO(t *testing.T) {
	for name, spoil := range map[string]func(*framework.Packet){
		"headers longer than UDP's":  func(p *framework.Packet) { p.HeaderLen += 4 },
		"headers shorter than UDP's": func(p *framework.Packet) { p.HeaderLen -= 4 },
		"TCP with UDP's checksum":    func(p *framework.Packet) { p.Flags |= framework.TCP },
		"UDP with TCP's checksum":    func(p *framework.Packet) { p.ChecksumOffset = tcpChecksumOffset; p.HeaderLen += 12 },
		"SCTP's checksum":            func(p *framework.Packet) { p.ChecksumOffset = 8 },
		"no IP":                      func(p *framework.Packet) { p.Flags &^= framework.IPv4 },
	} {
		for _, lacking := range []framework.Features{0, framework.USO} {
			r := newRig(t, 1, without(lacking))
			w := r.listen()
			r.start()
			frame := udpFrame(3000)
			p := uso(frame, 1000)
			spoil(&p)
			if got, _ := r.sendOne(w, p, 64, frame[:1500], frame[1500:]); len(got) != 0 || r.txCount(0, TxDropMalformed) != 1 {
				t.Errorf("%s, without %v: %d packets were sent", name, lacking, len(got))
			}
			r.finish()
		}
	}
}

// TestUSOThatIsTCP: the headers of a packet that says it is UDP say TCP. Cutting it
// as either would send garbage.
func TestUSOThatIsTCP(t *testing.T) {
	r := newRig(t, 1, without(framework.USO))
	w := r.listen()
	r.start()
	frame := udpFrame(3000)
	p := uso(frame, 1000)
	frame[23] = 6 // the headers' sum is not looked at
	if got, _ := r.sendOne(w, p, 64, frame[:1500], frame[1500:]); len(got) != 0 || r.txCount(0, TxDropMalformed) != 1 {
		t.Errorf("%d packets were sent", len(got))
	}
	r.finish()
}
