package daemon

import (
	"bytes"
	"context"
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"nicd/bus/qemu"
	"nicd/framework"
	"nicd/framework/drivertest/rig"
)

// DHCP, as far as a lease takes: RFC 2131 figure 1, RFC 2132.
const (
	dhcpServer, dhcpClient = 67, 68
	dhcpFixed              = 236 // bytes before the options
	dhcpCookie             = 0x63825363
	dhcpBroadcast          = 1 << 15

	dhcpDiscover, dhcpOffer, dhcpRequest, dhcpACK = 1, 2, 3, 5

	optionMask, optionRouter, optionAddress, optionType, optionServer = 1, 3, 50, 53, 54
	optionEnd                                                         = 255
)

// lease is what a DHCP server gives.
type lease struct {
	address netip.Prefix
	router  netip.Addr
}

// getLease runs a driver on one of QEMU's models until QEMU's own network has
// given it an address.
func getLease(t *testing.T, driver framework.Driver, model string) lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	device, err := qemu.Start(ctx, qemu.Options{Name: "dhcp", Model: model, MAC: rig.MAC, Netdev: qemu.User{}})
	if err != nil {
		t.Fatal(err)
	}
	n := rig.On(t, driver, &rig.Station{Bus: device}, rig.Options{Memory: rig.SharedMemory, Deadline: time.Minute})
	offer := dhcpExchange(t, n, dhcpDiscover, nil)
	if offer.kind != dhcpOffer {
		t.Fatalf("answer of type %d to DISCOVER", offer.kind)
	}
	ack := dhcpExchange(t, n, dhcpRequest, append(
		append([]byte{optionAddress, 4}, offer.yours[:]...),
		append([]byte{optionServer, 4}, offer.options[optionServer]...)...))
	if ack.kind != dhcpACK || ack.yours != offer.yours {
		t.Fatalf("answer of type %d to REQUEST, for %v", ack.kind, ack.yours)
	}
	bits := 0
	for _, b := range ack.options[optionMask] {
		for ; b != 0; b <<= 1 {
			bits++
		}
	}
	router, _ := netip.AddrFromSlice(ack.options[optionRouter])
	return lease{netip.PrefixFrom(netip.AddrFrom4(ack.yours), bits), router}
}

type dhcpReply struct {
	kind    byte
	yours   [4]byte
	options map[byte][]byte
}

// dhcpExchange sends a message and waits for the answer to it.
func dhcpExchange(t *testing.T, n *rig.Net, kind byte, options []byte) dhcpReply {
	t.Helper()
	id := 0x6e696300 + uint32(kind)
	n.Send(0, dhcpFrame(id, kind, options), 2000, framework.Packet{})
	var r *dhcpReply
	n.Until("DHCP answer", func() bool {
		for _, got := range n.Poll(0) {
			if r == nil {
				r = parseDHCP(got.Bytes, id)
			}
		}
		return r != nil
	})
	return *r
}

func dhcpFrame(id uint32, kind byte, options []byte) []byte {
	m := make([]byte, dhcpFixed)
	m[0], m[1], m[2] = 1, 1, 6 // a request, from Ethernet, of 6-byte addresses
	binary.BigEndian.PutUint32(m[4:], id)
	binary.BigEndian.PutUint16(m[10:], dhcpBroadcast)
	copy(m[28:], rig.MAC[:])
	m = binary.BigEndian.AppendUint32(m, dhcpCookie)
	m = append(append(m, optionType, 1, kind), options...)
	m = append(m, optionEnd)

	udp := binary.BigEndian.AppendUint16(nil, dhcpClient)
	udp = binary.BigEndian.AppendUint16(udp, dhcpServer)
	udp = binary.BigEndian.AppendUint16(udp, uint16(8+len(m)))
	udp = append(udp, 0, 0) // no checksum: RFC 768 allows that

	ip := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255}
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)+len(udp)+len(m)))
	sum := uint32(0)
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xFFFF + sum>>16
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))

	frame := append(bytes.Repeat([]byte{0xFF}, 6), rig.MAC[:]...)
	frame = append(frame, 8, 0)
	return append(append(append(frame, ip...), udp...), m...)
}

// parseDHCP is an answer to id in a frame, nil if it is something else.
func parseDHCP(frame []byte, id uint32) *dhcpReply {
	const ip, udp = 14, 14 + 20
	if len(frame) < udp+8+dhcpFixed+4 || frame[12] != 8 || frame[13] != 0 || frame[ip+9] != 17 ||
		binary.BigEndian.Uint16(frame[udp+2:]) != dhcpClient {
		return nil
	}
	m := frame[udp+8:]
	if binary.BigEndian.Uint32(m[4:]) != id || binary.BigEndian.Uint32(m[dhcpFixed:]) != dhcpCookie {
		return nil
	}
	r := &dhcpReply{yours: [4]byte(m[16:]), options: map[byte][]byte{}}
	for o := m[dhcpFixed+4:]; len(o) >= 2 && o[0] != optionEnd && len(o) >= 2+int(o[1]); o = o[2+int(o[1]):] {
		r.options[o[0]] = o[2 : 2+int(o[1])]
	}
	if k := r.options[optionType]; len(k) == 1 {
		r.kind = k[0]
	}
	return r
}
